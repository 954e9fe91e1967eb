"""Each part of the log is read once for all tables, and a table's past is made of the statements that it needs."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from protocol.errors import PositionPastEndError
from protocol.position import BinlogPosition
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.past_history import LoggedStatement, history_before
from replica.schemas.scanned_log import ScannedLog
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.dialect import Dialect
from replica.sql.token_reader import TableName
from tests.support.past_tables import is_accepted, is_table
from tests.support.random_ddl import RandomDdl
from tests.support.shape_text import MARIADB, MYSQL, T

TABLES = 50
ROUNDS, MOST_ROUNDS, STATEMENTS = 8, 200, 60
#: Statements whose effect depends on other tables, or on the schema.
OTHERS = (
    "DROP DATABASE two",
    "CREATE DATABASE two CHARACTER SET greek",
    "ALTER DATABASE one CHARACTER SET latin2",
    "CREATE TABLE IF NOT EXISTS two.t1 LIKE one.t1",
    "CREATE TABLE two.t8 LIKE one.t2",
    "RENAME TABLE one.t1 TO two.t9, one.t2 TO one.t1",
    "RENAME TABLE two.t9 TO one.t2",
    "DROP VIEW IF EXISTS one.t1, two.t1",
    "ALTER TABLE one.`\udcff` ADD b INT",
)


def place(position: int, file: str = "binlog.000001") -> BinlogPosition:
    return BinlogPosition(file, position)


def logged(number: int, sql: str, dialect: Dialect = MYSQL) -> LoggedStatement:
    return LoggedStatement(place(100 * (number + 1)), Statement(sql, "shop", dialect, "latin1"))


class Reader:
    """Reads a log of these statements; ``scans`` are the parts that were read."""

    def __init__(self, log: list[LoggedStatement]) -> None:
        self._log = log
        #: Files end there: no part can be read from behind it.
        self.ends: dict[str, int] = {}
        self.scans: list[tuple[BinlogPosition, BinlogPosition]] = []

    async def statements(self, begin: BinlogPosition, end: BinlogPosition) -> list[LoggedStatement]:
        if begin.position > self.ends.get(begin.file, begin.position):
            raise PositionPastEndError(1236, "HY000", f"{begin} is past the end of the file")
        self.scans.append((begin, end))
        return [one for one in self._log if begin < one.end <= end]


def made_and_dropped(count: int) -> list[LoggedStatement]:
    made = [logged(number, f"CREATE TABLE t{number} (a INT)") for number in range(count)]
    return made + [logged(count + number, f"DROP TABLE t{number}") for number in range(count)]


async def test_a_log_that_has_lost_its_end_in_a_crash_is_read_again() -> None:
    """The source begins a new file then. It was asked for a place of the lost end, which ended the stream."""
    source, scanned = (
        Reader([logged(1, "CREATE TABLE a (a INT)"), logged(4, "CREATE TABLE lost (a INT)")]),
        ScannedLog(),
    )
    reader: Any = source
    assert len(await scanned.between(reader, place(4), place(600))) == 2
    source.ends["binlog.000001"] = 400
    source._log[1:] = [LoggedStatement(place(300, "binlog.000002"), Statement("DROP TABLE a", "shop", MYSQL))]
    found = await scanned.between(reader, place(4), place(300, "binlog.000002"))
    assert [one.statement.sql for one in found] == ["CREATE TABLE a (a INT)", "DROP TABLE a"]
    assert len(source.scans) == 2


async def test_the_log_is_read_once_for_all_tables() -> None:
    """Each table read it from the stream's place to the end: tables times log."""
    log = made_and_dropped(TABLES)
    source, scanned = Reader(log), ScannedLog()
    reader: Any = source
    for number in range(TABLES):
        # The stream goes on, and so does the log.
        begin, end = place(100 * number), place(100 * 2 * TABLES + number)
        found, names = await scanned.about(reader, TableName("shop", f"t{number}"), begin, end)
        assert [one.statement.sql for one in found] == [
            f"CREATE TABLE t{number} (a INT)",
            f"DROP TABLE t{number}",
        ]
        assert names == {TableName("shop", f"t{number}")}
        assert await scanned.between(reader, begin, end) == log[number:]
    assert source.scans == [
        (place(0), place(10_000)),
        *((place(10_000 + number), place(10_001 + number)) for number in range(TABLES - 1)),
    ]


class CountedNumbers(dict[TableName | str, list[int]]):
    """Counts the numbers that it gives."""

    given = 0

    def get(self, name: TableName | str, default: Any = None) -> Any:
        found = super().get(name, default)
        self.given += len(found)
        return found


