"""``snapshot=only``: a table of a live source as a DataFrame, and the log from there on."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import replica.spark
from protocol.errors import ConfigurationError
from replica.spark.source_options import parse_options
from tests.server.support.streams import begin_log
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@contextlib.contextmanager
def written(server: Server, table: str) -> Iterator[None]:
    """Somebody writes meanwhile."""
    is_over = threading.Event()

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            number = 0
            while not is_over.is_set():
                cursor.execute(f"UPDATE {table} SET v = 'new{number}' WHERE id = {number * 7919 % ROWS}")
                cursor.execute(f"DELETE FROM {table} WHERE id = {number * 104729 % ROWS}")
                cursor.execute(f"INSERT INTO {table} (id, n, v) VALUES ({ROWS + number}, {number}, 'x')")
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        writer.join()


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
    source = options_of(server, table, tmp_path)
    with written(server, table):
        found = replica.spark.read_table(spark, source)
        kept: dict[int, Any] = {row.id: row.v for row in found.rows.collect()}
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


def test_a_stream_begins_with_the_rows_of_its_tables(
    spark: SparkSession,  # noqa: F811
    server: Server,
    schema: str,
    tmp_path: Path,
) -> None:
    """Beside a writer. Whoever takes reads as upserts, and then the changes, has the table."""
    is_typed = server.name in ("mysql:9.7", "mariadb:10.11")
    table = f"{schema}.t"
    server.query(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, v VARCHAR(20), j DECIMAL(9,2) DEFAULT 1.5)"
    )
    server.query(f"CREATE TABLE {schema}.empty (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY, n INT UNSIGNED, v VARCHAR(20))")
    fill(server, f"{schema}.other", "n")
    server.query(f"INSERT INTO {table} (id, n, v) SELECT * FROM {schema}.other")
    begin_log(server)
    options = options_of(server, table, tmp_path) | {
        "spoolDir": str(tmp_path / "spool"),
        "snapshot": "initial",
        "snapshotParallelism": "2",
        "sourceName": "shop",
    }
    if is_typed:
        options["schemaMode"] = "table"
    else:
        options |= {"rowFormat": "json", "includeTables": f"{schema}.*"}
        del options["table"]
    kept: dict[str, dict[int, tuple[object, ...]]] = {"t": {}, "other": {}, "empty": {}}
    reads: list[int] = []
    mark = "_" if is_typed else ""

    def take(frame: DataFrame, batch: int) -> None:
        rows = [row.asDict() for row in frame.collect()]
        assert {row[f"{mark}source_name"] for row in rows} <= {"shop"}
        for row in sorted(rows, key=lambda row: row[f"{mark}seq"]):
            image = row if is_typed else json.loads(row["after"] or row["before"])
            rows_of = kept["t" if is_typed else row["table"]]
            if row[f"{mark}op"] == "r":
                assert batch == 0
                reads.append(image["id"])
            rows_of[image["id"]] = tuple(str(image.get(name)) for name in ("n", "v", "j"))
            if row[f"{mark}op"] == "delete":
                del rows_of[image["id"]]

    for _ in range(2):
        with written(server, table) if not reads else contextlib.nullcontext():
            frame = spark.readStream.format("mysql-binlog").options(**options).load()
            stream = frame.writeStream.foreachBatch(take).option("checkpointLocation", f"{tmp_path}/state")
            query = stream.trigger(availableNow=True).start()
            assert query.awaitTermination(90)
            assert query.exception() is None
    assert len(reads) > ROWS // 2
    rows = server.query(f"SELECT id, n, v, j FROM {table}")
    assert kept["t"] == {id_: tuple(map(str, values)) for id_, *values in rows}
    assert len(kept["other"]) == (0 if is_typed else ROWS)


def test_what_a_stream_cannot_begin_with() -> None:
    source = {"user": "u", "table": "s.t", "snapshot": "initial", "schemaMode": "table"}
    for more, what in (
        ({"startingOffsets": "earliest"}, "startingOffsets: with snapshot=initial the log follows the copy"),
        ({"password": "secret"}, "password: executors log in themselves"),
        ({"schemaMode": "packed"}, "snapshot: mirror and history copy their tables themselves"),
    ):
        given = source | more
        if more.get("schemaMode") == "packed":
            del given["table"]
        with pytest.raises(ConfigurationError, match=f"^{what}"):
            parse_options(given)
