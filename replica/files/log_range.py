"""Which events of binlog files lie between ``start`` and ``stop``, told from the files alone.

A start by position may lie anywhere between two events; starts by GTIDs and by time pass whole transactions over. The
end is that of a live stream: the open transaction is finished first.
"""

import math
from collections.abc import Sequence
from datetime import datetime

from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
)
from protocol.constants import ROW_CODES, EventType
from protocol.errors import ConfigurationError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet, parse_gtid_set
from protocol.position import BinlogPosition, Checkpoint

from ..config.selection import Start, Stop
from ..transactions.boundary import Progress
from ..transactions.stop_point import StopPoint
from .log_files import LogFile

FIRST_POSITION = 4
# What is passed over is not decoded but for what says where transactions begin. Table maps are kept for a start
# between them and their rows.
_PASSED_CODES = ROW_CODES - {bytes([EventType.TABLE_MAP])}


class LogRange:
    """Follows the events of files from ``start`` to ``stop``; one for one reading of them.

    None is the first event, or the last one. An offset (``int``) is of the first file for ``start`` and of the last
    one for ``stop``. Raises ``ConfigurationError`` for a start or stop that files cannot have.
    """

    def __init__(self, files: Sequence[LogFile], start: Start | int | None, stop: Stop | int | None) -> None:
        self.is_over = False
        self._have: AnyGtidSet | None = None
        self._not_before: int | None = None
        self._start: BinlogPosition | None = None
        self._stop = _stop_point(files, stop)
        self._set_start(files, start)
        self._is_passing = self._start is not None or self._not_before is not None
        self._progress = Progress(files[0].name, FIRST_POSITION, None, has_gtids=True)
        self._file = ""

    @property
    def is_everything(self) -> bool:
        """Whether all that is still to come belongs to the range: nothing needs to be asked or told any more."""
        return self._stop is None and self._have is None and not self._is_passing and self._start is None

    def choose(self, files: Sequence[LogFile]) -> Sequence[LogFile]:
        """The files from the one on in which the range begins."""
        if self._start is None:
            return files
        names = [file.name for file in files]
        if self._start.file not in names:
            raise ConfigurationError(f"start: {self._start.file} is none of the files {', '.join(names)}")
        return files[names.index(self._start.file) :]

    def enter(self, file: str) -> None:
        """The next event is the first one of this file."""
        self._file = file

    def leave(self, position: int) -> None:
        """The file has ended there."""
        if self._start is not None and position >= self._start.position:
            self._find_start(position)
        if self._start is not None:
            raise ConfigurationError(f"start: {self._start} lies behind the end of the file, {position}")

    def wants(self, raw: bytes, position: int) -> bool:
        """Whether an event needs to be decoded."""
        if self._start is not None and position >= self._start.position:
            self._find_start(position)
        return not self._is_passing or raw[4:5] not in _PASSED_CODES

    def admits(self, event: Event) -> bool:
        """Whether the user is to see the event; one that lies behind the end makes ``is_over`` true."""
        progress = self._progress
        # A GTID begins a transaction in any case: the end of the one before may have been lost in damage.
        if progress.begins(event) or isinstance(event, AnonymousGtidEvent | MariadbGtidEvent):
            self._begin(event)
        elif self._have is not None and not progress.in_transaction:
            # Between transactions: of the file, not of a transaction that was passed over.
            self._is_passing = False
        return not self.is_over and (not self._is_passing or isinstance(event, FormatDescriptionEvent))

    def follow(self, event: Event, end: int) -> None:
        """The user is done with the event, which ends at that offset; behind the last one ``is_over`` is true."""
        is_between = self._progress.follow(event, self._file, end)
        if is_between and self._stop is not None and self._stop.is_reached(self._progress):
            self.is_over = True

    def _begin(self, event: Event) -> None:
        if self._stop is not None:
            if self._stop.gtid_set is not None:
                _check_family("stop", self._stop.gtid_set, event)
                if self._progress.gtid_set is None:
                    # A log without a list of what lies before it.
                    self._progress.gtid_set = type(self._stop.gtid_set)()
            self.is_over = self.is_over or self._stop.excludes(event)
        if self._not_before is not None and event.header.timestamp >= self._not_before:
            self._not_before, self._is_passing = None, False
        if self._have is not None:
            self._is_passing = self._has(self._have, event)

    def _has(self, gtid_set: AnyGtidSet, event: Event) -> bool:
        # The empty set is of both families: its text, which checkpoints keep, does not tell them apart.
        if not gtid_set:
            return False
        _check_family("start", gtid_set, event)
        if isinstance(event, GtidEvent) and isinstance(gtid_set, GtidSet):
            return event.gtid in gtid_set
        if isinstance(event, MariadbGtidEvent) and isinstance(gtid_set, MariadbGtidSet):
            return event.gtid in gtid_set
        return False

    def _find_start(self, position: int) -> None:
        assert self._start is not None
        if position != self._start.position:
            raise ConfigurationError(f"start: no event begins at {self._start}")
        self._start, self._is_passing = None, False

    def _set_start(self, files: Sequence[LogFile], start: Start | int | None) -> None:
        if isinstance(start, Checkpoint):
            has_gtids = start.gtid_set is not None
            start = (
                parse_gtid_set(start.gtid_set or "")
                if has_gtids
                else BinlogPosition(start.file, start.position)
            )
        if isinstance(start, datetime):
            self._not_before = math.floor(start.timestamp())
        elif isinstance(start, BinlogPosition):
            self._start = start
        elif isinstance(start, GtidSet | MariadbGtidSet):
            self._have = start
        elif start == "now":
            raise ConfigurationError("start: 'now' is the end of a file: there is nothing behind it")
        elif isinstance(start, int):
            self._start = BinlogPosition(files[0].name, start)
        if self._start is not None and self._start.position <= FIRST_POSITION:
            self._start = None if self._start.file == files[0].name else self._start


def _check_family(option: str, gtid_set: AnyGtidSet, event: Event) -> None:
    """Raise ``ConfigurationError`` where an event's GTID can be in no set of this family."""
    other = GtidEvent if isinstance(gtid_set, MariadbGtidSet) else MariadbGtidEvent
    if isinstance(event, other):
        raise ConfigurationError(f"{option}: {gtid_set} is of the other family of servers than the log")


def _stop_point(files: Sequence[LogFile], stop: Stop | int | None) -> StopPoint | None:
    if isinstance(stop, datetime):
        return StopPoint(timestamp=math.ceil(stop.timestamp()))
    if isinstance(stop, GtidSet | MariadbGtidSet):
        return StopPoint(gtid_set=stop)
    if isinstance(stop, int):
        stop = BinlogPosition(files[-1].name, stop)
    if not isinstance(stop, BinlogPosition):
        # "now" is what the files hold.
        return None
    return StopPoint(position=stop, places={file.name: place for place, file in enumerate(files)})
