"""Cuts a large transaction into pieces, so that no task and no message has to hold it whole.

    a piece that ends with a large transaction -> a piece before it, and parts of it

The transaction is read once here, without its rows, for the facts that come last in the log. A part brings along the
transaction's facts, its first events, and the table maps of the statement that is open where the part begins. A
compressed transaction is one event, which cannot be cut.
"""

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from protocol.binlog.events import RowsEvent
from protocol.constants import BINLOG_MAGIC, EVENT_HEADER_SIZE, EventType
from protocol.records import record, replace

from ..files.mapped_file import release
from ..spool.pieces import LogPiece, PieceReader, PlacedEvent, ReadSettings
from ..spool.transaction_part import TransactionPart
from .changes import ChangeReader, TransactionEnd

# A piece up to so many times the wanted size stays whole.
_TOLERANCE: Final = 1.5
_HELD_BYTES: Final = 1 << 20
_unpack_type_and_size = struct.Struct("<4xB4xI").unpack_from
_TABLE_ID_SIZE: Final = 6
# The event that begins a transaction's first statement, or holds the whole transaction.
_BEYOND_BEGIN: Final = frozenset({EventType.TABLE_MAP, EventType.TRANSACTION_PAYLOAD})
# The text of a statement: no row needs it, and it may be larger than the rows. MariaDB logs it by default.
_TEXTS: Final = frozenset({EventType.ROWS_QUERY, EventType.MARIADB_ANNOTATE_ROWS})

# Position and size of an event in the file.
_Event = tuple[int, int]


def cut_inside(pieces: Iterable[LogPiece], settings: ReadSettings, max_bytes: int) -> Iterator[LogPiece]:
    """The pieces; those with a transaction of more than about ``max_bytes`` are cut.

    Raises the errors of reading binlog files.
    """
    for piece in pieces:
        if piece.is_whole or piece.size <= max_bytes * _TOLERANCE:
            yield piece
        else:
            yield from _Cutting(piece, settings, max_bytes).pieces()


@record(slots=True)
class _Place:
    """A place in the file, before an event, where a piece may begin.

    ``tables`` has the newest table map of each table so far, ``rows_events`` the number of selected rows events.
    """

    offset: int
    description: bytes
    tables: Sequence[_Event]
    rows_events: int = 0


class _Cutting:
    """Cuts one piece."""

    def __init__(self, piece: LogPiece, settings: ReadSettings, max_bytes: int) -> None:
        self._piece = piece
        self._settings = settings
        self._max_bytes = max_bytes
        # Position in the log minus offset in the file.
        self._shift = piece.position - piece.start
        self._read_up_to = piece.position

    def pieces(self) -> Iterator[LogPiece]:
        """The piece, cut; or the piece itself, if it has no large transaction."""
        piece = self._piece
        with open(piece.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            places = list(self._places(data))
            begun, description, rows_events = piece.start, piece.description, 0
            for end in self._ends(places):
                first, last = end.position - self._shift, self._read_up_to - self._shift
                inside = [place for place in places if first < place.offset < last]
                if inside:
                    if begun < first:
                        yield self._range(begun, first, description)
                    yield from self._parts(data, end, inside, rows_events)
                    begun, description = last, inside[-1].description
                rows_events += end.rows_events
        stop = piece.start + piece.size
        if begun < stop:
            yield self._range(begun, stop, description)

    def _places(self, data: mmap.mmap) -> Iterator[_Place]:
        """Where pieces may begin, about ``max_bytes`` from one another."""
        tables: dict[bytes, _Event] = {}
        description, last = self._piece.description, self._piece.start
        for offset, kind, size in _events(data, self._piece):
            if offset - last >= self._max_bytes:
                last = offset
                yield _Place(offset, description, list(tables.values()))
            if kind == EventType.TABLE_MAP:
                begin = offset + EVENT_HEADER_SIZE
                tables[data[begin : begin + _TABLE_ID_SIZE]] = offset, size
            elif kind == EventType.FORMAT_DESCRIPTION:
                description = data[offset : offset + size]

    def _ends(self, places: Sequence[_Place]) -> Iterator[TransactionEnd]:
        reader = ChangeReader(self._piece, self._settings, on_statement="ignore", held_bytes=_HELD_BYTES)
        return reader.ends(self._counted(places))

    def _counted(self, places: Sequence[_Place]) -> Iterator[PlacedEvent]:
        """The events. Sets the number of rows events before each place on the way."""
        count, coming = 0, list(reversed(places))
        for placed in PieceReader(self._piece, self._settings):
            event, self._read_up_to, _ = placed
            while coming and coming[-1].offset + self._shift <= event.position:
                coming.pop().rows_events = count
            if isinstance(event, RowsEvent):
                count += 1
            yield placed
        self._read_up_to = self._piece.position + self._piece.size
        for place in coming:
            place.rows_events = count

    def _parts(
        self, data: mmap.mmap, end: TransactionEnd, inside: Sequence[_Place], rows_events: int
    ) -> Iterator[LogPiece]:
        """The parts of one transaction; ``rows_events`` is the number of rows events of the piece before it."""
        first, last = end.position - self._shift, self._read_up_to - self._shift
        begin = list(_beginning(data, self._piece, first))
        stops = [*(place.offset for place in inside), last]
        part = TransactionPart((), end.facts, end.undone)
        yield replace(self._range(first, stops[0], inside[0].description), part=part)
        for place, stop in zip(inside, stops[1:], strict=True):
            before = [event for event in begin if event[0] < place.offset]
            tables = [event for event in place.tables if event[0] >= first]
            part = TransactionPart(
                tuple(
                    (offset + self._shift, data[offset : offset + size])
                    for offset, size in sorted({*before, *tables})
                ),
                end.facts,
                end.undone,
                place.rows_events - rows_events,
            )
            yield replace(self._range(place.offset, stop, place.description), part=part)

    def _range(self, start: int, stop: int, description: bytes) -> LogPiece:
        piece = self._piece
        return replace(
            piece,
            start=start,
            size=stop - start,
            position=start + self._shift,
            description=piece.description if start == piece.start else description,
            may_be_torn=piece.may_be_torn and stop == piece.start + piece.size,
        )


def _events(data: mmap.mmap, piece: LogPiece, start: int = 0) -> Iterator[tuple[int, int, int]]:
    """Offset, type and size of the events of a piece, from ``start`` on."""
    offset, stop = max(piece.start, start, len(BINLOG_MAGIC)), piece.start + piece.size
    due = 0
    while offset + EVENT_HEADER_SIZE <= stop:
        if offset >= due:
            due = release(data, offset)
        kind, size = _unpack_type_and_size(data, offset)
        if size < EVENT_HEADER_SIZE:
            # Damage: the task that reads this place reports it.
            return
        yield offset, kind, size
        offset += size


def _beginning(data: mmap.mmap, piece: LogPiece, first: int) -> Iterator[_Event]:
    """The events that begin a transaction, up to its first statement: GTID, BEGIN, XA START."""
    for offset, kind, size in _events(data, piece, first):
        if kind in _BEYOND_BEGIN:
            return
        if kind not in _TEXTS:
            yield offset, size
        if kind == EventType.QUERY:
            return
