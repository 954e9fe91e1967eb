"""Plain readers of column values that are not simply an integer, a float or bytes.

They turn the bytes of a row image into Python values, for temporal types in their old and new forms, DECIMAL, ENUM,
SET and VECTOR. ``*_reader()`` functions return a closure for one precision, so that no work is repeated per row.
This module knows no columns, no metadata bytes and no NULL. ``inline`` reads most values faster, must give the same
results, and leaves all other values to these readers.

Every ``f(data, position)`` reads a fixed number of bytes, and the caller guarantees that they are there.
Bytes that no server could have stored raise ``DecodeError``.

Storage formats: MySQL's ``mysys/my_time.cc`` (``my_*_packed_from_binary``, ``my_timestamp_from_binary``) and
``strings/decimal.cc`` (``bin2decimal``). MariaDB uses the same formats since 10.1. In older temporal columns (created
before 10.1, or with ``mysql56_temporal_format=OFF``) fractional seconds cannot be decoded: the table map does not
say how many digits there are.
"""

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

from ..errors import DecodeError
from ..wire import unpack_u32, unpack_u64

DateValue = date | str
DatetimeValue = datetime | str

# Times in nanoseconds in the docstrings below: CPython 3.11, best of 15 timeit runs, call included.

_from_bytes = int.from_bytes
_unpack_u16_u8 = struct.Struct("<HB").unpack_from
_from_timestamp = datetime.fromtimestamp

_MAX_YEAR = 9999
MAX_TIME_HOURS = 838
_MAX_MICROSECOND = 999_999


# ---------------------------------------------------------------------------------------------- DECIMAL

# Digits of an incomplete group -> bytes; a full group has nine digits (decimal.cc: dig2bytes).
DIGITS_TO_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_GROUP_DIGITS = 9
# decimal.h: nine groups of nine digits. Columns have at most 65 digits; JSON may hold results of calculations.
MAX_PRECISION = 81

# scaleb() only moves the exponent, but rounds to its context. This context has room for every DECIMAL, whatever
# precision the calling program has set.
_scaleb = Context(prec=MAX_PRECISION).scaleb


def decimal_groups(precision: int, scale: int) -> list[int]:
    """Digits of each stored group, from the left."""
    if not 0 <= scale <= precision <= MAX_PRECISION or precision == 0:
        raise DecodeError(f"DECIMAL({precision},{scale}) is a type that no server has")
    full_before, lead = divmod(precision - scale, _GROUP_DIGITS)
    full_after, trail = divmod(scale, _GROUP_DIGITS)
    groups = [lead, *[_GROUP_DIGITS] * (full_before + full_after), trail]
    return [digits for digits in groups if digits]


def decimal_size(precision: int, scale: int) -> int:
    """Size in bytes of a DECIMAL(precision, scale)."""
    return sum(DIGITS_TO_BYTES[digits] for digits in decimal_groups(precision, scale))


def decimal_reader(precision: int, scale: int) -> Callable[[bytes, int], Decimal]:
    """A reader for DECIMAL(precision, scale). The scale is kept: 1.50 is ``Decimal("1.50")``.

    Groups of up to nine digits, each a big-endian integer; the first bit is set for values >= 0, and all
    other bits of negative values are inverted.
    """
    groups = decimal_groups(precision, scale)
    if len(groups) == 2 and 3 not in (DIGITS_TO_BYTES[digits] for digits in groups):
        return _two_group_reader(groups[0], groups[1], scale)
    return _many_group_reader(groups, scale)


def _decimal_error() -> DecodeError:
    return DecodeError("a DECIMAL value has a group of digits with a number that is too large")


def _two_group_reader(first: int, second: int, scale: int) -> Callable[[bytes, int], Decimal]:
    """For types like DECIMAL(10,2): 280 ns. The general reader takes 400 ns, a reader through text 530 ns."""
    codes = {1: "B", 2: "H", 4: "I"}
    unpack = struct.Struct(f">{codes[DIGITS_TO_BYTES[first]]}{codes[DIGITS_TO_BYTES[second]]}").unpack_from
    sign = 1 << (8 * DIGITS_TO_BYTES[first] - 1)
    first_limit = 10**first
    second_limit = 10**second
    second_mask = (1 << 8 * DIGITS_TO_BYTES[second]) - 1
    exponent = Decimal(-scale)

    def read(data: bytes, position: int) -> Decimal:
        high, low = unpack(data, position)
        if high >= sign:
            high -= sign
            if high < first_limit and low < second_limit:
                return _scaleb(high * second_limit + low, exponent)
        else:
            high ^= sign - 1
            low ^= second_mask
            if high < first_limit and low < second_limit:
                return _scaleb(-(high * second_limit + low), exponent)
        raise _decimal_error()

    return read


