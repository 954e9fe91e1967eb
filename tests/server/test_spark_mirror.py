"""``mirror`` and ``history`` of live servers: the tables in Delta equal those of the source."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from protocol.errors import ConfigurationError
from replica.cli import main
from replica.relay import BinlogRelay
from replica.spark.jobs import history, mirror
from replica.spark.jobs.kept_table import table_path
from tests.server.support import random_shop
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.server.support.streams import begin_log
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import check_intervals, rows_of, run_once
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def source_of(server: Server, tables: str) -> dict[str, str]:
    """How a job reads these tables."""
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "password": server.replica_password,
        "heartbeat": "1",
        "includeTables": tables,
    }


@pytest.fixture
def shop(mysql97: Server) -> Iterator[str]:
    begin_log(mysql97)
    with mysql97.fresh_schema() as schema:
        yield schema


@pytest.mark.long  # a minute; test_spark_mirror_plain does the same without Spark
@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_five_tables(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    rng = random.Random(seed)
    begin_log(server)
    with server.fresh_schema() as schema:
        random_shop.create(server, schema)
        source = source_of(server, f"{schema}.*") | {"maxRowsPerTrigger": "1000"}
        for transactions in (150, 300):
            with RandomWriter(server, schema, rng) as writer:
                writer.reach(transactions)
            for job in (mirror, history):
                run_once(job, spark, source, tmp_path / job.__name__)
            for table in TABLES:
                expected = source_rows(server, schema, table)
                assert expected
                assert kept_rows(tmp_path / mirror.__name__, schema, table) == expected, table
                past = tmp_path / history.__name__
                assert kept_rows(past, schema, table, is_history=True) == expected, table
                check_intervals(past, f"{schema}.{table}", TABLES[table][0])


def test_changes_of_a_table(
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    mysql97.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    mysql97.query(f"INSERT INTO {shop}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    source = source_of(mysql97, f"{shop}.*")
    run_once(mirror, spark, source, tmp_path)
    assert rows_of(tmp_path, f"{shop}.t") == [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
    mysql97.query(f"UPDATE {shop}.t SET v = 'x' WHERE id = 1")
    mysql97.query(f"UPDATE {shop}.t SET id = 20 WHERE id = 2")
    mysql97.query(f"DELETE FROM {shop}.t WHERE id = 3")
    mysql97.query(f"INSERT INTO {shop}.t VALUES (4, 'd')")
    query = run_once(mirror, spark, source, tmp_path)
    found = sorted(rows_of(tmp_path, f"{shop}.t"), key=lambda row: row["id"])
    assert found == [{"id": 1, "v": "x"}, {"id": 4, "v": "d"}, {"id": 20, "v": "b"}]
    table = DeltaTable(table_path(str(tmp_path), f"{shop}.t"))
    assert table.transaction_version(str(query.id)) == query.recentProgress[-1]["batchId"]
    assert sum(one.observedMetrics["changes"]["rows"] for one in query.recentProgress) == 4


def test_files_on_the_command_line(
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    file = log_end(mysql97)
    mysql97.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    mysql97.query(f"INSERT INTO {shop}.t VALUES (1, 'a'), (2, 'b')")
    mysql97.query("FLUSH BINARY LOGS")
    mysql97.query(f"DELETE FROM {shop}.t WHERE id = 1")
    asyncio.run(BinlogRelay(mysql97.dsn(), tmp_path / "logs", start=f"{file}:4", once=True).run())
    arguments = ["spark", "mirror", str(tmp_path / "logs"), "--tables", f"{shop}.*", "--target"]
    assert main([*arguments, str(tmp_path / "lake"), "--option", "maxPartitionBytes=200"]) == 0
    assert rows_of(tmp_path / "lake", f"{shop}.t") == [{"id": 2, "v": "b"}]
    assert main([*arguments, str(tmp_path / "lake")]) == 2


def log_end(server: Server) -> str:
    """The file that the log ends in, which is a new one."""
    server.query("FLUSH BINARY LOGS")
    return str(server.query(server.log_status)[0][0])


def test_a_seed(
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    mysql97.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, v VARCHAR(100))")
    mysql97.query(f"INSERT INTO {shop}.t VALUES (1, 'a'), (2, 'b')")
    [status] = mysql97.query(mysql97.log_status)
    (tmp_path / "seed" / shop).mkdir(parents=True)
    rows = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    pq.write_table(rows, tmp_path / "seed" / shop / "t.parquet")
    mysql97.query(f"UPDATE {shop}.t SET v = 'x' WHERE id = 1")
    # The log of before is not read: nothing of it is there.
    mysql97.query("FLUSH BINARY LOGS")
    seed = f"{tmp_path}/seed@{status[0]}:{status[1]}"
    source = source_of(mysql97, f"{shop}.*")
    for _ in range(2):
        run_once(mirror, spark, source, tmp_path / "lake", seed=seed)
    found = sorted(rows_of(tmp_path / "lake", f"{shop}.t"), key=lambda row: row["id"])
    assert found == [{"id": 1, "v": "x"}, {"id": 2, "v": "b"}]
    with pytest.raises(ConfigurationError, match="leave the start out"):
        mirror.start(spark, source | {"startingOffsets": "latest"}, str(tmp_path / "other"), seed=seed)
    with pytest.raises(ConfigurationError, match="without a seed the tables begin with the log"):
        mirror.start(spark, source | {"startingOffsets": "latest"}, str(tmp_path / "other"))


def test_names_of_tables_in_any_capitals(
    spark: SparkSession,  # noqa: F811
    extra_server: Callable[..., Server],
    tmp_path: Path,
) -> None:
    server = extra_server("mariadb:11.8", "--lower-case-table-names=1")
    server.query("CREATE DATABASE Shop")
    server.query("CREATE TABLE Shop.Orders (id INT PRIMARY KEY, a INT)")
    server.query("INSERT INTO SHOP.orders VALUES (1, 1)")
    source = source_of(server, "shop.*")
    run_once(mirror, spark, source, tmp_path)
    assert rows_of(tmp_path, "shop.orders") == [{"id": 1, "a": 1}]
    server.query("TRUNCATE TABLE Shop.ORDERS")
    server.query("INSERT INTO shop.Orders VALUES (2, 2)")
    run_once(mirror, spark, source, tmp_path)
    assert rows_of(tmp_path, "shop.orders") == [{"id": 2, "a": 2}]
