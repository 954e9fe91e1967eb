"""Finds the offset at which a query begins, from the text of a start: asks the source, or reads its log."""

from protocol.errors import ConfigurationError

from ..config.options import Options
from ..config.selection import parse_start
from ..source.dump import Greeted
from ..source.prepared_xa import are_xa_prepared
from ..source.resolve_start import StartPoint, log_end, resolve_start, with_gtids
from .offsets import Offset


async def find_offset(options: Options, start: str) -> Offset:
    """The present offset of ``latest``, ``earliest``, ``snapshot``, a time or GTIDs.

    ``snapshot`` is a place before which all changes are visible in the tables. Raises what connecting raises, and
    ``ConfigurationError`` for a start that the source does not have.
    """
    if start.lstrip().startswith("{"):
        raise ConfigurationError("a JSON offset cannot be looked up as a start")
    greeted = await Greeted.open(options)
    try:
        point = await _find(greeted, start)
        if not point.by_gtid and greeted.source.has_gtids:
            point = await with_gtids(point, greeted.source, greeted.scan())
        return Offset.at(greeted.source, point.file, point.position, point.gtid_set)
    finally:
        await greeted.session.aclose()


async def _find(greeted: Greeted, start: str) -> StartPoint:
    session, source, scan = greeted.session, greeted.source, greeted.scan()
    if start == "latest":
        end = await log_end(session, source, scan)
        return StartPoint(end.file, end.position)
    if start == "earliest":
        return StartPoint(await scan.first_file())
    if start == "snapshot":
        point = await resolve_start("snapshot", session, source, scan)
        if point.by_gtid and await are_xa_prepared(session, source):
            # The set may lack prepared transactions, and a stream that goes on by a position behind one of them would
            # have again what comes after it in the log.
            end = await log_end(session, source, scan)
            return StartPoint(await scan.file_before(end.file))
        # The beginning of a file lists the GTIDs before it.
        return point if point.by_gtid else StartPoint(point.file)
    point = await resolve_start(parse_start(start), session, source, scan)
    if point.not_before is None:
        return point
    found = await scan.first_since(point.file, point.not_before)
    return StartPoint(found.file, found.position)
