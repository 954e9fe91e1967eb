"""The plain decoder of MySQL's binary JSON into Python values.

A document is a type byte and a value. Objects and arrays begin with their element count and their size. Then come
entries with each key's and value's offset from the container's start (short values are in the entry itself), then the
keys and values. Numbers are little-endian; "large" containers have 4-byte counts and offsets instead of 2-byte ones.
Values that JSON has no type for (decimals, dates, blobs) are "opaque": a column type and bytes.

This decoder is the reference for values and errors; ``jsonb_fast`` reads many similar documents in a fraction of the
time. ``jsonb_text`` makes text, ``jsonb_diff`` applies partial updates. MariaDB has no binary JSON: its JSON columns
are text. Format: ``sql-common/json_binary.h`` and ``json_binary.cc``, worklog 8132.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from ..constants import ColumnType
from ..errors import DecodeError, TruncatedError
from ..wire import unpack_u32_pair
from .readers import datetime2_reader, decimal_reader, decimal_size, time2_reader

JsonValue = (
    dict[str, "JsonValue"]
    | list["JsonValue"]
    | str
    | int
    | float
    | bool
    | None
    | Decimal
    | date
    | datetime
    | timedelta
    | bytes
)

# json_dom.h: JSON_DOCUMENT_MAX_DEPTH. The server refuses deeper documents.
MAX_DEPTH = 100

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = range(5)
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = range(5, 13)
OPAQUE = 15

LITERALS: tuple[bool | None, ...] = (None, True, False)


class JsonOpaque(bytes):
    """Bytes in a JSON document: a BLOB, BIT, GEOMETRY... ``column_type`` is the number of the column type."""

    column_type: int

    def __new__(cls, data: bytes, column_type: int) -> "JsonOpaque":
        opaque = super().__new__(cls, data)
        opaque.column_type = column_type
        return opaque

    def __reduce__(self) -> tuple[type["JsonOpaque"], tuple[bytes, int]]:
        return type(self), (bytes(self), self.column_type)


def decode_json(data: bytes, depth: int = 0) -> JsonValue:
    """The value of a whole document that is inside ``depth`` containers.

    Strings are UTF-8; invalid bytes become surrogate escapes. Decimals, dates, datetimes and times are Python's. A
    timestamp is a naive datetime, because the server stores it in the writer's time zone without naming the zone.
    Zero and partial dates are text, as in columns. Other opaque values are ``JsonOpaque``, a subclass of ``bytes``.
    Empty ``data`` is null, as in the server (INSERT IGNORE of NULL into a NOT NULL column).

    Raises ``TruncatedError`` or ``DecodeError``. Time and memory are linear in ``len(data)``, whatever the document
    says.
    """
    if not data:
        return None
    return _Decoder(data).value(data[0], 1, len(data), depth)


class Layout(NamedTuple):
    """The layout of small or of large containers."""

    read_head: Callable[..., tuple[int, ...]]
    head_size: int
    read_keys: Callable[[bytes], Iterator[tuple[int, ...]]]
    key_size: int
    read_values: Callable[[bytes], Iterator[tuple[int, ...]]]
    value_size: int
    inlined: Mapping[int, Callable[[int], JsonValue]]


def _literal(stored: int) -> JsonValue:
    number = stored & 0xFF
    if number >= len(LITERALS):
        raise DecodeError(f"a JSON value has the unknown literal {number}")
    return LITERALS[number]


def _signed(bits: int) -> Callable[[int], int]:
    sign, mask = 1 << bits - 1, (1 << bits) - 1
    return lambda stored: ((stored & mask) ^ sign) - sign


SMALL = Layout(
    struct.Struct("<HH").unpack_from,
    4,
    struct.Struct("<HH").iter_unpack,
    4,
    struct.Struct("<BH").iter_unpack,
    3,
    MappingProxyType({LITERAL: _literal, INT16: _signed(16), UINT16: lambda stored: stored}),
)
LARGE = Layout(
    struct.Struct("<II").unpack_from,
    8,
    struct.Struct("<IH").iter_unpack,
    6,
    struct.Struct("<BI").iter_unpack,
    5,
    MappingProxyType(
        {
            LITERAL: _literal,
            INT16: _signed(16),
            UINT16: lambda stored: stored & 0xFFFF,
            INT32: _signed(32),
            UINT32: lambda stored: stored,
        }
    ),
)

# Type -> layout, and whether the container has keys.
_CONTAINERS: Mapping[int, tuple[Layout, bool]] = MappingProxyType(
    {
        SMALL_OBJECT: (SMALL, True),
        LARGE_OBJECT: (LARGE, True),
        SMALL_ARRAY: (SMALL, False),
        LARGE_ARRAY: (LARGE, False),
    }
)

# Type -> its code in ``struct``.
NUMBER_CODES: Mapping[int, str] = MappingProxyType(
    {INT16: "h", UINT16: "H", INT32: "i", UINT32: "I", INT64: "q", UINT64: "Q", DOUBLE: "d"}
)

# Type -> size in bytes, and reader.
NUMBERS: Mapping[int, tuple[int, Callable[[bytes, int], tuple[int | float, ...]]]] = MappingProxyType(
    {
        kind: (struct.calcsize(f"<{code}"), struct.Struct(f"<{code}").unpack_from)
        for kind, code in NUMBER_CODES.items()
    }
)


class _Decoder:
    """Reads one document. All reads stay below the ``end`` of the container around them.

    ``budget`` is the number of bytes that may still be read, at first the size of the document. Without it, entries
    could share values by equal offsets and a small document could grow to any size; no server writes such documents.
    """

    __slots__ = ("budget", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.budget = len(data)

    def spend(self, count: int) -> None:
        self.budget -= count
        if self.budget < 0:
            raise DecodeError("values of a JSON document overlap")

    def value(self, kind: int, start: int, end: int, depth: int) -> JsonValue:
        if kind == STRING:
            at, size = self.length(start, end)
            return self.data[at : at + size].decode("utf-8", "surrogateescape")
        if kind in _CONTAINERS:
            return self.container(kind, start, end, depth + 1)
        if kind in NUMBERS:
            size, read = NUMBERS[kind]
            self.check(start, size, end)
            return read(self.data, start)[0]
        if kind == OPAQUE:
            return self.opaque(start, end)
        if kind == LITERAL:
            self.check(start, 1, end)
            return _literal(self.data[start])
        raise DecodeError(f"a JSON value has the unknown type {kind}")

    def check(self, start: int, size: int, end: int) -> None:
        if start + size > end:
            raise TruncatedError(f"a JSON value needs {size} bytes, but {end - start} are left")
        self.spend(size)

    def length(self, start: int, end: int) -> tuple[int, int]:
        at, size = variable_length(self.data, start, end)
        self.check(start, at - start + size, end)
        return at, size

    def container(self, kind: int, start: int, end: int, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise DecodeError(f"a JSON document is deeper than {MAX_DEPTH} levels")
        layout, has_keys = _CONTAINERS[kind]
        if start + layout.head_size > end:
            raise TruncatedError("a JSON document ends inside a container's head")
        count, size = layout.read_head(self.data, start)
        values_at = start + layout.head_size + (count * layout.key_size if has_keys else 0)
        content = values_at + count * layout.value_size
        if content > start + size:
            raise DecodeError(f"a JSON container of {size} bytes announces {count} elements")
        if start + size > end:
            raise TruncatedError(f"a JSON container needs {size} bytes, but {end - start} are left")
        self.spend(content - start)
        values = self.elements(layout, start, values_at, content, start + size, depth)
        if not has_keys:
            return values
        members = dict(zip(self.keys(layout, start, values_at, content, start + size), values, strict=True))
        if len(members) != count:
            raise DecodeError("a JSON object has the same key twice")
        return members

    def keys(self, layout: Layout, start: int, values_at: int, content: int, end: int) -> list[str]:
        data = self.data
        keys = []
        total = 0
        for offset, size in layout.read_keys(data[start + layout.head_size : values_at]):
            at = start + offset
            if at < content or at + size > end:
                raise DecodeError(f"a JSON key at offset {offset} is outside its object")
            keys.append(data[at : at + size].decode("utf-8", "surrogateescape"))
            total += size
            if total > self.budget:
                break
        self.spend(total)
        return keys

    def elements(
        self, layout: Layout, start: int, values_at: int, content: int, end: int, depth: int
    ) -> list[JsonValue]:
        data = self.data
        inlined = layout.inlined
        values: list[JsonValue] = []
        for kind, stored in layout.read_values(data[values_at:content]):
            inline = inlined.get(kind)
            if inline is not None:
                values.append(inline(stored))
                continue
            at = start + stored
            if at < content:
                raise DecodeError(f"a JSON value at offset {stored} is inside its container's entries")
            # Most values are short strings; through value() each takes 2.5 times as long.
            if kind == STRING and at < end and (size := data[at]) < 0x80 and at + size < end:
                self.spend(1 + size)
                values.append(data[at + 1 : at + 1 + size].decode("utf-8", "surrogateescape"))
            else:
                values.append(self.value(kind, at, end, depth))
        return values

    def opaque(self, start: int, end: int) -> JsonValue:
        if start >= end:
            raise TruncatedError("a JSON document ends before an opaque value's type")
        at, size = self.length(start + 1, end)
        column_type = self.data[start]
        if column_type == ColumnType.NEWDECIMAL:
            return _decimal(self.data, at, size)
        return read_opaque(column_type, self.data, at, size)


def variable_length(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Offset and number of the bytes after a variable length, which has 7 bits in each byte, lowest first."""
    size = shift = 0
    for at in range(start, min(start + 5, end)):
        byte = data[at]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return at + 1, size
        shift += 7
    raise TruncatedError("the length of a JSON value does not end")


