"""Column values and their comments as the reference tools print them, one by one."""

from __future__ import annotations

import struct

import pytest

from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.rows.column import Column
from protocol.rows.compiler import Image, RowCompiler
from protocol.values.jsonb_diff import JsonDiff
from replica.mysqlbinlog.values import (
    Flavor,
    JsonDiffText,
    TextCells,
    quote_mariadb,
    quote_mysql,
    raw_metadata,
    type_name,
)


def column(
    kind: ColumnType, metadata: int = 0, *, nullable: bool = True, dimension: int | None = None
) -> Column:
    return Column("@1", kind, metadata, nullable, dimension=dimension)


def text_of(kind: ColumnType, metadata: int, stored: bytes, flavor: Flavor = "mysql") -> bytes:
    """One stored value, read like the decoder reads it."""
    cell = TextCells(flavor).cell(column(kind, metadata))
    rows = RowCompiler().reader(Image((cell,), (0,), (0,)))(b"\0" + stored, 0, len(stored) + 1)
    assert isinstance(rows[0][0], bytes)
    return rows[0][0]


@pytest.mark.parametrize(
    ("kind", "metadata", "stored", "text"),
    [
        (ColumnType.TINY, 0, b"\x80", b"-128 (128)"),
        (ColumnType.TINY, 0, b"\x7f", b"127"),
        (ColumnType.SHORT, 0, b"\xff\xff", b"-1 (65535)"),
        (ColumnType.INT24, 0, b"\x00\x00\x80", b"-8388608 (8388608)"),
        (ColumnType.INT24, 0, b"\x01\x00\x00", b"1"),
        (ColumnType.LONG, 0, b"\xfe\xff\xff\xff", b"-2 (4294967294)"),
        (ColumnType.LONGLONG, 0, b"\xff" * 8, b"-1 (18446744073709551615)"),
        (ColumnType.FLOAT, 4, struct.pack("<f", 1.1), b"1.1                 "),
        (ColumnType.FLOAT, 4, struct.pack("<f", 123456.789), b"123457              "),
        (ColumnType.DOUBLE, 8, struct.pack("<d", 1.1), b"1.1000000000000000888"),
        (ColumnType.DOUBLE, 8, struct.pack("<d", -0.0), b"-0"),
        (ColumnType.NEWDECIMAL, 10 << 8 | 2, b"\x80\x00\x00\xfa\x00", b"250.00"),
        (ColumnType.NEWDECIMAL, 12 << 8 | 6, b"\x80" + bytes(5), b"0.000000"),
        (ColumnType.NEWDECIMAL, 12 << 8 | 6, b"\x80\x00\x00\x00\x00\x01", b"0.000001"),
        (ColumnType.NEWDECIMAL, 9 << 8 | 9, b"\x80\x00\x00\x01", b"0.000000001"),
        (ColumnType.BIT, 13, b"\xf5\x55", b"b'1010101010101'"),
        (ColumnType.SET, 2, b"\x01\x02", b"b'0000000100000010'"),
        (ColumnType.ENUM, 1, b"\xff", b"255"),
        (ColumnType.ENUM, 2, b"\x01\x01", b"257"),
        (ColumnType.YEAR, 0, b"\x00", b"1900"),
        (ColumnType.YEAR, 0, b"\xff", b"2155"),
        (ColumnType.DATE, 0, (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), b"'2024:02:29'"),
        (ColumnType.TIMESTAMP, 0, b"\xff\xff\xff\xff", b"-1"),
        (ColumnType.TIMESTAMP2, 0, b"\x65\x53\xf1\x00", b"1700000000"),
        (ColumnType.TIMESTAMP2, 1, b"\x00\x00\x00\x01\x5a", b"1.9"),
        (ColumnType.TIMESTAMP2, 6, b"\x00\x00\x00\x00\x00\x00\x07", b"0.000007"),
        (ColumnType.DATETIME2, 0, b"\x80\x00\x00\x00\x00", b"'0000-00-00 00:00:00'"),
        (ColumnType.DATETIME2, 3, b"\x99\xb2\xba\x30\xc5\x04\xce", b"'2024-02-29 03:03:05.123'"),
        (ColumnType.TIME2, 0, b"\x80\x10\x83", b"'01:02:03'"),
        (ColumnType.TIME2, 1, b"\x7f\xff\xff\xf6", b"'-00:00:00.1'"),
        (ColumnType.JSON, 4, b"\x04\x00\x00\x00\x0c\x02\x61\x27", b"'a\\''"),
        (
            ColumnType.VECTOR,
            4,
            b"\x08\x00\x00\x00" + struct.pack("<2f", 1, -2.5),
            b"[1.00000e+00,-2.50000e+00]",
        ),
        (ColumnType.GEOMETRY, 4, b"\x02\x00\x00\x00\x00\xff", b"'\\x00\xff'"),
        (ColumnType.VARCHAR, 255, b"\x02ab", b"'ab'"),
        (ColumnType.VARCHAR, 256, b"\x02\x00ab", b"'ab'"),
        (ColumnType.STRING, 1020, b"\x01\x00\xe9", b"'\xe9'"),
        (ColumnType.BLOB, 3, b"\x01\x00\x00%", b"'%'"),
    ],
)
def test_a_value_is_printed_as_mysqlbinlog_prints_it(
    kind: ColumnType, metadata: int, stored: bytes, text: bytes
) -> None:
    assert text_of(kind, metadata, stored) == text