async def test_statements_about_a_schema_are_looked_at_once() -> None:
    """Each source of a table's columns looked at them again: the tables of a list times the statements."""
    costs = []
    for tables in (100, 400):
        pairs = ", ".join(f"t{number} TO old{number}, new{number} TO t{number}" for number in range(tables))
        log = [logged(number, "ALTER DATABASE shop CHARACTER SET latin1") for number in range(tables)]
        log.append(logged(tables, f"RENAME TABLE {pairs}"))
        reader: Any = Reader(log)
        scanned = ScannedLog()
        assert await scanned.between(reader, place(0), log[-1].end) == log
        scanned._numbers = numbers = CountedNumbers()
        found, names = await scanned.about(reader, TableName("shop", "t7"), place(0), log[-1].end)
        assert found == log
        assert len(names) == 3 * tables
        costs.append(numbers.given / tables)
    assert costs[1] < 1.2 * costs[0], costs


async def test_parts_before_and_behind_are_added() -> None:
    log = [logged(number, f"ALTER TABLE t ADD c{number} INT") for number in range(10)]
    source, scanned = Reader(log), ScannedLog()
    reader: Any = source
    for begin, end in [(300, 500), (100, 400), (200, 800), (800, 1000), (0, 1000)]:
        expected = [one for one in log if place(begin) < one.end <= place(end)]
        found, _ = await scanned.about(reader, T, place(begin), place(end))
        assert found == expected
        assert await scanned.between(reader, place(begin), place(end)) == expected
    assert [(begin.position, end.position) for begin, end in source.scans] == [
        (300, 500),
        (100, 300),
        (500, 800),
        (800, 1000),
        (0, 100),
    ]


async def test_a_part_apart_is_read_by_itself() -> None:
    """An old one does not take the place of what is known; a new one does."""
    log = [logged(number, f"ALTER TABLE t ADD c{number} INT") for number in range(10)]
    source, scanned = Reader(log), ScannedLog()
    reader: Any = source
    for begin, end in [(500, 600), (100, 200), (500, 600), (800, 900), (800, 900)]:
        found = await scanned.between(reader, place(begin), place(end))
        assert found == [one for one in log if place(begin) < one.end <= place(end)]
    assert [begin.position for begin, _ in source.scans] == [500, 100, 800]
    # A log of another name begins anew.
    reader = Reader([])
    assert await scanned.between(reader, place(4, "other.000001"), place(900, "other.000001")) == []
    assert len(reader.scans) == 1


async def test_what_is_remembered_is_bounded() -> None:
    """The oldest statements are forgotten: the stream goes away from them."""
    log, most = made_and_dropped(TABLES), 20_000
    source, scanned = Reader(log), ScannedLog(most)
    reader: Any = source
    for number in range(2 * TABLES):
        begin = place(100 * number)
        assert await scanned.between(reader, begin, place(100 * 2 * TABLES)) == log[number:]
        found, _ = await scanned.about(
            reader, TableName("shop", f"t{number % TABLES}"), begin, place(100 * 2 * TABLES)
        )
        assert found == [one for one in log[number:] if f" t{number % TABLES} " in one.statement.sql + " "]
        assert len(scanned._found) < most / 1000
        assert len(scanned._links) <= len(scanned._found)
        assert sum(map(len, scanned._numbers.values())) == len(scanned._links)


async def test_the_statements_that_a_table_depends_on() -> None:
    log = [
        logged(number, sql)
        for number, sql in enumerate(
            [
                "CREATE TABLE other (a INT)",
                "CREATE TABLE pattern (a INT)",
                "ALTER DATABASE shop CHARACTER SET latin1",
                "CREATE TABLE u LIKE pattern",
                "ALTER TABLE other ADD b INT",
                "RENAME TABLE u TO t",
                "DROP TABLE pattern",
                "DROP VIEW IF EXISTS other, t",
                # It may be about any table.
                "ALTER TABLE `\udcff` ADD b INT",
            ]
        )
    ]
    reader: Any = Reader(log)
    found, names = await ScannedLog().about(reader, T, place(4), place(900))
    assert found == [log[1], log[2], log[3], *log[5:]]
    assert {name.name for name in names} == {"t", "u", "pattern"}