def _decimal(data: bytes, at: int, size: int) -> Decimal:
    """Precision, scale, and the DECIMAL as columns store it."""
    if size < 2 or size != json_decimal_size(data[at], data[at + 1]):
        raise DecodeError(f"a DECIMAL in a JSON document has the wrong size of {size} bytes")
    return decimal_reader(data[at], data[at + 1])(data, at + 2)


def json_decimal_size(precision: int, scale: int) -> int:
    """Size in bytes of an opaque DECIMAL: precision, scale and the digits."""
    return 2 + decimal_size(precision, scale)


def read_opaque(column_type: int, data: bytes, at: int, size: int) -> JsonValue:
    """An opaque value other than DECIMAL, of ``size`` bytes from ``at`` on."""
    read = TEMPORALS.get(column_type)
    if read is None:
        return JsonOpaque(data[at : at + size], column_type)
    if size != TEMPORAL_SIZE:
        raise DecodeError(f"a temporal value in a JSON document has {size} bytes, not {TEMPORAL_SIZE}")
    return read(data, at)


# Temporal values are stored as in columns with six fractional digits, but little-endian, signed and without a bias.
TEMPORAL_SIZE = 8
_read_datetime2 = datetime2_reader(6)
_read_time2 = time2_reader(6)
_TIME2_BIAS = 1 << 47
_DATETIME2_BIAS = 1 << 63


