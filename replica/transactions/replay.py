"""Going on at the very next row: what was delivered of the open transaction, and what comes again after a reconnect.

A new connection begins at the last transaction boundary, so that table maps come before their rows; what the consumer
already has is passed over. On the same server that is everything up to the last event's position. On another server
of the same topology events may be cut in other places: there the rows themselves are compared, by table, number and
hash, and where they are not provably the same, the transaction is delivered again behind a ``TransactionRestarted``.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
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
from protocol.binlog.rows_events import ROWS_FORMATS, read_extra
from protocol.constants import CHECKSUM_SIZE, EventType
from protocol.errors import ConfigurationError, SourceChangedError
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import BinlogPosition
from protocol.records import record
from protocol.wire import Reader, bitmap_size

# Raw rows events of an open transaction are kept as they are up to here, then as hashes: hashing costs time.
_KEPT_BYTES: Final = 4 << 20
#: An event of more bytes is not kept for being compared.
COMPARED_BYTES: Final = 1 << 20
#: Events that belong to a file and not to a transaction.
FILE_EVENTS: Final = (
    FormatDescriptionEvent,
    PreviousGtidsEvent,
    MariadbGtidListEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
)
_ENDING: Final = (XidEvent, XaPrepareEvent)
_AnyRowsEvent = WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent


@record(slots=True)
class TransactionRestarted(Event):
    """The open transaction comes again from its beginning: undo what has been done with its rows so far.

    No event of the log, and not subject to ``events=``. It comes where a failover has led to a server on which the
    delivered part of the transaction is not provably the same (``reason`` says why), or that does not have it at all.
    ``gtid`` is that of the transaction, ``rows`` how many of its row changes had been delivered; ``file`` and
    ``position`` are where it began on the server before. What was delivered before that transaction stands.
    """

    gtid: Gtid | MariadbGtid | None = None
    rows: int = 0
    reason: str = ""


def transaction_restarted(
    boundary: tuple[str, int], gtid: Gtid | MariadbGtid | None, rows: int, reason: str
) -> TransactionRestarted:
    """The marker, with a header of its own: type 0, size 0."""
    header = EventHeader(int(time.time()), 0, 0, 0, 0, 0)
    return TransactionRestarted(header, *boundary, gtid, rows, reason)


# What identifies rows besides their bytes: schema, table, kind of change, the columns that they hold.
_Key = tuple[str, str, type[_AnyRowsEvent], bytes]


@record(slots=True)
class _Segment:
    """Neighbouring rows of one key, however many events they came in."""

    key: _Key
    size: int = 0
    rows: int = 0
    content: "blake2b" = field(default_factory=lambda: blake2b(digest_size=16))

    def add(self, data: memoryview, rows: int) -> None:
        self.content.update(data)
        self.size += len(data)
        self.rows += rows


def _key_and_rows(decoder: EventDecoder, raw: bytes, event: _AnyRowsEvent) -> tuple[_Key, memoryview]:
    """A rows event's key and the bytes of its rows; compressed rows as they are."""
    description = decoder.format_description
    assert description is not None
    rows_format = ROWS_FORMATS[event.header.type]
    has_short_ids = description.post_header_sizes[EventType.TABLE_MAP - 1] == 6
    body = Reader(raw, description.header_size, len(raw) - (CHECKSUM_SIZE if decoder.checksum_enabled else 0))
    body.skip(6 if has_short_ids else 8)
    read_extra(rows_format, body)
    start = body.position
    body.skip(bitmap_size(body.lenenc_int()) * (2 if rows_format.has_two_images else 1))
    key = (event.table.schema, event.table.name, type(event), raw[start : body.position])
    return key, memoryview(raw)[body.position : body.end]


class CannotResumeError(Exception):
    """What comes again is not what was delivered; the message says how it differs."""


