"""Shapes of the past, from those of now and the statements in between: right, or not told."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from protocol.position import BinlogPosition
from replica.schemas import undo
from replica.schemas.catalog import Catalog, Statement, Unknown
from replica.schemas.past_history import LoggedStatement, history_before
from replica.schemas.proof import first_difference, nameless, with_shape
from replica.schemas.shape import Shape
from replica.schemas.timeline import SchemaHistory
from replica.sql.dialect import Dialect
from replica.sql.token_reader import TableName
from tests.support.past_tables import Metadata, is_accepted, is_table, logged_table, wrong_columns
from tests.support.random_ddl import RandomDdl
from tests.support.shape_text import MARIADB, MYSQL, MYSQL56, T, apply, catalog_of, column_text

STATEMENTS, ROUNDS, MOST_ROUNDS = 60, 8, 200
BEGIN = BinlogPosition("binlog.000001", 4)


def place(number: int) -> BinlogPosition:
    return BinlogPosition("binlog.000001", 100 * (number + 1))


def past_of(catalog: Catalog, statements: list[str], dialect: Dialect = MYSQL) -> Shape | Unknown | None:
    """What ``shop.t`` was before statements that lead to a catalog."""
    logged = [
        LoggedStatement(place(number), Statement(sql, "shop", dialect, "latin1"))
        for number, sql in enumerate(statements)
    ]
    return history_before("uuid", BEGIN, catalog, logged).shape_at(T, BEGIN)


def text_of(state: Shape | Unknown | None) -> str:
    if not isinstance(state, Shape):
        return "unknown" if state else "none"
    columns = ", ".join(column_text(column) for column in state.columns)
    lost = "" if state.lost == (0, 0) else " + {}..{}".format(*state.lost)
    key = f" key {','.join(state.primary_key)}" if state.primary_key else ""
    return columns + lost + key


TABLE = (
    "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(5), b INT NOT NULL, e ENUM('x') CHARSET latin1)"
)
ID, A, B, E = "id int unsigned NOT NULL", "a varchar(5) utf8mb4", "b int NOT NULL", "e enum('x') latin1"
KEY = " key id"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["ALTER TABLE t ADD c INT FIRST, ADD (d INT, f INT), ADD KEY (c)"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["RENAME TABLE t TO u, u TO v", "RENAME TABLE v TO t"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["ALTER TABLE t RENAME COLUMN id TO i, RENAME TO u"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["ALTER TABLE t DROP a"], f"{ID}, {B}, {E} + 1..1"),
        (["ALTER TABLE t ADD c INT", "ALTER TABLE t DROP c"], f"{ID}, {A}, {B}, {E}"),
        (["ALTER TABLE t MODIFY a TEXT"], f"{ID}, a NULL?, {B}, {E}{KEY}"),
        (["ALTER TABLE t MODIFY a TEXT AFTER b"], f"{ID}, {B}, {E} + 1..1{KEY}"),
        (["ALTER TABLE t CHANGE a z TEXT, CHANGE b a BIGINT"], f"{ID}, a NULL?, b NULL?, {E}{KEY}"),
        (["ALTER TABLE t CONVERT TO CHARSET greek"], f"{ID}, a, {B}, e{KEY}"),
        (["ALTER TABLE t DROP PRIMARY KEY"], f"{ID}, {A}, {B}, {E}"),
        (["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (b)"], f"{ID}, {A}, b int NULL?, {E}"),
        (["ALTER TABLE t ENGINE=MyISAM, CHARSET=greek, COMMENT 'x'"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["TRUNCATE t", "DROP TABLE IF EXISTS u"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["CREATE TABLE IF NOT EXISTS t (z INT)"], f"{ID}, {A}, {B}, {E}{KEY}"),
        (["DROP TABLE t"], "unknown"),
        (["DROP TABLE t", "CREATE TABLE t (z INT)"], "unknown"),
        (["ALTER TABLE t FROBNICATE"], "unknown"),
        (["DROP DATABASE shop", "CREATE DATABASE shop", "CREATE TABLE IF NOT EXISTS t (z INT)"], "unknown"),
    ],
)
def test_one_step_back(statements: list[str], expected: str) -> None:
    catalog = catalog_of(TABLE)
    if statements == ["ALTER TABLE t FROBNICATE"]:
        # It did something, and nothing tells what.
        assert text_of(past_of(catalog, statements)) == expected
        return
    apply(catalog, *statements)
    assert text_of(past_of(catalog, statements)) == expected


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("ADD COLUMN IF NOT EXISTS b INT", "a int + 0..1"),
        ("DROP COLUMN IF EXISTS c", "a int, b int + 0..2"),
        ("MODIFY COLUMN IF EXISTS b INT", "a int, b NULL?"),
        ("CHANGE COLUMN IF EXISTS c b BIGINT", "a int + 1..1"),
        ("RENAME COLUMN IF EXISTS c TO b", "a int + 1..1"),
        # The column that is modified is not there: b is what c is called from now on.
        ("RENAME COLUMN c TO b, MODIFY COLUMN IF EXISTS b BIGINT", "a int, c int"),
        ("MODIFY COLUMN IF EXISTS b BIGINT, RENAME COLUMN c TO b", "a int, c int"),
        ("CHANGE COLUMN IF EXISTS c b BIGINT, MODIFY COLUMN IF EXISTS b BIGINT", "a int + 1..1"),
        ("DROP SYSTEM VERSIONING", "a int, b int + 0..2"),
    ],
)
def test_conditional_clauses(clause: str, expected: str) -> None:
    catalog = catalog_of("CREATE TABLE t (a INT, b INT)", dialect=MARIADB)
    assert text_of(past_of(catalog, [f"ALTER TABLE t {clause}"], MARIADB)) == expected


def _history(catalog: Catalog, statements: list[str]) -> SchemaHistory:
    """The history before a catalog that these statements have led to, one at each place."""
    logged = [LoggedStatement(place(n), Statement(sql, "shop", MYSQL)) for n, sql in enumerate(statements)]
    return history_before("uuid", BEGIN, catalog, logged)


def test_tables_that_the_log_creates_are_known_from_there() -> None:
    statements = [
        "CREATE TABLE u (a INT, b INT, c ENUM('x'))",
        "ALTER TABLE u DROP b",
        "DROP TABLE u",
        "CREATE TABLE u LIKE t",
        "ALTER TABLE u MODIFY a BIGINT FIRST",
    ]
    catalog = catalog_of("CREATE TABLE t (z INT, a INT)")
    apply(catalog, *statements)
    history = _history(catalog, statements)
    states = [text_of(history.shape_at(TableName("shop", "u"), at)) for at in (BEGIN, *map(place, range(5)))]
    assert states == [
        "none",
        "a int, b int, c enum('x') utf8mb4",
        "a int, c enum('x') utf8mb4",
        "none",
        "z int, a int",
        "a bigint, z int",
    ]


def test_a_log_that_lacks_a_statement() -> None:
    statements = ["CREATE TABLE u (a INT, b INT)", "ALTER TABLE u ADD c INT"]
    catalog = catalog_of("CREATE TABLE u (b INT, a INT, c INT)")
    history = _history(catalog, statements)
    for number in range(2):
        state = history.shape_at(TableName("shop", "u"), place(number))
        assert isinstance(state, Unknown)
        assert "do not lead to" in state.reason


def test_a_dropped_column_alone_has_no_name() -> None:
    truth = catalog_of("CREATE TABLE t (id INT, gone DATE, v VARCHAR(5), n INT)").get(T)
    assert isinstance(truth, Shape)
    catalog = catalog_of("CREATE TABLE t (id INT, v VARCHAR(5), n INT)")
    past = past_of(catalog, ["ALTER TABLE t DROP gone"])
    assert isinstance(past, Shape)
    logged = logged_table(T, truth, "NO_LOG")
    assert first_difference(past, logged) is None
    table = with_shape(logged, past)
    assert table.column_names == ("id", "@2", "v", "n")
    assert nameless(table)
    other = logged_table(T, catalog.get(T), "NO_LOG")  # type: ignore[arg-type]
    assert "1 to 1 that a later statement" in (first_difference(past, other) or "")


def test_what_the_log_says_of_a_changed_column_is_enough_or_not() -> None:
    truth = catalog_of("CREATE TABLE t (id INT UNSIGNED, v VARCHAR(5), d DATE, e ENUM('x'))").get(T)
    assert isinstance(truth, Shape)
    catalog = catalog_of("CREATE TABLE t (id BIGINT, v TEXT, d DATETIME, e ENUM('x', 'y'))")
    change = "ALTER TABLE t MODIFY id BIGINT, MODIFY v TEXT, MODIFY d DATETIME, MODIFY e ENUM('x', 'y')"
    past = past_of(catalog, [change])
    assert isinstance(past, Shape)
    assert with_shape(logged_table(T, truth, "NO_LOG"), past).column_names == ("@1", "@2", "d", "@4")
    assert with_shape(logged_table(T, truth, "MINIMAL"), past).column_names == ("id", "v", "d", "@4")


def test_names_and_types_are_as_the_statement_before_wrote_them() -> None:
    """What a later statement takes away, or writes in other letters, an earlier one tells."""
    statements = [
        "ALTER TABLE t CHANGE `a` `E.f` INT UNSIGNED, ADD Big ENUM('x') CHARSET latin1",
        "ALTER TABLE t MODIFY `e.F` BIGINT, CHANGE BIG big TEXT",
        "ALTER TABLE t RENAME COLUMN `e.F` TO G",
        "ALTER TABLE t CHANGE g h DOUBLE",
    ]
    catalog = catalog_of("CREATE TABLE t (a DATE, b VARCHAR(3))")
    apply(catalog, *statements)
    history = _history(catalog, statements)
    assert [text_of(history.shape_at(T, at)) for at in (BEGIN, *map(place, range(4)))] == [
        "a NULL?, b varchar(3) utf8mb4",
        "E.f int unsigned NULL?, b varchar(3) utf8mb4, Big enum('x') latin1",
        "e.F bigint NULL?, b varchar(3) utf8mb4, big text utf8mb4 NULL?",
        "G bigint NULL?, b varchar(3) utf8mb4, big text utf8mb4 NULL?",
        "h double, b varchar(3) utf8mb4, big text utf8mb4",
    ]


@pytest.mark.parametrize("metadata", ["NO_LOG", pytest.param("MINIMAL", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("dialect", [MYSQL, MYSQL56, MARIADB], ids=["mysql", "mysql56", "mariadb"])
def test_random_pasts(
    seed: int, dialect: Dialect, metadata: Metadata, request: pytest.FixtureRequest
) -> None:
    """What is said of the past is so, and much of it is said."""
    counts: Counter[str] = Counter()
    for number in range(MOST_ROUNDS if request.config.getoption("--long") else ROUNDS):
        rng = random.Random(f"{seed} {number} {dialect}")
        counts += _check_random_past(rng, dialect, metadata)
    print(dict(counts))
    assert counts["named"] > counts["nameless"]
    assert counts["nameless"]


def _check_random_past(rng: random.Random, dialect: Dialect, metadata: Metadata) -> Counter[str]:
    writer = RandomDdl(rng, ["one", "two"], mariadb=dialect.is_mariadb, version=dialect.version)
    catalog = Catalog(schemas={"one": "utf8mb4", "two": "latin1"})
    truths = [Catalog(catalog.tables, catalog.schemas)]
    statements: list[LoggedStatement] = []
    begins_at = rng.randrange(STATEMENTS)
    while len(statements) < STATEMENTS:
        statement = Statement(writer.statement(catalog), "one", dialect, "latin1")
        after = Catalog(catalog.tables, catalog.schemas)
        after.apply(statement)
        if not is_accepted(statement.sql, catalog, dialect) or not all(
            is_table(state) and table.schema in ("one", "two") for table, state in after.tables.items()
        ):
            continue
        catalog = after
        statements.append(LoggedStatement(place(len(statements)), statement))
        truths.append(after)
    begin = place(begins_at - 1) if begins_at else BEGIN
    history = history_before("uuid", begin, catalog, statements[begins_at:])
    counts: Counter[str] = Counter()
    for at, truth in zip(
        [begin, *(one.end for one in statements[begins_at:])], truths[begins_at:], strict=True
    ):
        for name, shape in truth.tables.items():
            assert isinstance(shape, Shape)
            state = history.shape_at(name, at)
            if not isinstance(state, Shape):
                assert state is not None, f"{name} at {at}: there is such a table"
                counts["unknown"] += 1
                continue
            logged = logged_table(name, shape, metadata)
            problem = first_difference(state, logged)
            assert problem is None, f"{name} at {at}: {problem}; {state}"
            table = with_shape(logged, state)
            wrong = list(wrong_columns(table, shape))
            assert not wrong, f"{wrong} at {at}"
            counts["nameless"] += sum(column.name.startswith("@") for column in table.columns)
            counts["named"] += sum(not column.name.startswith("@") for column in table.columns)
    return counts


@pytest.mark.parametrize(
    "clause",
    ["ADD n{0} INT", "CHANGE c{0} n{0} INT", "RENAME COLUMN c{0} TO n{0}", "ALTER c{0} SET INVISIBLE"],
)
def test_a_statement_with_many_clauses_is_undone_in_one_walk(
    clause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each clause compared the names of all columns: 500,000 names for 1,000 columns."""
    folded = 0

    def counted(name: str) -> str:
        nonlocal folded
        folded += 1
        return name.casefold()

    monkeypatch.setattr(undo, "fold", counted)
    counts = []
    for many in (50, 200):
        folded = 0
        columns = ", ".join(f"c{number} INT" for number in range(many))
        clauses = ", ".join(clause.format(number) for number in range(many))
        history = SchemaHistory("uuid", place(4), Catalog({}, {"shop": "utf8mb4"}))
        for number, sql in enumerate([f"CREATE TABLE t ({columns})", f"ALTER TABLE t {clauses}"]):
            history.apply(Statement(sql, "shop", MYSQL), place(100 + number))
        altered = LoggedStatement(place(101), Statement(f"ALTER TABLE t {clauses}", "shop", MYSQL))
        history_before("uuid", place(4), history.catalog, [altered])
        counts.append(folded / many)
    assert counts[1] <= counts[0] <= 10
