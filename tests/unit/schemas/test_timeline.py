"""Timelines of tables: lookup by place, statements, what is read anew, pruning, JSON lines."""

from __future__ import annotations

import random
import tracemalloc
import zlib

import pytest

from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition
from replica.schemas.catalog import Catalog, Lost, Statement, Unknown, other_tables
from replica.schemas.past_history import LoggedStatement, history_before
from replica.schemas.shape import ColumnShape, Key, Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.token_reader import TableName
from tests.support.shape_text import MARIADB, MYSQL, T, catalog_of, names, shape_of


def at(place: str) -> BinlogPosition:
    return BinlogPosition.parse(f"binlog.{place}")


def history_of(*statements: tuple[str, str]) -> SchemaHistory:
    history = SchemaHistory("uuid", at("000001:4"), catalog_of("CREATE TABLE t (a INT)"))
    for place, sql in statements:
        history.apply(Statement(sql, "shop", MYSQL), at(place))
    return history


def told(history: SchemaHistory, place: str, table: TableName = T) -> str:
    state = history.shape_at(table, at(place))
    return names(state) if isinstance(state, Shape) else "unknown" if state else "none"


CHANGES = (
    ("000001:100", "ALTER TABLE t ADD b INT"),
    ("000002:50", "RENAME TABLE t TO u"),
    ("000002:60", "CREATE TABLE t (c INT)"),
    ("999999:4", "ALTER TABLE t ADD d INT"),
    ("1000000:4", "DROP TABLE t"),
)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("000001:4", "a none"),
        ("000001:99", "a none"),
        ("000001:100", "a b none"),
        ("000002:4", "a b none"),
        ("000002:55", "none a b"),
        ("000002:60", "c a b"),
        ("999999:3", "c a b"),
        ("999999:4", "c d a b"),
        ("1000000:3", "c d a b"),
        ("1000000:4", "none a b"),
        ("000001:3", "unknown unknown"),
    ],
)
def test_shapes_by_place(place: str, expected: str) -> None:
    history = history_of(*CHANGES)
    assert f"{told(history, place)} {told(history, place, TableName('shop', 'u'))}" == expected
    again = SchemaHistory.from_lines(history.to_lines())
    assert f"{told(again, place)} {told(again, place, TableName('shop', 'u'))}" == expected
    assert again.head == at("1000000:4")


def test_a_history_ahead_of_its_reader() -> None:
    history = history_of(*CHANGES)
    before = list(history.to_lines())
    statement = Statement("ALTER TABLE t ADD b INT", "shop", MYSQL)
    [change] = history.apply(statement, at("000001:100"))
    assert isinstance(change.before, Shape)
    assert isinstance(change.after, Shape)
    assert (change.table, names(change.before), names(change.after)) == (T, "a", "a b")
    assert history.apply(Statement("TRUNCATE t", "shop", MYSQL), at("000001:90")) == []
    assert list(history.to_lines()) == before


def test_change_lines_are_what_to_lines_would_be() -> None:
    history = history_of()
    lines = list(history.to_lines())
    for place, sql in CHANGES:
        lines += history.change_lines(history.apply(Statement(sql, "shop", MYSQL), at(place)))
    again = SchemaHistory.from_lines(lines)
    assert {table: list(timeline) for table, timeline in again.tables.items()} == {
        table: list(timeline) for table, timeline in history.tables.items()
    }
    assert dict(again.catalog.tables) == dict(history.catalog.tables)
    assert (again.begin, again.head, again.source) == (history.begin, history.head, history.source)
    again.apply(Statement("ALTER TABLE u ADD z INT", "shop", MYSQL), at("1000001:4"))
    assert told(again, "1000001:4", TableName("shop", "u")) == "a b z"


