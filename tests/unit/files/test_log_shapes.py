"""What statements of files cost that are followed for the names of tables."""

from __future__ import annotations

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import QueryEvent
from protocol.position import BinlogPosition
from replica.files.log_files import LogFile
from replica.files.log_shapes import LogShapes
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory, Timeline
from replica.sql.token_reader import TableName
from tests.support.shape_text import T, catalog_of, names

TRANSACTIONS = 100


def statement(number: int, sql: str) -> QueryEvent:
    header = EventHeader(0, 2, 1, 100, 0, 0)
    return QueryEvent(header, "binlog.000001", 100 * number, 1, 0, 0, "shop", sql, b"")


def test_a_transaction_does_not_look_at_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the BEGIN of each the tables of the log were listed."""
    listed: list[int] = []

    def tables(history: SchemaHistory) -> dict[TableName, Timeline]:
        listed.append(1)
        return dict(history._timelines)

    monkeypatch.setattr(SchemaHistory, "tables", property(tables))
    history = SchemaHistory("", BinlogPosition("binlog.000001", 4))
    shapes = LogShapes(history, lambda files: iter(()), "positional", is_partial=True)
    shapes.begin([LogFile("binlog.000001", None)], [])
    shapes.follow(statement(1, "CREATE TABLE t (a INT)"), None)
    for number in range(TRANSACTIONS):
        shapes.follow(statement(2 + number, "BEGIN"), None)
    assert listed == []
    # This one may have found a table that the files do not tell of.
    shapes.follow(statement(TRANSACTIONS + 2, "CREATE TABLE IF NOT EXISTS u (a INT)"), None)
    assert len(listed) == 1


def test_statements_in_front_of_the_files_are_read_once() -> None:
    """Each reading went on from the last statement before them."""
    history = SchemaHistory("", BinlogPosition("binlog.000001", 4))
    files = [LogFile(f"binlog.00000{number}", f"/nowhere/{number}") for number in (1, 2, 3)]
    scanned: list[list[str]] = []

    def scan(wanted: object) -> object:
        assert isinstance(wanted, list)
        scanned.append([file.name for file in wanted])
        return iter([statement(1, "CREATE TABLE t (a INT)"), statement(2, "BEGIN")])

    shapes = LogShapes(history, scan, "error")  # type: ignore[arg-type]
    for _ in range(3):
        shapes.begin(files[2:], files)
    assert scanned == [["binlog.000001", "binlog.000002", "binlog.000003"]]
    assert history.head == BinlogPosition("binlog.000003", 4)


def test_before_the_schema_a_statement_may_mean_a_table_in_other_letters() -> None:
    """With lower_case_table_names=1, which only a store tells. The rows before had the names from behind it."""
    place = BinlogPosition("binlog.000001", 1000)
    history = SchemaHistory("", place, catalog_of("CREATE TABLE t (c INT)", "CREATE TABLE u (c INT)"))
    sql = ("SHOP.T RENAME COLUMN a TO b", "t RENAME COLUMN b TO c", "u RENAME COLUMN b TO c")
    log = [statement(number, f"ALTER TABLE {text}") for number, text in enumerate(sql, 2)]
    shapes = LogShapes(history, lambda files: iter(log), "positional")
    past, _ = shapes.read_whole([LogFile("binlog.000001", "/nowhere/1")])
    told = {
        (table, position): names(state) if isinstance(state, Shape) else "unknown"
        for table in ("t", "u")
        for position in (299, 300, 399, 400, 500)
        for state in [past.shape_at(T._replace(name=table), BinlogPosition("binlog.000001", position))]
    }
    assert told == {
        ("t", 299): "unknown",
        ("t", 300): "b",
        ("t", 399): "b",
        ("t", 400): "c",
        ("t", 500): "c",
        ("u", 299): "b",
        ("u", 300): "b",
        ("u", 399): "b",
        ("u", 400): "b",
        ("u", 500): "c",
    }
