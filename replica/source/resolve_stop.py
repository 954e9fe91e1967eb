"""Resolves each kind of ``stop`` to a ``StopPoint``, a condition that the stream checks between transactions.

Asks the source, or reads its log, for the end of the log. Does not follow the stream itself.
"""

import math
from datetime import datetime

from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition
from protocol.records import replace

from ..config.options import Options
from ..config.selection import Stop
from ..transactions.stop_point import StopPoint
from .log_scan import LogScan
from .resolve_start import log_end
from .second_connection import beside_the_dump
from .server_facts import Source, executed_gtids
from .session import Session


async def resolve_stop(stop: Stop, session: Session, source: Source, scan: LogScan) -> StopPoint:
    """The condition that ``stop`` means on this source.

    Raises ``ConfigurationError`` for a GTID set that this source cannot have.
    """
    if isinstance(stop, BinlogPosition):
        return StopPoint(position=stop)
    if isinstance(stop, datetime):
        point = StopPoint(timestamp=math.ceil(stop.timestamp()))
        return point if point.seconds_left(source.now) else await _settled(point, session, source, scan)
    if isinstance(stop, GtidSet | MariadbGtidSet):
        if isinstance(stop, MariadbGtidSet) != source.is_mariadb:
            family = "MariaDB" if source.is_mariadb else "MySQL"
            raise ConfigurationError(f"stop: the source is {family}, and {stop} is not a {family} GTID set")
        if not source.has_gtids:
            raise ConfigurationError(
                "stop: a GTID set needs gtid_mode=ON on the source, as only then each transaction has a GTID: give "
                "a position or a time"
            )
        return StopPoint(gtid_set=stop)
    return await _settled(StopPoint(), session, source, scan)


async def settle(point: StopPoint, options: Options, source: Source) -> StopPoint:
    """Complete a stop by time once that time has come: the end is then the log's end."""
    with beside_the_dump():
        session = await Session.open(options)
    try:
        return await _settled(point, session, source, LogScan(options, source))
    finally:
        await session.aclose()


async def _settled(point: StopPoint, session: Session, source: Source, scan: LogScan) -> StopPoint:
    """The same condition, or the arrival of everything that the source holds now.

    Position and GTID set describe the same end; a stream knows one or the other. The position is read first: the GTID
    set, read a moment later, cannot be reached before the position.
    """
    position = await log_end(session, source, scan)
    gtid_set = await executed_gtids(session, source) if source.has_gtids else None
    return replace(point, position=position, gtid_set=gtid_set or None, is_told=True)
