"""ALTER TABLE, clause by clause and together: facts of MySQL 5.6, 9.7, MariaDB 10.11 and 11.8."""

from __future__ import annotations

import pytest

from replica.schemas.catalog import Statement, Unknown
from replica.schemas.shape import Shape
from replica.sql.dialect import Dialect
from tests.support.shape_text import (
    MARIADB,
    MYSQL,
    MYSQL56,
    T,
    catalog_of,
    columns_text,
    names,
    reason_of,
    shape_of,
)

ABC = "CREATE TABLE t (a INT, b INT, c INT)"


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ADD d INT", "a b c d"),
        ("ADD COLUMN d INT FIRST", "d a b c"),
        ("ADD d INT FIRST, ADD e INT FIRST", "e d a b c"),
        ("ADD d INT AFTER a, ADD e INT AFTER d", "a d e b c"),
        ("ADD (d INT, e INT)", "a b c d e"),
        ("ADD COLUMN (d INT, PRIMARY KEY (d), e INT)", "a b c d e"),
        ("DROP b", "a c"),
        ("DROP COLUMN b CASCADE, DROP c", "a"),
        ("DROP t.b", "a c"),
        ("DROP B, ADD b VARCHAR(3)", "a c b"),
        ("DROP a, ADD a INT FIRST", "a b c"),
        (
            "CHANGE a x INT, ADD y INT AFTER x, ADD z INT FIRST, ADD w INT FIRST, MODIFY c INT AFTER x, ADD v INT",
            "w z x c y b v",
        ),
        ("CHANGE a b INT, CHANGE b a INT", "b a c"),
        ("CHANGE COLUMN a a2 INT AFTER c", "b c a2"),
        ("MODIFY a INT AFTER c, MODIFY c INT AFTER b", "b c a"),
        ("MODIFY c INT AFTER a, MODIFY a INT AFTER b", "c b a"),
        ("MODIFY b INT FIRST", "b a c"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD d INT AFTER a", "b a d c"),
        ("RENAME COLUMN c TO D2, ADD e INT AFTER d2", "a b D2 e"),
        ("ENGINE = MyISAM COMMENT 'x, ADD d INT' ROW_FORMAT=DYNAMIC", "a b c"),
        ("ADD d INT, ALGORITHM = INSTANT, LOCK=NONE", "a b c d"),
        ("ADD d INT, AUTO_INCREMENT = 5 ENGINE=InnoDB, MODIFY COLUMN b INT", "a b c d"),
        ("DISABLE KEYS", "a b c"),
        ("ORDER BY a, b DESC", "a b c"),
        ("ADD d INT PARTITION BY HASH (a) PARTITIONS 4", "a b c d"),
        ("REMOVE PARTITIONING", "a b c"),
        ("ADD PARTITION (PARTITION p VALUES LESS THAN (5))", "a b c"),
        ("DROP PARTITION p, q", "a b c"),
        ("REORGANIZE PARTITION p INTO (PARTITION q VALUES IN (1), PARTITION r VALUES IN (2))", "a b c"),
        ("ALTER a SET DEFAULT 5, ALTER COLUMN b DROP DEFAULT, ALTER c SET DEFAULT (1 + 1)", "a b c"),
        ("ALTER INDEX i INVISIBLE, DROP CHECK x, DROP FOREIGN KEY f, ADD CHECK (a > 0)", "a b c"),
        ("ADD CONSTRAINT CHECK (a > 0), ADD CONSTRAINT x CHECK (b > 0) NOT ENFORCED", "a b c"),
        ("FORCE, WITHOUT VALIDATION", "a b c"),
        ("DISCARD TABLESPACE", "a b c"),
        ("", "a b c"),
    ],
)
def test_order(clauses: str, expected: str) -> None:
    assert names(shape_of(ABC, f"ALTER TABLE t {clauses}")) == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("ADD COLUMN IF NOT EXISTS a BIGINT, ADD IF NOT EXISTS d INT", "a b c d"),
        ("DROP a, ADD COLUMN IF NOT EXISTS a BIGINT", "b c"),
        ("ADD COLUMN IF NOT EXISTS d INT, ADD COLUMN IF NOT EXISTS d BIGINT", "a b c d"),
        ("ADD COLUMN IF NOT EXISTS (d INT, a BIGINT, e INT)", "a b c d e"),
        ("DROP COLUMN IF EXISTS x, DROP IF EXISTS b, DROP IF EXISTS b", "a c"),
        (
            "CHANGE IF EXISTS x y INT, MODIFY IF EXISTS z INT, RENAME COLUMN IF EXISTS v TO w, ADD d INT",
            "a b c d",
        ),
        ("CHANGE IF EXISTS x b INT FIRST, MODIFY IF EXISTS y INT FIRST", "a b c"),
        ("RENAME COLUMN c TO c2, ADD COLUMN IF NOT EXISTS c BIGINT", "a b c2"),
        ("WAIT 30 ADD d INT", "a b c d"),
        ("NOWAIT ADD d INT", "a b c d"),
        ("ADD PARTITION IF NOT EXISTS (PARTITION p VALUES LESS THAN (5))", "a b c"),
        ("DROP CONSTRAINT IF EXISTS x, DROP FOREIGN KEY IF EXISTS y", "a b c"),
        ("ADD SYSTEM VERSIONING, ADD d INT", "a b c d row_start row_end"),
    ],
)
def test_order_in_mariadb(clauses: str, expected: str) -> None:
    assert names(shape_of(ABC, f"ALTER ONLINE TABLE t {clauses}", dialect=MARIADB)) == expected


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("MODIFY v VARCHAR(9)", "id int NOT NULL, v varchar(9) latin1, x text latin1"),
        ("MODIFY id BIGINT", "id bigint NOT NULL, v varchar(5) greek, x text latin1"),
        ("DROP PRIMARY KEY", "id int NOT NULL, v varchar(5) greek, x text latin1"),
        ("DROP PRIMARY KEY, MODIFY id INT", "id int, v varchar(5) greek, x text latin1"),
        ("DEFAULT CHARACTER SET utf8mb4", "id int NOT NULL, v varchar(5) greek, x text latin1"),
        (
            "ADD y CHAR(2), CHARSET=utf8mb4",
            "id int NOT NULL, v varchar(5) greek, x text latin1, y char(2) utf8mb4",
        ),
        (
            "COLLATE ucs2_bin, ADD y CHAR(2)",
            "id int NOT NULL, v varchar(5) greek, x text latin1, y char(2) ucs2",
        ),
        (
            "CHARSET = DEFAULT, ADD y CHAR(2)",
            "id int NOT NULL, v varchar(5) greek, x text latin1, y char(2) utf8mb4",
        ),
        ("CONVERT TO CHARACTER SET utf8", "id int NOT NULL, v varchar(5) utf8mb3, x mediumtext utf8mb3"),
        ("CONVERT TO CHARSET DEFAULT", "id int NOT NULL, v varchar(5) utf8mb4, x mediumtext utf8mb4"),
        ("CONVERT TO CHARACTER SET binary", "id int NOT NULL, v varbinary(5), x blob"),
        (
            "CONVERT TO CHARACTER SET ucs2 COLLATE ucs2_bin, ADD y TEXT, ADD z CHAR CHARSET cp1251, ADD w CHAR BYTE",
            "id int NOT NULL, v varchar(5) ucs2, x mediumtext ucs2, y text ucs2, z char(1) ucs2, w binary(1)",
        ),
        ("ALTER v SET INVISIBLE", "id int NOT NULL, v varchar(5) greek INVISIBLE, x text latin1"),
    ],
)
def test_definitions(clauses: str, expected: str) -> None:
    table = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(5) CHARSET greek, x TEXT) CHARSET latin1"
    assert columns_text(shape_of(table, f"ALTER TABLE t {clauses}")) == expected


