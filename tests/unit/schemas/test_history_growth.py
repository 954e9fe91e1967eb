"""What a schema history costs where tables come and go, and where schemas are many: bytes and lines, counted."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from protocol.binlog.event import EventHeader
from protocol.binlog.events import QueryEvent
from protocol.position import BinlogPosition
from replica.config.options import Options
from replica.schemas import schema_keeper, timeline
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.log_places import file_of
from replica.schemas.logged_statements import LogTraits
from replica.schemas.past_history import LoggedStatement, history_before
from replica.schemas.scanned_log import ScannedLog
from replica.schemas.schema_keeper import SchemaKeeper
from replica.schemas.timeline import SchemaHistory, Timeline
from replica.schemas.touched import last_touches
from replica.sql.token_reader import TableName
from replica.transactions.boundary import Progress
from tests.support.shape_text import MYSQL

BEGIN = BinlogPosition("binlog.000001", 4)
TRAITS = LogTraits(is_mariadb=False, version=(9, 7))


@pytest.fixture(autouse=True)
def forgets_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_keeper, "_MOST_ADDED", 200)


def place(position: int) -> BinlogPosition:
    return BinlogPosition("binlog.000001", position)


def written(schemas: int) -> tuple[SchemaHistory, list[str]]:
    """A history of so many schemas, and its lines with those of some statements."""
    names = {f"tenant_{number}": "utf8mb4" for number in range(schemas)}
    history = SchemaHistory("uuid", BEGIN, Catalog({}, names))
    lines = list(history.to_lines())
    for number, sql in enumerate(
        [
            "CREATE TABLE t (a INT)",
            "ALTER TABLE t ADD b INT",
            "CREATE DATABASE new CHARACTER SET latin1",
            "ALTER DATABASE tenant_1 CHARACTER SET latin1",
            "DROP DATABASE tenant_2",
            "DROP TABLE t",
        ]
    ):
        changes = history.apply(Statement(sql, "tenant_0", MYSQL), place(100 + number))
        lines += history.change_lines(changes)
    return history, lines


def test_a_statement_writes_the_schemas_that_it_changes() -> None:
    """All of them were written with each statement: 12 KB for 500 schemas."""
    sizes = []
    for schemas in (10, 1000):
        history, lines = written(schemas)
        assert SchemaHistory.from_lines(lines).catalog.schemas == history.catalog.schemas
        sizes.append(sum(map(len, lines[1:])))
    assert sizes[0] == sizes[1]


def test_a_table_is_made_and_dropped_again_and_again() -> None:
    """All states of the table were copied to add one: 40,000 of each took 40 s, and 22 s to load."""
    timeline, peaks = Timeline((1, 4), None), []
    for number in range(20_000):
        timeline.put((1, 100 + number), None)
    tracemalloc.start()
    try:
        for number in range(20_000, 20_100):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            timeline.put((1, 100 + number), None)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert sorted(peaks)[len(peaks) // 2] < 1000


def test_a_table_that_is_read_anew_is_written_alone() -> None:
    """All tables were written again for each: 78 MB when 1,000 of 2,000 were asked for after a GRANT."""
    sizes = []
    for tables in (10, 1_000):
        shape, other = a_shape(), TableName("s", "other")
        named = {TableName("s", f"t{number}"): shape for number in range(tables)}
        history = SchemaHistory("uuid", BEGIN, Catalog(named))
        lines = list(history.to_lines())
        begun = len(lines)
        for table, position in ((other, 500), (TableName("s", "t1"), 600), (other, 600)):
            history.set_at(table, place(position), shape if table is other else None)
            history.advance(place(position))
            lines += history.set_lines(table, place(position))
        sizes.append(sum(map(len, lines[begun:])))
        again = SchemaHistory.from_lines(lines)
        assert {table: list(states) for table, states in again.tables.items()} == {
            table: list(states) for table, states in history.tables.items()
        }
        assert again.head == place(600)
    assert sizes[0] == sizes[1]


def keeper_of(history: SchemaHistory, **options: Any) -> SchemaKeeper:
    keeper = SchemaKeeper(Options.build("mysql://repl@127.0.0.1", options))
    keeper.tracker.use(TRAITS, history)
    return keeper


def churn(count: int) -> Iterator[QueryEvent]:
    """New tables that are dropped again, each with a column of its own."""
    for number in range(count):
        for at, sql in enumerate(
            (f"CREATE TABLE w{number} (id INT, c{number} INT)", f"DROP TABLE w{number}")
        ):
            begin = 1000 + number * 200 + at * 100
            header = EventHeader(0, 2, 1, 100, begin + 100, 0)
            yield QueryEvent(header, "binlog.000001", begin, 1, 0, 0, "s", sql, b"")


async def follow(keeper: SchemaKeeper, count: int, *, boundary: bool = True) -> int:
    """The states that are kept when so many tables have come and gone."""
    history = keeper.tracker.history
    assert history is not None
    for event in churn(count):
        keeper.tracker.follow(event)
        progress = Progress("binlog.000001", event.position, None, has_gtids=False)
        await keeper.save(progress if boundary else None)
    return history.size


async def test_a_stream_without_a_store_forgets_tables_that_are_gone() -> None:
    """Each took 2 KB for as long as the stream ran."""
    sizes, known = [], []
    for count in (300, 900):
        keeper = keeper_of(SchemaHistory("uuid", BEGIN, Catalog({TableName("s", "t"): a_shape()})))
        sizes.append(await follow(keeper, count))
        history = keeper.tracker.history
        assert history is not None
        known.append(len(history.catalog._shared._known))
        assert history.begin > BEGIN
        assert keeper.tracker.begin == history.begin
        assert history.shape_at(TableName("s", "t"), history.head) == a_shape()
    assert max(sizes) < 800
    assert max(known) < 800


def test_names_that_tables_had_once_are_forgotten() -> None:
    """Tables that are filled under a name of their own and then renamed left the columns of each for ever."""
    history = SchemaHistory("uuid", BEGIN, Catalog({}))
    for number in range(100):
        for at, sql in enumerate(
            (f"CREATE TABLE w{number} (id INT)", f"RENAME TABLE w{number} TO t", "DROP TABLE t")
        ):
            history.apply(Statement(sql, "s", MYSQL), place(100 + 10 * number + at))
    assert len(history.catalog.left) == 100
    history.prune(place(1000))
    assert len(history.catalog.left) == 10


async def test_nothing_is_forgotten_before_the_boundary_is_known() -> None:
    """The stream goes on there after a lost connection. At first on another server it is a place of the old one."""
    keeper = keeper_of(SchemaHistory("uuid", BEGIN))
    assert await follow(keeper, 300, boundary=False) == 900
    keeper._moved_at = "binlog.000001", 40_000
    await keeper.save(Progress("binlog.000001", 40_000, None, has_gtids=False))
    assert keeper.tracker.history is not None
    assert keeper.tracker.history.begin == BEGIN
    await keeper.save(Progress("binlog.000001", 40_100, None, has_gtids=False))
    assert keeper.tracker.history.begin == place(40_100)


async def test_asking_for_names_at_each_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question walked over all statements about the table: 400 of them compared 324,000 places."""
    table, costs = TableName("s", "t"), []
    for count in (100, 400):
        history = SchemaHistory("uuid", BEGIN)
        history.apply(Statement("CREATE TABLE t (a INT)", "s", MYSQL), place(100))
        for number in range(1, count):
            history.apply(Statement(f"ALTER TABLE t ADD c{number} INT", "s", MYSQL), place(100 + number))
        made: list[BinlogPosition] = []
        monkeypatch.setattr(timeline, "file_of", lambda *at, made=made: made.append(file_of(*at)) or made[-1])
        reader: Any = None
        for number in range(count):
            await ScannedLog().find_lost(reader, history, table, place(100 + number))
            later = history.next_change(table, place(100 + number))
            assert later == (place(101 + number) if number < count - 1 else None)
        costs.append(len(made) / count)
    assert costs[1] < 1.2 * costs[0], costs


