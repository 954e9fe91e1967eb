"""The event decoder: raw events in, typed events out, with the state that lies between them.

State is the format description (checksums, header sizes), the file and position, and the table maps that rows
events refer to. It never asks a server and never sees a packet; a stream, a file reader and a Spark task all
stand before it.
"""

import functools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal
from zlib import crc32

from ..constants import CHECKSUM_SIZE, EVENT_HEADER_SIZE, EventFlag, EventType
from ..errors import (
    ChecksumError,
    DecodeError,
    MissingTableMapError,
    ReplicaError,
    SchemaMismatchError,
    TruncatedError,
    UnsupportedEventError,
)
from ..wire import Reader, unpack_event_header
from .bodies import BODY_PARSERS, parse_format_description
from .cells import CellTable
from .checksum import (
    CRC32_ALGORITHM,
    CRC32_RESIDUE,
    algorithm_of,
    crc32_matches,
    is_mariadb_version,
    server_version_of,
)
from .compression import payload_events, uncompress_event_part
from .description import ColumnDescription, describe_table
from .events import (
    Event,
    EventHeader,
    FormatDescriptionEvent,
    PartialRowDataEvent,
    PreGaRowsEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UnknownEvent,
)
from .rowcode import RowReader
from .rows import ROWS_FORMATS, MappedTable, RowReaders, map_table
from .table import Table, parse_table_map

WantsTable = Callable[[str, str], bool]

# NamedTuple's own _make is a Python function.
_new_header = functools.partial(tuple.__new__, EventHeader)
_DAMAGE = (IndexError, struct.error, ValueError, OverflowError, UnicodeError, ArithmeticError)
_STATEMENT_END = 1
# Plain numbers: `&` with a member of an IntFlag takes 540 ns instead of 9, twice per event.
_ARTIFICIAL = int(EventFlag.ARTIFICIAL)
_IGNORABLE = int(EventFlag.IGNORABLE)
_SHAPES_KEPT = 4096
# A rows event without a table: it only ends a statement whose tables were all filtered (log_event.cc, m_table_id).
_DUMMY_TABLE_ID = 0x00FFFFFF
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_HEARTBEATS = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
_CHANGING_STATE = _HEARTBEATS | {
    EventType.ROTATE,
    EventType.FORMAT_DESCRIPTION,
    EventType.QUERY,
    EventType.MARIADB_QUERY_COMPRESSED,
}
# Every other statement might be a DDL, after which a table's description is asked for again.
_CHANGING_NO_TABLE = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})
_WITH_ORIGINAL_SIZE = 1