@pytest.mark.parametrize(
    ("before", "after", "sizes"),
    [
        ("latin1", "utf8mb4", "text mediumtext longtext longtext"),
        ("utf8mb4", "latin1", "tinytext text mediumtext longtext"),
        ("utf8mb3", "utf8mb4", "text mediumtext longtext longtext"),
        ("utf8mb3", "ucs2", "tinytext text mediumtext longtext"),
        ("ujis", "utf8mb3", "tinytext text mediumtext longtext"),
        ("utf8mb4", "binary", "tinyblob blob mediumblob longblob"),
    ],
)
def test_texts_grow(before: str, after: str, sizes: str) -> None:
    table = f"CREATE TABLE t (a TINYTEXT, b TEXT, c MEDIUMTEXT, d LONGTEXT) CHARSET {before}"
    shape = shape_of(table, f"ALTER TABLE t CONVERT TO CHARACTER SET {after}")
    assert " ".join(column.type for column in shape.columns) == sizes


def test_json_in_mariadb_is_converted_with_the_rest() -> None:
    shape = shape_of(ABC, "ALTER TABLE t ADD d JSON, CONVERT TO CHARSET gbk", dialect=MARIADB)
    assert columns_text(shape).endswith("d longtext gbk")


def test_a_text_that_is_changed_and_converted_at_once() -> None:
    sql = [
        "CREATE TABLE t (a TEXT) CHARSET latin1",
        "ALTER TABLE t MODIFY a TINYTEXT, CONVERT TO CHARSET utf8mb4",
    ]
    assert "changed and converted at once" in reason_of(*sql)
    for dialect in (MARIADB, MYSQL56):
        assert columns_text(shape_of(*sql, dialect=dialect)) == "a tinytext utf8mb4"