@pytest.mark.parametrize("dialect", [MYSQL, MARIADB], ids=["mysql", "mariadb"])
async def test_they_say_of_the_past_what_all_statements_say(
    dialect: Dialect, seed: int, request: pytest.FixtureRequest
) -> None:
    known = 0
    for number in range(MOST_ROUNDS if request.config.getoption("--long") else ROUNDS):
        rng = random.Random(f"{seed} {number} {dialect}")
        log, catalog = random_log(rng, dialect)
        reader: Any = Reader(log)
        scanned = ScannedLog()
        begin, end = place(100 * rng.randrange(STATEMENTS)), log[-1].end
        whole = history_before("uuid", begin, catalog, [one for one in log if one.end > begin])
        for name in whole.tables:
            found, names = await scanned.about(reader, name, begin, end)
            part = history_before("uuid", begin, catalog.only(names), found)
            expected, state = whole.shape_at(name, begin), part.shape_at(name, begin)
            if isinstance(expected, Unknown):
                assert isinstance(state, Unknown)
            else:
                assert state == expected, f"{name} at {begin}"
                known += expected is not None
    assert known


def random_log(rng: random.Random, dialect: Dialect) -> tuple[list[LoggedStatement], Catalog]:
    writer = RandomDdl(rng, ["one", "two"], mariadb=dialect.is_mariadb, version=dialect.version)
    catalog = Catalog(schemas={"one": "utf8mb4", "two": "latin1"})
    log: list[LoggedStatement] = []
    while len(log) < STATEMENTS:
        sql = rng.choice(OTHERS) if rng.random() < 0.1 else writer.statement(catalog)
        statement, after = Statement(sql, "one", dialect, "latin1"), Catalog(catalog.tables, catalog.schemas)
        after.apply(statement)
        if is_accepted(sql, catalog, dialect) and all(map(is_table, after.tables.values())):
            catalog = after
            log.append(LoggedStatement(place(100 * (len(log) + 1)), statement))
    return log, catalog


def random_statement(rng: random.Random, known: Catalog) -> str:
    """A statement about few tables: what one has in one place, another has in the next."""
    names = [table.name for table in known.tables]
    if not known.schemas:
        return "CREATE DATABASE shop"
    if rng.random() < 0.08:
        return "DROP DATABASE shop"
    free = [name for name in ("t1", "t2", "t3", "t4") if name not in names]
    if free and (not names or rng.random() < 0.3):
        columns = rng.sample(["a INT", "b VARCHAR(5)", "c DATE", "d ENUM('x', 'y')"], rng.randint(1, 3))
        return f"CREATE TABLE {rng.choice(free)} ({', '.join(columns)}, z{rng.randint(1, 99)} INT)"
    table = rng.choice(names)
    if free and rng.random() < 0.4:
        new = rng.choice(free)
        other = rng.choice(names)
        if other != table and rng.random() < 0.6:
            return f"RENAME TABLE {table} TO {new}, {other} TO {table}, {new} TO {other}"
        return f"ALTER TABLE {table} RENAME {new}"
    if rng.random() < 0.5:
        return f"ALTER TABLE {table} ADD n{rng.randint(1, 99)} BIGINT UNSIGNED FIRST"
    return f"DROP TABLE {table}"


async def test_what_a_drop_took_away_is_derived_or_stays_lost(seed: int) -> None:
    """A history from a place in the past on, an older one before it, and the statements of both."""
    rng, counts = random.Random(seed), {"lost": 0, "found": 0}
    for _ in range(ROUNDS * 10):
        truth = SchemaHistory("uuid", place(0), Catalog({}, {"shop": "latin1"}))
        log = list[LoggedStatement]()
        for number in range(14):
            log.append(logged(number, random_statement(rng, truth.catalog)))
            truth.apply(log[-1].statement, log[-1].end)
        start = rng.randint(2, 12)
        begin = log[start - 1].end
        history = history_before("uuid", begin, truth.catalog, log[start:])
        now = {
            table: state for table in history.tables if (state := history.shape_at(table, begin)) is not None
        }
        longer = history_before("uuid", place(0), Catalog(now, history.catalog.schemas), log[:start])
        longer.join(history, has_gap=False)
        scanned, reader = ScannedLog(), cast("Any", Reader(log))
        for one in log[start:]:
            for table in truth.tables:
                was_lost = longer.has_lost(table, one.end)
                await scanned.find_lost(reader, longer, table, one.end)
                found, true = longer.shape_at(table, one.end), truth.shape_at(table, one.end)
                if isinstance(found, Shape):
                    assert isinstance(true, Shape)
                    assert [one.name for one in found.columns] == [one.name for one in true.columns]
                    for said, so in zip(found.columns, true.columns, strict=True):
                        assert said == so or not said.type
                if was_lost and true is not None:
                    counts["found" if isinstance(found, Shape) else "lost"] += 1
    print(counts)
    assert counts["found"]
