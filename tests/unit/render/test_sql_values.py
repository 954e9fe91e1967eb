"""SQL literals and conditions. Server tests check that servers read them as meant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.rows.column import Column
from protocol.values.jsonb import JsonOpaque
from protocol.values.jsonb_diff import JsonDiff
from replica.render.json_values import JsonChanges, JsonDocument
from replica.render.sql_values import column_sql, sql_cells
from tests.support.rendered_events import column


def text_column(charset: str | None, **facts: Any) -> Column:
    return column("c", ColumnType.VARCHAR, 40, charset=charset, **facts)


LITERALS: list[tuple[Column, object, str]] = [
    (column("c"), -5, "-5"),
    (column("c"), 18446744073709551615, "18446744073709551615"),
    (column("c", ColumnType.FLOAT, 4), 0.10000000149011612, "0.10000000149011612e0"),
    (column("c", ColumnType.DOUBLE, 8), 1e300, "1e+300"),
    (column("c", ColumnType.DOUBLE, 8), -0.0, "-0.0e0"),
    (column("c", ColumnType.NEWDECIMAL, 0x0A02), Decimal("-1.50"), "-1.50"),
    (column("c", ColumnType.NEWDECIMAL, 0x410A), Decimal("0E-10"), "0.0000000000"),
    (column("c", ColumnType.BIT, 64), 2**64 - 1, "18446744073709551615"),
    (column("c", ColumnType.DATE), date(26, 1, 31), "'0026-01-31'"),
    (column("c", ColumnType.DATE), "2026-00-15", "'2026-00-15'"),
    (column("c", ColumnType.DATETIME2, 6), datetime(2026, 1, 31, 1, 2, 3, 4), "'2026-01-31 01:02:03.000004'"),
    (column("c", ColumnType.TIMESTAMP2, 0), datetime(2026, 1, 31, tzinfo=UTC), "'2026-01-31 00:00:00'"),
    (column("c", ColumnType.TIME2, 0), -timedelta(hours=838, minutes=59, seconds=59), "'-838:59:59'"),
    (text_column("utf8mb4"), b"it's\\\n\r\0\x1a\"%", "'it\\'s\\\\\\n\\r\\0\\Z\"%'"),
    (text_column("utf8mb4"), "ä€😀".encode(), "_utf8mb4'ä€😀'"),
    (text_column("utf8mb3"), "ä€".encode(), "_utf8mb4'ä€'"),
    (text_column("utf8mb4"), b"\xff", "_utf8mb4 0xFF"),
    (text_column("latin1"), b"\xe9\x80\x81", "_utf8mb4'é€\x81'"),
    (text_column("utf16"), b"\xd8\x3d\xde\x00", "_utf8mb4'😀'"),
    (text_column("utf16"), b"\xd8\x3d", "_utf16 0xD83D"),
    (text_column("ucs2"), b"\x00a", "'a'"),
    (text_column("sjis"), b"a b", "'a b'"),
    (text_column("sjis"), b"a\\b", "_sjis 0x615C62"),
    (text_column("sjis"), b"\x82\xa0", "_sjis 0x82A0"),
    # Python has characters for these bytes, servers have none.
    (text_column("greek"), b"\xe1\xa4", "_greek 0xE1A4"),
    (text_column("greek"), b"\xe1\xe2", "_utf8mb4'αβ'"),
    (text_column("cp1256"), b"\x98", "_cp1256 0x98"),
    (text_column("swe7"), b"\x7f", "_swe7 0x7F"),
    (text_column("swe7"), b"a]", "_utf8mb4'aÅ'"),
    (text_column("armscii8"), b"a'", "_armscii8 0x6127"),
    (text_column("armscii8"), b"", "''"),
    (text_column("binary"), b"\0\xff", "0x00FF"),
    (text_column("binary"), b"", "''"),
    (text_column(None), b"a", "0x61"),
    (column("c", ColumnType.BLOB, 2, charset="utf8mb4"), b"", "''"),
    (column("c", ColumnType.GEOMETRY, 4), b"\0\0\0\0\1", "0x0000000001"),
    (column("c", ColumnType.VECTOR, 4), b"\0\0\x80?", "0x0000803F"),
    (column("c", ColumnType.ENUM, 1, labels=("a'", "ä"), charset="utf8mb4"), 1, "'a\\''"),
    (column("c", ColumnType.ENUM, 1, labels=("a", "ä"), charset="latin1"), 2, "_utf8mb4'ä'"),
    (column("c", ColumnType.ENUM, 1, labels=("a", ""), charset="utf8mb4"), 0, "0"),
    (column("c", ColumnType.ENUM, 1, labels=("a", ""), charset="utf8mb4"), 2, "''"),
    (column("c", ColumnType.ENUM, 1, labels=("あ",), charset="sjis"), 1, "1"),
    (column("c", ColumnType.ENUM, 1, labels=("\udcff",), charset="utf8mb4"), 1, "1"),
    (column("c", ColumnType.ENUM, 1), 7, "7"),
    (column("c", ColumnType.SET, 1, labels=("a", "b", "c"), charset="utf8mb4"), 0, "''"),
    (column("c", ColumnType.SET, 1, labels=("a", "b", "c"), charset="utf8mb4"), 5, "'a,c'"),
    (column("c", ColumnType.SET, 8), 2**64 - 1, "18446744073709551615"),
    (column("c"), None, "NULL"),
]


@pytest.mark.parametrize(("of", "value", "expected"), LITERALS, ids=lambda value: str(value)[:40])
def test_literals(of: Column, value: object, expected: str) -> None:
    assert column_sql(of).value(value) == expected


def test_what_a_float_column_cannot_hold() -> None:
    with pytest.raises(DecodeError):
        column_sql(column("c", ColumnType.DOUBLE, 8)).value(float("inf"))


JSON = column("c", ColumnType.JSON, 4)
DOCUMENTS: list[tuple[Any, str]] = [
    (None, "'null'"),
    ({"a": [1, 1.0, "it's"]}, """'{"a": [1, 1.0, "it\\'s"]}'"""),
    ("ä", "_utf8mb4'\"ä\"'"),
    ("\udcff", "_utf8mb4 0x22FF22"),
    (Decimal("1.50"), "CAST(CAST(1.50 AS DECIMAL(65,2)) AS JSON)"),
    (date(2020, 2, 29), "CAST(CAST('2020-02-29' AS DATE) AS JSON)"),
    (
        [Decimal("5"), None, True, False, 2, 1.5, "ä", {"k": []}],
        "JSON_ARRAY(CAST(5 AS DECIMAL(65,0)), NULL, true, false, 2, 1.5e0, _utf8mb4'ä', CAST('{\"k\": []}' AS JSON))",
    ),
    (
        {"t": timedelta(hours=-1), "d": datetime(2020, 2, 29, 1, 2, 3)},
        "JSON_OBJECT('t', CAST('-01:00:00' AS TIME(6)), 'd', CAST('2020-02-29 01:02:03' AS DATETIME(6)))",
    ),
    # From MySQL 9 on as it is, before by the hours that it takes there to get it.
    (
        [timedelta(hours=-630, minutes=-59, seconds=-59), timedelta(hours=838, minutes=59, seconds=59)],
        "JSON_ARRAY(CAST(ELT(1 /*!90700 + 1 */, '-838:59:59', '-630:59:59') AS TIME(6)), "
        "CAST('838:59:59' AS TIME(6)))",
    ),
    (timedelta(days=1), "CAST(CAST(ELT(1 /*!90700 + 1 */, '32:00:00', '24:00:00') AS TIME(6)) AS JSON)"),
    # MySQL 5.7 to 8.4 do not read all doubles of more than 15 digits exactly from text.
    ({"a": -24.098765432109875, "b": 0.1}, "JSON_OBJECT('a', -24.098765432109875e0, 'b', 0.1e0)"),
    (1.7e-200, "CAST(1.7e-200 AS JSON)"),
    ([[JsonOpaque(b"\xff", 252)]], "JSON_ARRAY(JSON_ARRAY(_binary X'FF'))"),
]


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS, ids=lambda value: str(value)[:40])
def test_documents(document: Any, expected: str) -> None:
    assert column_sql(JSON).value(JsonDocument(document)) == expected


