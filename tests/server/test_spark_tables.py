"""``snapshot=only``: a table of a live source as a DataFrame, and the log from there on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import replica.spark
from protocol.errors import ConfigurationError
from replica.spark.source_options import parse_options
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 30_000


def options_of(server: Server, table: str, folder: Path) -> dict[str, str]:
    """The password is in a file: executors read it."""
    path = folder / "password"
    path.write_text(server.replica_password)
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "passwordFile": str(path),
        "table": table,
    }


def fill(server: Server, table: str, key: str, rows: int = ROWS) -> None:
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    numbers = "a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d"
    tables = ", ".join(f"({digits}) AS {name}" for name in "abcef")
    server.query(
        f"INSERT INTO {table} SELECT {key}, n, CONCAT('v', n) FROM (SELECT {numbers} AS n FROM {tables}) AS x "
        f"WHERE n < {rows}"
    )


KEYS = {
    "number": ("k BIGINT PRIMARY KEY", "n * n - 1000"),
    "text": ("k VARCHAR(20) PRIMARY KEY", "CONCAT('k', n)"),
    "none": ("k INT", "n"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_all_rows_of_a_table(
    spark: SparkSession,  # noqa: F811
    server: Server,
    schema: str,
    tmp_path: Path,
    kind: str,
) -> None:
    column, key = KEYS[kind]
    table = f"{schema}.t"
    server.query(f"CREATE TABLE {table} ({column}, n INT UNSIGNED, v VARCHAR(20))")
    fill(server, table, key)
    source = options_of(server, table, tmp_path) | {"snapshotParallelism": "3"}
    found = replica.spark.read_table(spark, source)
    assert found.rows.columns == ["k", "n", "v", "_file", "_pos"]
    assert found.rows.rdd.getNumPartitions() == (1 if kind == "none" else 3)
    got = sorted((row.n, row.v, row.k) for row in found.rows.collect())
    expected = sorted((n, v, k) for k, n, v in server.query(f"SELECT k, n, v FROM {table}"))
    assert got == expected
    assert len(got) == ROWS


def test_nothing_to_read(spark: SparkSession, mysql97: Server, tmp_path: Path) -> None:  # noqa: F811
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
        source = options_of(mysql97, f"{schema}.t", tmp_path)
        found = replica.spark.read_table(spark, source)
        assert found.rows.collect() == []
        log = source | {
            "schemaMode": "table",
            "startingOffsets": found.offset,
            "spoolDir": str(tmp_path / "spool"),
        }
        assert spark.read.format("mysql-binlog").options(**log).load().collect() == []


def test_rows_and_the_log_from_their_place_are_the_table(
    spark: SparkSession,  # noqa: F811
    server: Server,
    schema: str,
    tmp_path: Path,
) -> None:
    """While somebody writes: changes win by the key, in the order of the log."""
    table = f"{schema}.t"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT UNSIGNED, v VARCHAR(20))")
    fill(server, table, "n")
    is_over = threading.Event()

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            number = 0
            while not is_over.is_set():
                cursor.execute(f"UPDATE {table} SET v = 'new{number}' WHERE id = {number * 7919 % ROWS}")
                cursor.execute(f"DELETE FROM {table} WHERE id = {number * 104729 % ROWS}")
                cursor.execute(f"INSERT INTO {table} VALUES ({ROWS + number}, {number}, 'x')")
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        source = options_of(server, table, tmp_path)
        found = replica.spark.read_table(spark, source)
        kept: dict[int, Any] = {row.id: row.v for row in found.rows.collect()}
    finally:
        is_over.set()
        writer.join()
    log = source | {
        "schemaMode": "table",
        "startingOffsets": found.offset,
        "spoolDir": str(tmp_path / "spool"),
    }
    changes = spark.read.format("mysql-binlog").options(**log).load().orderBy("_seq").collect()
    assert len(changes) > 100
    for change in changes:
        if change["_op"] == "delete":
            kept.pop(change.id, None)
        else:
            kept[change.id] = change.v
    assert kept == dict(server.query(f"SELECT id, v FROM {table}"))


def test_a_plan_has_no_password(spark: SparkSession, mysql97: Server, tmp_path: Path) -> None:  # noqa: F811
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        rows = replica.spark.read_table(spark, options_of(mysql97, f"{schema}.t", tmp_path)).rows
        assert mysql97.replica_password not in rows._jdf.queryExecution().toString()


def test_a_password_in_the_options_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^password: executors log in themselves"):
        parse_options({"user": "u", "password": "x", "table": "s.t", "snapshot": "only"})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"table": ""}, "table"),
        ({"startingOffsets": "earliest"}, "^snapshot: it reads no log, so leave out startingOffsets"),
        ({"snapshot": "all"}, "snapshot"),
        ({"snapshotParallelism": "0"}, "snapshotParallelism"),
    ],
)
def test_options_that_mean_nothing(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        parse_options({"user": "u", "table": "s.t", "snapshot": "only", **given})