def _packed(data: bytes, at: int, bias: int, size: int) -> bytes:
    """The bytes as a column stores them."""
    stored = data[at : at + TEMPORAL_SIZE]
    biased = int.from_bytes(stored, "little", signed=True) + bias
    if biased >> 8 * size:
        raise DecodeError(f"{stored.hex()} cannot be a temporal value in a JSON document")
    return biased.to_bytes(size, "big")


def _datetime(data: bytes, at: int) -> datetime | str:
    """17 bits year * 13 + month, 5 day, 5 hour, 6 minute, 6 second, 24 microsecond.

    Values that ``datetime`` refuses, negative ones among them, are read through a column's bytes, which takes twice
    as long.
    """
    low, high = unpack_u32_pair(data, at)
    year_month = high >> 14
    year = year_month // 13
    try:
        return datetime(
            year,
            year_month - 13 * year,
            high >> 9 & 31,
            high >> 4 & 31,
            (high & 15) << 2 | low >> 30,
            low >> 24 & 63,
            low & 0xFFFFFF,
        )
    except ValueError:
        return _read_datetime2(_packed(data, at, _DATETIME2_BIAS, 8), 0)


def _date(data: bytes, at: int) -> date | str:
    value = _datetime(data, at)
    return value.partition(" ")[0] if isinstance(value, str) else value.date()


def _time(data: bytes, at: int) -> timedelta:
    return _read_time2(_packed(data, at, _TIME2_BIAS, 6), 0)


TEMPORALS: Mapping[int, Callable[[bytes, int], JsonValue]] = MappingProxyType(
    {
        ColumnType.DATE: _date,
        ColumnType.TIME: _time,
        ColumnType.DATETIME: _datetime,
        ColumnType.TIMESTAMP: _datetime,
    }
)
