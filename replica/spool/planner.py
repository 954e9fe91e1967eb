"""The planner: binlog files -> pieces of about a given size, cut between transactions, by their event headers.

A cut is before an event that begins a transaction (any GTID event), or after one that ends a transaction (XID; in
logs without GTID events also QUERY "COMMIT"). A file whose headers cannot be followed, such as an encrypted one, is
one piece, and so is a file of an object store. This module decodes no events but those QUERY events.
"""

import contextlib
import itertools
import logging
import mmap
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final, TextIO

from protocol.binlog.checksum import algorithm_of, crc32_matches
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import QueryEvent
from protocol.constants import BINLOG_MAGIC, ENDING_STATEMENTS, EVENT_HEADER_SIZE, EventType
from protocol.errors import DecodeError
from protocol.position import file_number
from protocol.records import record

from ..files.log_files import LogFile
from .mapped_file import release
from .pieces import LogPiece
from .storage import is_uri

_LOGGER: Final = logging.getLogger(__name__)

_BEGINNING: Final = frozenset(
    {EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID}
)
# Events of these types are looked at; all others are skipped by their size.
_NOTEWORTHY: Final = _BEGINNING | {
    EventType.XID,
    EventType.QUERY,
    EventType.FORMAT_DESCRIPTION,
    EventType.MARIADB_START_ENCRYPTION,
}
_CUTTING: Final = _BEGINNING | {EventType.XID}
# Type and size from an event header: timestamp (4 bytes), type, server id (4 bytes), size.
_unpack_type_and_size = struct.Struct("<4xB4xI").unpack_from
_PROGRESS_SECONDS: Final = 5.0


def plan_files(files: Sequence[LogFile], max_bytes: int) -> list[LogPiece]:
    """The pieces of these files in the order of the log, each of about ``max_bytes``, and of a transaction at least.

    Planning logs its progress every few seconds. A file that is still being written is planned up to its present end.
    """
    pieces: list[LogPiece] = []
    begun = shown = time.monotonic()
    planned, size = 0, sum(file.size or 0 for file in files)
    for done, (file, number) in enumerate(zip(files, file_numbers(files), strict=True), 1):
        pieces += plan_file(file, number, max_bytes)
        planned += file.size or 0
        now = time.monotonic()
        if now - shown >= _PROGRESS_SECONDS or (shown > begun and done == len(files)):
            shown = now
            _LOGGER.info(
                "planned %d of %d binlog files, %.1f of %.1f GB, in %.0f s: %d partitions",
                done,
                len(files),
                planned / 1e9,
                size / 1e9,
                now - begun,
                len(pieces),
            )
    return pieces


@contextlib.contextmanager
def shown_progress(target: TextIO) -> Iterator[None]:
    """Write the progress of ``plan_files`` to ``target`` if logging is not set up, as in Spark's Python processes."""
    if _LOGGER.hasHandlers():
        yield
        return
    handler = logging.StreamHandler(target)
    handler.setFormatter(logging.Formatter("mysql-binlog: %(message)s"))
    level = _LOGGER.level
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)
        _LOGGER.removeHandler(handler)


def file_numbers(files: Sequence[LogFile]) -> list[int]:
    """The numbers in the names of the files if they ascend; else 1, 2, 3..."""
    numbers = [file_number(file.name) for file in files]
    if all(later > earlier for earlier, later in itertools.pairwise(numbers)):
        return numbers
    return list(range(1, len(files) + 1))


def plan_file(file: LogFile, number: int, max_bytes: int) -> Iterator[LogPiece]:
    """The pieces of one file."""
    assert file.path is not None
    if is_uri(file.path):
        # Headers are not read over a network: a task reads the whole file.
        yield LogPiece(file.path, file.name, number, is_whole=True)
        return
    with open(file.path, "rb") as opened:
        head = opened.read(len(BINLOG_MAGIC) + EVENT_HEADER_SIZE)
        size = file.size or 0
        if not head.startswith(BINLOG_MAGIC) or len(head) < len(BINLOG_MAGIC) + EVENT_HEADER_SIZE:
            yield LogPiece(file.path, file.name, number, size=size, is_whole=True)
            return
        with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
            walk = HeaderWalk(data, size)
            cuts = list(walk.cuts(max_bytes))
    if not walk.can_be_cut:
        yield LogPiece(file.path, file.name, number, size=size, is_whole=True)
        return
    for cut, end in zip(cuts, [*(cut.position for cut in cuts[1:]), size], strict=True):
        yield LogPiece(
            file.path,
            file.name,
            number,
            start=cut.position,
            size=end - cut.position,
            position=cut.position,
            description=cut.description,
            may_be_torn=end == size,
        )


@record(frozen=True, slots=True)
class Cut:
    """Where a piece begins, and the FORMAT_DESCRIPTION that holds there (empty at the beginning of a file)."""

    position: int
    description: bytes


class HeaderWalk:
    """Walks over the events of a plain binlog file in memory.

    ``can_be_cut`` becomes False if the data are encrypted, or not a binlog file.
    """

    def __init__(
        self, data: mmap.mmap | bytes, size: int, *, start: int = 0, description: bytes = b""
    ) -> None:
        """Walk from ``start`` to ``size``; ``description`` is the FORMAT_DESCRIPTION that holds at the start."""
        self.can_be_cut = True
        self._data = data
        self._start = start
        self._size = size
        self._description = description

    def cuts(self, max_bytes: int) -> Iterator[Cut]:
        """The places where pieces begin; the first is the start."""
        yield Cut(self._start, self._description)
        begin, has_gtids = self._start, False
        for position, event_type, end in self._noteworthy():
            place = end
            if event_type in _BEGINNING:
                place, has_gtids = position, True
            elif event_type == EventType.FORMAT_DESCRIPTION:
                self._describe(position, end)
            elif event_type == EventType.MARIADB_START_ENCRYPTION:
                self.can_be_cut = False
            if not self.can_be_cut:
                return
            is_far = place - begin >= max_bytes and place < self._size
            if is_far and (event_type in _CUTTING or (not has_gtids and self._ends(position, end))):
                begin = place
                yield Cut(place, self._description)

    def _noteworthy(self) -> Iterator[tuple[int, int, int]]:
        """Position, type and end of the ``_NOTEWORTHY`` events, up to the first incomplete event.

        The reader of the last piece reports that one.
        """
        data, size, position = self._data, self._size, self._start or len(BINLOG_MAGIC)
        due = 0
        while position + EVENT_HEADER_SIZE <= size:
            if position >= due:
                due = release(data, position)
            event_type, event_size = _unpack_type_and_size(data, position)
            end = position + event_size
            if event_size < EVENT_HEADER_SIZE or end > size:
                return
            if event_type in _NOTEWORTHY:
                yield position, event_type, end
            if not self._description:
                # The first event is no FORMAT_DESCRIPTION, so the format of later events is unknown.
                self.can_be_cut = False
                return
            position = end

    def _describe(self, position: int, end: int) -> None:
        raw = self._data[position:end]
        self._description = raw
        if algorithm_of(raw) is not None and not crc32_matches(raw):
            self.can_be_cut = False

    def _ends(self, position: int, end: int) -> bool:
        """Whether the event is a QUERY that ends a transaction."""
        if self._data[position + 4] != EventType.QUERY:
            return False
        decoder = EventDecoder()
        try:
            decoder.decode(self._description, len(BINLOG_MAGIC))
            event = decoder.decode(self._data[position:end], position)
        except DecodeError:
            return False
        return isinstance(event, QueryEvent) and event.sql in ENDING_STATEMENTS
