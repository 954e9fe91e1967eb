"""``mirror`` and ``history`` of live servers, fed without Spark: random changes, statements, XA, how a log begins."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import ConfigurationError, SchemaMismatchError
from replica.config.options import Options
from replica.spark.jobs.coverage import check_log
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.past_table import PastTable
from tests.server.support import random_shop
from tests.server.support.plain_runs import PlainRun
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.server.support.streams import begin_log
from tests.spark.support.kept_tables import check_intervals, rows_of
from tests.support.servers import Server

pytestmark = pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        yield schema


def test_random_changes(seed: int, server: Server, shop: str, tmp_path: Path) -> None:
    rng = random.Random(seed)
    random_shop.create(server, shop)
    runs = [
        PlainRun(server, tmp_path / kind.__name__, kind, f"{shop}.*") for kind in (CurrentTable, PastTable)
    ]
    for _ in range(3):
        with RandomWriter(server, shop, rng) as writer:
            writer.reach(120)
        for run in runs:
            run.run(max_rows=rng.choice([50, 1000]), max_bytes=rng.choice([2000, 1 << 20]))
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        assert kept_rows(runs[0].path, shop, table) == expected, table
        assert kept_rows(runs[1].path, shop, table, is_history=True) == expected, table
        check_intervals(runs[1].path, f"{shop}.{table}", TABLES[table][0])


def equal(run: PlainRun, server: Server, table: str) -> bool:
    """Whether the kept table is the source's."""
    run.run()
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY 1")
        names = [column[0] for column in cursor.description or ()]
        expected = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    found = sorted(rows_of(run.path, table), key=lambda row: row["id"])
    assert found == expected
    return bool(expected)


