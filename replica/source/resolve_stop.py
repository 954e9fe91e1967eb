"""Where a stream ends: every kind of ``stop`` resolved to a condition that is asked between transactions."""

import math
from dataclasses import replace
from datetime import datetime

from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition

from ..config.options import Options
from ..config.selection import Stop
from ..transactions.stop_point import StopPoint
from .log_scan import LogScan
from .resolve_start import log_end
from .server_facts import Source, executed_gtids
from .session import Session


async def resolve_stop(stop: Stop, session: Session, source: Source, scan: LogScan) -> StopPoint:
    """The condition that ``stop`` means on this source; ``ConfigurationError`` for a GTID set that it cannot have."""
    if isinstance(stop, BinlogPosition):
        return StopPoint(position=stop)
    if isinstance(stop, datetime):
        point = StopPoint(timestamp=math.ceil(stop.timestamp()))
        return point if point.seconds_left(source.now) else await _settled(point, session, source, scan)
    if isinstance(stop, GtidSet | MariadbGtidSet):
        if isinstance(stop, MariadbGtidSet) != source.is_mariadb:
            raise ConfigurationError(f"stop: {stop} is of the other family of servers than the source")
        if not source.has_gtids:
            raise ConfigurationError(
                "stop: the source has gtid_mode other than ON, so there is no knowing when a GTID set has come: give "
                "a position or a time"
            )
        return StopPoint(gtid_set=stop)
    return await _settled(StopPoint(), session, source, scan)


async def settle(point: StopPoint, options: Options, source: Source) -> StopPoint:
    """The same condition for a time that has come: the end is what the log holds now."""
    session = await Session.open(options)
    try:
        return await _settled(point, session, source, LogScan(options, source))
    finally:
        await session.aclose()


async def _settled(point: StopPoint, session: Session, source: Source, scan: LogScan) -> StopPoint:
    """The same condition, or that everything has come which the source holds now.

    Position and set are of the same place; a stream knows the one or the other. The position is asked for first, so
    that the set, taken a moment later, is not reached before it.
    """
    position = await log_end(session, source, scan)
    gtid_set = await executed_gtids(session, source) if source.has_gtids else None
    return replace(point, position=position, gtid_set=gtid_set or None)
