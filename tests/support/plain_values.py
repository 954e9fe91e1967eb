"""The values of ``plain_decoder`` that are more than an integer or a run of bytes, as plainly."""

from __future__ import annotations

import datetime
import decimal
import zlib

from protocol.errors import DecodeError

BYTES_FOR = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4]
# Microseconds that a fraction of 0, 1, 2 or 3 bytes counts.
FRACTION_UNITS = [0, 10000, 100, 1]


def decimal_size(precision: int, scale: int) -> int:
    return sum(BYTES_FOR[digits] for digits in _decimal_groups(precision, scale))


def _decimal_groups(precision: int, scale: int) -> list[int]:
    whole, part = precision - scale, scale
    return [whole % 9, *[9] * (whole // 9), *[9] * (part // 9), part % 9]


def decimal_value(stored: bytes, precision: int, scale: int) -> decimal.Decimal:
    """bin2decimal: groups of nine digits in four bytes, big-endian; the odd ones at both ends in fewer."""
    data = bytearray(stored)
    negative = not data[0] & 0x80
    data[0] ^= 0x80
    if negative:
        data = bytearray(byte ^ 0xFF for byte in data)
    text, position = "", 0
    for digits in _decimal_groups(precision, scale):
        size = BYTES_FOR[digits]
        group = int.from_bytes(data[position : position + size], "big")
        position += size
        if group >= 10**digits:
            raise DecodeError("plain: a group with too many digits")
        if digits:
            text += f"{group:0{digits}}"
    whole_text, part_text = text[: precision - scale] or "0", text[precision - scale :]
    value = decimal.Decimal(f"{whole_text}.{part_text}" if scale else whole_text)
    return value.copy_negate() if negative and value else value


def date_value(year: int, month: int, day: int) -> datetime.date | str:
    if year > 9999 or month > 12:
        raise DecodeError("plain: impossible date")
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return f"{year:04}-{month:02}-{day:02}"


def _moment(date: tuple[int, int, int], clock: tuple[int, int, int], micro: int, digits: int) -> object:
    hour, minute, second = clock
    if hour > 23 or minute > 59 or second > 59 or micro > 999999:
        raise DecodeError("plain: impossible time of day")
    day = date_value(*date)
    if isinstance(day, datetime.date):
        return datetime.datetime.combine(day, datetime.time(hour, minute, second, micro))
    text = f"{day} {hour:02}:{minute:02}:{second:02}"
    return text + f".{micro:06}"[: 1 + digits] if digits else text


def datetime2_value(packed: int, micro: int, digits: int) -> object:
    """my_datetime_packed_from_binary: sign, 17 bits of year * 13 + month, day, hour, minute, second."""
    if not packed & 0x8000000000:
        raise DecodeError("plain: a negative DATETIME")
    days, clock = packed >> 17 & 0x3FFFFF, packed & 0x1FFFF
    year, month = (days >> 5) // 13, (days >> 5) % 13
    return _moment((year, month, days & 31), (clock >> 12, clock >> 6 & 63, clock & 63), micro, digits)


def timestamp_value(seconds: int, micro: int, digits: int) -> object:
    if micro > 999999:
        raise DecodeError("plain: impossible fraction")
    if seconds == 0 and micro == 0:
        return "0000-00-00 00:00:00" + ("." + "0" * digits if digits else "")
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return epoch + datetime.timedelta(seconds=seconds, microseconds=micro)


def time2_value(data: bytes, digits: int) -> datetime.timedelta:
    """my_time_packed_from_binary: one number with its fraction, and half of its range taken off."""
    packed = int.from_bytes(data, "big") - (0x80 << 8 * (len(data) - 1))
    negative, packed = packed < 0, abs(packed)
    size = (digits + 1) // 2
    whole, fraction = divmod(packed, 256**size)
    micro = fraction * FRACTION_UNITS[size]
    return _time(negative, whole >> 12, whole >> 6 & 63, whole & 63, micro)


def _time(negative: bool, hour: int, minute: int, second: int, micro: int) -> datetime.timedelta:
    if hour > 838 or minute > 59 or second > 59 or micro > 999999:
        raise DecodeError("plain: impossible TIME")
    length = datetime.timedelta(hours=hour, minutes=minute, seconds=second, microseconds=micro)
    return -length if negative else length


def old_time_value(number: int) -> datetime.timedelta:
    digits = abs(number)
    return _time(number < 0, digits // 10000, digits // 100 % 100, digits % 100, 0)


def old_datetime_value(number: int) -> object:
    date, clock = divmod(number, 1000000)
    year, month, day = date // 10000, date // 100 % 100, date % 100
    if day > 31:
        raise DecodeError("plain: impossible date")
    return _moment((year, month, day), (clock // 10000, clock // 100 % 100, clock % 100), 0, 0)


def enum_value(value: int, labels: tuple[str, ...] | None) -> int | str:
    if labels is None:
        return value
    if value > len(labels):
        raise DecodeError("plain: no such label")
    return labels[value - 1] if value else ""


def set_value(value: int, labels: tuple[str, ...] | None) -> int | str:
    if labels is None:
        return value
    if value >= 1 << len(labels):
        raise DecodeError("plain: no such label")
    return ",".join(label for index, label in enumerate(labels) if value & 1 << index)


def uncompressed(stored: bytes) -> bytes:
    """A value of MariaDB's COMPRESSED columns: as it is behind a zero byte, or length and zlib stream."""
    if not stored:
        return b""
    if stored[0] == 0:
        return stored[1:]
    size = stored[0] & 7
    if stored[0] & 0xF0 != 0x80 or len(stored) <= size:
        raise DecodeError("plain: not compressed as columns are")
    length = int.from_bytes(stored[1 : 1 + size], "big")
    stream = zlib.decompressobj(-15 if stored[0] & 8 else 15)
    try:
        data = stream.decompress(stored[1 + size :])
    except zlib.error as error:
        raise DecodeError("plain: a broken stream") from error
    if len(data) != length or not stream.eof:
        raise DecodeError("plain: another length")
    return data