def _many_group_reader(groups: list[int], scale: int) -> Callable[[bytes, int], Decimal]:
    sizes = [DIGITS_TO_BYTES[digits] for digits in groups]
    size = sum(sizes)
    sign = 1 << (8 * size - 1)
    inverted = sign - 1
    first_limit = 10 ** groups[0]
    first_shift = 8 * (size - sizes[0])
    # For each further group: the bits to its right, its mask, the first number that is too large.
    layout = tuple(
        (8 * sum(sizes[index + 1 :]), (1 << 8 * sizes[index]) - 1, 10 ** groups[index])
        for index in range(1, len(groups))
    )
    exponent = Decimal(-scale)

    def read(data: bytes, position: int) -> Decimal:
        stored = _from_bytes(data[position : position + size], "big")
        bits = stored ^ (sign if stored & sign else inverted)
        value = bits >> first_shift
        if value >= first_limit:
            raise _decimal_error()
        for shift, mask, limit in layout:
            group = bits >> shift & mask
            if group >= limit:
                raise _decimal_error()
            value = value * limit + group
        return _scaleb(value if stored & sign else -value, exponent)

    return read


# --------------------------------------------------------------------------- dates that Python cannot hold


def date_text(year: int, month: int, day: int) -> str:
    """A zero, partial or impossible date as MySQL prints it (ALLOW_INVALID_DATES lets 2026-02-31 in)."""
    if year > _MAX_YEAR or not (0 <= month <= 12 and 0 <= day <= 31) or year < 0:
        raise DecodeError(f"year {year}, month {month}, day {day} cannot be a stored date")
    return f"{year:04d}-{month:02d}-{day:02d}"


def fraction_text(microsecond: int, fsp: int) -> str:
    """The point and ``fsp`` digits; empty without any."""
    return f".{microsecond:06d}"[: fsp + 1] if fsp else ""


def clock_text(hour: int, minute: int, second: int, microsecond: int, fsp: int) -> str:
    """A time of day as MySQL prints it."""
    if hour > 23 or minute > 59 or second > 59 or microsecond > _MAX_MICROSECOND:
        raise DecodeError(f"{hour}:{minute}:{second} and {microsecond} us cannot be a stored time of day")
    return f"{hour:02d}:{minute:02d}:{second:02d}{fraction_text(microsecond, fsp)}"


# ------------------------------------------------------------------------------------------------ DATE


def read_date(data: bytes, position: int) -> DateValue:
    """DATE (types 10 and 14), 3 bytes little-endian: 15 bits year, 4 month, 5 day. 250 ns."""
    low, high = _unpack_u16_u8(data, position)
    try:
        return date(high << 7 | low >> 9, low >> 5 & 15, low & 31)
    except ValueError:
        return date_text(high << 7 | low >> 9, low >> 5 & 15, low & 31)


# ------------------------------------------------------------- DATETIME, TIMESTAMP, TIME since MySQL 5.6


def fraction_size(fsp: int) -> int:
    """Size in bytes of ``fsp`` digits (0 to 6) of fractional seconds."""
    if not 0 <= fsp <= 6:
        raise DecodeError(f"a temporal type has {fsp} digits of fractional seconds; 0 to 6 are possible")
    return (fsp + 1) >> 1


def _fraction_shape(fsp: int) -> tuple[int, int, int, int]:
    """The fraction's bytes, its bits, its mask, and the microseconds of its unit."""
    size = fraction_size(fsp)
    return size, 8 * size, (1 << 8 * size) - 1, 100 ** (3 - size)


def _packed_datetime_text(packed: int, microsecond: int, fsp: int) -> str:
    """The text of a packed DATETIME (biased, without the fraction) that ``datetime`` cannot hold."""
    year, month = divmod((packed >> 22) - 0x20000, 13)
    day = date_text(year, month, packed >> 17 & 31)
    return f"{day} {clock_text(packed >> 12 & 31, packed >> 6 & 63, packed & 63, microsecond, fsp)}"


def datetime2_reader(fsp: int) -> Callable[[bytes, int], DatetimeValue]:
    """A reader for DATETIME(fsp), 5 bytes big-endian and the fraction.

    1 bit sign (always set), 17 bits year * 13 + month, 5 day, 5 hour, 6 minute, 6 second. 480 ns.
    """
    fraction, bits, mask, unit = _fraction_shape(fsp)
    size = 5 + fraction

    def read(data: bytes, position: int) -> DatetimeValue:
        stored = _from_bytes(data[position : position + size], "big")
        microsecond = (stored & mask) * unit
        packed = stored >> bits
        year_month = (packed >> 22) - 0x20000
        year = year_month // 13
        try:
            return datetime(
                year,
                year_month - 13 * year,
                packed >> 17 & 31,
                packed >> 12 & 31,
                packed >> 6 & 63,
                packed & 63,
                microsecond,
            )
        except ValueError:
            return _packed_datetime_text(packed, microsecond, fsp)

    return read