@pytest.mark.parametrize(
    "clauses", ["CONVERT TO CHARSET ascii, COLLATE binary", "CHARSET binary, CONVERT TO CHARSET ascii"]
)
def test_a_binary_default_beside_a_conversion(clauses: str) -> None:
    table = "CREATE TABLE t (a VARCHAR(5), b CHAR(3)) CHARSET latin1"
    alter = f"ALTER TABLE t {clauses}, MODIFY a VARCHAR(5), ADD c CHAR(2) CHARSET latin1"
    assert (
        columns_text(shape_of(table, alter, dialect=MARIADB))
        == "a varbinary(5), b char(3) ascii, c char(2) ascii"
    )
    assert "a varchar(5) ascii" in columns_text(
        shape_of(
            table,
            "ALTER TABLE t CHARSET binary, CONVERT TO CHARSET ascii, MODIFY a VARCHAR(5)",
            dialect=MYSQL56,
        )
    )


def test_the_default_that_an_old_mysql_may_keep() -> None:
    table = "CREATE TABLE t (a INT, v VARCHAR(5) CHARSET latin1) CHARSET utf8"
    convert = "ALTER TABLE t CONVERT TO CHARACTER SET latin1"
    assert shape_of(table, convert).charset == "latin1"
    assert shape_of(table, convert, dialect=MYSQL56).charset is None
    assert shape_of(table, f"{convert}, FORCE", dialect=MYSQL56).charset == "latin1"
    assert shape_of(f"{table[:-4]}latin1", convert, dialect=MYSQL56).charset == "latin1"
    added = shape_of(table, convert, "ALTER TABLE t ADD x CHAR", dialect=MYSQL56)
    assert columns_text(added) == "a int, v varchar(5) latin1, x"
    assert (
        shape_of(table, convert, "ALTER TABLE t ADD x INT, CHARSET greek", dialect=MYSQL56).charset == "greek"
    )


@pytest.mark.parametrize(
    ("clauses", "mysql", "mariadb"),
    [
        ("COLLATE utf8_bin, CONVERT TO CHARSET latin2", "latin2", "utf8mb3"),
        ("CONVERT TO CHARSET latin2, COLLATE utf8_bin", "utf8mb3", "utf8mb3"),
    ],
)
def test_the_default_of_two_clauses(clauses: str, mysql: str, mariadb: str) -> None:
    assert shape_of(ABC, f"ALTER TABLE t {clauses}").charset == mysql
    assert shape_of(ABC, f"ALTER TABLE t {clauses}", dialect=MARIADB).charset == mariadb


@pytest.mark.parametrize(
    ("table", "clauses", "reason"),
    [
        (ABC, "ADD d INT AFTER x", "no column x is known"),
        (ABC, "DROP x", "no column x is known"),
        (ABC, "ADD a BIGINT", "two columns of one name"),
        (ABC, "DROP a, MODIFY a INT", "column a is changed twice"),
        (ABC, "ADD d INT MASKED", "unknown attribute MASKED of column d"),
        (ABC, "FROBNICATE a", "unknown clause at 'FROBNICATE'"),
        (ABC, "ADD d INT; DROP TABLE u", "unknown clause at"),
        (ABC, "ADD d CHAR COMMENT 'x", "that is not closed"),
    ],
)
@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_what_is_not_known(table: str, clauses: str, reason: str, dialect: Dialect) -> None:
    text = reason_of(table, f"ALTER TABLE t {clauses}", dialect=dialect)
    assert reason in text
    assert text.endswith(f": ALTER TABLE t {clauses}")


@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_labels_stay_between_the_sets_of_utf8(dialect: Dialect) -> None:
    """From utf8 to utf8mb4, as most servers' tables once went, an ENUM with other letters than ASCII was lost."""
    table = "CREATE TABLE t (e ENUM('ä', '日') CHARSET utf8mb3, s SET('ß') CHARSET utf8mb4)"
    for charset in ("utf8mb4", "utf8"):
        shape = shape_of(table, f"ALTER TABLE t CONVERT TO CHARSET {charset}", dialect=dialect)
        assert [column.labels for column in shape.columns] == [("ä", "日"), ("ß",)]


