"""The converters for dates and times: packed bit fields -> days and microseconds, for all values of a batch at once.

``protocol.values.readers`` describes the storage formats. Bytes that no server stores raise ``DecodeError``. Zero,
partial and impossible dates become null and are counted; row tuples have MySQL's text for them.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from protocol.errors import DecodeError
from protocol.rows.column import Column
from protocol.values.readers import MAX_TIME_HOURS, fraction_size

from .arrays import ArrowColumn, Losses, fixed_array
from .buffer import Flags, Positions
from .places import Places

DATE = pa.date32()
DATETIME = pa.timestamp("us")
TIMESTAMP = pa.timestamp("us", "UTC")
TIME = pa.duration("us")

MONTHS = 13  # month 0 occurs in partial dates
_LAST_MONTH = 9999 * MONTHS + 12
# After these years the calendar repeats.
_CYCLE_YEARS = 400
_CYCLE = _CYCLE_YEARS * MONTHS
_CYCLE_DAYS = 146_097
_SECOND = 1_000_000
DAY = 86_400 * _SECOND
_DATETIME_BIAS = 0x20000


class _Calendar(NamedTuple):
    """Tables by year * 13 + month: the day before the first, and the days in it (0: no such month)."""

    day_before: Positions
    length: Positions


@cache
def _calendar() -> _Calendar:
    """The years 2000 to 2399 of the proleptic Gregorian calendar, counted from the year 0: other years repeat them.

    Tables of all years would take 2 MB, and 4 ms for page faults in each process that reads a date.
    """
    months = np.arange("2000-01", "2400-02", dtype="datetime64[M]").astype("datetime64[D]").astype(np.int64)
    day_before, length = (np.zeros((_CYCLE_YEARS, MONTHS), np.int64) for _ in range(2))
    day_before[:, 1:] = months[:-1].reshape(_CYCLE_YEARS, 12) - 1 - 2000 // _CYCLE_YEARS * _CYCLE_DAYS
    length[:, 1:] = np.diff(months).reshape(_CYCLE_YEARS, 12)
    return _Calendar(day_before.ravel(), length.ravel())


class Days(NamedTuple):
    """Days since 1970; undefined where ``is_real`` is False."""

    days: Positions
    is_real: Flags


def calendar_days(places: Places, year_month: Positions, day: Positions) -> Days:
    """``year_month`` is year * 13 + month. Raises ``DecodeError`` for numbers that no server stores."""
    if places.is_any((year_month < 0) | (year_month > _LAST_MONTH) | (day > 31)):
        raise DecodeError("a date has a year, month or day that no server stores")
    calendar = _calendar()
    cycle = year_month // _CYCLE
    place = year_month - cycle * _CYCLE
    is_real = (day > 0) & (day <= calendar.length[place]) & (year_month >= MONTHS)
    return Days(calendar.day_before[place] + (day + cycle * _CYCLE_DAYS), is_real)


def real_dates(places: Places, is_real: Flags, losses: Losses) -> Flags | None:
    """The flags of valid values after dates that are not real became null; these are counted in ``losses``."""
    if is_real.all():
        return places.valid
    if places.valid is None:
        kept = is_real
        losses.dates += len(kept) - int(np.count_nonzero(kept))
    else:
        kept = places.valid & is_real
        losses.dates += int(np.count_nonzero(places.valid)) - int(np.count_nonzero(kept))
    return kept


def clock_time(
    places: Places, hour: Positions, minute: Positions, second: Positions, micro: Positions
) -> Positions:
    """Microseconds since midnight."""
    if places.is_any((hour > 23) | (minute > 59) | (second > 59) | (micro >= _SECOND)):
        raise DecodeError("a DATETIME has hours, minutes or seconds that no server stores")
    return ((hour * 60 + minute) * 60 + second) * _SECOND + micro


def _big_endian(places: Places, size: int) -> Positions:
    return places.big_endian(0, size).astype(np.int64)


def _fraction(fsp: int) -> tuple[int, int]:
    """The bits of a stored fraction, and the number of microseconds in its unit."""
    size = fraction_size(fsp)
    return 8 * size, 100 ** (3 - size)


def _column(
    arrow_type: pa.DataType, convert: Callable[[Places, Losses], pa.Array]
) -> Callable[[Column], ArrowColumn]:
    column = ArrowColumn(arrow_type, convert)
    return lambda _: column


# ------------------------------------------------------------------------------------------------ dates


def _dates(places: Places, losses: Losses) -> pa.Array:
    """3 bytes little-endian: 15 bits year, 4 month, 5 day."""
    stored = (places.numbers(np.uint32) & 0xFFFFFF).astype(np.int64)
    month = stored >> 5 & 15
    if places.is_any(month > 12):
        raise DecodeError("a DATE has a month above 12, which no server stores")
    days, is_real = calendar_days(places, (stored >> 9) * MONTHS + month, stored & 31)
    return fixed_array(DATE, days.astype(np.int32), real_dates(places, is_real, losses))


def datetime2(column: Column) -> ArrowColumn:
    """DATETIME(f) since 5.6: 1 bit sign, 17 bits year * 13 + month, 5 day, 5 hour, 6 minute, 6 second; fraction."""
    bits, unit = _fraction(column.metadata)
    size = 5 + bits // 8

    def convert(places: Places, losses: Losses) -> pa.Array:
        # Eight bytes stay unsigned here: their sign bit, which is always set, would make an int64 negative.
        whole = places.big_endian(0, size)
        micro = (whole & np.uint64((1 << bits) - 1)).astype(np.int64) * unit
        packed = (whole >> np.uint64(bits)).astype(np.int64)
        days, is_real = calendar_days(places, (packed >> 22) - _DATETIME_BIAS, packed >> 17 & 31)
        clock = clock_time(places, packed >> 12 & 31, packed >> 6 & 63, packed & 63, micro)
        return fixed_array(DATETIME, days * DAY + clock, real_dates(places, is_real, losses))

    return ArrowColumn(DATETIME, convert)


def _old_datetimes(places: Places, losses: Losses) -> pa.Array:
    """8 bytes little-endian: the decimal number YYYYMMDDhhmmss."""
    stored = places.numbers(np.uint64)
    date, clock = (part.astype(np.int64) for part in np.divmod(stored, np.uint64(1_000_000)))
    year, month = date // 10_000, date // 100 % 100
    if places.is_any(month > 12):
        raise DecodeError("a DATETIME has a month above 12, which no server stores")
    days, is_real = calendar_days(places, year * MONTHS + month, date % 100)
    time = clock_time(places, clock // 10_000, clock // 100 % 100, clock % 100, np.zeros_like(clock))
    return fixed_array(DATETIME, days * DAY + time, real_dates(places, is_real, losses))


# ------------------------------------------------------------------------------------------ timestamps


def timestamp2(column: Column) -> ArrowColumn:
    """TIMESTAMP(f) since 5.6: 4 bytes big-endian of seconds since 1970, unsigned, and the fraction."""
    bits, unit = _fraction(column.metadata)
    size = 4 + bits // 8

    def convert(places: Places, losses: Losses) -> pa.Array:
        whole = _big_endian(places, size)
        micro = (whole & ((1 << bits) - 1)) * unit
        if bits and places.is_any(micro >= _SECOND):
            raise DecodeError("a TIMESTAMP has a fraction of a second or more, which no server stores")
        moments = (whole >> bits) * _SECOND + micro
        return fixed_array(TIMESTAMP, moments, real_dates(places, whole != 0, losses))

    return ArrowColumn(TIMESTAMP, convert)


def _old_timestamps(places: Places, losses: Losses) -> pa.Array:
    """4 bytes little-endian of seconds since 1970."""
    seconds = places.numbers(np.uint32).astype(np.int64)
    return fixed_array(TIMESTAMP, seconds * _SECOND, real_dates(places, seconds != 0, losses))


# ------------------------------------------------------------------------------------------------- TIME


def duration_array(
    places: Places,
    is_negative: Flags,
    hours: Positions,
    minute: Positions,
    second: Positions,
    micro: Positions,
) -> pa.Array:
    if places.is_any((hours > MAX_TIME_HOURS) | (minute > 59) | (second > 59) | (micro >= _SECOND)):
        raise DecodeError("a TIME has hours, minutes or seconds that no server stores")
    length = ((hours * 60 + minute) * 60 + second) * _SECOND + micro
    return fixed_array(TIME, np.where(is_negative, -length, length), places.valid)


def time2(column: Column) -> ArrowColumn:
    """TIME(f) since 5.6: 3 bytes big-endian and the fraction, together one number with a bias."""
    bits, unit = _fraction(column.metadata)
    size, bias = 3 + bits // 8, 0x800000 << bits

    def convert(places: Places, losses: Losses) -> pa.Array:
        stored = _big_endian(places, size) - bias
        magnitude = np.abs(stored)
        micro = (magnitude & ((1 << bits) - 1)) * unit
        packed = magnitude >> bits
        return duration_array(places, stored < 0, packed >> 12, packed >> 6 & 63, packed & 63, micro)

    return ArrowColumn(TIME, convert)


def _old_times(places: Places, losses: Losses) -> pa.Array:
    """3 bytes little-endian, signed: the decimal number hhmmss."""
    stored = (places.numbers(np.int32) << 8 >> 8).astype(np.int64)
    number = np.abs(stored)
    none = np.zeros_like(number)
    return duration_array(places, stored < 0, number // 10_000, number // 100 % 100, number % 100, none)


date = _column(DATE, _dates)
old_datetime = _column(DATETIME, _old_datetimes)
old_timestamp = _column(TIMESTAMP, _old_timestamps)
old_time = _column(TIME, _old_times)
