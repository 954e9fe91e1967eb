"""Each column type as an Arrow array: types, extreme values, values that Arrow cannot hold, invalid bytes."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.charset import charset_by_name
from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.rows.column import Column
from protocol.rows.table import Table
from protocol.values.jsonb import JsonOpaque, JsonValue
from protocol.values.jsonb_text import render_json
from replica.arrow import batch_schema, strings
from replica.arrow.arrays import Losses, TooLargeError
from replica.arrow.documents import document_texts
from tests.support.arrow_tables import column, converted, short
from tests.support.decimals import decimals, encode_decimal


def values_of(of: Column, *stored: bytes | None) -> list[Any]:
    array, losses = converted(of, stored)
    assert losses == Losses()
    return list(array.to_pylist())


UNSIGNED: dict[str, Any] = {"unsigned": True}
TYPES = [
    (column("c", ColumnType.TINY), pa.int8()),
    (column("c", ColumnType.TINY, **UNSIGNED), pa.uint8()),
    (column("c", ColumnType.SHORT), pa.int16()),
    (column("c", ColumnType.SHORT, **UNSIGNED), pa.uint16()),
    (column("c", ColumnType.INT24), pa.int32()),
    (column("c", ColumnType.INT24, **UNSIGNED), pa.uint32()),
    (column("c", ColumnType.LONG, unsigned=False), pa.int32()),
    (column("c", ColumnType.LONG, **UNSIGNED), pa.uint32()),
    (column("c", ColumnType.LONGLONG), pa.int64()),
    (column("c", ColumnType.LONGLONG, **UNSIGNED), pa.uint64()),
    (column("c", ColumnType.YEAR), pa.int16()),
    (column("c", ColumnType.FLOAT, 4), pa.float32()),
    (column("c", ColumnType.DOUBLE, 8), pa.float64()),
    (column("c", ColumnType.BIT, 1), pa.uint64()),
    (column("c", ColumnType.NEWDECIMAL, 38 << 8 | 10), pa.decimal128(38, 10)),
    (column("c", ColumnType.NEWDECIMAL, 39 << 8 | 30), pa.decimal256(39, 30)),
    (column("c", ColumnType.DATE), pa.date32()),
    (column("c", ColumnType.NEWDATE), pa.date32()),
    (column("c", ColumnType.DATETIME), pa.timestamp("us")),
    (column("c", ColumnType.DATETIME2, 3), pa.timestamp("us")),
    (column("c", ColumnType.TIMESTAMP), pa.timestamp("us", "UTC")),
    (column("c", ColumnType.TIMESTAMP2, 6), pa.timestamp("us", "UTC")),
    (column("c", ColumnType.TIME), pa.duration("us")),
    (column("c", ColumnType.TIME2, 1), pa.duration("us")),
    (column("c", ColumnType.STRING, 20, charset="latin1"), pa.string()),
    (column("c", ColumnType.STRING, 20, charset="binary"), pa.binary()),
    (column("c", ColumnType.VARCHAR, 20, charset="utf8mb4"), pa.string()),
    (column("c", ColumnType.VARCHAR, 20), pa.binary()),
    (column("c", ColumnType.VARCHAR, 20, charset="binary"), pa.binary()),
    (column("c", ColumnType.BLOB, 2, charset="utf8mb3"), pa.string()),
    (column("c", ColumnType.LONG_BLOB, 4), pa.binary()),
    (column("c", ColumnType.MARIADB_VARCHAR_COMPRESSED, 20, charset="utf8mb4"), pa.string()),
    (column("c", ColumnType.MARIADB_BLOB_COMPRESSED, 2, charset="binary"), pa.binary()),
    (column("c", ColumnType.ENUM, 1, labels=("a", "b")), pa.string()),
    (column("c", ColumnType.ENUM, 1), pa.uint16()),
    (column("c", ColumnType.SET, 8, labels=("a", "b")), pa.string()),
    (column("c", ColumnType.SET, 8), pa.uint64()),
    (column("c", ColumnType.JSON, 4), pa.string()),
    (column("c", ColumnType.GEOMETRY, 4), pa.binary()),
    (column("c", ColumnType.VECTOR, 4), pa.list_(pa.float32())),
    # Rows with these types cannot be read: the decoder raises an error.
    (column("c", ColumnType.DECIMAL), pa.null()),
    (column("c", ColumnType.NEWDECIMAL, 0), pa.null()),
]


@pytest.mark.parametrize(("of", "arrow_type"), TYPES)
def test_types(of: Column, arrow_type: pa.DataType) -> None:
    schema = batch_schema(Table("s", "t", (of,)), metadata=[])
    assert schema == pa.schema([pa.field("c", arrow_type)])


def test_every_type_of_column_is_among_them() -> None:
    of_no_row = {
        *(ColumnType.NULL, ColumnType.INVALID, ColumnType.BOOL, ColumnType.TYPED_ARRAY),
        *(ColumnType.VAR_STRING, ColumnType.TINY_BLOB, ColumnType.MEDIUM_BLOB),
    }
    assert set(ColumnType) == {of.type for of, _ in TYPES} | of_no_row


# Numbers


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (ColumnType.TINY, 1),
        (ColumnType.SHORT, 2),
        (ColumnType.INT24, 3),
        (ColumnType.LONG, 4),
        (ColumnType.LONGLONG, 8),
    ],
)
@pytest.mark.parametrize("unsigned", [False, True])
def test_integers(kind: ColumnType, size: int, unsigned: bool) -> None:
    bits = 8 * size
    low, high = (0, (1 << bits) - 1) if unsigned else (-1 << bits - 1, (1 << bits - 1) - 1)
    numbers = [low, low + 1, 0, 1, high - 1, high]
    stored = [number.to_bytes(size, "little", signed=not unsigned) for number in numbers]
    assert values_of(column("c", kind, unsigned=unsigned), *stored, None) == [*numbers, None]


def test_years_and_bits() -> None:
    assert values_of(column("c", ColumnType.YEAR), b"\0", b"\1", b"\xff", None) == [0, 1901, 2155, None]
    assert values_of(column("c", ColumnType.BIT, 9), b"\1\xff", b"\0\1") == [511, 1]
    assert values_of(column("c", ColumnType.BIT, 64), b"\xff" * 8, b"\x80" + bytes(7)) == [2**64 - 1, 2**63]


def test_floats() -> None:
    found = values_of(column("c", ColumnType.FLOAT, 4), struct.pack("<f", 0.1), struct.pack("<f", -0.0))
    assert found == [struct.unpack("<f", struct.pack("<f", 0.1))[0], 0.0]
    assert values_of(column("c", ColumnType.DOUBLE, 8), struct.pack("<d", 1e308)) == [1e308]


@given(st.lists(decimals(), min_size=1, max_size=3))
def test_decimals(cases: list[tuple[Decimal, int, int]]) -> None:
    for value, precision, scale in cases:
        [found, null] = values_of(
            column("c", ColumnType.NEWDECIMAL, precision << 8 | scale),
            encode_decimal(value, precision, scale),
            None,
        )
        assert found == value
        assert found.as_tuple().exponent == -scale
        assert null is None


@pytest.mark.parametrize("precision", [1, 9, 18, 19, 36, 37, 38, 39, 54, 55, 65])
def test_the_largest_decimals(precision: int) -> None:
    largest = Decimal("9" * precision)
    numbers = [largest, largest.copy_negate(), Decimal(0)]
    stored = [encode_decimal(value, precision, 0) for value in numbers]
    assert values_of(column("c", ColumnType.NEWDECIMAL, precision << 8), *stored) == numbers


def test_decimals_no_server_has() -> None:
    with pytest.raises(DecodeError, match="digits"):
        converted(column("c", ColumnType.NEWDECIMAL, 2 << 8), [b"\xe4"])
    # The bytes at the place of a NULL belong to another value.
    rows = [None, b"\x80", None]
    assert values_of(column("c", ColumnType.NEWDECIMAL, 2 << 8), *rows) == [None, 0, None]


# Dates and times


def packed_date(year: int, month: int, day: int) -> bytes:
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


@given(st.lists(st.dates(), min_size=1))
def test_dates(days: list[date]) -> None:
    stored = [packed_date(day.year, day.month, day.day) for day in days]
    assert values_of(column("c", ColumnType.DATE), *stored) == days


def test_every_day_of_some_years() -> None:
    for year in (1, 4, 100, 400, 1900, 1999, 2000, 2024, 9999):
        days = [date(year, 1, 1) + timedelta(days=number) for number in range(365)]
        stored = [packed_date(day.year, day.month, day.day) for day in days]
        assert values_of(column("c", ColumnType.DATE), *stored) == days


@pytest.mark.parametrize(
    "parts", [(0, 0, 0), (2026, 0, 15), (2026, 7, 0), (2023, 2, 29), (2026, 4, 31), (0, 5, 5), (9999, 0, 0)]
)
def test_dates_that_do_not_exist_are_null(parts: tuple[int, int, int]) -> None:
    real = packed_date(2026, 5, 1)
    array, losses = converted(column("c", ColumnType.DATE), [packed_date(*parts), real, None])
    assert array.to_pylist() == [None, date(2026, 5, 1), None]
    assert losses == Losses(dates=1)
    year, month, day = parts
    packed = 1 << 39 | (year * 13 + month) << 22 | day << 17 | 23 << 12 | 59 << 6 | 59
    array, losses = converted(column("c", ColumnType.DATETIME2, 0), [packed.to_bytes(5, "big"), None])
    assert (array.to_pylist(), losses) == ([None, None], Losses(dates=1))
    digits = int(f"{year:04}{month:02}{day:02}010203")
    array, losses = converted(column("c", ColumnType.DATETIME), [digits.to_bytes(8, "little")])
    assert (array.to_pylist(), losses) == ([None], Losses(dates=1))


def test_zero_timestamps_are_null() -> None:
    array, losses = converted(column("c", ColumnType.TIMESTAMP2, 2), [bytes(5), bytes(4) + b"\1", bytes(5)])
    assert array.to_pylist() == [None, datetime(1970, 1, 1, microsecond=10_000, tzinfo=UTC), None]
    assert losses == Losses(dates=2)
    array, losses = converted(column("c", ColumnType.TIMESTAMP), [bytes(4), b"\xff\xff\xff\xff"])
    assert array.to_pylist() == [None, datetime.fromtimestamp(2**32 - 1, UTC)]
    assert losses == Losses(dates=1)


@pytest.mark.parametrize(
    ("of", "data"),
    [
        (column("c", ColumnType.DATE), packed_date(2026, 13, 1)),
        (column("c", ColumnType.DATE), packed_date(10000, 1, 1)),
        (column("c", ColumnType.DATETIME2, 0), bytes(5)),
        (column("c", ColumnType.DATETIME2, 0), (1 << 39 | 2026 * 13 << 22 | 24 << 12).to_bytes(5, "big")),
        (column("c", ColumnType.DATETIME2, 0), (1 << 39 | 2026 * 13 << 22 | 60).to_bytes(5, "big")),
        (column("c", ColumnType.DATETIME2, 6), (1 << 39).to_bytes(5, "big") + b"\x0f\x42\x40"),
        (column("c", ColumnType.DATETIME), (20261301000000).to_bytes(8, "little")),
        (column("c", ColumnType.DATETIME), (20260132000000).to_bytes(8, "little")),
        (column("c", ColumnType.DATETIME), b"\xff" * 8),
        (column("c", ColumnType.TIMESTAMP2, 2), b"\0\0\0\1\x64"),
        (column("c", ColumnType.TIME2, 0), (0x800000 | 839 << 12).to_bytes(3, "big")),
        (column("c", ColumnType.TIME2, 0), (0x800000 | 60 << 6).to_bytes(3, "big")),
        (column("c", ColumnType.TIME), (6000).to_bytes(3, "little")),
    ],
)
def test_moments_no_server_has(of: Column, data: bytes) -> None:
    with pytest.raises(DecodeError) as raised:
        converted(of, [data])
    error = raised.value
    assert (error.file, error.position, error.event_type) == ("binlog.000007", 0, 30)
    assert values_of(of, None) == [None]


def test_times() -> None:
    longest = (838 << 12 | 59 << 6 | 59) << 24 | 999_999
    stored = [((0x800000 << 24) + number).to_bytes(6, "big") for number in (longest, -longest, -1, 0)]
    length = timedelta(hours=838, minutes=59, seconds=59, microseconds=999_999)
    expected = [length, -length, -timedelta(microseconds=1), timedelta()]
    assert values_of(column("c", ColumnType.TIME2, 6), *stored) == expected
    old = [(-8385959).to_bytes(3, "little", signed=True), (1).to_bytes(3, "little")]
    assert values_of(column("c", ColumnType.TIME), *old) == [
        -timedelta(hours=838, minutes=59, seconds=59),
        timedelta(seconds=1),
    ]


# Text


def text_column(charset: str | None) -> Column:
    return column("c", ColumnType.VARCHAR, 200, charset=charset)


ALL_CHARSETS = [
    *("ascii", "big5", "cp1251", "cp932", "euckr", "gb18030", "gbk", "greek", "hebrew", "koi8r", "latin1"),
    *("sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"),
]


@pytest.mark.parametrize("name", ALL_CHARSETS)
@pytest.mark.parametrize("wide", [False, True], ids=["ASCII", "all bytes"])
def test_strings_of_all_kinds_of_character_sets(name: str, wide: bool) -> None:
    """The strings of row tuples, with U+FFFD in place of surrogates, which stand for invalid bytes."""
    charset = charset_by_name(name)
    assert charset is not None
    assert charset.decode is not None
    pieces = [bytes(range(32, 100)), b"", b"abc", "é日".encode(), bytes(range(100, 256 if wide else 128))]
    if not wide:
        pieces = [piece for piece in pieces if piece.isascii()]
    texts = [charset.decode(piece) for piece in pieces]
    array, losses = converted(text_column(name), [short(pieces[0]), None, *map(short, pieces[1:])])
    expected = [
        "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text) for text in texts
    ]
    assert array.to_pylist() == [expected[0], None, *expected[1:]]
    assert losses.texts == sum(mine != others for mine, others in zip(expected, texts, strict=True))
    assert not losses.dates


def test_strings_without_a_known_character_set_are_bytes() -> None:
    assert values_of(text_column(None), short(b"\xff\0"), short(b""), None) == [b"\xff\0", b"", None]


def test_binary_gets_its_zeros_back() -> None:
    of = column("c", ColumnType.STRING, 4, charset="binary")
    stored = [short(b"abcd"), None, short(b"a"), short(b""), short(b"x y ")]
    assert values_of(of, *stored) == [b"abcd", None, b"a\0\0\0", bytes(4), b"x y "]
    assert values_of(of, short(b"abcd"), short(b"efgh")) == [b"abcd", b"efgh"]
    assert values_of(column("c", ColumnType.STRING, 0, charset="binary"), short(b"")) == [b""]


def test_compressed_columns() -> None:
    packed = b"\x81\x06" + zlib.compress("Äxyz\0".encode())
    stored = [short(packed), None, short(b"\0plain"), short(b"")]
    of = column("c", ColumnType.MARIADB_VARCHAR_COMPRESSED, 100, charset="utf8mb4")
    assert values_of(of, *stored) == ["Äxyz\0", None, "plain", ""]
    of = column("c", ColumnType.MARIADB_BLOB_COMPRESSED, 1, charset="binary")
    assert values_of(of, *stored) == ["Äxyz\0".encode(), None, b"plain", b""]
    with pytest.raises(DecodeError, match="damaged"):
        converted(of, [short(b"\x81\x05xxxxx")])


@pytest.mark.parametrize("charset", ["utf8mb4", "binary"])
def test_compressed_columns_of_zeros(monkeypatch: pytest.MonkeyPatch, charset: str) -> None:
    """The values stop at what an array can hold; they are not all uncompressed first."""
    monkeypatch.setattr(strings, "MAX_BYTES", 10_000)
    stored = [short(b"\x82\x03\xe8" + zlib.compress(bytes(1000)))] * 10
    of = column("c", ColumnType.MARIADB_BLOB_COMPRESSED, 1, charset=charset)
    assert len(values_of(of, *stored)) == 10
    with pytest.raises(TooLargeError):
        converted(of, [*stored, stored[0], short(b"damage, which nobody reads")])


# Labels, documents, vectors


def test_labels() -> None:
    labels = ("new", "päid", "\udc80")
    enum = column("c", ColumnType.ENUM, 1, labels=labels)
    assert values_of(enum, b"\1", b"\0", None, b"\3", b"\2") == ["new", "", None, "\ufffd", "päid"]
    wide = column("c", ColumnType.ENUM, 2, labels=labels)
    assert values_of(wide, b"\1\0", b"\2\0") == ["new", "päid"]
    for size in (1, 2, 3, 8):
        of = column("c", ColumnType.SET, size, labels=labels)
        stored = [bits.to_bytes(size, "little") for bits in (0, 5, 7, 5)]
        assert values_of(of, *stored, None) == ["", "new,\ufffd", "new,päid,\ufffd", "new,\ufffd", None]
    with pytest.raises(DecodeError, match="ENUM value 4"):
        converted(enum, [b"\4"])
    with pytest.raises(DecodeError, match="SET bits"):
        converted(column("c", ColumnType.SET, 1, labels=labels), [b"\x08"])


def test_numbers_in_place_of_unknown_labels() -> None:
    assert values_of(column("c", ColumnType.ENUM, 2), b"\xff\xff", None) == [65535, None]
    assert values_of(column("c", ColumnType.SET, 3), b"\xff\xff\xff", None) == [0xFFFFFF, None]
    assert values_of(column("c", ColumnType.SET, 8), b"\xff" * 8) == [2**64 - 1]


def long(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def test_vectors_and_geometry() -> None:
    of = column("c", ColumnType.VECTOR, 4)
    stored = [struct.pack("<3f", 1, -2.5, 3), None, b"", struct.pack("<f", 0.5)]
    found = values_of(of, *(None if data is None else long(data) for data in stored))
    assert found == [[1.0, -2.5, 3.0], None, [], [0.5]]
    with pytest.raises(DecodeError, match="whole floats"):
        converted(of, [long(b"12345")])
    assert values_of(column("c", ColumnType.GEOMETRY, 4), long(b"\0\1\2"), None) == [b"\0\1\2", None]


def test_documents() -> None:
    of = column("c", ColumnType.JSON, 4)
    # {"a": 1}, a string, JSON's null, nothing at all (the server reads it as null), NULL.
    stored = [
        bytes.fromhex("00 0100 0c00 0b00 0100 05 0100 61"),
        b'\x0c\x03"\n\xff',
        b"\x04\x00",
        b"",
        bytes.fromhex("0b") + struct.pack("<d", 1e20),
    ]
    array, losses = converted(of, [*map(long, stored), None])
    assert array.to_pylist() == ['{"a": 1}', '"\\"\\n\ufffd"', "null", "null", "1e20", None]
    assert losses == Losses(texts=1)
    with pytest.raises(DecodeError):
        converted(of, [long(b"\x00\x01")])


SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.sampled_from([1e15, 1e16, 1e-5, 123456789012345678.0, 1e15 - 1, 0.0001, 5e-324, 1.5]),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from([" 1e5", "[1234567890123456", '"\\', "\x7f\x01\u2028", "x\udc80\udcff"]),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    st.dates(),
    st.datetimes(),
    st.timedeltas(min_value=timedelta(hours=-838), max_value=timedelta(hours=838)),
    st.binary().map(lambda data: JsonOpaque(data, 252)),
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=12
)


@given(st.lists(DOCUMENTS, max_size=4))
def test_documents_are_text_as_the_plain_renderer_writes_it(documents: list[JsonValue]) -> None:
    has_doubles = b"\x0b"
    expected = [render_json(document) for document in documents]
    assert document_texts([has_doubles] * len(documents), documents) == expected
