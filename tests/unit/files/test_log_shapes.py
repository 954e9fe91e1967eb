"""What statements of files cost that are followed for the names of tables."""

from __future__ import annotations

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import QueryEvent
from protocol.position import BinlogPosition
from replica.files.log_files import LogFile
from replica.files.log_shapes import LogShapes
from replica.schemas.timeline import SchemaHistory, Timeline
from replica.sql.token_reader import TableName

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
