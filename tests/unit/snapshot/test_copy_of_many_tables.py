"""The work of a copy does not grow with the number of its tables: calls are counted, and statements."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Sequence
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from protocol.binlog.events import Event, UpdateRowsEvent, XaPrepareEvent, XidEvent
from protocol.errors import ServerError, StatementFormatError
from protocol.gtid import GtidSet
from protocol.rows.table import Table
from replica.config.options import Options
from replica.config.reconnect import FailureCount
from replica.schemas import table_shapes
from replica.snapshot import copier, named_tables, table_list
from replica.snapshot.copy_outline import CopyOutline
from replica.snapshot.marks import GtidMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.statement_effects import Coverage
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.tables_at_work import CopyTotals
from replica.snapshot.transaction_touches import KeyColumns
from replica.snapshot.window import Window
from replica.source.statement_answers import Answer, Question
from replica.sql.token_reader import TableName
from replica.stream.batch import Account
from replica.stream.stream_copy import StreamCopy
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


def calls_of(source: Source) -> int:
    """The calls of functions while all tables are copied."""
    calls = 0

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
    assert calls_of(Source(many)) / many < 1.2 * calls_of(Source(few)) / few


def test_nor_does_it_where_all_tables_begin_anew() -> None:
    """Each was looked at for each other one, until the consumer had heard of all of them: 12,400 calls for each."""
    calls = []
    for tables in (50, 500):
        source = Source(tables)
        source.copy_all()
        source.copy.settle([query("XA COMMIT X'61',X'',1")])
        calls.append(calls_of(source) / tables)
        assert source.copy.totals.complete == tables
    assert calls[1] < 1.2 * calls[0]


def test_the_keys_of_a_prepared_transaction_are_copied_once() -> None:
    """They were copied for each checkpoint, as long as the transaction was prepared."""
    source = Source(3)
    update = UpdateRowsEvent(*AT, 1, source.tables[1], 0, b"", [(ROW, ROW)])
    source.copy.settle([query("XA START X'61',X'',1"), update, XaPrepareEvent(*AT, False, 1, b"a", b"")])
    [first] = source.copy.state().prepared.values()
    ahead = [query("BEGIN"), update, XidEvent(*AT, 1)]
    [second] = source.copy.state(ahead).prepared.values()
    assert first is second
    assert first == {identity(1): ((ROW[0],),)}
    source.copy.settle([query("XA COMMIT X'61',X'',1")])
    assert not source.copy.state().prepared


def test_what_a_table_that_waits_takes() -> None:
    """1.6 KB, of which half was room for 64 windows."""
    tables = 1_000
    copy, names = SnapshotCopy(), [identity(number) for number in range(tables)]
    tracemalloc.start()
    try:
        for name in names:
            copy.add(name, KeyColumns(("id",), (0,)), PLACE)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size / tables < 1_200


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


@pytest.mark.parametrize("name", ["t{:05d}", "t-{:05d}"])
def test_a_statement_without_its_rows_is_compared_with_the_tables_that_it_may_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them compiled two patterns, and searched all of the text."""
    searched = 0
    has_word = named_tables._has_word

    def counted(text: str, word: str) -> bool:
        nonlocal searched
        searched += 1
        return has_word(text, word)

    monkeypatch.setattr(named_tables, "_has_word", counted)
    copy = SnapshotCopy()
    for number in range(1_000):
        copy.add(("shop", name.format(number)), KEY, PLACE)
    copy.settle([query("INSERT INTO shop.other SELECT * FROM T00007x JOIN t")])
    assert searched < 10
    with pytest.raises(StatementFormatError, match=f"shop.{name.format(7)}"):
        copy.settle([query(f"INSERT INTO shop.other SELECT * FROM `{name.format(7).upper()}` JOIN b")])


