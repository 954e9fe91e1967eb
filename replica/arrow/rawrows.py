"""Undecoded rows, which a decoder puts into its rows events in place of row tuples, for the columnar readers.

The decoder finds out everything about a rows event except the values. ``RowsLayout`` describes how rows are stored:
the images of a row and the sizes of their columns. This module reads no rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from protocol.records import record
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.cells import VALUE_CELLS, Cell, CellMakers, CellTable
from protocol.rows.column import Column
from protocol.rows.compiler import Image, RowCompiler, RowReader
from protocol.wire import bitmap_size


@record(frozen=True, slots=True)
class ColumnLayout:
    """A column in a row image. ``bit`` numbers its NULL bit, ``index`` is its index in the logged table.

    A fixed-size column has a ``size``. A variable-length column has ``length_bytes`` of length before its bytes.
    """

    index: int
    bit: int
    size: int
    length_bytes: int


@record(frozen=True, slots=True)
class ImageLayout:
    """One row image: NULL bits, then the values of the columns that are not NULL.

    ``diffs``: the JSON columns with a diff bit, in the after images of partial updates, where these bits come first.
    """

    columns: tuple[ColumnLayout, ...]
    diffs: tuple[int, ...] | None = None

    @property
    def null_bytes(self) -> int:
        """The number of bytes of NULL bits."""
        return bitmap_size(len(self.columns))

    @property
    def null_mask(self) -> bytes:
        """A mask of the NULL bits that stand for a column. MySQL 5.6 sets the other bits, 8.0 does not."""
        return ((1 << len(self.columns)) - 1).to_bytes(self.null_bytes, "little")

    @property
    def fixed_size(self) -> int | None:
        """The number of bytes of an image without NULLs; None if it differs from row to row."""
        if self.diffs is not None or any(column.length_bytes for column in self.columns):
            return None
        return self.null_bytes + sum(column.size for column in self.columns)


@record(frozen=True, slots=True, eq=False)
class RowsLayout:
    """How rows are stored; events of one layout share one object.

    ``images`` has the one image of inserts and deletes, or the before and the after image. ``shown`` has for each
    column that the user sees its index in the logged table.
    """

    images: tuple[ImageLayout, ...]
    shown: tuple[int, ...]


@record(frozen=True, slots=True)
class RawRows:
    """The rows of one event: ``data[start:end]``."""

    layout: RowsLayout
    data: bytes
    start: int
    end: int

    def behind(self, size: int) -> "RawRows":
        """The rows behind the first ``size`` bytes."""
        return RawRows(self.layout, self.data, self.start + size, self.end)


class RawRowCompiler(RowCompiler):
    """A row compiler whose readers leave rows undecoded: an event's ``rows`` become ``[RawRows]``."""

    def __init__(self) -> None:
        super().__init__(bytes_before_compiling=None)
        self._layouts: BoundedCache[tuple[Image, ...], RowReader] = BoundedCache(_LAYOUTS_BYTES)

    def reader(self, *images: Image) -> RowReader:
        reader = self._layouts.get(images)
        if reader is None:
            reader = _raw_reader(images)
            columns = sum(len(image.cells) for image in images)
            self._layouts.keep(images, reader, _LAYOUT_SIZE + _SIZE_PER_COLUMN * columns)
        return reader


def _sizes_alone(make: Callable[[Column], Cell]) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        whole = make(column)
        return Cell(size=whole.size, length_bytes=whole.length_bytes)

    return cell


_LAYOUT_CELLS: CellMakers = {kind: _sizes_alone(make) for kind, make in VALUE_CELLS.items()}

#: A table of cells that have sizes and no functions. Making the functions, which are not called here, and their
#: tables of days and digits took 1 ms for 19 columns, in each section of a log that processes share.
layout_cells = partial(CellTable, _LAYOUT_CELLS)

# Memory for layouts: with MINIMAL images a stream can have very many combinations of columns.
_LAYOUTS_BYTES = 32 << 20
_LAYOUT_SIZE = 1000
_SIZE_PER_COLUMN = 120


def _raw_reader(images: tuple[Image, ...]) -> RowReader:
    layout = RowsLayout(tuple(map(_image_layout, images)), images[0].wanted)

    def read_rows(data: bytes, position: int, end: int) -> list[Any]:
        return [RawRows(layout, data, position, end)]

    return read_rows


def _image_layout(image: Image) -> ImageLayout:
    columns = []
    for bit, index in enumerate(image.present):
        cell = image.cells[index]
        columns.append(ColumnLayout(index, bit, cell.size, cell.length_bytes))
    return ImageLayout(tuple(columns), image.diffs)
