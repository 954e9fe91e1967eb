"""Values in JSON documents that are more than a string: numbers, decimals and dates -> their texts, many at once.

``document_batches`` finds the values; here they become text as ``protocol.values.jsonb_text`` writes it.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from protocol.constants import ColumnType
from protocol.values.jsonb import INT16, INT32, INT64, UINT16, UINT32, UINT64
from protocol.values.jsonb_text import float_text

from .arrays import POOL, Losses, fixed_array
from .binary import text_array, variable_array
from .buffer import Flags, Positions, RowBuffer
from .decimals import decimal_of
from .places import Places
from .temporal import DAY, calendar_days
from .text_parts import put_in_rows

# Numbers behind the entries of their container: type -> how they are stored.
STORED_NUMBERS: Final[Mapping[int, type[np.generic]]] = MappingProxyType(
    {INT32: np.int32, UINT32: np.uint32, INT64: np.int64, UINT64: np.uint64}
)
INLINED_NUMBERS: Final = (INT16, UINT16)
_MONTHS: Final = 13
# Arrow writes years below this one with fewer digits.
_FIRST_YEAR: Final = 1000
_LAST_YEAR: Final = 9999
_SECOND: Final = 1_000_000
# Above this scale Arrow gives small numbers an exponent; above this precision they have 256 bits.
_MAX_SCALE: Final = 6
_MAX_PRECISION: Final = 38
# Outside of this range Arrow or the server writes fractions with an exponent.
_LEAST_DOUBLE: Final = 1e-4
_MOST_DOUBLE: Final = 1e10
# From here on the server writes whole numbers with an exponent.
_MOST_WHOLE: Final = 1e15
_NO_FRACTION: Final = b".0"


def integer_texts(numbers: npt.NDArray[np.int64] | npt.NDArray[np.uint64]) -> pa.Array:
    """The texts of whole numbers."""
    arrow_type = pa.uint64() if numbers.dtype == np.uint64 else pa.int64()
    return fixed_array(arrow_type, numbers, None).cast(pa.string(), memory_pool=POOL)


def double_texts(numbers: npt.NDArray[np.float64]) -> pa.Array:
    """The texts of doubles.

    Arrow writes most fractions as the server does, in 50 ns instead of 320 by ``repr``.
    """
    size = np.abs(numbers)
    with np.errstate(invalid="ignore"):
        is_whole = np.floor(numbers) == numbers
    is_alike = (size >= _LEAST_DOUBLE) & (size < _MOST_DOUBLE) & ~is_whole
    is_whole &= (size >= 1) & (size < _MOST_WHOLE)
    texts: list[tuple[Positions, pa.Array]] = []
    for chosen, write in (is_alike, _fractions), (is_whole, _wholes), (~(is_alike | is_whole), _others):
        rows = np.flatnonzero(chosen)
        if len(rows):
            texts.append((rows, write(numbers[rows])))
    return put_in_rows(texts)


def _fractions(numbers: npt.NDArray[np.float64]) -> pa.Array:
    return fixed_array(pa.float64(), numbers, None).cast(pa.string(), memory_pool=POOL)


def _wholes(numbers: npt.NDArray[np.float64]) -> pa.Array:
    whole = integer_texts(numbers.astype(np.int64))
    lengths = np.full(len(numbers), len(_NO_FRACTION))
    # Arrays, because to make a scalar of a string pyarrow imports pandas.
    fraction = variable_array(pa.string(), lengths, pa.py_buffer(_NO_FRACTION * len(numbers)), None)
    between = variable_array(pa.string(), lengths * 0, pa.py_buffer(b""), None)
    return pc.binary_join_element_wise(whole, fraction, between, memory_pool=POOL)


def _others(numbers: npt.NDArray[np.float64]) -> pa.Array:
    return text_array(list(map(float_text, numbers.tolist())))


def writes_decimal(precision: int, scale: int) -> bool:
    """Whether Arrow writes DECIMAL(precision, scale) as the server does."""
    return scale <= _MAX_SCALE and precision <= _MAX_PRECISION


def decimal_texts(buffer: RowBuffer, start: Positions, precision: int, scale: int) -> pa.Array | None:
    """The texts of DECIMAL(precision, scale) from ``start`` on; None if Arrow would write some otherwise.

    Raises ``DecodeError`` for digits that no server stores.
    """
    if not writes_decimal(precision, scale):
        return None
    decimals = decimal_of(precision, scale).convert(Places(buffer, start), Losses())
    return decimals.cast(pa.string(), memory_pool=POOL)


def temporal_texts(kind: int, buffer: RowBuffer, start: Positions) -> tuple[pa.Array, Flags] | None:
    """The texts of dates and times from ``start`` on, and which of them are right: dates of the calendar.

    None for a type other than DATE, DATETIME and TIMESTAMP. ``jsonb`` describes how they are stored.
    """
    convert = _TEMPORALS.get(kind)
    if convert is None:
        return None
    packed = buffer.numbers(np.int64)[start]
    year_month = packed >> 46
    year = year_month // _MONTHS
    clock = packed >> 24 & 0x1FFFF
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    micro = packed & 0xFFFFFF
    is_right = (year >= _FIRST_YEAR) & (year <= _LAST_YEAR)
    is_right &= (hour < 24) & (minute < 60) & (second < 60) & (micro < _SECOND)
    days = calendar_days(Places(buffer, start), year_month * is_right, packed >> 41 & 31)
    is_right &= days.is_real
    time = ((hour * 60 + minute) * 60 + second) * _SECOND + micro
    return convert(days.days, time).cast(pa.string(), memory_pool=POOL), is_right


def _date(days: Positions, time: Positions) -> pa.Array:
    return fixed_array(pa.date32(), days.astype(np.int32), None)


def _datetime(days: Positions, time: Positions) -> pa.Array:
    return fixed_array(pa.timestamp("us"), days * DAY + time, None)


_TEMPORALS: Final[Mapping[int, Callable[[Positions, Positions], pa.Array]]] = MappingProxyType(
    {ColumnType.DATE: _date, ColumnType.DATETIME: _datetime, ColumnType.TIMESTAMP: _datetime}
)
TEMPORAL_KINDS: Final = frozenset(_TEMPORALS)
