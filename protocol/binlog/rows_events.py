"""Finds the compiled row reader of a rows event, from the event's post-header and the table's shape.

This module knows which columns an event holds and which the user wants; ``rows.cells`` and ``rows.compiler`` know how
to read values. Layout: MySQL's ``rows_event.h`` (Rows_event); MariaDB writes versions 1 and 2 in the same way.
"""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

from ..constants import MAX_EVENT_SIZE, ColumnType, EventType
from ..errors import ConfigurationError, DecodeError
from ..records import record
from ..rows.cells import Cell, CellTable
from ..rows.column import Column
from ..rows.compiler import Image, RowCompiler, RowReader
from ..rows.table import Table
from ..wire import Reader, bitmap_size, bits_set
from .events import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

RowsEventClass = type[WriteRowsEvent] | type[UpdateRowsEvent] | type[DeleteRowsEvent]


@record(frozen=True, slots=True, eq=False)
class RowsFormat:
    """The layout of a rows event type.

    ``has_extra``: extra row information follows the flags (version 2). ``is_compressed``: the rows are compressed
    (MariaDB's log_bin_compress). ``is_partial``: after images may hold JSON diffs (WL#2955).
    """

    event_class: RowsEventClass
    has_extra: bool
    is_compressed: bool = False
    is_partial: bool = False

    @property
    def has_two_images(self) -> bool:
        """Whether rows have a before and an after image, each with its own columns."""
        return self.event_class is UpdateRowsEvent


ROWS_FORMATS: dict[int, RowsFormat] = {
    EventType.WRITE_ROWS_V1: RowsFormat(WriteRowsEvent, False),
    EventType.UPDATE_ROWS_V1: RowsFormat(UpdateRowsEvent, False),
    EventType.DELETE_ROWS_V1: RowsFormat(DeleteRowsEvent, False),
    EventType.WRITE_ROWS: RowsFormat(WriteRowsEvent, True),
    EventType.UPDATE_ROWS: RowsFormat(UpdateRowsEvent, True),
    EventType.DELETE_ROWS: RowsFormat(DeleteRowsEvent, True),
    EventType.PARTIAL_UPDATE_ROWS: RowsFormat(UpdateRowsEvent, True, is_partial=True),
    EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1: RowsFormat(WriteRowsEvent, False, True),
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1: RowsFormat(UpdateRowsEvent, False, True),
    EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1: RowsFormat(DeleteRowsEvent, False, True),
    EventType.MARIADB_WRITE_ROWS_COMPRESSED: RowsFormat(WriteRowsEvent, True, True),
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: RowsFormat(UpdateRowsEvent, True, True),
    EventType.MARIADB_DELETE_ROWS_COMPRESSED: RowsFormat(DeleteRowsEvent, True, True),
}
_NO_CELL = Cell()
_INFLATED = frozenset({ColumnType.MARIADB_VARCHAR_COMPRESSED, ColumnType.MARIADB_BLOB_COMPRESSED})
# Row readers kept for each table: with MINIMAL images a wide table can have very many combinations of columns.
_IMAGES_KEPT = 1024


@record(slots=True)
class KnownImages:
    """Row readers of one table and rows format; the key is the bytes between an event's flags and its rows.

    ``prefix_size`` is the number of these bytes in events without extra row information. Readers are also stored
    under the bytes after that information, because it may differ from event to event (partition ids).
    """

    prefix_size: int = 0
    by_prefix: dict[bytes, RowReader] = field(default_factory=dict)


@record(slots=True)
class MappedTable:
    """A table map that rows events may refer to.

    ``logged`` has all logged columns, ``table`` the columns that the user sees, and ``selected`` the indexes of these
    in ``logged``. ``readers`` are kept for all events of the table. ``is_wanted`` is False if the user's filter
    rejects the table: its rows are skipped.
    """

    logged: Table
    table: Table
    selected: tuple[int, ...]
    is_wanted: bool = True
    readers: dict[RowsFormat, KnownImages] = field(default_factory=dict)