def test_partial_updates_are_calls() -> None:
    changes = JsonChanges(
        (
            JsonDiff("replace", "$.a", b"\x05\x07\x00"),
            JsonDiff("insert", "$.b", b"\x0c\x01x"),
            JsonDiff("insert", "$.c[0]", b"\x04\x01"),
            JsonDiff("remove", "$.d", b""),
        )
    )
    assert column_sql(JSON).assignment(changes) == (
        "`c` = JSON_REMOVE(JSON_ARRAY_INSERT(JSON_INSERT(JSON_REPLACE(`c`, '$.a', 7), '$.b', 'x'), '$.c[0]', true),"
        " '$.d')"
    )


def test_cells_keep_what_literals_need() -> None:
    cells = sql_cells()
    assert cells.cell(text_column("sjis")).expression == "{v}"
    assert (
        cells.cell(column("c", ColumnType.STRING, 3, charset="binary")).expression == r"{v}.ljust(3, b'\0')"
    )
    assert cells.cell(column("c", ColumnType.ENUM, 1, labels=("a",))).function is None
    document = cells.cell(column("c", ColumnType.JSON, 4)).function
    assert callable(document)
    assert document(b"") == JsonDocument(None)


CONDITIONS: list[tuple[Column, object, str, str]] = [
    (column("c"), None, "`c` IS NULL", "`c` IS NULL"),
    (column("c"), 5, "`c` = 5", "`c` = 5"),
    (text_column("utf8mb4"), b"a", "`c` = 'a'", "CAST(`c` AS BINARY) = 'a'"),
    (text_column("latin1"), b"\xe9", "`c` = _utf8mb4'é'", "CAST(`c` AS BINARY) = 0xE9"),
    (text_column("binary"), b"a", "`c` = 0x61", "`c` = 0x61"),
    (column("c", ColumnType.FLOAT, 4), 1.5, "`c` + 0e0 = 1.5e0", "`c` + 0e0 = 1.5e0"),
    (column("c", ColumnType.ENUM, 1, labels=("a",), charset="utf8mb4"), 1, "`c` = 1", "`c` = 1"),
    (column("c", ColumnType.SET, 1, labels=("a",), charset="utf8mb4"), 1, "`c` | 0 = 1", "`c` | 0 = 1"),
    (column("c", ColumnType.GEOMETRY, 4), b"\1", "`c` = 0x01", "CAST(`c` AS BINARY) = 0x01"),
    (
        JSON,
        JsonDocument(Decimal("1.50")),
        "`c` = '1.50'",
        "CAST(`c` AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin = '1.50'",
    ),
    (
        JSON,
        JsonDocument([1.7e-200]),
        "`c` = CAST(JSON_ARRAY(1.7e-200) AS CHAR CHARACTER SET utf8mb4)",
        "CAST(`c` AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin = "
        "CAST(JSON_ARRAY(1.7e-200) AS CHAR CHARACTER SET utf8mb4)",
    ),
    (
        JSON,
        JsonDocument([1.0]),
        "`c` = CAST(JSON_EXTRACT('[1.0]', '$') AS CHAR CHARACTER SET utf8mb4)",
        "CAST(`c` AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin = "
        "CAST(JSON_EXTRACT('[1.0]', '$') AS CHAR CHARACTER SET utf8mb4)",
    ),
]


@pytest.mark.parametrize(
    ("of", "value", "in_key", "without_key"), CONDITIONS, ids=lambda value: str(value)[:40]
)
def test_conditions(of: Column, value: object, in_key: str, without_key: str) -> None:
    assert column_sql(of).key_condition(value) == in_key
    assert column_sql(of).condition(value) == without_key