class EventDecoder:
    """Turns raw events of one binlog stream or file into events.

    ``file`` and ``position`` say where the next event stands; both follow rotates and sizes. ``wants_table`` is
    asked once per table (schema, name): rows of tables that it rejects are not decoded. ``columns`` maps
    ``"schema.table"`` to the only column names wanted. With ``on_schema_mismatch="positional"`` a description that
    does not fit leaves the names ``@1``... instead of raising. ``cells`` replaces what values become.
    """

    def __init__(
        self,
        *,
        file: str = "",
        position: int = 4,
        mariadb: bool = False,
        verify_checksum: bool = True,
        wants_table: WantsTable | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        on_schema_mismatch: Literal["error", "positional"] = "error",
        cells: CellTable | None = None,
    ) -> None:
        self.file = file
        self.position = position
        self.checksum_enabled = False
        self.format_description: FormatDescriptionEvent | None = None
        self._mariadb = mariadb
        self._verify_checksum = verify_checksum
        self._wants_table = wants_table
        self._columns = columns or {}
        self._on_schema_mismatch = on_schema_mismatch
        self._header_size = EVENT_HEADER_SIZE
        self._table_id_size = 6
        self._tables: dict[int, MappedTable] = {}
        self._known: dict[bytes, MappedTable] = {}
        self._row_readers = RowReaders(cells)
        self._fragments: list[bytes] = []
        # Types whose meaning hangs on the decoder's state.
        self._special: dict[int, Callable[[EventHeader, int, Reader], Event | None]] = {
            **dict.fromkeys(ROWS_FORMATS, self._rows),
            EventType.TABLE_MAP: self._table_map,
            EventType.PRE_GA_WRITE_ROWS: self._pre_ga_rows,
            EventType.PRE_GA_UPDATE_ROWS: self._pre_ga_rows,
            EventType.PRE_GA_DELETE_ROWS: self._pre_ga_rows,
            EventType.MARIADB_PARTIAL_ROW_DATA: self._partial_row_data,
        }

    def decode(self, raw: bytes, position: int | None = None) -> Event | None:
        """One whole event, header and checksum included; None for rows and table maps that are not wanted.

        ``position`` overrides where the event starts, for files, whose offsets are known. Raises ``DecodeError``
        (``TruncatedError``, ``ChecksumError``, ``UnsupportedEventError``, ``MissingTableMapError``) with file,
        position and event type filled in; the decoder can be given the next event afterwards.
        """
        try:
            header = _new_header(unpack_event_header(raw))
        except struct.error:
            raise TruncatedError(f"{len(raw)} bytes are no event", self.file, self.position) from None
        _, event_type, _, size, next_position, flags = header
        if position is not None:
            start = position
        elif (
            # Where the source says nothing, the sum of sizes holds. It also does beyond 4 GiB, where
            # next_position is cut to 32 bits.
            not next_position or flags & _ARTIFICIAL or (self.position + size) & 0xFFFFFFFF == next_position
        ):
            start = self.position
        else:
            start = max(next_position - size, 0)
        try:
            event = self._decode(raw, header, start)
        except DecodeError as error:
            raise self._located(error, header, start) from error.__cause__
        except ReplicaError:
            raise
        except _DAMAGE as error:
            damaged = DecodeError(f"the event's content is damaged: {error}")
            raise self._located(damaged, header, start) from error
        if event_type in _CHANGING_STATE or flags & _ARTIFICIAL:
            self._follow(header, start, event)
        else:
            self.position = start + size
        return event

    def describe(self, table_id: int, columns: Sequence[ColumnDescription] | None) -> Table:
        """Give a mapped table the names, signs and character sets that its table map lacks.

        None says that no description is to be had: the names stay ``@1``... The description is kept until a
        statement may have changed tables. Raises ``SchemaMismatchError`` when count, types or signs differ (unless
        positional names were asked for), ``ConfigurationError`` when the columns asked for are not among the names,
        and ``MissingTableMapError`` when the table is not mapped.
        """
        mapped = self._tables.get(table_id)
        if mapped is None:
            raise MissingTableMapError(f"table id {table_id} is not mapped", self.file, self.position)
        try:
            if columns is not None:
                mapped.logged = describe_table(mapped.logged, columns)
        except SchemaMismatchError:
            if self._on_schema_mismatch == "error":
                raise
        self._show(mapped)
        mapped.readers.clear()
        return mapped.table

    def payload_events(self, event: TransactionPayloadEvent) -> Iterator[Event]:
        """The events inside of a compressed transaction, with the payload's file and position.

        They are decompressed piece by piece, so that the size of the transaction does not matter. Raises as
        ``decode`` does, and ``MissingExtraError`` without zstd.
        """
        raw_events = payload_events(event.payload, event.compression_type)
        try:
            for raw in raw_events:
                inner = self._decode_inner(raw, event.position)
                if inner is not None:
                    yield inner
        except DecodeError as error:
            raise self._located(error, event.header, event.position) from error.__cause__

    def _decode_inner(self, raw: bytes, position: int) -> Event | None:
        """An event without a checksum that stands inside of another one."""
        outer, self.checksum_enabled = (self.checksum_enabled, self.position), False
        try:
            return self.decode(raw, position)
        finally:
            self.checksum_enabled, self.position = outer

    def _pre_ga_rows(self, header: EventHeader, start: int, body: Reader) -> PreGaRowsEvent:
        table_id, flags = body.uint(self._table_id_size), body.uint(2)
        return PreGaRowsEvent(header, self.file, start, table_id, flags, body.rest())

    def _partial_row_data(self, header: EventHeader, start: int, body: Reader) -> Event | None:
        """MDEV-32570: number of fragments, number of this one, flags, the whole size in the first one."""
        fragments, number, flags = body.uint(4), body.uint(4), body.u8()
        if flags & _WITH_ORIGINAL_SIZE:
            body.skip(8)
        if number != len(self._fragments) + 1 or number > fragments:
            self._fragments.clear()
            raise DecodeError(f"fragment {number} of {fragments} of a rows event is out of order")
        data = body.rest()
        self._fragments.append(data)
        if number < fragments:
            return PartialRowDataEvent(header, self.file, start, fragments, number, data)
        whole = b"".join(self._fragments)
        self._fragments.clear()
        return self._decode_inner(whole, start)

    def _follow(self, header: EventHeader, start: int, event: Event | None) -> None:
        """State that later events stand on: where they are, and what is known of tables."""
        # A format description without a position is repeated for a dump that starts behind it.
        is_repeated = header.type == EventType.FORMAT_DESCRIPTION and not header.next_position
        if not (is_repeated or header.type in _HEARTBEATS or header.flags & _ARTIFICIAL):
            self.position = start + header.size
        if type(event) is RotateEvent:
            self.file, self.position = event.next_file, event.next_position
            self._tables.clear()
        elif type(event) is QueryEvent and event.sql not in _CHANGING_NO_TABLE:
            self._known.clear()

    def _decode(self, raw: bytes, header: EventHeader, start: int) -> Event | None:
        event_type, end = header.type, len(raw)
        if header.size != end:
            raise TruncatedError(f"an event of {header.size} bytes in {end}")
        if event_type == _FORMAT_DESCRIPTION:
            return self._format_description(raw, header, start)
        if self.checksum_enabled:
            end -= CHECKSUM_SIZE
            if self._verify_checksum and crc32(raw) != CRC32_RESIDUE:
                raise ChecksumError("the checksum does not match the event")
        if end < self._header_size:
            raise TruncatedError("no room for the header and a checksum")
        body = Reader(raw, self._header_size, end)
        special = self._special.get(event_type)
        if special is not None:
            return special(header, start, body)
        parse = BODY_PARSERS.get(event_type)
        if parse is not None:
            return parse(header, self.file, start, body)
        if header.flags & _IGNORABLE:
            return UnknownEvent(header, self.file, start, body.rest())
        raise UnsupportedEventError("an event type that is not known, and not flagged as ignorable")

    def _format_description(self, raw: bytes, header: EventHeader, start: int) -> FormatDescriptionEvent:
        algorithm = algorithm_of(raw)
        if algorithm not in (None, 0, CRC32_ALGORITHM):
            raise DecodeError(f"checksum algorithm {algorithm} is not known")
        end = len(raw) if algorithm is None else len(raw) - CHECKSUM_SIZE - 1
        # With checksums off it has one all the same, but a source that repeats it for a dump from a later
        # position changes it and leaves the old one there (rpl_binlog_sender.cc).
        has_valid_checksum = algorithm == CRC32_ALGORITHM or (algorithm is not None and header.next_position)
        if has_valid_checksum and self._verify_checksum and not crc32_matches(raw):
            raise ChecksumError("the checksum does not match the event")
        body = Reader(raw, EVENT_HEADER_SIZE, end)
        event = parse_format_description(header, self.file, start, body, algorithm)
        self.format_description = event
        self.checksum_enabled = algorithm == CRC32_ALGORITHM
        self._mariadb = is_mariadb_version(server_version_of(raw))
        self._header_size = event.header_size
        self._table_id_size = _table_id_size(event.post_header_sizes)
        self._tables.clear()
        return event

    def _table_map(self, header: EventHeader, start: int, body: Reader) -> TableMapEvent | None:
        table_id, flags = self._table_id(body)
        shape = body.data[body.position : body.end]
        mapped = self._known.get(shape)
        if mapped is None:
            logged = parse_table_map(Reader(shape), self._mariadb)
            wanted = self._wants_table is None or self._wants_table(logged.schema, logged.name)
            mapped = map_table(logged, None, wanted)
            if wanted and logged.names_from is not None:
                self._show(mapped)
            if len(self._known) >= _SHAPES_KEPT:
                self._known.clear()
            self._known[shape] = mapped
        self._tables[table_id] = mapped
        if not mapped.is_wanted:
            return None
        return TableMapEvent(header, self.file, start, table_id, flags, mapped.table)

    def _show(self, mapped: MappedTable) -> None:
        """Apply the user's choice of columns, once the names are known."""
        shown = map_table(mapped.logged, self._columns.get(str(mapped.logged)))
        mapped.table, mapped.selected = shown.table, shown.selected

    def _table_id(self, body: Reader) -> tuple[int, int]:
        """Table id and flags, the post-header of table maps and rows events."""
        size = self._table_id_size
        begin = body.skip(size + 2)
        middle = begin + size
        data = body.data
        return int.from_bytes(data[begin:middle], "little"), data[middle] | data[middle + 1] << 8

    def _rows(self, header: EventHeader, start: int, body: Reader) -> RowsEvent | None:
        table_id, flags = self._table_id(body)
        mapped = self._tables.get(table_id)
        if mapped is None and not (table_id == _DUMMY_TABLE_ID and flags & _STATEMENT_END):
            raise MissingTableMapError(f"rows of table id {table_id}, which no table map describes")
        try:
            if mapped is None or not mapped.is_wanted:
                return None
            rows_format = ROWS_FORMATS[header.type]
            extra, read_rows = self._row_readers.reader(mapped, rows_format, body)
            if rows_format.is_compressed:
                body = Reader(uncompress_event_part(body.rest()))
            rows = self._read(read_rows, body)
        finally:
            if flags & _STATEMENT_END:
                self._tables.clear()
        return rows_format.event_class(header, self.file, start, table_id, mapped.table, flags, extra, rows)

    def _read(self, read_rows: RowReader, body: Reader) -> list[Any]:
        try:
            return read_rows(body.data, body.position, body.end)
        except (IndexError, struct.error) as error:
            raise TruncatedError("the data ends inside of a row") from error

    def _located(self, error: DecodeError, header: EventHeader, start: int) -> DecodeError:
        if error.file is None:
            error.file, error.position, error.event_type = self.file, start, header.type
        return error


def _table_id_size(post_header_sizes: bytes) -> int:
    """Table ids have 4 bytes where TABLE_MAP's post-header has 6 (before 5.1.4), else 6 bytes."""
    index = EventType.TABLE_MAP - 1
    return 4 if len(post_header_sizes) > index and post_header_sizes[index] == 6 else 6