def a_shape() -> Any:
    history = SchemaHistory("uuid", BEGIN)
    [change] = history.apply(Statement("CREATE TABLE t (a INT, b TEXT)", "s", MYSQL), place(100))
    return change.after


class CountedStore:
    """Counts the characters that it is given."""

    def __init__(self) -> None:
        self.written = 0

    def load(self) -> None:
        return None

    def save(self, lines: Sequence[str]) -> None:
        self.written += sum(map(len, lines))

    append = save


async def test_what_a_statement_writes_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that keeps its log has the store keep all states, and it was written anew after 2,000 lines of any."""

    async def forget_nothing(keeper: SchemaKeeper) -> None:
        pass

    monkeypatch.setattr(SchemaKeeper, "_forget_purged", forget_nothing)
    costs = []
    for count in (200, 800):
        store = CountedStore()
        keeper = keeper_of(SchemaHistory("uuid", BEGIN), schemas=store)
        await follow(keeper, count)
        costs.append(store.written / count)
    assert costs[1] < 1.5 * costs[0], costs


class CountedTables(list[TableName]):
    """Counts the walks over it."""

    walks = 0

    def __iter__(self) -> Iterator[TableName]:
        self.walks += 1
        return super().__iter__()


def test_the_last_statement_about_each_table() -> None:
    """A copy's plan walked over all tables for each statement: 130 s with 6,000 tables and 30,000 statements."""
    tables = CountedTables(TableName("a" if number % 2 else "b", f"t{number}") for number in range(6))
    statements = [
        "ALTER TABLE a.t1 ADD x INT",
        "ALTER TABLE b.t2 ADD x INT",
        "DROP DATABASE b",
        "ALTER TABLE b.t4 ADD x INT",
        "RENAME TABLE a.t1 TO a.t3",
        "CREATE TABLE a.other (id INT)",
    ]
    found = last_touches(
        ((Statement(sql, "s", MYSQL), number) for number, sql in enumerate(statements)), tables
    )
    assert {str(table): number for table, number in found.items()} == {
        "b.t0": 2,
        "b.t2": 2,
        "b.t4": 3,
        "a.t1": 4,
        "a.t3": 4,
    }
    assert tables.walks == 1


