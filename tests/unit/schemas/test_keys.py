"""Keys: which one rows are logged by, names that servers make up, hidden columns, as servers were measured."""

from __future__ import annotations

import pytest

from replica.schemas.shape import Shape
from replica.sql.dialect import Dialect
from tests.support.shape_text import MARIADB, MYSQL, columns_text, names, reason_of, shape_of

HIDDEN_PERIOD = (
    "row_start timestamp(6) NOT NULL ROW START HIDDEN, row_end timestamp(6) NOT NULL ROW END HIDDEN"
)


def key_names(shape: Shape) -> str:
    assert shape.keys is not None
    return " ".join(key.name for key in shape.keys)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a INT, b INT", ()),
        ("a INT PRIMARY KEY, b INT", ("a",)),
        ("a INT, b INT, PRIMARY KEY Name USING BTREE (b DESC, A)", ("b", "a")),
        ("a INT, b INT NOT NULL, UNIQUE (a), UNIQUE (b)", ("b",)),
        (
            "a INT, b INT NOT NULL, c CHAR(3) NOT NULL, UNIQUE k1 (a), UNIQUE k2 (b, c), UNIQUE k3 (b)",
            ("b", "c"),
        ),
        ("b INT NOT NULL, c VARCHAR(20) NOT NULL, UNIQUE k2 (c(3)), UNIQUE k3 (c)", ("c",)),
        ("b INT NOT NULL, c VARCHAR(20) NOT NULL, UNIQUE k2 (c(20))", ("c",)),
        ("a INT NOT NULL, h INT NOT NULL, UNIQUE ((a + 1)), UNIQUE (h)", ("h",)),
        ("a INT, g INT AS (a) STORED NOT NULL, UNIQUE (g)", ("g",)),
        ("a INT, g INT AS (a) VIRTUAL NOT NULL, h INT NOT NULL, UNIQUE (g), UNIQUE (h)", ("h",)),
        ("a SERIAL, b INT", ("a",)),
        ("a INT NOT NULL UNIQUE, PRIMARY KEY (b), b INT", ("b",)),
    ],
)
def test_the_key_of_rows(body: str, expected: tuple[str, ...]) -> None:
    assert shape_of(f"CREATE TABLE t ({body})").primary_key == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("UNIQUE (a), UNIQUE (a, b), KEY (a), KEY a_5 (b), UNIQUE (c, a)", "a a_2 c a_3 a_5"),
        ("CONSTRAINT u UNIQUE (b), CONSTRAINT x UNIQUE n (c), CONSTRAINT UNIQUE (a)", "u n a"),
        ("`primary` INT, UNIQUE (`primary`)", "primary_2"),
        ("FOREIGN KEY (a) REFERENCES p (a)", "a"),
        ("FOREIGN KEY i (a) REFERENCES p (a), CONSTRAINT f FOREIGN KEY j (b) REFERENCES p (b)", "i f"),
        ("FOREIGN KEY (a) REFERENCES p (a), UNIQUE (a, b), UNIQUE (a)", "a a_2"),
        ("FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE ON UPDATE SET NULL, PRIMARY KEY (a)", ""),
        (
            "KEY x (a) COMMENT 'x' KEY_BLOCK_SIZE=1 INVISIBLE, FULLTEXT KEY f (d) WITH PARSER ngram, d TEXT",
            "x f",
        ),
    ],
)
@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_names(body: str, expected: str, dialect: Dialect) -> None:
    shape = shape_of(f"CREATE TABLE t (a INT, b INT, c INT, {body})", dialect=dialect)
    assert sorted(key_names(shape).split()) == sorted(expected.split())


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["CREATE TABLE t (a INT, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b), PRIMARY KEY (a, b))"], "y x"),
        (["CREATE TABLE t (a INT, b INT NOT NULL, PRIMARY KEY (a, b), UNIQUE x (a), UNIQUE y (b))"], "x y"),
        (
            [
                "CREATE TABLE t (a INT, b INT NOT NULL, UNIQUE x (a))",
                "ALTER TABLE t ADD UNIQUE y (b), ADD PRIMARY KEY (a, b)",
            ],
            "y x",
        ),
        (
            [
                "CREATE TABLE t (a INT, b INT NOT NULL, UNIQUE x (a))",
                "ALTER TABLE t ADD PRIMARY KEY (a, b), ADD UNIQUE y (b)",
            ],
            "y x",
        ),
        (
            [
                "CREATE TABLE t (a INT, b INT NOT NULL, UNIQUE x (a), UNIQUE y (b), PRIMARY KEY (a, b))",
                "ALTER TABLE t DROP PRIMARY KEY",
            ],
            "y x",
        ),
        (["CREATE TABLE t (x INT UNIQUE, a INT PRIMARY KEY, b INT NOT NULL UNIQUE, UNIQUE z (a))"], "b z x"),
    ],
)
@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_order(statements: list[str], expected: str, dialect: Dialect) -> None:
    """What is NOT NULL by a primary key alone is not so for the keys before it."""
    assert key_names(shape_of(*statements, dialect=dialect)) == expected