def test_what_is_read_anew() -> None:
    history = history_of(*CHANGES[:1])
    history.set_at(T, at("000001:50"), shape_of("CREATE TABLE t (x INT)"))
    assert [told(history, f"000001:{place}") for place in (49, 50, 99, 100)] == ["a", "x", "x", "a b"]
    history.set_at(T, at("000001:100"), Unknown("lost"))
    assert [told(history, f"000001:{place}") for place in (99, 100)] == ["x", "unknown"]
    assert history.catalog.get(T) == Unknown("lost")
    other = TableName("shop", "v")
    history.set_at(other, at("000001:200"), shape_of("CREATE TABLE t (x INT)"))
    assert [told(history, f"000001:{place}", other) for place in (199, 200)] == ["unknown", "x"]
    history.advance(at("000001:200"))
    again = SchemaHistory.from_lines(history.to_lines())
    assert {table: list(again.tables[table]) for table in (T, other)} == {
        table: list(history.tables[table]) for table in (T, other)
    }
    assert again.catalog.get(T) == Unknown("lost")
    history.set_at(other, at("000001:300"), None)
    assert history.catalog.get(other) is None


@pytest.mark.parametrize(
    ("state", "has_gap", "expected"),
    [(Lost("x"), False, "a b"), (Lost("x"), True, "unknown"), (Unknown("x"), False, "unknown")],
)
def test_what_an_older_history_knows(state: Unknown, has_gap: bool, expected: str) -> None:
    """It tells what a DROP has taken from the later one, but not behind a gap, nor where names are in doubt."""
    history = history_of(*CHANGES[:1])
    later = SchemaHistory("uuid", at("000001:200"), Catalog())
    later.set_at(T, at("000001:200"), state)
    later.apply(Statement("DROP TABLE t", "shop", MYSQL), at("000001:300"))
    history.join(later, has_gap=has_gap)
    assert [told(history, f"000001:{place}") for place in (199, 200, 300)] == ["a b", expected, "none"]


def test_pruning() -> None:
    history = history_of(*CHANGES)
    size = len(list(history.to_lines()))
    history.prune(at("000002:55"))
    assert history.begin == at("000002:55")
    assert [told(history, place) for place in ("000002:54", "000002:55", "000002:60")] == [
        "unknown",
        "none",
        "c",
    ]
    history.prune(at("1000000:4"))
    assert T not in history.tables
    assert len(list(history.to_lines())) < size
    assert told(history, "1000000:4", TableName("shop", "u")) == "a b"
    assert told(SchemaHistory.from_lines(history.to_lines()), "1000000:4") == "none"


@pytest.mark.parametrize("place", ["other.000001:4", "binlog:4"])
def test_a_place_of_another_log(place: str) -> None:
    with pytest.raises(ConfigurationError):
        history_of().shape_at(T, BinlogPosition.parse(place))


def test_a_statement_whose_lines_are_not_all_there_is_not_done() -> None:
    """A killed process leaves a part of what it added: the statement is then followed once more."""
    changes = (
        *CHANGES[:1],
        ("000001:200", "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"),
        ("000001:300", "RENAME TABLE t TO u, u TO v, v TO t"),
        ("000001:400", "RENAME TABLE t TO u"),
        ("000001:500", "CREATE TABLE t LIKE u"),
        ("000001:600", "ALTER TABLE t ADD e INT FIRST"),
    )
    whole = history_of(*changes)
    history = history_of()
    lines = list(history.to_lines())
    for place, sql in changes:
        lines += history.change_lines(history.apply(Statement(sql, "shop", MYSQL), at(place)))
    begun = len(list(history_of().to_lines()))
    for count in range(begun, len(lines) + 1):
        again = SchemaHistory.from_lines(lines[:count])
        for place, sql in changes:
            again.apply(Statement(sql, "shop", MYSQL), at(place))
        assert {table: list(timeline) for table, timeline in again.tables.items()} == {
            table: list(timeline) for table, timeline in whole.tables.items()
        }, count
        assert dict(again.catalog.tables) == dict(whole.catalog.tables)


def test_any_damage_of_a_line_is_seen(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        number = rng.randrange(len(GOOD))
        damaged = bytearray(GOOD[number].encode())
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(7)
        with pytest.raises(ConfigurationError, match=rf"line {number + 1} is damaged"):
            SchemaHistory.from_lines([*GOOD[:number], damaged.decode(), *GOOD[number + 1 :]])


def test_lines_that_are_lost_doubled_or_moved_are_seen() -> None:
    """A doubled line of columns gave later tables the columns of others, without an error."""
    history = history_of()
    lines = list(history.to_lines())
    for place, sql in CHANGES:
        lines += history.change_lines(history.apply(Statement(sql, "shop", MYSQL), at(place)))
    for number in range(len(lines) - 1):
        for damaged in (
            [*lines[:number], *lines[number + 1 :]],
            [*lines[: number + 1], *lines[number:]],
            [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]],
        ):
            with pytest.raises(ConfigurationError, match=r"damaged|version"):
                SchemaHistory.from_lines(damaged)


