"""The places of a column's values in the buffer, found from the places where the rows' images begin.

It walks over the columns one after another, and knows their lengths and NULLs but not what the bytes mean. The
converters read the values from ``Places``.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from protocol.records import record
from protocol.wire import bitmap_size

from .buffer import Bytes, Flags, Positions, RowBuffer
from .rawrows import ColumnLayout, ImageLayout
from .row_starts import lengths_at, moved, null_bits

_Number = TypeVar("_Number", bound=np.generic)
Rows = slice | Positions


@record(slots=True)
class Places:
    """The places of one column's values in a buffer, one for each row.

    ``start`` + ``offset`` is the first byte of each value. Variable-length columns have a ``length`` (0 for NULLs).
    ``valid`` is False for NULLs and absent values, whose place may be anywhere in the buffer; None if all values are
    valid. Where ``diffs`` is True, the value is a JSON diff to the value of ``before``.
    """

    buffer: RowBuffer
    start: Positions | range
    offset: int = 0
    length: Positions | None = None
    valid: Flags | None = None
    diffs: Flags | None = None
    before: "Places | None" = None

    def __len__(self) -> int:
        return len(self.start)

    @property
    def positions(self) -> Positions:
        """The place of the first byte of each value."""
        place = moved(self.start, self.offset) if self.offset else self.start
        if isinstance(place, range):
            return np.arange(place.start, place.stop, place.step, dtype=np.int64)
        return place

    def numbers(self, dtype: type[_Number], offset: int = 0) -> npt.NDArray[_Number]:
        """The little-endian numbers ``offset`` bytes after the first byte of each value."""
        offset += self.offset
        if isinstance(self.start, range):
            where = range(self.start.start + offset, self.start.stop + offset, self.start.step)
            return self.buffer.strided(dtype, where).copy()
        return self.buffer.numbers(dtype, offset)[self.start]

    def big_endian(self, offset: int, size: int) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
        """The big-endian numbers of ``size`` bytes (1 to 8) there; as uint32 if they fit, else as uint64."""
        if size == 1:
            return self.numbers(np.uint8, offset).astype(np.uint32)
        if size == 2:
            return self.numbers(np.uint16, offset).byteswap(inplace=True).astype(np.uint32)
        if size <= 4:
            word = self.numbers(np.uint32, offset).byteswap(inplace=True)
            return word if size == 4 else word >> np.uint32(8)
        long = self.numbers(np.uint64, offset).byteswap(inplace=True)
        return long if size == 8 else long >> np.uint64(64 - 8 * size)

    def is_any(self, found: Flags) -> bool:
        """Whether ``found`` is True for a valid value."""
        return bool((found if self.valid is None else found & self.valid).any())

    def values(self) -> list[bytes | None]:
        """The bytes of each value of a variable-length column."""
        assert self.length is not None
        start = self.positions
        data = self.buffer.data
        places = zip(start.tolist(), (start + self.length).tolist(), strict=True)
        found: list[bytes | None] = [data[begin:end] for begin, end in places]
        if self.valid is not None:
            for row in np.flatnonzero(~self.valid).tolist():
                found[row] = None
        return found


class ImageWalk:
    """Finds the places of one row image's columns, for rows of one layout, in the order of the table's columns."""

    def __init__(self, buffer: RowBuffer, image: ImageLayout, begins: Positions | range) -> None:
        self._buffer = buffer
        self._image = image
        self._next = 0
        self._diffs: list[Bytes] = []
        if image.diffs is not None:
            assert not isinstance(begins, range)
            begins = self._skip_diff_bits(begins, bitmap_size(len(image.diffs)))
        self._base = begins
        self._offset = image.null_bytes
        self._nulls = self._null_bits(begins)

    def find(self, index: int) -> Places | None:
        """The places of the column with this index in the table; None if the image does not hold the column."""
        columns = self._image.columns
        while self._next < len(columns) and columns[self._next].index <= index:
            column = columns[self._next]
            self._next += 1
            places = self._next_places(column)
            if column.index == index:
                return places
        return None

    def _null_bits(self, begins: Positions | range) -> list[Bytes | None]:
        """The bytes of NULL bits, each None if no row has a NULL in it. Equally spaced rows have no NULLs."""
        if isinstance(begins, range):
            return [None] * self._image.null_bytes
        nulls: list[Bytes | None] = []
        for offset, mask in enumerate(self._image.null_mask):
            bits = null_bits(self._buffer, begins, offset, mask)
            nulls.append(bits if bits.any() else None)
        return nulls

    def _valid(self, column: ColumnLayout) -> Flags | None:
        bits = self._nulls[column.bit >> 3]
        if bits is None:
            return None
        valid: Flags = (bits & (1 << (column.bit & 7))) == 0
        return None if valid.all() else valid

    def _next_places(self, column: ColumnLayout) -> Places:
        """The places of the next column. Moves to the end of its values."""
        valid = self._valid(column)
        if column.length_bytes:
            return self._next_variable(column, valid)
        places = Places(self._buffer, self._base, self._offset, valid=valid)
        if valid is None:
            self._offset += column.size
        else:
            self._base = places.positions + valid * np.int64(column.size)
            self._offset = 0
        return places

    def _next_variable(self, column: ColumnLayout, valid: Flags | None) -> Places:
        at = moved(self._base, self._offset)
        assert not isinstance(at, range)
        length = lengths_at(self._buffer, column.length_bytes, at)
        start = at + column.length_bytes
        self._offset = 0
        if valid is None:
            self._base = start + length
        else:
            length *= valid
            self._base = at + (length + column.length_bytes) * valid
        diffs = self._diffs_of(column.index)
        return Places(self._buffer, start, 0, length, valid, diffs)

    # The after image of a partial update begins with value options, and a bit for each JSON column if these say so.

    def _skip_diff_bits(self, begins: Positions, size: int) -> Positions:
        has_bits = self._buffer.numbers(np.uint8)[begins] & 1
        bits = [self._buffer.numbers(np.uint8, 1 + offset)[begins] for offset in range(size)]
        self._diffs = [byte * has_bits for byte in bits]
        return begins + 1 + size * has_bits.astype(np.int64)

    def _diffs_of(self, index: int) -> Flags | None:
        if not self._image.diffs or index not in self._image.diffs:
            return None
        bit = self._image.diffs.index(index)
        diffs: Flags = self._diffs[bit >> 3] & np.uint8(1 << (bit & 7)) != 0
        return diffs if diffs.any() else None


def merge(buffer: RowBuffer, count: int, parts: Sequence[tuple[Rows, Places | None]]) -> Places:
    """Join the places of a column in some of the ``count`` rows each; None: these rows lack the column."""
    if len(parts) == 1 and parts[0][1] is not None and len(parts[0][1]) == count:
        return parts[0][1]
    start, valid = np.zeros(count, np.int64), np.zeros(count, np.bool_)
    length, diffs = None, None
    for rows, places in parts:
        if places is None:
            continue
        start[rows] = places.positions
        valid[rows] = True if places.valid is None else places.valid
        if places.length is not None:
            length = np.zeros(count, np.int64) if length is None else length
            length[rows] = places.length
        if places.diffs is not None:
            diffs = np.zeros(count, np.bool_) if diffs is None else diffs
            diffs[rows] = places.diffs
    before = None
    if diffs is not None and any(places is not None and places.before is not None for _, places in parts):
        before = merge(buffer, count, [(rows, places and places.before) for rows, places in parts])
    return Places(buffer, start, 0, length, None if valid.all() else valid, diffs, before)
