"""Going on with the very next row after a reconnect: notes on the open transaction, and passing over repeated events.

A new connection begins at the last transaction boundary, so that table maps come before their rows. Events that the
consumer already has are passed over. On the same server these are all events up to the last event's position. Another
server of the same topology may cut the rows into other events. There the rows are compared by table, number and hash.
If they are not provably the same, the transaction is delivered again after a ``TransactionRestarted``.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    BinlogCheckpointEvent,
    DeleteRowsEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.extra_row_data import read_extra
from protocol.binlog.rows_events import ROWS_FORMATS
from protocol.constants import CHECKSUM_SIZE, EventType
from protocol.errors import ConfigurationError, SourceChangedError
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import BinlogPosition
from protocol.records import field, record
from protocol.wire import Reader, bitmap_size

# Up to this many bytes of an open transaction are kept as raw events, more as hashes: hashing costs time.
_KEPT_BYTES: Final = 4 << 20
#: A larger event is not kept for comparison.
COMPARED_BYTES: Final = 1 << 20
#: Events that belong to a file and not to a transaction.
FILE_EVENTS: Final = (
    FormatDescriptionEvent,
    PreviousGtidsEvent,
    MariadbGtidListEvent,
    BinlogCheckpointEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
)
_ENDING: Final = (XidEvent, XaPrepareEvent)
_AnyRowsEvent = WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent


@record(slots=True)
class TransactionRestarted(Event):
    """The open transaction comes again from its beginning: undo what was done with its rows so far.

    This is no event of the log, and ``events=`` does not filter it. It comes after a failover to a server that lacks
    the transaction, or on which its delivered part is not provably the same (``reason`` says why). ``gtid`` is the
    GTID of the transaction, ``rows`` the number of its row changes delivered so far. ``file`` and ``position`` are
    its beginning on the previous server. Earlier transactions stay valid.
    """

    gtid: Gtid | MariadbGtid | None = None
    rows: int = 0
    reason: str = ""


def transaction_restarted(
    boundary: tuple[str, int], gtid: Gtid | MariadbGtid | None, rows: int, reason: str
) -> TransactionRestarted:
    """Make the marker, with a header of type 0 and size 0."""
    header = EventHeader(int(time.time()), 0, 0, 0, 0, 0)
    return TransactionRestarted(header, *boundary, gtid, rows, reason)


# Identifies rows besides their bytes: schema, table, kind of change, bitmaps of the columns that the rows hold.
_Key = tuple[str, str, type[_AnyRowsEvent], bytes]


@record(slots=True)
class _Segment:
    """Consecutive rows of one key, from one or more events."""

    key: _Key
    size: int = 0
    rows: int = 0
    content: "blake2b" = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, data: memoryview, rows: int) -> None:
        self.content.update(data)
        self.size += len(data)
        self.rows += rows


def _key_and_rows(decoder: EventDecoder, raw: bytes, event: _AnyRowsEvent) -> tuple[_Key, memoryview]:
    """A rows event's key and the bytes of its rows. Compressed rows stay compressed."""
    description = decoder.format_description
    assert description is not None
    rows_format = ROWS_FORMATS[event.header.type]
    has_short_ids = description.post_header_sizes[EventType.TABLE_MAP - 1] == 6
    body = Reader(raw, description.header_size, len(raw) - (CHECKSUM_SIZE if decoder.checksum_enabled else 0))
    body.skip(6 if has_short_ids else 8)
    if rows_format.has_extra:
        read_extra(body, has_two_images=rows_format.has_two_images)
    start = body.position
    body.skip(bitmap_size(body.lenenc_int()) * (2 if rows_format.has_two_images else 1))
    key = (event.table.schema, event.table.name, type(event), raw[start : body.position])
    return key, memoryview(raw)[body.position : body.end]


class CannotResumeError(Exception):
    """The repeated events are not those that were delivered; the message says how they differ."""


