"""Where the values of each column stand, row by row: from where the rows' images begin, column after column.

It knows lengths and NULLs, and nothing of what the bytes mean: ``Places`` is what the converters of values read from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from protocol.wire import bitmap_size

from .buffer import Bytes, Flags, Positions, RowBuffer
from .rawrows import ColumnLayout, ImageLayout
from .row_starts import lengths_at, moved, null_bits

_Number = TypeVar("_Number", bound=np.generic)
Rows = slice | Positions


@dataclass(slots=True)
class Places:
    """One column's values in a buffer, one for each row.

    ``start`` and ``offset`` together are their first bytes. Variable columns have a ``length`` (0 for NULLs).
    ``valid`` is False for NULLs and absent values (None: there are none), whose place may be anywhere in the buffer.
    Where ``diffs`` is True the value is a JSON diff to the value of ``before``.
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
        """The first bytes of all values."""
        place = moved(self.start, self.offset) if self.offset else self.start
        if isinstance(place, range):
            return np.arange(place.start, place.stop, place.step, dtype=np.int64)
        return place

    def numbers(self, dtype: type[_Number], offset: int = 0) -> npt.NDArray[_Number]:
        """The little-endian number that stands ``offset`` bytes behind each value's first byte."""
        offset += self.offset
        if isinstance(self.start, range):
            where = range(self.start.start + offset, self.start.stop + offset, self.start.step)
            return self.buffer.strided(dtype, where).copy()
        return self.buffer.numbers(dtype, offset)[self.start]

    def big_endian(self, offset: int, size: int) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
        """The big-endian number of 1 to 8 bytes there; of four bytes if it fits into them, else of eight."""
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
        """Whether a value that is there is among those found."""
        return bool((found if self.valid is None else found & self.valid).any())

    def values(self) -> list[bytes | None]:
        """The bytes of variable values one by one."""
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
    """The places of one image's columns, for rows that are laid out alike; asked for in the order of the table."""

    def __init__(self, buffer: RowBuffer, image: ImageLayout, begins: Positions | range) -> None:
        self._buffer = buffer
        self._image = image
        self._next = 0
        self._diffs: list[Bytes] = []
        if image.diffs is not None:
            assert not isinstance(begins, range)
            begins = self._behind_diff_bits(begins, bitmap_size(len(image.diffs)))
        self._base = begins
        self._offset = image.null_bytes
        self._nulls = self._null_bits(begins)

    def find(self, index: int) -> Places | None:
        """The places of the column that is at ``index`` in the table; None if the image does not hold it."""
        columns = self._image.columns
        while self._next < len(columns) and columns[self._next].index <= index:
            column = columns[self._next]
            self._next += 1
            places = self._pass(column)
            if column.index == index:
                return places
        return None

    def _null_bits(self, begins: Positions | range) -> list[Bytes | None]:
        """The bytes of NULL bits, each None if no row has one in it. Rows that lie equally far apart have none."""
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

    def _pass(self, column: ColumnLayout) -> Places:
        """The places of the next column; moves behind it."""
        valid = self._valid(column)
        if column.length_bytes:
            return self._pass_variable(column, valid)
        places = Places(self._buffer, self._base, self._offset, valid=valid)
        if valid is None:
            self._offset += column.size
        else:
            self._base = places.positions + valid * np.int64(column.size)
            self._offset = 0
        return places

    def _pass_variable(self, column: ColumnLayout, valid: Flags | None) -> Places:
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

    # After images of partial updates: value options, then one bit per JSON column if they say so.

    def _behind_diff_bits(self, begins: Positions, size: int) -> Positions:
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
    """The places of a column in ``count`` rows, from those of some rows each; None is absent."""
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
