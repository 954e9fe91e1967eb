"""The converters for numbers: integers, FLOAT, DOUBLE, YEAR, BIT; and ENUM and SET whose labels are not known."""

from functools import partial

import numpy as np
import pyarrow as pa

from protocol.constants import ColumnType
from protocol.rows.column import Column

from .arrays import ArrowColumn, Losses, fixed_array
from .buffer import Unsigned
from .places import Places

_INTEGERS: dict[tuple[ColumnType, bool], tuple[pa.DataType, type[np.generic]]] = {
    (ColumnType.TINY, False): (pa.int8(), np.int8),
    (ColumnType.TINY, True): (pa.uint8(), np.uint8),
    (ColumnType.SHORT, False): (pa.int16(), np.int16),
    (ColumnType.SHORT, True): (pa.uint16(), np.uint16),
    (ColumnType.LONG, False): (pa.int32(), np.int32),
    (ColumnType.LONG, True): (pa.uint32(), np.uint32),
    (ColumnType.LONGLONG, False): (pa.int64(), np.int64),
    (ColumnType.LONGLONG, True): (pa.uint64(), np.uint64),
}
_FIRST_YEAR = 1900


def integer(column: Column) -> ArrowColumn:
    """TINYINT, SMALLINT, INT, BIGINT. Signed unless the log or a lookup says unsigned, as in row tuples."""
    arrow_type, dtype = _INTEGERS[column.type, bool(column.unsigned)]
    return ArrowColumn(arrow_type, partial(_as_stored, arrow_type, dtype))


def floating(arrow_type: pa.DataType, dtype: type[np.generic]) -> ArrowColumn:
    """FLOAT and DOUBLE."""
    return ArrowColumn(arrow_type, partial(_as_stored, arrow_type, dtype))


def _as_stored(arrow_type: pa.DataType, dtype: type[np.generic], places: Places, losses: Losses) -> pa.Array:
    return fixed_array(arrow_type, places.numbers(dtype), places.valid)


def medium_integer(column: Column) -> ArrowColumn:
    """MEDIUMINT, three bytes."""
    return ArrowColumn(pa.uint32(), _medium_unsigned) if column.unsigned else ArrowColumn(pa.int32(), _medium)


def _medium_unsigned(places: Places, losses: Losses) -> pa.Array:
    return fixed_array(pa.uint32(), places.numbers(np.uint32) & 0xFFFFFF, places.valid)


def _medium(places: Places, losses: Losses) -> pa.Array:
    # The fourth byte belongs to another value: shift it out, then shift back with the sign.
    return fixed_array(pa.int32(), places.numbers(np.int32) << 8 >> 8, places.valid)


def year(column: Column) -> ArrowColumn:
    """YEAR, one byte: 0, or years since 1900."""
    return ArrowColumn(pa.int16(), _years)


def _years(places: Places, losses: Losses) -> pa.Array:
    stored = places.numbers(np.uint8).astype(np.int16)
    return fixed_array(pa.int16(), stored + (stored > 0) * np.int16(_FIRST_YEAR), places.valid)


def bit(column: Column) -> ArrowColumn:
    """BIT(n), big-endian."""
    size = (column.metadata + 7) >> 3

    def convert(places: Places, losses: Losses) -> pa.Array:
        values = places.big_endian(0, size).astype(np.uint64)
        return fixed_array(pa.uint64(), values, places.valid)

    return ArrowColumn(pa.uint64(), convert)


def index(column: Column) -> ArrowColumn:
    """ENUM as the number of its label, or SET as its bits."""
    arrow_type, dtype = (
        (pa.uint16(), np.uint16) if column.type is ColumnType.ENUM else (pa.uint64(), np.uint64)
    )

    def convert(places: Places, losses: Losses) -> pa.Array:
        return fixed_array(arrow_type, indexes(places, column.metadata).astype(dtype), places.valid)

    return ArrowColumn(arrow_type, convert)


def indexes(places: Places, size: int) -> Unsigned:
    """Little-endian numbers of ``size`` bytes."""
    stored = places.numbers(np.uint64)
    return stored if size == 8 else stored & np.uint64((1 << 8 * size) - 1)