@pytest.mark.parametrize(
    "frame",
    [("DROP DATABASE s", "CREATE DATABASE s"), ("DROP DATABASE s", "CREATE DATABASE IF NOT EXISTS s")],
)
@pytest.mark.parametrize("create", ["CREATE TABLE", "CREATE TABLE IF NOT EXISTS"])
def test_the_past_of_a_schema_that_is_made_again_and_again(
    frame: tuple[str, str], create: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each DROP DATABASE lost the tables that any statement names: 200 times 20 new tables took 8 s."""
    calls = 0
    put = Catalog.set

    def counted(catalog: Catalog, *args: Any) -> None:
        nonlocal calls
        calls += 1
        put(catalog, *args)

    monkeypatch.setattr(Catalog, "set", counted)
    costs = []
    for cycles in (10, 40):
        sqls = [
            sql
            for cycle in range(cycles)
            for sql in (*frame, *(f"{create} s.t{cycle}_{number} (id INT)" for number in range(5)))
        ]
        logged = [
            LoggedStatement(place(100 + number), Statement(sql, "s", MYSQL))
            for number, sql in enumerate(sqls)
        ]
        now = SchemaHistory("uuid", BEGIN)
        for each in logged:
            now.apply(each.statement, each.end)
        calls = 0
        past = history_before("uuid", BEGIN, now.catalog, logged)
        costs.append(calls / cycles)
        first, last = TableName("s", "t0_1"), TableName("s", f"t{cycles - 1}_1")
        # Before the first DROP DATABASE any table may have been there.
        assert isinstance(past.shape_at(last, BEGIN), Unknown)
        assert isinstance(past.shape_at(TableName("s", "other"), BEGIN), Unknown)
        assert past.shape_at(last, place(100)) is None
        assert past.shape_at(last, past.head) == now.catalog.get(last)
        assert past.shape_at(first, past.head) is None
    assert costs[1] < 1.2 * costs[0], costs
