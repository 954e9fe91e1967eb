"""The work of a copy does not grow with the number of its tables: calls are counted, and statements."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType, SimpleNamespace

import pytest

from protocol.binlog.events import Event, UpdateRowsEvent, XidEvent
from protocol.gtid import GtidSet
from protocol.rows.table import Table
from replica.schemas import table_shapes
from replica.snapshot.marks import GtidMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.tables_at_work import CopyTotals
from replica.snapshot.transaction_touches import KeyColumns
from replica.snapshot.window import Window
from replica.sql.token_reader import TableName
from replica.transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRowsEvent
from tests.support.grouped_events import AT
from tests.support.scripted_source import COLUMNS, query

GTIDS = GtidSet("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
PLACE = Place("binlog.000001", 500, GTIDS)
KEY = KeyColumns(("id",), (0,))
CONNECTIONS = 2
ROW = (7, 2, 3)


def identity(number: int) -> tuple[str, str]:
    return "shop", f"t{number:05d}"


def table(number: int) -> Table:
    return Table(*identity(number), COLUMNS, ("id",), "log")


def read(window: Window, of: Table) -> None:
    """All steps of a window: the table has one row."""
    assert window.take_low(GtidMark(GTIDS))
    window.take_view()
    window.take_high(PLACE)
    window.take_rows(of, (0,), [ROW], None)
    window.close()


class Source:
    """A copy of so many tables, driven to its end beside a writer."""

    def __init__(self, tables: int) -> None:
        self.copy = SnapshotCopy()
        self.tables = [table(number) for number in range(tables)]
        self.by_name = {(one.schema, one.name): one for one in self.tables}
        for number in range(tables):
            self.copy.add(identity(number), KEY, PLACE)
        self.rounds = 0

    def copy_all(self) -> list[Event]:
        events: list[Event] = []
        while self.copy.is_active:
            self.step(events)
        return events

    def step(self, events: list[Event]) -> None:
        """A transaction, what two connections read meanwhile, and all that is due."""
        self.rounds += 1
        touched = self.tables[self.rounds * 7919 % len(self.tables)]
        update = UpdateRowsEvent(*AT, 1, touched, 0, b"", [(ROW, ROW)])
        self.copy.settle([query("BEGIN"), update, XidEvent(*AT, 1)])
        for _ in range(CONNECTIONS):
            found = next(self.copy.windows(PLACE, CONNECTIONS + 3), None)
            if found is not None:
                read(found[1], self.by_name[found[0]])
        while (event := self.copy.deliver(PLACE)) is not None:
            self.copy.settle([event])
            events.append(event)


def calls_of(tables: int) -> int:
    """The calls of functions while so many tables are copied."""
    source, calls = Source(tables), 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        source.copy_all()
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_for_a_table_does_not_grow_with_the_number_of_tables() -> None:
    few, many = 50, 1000
    assert calls_of(many) / many < 1.2 * calls_of(few) / few


def test_every_table_is_copied_and_counted_once() -> None:
    source = Source(300)
    events = source.copy_all()
    for kind in (SnapshotRowsEvent, SnapshotCompleteEvent):
        names = [event.table.name for event in events if isinstance(event, kind)]
        assert sorted(names) == [one.name for one in source.tables]
    progress = [one.progress for one in source.copy.tables.values()]
    counts = [one.counts for one in source.copy.tables.values()]
    assert source.copy.totals == CopyTotals(
        sum(one.is_whole for one in progress),
        sum(one.rows for one in progress),
        sum(one.chunks for one in counts),
        sum(one.corrected for one in counts),
    )
    assert source.copy.totals.complete == source.copy.totals.rows == 300
    assert source.copy.in_flight == 0


def test_a_table_that_is_copied_again_counts_once() -> None:
    source = Source(20)
    source.copy_all()
    source.copy.add(identity(3), KEY, PLACE)
    assert source.copy.is_active
    assert source.copy.totals.complete == 19
    source.copy_all()
    assert source.copy.totals.complete == 20
    assert source.copy.key_names == {identity(number): ("id",) for number in range(20)}


class _Server:
    """Answers nothing, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.handshake = SimpleNamespace(is_mariadb=False, version=(9, 7, 0))

    async def query(self, sql: str) -> Sequence[tuple[str, ...]]:
        self.asked.append(sql)
        return []


@pytest.mark.parametrize(
    ("tables", "statements"), [(1, 3), (15, 45), (16, 3), (500, 3), (501, 6), (2000, 12)]
)
async def test_the_shapes_of_many_tables_are_asked_for_together(tables: int, statements: int) -> None:
    server = _Server()
    names = [TableName(*identity(number)) for number in range(tables)]
    await table_shapes.read_shapes(server, names)  # type: ignore[arg-type]
    assert len(server.asked) == statements
    whole = " ".join(server.asked)
    assert all(whole.count(name.name.encode().hex().upper()) == 3 for name in names)
