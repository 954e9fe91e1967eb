"""The converter for DECIMAL: big-endian groups of nine digits -> Arrow's two's complement of 128 or 256 bits.

It converts all values of a batch at once. ``protocol.values.readers`` describes the storage format: a group of up to
nine digits is an integer of up to four bytes. The first bit is set for values >= 0; in negative values all other bits
are inverted.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.errors import DecodeError
from protocol.records import record
from protocol.rows.column import Column
from protocol.values.readers import DIGITS_TO_BYTES, decimal_groups

from .arrays import ArrowColumn, Losses, fixed_array
from .buffer import Flags, Unsigned
from .places import Places

_MAX_DIGITS_128 = 38
# Digits that fit into 64 bits with room for the sign.
_WORD_DIGITS = 18
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@record(frozen=True, slots=True)
class _Group:
    offset: int
    size: int
    digits: int


def decimal(column: Column) -> ArrowColumn:
    """DECIMAL: decimal128 up to 38 digits, else decimal256.

    Converting raises ``DecodeError`` for a group whose number has more digits than the group.
    """
    return decimal_of(column.metadata >> 8, column.metadata & 0xFF)


def decimal_of(precision: int, scale: int) -> ArrowColumn:
    """The same for DECIMAL(precision, scale)."""
    groups = _groups(precision, scale)
    is_wide = precision > _MAX_DIGITS_128
    arrow_type = pa.decimal256(precision, scale) if is_wide else pa.decimal128(precision, scale)
    words = 4 if is_wide else 2

    def convert(places: Places, losses: Losses) -> pa.Array:
        is_negative = places.numbers(np.uint8) < 0x80
        limbs = _limbs(places, groups, is_negative, words)
        return fixed_array(arrow_type, _signed(limbs, is_negative, words), places.valid)

    return ArrowColumn(arrow_type, convert)


def _groups(precision: int, scale: int) -> list[_Group]:
    """The groups as stored, from left to right."""
    groups, offset = [], 0
    for digits in decimal_groups(precision, scale):
        size = DIGITS_TO_BYTES[digits]
        groups.append(_Group(offset, size, digits))
        offset += size
    return groups


def _limbs(places: Places, groups: Sequence[_Group], is_negative: Flags, words: int) -> list[Unsigned]:
    """The magnitude in words of 64 bits, the lowest first."""
    limbs: list[Unsigned] = []
    value, digits = None, 0
    for group in groups:
        number = _group(places, group, is_negative)
        if value is not None and digits + group.digits <= _WORD_DIGITS:
            value, digits = value * np.uint64(10**group.digits) + number, digits + group.digits
            continue
        if value is not None:
            limbs = _shifted_in(limbs, digits, value, words)
        value, digits = number.astype(np.uint64), group.digits
    assert value is not None
    return _shifted_in(limbs, digits, value, words)


def _group(places: Places, group: _Group, is_negative: Flags) -> npt.NDArray[np.uint32]:
    mask = (1 << 8 * group.size) - 1
    if not group.offset:
        mask >>= 1
    inverted = is_negative * np.uint32(mask)
    digits = places.big_endian(group.offset, group.size).astype(np.uint32, copy=False)
    number: npt.NDArray[np.uint32] = (digits & np.uint32(mask)) ^ inverted
    if places.is_any(number >= 10**group.digits):
        raise DecodeError(f"a group of {group.digits} DECIMAL digits holds a larger number")
    return number


def _shifted_in(limbs: list[Unsigned], digits: int, value: Unsigned, words: int) -> list[Unsigned]:
    """``limbs * 10**digits + value``."""
    if not limbs:
        return [value]
    factor, carry, result = 10**digits, value, []
    for limb in limbs:
        high, low = _product(limb, factor)
        low += carry
        high += low < carry
        result.append(low)
        carry = high
    return [*result, carry] if len(result) < words else result


def _product(left: Unsigned, right: int) -> tuple[Unsigned, Unsigned]:
    """The high and the low word of a product; numpy has words of 64 bits only."""
    right_low, right_high = np.uint64(right & 0xFFFFFFFF), np.uint64(right >> 32)
    left_low, left_high = left & _LOW, left >> _HALF
    low = left_low * right_low
    middle_1, middle_2 = left_low * right_high, left_high * right_low
    middle = (low >> _HALF) + (middle_1 & _LOW) + (middle_2 & _LOW)
    high = left_high * right_high + (middle_1 >> _HALF) + (middle_2 >> _HALF) + (middle >> _HALF)
    return high, (low & _LOW) | (middle << _HALF)


def _signed(limbs: list[Unsigned], is_negative: Flags, words: int) -> Unsigned:
    """The numbers in two's complement, ``words`` words of 64 bits each, side by side."""
    result = np.empty((len(is_negative), words), np.uint64)
    carry: Unsigned | Flags = is_negative
    flip = -is_negative.astype(np.int64)
    inverted = flip.view(np.uint64)
    for index in range(words):
        word = (limbs[index] ^ inverted) if index < len(limbs) else inverted
        word = word + carry
        carry = word < carry
        result[:, index] = word
    return result