class Delivered:
    """What the consumer has been given of the open transaction, to find the next row on another server.

    ``add`` takes each event that is done, ``end`` forgets them when their transaction has ended. Only the rows' bytes
    are kept, and above a few MiB only their hashes.
    """

    def __init__(self) -> None:
        self.trailing: list[type[Event]] = []
        self._segments: list[_Segment] = []
        self._kept: list[tuple[Event, bytes, int]] = []
        self._kept_bytes = 0
        self._is_compressed = False

    def add(self, event: Event, raw: bytes, rows: int, decoder: EventDecoder) -> None:
        """An event of the open transaction is done; ``rows`` are its row changes."""
        if self._is_compressed or (rows and not raw):
            # There is no comparing it, whatever comes; and it may be larger than memory.
            self._is_compressed = True
            self._kept.clear()
            return
        self._kept.append((event, raw, rows))
        self._kept_bytes += len(raw)
        if self._kept_bytes > _KEPT_BYTES:
            self._fold(decoder)

    def end(self) -> None:
        """The transaction has ended, and all of it is done."""
        self._kept.clear()
        self._kept_bytes = 0
        if self._segments or self.trailing or self._is_compressed:
            self.trailing, self._segments, self._is_compressed = [], [], False

    def segments(self, decoder: EventDecoder) -> list[_Segment]:
        """All rows so far, as ``decoder`` has read them; behind them came events of the types ``trailing``."""
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
    """The last event that is done: its place, and the transaction that it lies in (``is_open``) or has ended.

    ``inner`` is its number within a compressed transaction, from 1 on; else 0. ``raw`` are its bytes, by which the
    log is known again; empty where they are too many to keep.
    """

    file: str
    position: int
    inner: int
    is_open: bool
    gtid: Gtid | MariadbGtid | None
    raw: bytes = b""

    def closes(self, file: str, position: int) -> bool:
        """Whether that place lies right behind the event, and it can be told from another."""
        return (
            bool(self.raw)
            and not self.inner
            and (file, position) == (self.file, self.position + len(self.raw))
        )


class Replay(ABC):
    """What a new connection sends again, and the consumer already has."""

    # The raw event that was last seen, without the rows that were taken from it; empty if none were.
    trimmed: bytes = b""

    @abstractmethod
    def passes(self, event: Event, raw: bytes, inner: int, decoder: EventDecoder) -> bool | None:
        """Whether the consumer already has the event; None for the last one that it has.

        Raises ``CannotResumeError`` when what comes cannot be what was delivered.
        """


class PositionReplay(Replay):
    """Passes over what comes again from the same log: everything up to the last event that is done.

    With ``by_gtid`` the source has left out all finished transactions, so that only the events of a file and the open
    transaction come again.
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
            raise CannotResumeError(f"the log lacks what was read at {self._end.file}:{self._end.position}")
        return False

    def _compare(self, raw: bytes) -> None:
        """A source that lost the end of its log in a crash writes other events in its place."""
        end = self._end
        if end.raw in (b"", raw):
            return
        if end.is_open:
            raise CannotResumeError(f"another event than before stands at {end.file}:{end.position}")
        raise SourceChangedError(
            f"another event than before stands at {end.file}:{end.position}: the source lost the end of its log in a "
            "crash (sync_binlog other than 1), or was restored -- what was read from there on may never have been "
            "committed: copy the data anew, or start from a position that you know to be good"
        )


class RowReplay(Replay):
    """Passes over the rows of the open transaction that come again from another server.

    Rows count as the same when table, kind of change, columns and bytes are: a running hash over each stretch of
    rows of one table, whatever events they come in. The event in which the last delivered row stands loses its first
    rows.
    """

    def __init__(self, end: ReplayEnd, segments: Sequence[_Segment], trailing: Sequence[type[Event]]) -> None:
        self._gtid = end.gtid
        self._segments = list(segments)
        self._trailing = list(trailing)
        self._current: _Segment | None = None

    def passes(self, event: Event, raw: bytes, inner: int, decoder: EventDecoder) -> bool | None:
        """As for all; an event that the consumer has a part of loses its rows."""
        if isinstance(event, FILE_EVENTS):
            # To who reads on in a transaction, the beginning of a file would say that the source has lost its end.
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
            raise CannotResumeError(f"rows of {event.table} come where others were delivered")
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
            raise CannotResumeError(f"more rows of {event.table} come than were delivered")
        # What was delivered ends inside of this event: where another begins, one has been done.
        event.rows = event.rows[expected.rows - rows_before :]
        begin = len(raw) - len(data) - (CHECKSUM_SIZE if decoder.checksum_enabled else 0)
        self.trimmed = raw[:begin] + raw[begin + missing :]
        self._trailing.clear()
        return False


def _check_gtid(event: Event, gtid: Gtid | MariadbGtid | None) -> None:
    if isinstance(event, GtidEvent | MariadbGtidEvent) and event.gtid != gtid:
        raise CannotResumeError(f"the next transaction of the source is {event.gtid}")


def _is_before(here: tuple[str, int, int], there: tuple[str, int, int]) -> bool:
    """Whether a place comes first; files of different base names have no order."""
    if here[0] == there[0]:
        return here[1:] < there[1:]
    with contextlib.suppress(ConfigurationError):
        return BinlogPosition(*here[:2]) < BinlogPosition(*there[:2])
    return False