@pytest.mark.parametrize("whole", [0, 1])
def test_a_checkpoint_shows_anew_what_has_changed(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables were looked through for each transaction, also when their copies were long complete."""
    shown = 0
    from_place = TableProgress.from_place

    def counted(progress: TableProgress) -> TableProgress:
        nonlocal shown
        shown += 1
        return from_place(progress)

    monkeypatch.setattr(TableProgress, "from_place", counted)
    source = Source(200)
    if whole:
        source.copy_all()
    first = source.copy.state()
    assert shown == 200
    for number in range(50):
        update = UpdateRowsEvent(*AT, 1, source.tables[number], 0, b"", [(ROW, ROW)])
        events = [query("BEGIN"), update, XidEvent(*AT, 1)]
        assert source.copy.state(events).tables is first.tables
        source.copy.settle(events)
        assert source.copy.state().tables is first.tables
    assert shown == 200
    source.copy.coverage = Coverage(restarts=True)
    ddl = [query("TRUNCATE shop.t00007")]
    ahead = source.copy.state(ddl)
    source.copy.settle(ddl)
    for state in (ahead, source.copy.state()):
        assert [table for table, one in state.tables.items() if one.is_void] == [identity(7)]
        assert [*state.tables] == [*first.tables]
    assert not first.tables[identity(7)].is_void


def test_a_checkpoint_costs_what_has_changed() -> None:
    """In the middle of a copy each looked at all tables seven times: 31,000 calls and 26 ms for 10,000 of them."""
    calls = []
    for tables in (100, 1_000):
        source = Source(tables)
        source.copy.has_all = True
        source.copy.state().to_text()
        made = 0

        def count(frame: FrameType, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        for number in range(30):
            source.step([])
            ahead: list[Event] = [query(f"CREATE TABLE shop.n{number} (a INT)"), query("DROP TABLE shop.n1")]
            sys.setprofile(count)
            try:
                source.copy.state().to_text()
                source.copy.state(ahead).to_text()
            finally:
                sys.setprofile(None)
            source.copy.settle(ahead)
        calls.append(made / 60)
        state = source.copy.state()
        assert state.outline == CopyOutline.of(state.tables)
    assert calls[1] < 1.2 * calls[0]


def test_an_empty_table_is_shown_as_read() -> None:
    """Nothing is delivered of it before its end."""
    source = Source(2)
    source.copy.state()
    [(name, window)] = source.copy.windows(PLACE, 1)
    assert window.take_low(GtidMark(GTIDS))
    window.take_view()
    window.take_high(PLACE)
    window.take_rows(source.tables[0], (0,), [], None)
    window.close()
    assert isinstance(source.copy.deliver(PLACE), SnapshotCompleteEvent)
    state = source.copy.state()
    assert state.tables == {name: one.progress for name, one in source.copy.tables.items()}
    assert state.outline == CopyOutline.of(state.tables)
    assert state.tables[name].is_read


class _Server:
    """Answers nothing, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waits = 0
        self.handshake = SimpleNamespace(is_mariadb=False, version=(9, 7, 0))

    async def query(self, sql: str, _columns: int = 0) -> Sequence[tuple[str, ...]]:
        self.asked.append(sql)
        self.waits += 1
        return []

    async def query_each(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += [question.sql for question in questions]
        self.waits += 1
        return [[] for _ in questions]


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


async def test_tables_of_many_schemas_are_asked_for_without_a_wait_for_each() -> None:
    """A table in each of 5,000 schemas took 15,000 round trips before the first row of a copy."""
    server = _Server()
    await table_shapes.read_shapes(server, [TableName(f"s{number}", "t") for number in range(1_000)])  # type: ignore[arg-type]
    assert len(server.asked) == 3_000
    assert server.waits <= 31


@pytest.mark.parametrize("lacks", ["COLUMNS", "STATISTICS"])
async def test_a_table_that_is_made_anew_between_the_queries_is_read_again(lacks: str) -> None:
    """It had no key: "there is no key to copy by" ended the stream. Or it had no columns, and counted as dropped."""
    answers = {
        "information_schema.TABLES": ("shop", "t", "BASE TABLE", "InnoDB", "utf8mb4_bin"),
        "information_schema.COLUMNS": ("shop", "t", "1", "id", "int", "int", "NO", None, "PRI", "", ""),
        "information_schema.STATISTICS": ("shop", "t", "PRIMARY", "1", "id", None, "0", "BTREE"),
    }

    class Torn(_Server):
        async def query_each(self, questions: Sequence[Question]) -> list[Answer]:
            await super().query_each(questions)
            return [self._answer(question.sql) for question in questions]

        def _answer(self, sql: str) -> list[Any]:
            [(name, row)] = [one for one in answers.items() if f"FROM {one[0]}" in sql]
            return [] if self.waits == 1 and lacks in name else [row]

    [shape] = (await table_shapes.read_shapes(Torn(), [TableName("shop", "t")])).values()  # type: ignore[arg-type]
    assert shape.primary_key == ("id",)


async def test_a_table_that_comes_in_is_listed_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tables of the source were listed for each of them: 10,000 rows, and 1,000 times that for 1,000 tables."""
    copy, name, server = SnapshotCopy(), identity(7), _Server()
    copy.add(name, KeyColumns((), ()), PLACE)

    async def read_plans(*_: object) -> object:
        table = SimpleNamespace(schema=name[0], name=name[1])
        return {name: SimpleNamespace(key_names=KEY.names, table=table)}

    monkeypatch.setattr(copier, "read_plans", read_plans)
    monkeypatch.setattr(copier, "key_columns_of", lambda plan: KEY)
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    reading = copier.Copier(options, copy, lambda: PLACE)
    monkeypatch.setattr(reading, "_source", object())
    assert await reading._plan(server, name) is None  # type: ignore[arg-type]
    [listing] = server.asked
    assert name[1].encode().hex().upper() in listing


async def test_a_plan_that_was_read_early_may_be_outdated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is gone is a reason to read the plan again, but not to fail with the same SELECT for ever."""
    monkeypatch.setattr(copier, "_PAUSES", (0,))
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    reading, table = copier.Copier(options, SnapshotCopy(), lambda: PLACE), identity(1)
    error = ServerError(1054, "42S22", "Unknown column 'b' in 'field list'")
    for number, columns in enumerate(["a, b", "a, c", "a, c"]):
        sql = f"SELECT {columns} FROM shop.t00001"
        plan = SimpleNamespace(rows_sql=lambda keys, limit, sql=sql: sql)
        reading._plans[table] = plan, 0  # type: ignore[assignment]
        if number < 2:
            await reading._after(error, table, FailureCount())
            assert table not in reading._plans
        else:
            with pytest.raises(ServerError, match="Unknown column"):
                await reading._after(error, table, FailureCount())


async def test_a_table_that_is_altered_while_its_plan_is_read_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plan is outdated when it comes: it is read again, and the table does not count as dropped."""
    copy, name, asked = SnapshotCopy(), identity(1), []
    copy.add(name, KEY, PLACE)
    [(_, window)] = copy.windows(PLACE, 1)

    async def read_plans(session: object, source: object, tables: Sequence[str], *_: object) -> object:
        asked.append(list(tables))
        if len(asked) == 1:
            # The stream comes to the statement.
            copy.settle([query("ALTER TABLE shop.t00001 ADD b INT")])
        return {name: SimpleNamespace(key_names=KEY.names)}

    monkeypatch.setattr(copier, "read_plans", read_plans)
    monkeypatch.setattr(copier, "key_columns_of", lambda plan: KEY)
    reading = copier.Copier(
        Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"}), copy, lambda: PLACE
    )
    monkeypatch.setattr(reading, "_source", object())
    await reading._read(_Server(), [(name, window)])  # type: ignore[arg-type]
    assert len(asked) == 2
    assert window.is_void
    assert not copy.tables[name].is_dropped


def test_tables_whose_first_rows_are_read_together() -> None:
    """Those that have begun, and those that are read by themselves, are no part of it."""
    source = Source(6)
    copy = source.copy
    copy.tables[identity(1)].progress = TableProgress((b"1",), (b"9",))
    copy.add_ended(identity(2), TableProgress(rows=1, is_read=True, is_whole=True))
    [(first, _)] = list(islice(copy.windows(PLACE, 9), 1))
    assert first == identity(0)
    found = list(copy.first_windows(PLACE, {identity(4)}))
    assert [name for name, _ in found] == [identity(3), identity(5)]
    assert {window.what for _, window in found} == {"first"}
    assert list(copy.waiting) == [identity(4)]


async def test_tables_that_are_read_together_are_planned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind each hundredth table 15 tables asked for their plans one by one: 3,200 statements for 10,000 tables."""
    copy, asked = SnapshotCopy(), list[int]()
    for number in range(400):
        copy.add(identity(number), KEY, PLACE)

    async def read_plans(session: object, source: object, tables: Sequence[str], *_: object) -> object:
        asked.append(len(tables))
        return {name: SimpleNamespace(key_names=KEY.names) for name in tables}

    monkeypatch.setattr(copier, "read_plans", read_plans)
    monkeypatch.setattr(copier, "key_columns_of", lambda plan: KEY)
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    reading = copier.Copier(options, copy, lambda: PLACE)
    monkeypatch.setattr(reading, "_source", object())

    async def end(session: object, work: Sequence[tuple[tuple[str, str], object, Window]]) -> None:
        for name, _, _ in work:
            copy.tables[name].void()
            copy._set(name, TableProgress(rows=1, is_read=True, is_whole=True))

    async def alone(session: object, name: tuple[str, str], plan: object, window: Window) -> None:
        await end(session, [(name, plan, window)])

    monkeypatch.setattr(reading, "_read_together", end)
    monkeypatch.setattr(reading, "_read_alone", alone)
    while found := reading._next():
        await reading._read(_Server(), found)  # type: ignore[arg-type]
    assert copy.totals.complete == 400
    assert sum(asked) == 400
    assert len(asked) <= 4


def test_a_table_whose_copy_begins_anew_costs_the_same_beside_a_prepared_transaction() -> None:
    """Each of 10,000 tables copied what is known of all others, for each transaction that was prepared."""
    source = Source(3)
    source.copy_all()
    update = UpdateRowsEvent(*AT, 1, source.tables[1], 0, b"", [(ROW, ROW)])
    source.copy.settle([query("XA START X'61',X'',1"), update, XaPrepareEvent(*AT, False, 1, b"a", b"")])
    [touching] = source.copy.touches.prepared.values()
    [kept] = source.copy.state().prepared.values()
    before, known = touching.touched, dict(kept)
    source.copy.settle([query("XA COMMIT X'62',X'',1")])
    [touching] = source.copy.touches.prepared.values()
    assert touching.touched is before
    assert [*touching.touched] == list(source.by_name)
    assert kept == known
    assert [*source.copy.state().prepared.values()] != [known]


async def test_a_copy_that_begins_holds_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all tables were held, for their keys: 5 KB for each of 12 columns."""
    held: list[int] = []

    async def read_plans(
        session: object, source: object, tables: Sequence[tuple[str, str]], *_: object
    ) -> object:
        held.append(len(tables))
        return {name: SimpleNamespace(key_names=KEY.names) for name in tables}

    monkeypatch.setattr(table_list, "read_plans", read_plans)
    monkeypatch.setattr(table_list, "key_columns_of", lambda plan: KEY)
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    names = [identity(number) for number in range(1_200)]
    nobody: Any = SimpleNamespace()
    found = await StreamCopy(options, Account(()))._read_keys(nobody, nobody, names)
    assert {name: key.names for name, key in found.items()} == dict.fromkeys(names, KEY.names)
    assert max(held) <= 500
