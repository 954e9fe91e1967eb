"""Where a stream ends: every kind of ``stop`` resolved to a condition that is asked between transactions."""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from protocol.binlog.events import Event, HeartbeatEvent
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet, MariadbGtidSet
from protocol.position import BinlogPosition

from .options import AnyGtidSet, Options, Stop
from .progress import Progress
from .scan import LogScan
from .session import Session
from .source import Source, executed_gtids
from .start import log_end


@dataclass(frozen=True, slots=True)
class StopPoint:
    """The stream ends between two transactions as soon as one of these is so.

    ``position`` is reached; all of ``gtid_set`` has come; the next transaction began at ``timestamp`` (seconds since
    1970) or later.
    """

    position: BinlogPosition | None = None
    gtid_set: AnyGtidSet | None = None
    timestamp: int | None = None

    def is_reached(self, progress: Progress) -> bool:
        """Whether nothing behind the last transaction is wanted."""
        return self._has_passed(progress.file, progress.position) or self._has_all(progress.gtid_set)

    def excludes(self, event: Event) -> bool:
        """Whether a transaction that begins with this event lies behind the end."""
        if self.timestamp is not None and event.header.timestamp >= self.timestamp:
            return True
        return self._has_passed(event.file, event.position)

    def has_passed(self, heartbeat: HeartbeatEvent) -> bool:
        """Whether a source that has sent everything up to there has sent everything up to the end."""
        return self._has_passed(heartbeat.source_file, heartbeat.source_position)

    def seconds_left(self, now: float) -> float | None:
        """How long, by the source's clock, until ``settle`` can say where the end lies; None if that is known."""
        if self.timestamp is None or self.position is not None:
            return None
        return max(self.timestamp + 1 - now, 0)

    def _has_passed(self, file: str, position: int) -> bool:
        end = self.position
        if end is None or not file:
            return False
        # Asked at every transaction; comparing two positions takes 1.5 us, this 0.1.
        return position >= end.position if file == end.file else BinlogPosition(file, position) >= end

    def _has_all(self, gtid_set: AnyGtidSet | None) -> bool:
        if isinstance(self.gtid_set, MariadbGtidSet):
            return isinstance(gtid_set, MariadbGtidSet) and self.gtid_set <= gtid_set
        if isinstance(self.gtid_set, GtidSet):
            return isinstance(gtid_set, GtidSet) and self.gtid_set <= gtid_set
        return False


async def resolve_stop(stop: Stop, session: Session, source: Source, scan: LogScan) -> StopPoint:
    """The condition that ``stop`` means on this source; ``ConfigurationError`` for a GTID set of the other family."""
    if isinstance(stop, BinlogPosition):
        return StopPoint(position=stop)
    if isinstance(stop, datetime):
        point = StopPoint(timestamp=math.ceil(stop.timestamp()))
        return point if point.seconds_left(source.now) else await _settled(point, session, source, scan)
    if isinstance(stop, GtidSet | MariadbGtidSet):
        if isinstance(stop, MariadbGtidSet) != source.is_mariadb:
            raise ConfigurationError(f"stop: {stop} is of the other family of servers than the source")
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
