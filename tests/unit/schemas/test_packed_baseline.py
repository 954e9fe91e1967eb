"""The tables of a source out of the payloads of rows: what is read of them, and when."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import cast

import pytest

from protocol.conversation.messages import TextValue
from protocol.conversation.results import encode_row, parse_row
from protocol.position import BinlogPosition
from replica.schemas.baseline import Row, baseline, packed_baseline
from replica.schemas.catalog import Catalog, Listed, Statement, Unknown
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName
from tests.support.listed_tables import rows_of
from tests.support.shape_text import MYSQL

BEGIN = BinlogPosition("binlog.000001", 4)


def payloads(rows: Iterable[Row]) -> list[bytes]:
    return [encode_row(cast("tuple[TextValue, ...]", row)) for row in rows]


def packed(tables: int) -> Catalog:
    schemas, listed, columns, keys = rows_of(tables)
    return packed_baseline(schemas, listed, payloads(columns), payloads(keys))


def test_tables_are_those_of_rows_of_text() -> None:
    """Rows of a table need not stand together, names need not be ASCII, and views are left out."""
    schemas, listed, columns, keys = rows_of(20)
    named = TableName("shöp", "t" * 64)
    listed += [(*named, "BASE TABLE", None, None), ("shop", "seen", "VIEW", None, None)]
    row: Row = (*named, "1", "id", "int", "int", "YES", None, "", "", "")
    columns = [*columns[::2], row, *columns[1::2], ("shop", "seen", *row[2:])]
    found = packed_baseline(schemas, listed, payloads(columns), payloads(reversed(keys)))
    assert dict(found.tables) == dict(baseline(schemas, listed, columns, keys).tables)
    assert len(found.tables) == 21
    assert found.schemas == {"shop": "utf8mb4"}


def test_only_tables_that_are_asked_for_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def parse(row: bytes, values: int) -> tuple[TextValue, ...]:
        read.append(values)
        return parse_row(row, values)

    monkeypatch.setattr("replica.schemas.baseline.parse_row", parse)
    history = SchemaHistory("uuid", BEGIN, packed(1_000))
    assert len(history.tables) == 1_000
    assert TableName("shop", "t7") in history.catalog.tables
    assert not read
    for _ in range(2):
        assert isinstance(history.shape_at(TableName("shop", "t7"), BEGIN), Shape)
    assert len(read) == 13
    place = BinlogPosition("binlog.000001", 100)
    assert history.apply(Statement("ALTER TABLE t7 ADD z INT", "shop", MYSQL), place)
    assert history.shape_at(TableName("shop", "t7"), BEGIN) != history.shape_at(
        TableName("shop", "t7"), place
    )
    assert len(read) == 13
    assert sum(isinstance(state, Listed) for state in history.catalog.listed.values()) == 999


def test_what_tables_that_nobody_asks_for_cost() -> None:
    """The same tables in 100 schemas. Each kept all of its rows, with its name in each: 1,900 bytes."""
    _, *rows = rows_of(20)
    tables, columns, keys = ([(f"s{n}", *row[1:]) for n in range(100) for row in part] for part in rows)
    tracemalloc.start()
    try:
        catalog = packed_baseline((), tables, payloads(columns), payloads(keys))
        history = SchemaHistory("uuid", BEGIN, catalog)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history.tables) == len(tables) == 2_000
    assert size / len(tables) < 800


@pytest.mark.parametrize("damage", ["cut", "position", "longer"])
def test_a_row_that_is_no_column_leaves_its_table_unknown(damage: str) -> None:
    schemas, listed, columns, keys = rows_of(2)
    rows = payloads(columns)
    rows[3] = {
        "cut": rows[3][:-1],
        "position": encode_row(("shop", "t0", "x", *cast("tuple[str, ...]", columns[3][3:]))),
        "longer": rows[3] + b"\1x",
    }[damage]
    catalog = packed_baseline(schemas, listed, rows, payloads(keys))
    state = catalog.get(TableName("shop", "t0"))
    assert isinstance(state, Unknown)
    assert "no table shop.t0" in state.reason
    assert isinstance(catalog.get(TableName("shop", "t1")), Shape)
