"""A source of very many tables: what they cost when they are read, and when statements follow."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from protocol.position import BinlogPosition
from replica.schemas.baseline import baseline
from replica.schemas.catalog import Statement
from replica.schemas.timeline import SchemaHistory, Timeline
from tests.support.listed_tables import rows_of
from tests.support.shape_text import MYSQL

TABLES, MANY = 1_000, 4_000


def history_of(tables: int) -> SchemaHistory:
    return SchemaHistory("uuid", BinlogPosition("binlog.000001", 4), baseline(*rows_of(tables)))


def test_what_reading_them_costs() -> None:
    """10,000 tables took 1.0 s of CPU time and 29 MB at most, 5.6 MB in the end, besides the rows."""
    rows = rows_of(TABLES)
    # Python's own table of interned names is grown now: it doubles at a size that other tests decide.
    baseline(*rows)
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


@pytest.mark.parametrize("how", ["applied", pytest.param("loaded", marks=pytest.mark.thorough), "joined"])
def test_a_statement_that_the_history_is_ahead_of_looks_at_its_own_tables(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that begins in the past follows all statements of the log again: the history knows what each did."""
    history = history_of(MANY)
    for number in range(10):
        history.apply(alter(number), BinlogPosition("binlog.000001", 100 + number))
    if how == "loaded":
        history = SchemaHistory.from_lines(history.to_lines())
    if how == "joined":
        longer = history_of(MANY)
        longer.join(history)
        history = longer
    looked_at: list[object] = []
    look = Timeline.change_at

    def count(timeline: Timeline, place: tuple[int, int]) -> object:
        looked_at.append(timeline)
        return look(timeline, place)

    monkeypatch.setattr(Timeline, "change_at", count)
    for number in range(10):
        changes = history.apply(alter(number), BinlogPosition("binlog.000001", 100 + number))
        assert [change.table.name for change in changes] == [f"t{number % 5}"]
    assert len(looked_at) == 10


def alter(number: int) -> Statement:
    return Statement(f"ALTER TABLE t{number % 5} ADD z{number} INT", "shop", MYSQL)
