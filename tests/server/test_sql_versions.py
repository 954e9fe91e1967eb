"""SQL of the command line for MariaDB's system-versioned tables: their history is replayed, too.

`TEST_SEED` repeats a run.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.server.support.sql_replays import Log, decode, replay, schema_file
from tests.support.servers import Server

SERVERS = ["mariadb:10.11", "mariadb:11.8"]
on_each = pytest.mark.parametrize("server", SERVERS, indirect=True)

Rows = dict[str, list[tuple[Any, ...]]]

# Table: its columns besides `id` and `v`, its key, and the names of its period.
WORDS = "v INT, w VARCHAR(9)"
ENDED = "CHARSET utf8mb4 WITH SYSTEM VERSIONING"
# The log does not name the character set of the schema, without which the columns in a CREATE TABLE are not known.
TABLES = {
    "hidden": f"(id INT PRIMARY KEY, {WORDS}) {ENDED}",
    "keyless": f"(id INT, {WORDS}) {ENDED}",
    "hashed": f"(id INT PRIMARY KEY, v INT, w TEXT, UNIQUE (id, w)) {ENDED}",
    "named": "(id INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, v INT, w VARCHAR(9), e TIMESTAMP(6) "
    f"GENERATED ALWAYS AS ROW END, PRIMARY KEY (id), PERIOD FOR SYSTEM_TIME (s, e)) {ENDED}",
    "partly": "(id INT PRIMARY KEY, v INT, w VARCHAR(9) WITHOUT SYSTEM VERSIONING, "
    f"t TIMESTAMP DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP) {ENDED}",
    "computed": f"(id INT PRIMARY KEY, {WORDS}, g INT AS (v + 1) STORED, KEY (g)) {ENDED}",
    "parted": f"(id INT PRIMARY KEY, {WORDS}) {ENDED} PARTITION BY SYSTEM_TIME LIMIT 20 "
    "(PARTITION p0 HISTORY, PARTITION p1 HISTORY, PARTITION pn CURRENT)",
    "parent": f"(id INT PRIMARY KEY, {WORDS}) {ENDED}",
    "child": f"(id INT PRIMARY KEY, {WORDS}, CONSTRAINT f FOREIGN KEY (v) REFERENCES parent (id) "
    f"ON DELETE CASCADE ON UPDATE CASCADE) {ENDED}",
    "plain": f"(id INT PRIMARY KEY, {WORDS}, t TIMESTAMP DEFAULT CURRENT_TIMESTAMP "
    "ON UPDATE CURRENT_TIMESTAMP) CHARSET utf8mb4",
    # Not versioned, whatever its columns are called.
    "dated": f"(id INT PRIMARY KEY, {WORDS}, row_start TIMESTAMP(6) DEFAULT '2001-01-01', "
    "row_end TIMESTAMP(6) DEFAULT '2001-01-01') CHARSET utf8mb4",
}
PLAIN = ("plain", "dated")
FAMILY = ("parent", "child")
CREATE = [f"CREATE TABLE {name} {definition}" for name, definition in TABLES.items()]
STEPS = 150


@pytest.fixture(autouse=True)
def full_metadata(server: Server) -> Iterator[None]:
    server.query("SET GLOBAL binlog_row_metadata = 'FULL'")
    try:
        yield
    finally:
        server.query("SET GLOBAL binlog_row_metadata = DEFAULT")


def whole_history(server: Server, schema: str) -> Rows:
    """All rows of all tables with their periods, in any order that is always the same."""
    found: Rows = {}
    for name in TABLES:
        columns = "*" if name in (*PLAIN, "named") else "*, row_start, row_end"
        of_all = "" if name in PLAIN else " FOR SYSTEM_TIME ALL"
        rows = server.query(f"SELECT {columns} FROM {schema}.{name}{of_all}")
        found[name] = sorted(rows, key=repr)
    return found


def ended(server: Server, schema: str) -> Rows:
    """The history of all versioned tables."""
    found: Rows = {}
    for name in TABLES.keys() - set(PLAIN):
        end = "e" if name == "named" else "row_end"
        found[name] = server.query(
            f"SELECT id, v, w, {end} FROM {schema}.{name} FOR SYSTEM_TIME ALL WHERE {end} <= NOW(6)"
        )
    return found


def current(server: Server, schema: str) -> Rows:
    return {name: sorted(server.query(f"SELECT id, v, w FROM {schema}.{name}"), key=repr) for name in TABLES}


def statements(rng: random.Random, names: list[str]) -> Iterator[str]:
    """Changes of random tables. Some are made of several rows, in transactions, or with a clock that was set back."""
    has_transaction = is_set_back = False
    for _ in range(STEPS):
        if rng.random() < 0.15:
            yield "COMMIT" if has_transaction else "BEGIN"
            has_transaction = not has_transaction
        if rng.random() < 0.1:
            moment = rng.choice(["DEFAULT", "1000000000.25", "1100000000.000001"])
            is_set_back = moment != "DEFAULT"
            yield f"SET timestamp = {moment}"
        if rng.random() < 0.1:
            yield f"SET binlog_row_image = {rng.choice(['FULL', 'NOBLOB', 'MINIMAL'])}"
        # Of a row that ends before its start the log has the second: not what a foreign key needs for its rows.
        yield change(rng, rng.choice([name for name in names if not is_set_back or name not in FAMILY]))
    yield "COMMIT"
    yield "SET timestamp = DEFAULT"


def change(rng: random.Random, table: str) -> str:
    value, number = rng.randrange(8), rng.randrange(8)
    row = f"{rng.randrange(8)}, {rng.choice(['NULL', value])}, {rng.choice(['NULL', repr('ä'), repr('b')])}"
    makers: list[Callable[[], str]] = [
        lambda: f"INSERT INTO {table} (id, v, w) VALUES ({row})",
        # MariaDB 11.8 replaces a row of a versioned child without a look at its parent.
        lambda: f"{'INSERT' if table == 'child' else 'REPLACE'} INTO {table} (id, v, w) VALUES ({row})",
        lambda: f"INSERT INTO {table} (id, v, w) VALUES ({row}) ON DUPLICATE KEY UPDATE v = {value}",
        lambda: f"UPDATE {table} SET v = {value} WHERE id <= {number}",
        lambda: f"UPDATE {table} SET w = 'c{value}' WHERE id = {number}",
        lambda: f"UPDATE {table} SET id = {value + 4} WHERE id = {number}",
        lambda: f"UPDATE {table} SET v = 1, w = NULL WHERE id > {number} LIMIT 3",
        lambda: f"DELETE FROM {table} WHERE id = {number}",
        lambda: f"DELETE FROM {table} WHERE id > {number} LIMIT 2",
    ]
    return rng.choice(makers)()


def run(connection: pymysql.Connection[Any], sqls: Iterator[str] | list[str]) -> int:
    """Run statements; how many did something. A duplicate key or a missing parent is no failure."""
    done = 0
    with connection.cursor() as cursor:
        for sql in sqls:
            with contextlib.suppress(pymysql.err.IntegrityError, pymysql.err.OperationalError):
                done += cursor.execute(sql) > 0
    return done


def compare(found: Rows, expected: Rows) -> None:
    for name, rows in expected.items():
        lost = [row for row in rows if row not in found[name]]
        new = [row for row in found[name] if row not in rows]
        assert (lost, new) == ([], []), name
        assert found[name] == rows, name


@on_each
def test_random_changes_are_redone_with_their_history(
    seed: int, server: Server, schema: str, tmp_path: Path
) -> None:
    rng = random.Random(f"{seed} {server.name}")
    log = Log(server, tmp_path)
    with server.connect(database=schema) as connection:
        run(connection, CREATE)
        done = run(connection, statements(rng, list(TABLES)))
        run(
            connection,
            ["DELETE HISTORY FROM parent BEFORE SYSTEM_TIME '2005-01-01'", "DELETE HISTORY FROM named"],
        )
        done += run(connection, statements(rng, list(TABLES)))
    path = log.copy()
    expected = whole_history(server, schema)
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", path))
    compare(whole_history(server, schema), expected)
    print(f"{server.name}: {done} statements, {sum(map(len, expected.values()))} rows with those of the past")


@on_each
def test_random_changes_are_undone(seed: int, server: Server, schema: str, tmp_path: Path) -> None:
    """Current rows are as they were; the history tells of the changes and of their undoing."""
    rng = random.Random(f"{seed} {server.name} undo")
    # Nothing in the log says what a foreign key changed in cascade.
    names = [name for name in TABLES if name not in FAMILY]
    with server.connect(database=schema) as connection:
        run(connection, CREATE)
        run(connection, [sql for sql in statements(rng, names) if "row_image" not in sql])
        before = current(server, schema)
        log = Log(server, tmp_path)
        run(connection, [sql for sql in statements(rng, names) if "row_image" not in sql])
        path = log.copy()
    assert current(server, schema) != before
    past = ended(server, schema)
    described = schema_file(server, schema, tmp_path)
    replay(server, decode(tmp_path, "--flashback", "--schema", described, path))
    compare(current(server, schema), before)
    now = ended(server, schema)
    for name, rows in past.items():
        assert set(rows) <= set(now[name]), name


@on_each
def test_versioning_that_comes_and_goes(server: Server, schema: str, tmp_path: Path) -> None:
    log = Log(server, tmp_path)
    columns = "id, v, row_start, row_end"
    with server.connect(database=schema) as connection:
        run(
            connection,
            [
                "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
                "CREATE TABLE u (id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING",
                *("INSERT INTO t VALUES (1, 1), (2, 2)", "INSERT INTO u VALUES (1, 1), (2, 2)"),
                *("UPDATE t SET v = 3", "UPDATE u SET v = 3 WHERE id = 1"),
                *("ALTER TABLE t ADD SYSTEM VERSIONING", "ALTER TABLE u DROP SYSTEM VERSIONING"),
                *(
                    "UPDATE t SET v = 4 WHERE id = 1",
                    "DELETE FROM t WHERE id = 2",
                    "DELETE FROM u WHERE id = 1",
                ),
                "SET SESSION system_versioning_insert_history = 1",
                f"INSERT INTO t ({columns}) VALUES (7, 7, '2001-01-01', '2002-01-01')",
            ],
        )
    path = log.copy()
    of_all = f"SELECT {columns} FROM {schema}.t FOR SYSTEM_TIME ALL ORDER BY 1, 4"
    expected = server.query(of_all), server.query(f"SELECT * FROM {schema}.u")
    # Before 10.11, MariaDB takes no rows of the past.
    assert len(expected[0]) == (4 if server.version >= (10, 11) else 3)
    server.query(f"DROP DATABASE {schema}")
    server.query(f"CREATE DATABASE {schema}")
    replay(server, decode(tmp_path, "--format=sql", path))
    assert (server.query(of_all), server.query(f"SELECT * FROM {schema}.u")) == expected
