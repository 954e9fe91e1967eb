"""JSON documents in an export: a row that was read equals the same row of the log, and null is not NULL."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from protocol.constants import ColumnType
from protocol.rows.column import Column
from protocol.rows.table import Table
from protocol.values.jsonb import JsonOpaque, JsonValue
from replica.export.row_formats import FORMATS, row_format
from replica.export.table_files import TableRows
from replica.render.json_values import JsonDocument

TABLE = Table(
    "shop",
    "t",
    (Column("id", ColumnType.LONG, 0, False), Column("j", ColumnType.JSON, 4, True)),
    (),
    "information_schema",
)
# What the log has, and what a SELECT gives for it (MySQL 9.7).
DOCUMENTS: list[tuple[JsonValue, JsonValue]] = [
    (Decimal("1.50"), 1.5),
    (Decimal(7), 7),
    (Decimal("1234567890.12345678901"), Decimal("1234567890.12345678901")),
    ({"at": datetime(2026, 1, 2, 3, 4, 5)}, {"at": "2026-01-02 03:04:05.000000"}),
    ([date(2026, 1, 2), timedelta(hours=-1)], ["2026-01-02", "-01:00:00.000000"]),
    ([JsonOpaque(b"\x05", 15)], ["base64:type15:BQ=="]),
    (None, None),
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("logged", "selected"), DOCUMENTS)
def test_a_row_of_the_log_equals_the_row_that_was_read(
    form: str, logged: JsonValue, selected: JsonValue
) -> None:
    """Else a table without a key keeps rows that were deleted after they had been read."""
    rows = TableRows(TABLE, (), row_format(form))
    made = [rows.prepare([(1, JsonDocument(value))]) for value in (logged, selected)]
    assert made[0] == made[1]
    assert rows.keys([(1, None)], made[0]) == rows.keys([(1, None)], made[1])


@pytest.mark.parametrize(
    ("form", "null"),
    [("jsonl", b'{"id": 1, "j": {"$json": null}}\n'), ("csv", b'1,"null"\n'), ("parquet", [1, "null"])],
)
def test_the_null_of_json_is_not_that_of_sql(form: str, null: object) -> None:
    rows = TableRows(TABLE, (), row_format(form))
    assert rows.prepare([(1, JsonDocument(None))]) == [null]
    assert rows.prepare([(1, None)]) != [null]


def test_members_that_look_like_typed_values_are_told_apart() -> None:
    rows = TableRows(TABLE, (), row_format("jsonl"))
    [line] = rows.prepare([(1, JsonDocument({"$date": "2026-01-02"}))])
    assert line == b'{"id": 1, "j": {"$json": {"$date": "2026-01-02"}}}\n'
