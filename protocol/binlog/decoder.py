"""The event decoder: raw events in, typed events out; it keeps the state that later events depend on.

The state is the format description (checksums, header sizes), the file and position, and the table maps that rows
events refer to. The decoder never asks a server and never sees a packet; streams, file readers and Spark tasks feed
it raw events.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any, Literal
from zlib import crc32

from ..constants import (
    ARTIFICIAL,
    CHECKSUM_SIZE,
    EVENT_HEADER_SIZE,
    HEARTBEATS,
    MAX_EVENT_SIZE,
    POSITION_MASK,
    STATEMENT_FRAME,
    EventFlag,
    EventType,
)
from ..errors import (
    DecodeError,
    MissingTableMapError,
    ReplicaError,
    SchemaMismatchError,
    TruncatedError,
    UnsupportedEventError,
)
from ..inflate import payload_events, uncompress_event_part
from ..position import FIRST_POSITION
from ..rows.bounded_cache import BoundedCache
from ..rows.cells import CellTable
from ..rows.compiler import RowCompiler, RowReader
from ..rows.description import ColumnDescription, describe_table
from ..rows.table import Table, table_text
from ..wire import HeaderFields, Reader, unpack_event_header, unpack_u32_pair
from .checksum import (
    CRC32_ALGORITHM,
    CRC32_RESIDUE,
    algorithm_of,
    is_damaged_description,
    is_mariadb_version,
    server_version_of,
)
from .damage import DAMAGE, damaged, wrong_checksum
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
    new_header,
)
from .fast_parsers import FREQUENT_PARSERS, FrequentParser, copy_with_own_caches
from .fragments import Fragments
from .known_tables import MAX_STATEMENT_TABLES, KnownTables
from .mariadb_bodies import query_compressed
from .parsers import BODY_PARSERS, parse_format_description, table_id_size
from .rows_events import LARGE_EVENT, ROWS_FORMATS, MappedTable, RowReaders, map_table
from .statement_bodies import query

WantsTable = Callable[[str, str], bool]

_new = object.__new__
_STATEMENT_END = 1
# Table maps and rows events begin with a table id of 6 bytes and flags.
_unpack_table_id = struct.Struct("<IHH").unpack_from
_AFTER_TABLE_ID = EVENT_HEADER_SIZE + 8
_WITH_TABLE_ID = frozenset(
    {
        *ROWS_FORMATS,
        EventType.TABLE_MAP,
        EventType.PRE_GA_WRITE_ROWS,
        EventType.PRE_GA_UPDATE_ROWS,
        EventType.PRE_GA_DELETE_ROWS,
    }
)
# QUERY begins with thread id and execution time; the bytes after these are the key of a cache of short statements.
_STATEMENT = EVENT_HEADER_SIZE + 8
_LONG_STATEMENT = 512
_STATEMENTS_BYTES = 4 << 20
_STATEMENT_SIZE = 400
# Plain numbers: `&` with a member of an IntFlag takes 540 ns instead of 9, twice per event.
_IGNORABLE = int(EventFlag.IGNORABLE)
# The table id of a rows event that only ends a statement whose tables were all filtered (log_event.cc, m_table_id).
_DUMMY_TABLE_ID = 0x00FFFFFF
_FORMAT_DESCRIPTION = int(EventType.FORMAT_DESCRIPTION)
_OF_FILE = frozenset({EventType.FORMAT_DESCRIPTION, EventType.MARIADB_START_ENCRYPTION})
_CHANGING_STATE = HEARTBEATS | _OF_FILE | {EventType.ROTATE, EventType.MARIADB_QUERY_COMPRESSED}
# These come again and again, and are kept as they were read.
_FREQUENT_STATEMENTS = frozenset({"BEGIN", "COMMIT", "ROLLBACK"})


class EventDecoder:
    """Decodes the raw events of one binlog stream or file.

    ``file`` and ``position`` are the place of the next event; ROTATE events and event sizes advance them.
    ``wants_table`` is called once for each table map (schema, name): rows of tables that it rejects are not decoded.
    ``columns`` maps ``"schema.table"`` to the names of the columns to decode. With
    ``on_schema_mismatch="positional"`` a description that does not fit leaves the names ``@1``... instead of raising.
    ``cells`` replaces the readers of values, ``row_compiler`` the readers of rows. An event in fragments, an event
    inside a compressed transaction, and what MariaDB compresses in an event may have ``max_event_bytes`` each; the
    caller checks the size of raw events before it reads them.
    """

    def __init__(
        self,
        *,
        file: str = "",
        position: int = FIRST_POSITION,
        mariadb: bool = False,
        verify_checksum: bool = True,
        wants_table: WantsTable | None = None,
        columns: Mapping[str, Sequence[str]] | None = None,
        on_schema_mismatch: Literal["error", "positional"] = "error",
        cells: CellTable | None = None,
        row_compiler: RowCompiler | None = None,
        max_event_bytes: int = MAX_EVENT_SIZE,
    ) -> None:
        self.file = file
        self.position = position
        self.checksum_enabled = False
        self.payload_offset = 0  # offset of the last event of ``payload_events`` in the uncompressed payload
        self.format_description: FormatDescriptionEvent | None = None
        self._mariadb = mariadb
        self._verify_checksum = verify_checksum
        self._wants_table = wants_table
        self._columns = columns or {}
        self._on_schema_mismatch = on_schema_mismatch
        self._header_size = EVENT_HEADER_SIZE
        self.table_id_size = 6
        self._tables: dict[int, MappedTable] = {}
        self._known_tables = KnownTables(max_event_bytes)
        self._known = self._known_tables.tables
        #: How many statements so far may have changed tables.
        self.table_statements = 0
        #: Tables with a new table id, and where, although no statement came in between: the log may lack one.
        self.renumbered: list[tuple[Table, str, int]] = []
        # The table of the last table map, if it is new and has no names.
        self._nameless: list[MappedTable] = []
        self._max_event_bytes = max_event_bytes
        self._row_readers = RowReaders(cells, row_compiler, max_event_bytes)
        self._fragments = Fragments(max_event_bytes)
        self._has_old_layout = False
        self._statements: BoundedCache[bytes, tuple[int, str, str, bytes]] = BoundedCache(_STATEMENTS_BYTES)
        self._parsers: dict[int, FrequentParser] = {
            **FREQUENT_PARSERS,
            **{kind: MethodType(parse, self) for kind, parse in _ROWS_PARSERS.items()},
            EventType.TABLE_MAP: self._table_map,
            EventType.QUERY: self._query,
        }
        self._frequent = self._parsers
        # Further types that need the decoder's state.
        self._special: dict[int, Callable[[EventHeader, int, Reader], Event | None]] = {
            EventType.PRE_GA_WRITE_ROWS: self._pre_ga_rows,
            EventType.PRE_GA_UPDATE_ROWS: self._pre_ga_rows,
            EventType.PRE_GA_DELETE_ROWS: self._pre_ga_rows,
            EventType.MARIADB_PARTIAL_ROW_DATA: self._partial_row_data,
            EventType.MARIADB_QUERY_COMPRESSED: self._query_compressed,
        }

    def decode(
        self, raw: bytes, position: int | None = None, header: HeaderFields | None = None
    ) -> Event | None:
        """Decode one complete raw event, with header and checksum; None for rows and table maps that are not wanted.

        ``position`` is the event's offset if it is known, as in files; ``header`` has its header fields if they are
        unpacked already. Raises ``DecodeError`` (``TruncatedError``, ``ChecksumError``, ``UnsupportedEventError``,
        ``MissingTableMapError``) with file, position and event type; afterwards the decoder accepts the next event.
        """
        if header is None:
            try:
                header = unpack_event_header(raw)
            except struct.error:
                raise TruncatedError(f"{len(raw)} bytes are not an event", self.file, self.position) from None
        _, event_type, _, size, next_position, flags = header
        if position is None:
            position = self.position
            # If the source gives no next_position, the sum of the sizes counts. It also counts beyond 4 GiB, where
            # next_position is cut to 32 bits.
            if (
                next_position
                and (position + size) & POSITION_MASK != next_position
                and not flags & ARTIFICIAL
            ):
                position = max(next_position - size, 0)
        try:
            if size != len(raw):
                raise TruncatedError(
                    f"the header announces an event of {size} bytes, but there are {len(raw)}"
                )
            parse = self._frequent.get(event_type)
            if parse is None or flags & ARTIFICIAL:
                return self._decode(raw, new_header(header), position)
            if self.checksum_enabled:
                if self._verify_checksum and crc32(raw) != CRC32_RESIDUE:
                    raise wrong_checksum(raw)
                event = parse(header, self.file, position, raw, size - CHECKSUM_SIZE)
            else:
                event = parse(header, self.file, position, raw, size)
        except ReplicaError as error:
            raise self._located(error, event_type, position) from error.__cause__
        except DAMAGE as error:
            raise self._located(damaged(error), event_type, position) from error
        self.position = position + size
        return event

    def describe(self, table_id: int, columns: Sequence[ColumnDescription] | None) -> Table:
        """Give a mapped table the names, signs and character sets that its table map lacks.

        None means that no description exists: the names stay ``@1``... The description is kept until a statement
        that may have changed tables. Raises ``SchemaMismatchError`` if the count, types or signs of the columns
        differ (unless ``on_schema_mismatch`` is ``"positional"``), ``ConfigurationError`` if a column of ``columns``
        is not among the names, and ``MissingTableMapError`` if the table is not mapped.
        """
        mapped = self._mapped(table_id)
        try:
            if columns is not None:
                mapped.logged = self._known_tables.describe(describe_table(mapped.logged, columns))
        except SchemaMismatchError:
            if self._on_schema_mismatch == "error":
                raise
        self._show(mapped)
        mapped.readers, mapped.layout = {}, None
        return mapped.table

    def name_table(self, table_id: int, table: Table) -> Table:
        """As ``describe``; ``table`` is the mapped table, completed by what its table map lacks."""
        self._mapped(table_id).logged = table
        return self.describe(table_id, None)

    def _mapped(self, table_id: int) -> MappedTable:
        mapped = self._tables.get(table_id)
        if mapped is None:
            raise MissingTableMapError(f"table id {table_id} is not mapped", self.file, self.position)
        return mapped

    def payload_events(self, event: TransactionPayloadEvent) -> Iterator[Event]:
        """The events inside a compressed transaction, with the payload event's file and position.

        The payload is decompressed piece by piece, so the size of the transaction does not matter. Raises the errors
        of ``decode``, and ``MissingExtraError`` without zstd.
        """
        raw_events = payload_events(
            event.payload, event.compression_type, event.uncompressed_size, self._max_event_bytes
        )
        self.payload_offset = 0
        try:
            for raw in raw_events:
                inner = self._decode_inner(raw, event.position)
                if inner is not None:
                    yield inner
                self.payload_offset += len(raw)
        except DecodeError as error:
            raise self._located(error, event.header.type, event.position) from error.__cause__

    def _decode_inner(self, raw: bytes, position: int) -> Event | None:
        """Decode an event inside another event; it has no checksum."""
        outer, self.checksum_enabled = (self.checksum_enabled, self.position), False
        try:
            return self.decode(raw, position)
        finally:
            self.checksum_enabled, self.position = outer

    def _pre_ga_rows(self, header: EventHeader, start: int, body: Reader) -> PreGaRowsEvent:
        table_id, flags = body.uint(6), body.uint(2)
        return PreGaRowsEvent(header, self.file, start, table_id, flags, body.rest())

    def _query_compressed(self, header: EventHeader, start: int, body: Reader) -> QueryEvent:
        return query_compressed(header, self.file, start, body, self._max_event_bytes)

    def _partial_row_data(self, header: EventHeader, start: int, body: Reader) -> Event | None:
        fragments, number, data, whole = self._fragments.add(body)
        if whole is None:
            return PartialRowDataEvent(header, self.file, start, fragments, number, data)
        return self._decode_inner(whole, start)

    def _decode(self, raw: bytes, header: EventHeader, start: int) -> Event | None:
        """Decode events without a fast parser, and artificial events."""
        if header.type == _FORMAT_DESCRIPTION:
            event: Event | None = self._format_description(raw, header, start)
        else:
            event = self._parse(raw, header, start)
        if header.type in _CHANGING_STATE or header.flags & ARTIFICIAL:
            self._follow(header, start, event)
        else:
            self.position = start + header.size
        return event

    def _follow(self, header: EventHeader, start: int, event: Event | None) -> None:
        """Update the state for later events: file, position, and known tables."""
        # Without a position they are the source's repetition for a dump from a later position
        # (send_format_descriptor_event in MariaDB's sql/sql_repl.cc).
        is_repeated = header.type in _OF_FILE and not header.next_position
        if not (is_repeated or header.type in HEARTBEATS or header.flags & ARTIFICIAL):
            self.position = start + header.size
        if type(event) is RotateEvent:
            self.file, self.position = event.next_file, event.next_position
            self._tables.clear()
        elif type(event) is QueryEvent and not event.sql.startswith(STATEMENT_FRAME):
            self._forget_tables()

    def _parse(self, raw: bytes, header: EventHeader, start: int) -> Event | None:
        event_type, end = header.type, header.size
        if self.checksum_enabled:
            end -= CHECKSUM_SIZE
            if self._verify_checksum and crc32(raw) != CRC32_RESIDUE:
                raise wrong_checksum(raw)
        if end < self._header_size:
            raise TruncatedError("the event has no room for its header and a checksum")
        if self._has_old_layout:
            raw = self._in_current_layout(raw[:end], event_type)
            end = len(raw)
        frequent = self._parsers.get(event_type)
        if frequent is not None:
            return frequent(header, self.file, start, raw, end)
        body = Reader(raw, EVENT_HEADER_SIZE, end)
        special = self._special.get(event_type)
        if special is not None:
            return special(header, start, body)
        parse = BODY_PARSERS.get(event_type)
        if parse is not None:
            return parse(header, self.file, start, body)
        if header.flags & _IGNORABLE:
            return UnknownEvent(header, self.file, start, body.rest())
        raise UnsupportedEventError("the event type is unknown, and the source did not flag it as ignorable")

    def _in_current_layout(self, raw: bytes, event_type: int) -> bytes:
        """The event with a header of 19 bytes and a table id of 6 bytes, whatever the format description says."""
        body = raw[self._header_size :]
        if self.table_id_size == 4 and event_type in _WITH_TABLE_ID:
            body = body[:4] + b"\0\0" + body[4:]
        return raw[:EVENT_HEADER_SIZE] + body

    def _format_description(self, raw: bytes, header: EventHeader, start: int) -> FormatDescriptionEvent:
        algorithm = algorithm_of(raw)
        if algorithm not in (None, 0, CRC32_ALGORITHM):
            raise DecodeError(f"the format description announces the unknown checksum algorithm {algorithm}")
        end = len(raw) if algorithm is None else len(raw) - CHECKSUM_SIZE - 1
        if self._verify_checksum and is_damaged_description(
            raw, algorithm, is_repeated=not header.next_position
        ):
            raise wrong_checksum(raw)
        body = Reader(raw, EVENT_HEADER_SIZE, end)
        event = parse_format_description(header, self.file, start, body, algorithm)
        self.format_description = event
        self.checksum_enabled = algorithm == CRC32_ALGORITHM
        self._mariadb = is_mariadb_version(server_version_of(raw))
        self._header_size = event.header_size
        self.table_id_size = table_id_size(event.post_header_sizes)
        self._has_old_layout = (self._header_size, self.table_id_size) != (EVENT_HEADER_SIZE, 6)
        self._frequent = {} if self._has_old_layout else self._parsers
        self._tables.clear()
        return event

    def _query(self, header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> QueryEvent:
        """QUERY. BEGIN, COMMIT and the like are cached, because they differ in thread id and time only."""
        known = self._statements.get(raw[_STATEMENT:end]) if end < _LONG_STATEMENT else None
        if known is None:
            return self._new_query(header, file, position, raw, end)
        event = _new(QueryEvent)
        event.header_fields = header
        event.file = file
        event.position = position
        event.thread_id, event.exec_time = unpack_u32_pair(raw, EVENT_HEADER_SIZE)
        event.error_code, event.schema, event.sql, event.status_variables = known
        return event

    def _new_query(self, header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> QueryEvent:
        event = query(new_header(header), file, position, Reader(raw, EVENT_HEADER_SIZE, end))
        if not event.sql.startswith(STATEMENT_FRAME):
            self._forget_tables()
        elif event.sql in _FREQUENT_STATEMENTS and end < _LONG_STATEMENT:
            known = event.error_code, event.schema, event.sql, event.status_variables
            self._statements.keep(raw[_STATEMENT:end], known, _STATEMENT_SIZE + end)
        return event

    def _forget_tables(self) -> None:
        """The statement might be a DDL: forget all tables, so that their columns are looked up again."""
        self.table_statements += 1
        self._known_tables.forget()

    def _table_map(
        self, header: HeaderFields, file: str, position: int, raw: bytes, end: int
    ) -> TableMapEvent | None:
        if end < _AFTER_TABLE_ID:
            raise TruncatedError("the event has no room for a table id")
        table_id, high, flags = _unpack_table_id(raw, EVENT_HEADER_SIZE)
        if high:
            table_id |= high << 32
        shape = raw[_AFTER_TABLE_ID:end]
        mapped = self._known.get(shape) or self._new_table(shape)
        if mapped.table_id != table_id and mapped.renumber(table_id, file, position, self.renumbered):
            mapped = self._new_table(shape)
        tables = self._tables
        tables[table_id] = mapped
        if len(tables) > MAX_STATEMENT_TABLES:
            self._forget_statement()
        if not mapped.is_wanted:
            return None
        event = _new(TableMapEvent)
        event.header_fields = header
        event.file = file
        event.position = position
        event.table_id = table_id
        event.table_map_flags = flags
        event.table = mapped.table
        return event

    def _new_table(self, shape: bytes) -> MappedTable:
        logged = self._known_tables.parse(shape, self._mariadb)
        wanted = self._wants_table is None or self._wants_table(logged.schema, logged.name)
        mapped = map_table(logged, None, wanted)
        if wanted and logged.names_from is not None:
            self._show(mapped)
        elif wanted:
            self._nameless[:] = (mapped,)
        self._known_tables.keep(shape, mapped, not self._tables)
        return mapped

    def _forget_statement(self) -> None:
        count = len(self._tables)
        self._tables.clear()
        raise DecodeError(f"{count} table maps came without the end of a statement")

    def _show(self, mapped: MappedTable) -> None:
        """Apply ``columns`` to the table, once the column names are known."""
        name = table_text(mapped.logged.schema, mapped.logged.name)
        shown = map_table(mapped.logged, self._columns.get(name))
        mapped.table, mapped.selected = shown.table, shown.selected

    def _rows(self, header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> RowsEvent | None:
        if end < _AFTER_TABLE_ID:
            raise TruncatedError("the event has no room for a table id")
        table_id, high, flags = _unpack_table_id(raw, EVENT_HEADER_SIZE)
        if high:
            table_id |= high << 32
        mapped = self._tables.get(table_id)
        if mapped is None and not (table_id == _DUMMY_TABLE_ID and flags & _STATEMENT_END):
            raise MissingTableMapError(f"rows of table id {table_id} have no table map")
        if flags & _STATEMENT_END:
            self._tables.clear()
        if mapped is None or not mapped.is_wanted:
            return None
        rows_format = ROWS_FORMATS[header[1]]
        known = mapped.readers.get(rows_format)
        if known is not None:
            # The fast path for all events of a table except the first: RowReaders.reader() without a Reader.
            start = _AFTER_TABLE_ID + known.prefix_size
            if start <= end <= LARGE_EVENT and not rows_format.is_compressed:
                read_rows = known.by_prefix.get(raw[_AFTER_TABLE_ID:start])
                try:
                    rows = (read_rows or known.read_rare)(raw, start, end)
                except (IndexError, struct.error) as error:
                    raise TruncatedError("the data ends inside a row") from error
                if rows is not None:
                    event = _new(rows_format.event_class)
                    event.header_fields = header
                    event.file = file
                    event.position = position
                    event.table_id = table_id
                    event.table = mapped.table
                    event.rows_flags = flags
                    event.extra = b""
                    event.rows = rows
                    return event
        body = Reader(raw, _AFTER_TABLE_ID, end)
        extra, read_rows = self._row_readers.reader(mapped, rows_format, body)
        if rows_format.is_compressed:
            body = Reader(uncompress_event_part(body.rest(), self._max_event_bytes))
        rows = self._read(read_rows, body)
        return rows_format.event_class(
            new_header(header), file, position, table_id, mapped.table, flags, extra, rows
        )

    def _read(self, read_rows: RowReader, body: Reader) -> list[Any]:
        try:
            return read_rows(body.data, body.position, body.end)
        except (IndexError, struct.error) as error:
            raise TruncatedError("the data ends inside a row") from error

    def _located(self, error: ReplicaError, event_type: int, start: int) -> ReplicaError:
        if isinstance(error, DecodeError) and error.file is None:
            error.file, error.position, error.event_type = self.file, start, event_type
        return error


_ROWS_PARSERS = {kind: copy_with_own_caches(EventDecoder._rows) for kind in ROWS_FORMATS}
