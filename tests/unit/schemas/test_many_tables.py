"""A source of very many tables: what they cost when they are read, and when statements follow."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Iterator

from protocol.position import BinlogPosition
from replica.schemas.baseline import Row, baseline
from replica.schemas.catalog import Statement
from replica.schemas.timeline import SchemaHistory
from tests.support.shape_text import MYSQL

TABLES, MANY, COLUMNS = 1_000, 4_000, 12


def rows_of(tables: int) -> tuple[list[Row], list[Row], list[Row], list[Row]]:
    """What ``BaselineQueries`` finds: each table has other columns."""
    schemas: list[Row] = [("shop", "utf8mb4")]
    listed: list[Row] = [
        ("shop", f"t{number}", "BASE TABLE", "InnoDB", "utf8mb4_bin") for number in range(tables)
    ]
    keys: list[Row] = [
        ("shop", f"t{number}", "PRIMARY", "1", f"column_{number * 7 % 997}", None, "0", "BTREE")
        for number in range(tables)
    ]
    return schemas, listed, list(_columns(tables)), keys


def _columns(tables: int) -> Iterator[Row]:
    for number in range(tables):
        for place in range(COLUMNS):
            name = f"column_{(number * 7 + place) % 997}"
            kind, column_type, charset = (
                ("varchar", "varchar(20)", "utf8mb4") if place % 2 else ("int", "int unsigned", None)
            )
            key = "" if place else "PRI"
            yield (
                *("shop", f"t{number}", str(place + 1), name, kind, column_type),
                *("NO", charset, key, "", ""),
            )


def history_of(tables: int) -> SchemaHistory:
    return SchemaHistory("uuid", BinlogPosition("binlog.000001", 4), baseline(*rows_of(tables)))


def test_what_reading_them_costs() -> None:
    """10,000 tables took 1.0 s of CPU time and 29 MB at most, 5.6 MB in the end, besides the rows."""
    rows = rows_of(TABLES)
    tracemalloc.start()
    try:
        catalog = baseline(*rows)
        _, peak = tracemalloc.get_traced_memory()
        history = SchemaHistory("uuid", BinlogPosition("binlog.000001", 4), catalog)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history.tables) == TABLES
    assert peak / TABLES < 8_000
    assert size / TABLES < 2_000


def test_what_a_statement_costs_does_not_grow() -> None:
    """A statement looks at its own table alone."""
    costs = []
    for tables in (100, MANY):
        history = history_of(tables)
        begin = time.process_time()
        for number in range(200):
            changes = history.apply(
                Statement(f"ALTER TABLE t{number % 100} ADD z{number} INT", "shop", MYSQL),
                BinlogPosition("binlog.000001", 100 + number),
            )
            assert len(changes) == 1
            list(history.change_lines(changes))
        costs.append(time.process_time() - begin)
    few, many = costs
    assert many < few * 5 + 0.5
