"""A source of very many tables: what they cost when they are read, and when statements follow."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from protocol.position import BinlogPosition
from replica.schemas.baseline import baseline
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.past_history import LoggedStatement, history_before
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory, Timeline
from replica.sql.token_reader import TableName
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


class Counted(TableName):
    """A table's name that counts how often somebody asks for its schema."""

    looks = 0

    @property
    def schema(self) -> str:
        Counted.looks += 1
        return self[0]


def test_a_schema_that_is_dropped_is_found_without_a_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each DROP DATABASE walked over the tables of all schemas, and over them again where the past is looked for."""
    monkeypatch.setattr(Counted, "looks", 0)
    tables: dict[TableName, Shape | Unknown] = {
        Counted("shop", f"t{number}"): Unknown("as it is") for number in range(MANY)
    }
    history = SchemaHistory("uuid", place(0), Catalog(tables))
    logged: list[LoggedStatement] = []
    for number in range(100):
        for sql in (f"CREATE DATABASE x{number}", "CREATE TABLE t (a INT)", f"DROP DATABASE x{number}"):
            statement = Statement(sql, f"x{number}", MYSQL)
            logged.append(LoggedStatement(place(len(logged) + 1), statement))
            history.apply(statement, logged[-1].end)
        assert history.shape_at(TableName(f"x{number}", "t"), logged[-2].end) is not None
        assert history.shape_at(TableName(f"x{number}", "t"), logged[-1].end) is None
    past = history_before("uuid", place(0), history.catalog, logged)
    assert past.shape_at(TableName("x7", "t"), logged[7 * 3 + 1].end) is not None
    assert past.shape_at(TableName("x7", "t"), logged[7 * 3 + 2].end) is None
    # Each of the catalogs is looked through once: the history's, and those before and behind the statements.
    assert Counted.looks <= 4 * MANY


def place(number: int) -> BinlogPosition:
    return BinlogPosition("binlog.000001", 4 + 100 * number)
