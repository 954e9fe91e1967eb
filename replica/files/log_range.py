"""Decides which events of binlog files lie between ``start`` and ``stop``, from the files alone.

A start by position may be between any two events. A start by GTID set or time skips whole transactions. As in a live
stream, an open transaction is finished before the stop. Reads no files itself.
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
from protocol.position import FIRST_POSITION, BinlogPosition, Checkpoint

from ..config.selection import Start, Stop
from ..transactions.boundary import Progress
from ..transactions.stop_point import StopPoint
from .log_files import LogFile

# Rows events before the start are not decoded; other events are, because they tell where transactions begin. Table
# maps are decoded for a start between a table map and its rows.
_PASSED_CODES = ROW_CODES - {bytes([EventType.TABLE_MAP])}


class LogRange:
    """Follows the events of files from ``start`` to ``stop``, for one pass over the files.

    None means the first event, or the last. An offset (``int``) is in the first file for ``start``, in the last file
    for ``stop``. Raises ``ConfigurationError`` for a start or stop that files cannot have.
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
        """Whether all later events belong to the range, so that ``admits`` and ``follow`` are no longer needed."""
        return self._stop is None and self._have is None and not self._is_passing and self._start is None

    def choose(self, files: Sequence[LogFile]) -> Sequence[LogFile]:
        """The files to read: the file that contains ``start``, and all later ones."""
        if self._start is None:
            return files
        names = [file.name for file in files]
        if self._start.file not in names:
            raise ConfigurationError(f"start: {self._start.file} is not among the files {', '.join(names)}")
        return files[names.index(self._start.file) :]

    def enter(self, file: str) -> None:
        """Begin a file: the next event is its first."""
        self._file = file

    def leave(self, position: int) -> None:
        """End a file, at this position."""
        if self._start is not None and position >= self._start.position:
            self._find_start(position)
        if self._start is not None:
            raise ConfigurationError(f"start: {self._start} is after the end of the file, {position}")

    def wants(self, raw: bytes, position: int) -> bool:
        """Whether an event needs to be decoded."""
        if self._start is not None and position >= self._start.position:
            self._find_start(position)
        return not self._is_passing or raw[4:5] not in _PASSED_CODES

    def admits(self, event: Event) -> bool:
        """Whether the event is in the range; an event after the stop sets ``is_over``."""
        progress = self._progress
        # A GTID always begins a transaction: the end of the previous one may have been lost in damage.
        if progress.begins(event) or isinstance(event, AnonymousGtidEvent | MariadbGtidEvent):
            self._begin(event)
        elif self._have is not None and not progress.in_transaction:
            # Between transactions: the event belongs to the file, not to a skipped transaction.
            self._is_passing = False
        return not self.is_over and (not self._is_passing or isinstance(event, FormatDescriptionEvent))

    def follow(self, event: Event, end: int) -> None:
        """Note that the user is done with an event that ends at offset ``end``; at the stop this sets ``is_over``."""
        is_between = self._progress.follow(event, self._file, end)
        if is_between and self._stop is not None and self._stop.is_reached(self._progress):
            self.is_over = True

    def _begin(self, event: Event) -> None:
        if self._stop is not None:
            if self._stop.gtid_set is not None:
                _check_family("stop", self._stop.gtid_set, event)
                if self._progress.gtid_set is None:
                    # The file does not list the GTIDs of the files before it.
                    self._progress.gtid_set = type(self._stop.gtid_set)()
            self.is_over = self.is_over or self._stop.excludes(event)
        if self._not_before is not None and event.header.timestamp >= self._not_before:
            self._not_before, self._is_passing = None, False
        if self._have is not None:
            self._is_passing = self._has(self._have, event)

    def _has(self, gtid_set: AnyGtidSet, event: Event) -> bool:
        # The empty set belongs to both families: its text in a checkpoint is the same for MySQL and MariaDB.
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
            raise ConfigurationError("start: 'now' is the end of the files: nothing comes after it")
        elif isinstance(start, int):
            self._start = BinlogPosition(files[0].name, start)
        if self._start is not None and self._start.position <= FIRST_POSITION:
            self._start = None if self._start.file == files[0].name else self._start


def _check_family(option: str, gtid_set: AnyGtidSet, event: Event) -> None:
    """Raise ``ConfigurationError`` for a MariaDB GTID set and an event of MySQL, or the reverse."""
    other = GtidEvent if isinstance(gtid_set, MariadbGtidSet) else MariadbGtidEvent
    if isinstance(event, other):
        family = "MySQL" if other is GtidEvent else "MariaDB"
        raise ConfigurationError(
            f"{option}: the log is {family}'s, and {gtid_set} is not a {family} GTID set"
        )


def _stop_point(files: Sequence[LogFile], stop: Stop | int | None) -> StopPoint | None:
    if isinstance(stop, datetime):
        return StopPoint(timestamp=math.ceil(stop.timestamp()))
    if isinstance(stop, GtidSet | MariadbGtidSet):
        return StopPoint(gtid_set=stop)
    if isinstance(stop, int):
        stop = BinlogPosition(files[-1].name, stop)
    if not isinstance(stop, BinlogPosition):
        # "now" means the end of the files.
        return None
    return StopPoint(position=stop, places={file.name: place for place, file in enumerate(files)})