def map_table(table: Table, names: Sequence[str] | None, is_wanted: bool = True) -> MappedTable:
    """A mapped table that shows only the columns ``names`` (None: all), in table order.

    Raises ``ConfigurationError`` for a name that the table does not have.
    """
    if names is None:
        return MappedTable(table, table, tuple(range(len(table.columns))), is_wanted)
    unknown = set(names).difference(table.column_names)
    if unknown:
        raise ConfigurationError(f"columns: {table} has no column {', '.join(sorted(unknown))}")
    selected = tuple(index for index, name in enumerate(table.column_names) if name in names)
    shown = replace(table, columns=tuple(table.columns[index] for index in selected))
    return MappedTable(table, shown, selected, is_wanted)


def read_extra(rows_format: RowsFormat, reader: Reader) -> bytes:
    """Extra row information of a version 2 event, without its length; empty for version 1."""
    if not rows_format.has_extra:
        return b""
    length = reader.uint(2)
    if length < 2:
        raise DecodeError(f"the extra row information has {length} bytes, less than its 2-byte length field")
    return reader.take(length - 2)


class RowReaders:
    """Finds the compiled reader of a rows event, and keeps the readers in the mapped tables."""

    def __init__(
        self,
        cells: CellTable | None = None,
        compiler: RowCompiler | None = None,
        max_event_bytes: int = MAX_EVENT_SIZE,
    ) -> None:
        self._cells = cells or CellTable()
        self._cells.inflation.limit = max_event_bytes
        self._compiler = compiler or RowCompiler()

    def reader(self, mapped: MappedTable, rows_format: RowsFormat, body: Reader) -> tuple[bytes, RowReader]:
        """Extra row information and row reader of an event; moves ``body`` from after the flags to the first row.

        The reader is stored in ``mapped.readers``. Raises ``DecodeError`` if the event's number of columns differs
        from the table map's.
        """
        known = mapped.readers.get(rows_format)
        if known is None:
            known = mapped.readers[rows_format] = KnownImages()
        start = body.position
        extra = read_extra(rows_format, body)
        read_rows = self._compiled(mapped, rows_format, body, known)
        if not extra:
            prefix = body.data[start : body.position]
            known.prefix_size = len(prefix)
            known.by_prefix[prefix] = read_rows
        return extra, read_rows

    def _compiled(
        self, mapped: MappedTable, rows_format: RowsFormat, body: Reader, known: KnownImages
    ) -> RowReader:
        start = body.position
        count = body.lenenc_int()
        columns = mapped.logged.columns
        if count != len(columns):
            raise DecodeError(
                f"a rows event has {count} columns, but its table {mapped.logged} has {len(columns)} columns"
            )
        image_count = 2 if rows_format.has_two_images else 1
        bitmaps_start = body.skip(bitmap_size(count) * image_count)
        key = body.data[start : body.position]
        read_rows = known.by_prefix.get(key)
        if read_rows is None:
            if len(known.by_prefix) >= _IMAGES_KEPT:
                known.by_prefix.clear()
            bitmaps = Reader(body.data, bitmaps_start, body.position)
            images = [self._image(columns, bitmaps, mapped.selected) for _ in range(image_count)]
            if rows_format.is_partial:
                images[1] = self._partial(images[1], columns)
            read_rows = self._compiler.reader(*images)
            if not _INFLATED.isdisjoint(column.type for column in columns):
                read_rows = self._limited(read_rows)
            known.by_prefix[key] = read_rows
        return read_rows

    def _limited(self, read_rows: RowReader) -> RowReader:
        """The same reader for a table with ``COMPRESSED`` columns: their uncompressed size in an event is limited."""
        begin = self._cells.inflation.begin

        def read_limited(data: bytes, position: int, end: int) -> list[Any]:
            begin()
            return read_rows(data, position, end)

        return read_limited

    def _image(self, columns: Sequence[Column], bitmaps: Reader, selected: tuple[int, ...]) -> Image:
        bits = bits_set(bitmaps.take(bitmap_size(len(columns))), len(columns))
        cells = tuple(
            self._cells.cell(column) if present else _NO_CELL
            for column, present in zip(columns, bits, strict=True)
        )
        present = tuple(index for index, bit in enumerate(bits) if bit)
        required = frozenset(index for index, column in enumerate(columns) if not column.nullable)
        return Image(cells, present, selected, required)

    def _partial(self, image: Image, columns: Sequence[Column]) -> Image:
        """Every JSON column of the table has a bit that marks a diff, even if the image lacks the column."""
        json = tuple(index for index, column in enumerate(columns) if column.type is ColumnType.JSON)
        return replace(image, diffs=json, apply_diff=self._cells.apply_diff)