@pytest.mark.parametrize(
    ("kind", "stored", "mysql", "mariadb"),
    [
        (ColumnType.DATETIME, 20240229030405, b"2024-02-29 03:04:05", b"'2024-02-29 03:04:05'"),
        (ColumnType.TIME, 10203, b"'01:02:03'", b"'01:02:03'"),
        (ColumnType.TIME, -10203 & 0xFFFFFF, b"'1676:70:13'", b"'-01:02:03'"),
    ],
)
def test_old_temporal_types_differ_between_the_tools(
    kind: ColumnType, stored: int, mysql: bytes, mariadb: bytes
) -> None:
    data = stored.to_bytes(8 if kind is ColumnType.DATETIME else 3, "little")
    assert text_of(kind, 0, data) == mysql
    assert text_of(kind, 0, data, "mariadb") == mariadb


def test_strings_are_escaped_as_each_tool_does() -> None:
    assert quote_mysql(b"\0\b\t\n\x0b\f\r\x1f'\\\"\x80") == b"'" + rb"\x00\b\t\n\x0b\f\r\x1f\'\\" + b"\"\x80'"
    assert quote_mariadb(b"\0\n'\\\x80") == b"'" + rb"\x00\x0a'" + b"\\\x80'"


def test_compressed_columns_stay_compressed_as_in_mariadbs_tool() -> None:
    assert text_of(ColumnType.MARIADB_BLOB_COMPRESSED, 2, b"\x02\x00\x00a", "mariadb") == b"'\\x00a'"
    with pytest.raises(DecodeError):
        text_of(ColumnType.MARIADB_BLOB_COMPRESSED, 2, b"\x02\x00\x00a")


@pytest.mark.parametrize(
    ("kind", "metadata", "name", "raw"),
    [
        (ColumnType.LONG, 0, "INT", 0),
        (ColumnType.STRING, 40, "STRING(40)", 65064),
        (ColumnType.STRING, 1020, "STRING(1020)", 52988),
        (ColumnType.VARCHAR, 1200, "VARSTRING(1200)", 1200),
        (ColumnType.NEWDECIMAL, 65 << 8 | 30, "DECIMAL(65,30)", 16670),
        (ColumnType.BIT, 13, "BIT(13)", 261),
        (ColumnType.BIT, 64, "BIT(64)", 2048),
        (ColumnType.ENUM, 1, "ENUM(1 byte)", 63233),
        (ColumnType.ENUM, 2, "ENUM(2 bytes)", 63234),
        (ColumnType.SET, 1, "SET(1 bytes)", 63489),
        (ColumnType.BLOB, 4, "LONGBLOB/LONGTEXT", 4),
        (ColumnType.DATETIME2, 6, "DATETIME(6)", 6),
        (ColumnType.DATETIME, 0, "DATETIME", 0),
        (ColumnType.MARIADB_BLOB_COMPRESSED, 2, "BLOB/TEXT COMPRESSED", 2),
    ],
)
def test_the_comment_names_type_and_metadata(kind: ColumnType, metadata: int, name: str, raw: int) -> None:
    assert (type_name(column(kind, metadata)), raw_metadata(column(kind, metadata))) == (name, raw)


def test_a_vectors_comment_tells_its_dimension() -> None:
    assert type_name(column(ColumnType.VECTOR, 4, dimension=3)) == "VECTOR(3)"


def test_json_diffs_are_nested_calls() -> None:
    diffs = [
        JsonDiff("replace", "$.a", b"\x05\x02\x00"),
        JsonDiff("replace", "$.b", b"\x0c\x03new"),
        JsonDiff("insert", "$[0]", b"\x04\x01"),
        JsonDiff("remove", "$.c'", b""),
    ]
    assert JsonDiffText(diffs).text(b"@2") == (
        b"JSON_REMOVE(\n###      JSON_ARRAY_INSERT(\n###      JSON_REPLACE(@2, '$.a', 2,\n###      '$.b', 'new'),"
        b"\n###      '$[0]', true),\n###      '$.c\\'')"
    )
    assert JsonDiffText([]).text(b"@2") == b"@2"
    container = [JsonDiff("insert", "$.x", b"\x00\x00\x00\x04\x00")]
    assert JsonDiffText(container).text(b"@3") == b"JSON_INSERT(@3, '$.x', CAST('{}' AS JSON))"