def test_names_of_keys_over_expressions() -> None:
    shape = shape_of("CREATE TABLE t (a INT, b INT, KEY ((a + 1)), UNIQUE ((b), a), KEY (a, (b + 1)))")
    assert key_names(shape) == "functional_index_2 functional_index functional_index_3"


def test_names_through_alter_table() -> None:
    table = "CREATE TABLE t (a INT, b INT, c INT, FOREIGN KEY (a) REFERENCES p (a))"
    shape = shape_of(table, "ALTER TABLE t ADD UNIQUE (a)")
    assert [(key.name, key.kind) for key in shape.keys or ()] == [("a", "unique")]
    more = "ALTER TABLE t ADD UNIQUE (a, b), ADD UNIQUE (a, c), DROP INDEX a, ADD KEY (b)"
    assert key_names(shape_of(table, "ALTER TABLE t ADD UNIQUE (a)", more)) == "a a_2 b"
    swap = "ALTER TABLE t RENAME INDEX a TO b, RENAME KEY b TO a"
    assert key_names(shape_of("CREATE TABLE t (a INT, b INT, KEY (a), KEY (b))", swap)) == "b a"
    replaced = "ALTER TABLE t ADD UNIQUE a (b), DROP KEY a"
    shape = shape_of("CREATE TABLE t (a INT, b INT, KEY (a))", replaced)
    assert [(key.name, key.parts) for key in shape.keys or ()] == [("a", (("b", 0),))]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["ALTER TABLE t DROP PRIMARY KEY"], ("c",)),
        (["ALTER TABLE t DROP INDEX `primary`, ADD PRIMARY KEY (b)"], ("b",)),
        (["ALTER TABLE t ADD PRIMARY KEY (b), DROP PRIMARY KEY"], ("b",)),
        (["ALTER TABLE t DROP b"], ("a",)),
        (["ALTER TABLE t DROP b, DROP PRIMARY KEY"], ("c",)),
        (["ALTER TABLE t CHANGE a A2 BIGINT"], ("b", "A2")),
        (["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"], ("a", "b")),
        (["ALTER TABLE t DROP PRIMARY KEY", "DROP INDEX c ON t"], ()),
        (["ALTER TABLE t DROP CONSTRAINT `PRIMARY`, DROP CONSTRAINT c"], ()),
        (["ALTER TABLE t DROP PRIMARY KEY", "CREATE UNIQUE INDEX x ON t (a)"], ("c",)),
        (["ALTER TABLE t DROP PRIMARY KEY", "ALTER TABLE t DROP KEY unheard_of"], ()),
        (["ALTER TABLE t DROP KEY unheard_of"], ("b", "a")),
        (["ALTER TABLE t DROP PRIMARY KEY, ADD d INT NOT NULL UNIQUE, DROP c, DROP KEY c"], ("d",)),
        (["ALTER TABLE t DROP PRIMARY KEY, ADD d INT NOT NULL UNIQUE, DROP c, RENAME KEY c TO e"], ("d",)),
        (["ALTER TABLE t DROP PRIMARY KEY, MODIFY c INT NULL"], ()),
    ],
)
def test_the_key_through_statements(statements: list[str], expected: tuple[str, ...]) -> None:
    table = "CREATE TABLE t (a INT, b INT, c INT NOT NULL UNIQUE, PRIMARY KEY (b, a))"
    assert shape_of(table, *statements).primary_key == expected


@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
@pytest.mark.parametrize(
    ("clauses", "expected", "nullable"),
    [
        ("DROP b, ADD B VARCHAR(7) FIRST", ("B", "a"), False),
        ("ADD b INT, DROP b", ("b", "a"), False),
        ("DROP b, ADD b INT, DROP PRIMARY KEY", ("c",), True),
        ("CHANGE b d INT, ADD b INT", ("d", "a"), True),
        ("DROP b, CHANGE a b INT", ("b",), False),
        ("DROP PRIMARY KEY, DROP b, ADD b INT, DROP c, ADD c INT NOT NULL", ("c",), True),
        ("DROP PRIMARY KEY, DROP b, ADD b INT, DROP c, ADD c VARCHAR(5) NOT NULL", (), True),
    ],
)
def test_a_key_over_a_column_that_is_dropped_and_added(
    dialect: Dialect, clauses: str, expected: tuple[str, ...], nullable: bool
) -> None:
    """Measured on MySQL 5.6, 8.0 and 9.7, MariaDB 10.11 and 11.8: the key goes on with the new column."""
    table = "CREATE TABLE t (a INT, b INT, c INT NOT NULL UNIQUE, PRIMARY KEY (b, a))"
    shape = shape_of(table, f"ALTER TABLE t {clauses}", dialect=dialect)
    assert shape.primary_key == expected
    assert [column.nullable for column in shape.columns if column.name in ("b", "B")] == [nullable]


