"""MySQL's binary JSON -> Python values.

A document is a type byte and a value. Objects and arrays begin with their element count and their size, go on
with entries that hold each key's and value's offset from there (short values stand in the entry itself), and
end with what those point to. Numbers are little-endian; "large" containers have 4-byte counts and offsets
instead of 2-byte ones. What JSON has no type for (decimals, dates, blobs) is "opaque": a column type and bytes.

Format: ``sql-common/json_binary.h`` and ``json_binary.cc``, worklog 8132. Text is ``jsonb_text``, partial
updates are ``jsonb_diff``. MariaDB has no binary JSON: its JSON columns are text.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

from ..constants import ColumnType
from ..errors import DecodeError, TruncatedError
from .values import datetime2_reader, decimal_reader, decimal_size, time2_reader

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

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15

_LITERALS: tuple[bool | None, ...] = (None, True, False)


class JsonOpaque(bytes):
    """Bytes in a JSON document: a BLOB, BIT, GEOMETRY... ``column_type`` is the number of that type."""

    column_type: int

    def __new__(cls, data: bytes, column_type: int) -> "JsonOpaque":
        opaque = super().__new__(cls, data)
        opaque.column_type = column_type
        return opaque

    def __reduce__(self) -> tuple[type["JsonOpaque"], tuple[bytes, int]]:
        return type(self), (bytes(self), self.column_type)


def decode_json(data: bytes, depth: int = 0) -> JsonValue:
    """The value of a whole document, which stands inside of ``depth`` containers.

    Strings are UTF-8, invalid bytes surrogate escapes. Decimals, dates, datetimes and times are Python's (a
    timestamp is a naive datetime: the server keeps it in its writer's time zone, which it does not say; zero
    and partial dates are text, as in columns); other opaque values are ``JsonOpaque``, which is ``bytes``. No
    bytes at all are null: the server reads them so (INSERT IGNORE of NULL into a NOT NULL column).

    Raises ``TruncatedError`` or ``DecodeError``. Time and memory are linear in ``len(data)``, whatever it says.
    """
    if not data:
        return None
    return _Decoder(data).value(data[0], 1, len(data), depth)


class _Layout(NamedTuple):
    """How a container of one of the two sizes is laid out."""

    read_head: Callable[[bytes, int], tuple[int, ...]]
    head_size: int
    read_keys: Callable[[bytes], Iterator[tuple[int, ...]]]
    key_size: int
    read_values: Callable[[bytes], Iterator[tuple[int, ...]]]
    value_size: int
    inlined: Mapping[int, Callable[[int], JsonValue]]


def _literal(stored: int) -> JsonValue:
    number = stored & 0xFF
    if number >= len(_LITERALS):
        raise DecodeError(f"JSON literal {number}")
    return _LITERALS[number]


def _signed(bits: int) -> Callable[[int], int]:
    sign, mask = 1 << bits - 1, (1 << bits) - 1
    return lambda stored: ((stored & mask) ^ sign) - sign


_SMALL = _Layout(
    struct.Struct("<HH").unpack_from,
    4,
    struct.Struct("<HH").iter_unpack,
    4,
    struct.Struct("<BH").iter_unpack,
    3,
    MappingProxyType({_LITERAL: _literal, _INT16: _signed(16), _UINT16: lambda stored: stored}),
)
_LARGE = _Layout(
    struct.Struct("<II").unpack_from,
    8,
    struct.Struct("<IH").iter_unpack,
    6,
    struct.Struct("<BI").iter_unpack,
    5,
    MappingProxyType(
        {
            _LITERAL: _literal,
            _INT16: _signed(16),
            _UINT16: lambda stored: stored & 0xFFFF,
            _INT32: _signed(32),
            _UINT32: lambda stored: stored,
        }
    ),
)

# Type -> layout and whether it has keys.
_CONTAINERS: Mapping[int, tuple[_Layout, bool]] = MappingProxyType(
    {
        _SMALL_OBJECT: (_SMALL, True),
        _LARGE_OBJECT: (_LARGE, True),
        _SMALL_ARRAY: (_SMALL, False),
        _LARGE_ARRAY: (_LARGE, False),
    }
)

# Type -> a reader of so many bytes.
_NUMBERS: Mapping[int, tuple[int, Callable[[bytes, int], tuple[int | float, ...]]]] = MappingProxyType(
    {
        kind: (struct.calcsize(code), struct.Struct(code).unpack_from)
        for kind, code in (
            (_INT16, "<h"),
            (_UINT16, "<H"),
            (_INT32, "<i"),
            (_UINT32, "<I"),
            (_INT64, "<q"),
            (_UINT64, "<Q"),
            (_DOUBLE, "<d"),
        )
    }
)


class _Decoder:
    """Reads one document. All reads stay below the ``end`` of the container around them.

    ``budget`` counts down what is read. Offsets could make entries share their values, and so a small
    document blow up to any size; no server writes such, and then all that is read is at most the document.
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
        if kind == _STRING:
            at, size = self.length(start, end)
            return self.data[at : at + size].decode("utf-8", "surrogateescape")
        if kind in _CONTAINERS:
            return self.container(kind, start, end, depth + 1)
        if kind in _NUMBERS:
            size, read = _NUMBERS[kind]
            self.check(start, size, end)
            return read(self.data, start)[0]
        if kind == _OPAQUE:
            return self.opaque(start, end)
        if kind == _LITERAL:
            self.check(start, 1, end)
            return _literal(self.data[start])
        raise DecodeError(f"JSON type {kind}")

    def check(self, start: int, size: int, end: int) -> None:
        if start + size > end:
            raise TruncatedError(f"{size} bytes of a JSON value wanted, {end - start} left")
        self.spend(size)

    def length(self, start: int, end: int) -> tuple[int, int]:
        """Where the bytes behind a variable length begin, and how many: 7 bits a byte, lowest first."""
        data = self.data
        size = shift = 0
        for at in range(start, min(start + 5, end)):
            byte = data[at]
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.check(start, at + 1 - start + size, end)
                return at + 1, size
            shift += 7
        raise TruncatedError("the length of a JSON value does not end")

    def container(self, kind: int, start: int, end: int, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise DecodeError(f"a JSON document deeper than {MAX_DEPTH}")
        layout, has_keys = _CONTAINERS[kind]
        if start + layout.head_size > end:
            raise TruncatedError("a JSON document ends inside of a container's head")
        count, size = layout.read_head(self.data, start)
        values_at = start + layout.head_size + (count * layout.key_size if has_keys else 0)
        content = values_at + count * layout.value_size
        if content > start + size:
            raise DecodeError(f"{count} elements in a JSON container of {size} bytes")
        if start + size > end:
            raise TruncatedError(f"a JSON container of {size} bytes, {end - start} left")
        self.spend(content - start)
        values = self.elements(layout, start, values_at, content, start + size, depth)
        if not has_keys:
            return values
        members = dict(zip(self.keys(layout, start, values_at, content, start + size), values, strict=True))
        if len(members) != count:
            raise DecodeError("a JSON object has a key twice")
        return members

    def keys(self, layout: _Layout, start: int, values_at: int, content: int, end: int) -> list[str]:
        data = self.data
        keys = []
        total = 0
        for offset, size in layout.read_keys(data[start + layout.head_size : values_at]):
            at = start + offset
            if at < content or at + size > end:
                raise DecodeError(f"a JSON key at {offset} lies outside of its object")
            keys.append(data[at : at + size].decode("utf-8", "surrogateescape"))
            total += size
            if total > self.budget:
                break
        self.spend(total)
        return keys

    def elements(
        self, layout: _Layout, start: int, values_at: int, content: int, end: int, depth: int
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
                raise DecodeError(f"a JSON value at {stored} lies inside of its container's entries")
            # Short strings are most values; by way of value() each takes 2.5 times as long.
            if kind == _STRING and at < end and (size := data[at]) < 0x80 and at + size < end:
                self.spend(1 + size)
                values.append(data[at + 1 : at + 1 + size].decode("utf-8", "surrogateescape"))
            else:
                values.append(self.value(kind, at, end, depth))
        return values

    def opaque(self, start: int, end: int) -> JsonValue:
        if start >= end:
            raise TruncatedError("a JSON document ends before an opaque value's type")
        column_type = self.data[start]
        at, size = self.length(start + 1, end)
        data = self.data[at : at + size]
        read = _OPAQUES.get(column_type)
        return JsonOpaque(data, column_type) if read is None else read(data)


def _decimal(data: bytes) -> Decimal:
    """Precision, scale, and the DECIMAL as columns store it."""
    if len(data) < 2 or len(data) != 2 + decimal_size(data[0], data[1]):
        raise DecodeError(f"a DECIMAL of {len(data)} bytes in a JSON document")
    return decimal_reader(data[0], data[1])(data, 2)


_read_datetime2 = datetime2_reader(6)
_read_time2 = time2_reader(6)
_TIME2_BIAS = 1 << 47
_DATETIME2_BIAS = 1 << 63


def _packed(data: bytes, bias: int, size: int) -> bytes:
    """What a column of six fractional digits stores. Here it is 8 bytes little-endian, signed, without a bias."""
    if len(data) != 8:
        raise DecodeError(f"a temporal value of {len(data)} bytes in a JSON document")
    biased = int.from_bytes(data, "little", signed=True) + bias
    if biased >> 8 * size:
        raise DecodeError(f"{data.hex()} cannot be a temporal value in a JSON document")
    return biased.to_bytes(size, "big")


def _datetime(data: bytes) -> datetime | str:
    return _read_datetime2(_packed(data, _DATETIME2_BIAS, 8), 0)


def _date(data: bytes) -> date | str:
    value = _datetime(data)
    return value.partition(" ")[0] if isinstance(value, str) else value.date()


def _time(data: bytes) -> timedelta:
    return _read_time2(_packed(data, _TIME2_BIAS, 6), 0)


_OPAQUES: Mapping[int, Callable[[bytes], JsonValue]] = MappingProxyType(
    {
        ColumnType.NEWDECIMAL: _decimal,
        ColumnType.DATE: _date,
        ColumnType.TIME: _time,
        ColumnType.DATETIME: _datetime,
        ColumnType.TIMESTAMP: _datetime,
    }
)
