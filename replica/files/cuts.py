"""Finds the places where a plain binlog file may be cut between two transactions, by its event headers.

A cut is before an event that begins a transaction (any GTID event), or after one that ends a transaction (XID; in
logs without GTID events also QUERY "COMMIT"). This module decodes no events but those QUERY events.
"""

import mmap
import struct
from collections.abc import Iterator
from typing import Final

from protocol.binlog.checksum import algorithm_of, crc32_matches
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import QueryEvent
from protocol.constants import BINLOG_MAGIC, ENDING_STATEMENTS, EVENT_HEADER_SIZE, EventType
from protocol.errors import DecodeError
from protocol.records import record

from .mapped_file import release

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

        The reader of the last piece reports the incomplete event.
        """
        data, size, position = self._data, self._size, self._start or len(BINLOG_MAGIC)
        due = 0
        while position + EVENT_HEADER_SIZE <= size:
            if position >= due:
                due = release(data, position)
                if isinstance(data, mmap.mmap) and data.size() < size:
                    # The file was cut off: the kernel ends a process that looks at mapped memory behind its end.
                    return
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