@pytest.mark.parametrize(("label", "charset"), [("ä", "latin1"), ("a", "ucs2"), ("\U0001f600", "utf8mb3")])
@pytest.mark.parametrize("dialect", [MYSQL, MARIADB])
def test_labels_that_are_converted_make_one_column_unknown(
    label: str, charset: str, dialect: Dialect
) -> None:
    table = f"CREATE TABLE t (a INT, e ENUM('{label}'), v CHAR(2))"
    shape = shape_of(table, f"ALTER TABLE t CONVERT TO CHARSET {charset}", dialect=dialect)
    assert columns_text(shape) == f"a int, e, v char(2) {charset}"


def test_a_unique_key_over_a_column_of_no_known_type() -> None:
    """It may be over a hash in MariaDB, and over the whole column or not in MySQL."""
    table = "CREATE TABLE t (a INT NOT NULL, v VARCHAR(9) NOT NULL, UNIQUE (v(9)), UNIQUE u (a))"
    assert "whose type is not known" in reason_of(table, dialect=MARIADB, charset=None)
    assert shape_of(table, charset=None).primary_key == ()
    assert shape_of(table).primary_key == ("v",)


@pytest.mark.parametrize(
    ("dialect", "session", "charset"),
    [
        (MYSQL, "other", "greek"),
        (MYSQL56, "other", "greek"),
        (MYSQL, "shop", "utf8mb4"),
        # collation_server, as nothing else is known.
        (MYSQL, "", "latin1"),
        (Dialect(True, (10, 6, 23)), "other", "greek"),
        (Dialect(True, (10, 11, 18)), "other", "utf8mb4"),
        (MARIADB, "", "utf8mb4"),
        (Dialect(True, (10, 9, 1)), "other", None),
        (Dialect(True, (10, 9, 1)), "shop", "utf8mb4"),
    ],
)
def test_a_conversion_to_the_default_of_another_schema(
    dialect: Dialect, session: str, charset: str | None
) -> None:
    """MySQL, and older MariaDB, take the character set of the session's schema, not that of the table's."""
    catalog = catalog_of("CREATE TABLE t (a CHAR(1) CHARSET cp1251) CHARSET latin2", dialect=dialect)
    catalog.set_schema("other", "greek")
    sql = "ALTER TABLE shop.t CONVERT TO CHARACTER SET DEFAULT"
    catalog.apply(Statement(sql, session, dialect, "latin1"))
    state = catalog.get(T)
    if charset is None:
        assert isinstance(state, Unknown)
    else:
        assert isinstance(state, Shape)
        assert (columns_text(state), state.charset) == (f"a char(1) {charset}", charset)


@pytest.mark.parametrize(
    ("column", "clauses", "expected"),
    [
        ("INVISIBLE PRIMARY KEY", "ADD c INT FIRST", "my_row_id c a b"),
        ("INVISIBLE PRIMARY KEY", "MODIFY b INT FIRST, ADD c INT", "my_row_id b a c"),
        ("INVISIBLE PRIMARY KEY", "CHANGE b c INT FIRST", "my_row_id c a"),
        ("INVISIBLE PRIMARY KEY", "ALTER my_row_id SET VISIBLE, ADD c INT FIRST", "my_row_id c a b"),
        ("INVISIBLE PRIMARY KEY", "DROP my_row_id, DROP PRIMARY KEY, ADD c INT FIRST", "c a b"),
        ("INVISIBLE PRIMARY KEY", "ADD my_row_id TEXT, DROP my_row_id", "a b my_row_id"),
        ("INVISIBLE PRIMARY KEY", "DROP my_row_id, RENAME COLUMN b TO my_row_id", "my_row_id a"),
        ("PRIMARY KEY", "ADD c INT FIRST", "c my_row_id a b"),
        ("INVISIBLE UNIQUE, PRIMARY KEY (a)", "ADD c INT FIRST", "c my_row_id a b"),
        ("INVISIBLE, PRIMARY KEY (my_row_id, a)", "ADD c INT FIRST", "c my_row_id a b"),
    ],
)
def test_first_is_behind_a_generated_invisible_key(column: str, clauses: str, expected: str) -> None:
    """Measured on MySQL 8.0, 8.4 and 9.7, with sql_generate_invisible_primary_key on and off."""
    table = f"CREATE TABLE t (my_row_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT {column}, a INT, b INT)"
    assert names(shape_of(table, f"ALTER TABLE t {clauses}")) == expected