class Delivered:
    """Notes on the delivered part of the open transaction, to find the next row on another server.

    ``add`` takes each event that is done; ``end`` forgets the events when their transaction has ended. Only the bytes
    of the rows are kept, and above 4 MiB only their hashes.
    """

    def __init__(self) -> None:
        self.trailing: list[type[Event]] = []
        self._segments: list[_Segment] = []
        self._kept: list[tuple[Event, bytes, int]] = []
        self._kept_bytes = 0
        self._is_compressed = False

    def add(self, event: Event, raw: bytes, rows: int, decoder: EventDecoder) -> None:
        """Note an event of the open transaction that is done; ``rows`` is the number of its row changes."""
        if self._is_compressed or (rows and not raw):
            # A compressed transaction cannot be compared, and may be larger than memory: keep nothing of it.
            self._is_compressed = True
            self._kept.clear()
            return
        self._kept.append((event, raw, rows))
        self._kept_bytes += len(raw)
        if self._kept_bytes > _KEPT_BYTES:
            self._fold(decoder)

    def end(self) -> None:
        """Forget the transaction: it has ended, and all its events are done."""
        self._kept.clear()
        self._kept_bytes = 0
        if self._segments or self.trailing or self._is_compressed:
            self.trailing, self._segments, self._is_compressed = [], [], False

    def segments(self, decoder: EventDecoder) -> list[_Segment]:
        """All rows so far; ``decoder`` is the one that read them. ``trailing`` has the types of events after them."""
        self._fold(decoder)
        if self._is_compressed:
            raise CannotResumeError("the transaction was delivered from its compressed form")
        return self._segments

    def _fold(self, decoder: EventDecoder) -> None:
        for event, raw, rows in self._kept:
            if not isinstance(event, _AnyRowsEvent):
                self.trailing.append(type(event))
                continue
            self.trailing.clear()
            if not raw:
                self._is_compressed = True
                continue
            key, data = _key_and_rows(decoder, raw, event)
            if not self._segments or self._segments[-1].key != key:
                self._segments.append(_Segment(key))
            self._segments[-1].add(data, rows)
        self._kept, self._kept_bytes = [], 0


@record(frozen=True, slots=True)
class ReplayEnd:
    """The last event that is done. ``is_open``: its transaction, whose GTID is ``gtid``, has not ended yet.

    ``inner`` is its number within a compressed transaction, from 1 on; else 0. ``raw`` has its bytes, to check that
    the new connection sends the same log; empty for a large event.
    """

    file: str
    position: int
    inner: int
    is_open: bool
    gtid: Gtid | MariadbGtid | None
    raw: bytes = b""

    def closes(self, file: str, position: int) -> bool:
        """Whether the event ends at this place, and its bytes are known for a comparison."""
        return (
            bool(self.raw)
            and not self.inner
            and (file, position) == (self.file, self.position + len(self.raw))
        )


class Replay(ABC):
    """Passes over the events that a new connection sends again and the consumer already has."""

    # The last raw event without the rows that were taken from it; empty if no rows were taken.
    trimmed: bytes = b""

    @abstractmethod
    def passes(self, event: Event, raw: bytes, inner: int, decoder: EventDecoder) -> bool | None:
        """Whether the consumer already has the event; None for the last event that it has.

        Raises ``CannotResumeError`` if the repeated events differ from the delivered events.
        """


def other_event(file: str, position: int) -> SourceChangedError:
    """The error for a log that has another event at a place than the one that was read there."""
    return SourceChangedError(
        f"another event than before stands at {file}:{position}: the source lost the end of its log in a crash "
        "(sync_binlog other than 1), or was restored or reset -- transactions read from there on may never have been "
        "committed: copy the data anew, or start from a position that you know to be good"
    )


class PositionReplay(Replay):
    """Passes over the repeated events of the same log: everything up to the last event that is done.

    With ``by_gtid`` the source leaves out all finished transactions: only the open transaction and the events that
    belong to a file come again.
    """

    def __init__(self, end: ReplayEnd, by_gtid: bool) -> None:
        self._end = end
        self._place = (end.file, end.position, end.inner)
        self._by_gtid = by_gtid

    def passes(self, event: Event, raw: bytes, inner: int, decoder: EventDecoder) -> bool | None:
        if self._by_gtid and not isinstance(event, FILE_EVENTS):
            if not self._end.is_open:
                return False
            _check_gtid(event, self._end.gtid)
        here = (event.file, event.position, inner)
        if here == self._place:
            self._compare(raw)
            return None
        if _is_before(here, self._place):
            return True
        if self._end.is_open:
            raise CannotResumeError(f"the log lacks the event read at {self._end.file}:{self._end.position}")
        return False

    def _compare(self, raw: bytes) -> None:
        """Check the last event: a source that lost the end of its log in a crash writes other events there."""
        end = self._end
        if end.raw in (b"", raw):
            return
        if end.is_open:
            raise CannotResumeError(f"another event than before stands at {end.file}:{end.position}")
        raise other_event(end.file, end.position)


