"""The converter for DECIMAL as text, as a SELECT gives it: digits of all values of a batch -> decimal128.

The fraction of a column has the same number of digits in each value, so the place of every digit is known from the
value's end. Eight digits are one word of the buffer; three multiplications turn it into a number: 30 ns a value.
Longer numbers are gathered and parsed by Arrow one by one, which takes 70.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from protocol.errors import DecodeError
from protocol.rows.column import Column

from .arrays import ArrowColumn, Losses, fixed_array
from .binary import gather
from .buffer import Flags, Positions, Unsigned
from .places import Places

_MAX_DIGITS_128: Final = 38
# The digits in a word; the most digits before the point (two words); the most in all, so that 64 bits hold them.
_WORD: Final = 8
_MOST_WHOLE: Final = 2 * _WORD
_MOST_DIGITS: Final = 18
_ZEROS: Final = np.uint64(0x3030303030303030)
_HIGH_BITS: Final = np.uint64(0x8080808080808080)
# Added to a digit it leaves the high bit unset; added to 10 or more it sets it.
_ABOVE_NINE: Final = np.uint64(0x7676767676767676)
# Pairs of digits become numbers of two, then four, then eight digits: the factor, the shift, and the bits to keep.
_STEPS: Final = (
    (np.uint64(10 << 8 | 1), np.uint64(8), np.uint64(0x00FF00FF00FF00FF)),
    (np.uint64(100 << 16 | 1), np.uint64(16), np.uint64(0x0000FFFF0000FFFF)),
    (np.uint64(10_000 << 32 | 1), np.uint64(32), np.uint64(0x00000000FFFFFFFF)),
)
_MINUS, _POINT = ord("-"), ord(".")


def decimal_text(column: Column) -> ArrowColumn:
    """DECIMAL: decimal128 up to 38 digits, else decimal256."""
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
    is_wide = precision > _MAX_DIGITS_128
    arrow_type = pa.decimal256(precision, scale) if is_wide else pa.decimal128(precision, scale)

    def parsed(places: Places, losses: Losses) -> pa.Array:
        return gather(places).array(pa.string()).cast(arrow_type)

    def convert(places: Places, losses: Losses) -> pa.Array:
        numbers = np.empty((len(places), 2), np.int64)
        numbers[:, 0] = _numbers(places, scale)
        numbers[:, 1] = numbers[:, 0] >> 63
        return fixed_array(arrow_type, numbers, places.valid)

    is_short = precision <= _MOST_DIGITS and precision - scale <= _MOST_WHOLE and scale <= _WORD
    return ArrowColumn(arrow_type, convert if is_short else parsed)


def _numbers(places: Places, scale: int) -> Positions:
    """The numbers without their points."""
    assert places.length is not None
    data = places.buffer.numbers(np.uint8)
    begin = places.positions
    end = begin + places.length
    is_negative = data[begin] == _MINUS
    begin = begin + is_negative
    whole_end = end
    if scale:
        whole_end = end - (scale + 1)
        if places.is_any(data[whole_end] != _POINT):
            raise DecodeError("a DECIMAL has no point where its fraction begins")
    count = whole_end - begin
    if places.is_any((count < 1) | (count > _MOST_WHOLE)):
        raise DecodeError("a DECIMAL has a number of digits that no server sends")
    magnitude = _digits(places, whole_end, np.minimum(count, _WORD))
    more = np.clip(count - _WORD, 0, _WORD)
    if more.any():
        magnitude += _digits(places, whole_end - _WORD, more) * np.uint64(10**_WORD)
    if scale:
        fraction = _digits(places, end, np.full(len(end), scale, np.int64))
        magnitude = magnitude * np.uint64(10**scale) + fraction
    number: Positions = magnitude.view(np.int64)
    return np.where(is_negative, -number, number)


def _digits(places: Places, end: Positions, count: Positions) -> Unsigned:
    """The numbers of ``count`` digits (0 to 8) in front of ``end``."""
    # The first byte of the word is the lowest; bytes in front of the digits are shifted out. The processor ignores a
    # shift by all 64 bits, so two shifts do it.
    unwanted = (4 * (_WORD - np.clip(count, 0, _WORD))).astype(np.uint64)
    keep = ~np.uint64(0) << unwanted << unwanted
    word: Unsigned = places.buffer.numbers(np.uint64)[np.maximum(end - _WORD, 0)]
    digits: Unsigned = word & keep ^ _ZEROS & keep
    wrong: Flags = ((digits + _ABOVE_NINE) | digits) & _HIGH_BITS != 0
    if places.is_any(wrong):
        raise DecodeError("a DECIMAL has something else than digits")
    for factor, bits, stay in _STEPS:
        digits = digits * factor >> bits & stay
    return digits