def test_statements(server: Server, shop: str, tmp_path: Path) -> None:
    t, old = f"{shop}.t", f"{shop}.t_old"
    server.query(f"CREATE TABLE {t} (id INT PRIMARY KEY, v VARCHAR(20))")
    server.query(f"INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    assert equal(run, server, t)
    server.query(f"ALTER TABLE {t} ADD COLUMN n INT, ADD COLUMN d DECIMAL(5,2) NOT NULL DEFAULT 1.25")
    server.query(f"UPDATE {t} SET n = 7 WHERE id = 1")
    assert equal(run, server, t)
    server.query(f"TRUNCATE TABLE {t}")
    server.query(f"INSERT INTO {t} (id) VALUES (3)")
    assert equal(run, server, t)
    server.query(f"ALTER TABLE {t} CHANGE COLUMN n m BIGINT, DROP COLUMN v")
    server.query(f"INSERT INTO {t} (id, m) VALUES (4, {1 << 40})")
    assert equal(run, server, t)
    server.query(f"CREATE TABLE {shop}.t_new LIKE {t}")
    server.query(f"INSERT INTO {shop}.t_new SELECT * FROM {t} WHERE id = 4")
    server.query(f"RENAME TABLE {t} TO {old}, {shop}.t_new TO {t}")
    assert equal(run, server, t)
    assert equal(run, server, old)
    server.query(f"CREATE TABLE {shop}.c (id INT PRIMARY KEY) SELECT id FROM {old}")
    assert equal(run, server, f"{shop}.c")
    server.query(f"DROP TABLE {t}")
    run.run()
    assert rows_of(run.path, t) == []
    server.query(f"CREATE TABLE {shop}.p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 2")
    server.query(f"INSERT INTO {shop}.p VALUES (1), (2)")
    assert equal(run, server, f"{shop}.p")
    server.query(f"ALTER TABLE {shop}.p TRUNCATE PARTITION p0")
    with pytest.raises(SchemaMismatchError, match=r"\.p cannot be kept any longer: TRUNCATE PARTITION"):
        run.run()


def test_no_key(server: Server, shop: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {shop}.nokey (id INT)")
    server.query(f"INSERT INTO {shop}.nokey VALUES (1)")
    with pytest.raises(ConfigurationError, match=rf"{shop}\.nokey has no primary key"):
        PlainRun(server, tmp_path, CurrentTable, f"{shop}.*").run()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_prepared_rows_wait(server: Server, shop: str, tmp_path: Path, end: str) -> None:
    server.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    server.query(f"INSERT INTO {shop}.t VALUES (1, 'a')")
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"XA START '{shop}', 'b', 3")
        cursor.execute(f"INSERT INTO {shop}.t VALUES (2, 'b')")
        cursor.execute(f"UPDATE {shop}.t SET v = 'x' WHERE id = 1")
        cursor.execute(f"XA END '{shop}', 'b', 3")
        cursor.execute(f"XA PREPARE '{shop}', 'b', 3")
        server.query(f"INSERT INTO {shop}.t VALUES (3, 'c')")
        run.run()
        before = [{"id": 1, "v": "a"}, {"id": 3, "v": "c"}]
        assert sorted(rows_of(run.path, f"{shop}.t"), key=lambda row: row["id"]) == before
        cursor.execute(f"XA {end} '{shop}', 'b', 3")
    assert equal(run, server, f"{shop}.t")


def test_generated_columns(server: Server, shop: str, tmp_path: Path) -> None:
    """Where the log has no value of an updated row, the kept row has none: never the one before."""
    table = f"{shop}.t"
    server.query(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT, b TEXT, s INT AS (a + 1) STORED, "
        "v VARCHAR(20) AS (CONCAT('v', a)) VIRTUAL)"
    )
    server.query(f"INSERT INTO {table} (id, a, b) VALUES (1, 10, 'x'), (2, 20, 'y'), (3, 30, 'z')")
    server.query(f"UPDATE {table} SET a = 11 WHERE id = 1")
    server.query(f"DELETE FROM {table} WHERE id = 3")
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    run.run()
    known = {"s": 12, "v": "v11"} if server.logs_generated else {"s": None, "v": None}
    assert sorted(rows_of(run.path, table), key=lambda row: row["id"]) == [
        {"id": 1, "a": 11, "b": "x", **known},
        {"id": 2, "a": 20, "b": "y", "s": 21, "v": "v20"},
    ]


def test_where_a_log_begins(server: Server, shop: str) -> None:
    def check() -> bool:
        return check_log(options, lambda name: name.startswith(f"{shop}."))

    options = Options.build(server.dsn(), {"heartbeat": 1})
    server.query(f"CREATE TABLE {shop}.a (id INT PRIMARY KEY)")
    check()
    time.sleep(1.1)
    begin_log(server)
    server.query(f"CREATE TABLE {shop}.b (id INT PRIMARY KEY)")
    with pytest.raises(ConfigurationError, match=rf"CREATE TABLE of {shop}\.a: .*seed="):
        check()
    # Made anew by an ALTER it is as young as the log, and still not all of it is there.
    server.query(f"ALTER TABLE {shop}.a ADD COLUMN v INT, FORCE")
    with pytest.raises(ConfigurationError, match=rf"CREATE TABLE of {shop}\.a: "):
        check()
    server.query(f"DROP TABLE {shop}.a")
    assert check() is False


def test_statements_in_another_sql_mode(server: Server, shop: str, tmp_path: Path) -> None:
    """Their quotes hid the tables' names: rows of a TRUNCATE stayed, without an error."""
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    for name in "tuv":
        server.query(f"CREATE TABLE {shop}.{name} (id INT PRIMARY KEY, a VARCHAR(9))")
        server.query(f"INSERT INTO {shop}.{name} VALUES (1, 'old')")
    run.run()
    quoted = {"ANSI_QUOTES": '"{}"'} | ({"MSSQL": "[{}]"} if server.family == "mariadb" else {})
    for number, (mode, form) in enumerate(quoted.items(), start=2):
        t, u, v, w, n = map(form.format, (*"tuvw", f"n{number}"))
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {shop}")
            cursor.execute(f"SET sql_mode = '{mode}'")
            cursor.execute(f"TRUNCATE TABLE {t}")
            cursor.execute(f"ALTER TABLE {u} ADD COLUMN {n} INT DEFAULT 7")
            cursor.execute(f"RENAME TABLE {v} TO {w}, {w} TO {v}")
        for table in "tuv":
            server.query(f"INSERT INTO {shop}.{table} (id) VALUES ({number})")
            assert equal(run, server, f"{shop}.{table}"), (mode, table)