class RowReplay(Replay):
    """Passes over the rows of the open transaction that come again from another server.

    Rows count as the same if table, kind of change, columns and bytes are the same. A running hash compares each run
    of rows of one table, however the rows are cut into events. The event with the last delivered row loses its first
    rows, up to that row.
    """

    def __init__(self, end: ReplayEnd, segments: Sequence[_Segment], trailing: Sequence[type[Event]]) -> None:
        self._gtid = end.gtid
        self._segments = list(segments)
        self._trailing = list(trailing)
        self._current: _Segment | None = None

    def passes(self, event: Event, raw: bytes, inner: int, decoder: EventDecoder) -> bool | None:
        """See ``Replay.passes``. An event that the consumer has in part loses the rows that the consumer has."""
        if isinstance(event, FILE_EVENTS):
            # Hide file headers: in the middle of a transaction they would look like a crash of the source.
            return True
        _check_gtid(event, self._gtid)
        if self._segments:
            if isinstance(event, _AnyRowsEvent):
                return self._rows(event, raw, decoder)
            if isinstance(event, _ENDING):
                raise CannotResumeError("the transaction has fewer rows on the new server")
            return True
        if self._trailing and type(event) is self._trailing[0]:
            del self._trailing[0]
            return True if self._trailing else None
        self._trailing.clear()
        return False

    def _rows(self, event: _AnyRowsEvent, raw: bytes, decoder: EventDecoder) -> bool | None:
        if not raw:
            raise CannotResumeError("the new server has the transaction compressed")
        expected = self._segments[0]
        key, data = _key_and_rows(decoder, raw, event)
        current = self._current = self._current or _Segment(key)
        if key != expected.key:
            raise CannotResumeError(
                f"the new server sends rows of {event.table} where other rows were delivered"
            )
        missing = expected.size - current.size
        rows_before = current.rows
        current.add(data[:missing], len(event.rows))
        if current.size < expected.size:
            return True
        if current.content.digest() != expected.content.digest():
            raise CannotResumeError(f"the rows of {event.table} differ on the new server")
        del self._segments[0]
        self._current = None
        if len(data) == missing:
            return True if self._segments or self._trailing else None
        if self._segments:
            raise CannotResumeError(f"the new server sends more rows of {event.table} than were delivered")
        # The delivered rows end in the middle of this event: keep the rows after them.
        event.rows = _behind(event.rows, expected.rows - rows_before, missing)
        begin = len(raw) - len(data) - (CHECKSUM_SIZE if decoder.checksum_enabled else 0)
        self.trimmed = raw[:begin] + raw[begin + missing :]
        self._trailing.clear()
        return False


def _behind(rows: list[Any], number: int, size: int) -> list[Any]:
    """The rows of an event without the first ``number``, which take ``size`` bytes. Undecoded, they are one item."""
    return rows[number:] if isinstance(rows[0], tuple) else [rows[0].behind(size)]


def _check_gtid(event: Event, gtid: Gtid | MariadbGtid | None) -> None:
    if isinstance(event, GtidEvent | MariadbGtidEvent) and event.gtid != gtid:
        raise CannotResumeError(f"the next transaction of the source is {event.gtid}")


def _is_before(here: tuple[str, int, int], there: tuple[str, int, int]) -> bool:
    """Whether ``here`` comes before ``there``; files of different base names have no order."""
    if here[0] == there[0]:
        return here[1:] < there[1:]
    with contextlib.suppress(ConfigurationError):
        return BinlogPosition(*here[:2]) < BinlogPosition(*there[:2])
    return False
