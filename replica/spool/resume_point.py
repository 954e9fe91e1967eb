"""The point from which the intake goes on: by position on the same server, else by the last boundary's GTID set."""

from protocol.errors import SourceChangedError
from protocol.gtid import AnyGtidSet, GtidSet
from protocol.position import BinlogPosition

from ..source.dump import Greeted
from ..source.gtid_gaps import check_all_have_gtids
from ..source.resolve_start import StartPoint, check_held, check_move, from_gtids, is_same_server
from ..source.same_log import check_same_log
from ..source.server_facts import executed_gtids
from .offsets import Offset


async def resume_point(greeted: Greeted, start: Offset, *, is_by_gtid: bool) -> StartPoint:
    """The beginning of the dump for a log that was read up to ``start``; ``is_by_gtid``: by GTIDs on any server.

    Raises ``TransactionsUnavailableError`` for a server that lacks transactions read before, or has purged
    transactions that are needed; ``SourceChangedError`` for another log than that of the offset.
    """
    session, source, gtids = greeted.session, greeted.source, start.gtids
    is_same = is_same_server(start.identity, source)
    await check_move(start.identity, source, session)
    begun = None
    if is_same and start.file_begun and not source.is_galera:
        begun = start.file, start.file_begun
    place = BinlogPosition(start.file, start.position) if is_same and start.file else None
    if gtids is None or (start.file and not source.has_gtids):
        if not is_same:
            raise SourceChangedError(
                f"server {source.server_uuid or source.server_id} answers, but the offset is a position in the log "
                f"of {start.server_uuid or start.server_id}, without a GTID set to find it on another server"
            )
        return StartPoint(start.file, start.position, gtids, begun=begun)
    point = await from_gtids(gtids, session, source)
    await check_held(point, session, source)
    # The text of an empty set does not tell whose it is.
    gtids = point.gtid_set
    if place is None or gtids is None:
        return point
    await check_same_log(place, start.file_begun, gtids, session, source)
    if not is_by_gtid:
        return StartPoint(start.file, start.position, gtids, begun=begun)
    await check_all_have_gtids(place, gtids, session, source)
    return StartPoint(gtid_set=gtids, by_gtid=True, begun=begun)


async def lacks(greeted: Greeted, gtids: AnyGtidSet | None) -> bool:
    """Whether the source never had some of these transactions, or has lost them."""
    if not isinstance(gtids, GtidSet):
        # For MariaDB this was compared before the dump: the refusal means that the source lacks them.
        return True
    executed = await executed_gtids(greeted.session, greeted.source)
    return not (isinstance(executed, GtidSet) and gtids <= executed)
