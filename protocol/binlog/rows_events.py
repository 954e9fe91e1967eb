"""Finds the row reader of a rows event, from the event's post-header and the table's shape.

This module knows which columns an event holds and which the user wants; ``rows.cells``, ``rows.compiler`` and
``rows.row_interpreter`` know how to read values. Layout: MySQL's ``rows_event.h`` (Rows_event); MariaDB writes
versions 1 and 2 in the same way.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final

from ..constants import MAX_EVENT_SIZE, ColumnType, EventType
from ..errors import DecodeError
from ..records import field, record, replace
from ..rows.bounded_cache import BoundedCache
from ..rows.cells import Cell, CellTable
from ..rows.column import Column, labels_size
from ..rows.compiler import Image, RowCompiler, RowReader, reader_size
from ..rows.row_interpreter import (
    ImageSteps,
    Step,
    ValueFunctions,
    count_rows,
    image_steps,
    interpreted_reader,
    number_code,
)
from ..rows.table import Table
from ..wire import Reader, bitmap_size, bits_set
from .events import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
from .extra_row_data import read_extra
from .rare_images import ImageCounters, RareReader, no_rare_reader, rare_reader

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
# Stands for a column that cannot be read.
_NO_CELL = Cell("None")
_INFLATED = frozenset({ColumnType.MARIADB_VARCHAR_COMPRESSED, ColumnType.MARIADB_BLOB_COMPRESSED})
# Memory for the row readers of one decoder: compiled functions and the layouts of tables.
_COMPILED_BYTES: Final = 64 << 20
# The steps of images of at most _FEW_COLUMNS columns are kept: _IMAGES_KEPT of them for each layout.
_FEW_COLUMNS: Final = 4
_MOST_CHANGED: Final = 100
_IMAGES_KEPT: Final = 16
_LAYOUTS_BYTES: Final = 16 << 20
_LAYOUT_SIZE: Final = 2500
_SIZE_PER_COLUMN: Final = 150
#: Rows events of more bytes are not read on the fast path: ``RowReaders.reader`` looks at them more closely.
LARGE_EVENT: Final = 1 << 20
# A row tuple, and each of its items.
_TUPLE_BYTES: Final = 64
_ITEM_BYTES: Final = 8
# The row tuples of an event, without their values, may take ``max_event_bytes`` times this.
_TUPLES_FACTOR: Final = 4
# The rows of a table are mainly documents if more than one in so many columns is JSON.
_DOCUMENTS_SHARE: Final = 4


@record(slots=True, eq=False)
class KnownImages:
    """Compiled row readers of one layout and rows format; the key is the bytes between an event's flags and its rows.

    ``prefix_size`` is the number of these bytes in events without extra row information. Readers are also stored
    under the bytes after that information, because it may differ from event to event (partition ids).
    ``read_rare`` reads the rows of images that are not compiled; counters of their bytes name these images ``mark``,
    and keep nothing else of a table.
    """

    prefix_size: int = 0
    by_prefix: dict[bytes, RowReader] = field(default_factory=dict)
    read_rare: RareReader = no_rare_reader
    mark: object = field(default_factory=object)


@record(slots=True, eq=False)
class Layout:
    """How the rows of a table are stored and shown: tables that differ in names only share one, with its readers.

    ``is_wide``: events below ``LARGE_EVENT`` can have too many row tuples; see ``RowReaders._limited``.
    ``is_readable``: no column is of a type that cannot be read.
    ``cells`` has the cell of each logged column, ``_NO_CELL`` for columns that cannot be read; ``columns`` are the
    columns of the first such table. ``selected`` are the indexes of the columns in row tuples, ``json`` those of the
    JSON columns, ``required`` those of NOT NULL columns.
    """

    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    selected: tuple[int, ...]
    required: frozenset[int]
    json: tuple[int, ...]
    is_inflated: bool
    is_wide: bool
    is_readable: bool
    formats: dict[RowsFormat, KnownImages] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    # Steps of images of few columns, by their bitmaps: those of a primary key, as a rule.
    images: dict[bytes, ImageSteps] = field(default_factory=dict)

    def count(self, bitmap: bytes) -> int:
        """The number of columns in an image."""
        return (int.from_bytes(bitmap, "little") & (1 << len(self.cells)) - 1).bit_count()

    def present(self, bitmap: bytes) -> tuple[int, ...]:
        """The indexes of the columns in an image. Some servers set the bits after the last column, others do not."""
        return tuple(index for index, bit in enumerate(bits_set(bitmap, len(self.cells))) if bit)


def _image(kept: dict[bytes, ImageSteps], steps: Sequence[Step], bitmap: bytes) -> ImageSteps:
    """The steps of an image of a layout; ``kept`` and ``steps`` belong to the layout.

    No method: a reader that its layout keeps, and that refers to it, is freed by the garbage collector only.
    """
    found = kept.get(bitmap)
    if found is None:
        found = image_steps(bitmap, steps)
        if len(found.steps) <= _FEW_COLUMNS:
            if len(kept) >= _IMAGES_KEPT:
                kept.clear()
            kept[bitmap] = found
    return found


@record(slots=True)
class MappedTable:
    """A table map that rows events may refer to.

    ``logged`` has all logged columns, ``table`` the columns that the user sees, and ``selected`` the indexes of these
    in ``logged``. ``readers`` are those of ``layout``, which the first rows event finds. ``is_wanted`` is False if
    the user's filter rejects the table: its rows are skipped. ``table_id`` is that of its last table map.
    """

    logged: Table
    table: Table
    selected: tuple[int, ...]
    is_wanted: bool = True
    readers: dict[RowsFormat, KnownImages] = field(default_factory=dict)
    layout: Layout | None = None
    table_id: int | None = None

    def renumber(
        self, table_id: int, file: str, position: int, changed: list[tuple[Table, str, int]]
    ) -> bool:
        """Take a new id. Returns whether the table had another id before, and its names are not from the log.

        Then these may be outdated, and the table is added to ``changed``; many mean that the source has closed all.
        """
        is_changed = self.table_id is not None and self.is_wanted and self.logged.names_from == "history"
        if is_changed and len(changed) < _MOST_CHANGED:
            changed.append((self.logged, file, position))
        self.table_id = table_id
        return is_changed


def map_table(table: Table, names: Sequence[str] | None, is_wanted: bool = True) -> MappedTable:
    """A mapped table that shows only the columns ``names`` (None: all), in table order.

    Raises ``ConfigurationError`` for a name that the table does not have.
    """
    if names is None:
        return MappedTable(table, table, tuple(range(len(table.columns))), is_wanted)
    table.check_columns(names)
    selected = tuple(index for index, name in enumerate(table.column_names) if name in names)
    shown = replace(table, columns=tuple(table.columns[index] for index in selected))
    return MappedTable(table, shown, selected, is_wanted)


@record(slots=True, eq=False)
class _Compiled:
    """A compiled function, of so many columns, and the keys under which it is stored in ``known``."""

    function: RowReader
    known: KnownImages
    keys: list[bytes]
    columns: int


class RowReaders:
    """Finds the reader of a rows event. Compiled readers are kept in the layouts, as long as memory allows."""

    def __init__(
        self,
        cells: CellTable | None = None,
        compiler: RowCompiler | None = None,
        max_event_bytes: int = MAX_EVENT_SIZE,
    ) -> None:
        self._cells = cells or CellTable()
        self._cells.inflation.limit = max_event_bytes
        self._compiler = compiler or RowCompiler()
        self._compiler.changed = self._weigh
        self._max_event_bytes = max_event_bytes
        self._functions = ValueFunctions()
        #: Whether a table has come of whose columns many are JSON.
        self.has_documents = False
        self._layouts: BoundedCache[Hashable, Layout] = BoundedCache(_LAYOUTS_BYTES)
        # None: all images are compiled at once.
        self._counters: ImageCounters | None = None
        least = self._compiler.bytes_before_compiling
        if least is not None:
            self._counters = ImageCounters(least, max_event_bytes)
        # Compiled readers in the order of their compilation.
        self._compiled: BoundedCache[RowReader, _Compiled] = BoundedCache(_COMPILED_BYTES, self._forget)
        # Number of readers dropped to make room for others; the higher, the later images are compiled.
        self._forgotten = 0

    def reader(self, mapped: MappedTable, rows_format: RowsFormat, body: Reader) -> tuple[bytes, RowReader]:
        """Extra row information and row reader of an event; moves ``body`` from after the flags to the first row.

        A compiled reader is stored in ``mapped.readers``. Raises ``DecodeError`` if the event's number of columns
        differs from the table map's, and if the row tuples would take much more than ``max_event_bytes``: a table of
        4,096 columns whose rows hold one of them makes a tuple of 32 KB from 2 bytes.
        """
        layout = mapped.layout
        if layout is None:
            layout = mapped.layout = self._layout(mapped)
            mapped.readers = layout.formats
        known = layout.formats.get(rows_format)
        if known is None:
            known = layout.formats[rows_format] = KnownImages()
        start = body.position
        extra = b""
        if rows_format.has_extra:
            extra = read_extra(body, has_two_images=rows_format.has_two_images)
        key = self._key(mapped, rows_format, body)
        prefix = key if extra else body.data[start : body.position]
        read_rows = known.by_prefix.get(key)
        if read_rows is None or body.remaining > LARGE_EVENT:
            size = bitmap_size(len(layout.cells))
            last = key[len(key) - size :]
            images = [key[-2 * size : -size or len(key)], last] if rows_format.has_two_images else [last]
            if read_rows is None:
                if not extra:
                    known.prefix_size = len(prefix)
                read_rows = self._find(layout, rows_format, known, (key, prefix), images, body.remaining)
            if body.remaining > LARGE_EVENT and not rows_format.is_compressed:
                self._check_tuples(layout, rows_format, images, body.data, body.position, body.end)
        if prefix not in known.by_prefix and key in known.by_prefix:
            known.prefix_size = len(prefix)
            known.by_prefix[prefix] = read_rows
            self._compiled[read_rows].keys.append(prefix)
        return extra, read_rows

    def _key(self, mapped: MappedTable, rows_format: RowsFormat, body: Reader) -> bytes:
        """Moves past the number of columns and the bitmaps, and returns these bytes."""
        start = body.position
        count = body.lenenc_int()
        column_count = len(mapped.logged.columns)
        if count != column_count:
            raise DecodeError(
                f"a rows event has {count} columns, but its table {mapped.logged} has {column_count} columns"
            )
        body.skip(bitmap_size(count) * (2 if rows_format.has_two_images else 1))
        return body.data[start : body.position]

    def _find(
        self,
        layout: Layout,
        rows_format: RowsFormat,
        known: KnownImages,
        keys: tuple[bytes, bytes],
        images: Sequence[bytes],
        size: int,
    ) -> RowReader:
        """An interpreted reader for images that are new or rare, and a compiled one, which is kept, for others.

        ``keys`` are the bytes from the number of columns on, and the whole prefix of an event without extra row
        information.
        """
        columns = sum(map(layout.count, images))
        key, prefix = keys
        counters = self._counters
        if columns and counters is not None and counters.is_rare(known.mark, prefix, size, columns):
            return self._interpreted(layout, rows_format, known, prefix, images)
        compiled = self._compiler.reader(*self._images(layout, rows_format, images))
        read_rows = self._limited(layout, rows_format, images, compiled)
        known.by_prefix[key] = read_rows
        self._compiled.keep(
            read_rows, _Compiled(compiled, known, [key], columns), reader_size(compiled, columns)
        )
        return read_rows

    def _forget(self, reader: RowReader, stored: _Compiled) -> None:
        for key in stored.keys:
            stored.known.by_prefix.pop(key, None)
        self._forgotten += 1
        least = self._compiler.bytes_before_compiling
        if self._counters is not None and least is not None:
            # Twice the bytes once half as many readers have been dropped as are kept, and so on.
            self._counters.least = least * (1 + 2 * self._forgotten // max(len(self._compiled), 1))

    def _weigh(self, reader: RowReader) -> None:
        """Note that a compiled reader has become larger."""
        stored = self._compiled.get(reader)
        if stored is not None:
            self._compiled.keep(reader, stored, reader_size(reader, stored.columns))

    def _layout(self, mapped: MappedTable) -> Layout:
        columns = mapped.logged.columns
        cells = tuple(self._cell(column) for column in columns)
        required = frozenset(index for index, column in enumerate(columns) if not column.nullable)
        selected = () if self._compiler.is_counting else mapped.selected
        # A column that cannot be read has no cell: the column itself is compared.
        kinds = tuple(
            column if cell is _NO_CELL else cell for column, cell in zip(columns, cells, strict=True)
        )
        layout = self._layouts.get((kinds, required, selected))
        if layout is None:
            json = tuple(index for index, column in enumerate(columns) if column.type is ColumnType.JSON)
            self.has_documents = self.has_documents or len(json) > len(columns) // _DOCUMENTS_SHARE
            is_inflated = not _INFLATED.isdisjoint(column.type for column in columns)
            row = _TUPLE_BYTES + _ITEM_BYTES * len(selected)
            is_wide = LARGE_EVENT * row > _TUPLES_FACTOR * self._max_event_bytes
            is_readable = _NO_CELL not in cells
            layout = Layout(columns, cells, selected, required, json, is_inflated, is_wide, is_readable)
            size = _LAYOUT_SIZE + _SIZE_PER_COLUMN * len(columns) + 2 * labels_size(columns)
            self._layouts.keep((kinds, required, selected), layout, size)
        return layout

    def _cell(self, column: Column) -> Cell:
        """The cell of a column; ``_NO_CELL`` if it cannot be read, which is an error only in an image that has it."""
        try:
            return self._cells.cell(column)
        except DecodeError:
            return _NO_CELL

    def _check_readable(self, layout: Layout, present: Sequence[int]) -> None:
        for index in present:
            if layout.cells[index] is _NO_CELL:
                self._cells.cell(layout.columns[index])

    # Compiled

    def _images(self, layout: Layout, rows_format: RowsFormat, bitmaps: Sequence[bytes]) -> list[Image]:
        images = []
        for bitmap in bitmaps:
            present = layout.present(bitmap)
            self._check_readable(layout, present)
            images.append(Image(layout.cells, present, layout.selected, layout.required))
        if rows_format.is_partial:
            # Every JSON column of the table has a bit that marks a diff, even if the image lacks the column.
            images[1] = replace(images[1], diffs=layout.json, apply_diff=self._cells.apply_diff)
        return images

    # Interpreted

    def _interpreted(
        self,
        layout: Layout,
        rows_format: RowsFormat,
        known: KnownImages,
        prefix: bytes,
        bitmaps: Sequence[bytes],
    ) -> RowReader:
        """The reader of one event; later ones without limits of their own come to ``known.read_rare``."""
        if not layout.is_readable:
            for bitmap in bitmaps:
                self._check_readable(layout, layout.present(bitmap))
        if not layout.steps:
            layout.steps = self._steps(layout)
        makers: list[Callable[[bytes], ImageSteps]] = [partial(_image, layout.images, layout.steps)] * len(
            bitmaps
        )
        if rows_format.is_partial:
            makers[1] = partial(image_steps, columns=self._diff_steps(layout), diff_count=len(layout.json))
        images = [image(bitmap) for image, bitmap in zip(makers, bitmaps, strict=True)]
        width, apply_diff = len(layout.selected), self._cells.apply_diff
        has_limits = layout.is_inflated or layout.is_wide or rows_format.is_compressed
        if len(prefix) == known.prefix_size and layout.is_readable and not has_limits and self._counters:
            known.read_rare = rare_reader(
                tuple(makers),
                prefix,
                len(bitmaps[0]),
                width,
                apply_diff,
                partial(self._counters.is_rare, known.mark),
            )
        return self._limited(layout, rows_format, bitmaps, interpreted_reader(images, width, apply_diff))

    def _steps(self, layout: Layout) -> list[Step]:
        """The steps of all columns; columns that are not selected get the place behind the last item."""
        places = {index: place for place, index in enumerate(layout.selected)}
        steps: list[Step] = []
        for index, cell in enumerate(layout.cells):
            functions = self._functions.of(cell)
            is_selected = index in places
            read = functions.read if is_selected else functions.skip
            steps.append((places.get(index, len(places)), read, 0, number_code(cell)))
        return steps

    def _diff_steps(self, layout: Layout) -> list[Step]:
        bits = {index: 1 << place for place, index in enumerate(layout.json)}
        return [
            (place, self._functions.of(layout.cells[index]), bits.get(index, 0), code)
            for index, (place, _, _, code) in enumerate(layout.steps)
        ]

    # Limits

    def _limited(
        self, layout: Layout, rows_format: RowsFormat, bitmaps: Sequence[bytes], read_rows: RowReader
    ) -> RowReader:
        """The same reader with the limits that some tables need.

        The decompressed ``COMPRESSED`` columns of an event may have ``max_event_bytes``. In a wide table whose images
        hold few columns, even events that are too small for the check in ``reader`` can make too many tuples.
        """
        if not (layout.is_inflated or layout.is_wide or rows_format.is_compressed):
            return read_rows
        begin = self._cells.inflation.begin if layout.is_inflated else None
        largest = self._max_event_bytes if rows_format.is_compressed else LARGE_EVENT
        has_many_tuples = self._safe_size(layout, bitmaps) < largest
        if begin is None and not has_many_tuples:
            return read_rows

        def read_limited(data: bytes, position: int, end: int) -> list[Any]:
            if begin is not None:
                begin()
            if has_many_tuples:
                self._check_tuples(layout, rows_format, bitmaps, data, position, end)
            return read_rows(data, position, end)

        return read_limited

    def _safe_size(self, layout: Layout, bitmaps: Sequence[bytes]) -> int:
        """Events up to this size cannot make too many row tuples: a row has at least its NULL bitmaps."""
        least = sum(bitmap_size(layout.count(bitmap)) for bitmap in bitmaps)
        if not least:
            return MAX_EVENT_SIZE
        return _TUPLES_FACTOR * self._max_event_bytes // self._tuple_bytes(layout, bitmaps) * least

    def _tuple_bytes(self, layout: Layout, bitmaps: Sequence[bytes]) -> int:
        return len(bitmaps) * (_TUPLE_BYTES + _ITEM_BYTES * len(layout.selected))

    def _check_tuples(
        self,
        layout: Layout,
        rows_format: RowsFormat,
        bitmaps: Sequence[bytes],
        data: bytes,
        position: int,
        end: int,
    ) -> None:
        """Raise ``DecodeError`` if the event's row tuples take much more memory than ``max_event_bytes``."""
        if end - position <= self._safe_size(layout, bitmaps):
            return
        skips: list[Step] = [
            (0, self._functions.of(cell).skip, 0, number_code(cell)) for cell in layout.cells
        ]
        images = [image_steps(bitmap, skips) for bitmap in bitmaps]
        if rows_format.is_partial:
            images[1] = images[1]._replace(diff_bytes=bitmap_size(len(layout.json)))
        most = _TUPLES_FACTOR * self._max_event_bytes // self._tuple_bytes(layout, bitmaps)
        # No row more is looked at: a gigabyte of them takes minutes.
        if count_rows(images, data, position, end, most + 1) > most:
            raise DecodeError(
                f"more than {most} rows of {len(layout.selected)} columns take more than {_TUPLES_FACTOR} times "
                f"max_event_bytes ({self._max_event_bytes})"
            )