def timestamp2_reader(fsp: int) -> Callable[[bytes, int], DatetimeValue]:
    """A reader for TIMESTAMP(fsp): 4 bytes big-endian of seconds since 1970 (unsigned: MariaDB 11.5 counts
    up to 2106) and the fraction. The value is aware, in UTC; zero is MySQL's text. 490 ns.
    """
    fraction, bits, mask, unit = _fraction_shape(fsp)
    size = 4 + fraction
    zero = f"0000-00-00 00:00:00{fraction_text(0, fsp)}"

    def read(data: bytes, position: int) -> DatetimeValue:
        stored = _from_bytes(data[position : position + size], "big")
        microsecond = (stored & mask) * unit
        if microsecond > _MAX_MICROSECOND:
            raise DecodeError(f"a TIMESTAMP has {microsecond} microseconds")
        if not stored:
            return zero
        # Exact: below 2**32 a double is less than 0.25 us off. Adding a timedelta takes 120 ns more.
        return _from_timestamp((stored >> bits) + microsecond / 1_000_000, UTC)

    return read


def time2_reader(fsp: int) -> Callable[[bytes, int], timedelta]:
    """A reader for TIME(fsp): 3 bytes big-endian and the fraction, together one number with a bias.

    1 bit sign (set for values >= 0), 1 unused, 10 hours, 6 minutes, 6 seconds. A negative value is the
    complement of all bytes, fraction included (``my_time_packed_from_binary``). 540 ns.
    """
    fraction, bits, mask, unit = _fraction_shape(fsp)
    size = 3 + fraction
    bias = 0x800000 << bits

    def read(data: bytes, position: int) -> timedelta:
        stored = _from_bytes(data[position : position + size], "big") - bias
        magnitude = stored if stored >= 0 else -stored
        packed = magnitude >> bits
        microsecond = (magnitude & mask) * unit
        hours, minute, second = packed >> 12, packed >> 6 & 63, packed & 63
        if hours > MAX_TIME_HOURS or minute > 59 or second > 59 or microsecond > _MAX_MICROSECOND:
            raise DecodeError(f"{hours}:{minute}:{second} and {microsecond} us cannot be a stored TIME")
        seconds = hours * 3600 + minute * 60 + second
        return timedelta(0, seconds, microsecond) if stored >= 0 else timedelta(0, -seconds, -microsecond)

    return read


# ------------------------------------------------- DATETIME, TIMESTAMP, TIME before MySQL 5.6


def read_timestamp(data: bytes, position: int) -> DatetimeValue:
    """TIMESTAMP (type 7), 4 bytes little-endian of seconds since 1970. The value is aware, in UTC."""
    seconds = unpack_u32(data, position)[0]
    return _from_timestamp(seconds, UTC) if seconds else "0000-00-00 00:00:00"


def read_datetime(data: bytes, position: int) -> DatetimeValue:
    """DATETIME (type 12), 8 bytes little-endian: the decimal number YYYYMMDDhhmmss."""
    days, clock = divmod(unpack_u64(data, position)[0], 1_000_000)
    year, month, day = days // 10000, days // 100 % 100, days % 100
    hour, minute, second = clock // 10000, clock // 100 % 100, clock % 100
    try:
        return datetime(year, month, day, hour, minute, second)
    except (ValueError, OverflowError):
        return f"{date_text(year, month, day)} {clock_text(hour, minute, second, 0, 0)}"


def read_time(data: bytes, position: int) -> timedelta:
    """TIME (type 11), 3 bytes little-endian, signed: the decimal number hhmmss."""
    stored = _from_bytes(data[position : position + 3], "little", signed=True)
    magnitude = abs(stored)
    hours, minute, second = magnitude // 10000, magnitude // 100 % 100, magnitude % 100
    if hours > MAX_TIME_HOURS or minute > 59 or second > 59:
        raise DecodeError(f"{stored} cannot be a stored TIME")
    seconds = hours * 3600 + minute * 60 + second
    return timedelta(0, seconds if stored >= 0 else -seconds)


# ----------------------------------------------------------------------------------- ENUM, SET, VECTOR


def enum_label(value: int, labels: Sequence[str]) -> str:
    """The label of ENUM index ``value``; 0 is the empty string that marks an invalid value."""
    if value == 0:
        return ""
    if value > len(labels):
        raise DecodeError(f"ENUM value {value} is impossible: the column has {len(labels)} labels")
    return labels[value - 1]


def set_labels(value: int, labels: Sequence[str]) -> str:
    """The comma-joined labels of SET bits ``value``, in definition order."""
    if value >> len(labels):
        raise DecodeError(f"SET bits {value:#x} are impossible: the column has {len(labels)} labels")
    return ",".join([label for index, label in enumerate(labels) if value >> index & 1])


def read_vector(data: bytes) -> "array[float]":
    """VECTOR: little-endian floats of 4 bytes up to the end of ``data``."""
    if len(data) % 4:
        raise DecodeError(f"a VECTOR has {len(data)} bytes, not a multiple of 4")
    vector = array("f", data)
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
