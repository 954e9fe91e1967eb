"""No text raises an error, and none that is not understood leaves a shape that was guessed."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.schemas.catalog import Statement, Unknown
from replica.sql.ddl_reader import read_statement
from replica.sql.dialect import Dialect
from tests.support.shape_text import MARIADB, MYSQL, MYSQL56, T, catalog_of

_WORDS = """
    CREATE ALTER DROP RENAME TRUNCATE TABLE DATABASE INDEX SEQUENCE TEMPORARY OR REPLACE IF NOT EXISTS LIKE ADD
    COLUMN MODIFY CHANGE FIRST AFTER TO AS ON SET DEFAULT NULL PRIMARY KEY UNIQUE FOREIGN REFERENCES CONSTRAINT
    CHECK FULLTEXT SPATIAL PERIOD FOR SYSTEM_TIME SYSTEM VERSIONING WITH WITHOUT OVERLAPS CONVERT CHARACTER CHARSET
    COLLATE utf8mb4 latin1 ucs2 INT VARCHAR TEXT BLOB ENUM DECIMAL BIT TIME JSON POINT UNSIGNED ZEROFILL
    AUTO_INCREMENT GENERATED ALWAYS
    a b c shop . . , , , ( ( ( ) ) ) = ; 'x' "y" `z` 0x61 b'1' 1 5 255 70000 1.5 -1 /*!50100 */ /* ' -- # \\ @v :=
"""
WORDS = _WORDS.split()
DIALECTS = [MYSQL, MYSQL56, MARIADB, Dialect(True, (10, 3, 0), (1 << 32) - 1, True, None)]


@settings(max_examples=100)
@given(st.text(max_size=200), st.sampled_from(DIALECTS))
def test_text(sql: str, dialect: Dialect) -> None:
    catalog_of("CREATE TABLE t (a INT)").apply(Statement(sql, "shop", dialect))


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS), max_size=40), st.sampled_from(DIALECTS))
def test_words(words: list[str], dialect: Dialect) -> None:
    for opening in ("", "ALTER TABLE t ", "CREATE TABLE t (a INT, ", "CREATE TABLE u "):
        sql = opening + " ".join(words)
        catalog_of("CREATE TABLE t (a INT, b VARCHAR(5), UNIQUE (b))").apply(
            Statement(sql, "shop", dialect, "latin1")
        )


REAL = [
    "CREATE TABLE t (id INT UNSIGNED NOT NULL AUTO_INCREMENT, v VARCHAR(5) CHARACTER SET utf8 COLLATE utf8_bin "
    "DEFAULT 'a''b', e ENUM('x','y') NOT NULL, g INT GENERATED ALWAYS AS (id + 1) VIRTUAL, PRIMARY KEY (id), "
    "UNIQUE KEY u (v(3)), CONSTRAINT f FOREIGN KEY (id) REFERENCES p (id) ON DELETE CASCADE) ENGINE=InnoDB "
    "DEFAULT CHARSET=utf8mb4",
    "ALTER TABLE t ADD COLUMN c DECIMAL(5,2) UNSIGNED DEFAULT -1.5 AFTER a, DROP INDEX x, CHANGE a `b c` TEXT "
    "NOT NULL FIRST, RENAME COLUMN x TO y, CONVERT TO CHARACTER SET latin1, ADD UNIQUE KEY (c), ALGORITHM=COPY "
    "PARTITION BY HASH (id)",
    "RENAME TABLE a TO b, c.d TO e.f",
]


@pytest.mark.parametrize("sql", REAL)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_damaged_statements(sql: str, dialect: Dialect) -> None:
    rng = random.Random(sql)
    for _ in range(100):
        begin = rng.randrange(len(sql))
        added = sql[:begin] + rng.choice(WORDS) + sql[begin:]
        damaged = rng.choice([sql[:begin], added, sql[:begin] + sql[begin + 1 :]])
        catalog_of("CREATE TABLE t (a INT)").apply(Statement(damaged, "shop", dialect, "latin1"))


@pytest.mark.parametrize("place", range(20, len(REAL[0]), 7))
def test_a_statement_cut_short_makes_no_shape(place: int) -> None:
    catalog = catalog_of(REAL[0][:place].rstrip(" )"))
    shape = catalog.get(T)
    assert shape is None or isinstance(shape, Unknown) or ")" in REAL[0][:place].rpartition("(id + 1)")[2]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD (" * 50_000,
        "CREATE TABLE t (a INT DEFAULT " + "(" * 100_000,
        "CREATE TABLE t (a ENUM('" + "''" * 200_000,
        "ALTER TABLE t " + "/*!50100 " * 50_000,
        "ALTER TABLE t ADD a INT, " * 20_000,
        "SET STATEMENT " + "a=1, " * 50_000,
        "CREATE TABLE t (" + "`" * 100_001,
        pytest.param(
            "ALTER TABLE t " + ",".join(f"ADD c{number} INT AFTER a" for number in range(10_000)),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "ALTER TABLE t " + ",".join(["ADD UNIQUE (a)"] * 20_000),
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "RENAME TABLE " + ",".join(f"t{number} TO u{number}" for number in range(15_000)),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_long_texts_are_read_in_one_walk(sql: str) -> None:
    begin = time.process_time()
    catalog_of("CREATE TABLE t (a INT)").apply(Statement(sql, "shop", MARIADB))
    assert time.process_time() - begin < 5


def test_statements_about_no_table_are_read_no_further_than_their_first_words() -> None:
    begin = time.process_time()
    for opening in ("INSERT INTO t VALUES ", "CREATE VIEW v AS ", "CREATE TRIGGER x ", "GRANT "):
        assert read_statement(opening + "('x'), " * 1_000_000, "shop", MYSQL) is None
    assert time.process_time() - begin < 0.5