def test_a_history_that_ends_among_its_tables() -> None:
    for count in range(len(GOOD)):
        with pytest.raises(ConfigurationError, match=r"is empty|its end is missing"):
            SchemaHistory.from_lines(GOOD[:count])


def test_lines_of_version_1() -> None:
    """Each has a checksum of its own, and a line that is added to them has, too."""
    lines = unchained(GOOD)[:-1]
    history = SchemaHistory.from_lines(lines)
    assert told(history, "000002:60") == "c"
    history.advance(at("1000001:9"))
    again = SchemaHistory.from_lines([*lines, history.head_line()])
    assert again.head == at("1000001:9")
    assert next(again.to_lines()).startswith('{"version":2,')


def test_a_head_in_front_of_a_statement_that_was_not_done() -> None:
    """A full disk left the first of its lines, the next run noted a place before it: columns were swapped twice."""
    history = history_of(("000001:100", "ALTER TABLE t ADD b INT"))
    lines = list(history.to_lines())
    swap = Statement("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "shop", MYSQL)
    lines.append(next(history.change_lines(history.apply(swap, at("000001:200")))))
    again = SchemaHistory.from_lines(lines)
    again.advance(at("000001:150"))
    later = SchemaHistory.from_lines([*lines, again.head_line()])
    later.apply(swap, at("000001:200"))
    assert told(later, "000001:199") == "a b"
    assert told(later, "000001:200") == "b a"


def test_a_later_version() -> None:
    with pytest.raises(ConfigurationError, match="it has version 3, written by a later mysql-replica"):
        SchemaHistory.from_lines([line('{"version": 3}')])


def test_the_case_of_names_is_kept() -> None:
    history = SchemaHistory("uuid", at("000001:4"), folds_names=True)
    assert SchemaHistory.from_lines(history.to_lines()).folds_names
    assert not SchemaHistory.from_lines(history_of().to_lines()).folds_names


def unchained(lines: list[str]) -> list[str]:
    """The lines as version 1 had them."""
    texts = [text.rpartition(" ")[0] for text in lines]
    return [line(text.replace('{"version":2,', '{"version":1,')) for text in texts]


def line(text: str) -> str:
    return f"{text} {zlib.crc32(text.encode()):08x}"


def of_base_name(text: str) -> str:
    """The header with a place that has no number."""
    return line(text.rpartition(" ")[0].replace("binlog.000001:4", "binlog"))


GOOD = list(history_of(*CHANGES).to_lines())
# Lines that do not depend on each other: what is wrong with one is told, and not that it is another.
OLD = unchained(GOOD)


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line("{")],
        [line("[]")],
        [line('{"version": 0}')],
        [line('{"version": "2"}')],
        [line('{"version": 2}')],
        [line('{"version": 1}')],
        [OLD[0], line('{"table": ["a", "b"], "states": [[1, 4, 77]]}')],
        [OLD[0], line('{"table": ["a", "b"], "states": [[1, 4, 5.5]]}')],
        [OLD[0], line('{"table": ["a"], "states": [[1, 4, null]]}')],
        [OLD[0], line('{"columns": [{"nonsense": 1}]}')],
        [OLD[0], line('{"shape": {"columns": [0]}}')],
        [OLD[0], line('{"shape": {"columns": [], "keys": 5}}')],
        [OLD[0], line('{"nonsense": 1}')],
        [of_base_name(OLD[0]), *OLD[1:]],
        ["not a line", *OLD[1:]],
    ],
)
def test_what_is_no_history(lines: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        SchemaHistory.from_lines(lines)


def test_undecodable_names_survive() -> None:
    catalog = Catalog({T: Shape((ColumnShape("a\udcff", "int"),))})
    history = SchemaHistory("uuid", at("000001:4"), catalog)
    lines = [line.encode("ascii").decode("ascii") for line in history.to_lines()]
    assert SchemaHistory.from_lines(lines).shape_at(T, at("000001:4")) == history.shape_at(T, at("000001:4"))


TABLES = 1_000


def test_tables_are_small() -> None:
    """All different: 20 of 1,000 names of columns in each, of 30 types. 10,000 of them took 15.6 MB."""
    rng = random.Random(1)
    tracemalloc.start()
    try:
        catalog = Catalog(schemas={"shop": "utf8mb4"})
        for number in range(TABLES):
            catalog.set(TableName("shop", f"table_{number}"), _random_shape(rng))
        history = SchemaHistory("uuid", at("000001:4"), catalog)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(history.tables) == TABLES
    assert size / TABLES < 2_400


def _random_shape(rng: random.Random) -> Shape:
    numbers = rng.sample(range(1000), 20)
    columns = tuple(
        ColumnShape(f"column_{number}", "varchar", (number % 30,), charset="utf8mb4") for number in numbers
    )
    keys = tuple(Key(column.name, "index", ((column.name, 0),)) for column in columns[:3])
    return Shape(columns, Key("PRIMARY", "primary", ((columns[0].name, 0),)), keys, "utf8mb4", "innodb")


def test_dropped_tables_are_no_renamed_ones_after_a_restart() -> None:
    """A table of MariaDB that was made again was unknown then: its name might have been that of a temporary table."""
    history = history_of(("000001:50", "CREATE TABLE u (a INT)"), ("000001:100", "DROP TABLE t, u"))
    again = SchemaHistory.from_lines(list(history.to_lines()))
    assert again.catalog.left == history.catalog.left == {}
    again.apply(Statement("CREATE TABLE IF NOT EXISTS t (b INT)", "shop", MARIADB), at("000001:200"))
    assert told(again, "000001:200") == "b"


def test_a_renamed_table_is_told_from_others_after_a_restart() -> None:
    """MariaDB may have renamed a temporary table: CREATE TABLE IF NOT EXISTS then makes one of that name."""
    again = SchemaHistory.from_lines(
        history_of(
            ("1:100", "CREATE TABLE t (a INT)"),
            ("1:200", "CREATE TABLE v (a INT)"),
            ("1:300", "RENAME TABLE t TO u"),
            ("1:400", "RENAME TABLE v TO w"),
            ("1:500", "ALTER TABLE w ADD b INT"),
        ).to_lines()
    )
    assert again.catalog.renamed == {TableName("shop", "u")}
    assert again.catalog.left.keys() == {TableName("shop", "t"), TableName("shop", "v")}


def test_an_older_history_knows_tables_that_go_with_their_schema() -> None:
    """The later one has one state for all of them. What was dropped before does not come back."""
    older = history_of(("000001:100", "CREATE TABLE u (a INT)"), ("000001:200", "DROP TABLE u"))
    later = SchemaHistory("uuid", at("000001:400"), Catalog())
    later.set_at(other_tables("shop"), at("000001:400"), Lost("x"))
    later.apply(Statement("DROP DATABASE shop", "shop", MYSQL), at("000001:500"))
    later.set_at(other_tables("shop"), at("000001:500"), None)
    older.join(later, has_gap=False)
    assert [told(older, f"000001:{place}") for place in (399, 400, 499, 500)] == ["a", "a", "a", "none"]
    assert older.shape_at(T._replace(name="u"), at("000001:400")) is None


def test_names_found_later_hold_up_to_the_next_statement() -> None:
    """The column that ALTER TABLE renames was dropped later: undone, the shape is the same before and behind it."""
    statements = [
        LoggedStatement(at(place), Statement(sql, "shop", MYSQL))
        for place, sql in (
            ("000001:100", "ALTER TABLE t RENAME COLUMN a TO x"),
            ("000001:200", "ALTER TABLE t DROP x"),
        )
    ]
    later = history_before("uuid", at("000001:50"), catalog_of("CREATE TABLE t (b INT)"), statements)
    made = LoggedStatement(at("000001:20"), Statement("CREATE TABLE t (a INT, b INT)", "shop", MYSQL))
    older = history_before("uuid", at("000001:4"), Catalog(), [made])
    older.join(later, has_gap=False)
    older.set_at(T, at("000001:50"), shape_of("CREATE TABLE t (a INT, b INT)"))
    assert [told(older, f"000001:{place}") for place in (60, 99, 100, 150, 200)] == [
        "a b",
        "a b",
        "b",
        "b",
        "b",
    ]