def test_a_column_with_two_keys() -> None:
    for definition in ("INT UNIQUE PRIMARY KEY", "INT PRIMARY KEY UNIQUE", "SERIAL PRIMARY KEY"):
        assert key_names(shape_of(f"CREATE TABLE t (a {definition})")) == "a"
        assert key_names(shape_of(f"CREATE TABLE t (a {definition})", dialect=MARIADB)) == ""
    both = "CREATE TABLE t (a INT UNIQUE UNIQUE KEY, PRIMARY KEY (a))"
    assert key_names(shape_of(both, dialect=MARIADB)) == "a"


def test_keys_of_columns_that_may_be_there() -> None:
    table = "CREATE TABLE t (a INT UNIQUE, b INT)"

    def keys(clauses: str) -> str:
        shape = shape_of(table, f"ALTER TABLE t {clauses}", dialect=MARIADB)
        return key_names(shape) + " P" * (shape.primary is not None)

    assert keys("ADD COLUMN IF NOT EXISTS b INT UNIQUE") == "a b"
    assert keys("ADD COLUMN IF NOT EXISTS a INT UNIQUE, ADD IF NOT EXISTS c INT PRIMARY KEY") == "a P"
    assert keys("MODIFY COLUMN IF EXISTS a BIGINT UNIQUE") == "a"
    assert keys("MODIFY COLUMN a BIGINT UNIQUE") == "a a_2"
    assert keys("CHANGE COLUMN IF EXISTS a c INT UNIQUE") == "a c"
    assert keys("ADD KEY IF NOT EXISTS a (b), ADD UNIQUE IF NOT EXISTS k (b), DROP KEY IF EXISTS x") == "a k"


def test_prefixes() -> None:
    table = "CREATE TABLE t (a VARCHAR(20), b TEXT, UNIQUE x (a(20)), UNIQUE y (a(5)), UNIQUE z (b(10)))"

    def parts(*statements: str) -> list[int]:
        return [key.parts[0][1] for key in shape_of(table, *statements).keys or ()]

    assert parts() == [0, 5, 10]
    assert parts("ALTER TABLE t MODIFY a VARCHAR(30)") == [0, 5, 10]
    assert parts("ALTER TABLE t MODIFY a VARCHAR(3)") == [0, 0, 10]
    assert parts("ALTER TABLE t MODIFY a INT, MODIFY b VARCHAR(10)") == [0, 0, 0]


def test_a_key_over_what_becomes_a_blob_in_mysql() -> None:
    table = "CREATE TABLE t (a SET('x'), b INT NOT NULL, UNIQUE (a), UNIQUE (b))"
    assert shape_of(table, "ALTER TABLE t MODIFY a BLOB").keys is None
    assert shape_of(table, "ALTER TABLE t MODIFY a BLOB", dialect=MARIADB).primary_key == ("b",)


@pytest.mark.parametrize(
    ("body", "options", "expected"),
    [
        ("a TEXT, UNIQUE (a)", "", "a DB_ROW_HASH_1"),
        ("a TEXT, UNIQUE (a(20))", "", "a"),
        ("a INT, UNIQUE (a) USING HASH", "", "a DB_ROW_HASH_1"),
        ("a INT, UNIQUE (a) USING HASH", "ENGINE=MEMORY", "a"),
        ("a VARCHAR(3072) CHARSET latin1, UNIQUE (a)", "", "a"),
        ("a VARCHAR(3073) CHARSET latin1, UNIQUE (a)", "", "a DB_ROW_HASH_1"),
        ("a VARCHAR(769), UNIQUE (a)", "", "a DB_ROW_HASH_1"),
        ("a VARCHAR(767), b INT, UNIQUE (a, b)", "", "a b"),
        ("a VARCHAR(767), b BIGINT, UNIQUE (a, b)", "", "a b DB_ROW_HASH_1"),
        ("a POINT NOT NULL, UNIQUE (a)", "", "a"),
        ("a POLYGON, UNIQUE (a)", "", "a DB_ROW_HASH_1"),
        ("a LINESTRING, UNIQUE (a(12))", "", "a"),
        ("a VARCHAR(1001) CHARSET latin1, UNIQUE (a)", "ENGINE=MyISAM", "a DB_ROW_HASH_1"),
        (
            "a JSON, b TEXT, UNIQUE (a), UNIQUE (b, a)",
            "WITH SYSTEM VERSIONING",
            "a b row_start row_end DB_ROW_HASH_1 DB_ROW_HASH_2",
        ),
    ],
)
def test_keys_over_a_hash(body: str, options: str, expected: str) -> None:
    assert names(shape_of(f"CREATE TABLE t ({body}) {options}", dialect=MARIADB)) == expected
    assert "DB_ROW_HASH" not in names(shape_of(f"CREATE TABLE t ({body}) {options}"))


