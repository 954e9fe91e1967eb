"""Rows of a SELECT in the binary protocol as Arrow columns, of the same types as the rows of the log.

    undecoded rows -> one buffer -> the places of each column's values -> arrays -> a RecordBatch

The layouts differ from those of the log (``protocol.rows.result_cells``), so numbers, dates and DECIMAL have
converters here; text, bytes and labels share the converters of the log. Zero and partial dates become null and are
counted, as in the log's batches. A JSON document is the server's own text.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.binlog.freed_blocks import keep_freed_blocks
from protocol.constants import ColumnType
from protocol.errors import DecodeError, ProtocolError
from protocol.records import replace
from protocol.rows.column import BLOB_TYPES, INTEGER_TYPES, Column
from protocol.rows.result_cells import SHORT
from protocol.rows.result_compiler import UNUSED_BITS, ResultColumn
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import ROW_HEAD, UndecodedRows

from . import labels, numbers, strings, temporal
from .arrays import ArrowColumn, Losses, fixed_array
from .binary import binary, vector
from .buffer import Bytes, Flags, Positions, RowBuffer, Unsigned
from .decimal_text import decimal_text
from .places import Places
from .schema import batch_columns

_MOST_SHORT: Final = 250
# The joined rows of a batch have up to 8 MB. Without kept blocks each batch of 4.7 MB took 2,650 page faults: 6 ms.
_KEPT: Final = 16 << 20
_ENUM_BYTES: Final = 2
_SET_BYTES: Final = 8
_DAMAGE: Final = (IndexError, ValueError, OverflowError, ArithmeticError, DecodeError)


class ResultBatches:
    """Makes RecordBatches of the undecoded rows of one SELECT list.

    ``order`` has the index in ``table`` of each selected column, ``columns`` how it is selected, ``layouts`` its
    layout in a row. ``schema`` has all columns of the table; a column that is not selected is null. ``losses`` counts
    values that Arrow cannot hold.
    """

    def __init__(
        self, table: Table, order: Sequence[int], columns: Sequence[Column], layouts: Sequence[ResultColumn]
    ) -> None:
        keep_freed_blocks(_KEPT)
        self.losses = Losses()
        self._table = table
        self._fields = batch_columns(table)
        self.schema = pa.schema([field.field for field in self._fields])
        self._order = order
        self._layouts = layouts
        self._converters = [_converter(column) for column in columns]

    def batch(self, rows: UndecodedRows) -> pa.RecordBatch:
        """The rows as one batch. ``ProtocolError`` if their bytes are damaged."""
        try:
            arrays = self._arrays(rows)
        except _DAMAGE as error:
            raise ProtocolError(f"a row of {self._table} is damaged: {error}") from error
        columns = [
            arrays.get(field.index, None) or pa.nulls(len(rows), field.arrow.type) for field in self._fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _arrays(self, rows: UndecodedRows) -> dict[int, pa.Array]:
        buffer = RowBuffer(rows.parts)
        # numpy takes 28 ns for each integer of a list, and 5 by way of an array.
        sizes = np.array(array("I", rows.sizes), np.int64)
        ends = np.cumsum(sizes)
        walk = _Walk(buffer, ends - sizes + ROW_HEAD, self._layouts)
        places = [walk.find(place, layout) for place, layout in enumerate(self._layouts)]
        if (walk.ends() != ends).any():
            raise ProtocolError(f"the values of a row of {self._table} do not end where its packet ends")
        return {
            index: convert(found, self.losses)
            for index, convert, found in zip(self._order, self._converters, places, strict=True)
        }


class _Walk:
    """Finds the places of the values of all rows, column after column."""

    def __init__(self, buffer: RowBuffer, begins: Positions, layouts: Sequence[ResultColumn]) -> None:
        self._buffer = buffer
        self._base = begins
        self._offset = (len(layouts) + UNUSED_BITS + 7) >> 3
        # The bytes of the bitmaps; None where no row has a NULL.
        self._nulls: list[Bytes | None] = []
        for offset in range(self._offset):
            bits = buffer.numbers(np.uint8, offset)[begins]
            self._nulls.append(bits if bits.any() else None)

    def ends(self) -> Positions:
        return self._base + self._offset

    def find(self, place: int, layout: ResultColumn) -> Places:
        """The places of the next column."""
        valid = self._valid(place + UNUSED_BITS)
        if layout.cell.length_bytes:
            return self._variable(valid, is_short=layout.cell.length_bytes == SHORT)
        places = Places(self._buffer, self._base, self._offset, valid=valid)
        if layout.cell.code.startswith("x"):
            # One byte with the length, which is always the same, then the value.
            places.offset += 1
            places.length = np.full(len(self._base), layout.cell.size - 1, np.int64)
            if valid is not None:
                places.length *= valid
        if valid is None:
            self._offset += layout.cell.size
        else:
            self._base = self._base + self._offset + valid * np.int64(layout.cell.size)
            self._offset = 0
        return places

    def _valid(self, bit: int) -> Flags | None:
        bits = self._nulls[bit >> 3]
        if bits is None:
            return None
        valid: Flags = bits & np.uint8(1 << (bit & 7)) == 0
        return None if valid.all() else valid

    def _variable(self, valid: Flags | None, *, is_short: bool) -> Places:
        at = self._base + self._offset
        self._offset = 0
        length = self._buffer.numbers(np.uint8)[at].astype(np.int64)
        if valid is not None:
            length *= valid
        start = at + 1
        if not is_short and len(length) and length.max() > _MOST_SHORT:
            start, length = self._long_lengths(at, length)
        self._base = start + length if valid is None else np.where(valid, start + length, at)
        return Places(self._buffer, start, 0, length, valid)

    def _long_lengths(self, at: Positions, first: Positions) -> tuple[Positions, Positions]:
        """Places and lengths of values where some length fields take 3, 4 or 9 bytes."""
        start, length = at + 1, first.copy()
        for mark, size in ((252, 2), (253, 3), (254, 8)):
            rows = np.flatnonzero(first == mark)
            if len(rows):
                word = self._buffer.numbers(np.uint64, 1)[at[rows]]
                length[rows] = (word & np.uint64((1 << 8 * size) - 1)).astype(np.int64)
                start[rows] += size
        if (first == 251).any() or (first == 255).any() or (length < 0).any():
            raise DecodeError("a value has a length that no server sends")
        return start, length


# ------------------------------------------------------------------------------------------- converters

Convert = Callable[[Places, Losses], pa.Array]


def _converter(column: Column) -> Convert:
    return _CONVERTERS[column.type](column).convert


def _integer(column: Column) -> ArrowColumn:
    is_medium = column.type is ColumnType.INT24
    return numbers.integer(replace(column, type=ColumnType.LONG) if is_medium else column)


def _year(column: Column) -> ArrowColumn:
    return numbers.floating(pa.int16(), np.int16)


def _bit(column: Column) -> ArrowColumn:
    size = (column.metadata + 7) >> 3

    def convert(places: Places, losses: Losses) -> pa.Array:
        if places.length is None or places.is_any(places.length != size):
            raise DecodeError(f"a BIT({column.metadata}) does not have {size} bytes")
        return fixed_array(pa.uint64(), places.big_endian(0, size).astype(np.uint64), places.valid)

    return ArrowColumn(pa.uint64(), convert)


# By a value's size: the bits of a date with time (without microseconds) in the value. The server leaves zeros out.
_SENT: Final = np.array(
    [(1 << 8 * (0 if size < 4 else 4 if size < 7 else 7)) - 1 for size in range(256)], np.uint64
)
_FINE_BYTES: Final = 11


def _part(places: Places, dtype: type[np.generic], offset: int, least: int) -> Positions:
    """A part of a time; 0 in values of fewer than ``least`` bytes, from which the server left it out."""
    assert places.length is not None
    part: npt.NDArray[Any] = places.numbers(dtype, offset).astype(np.int64)
    return part * (places.length >= least)


def _bits(word: Unsigned, first: int, count: int) -> Positions:
    """Bits of all words as numbers, from the lowest one on."""
    return (word >> np.uint64(first) & np.uint64((1 << count) - 1)).view(np.int64)


def _word(places: Places) -> Unsigned:
    """Year (2 bytes), month, day, hour, minute and second of each value: one read instead of six."""
    assert places.length is not None
    return places.numbers(np.uint64) & _SENT[places.length]


def _days(places: Places, word: Unsigned) -> temporal.Days:
    month = _bits(word, 16, 8)
    if places.is_any(month > 12):
        raise DecodeError("a date has a month above 12")
    return temporal.calendar_days(places, _bits(word, 0, 16) * temporal.MONTHS + month, _bits(word, 24, 8))


def _date(places: Places, losses: Losses) -> pa.Array:
    days, is_real = _days(places, _word(places))
    return fixed_array(temporal.DATE, days.astype(np.int32), temporal.real_dates(places, is_real, losses))


def _moment(arrow_type: pa.DataType, places: Places, losses: Losses) -> pa.Array:
    word = _word(places)
    days, is_real = _days(places, word)
    hour, minute, second = (_bits(word, first, 8) for first in (32, 40, 48))
    assert places.length is not None
    has_fraction = len(places) and int(places.length.max()) >= _FINE_BYTES
    micro = _part(places, np.uint32, 7, _FINE_BYTES) if has_fraction else np.zeros_like(hour)
    moments = days * temporal.DAY + temporal.clock_time(places, hour, minute, second, micro)
    return fixed_array(arrow_type, moments, temporal.real_dates(places, is_real, losses))


def _time(places: Places, losses: Losses) -> pa.Array:
    is_negative = _part(places, np.uint8, 0, 8) != 0
    hours = _part(places, np.uint32, 1, 8) * 24 + _part(places, np.uint8, 5, 8)
    minute, second = _part(places, np.uint8, 6, 8), _part(places, np.uint8, 7, 8)
    return temporal.duration_array(
        places, is_negative, hours, minute, second, _part(places, np.uint32, 8, 12)
    )


def _text(column: Column) -> ArrowColumn:
    return binary(column) if strings.known_charset(column) is None else strings.text(column)


def _fixed(column: ArrowColumn) -> Callable[[Column], ArrowColumn]:
    return lambda _: column


_CONVERTERS: Final[Mapping[ColumnType, Callable[[Column], ArrowColumn]]] = MappingProxyType(
    {
        **dict.fromkeys(INTEGER_TYPES, _integer),
        ColumnType.FLOAT: _fixed(numbers.floating(pa.float32(), np.float32)),
        ColumnType.DOUBLE: _fixed(numbers.floating(pa.float64(), np.float64)),
        ColumnType.YEAR: _year,
        ColumnType.BIT: _bit,
        ColumnType.NEWDECIMAL: decimal_text,
        ColumnType.DATE: _fixed(ArrowColumn(temporal.DATE, _date)),
        ColumnType.DATETIME2: _fixed(ArrowColumn(temporal.DATETIME, partial(_moment, temporal.DATETIME))),
        ColumnType.TIMESTAMP2: _fixed(ArrowColumn(temporal.TIMESTAMP, partial(_moment, temporal.TIMESTAMP))),
        ColumnType.TIME2: _fixed(ArrowColumn(temporal.TIME, _time)),
        ColumnType.STRING: _text,
        ColumnType.VARCHAR: _text,
        **dict.fromkeys(BLOB_TYPES, _text),
        ColumnType.ENUM: lambda column: labels.enum(replace(column, metadata=_ENUM_BYTES)),
        ColumnType.SET: lambda column: labels.label_set(replace(column, metadata=_SET_BYTES)),
        ColumnType.JSON: lambda column: strings.text(replace(column, charset="utf8mb4")),
        ColumnType.GEOMETRY: binary,
        ColumnType.VECTOR: vector,
    }
)
