"""Undecoded rows in place of row tuples: what a decoder puts into its rows events for the columnar readers.

The decoder finds out everything about a rows event but the values. ``RowsLayout`` is how the rows of some events
stand in their bytes: the images of each row, the bytes of each column. It reads no row itself.
"""

from dataclasses import dataclass
from typing import Any

from protocol.rows.compiler import Image, RowCompiler, RowReader
from protocol.wire import bitmap_size


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """A column that an image holds. ``bit`` is that of its NULL, ``index`` its place in the logged table.

    A fixed one has a ``size``; a variable one has ``length_bytes`` before its bytes.
    """

    index: int
    bit: int
    size: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class ImageLayout:
    """One row image: NULL bits, then the values of the columns that are not NULL.

    ``diffs`` are the columns that have a bit before all that, in after images of partial updates.
    """

    columns: tuple[ColumnLayout, ...]
    diffs: tuple[int, ...] | None = None

    @property
    def null_bytes(self) -> int:
        """Bytes of the NULL bits."""
        return bitmap_size(len(self.columns))

    @property
    def null_mask(self) -> bytes:
        """Those bits of them that stand for a column: 5.6 sets the others, 8.0 does not."""
        return ((1 << len(self.columns)) - 1).to_bytes(self.null_bytes, "little")

    @property
    def fixed_size(self) -> int | None:
        """Bytes of an image without NULLs; None where that may differ from row to row."""
        if self.diffs is not None or any(column.length_bytes for column in self.columns):
            return None
        return self.null_bytes + sum(column.size for column in self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class RowsLayout:
    """How rows stand in their bytes; one object for all events that are alike.

    ``images`` are one, or the before and the after image. ``shown`` are the places of the table's columns, as the
    user sees them, in the logged table.
    """

    images: tuple[ImageLayout, ...]
    shown: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RawRows:
    """The rows of one event: ``data[start:end]``."""

    layout: RowsLayout
    data: bytes
    start: int
    end: int


class RawRowCompiler(RowCompiler):
    """In place of row readers: what puts ``[RawRows]`` into an event's ``rows``."""

    def __init__(self) -> None:
        super().__init__()
        self._layouts: dict[tuple[Image, ...], RowReader] = {}

    def reader(self, *images: Image) -> RowReader:
        reader = self._layouts.get(images)
        if reader is None:
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            reader = self._layouts[images] = _raw_reader(images)
        return reader


# Combinations of columns in the images of a stream; with MINIMAL images there can be very many.
_LAYOUTS_KEPT = 4096


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