def test_hashes_through_statements() -> None:
    table = "CREATE TABLE t (a TEXT, b INT, UNIQUE (a), UNIQUE (b) USING HASH)"
    assert names(shape_of(table, dialect=MARIADB)) == "a b DB_ROW_HASH_1 DB_ROW_HASH_2"
    # Any ALTER forgets USING HASH.
    altered = shape_of(table, "ALTER TABLE t ADD c INT", dialect=MARIADB)
    assert names(altered) == "a b c DB_ROW_HASH_1"
    renamed = ["ALTER TABLE t RENAME u", "ALTER TABLE u DISABLE KEYS", "RENAME TABLE u TO t"]
    assert names(shape_of(table, *renamed, dialect=MARIADB)) == "a b DB_ROW_HASH_1 DB_ROW_HASH_2"
    assert names(shape_of(table, "ALTER TABLE t MODIFY a VARCHAR(10)", dialect=MARIADB)) == "a b"
    geometry = "CREATE TABLE t (a GEOMETRY NOT NULL, UNIQUE (a))"
    assert names(shape_of(geometry, dialect=MARIADB)) == "a DB_ROW_HASH_1"
    assert names(shape_of(geometry, "ALTER TABLE t ADD b INT", dialect=MARIADB)) == "a b"
    both = shape_of("CREATE TABLE t (a TEXT, b TEXT NOT NULL, UNIQUE (a), UNIQUE (b))", dialect=MARIADB)
    # Whether a hash may be NULL is not said.
    assert [column.nullable for column in both.columns] == [True, False, None, None]
    assert key_names(both) == "b a"
    memory = "CREATE TABLE t (a INT, UNIQUE (a)) ENGINE=MEMORY"
    assert "USING HASH" in reason_of(memory, "ALTER TABLE t ENGINE=InnoDB", dialect=MARIADB)
    lost = "ALTER TABLE t DROP KEY unheard_of"
    assert "a unique key over a hash" in reason_of(
        table, lost, "ALTER TABLE t ADD UNIQUE (a)", dialect=MARIADB
    )


@pytest.mark.parametrize(
    ("statements", "expected", "key"),
    [
        (
            ["CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING"],
            f"a int NOT NULL, {HIDDEN_PERIOD}",
            ("a", "row_end"),
        ),
        (
            ["CREATE TABLE t (a INT, b INT WITH SYSTEM VERSIONING)"],
            f"a int, b int, {HIDDEN_PERIOD}",
            (),
        ),
        (
            [
                "CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING",
                "ALTER TABLE t DROP SYSTEM VERSIONING",
            ],
            "a int NOT NULL",
            ("a",),
        ),
        (
            [
                "CREATE TABLE t (a INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
                "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING"
            ],
            "a int NOT NULL, s timestamp(6) NOT NULL INVISIBLE ROW START, e timestamp(6) NOT NULL ROW END",
            ("a", "e"),
        ),
        (
            [
                "CREATE TABLE t (a INT PRIMARY KEY)",
                "ALTER TABLE t ADD s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, "
                "ADD e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, ADD PERIOD FOR SYSTEM_TIME (s, e), "
                "ADD SYSTEM VERSIONING",
            ],
            "a int NOT NULL, s bigint unsigned NOT NULL ROW START, e bigint unsigned NOT NULL ROW END",
            ("a", "e"),
        ),
        (
            [
                "CREATE TABLE t (id INT, s DATE, e DATE, PERIOD FOR p (s, e), PRIMARY KEY (id, p WITHOUT OVERLAPS))"
            ],
            "id int NOT NULL, s date NOT NULL, e date NOT NULL",
            ("id", "e", "s"),
        ),
        (
            [
                "CREATE TABLE t (id INT, s DATE, e DATE, PERIOD FOR p (s, e), UNIQUE u (id, p WITHOUT OVERLAPS))",
                "ALTER TABLE t DROP INDEX u, DROP PERIOD FOR p",
            ],
            "id int, s date NOT NULL, e date NOT NULL",
            (),
        ),
    ],
)
def test_periods(statements: list[str], expected: str, key: tuple[str, ...]) -> None:
    shape = shape_of(*statements, dialect=MARIADB)
    assert columns_text(shape) == expected
    assert shape.primary_key == key
