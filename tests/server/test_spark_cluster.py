"""A cluster whose machines have nothing in common but the target: every row comes once, whoever is killed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from replica.spool.storage import file_system
from tests.server.support.clusters import BUCKET, driver_environment
from tests.server.support.killed_queries import KilledQuery, Writer
from tests.server.support.spark_sources import insert, now, options_of
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.cluster import Cluster
from tests.spark.support.killed_query import FORMATS, WAITING
from tests.spark.support.numbered_log import ROWS_PER_EVENT, write_numbered
from tests.support.places import ROOT
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, FEW_ROWS = 4_000, 2_000
#: So many rows of 4 kB are more than what travels with tasks.
LARGE = 8_000
SECONDS = 200


@contextlib.contextmanager
def tables_of(server: Server) -> Iterator[list[str]]:
    """Two new tables."""
    with server.fresh_schema() as schema:
        names = [f"{schema}.t", f"{schema}.u"]
        for name in names:
            server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(4000))")
        yield names


@pytest.fixture
def tables(server: Server) -> Iterator[list[str]]:
    with tables_of(server) as names:
        yield names


@pytest.fixture
def shared(cluster: Cluster, tmp_path: Path) -> Path:
    """A new folder that all machines see."""
    found = cluster.shared / tmp_path.name
    found.mkdir()
    return found


def parquet_rows(folder: Path) -> pa.Table:
    """The rows of the files that Spark's sink has committed, as Spark reads them."""
    names: set[str] = set()
    for path in (folder / "_spark_metadata").iterdir():
        if path.name[0] != ".":
            entries = [json.loads(line) for line in path.read_text().splitlines()[1:]]
            names |= {entry["path"].removeprefix("file://") for entry in entries if entry["action"] == "add"}
    schema = pa.schema([("seq", pa.decimal128(38, 0)), ("after", pa.string())])
    return ds.dataset(sorted(names), schema=schema, format="parquet").to_table()


def insert_at_once(server: Server, table: str, rows: int, size: int) -> None:
    """One transaction with the numbers from 0 on, each with a text of that size."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for first in range(0, rows, 1000):
            values = ",".join(f"({number},'')" for number in range(first, min(first + 1000, rows)))
            cursor.execute(f"INSERT INTO {table} VALUES {values}")
        cursor.execute(f"UPDATE {table} SET v = REPEAT('x', {size})")
        connection.commit()


def ids(rows: pa.Table) -> list[int]:
    """The numbers in the order of the log."""
    found = sorted(zip(rows["seq"].to_pylist(), rows["after"].to_pylist(), strict=True))
    return [json.loads(after)["id"] for _, after in found]


def test_every_row_comes_once_though_worker_and_driver_are_killed(
    seed: int,
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    cluster: Cluster,
    shared: Path,
    tmp_path: Path,
) -> None:
    """The short form: one driver, whose end the test run's own session writes."""
    with tables_of(mysql97) as tables:
        query = KilledQuery(
            mysql97,
            shared,
            tables,
            environment=driver_environment(cluster, tmp_path),
            maxRowsPerTrigger=500,
            startingOffsets=now(options_of(mysql97, tables)),
        )
        rng = random.Random(seed)
        with Writer(mysql97, tables, rng) as writer:
            writer.reach(FEW_ROWS // 2)
            with query.run(f"{rng.choice(FORMATS)}:inside_read:1") as process:
                kill_a_reading_worker(query, process, cluster)
                begun = min(query.commits())
                query.wait(process, lambda: min(query.commits()) > begun)
            writer.reach(FEW_ROWS)
        query.finish(spark)
        check(shared, writer.written)


@pytest.mark.long  # several drivers, one after another
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_every_row_comes_once(
    seed: int, server: Server, tables: list[str], cluster: Cluster, shared: Path, tmp_path: Path
) -> None:
    """The driver is killed between planning and reading; then the worker that reads."""
    rng = random.Random(seed)
    query = KilledQuery(
        server,
        shared,
        tables,
        environment=driver_environment(cluster, tmp_path),
        maxRowsPerTrigger=1500,
        startingOffsets=now(options_of(server, tables)),
    )
    format = rng.choice(FORMATS)
    with Writer(server, tables, rng) as writer:
        writer.reach(ROWS // 2)
        query.run_to_its_death(f"{format}:after_offsets:2")
        with query.run(f"{format}:inside_read:1") as process:
            kill_a_reading_worker(query, process, cluster)
            writer.reach(ROWS)
            query.wait(process, query.has_all)
    check(shared, writer.written)


def check(folder: Path, count: int) -> None:
    """Each number once in Parquet and in Delta, in the order in which they were written."""
    assert ids(parquet_rows(folder / "parquet")) == list(range(count))
    assert ids(DeltaTable(folder / "delta").to_pyarrow_table(columns=["after", "seq"])) == list(range(count))


def kill_a_reading_worker(query: KilledQuery, process: subprocess.Popen[bytes], cluster: Cluster) -> None:
    """Kill the worker of the first task that reads; the query goes on with the other one, and with a new one."""
    query.wait(process, lambda: bool(list(query.folder.glob(f"{WAITING}*"))))
    [waiting] = query.folder.glob(f"{WAITING}*")
    number = int(waiting.name.removeprefix(WAITING))
    cluster.kill_worker(number)
    cluster.start_worker(number)


@pytest.mark.long
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_a_large_transaction_on_an_object_store(
    server: Server, tables: list[str], cluster: Cluster, store: dict[str, str], tmp_path: Path
) -> None:
    """The target and the spool are on S3; the driver is killed while it writes the transaction there."""
    target = f"s3://{BUCKET}/{tmp_path.name}"
    query = KilledQuery(
        server,
        tmp_path,
        tables[:1],
        formats=["delta"],
        environment=driver_environment(cluster, tmp_path, delta=target),
        startingOffsets=now(options_of(server, tables)),
        storageOptions=json.dumps(store),
    )
    insert_at_once(server, tables[0], LARGE, 4000)
    query.run_to_its_death("delta:before_upload:2")
    assert len(pieces_on_store(target, store)) == 1
    with query.run() as process:
        query.wait(process, query.has_all)
        # The source's next commit lets Spark say that the large one is done.
        server.query(f"INSERT INTO {tables[0]} VALUES ({LARGE}, '')")
        query.wait(process, query.has_all)
        query.wait(process, lambda: not pieces_on_store(target, store))
    rows = DeltaTable(target, storage_options=store).to_pyarrow_table(columns=["op", "after", "seq"])
    assert ids(rows.filter(pc.equal(rows["op"], "insert"))) == list(range(LARGE + 1))
    assert ids(rows.filter(pc.equal(rows["op"], "update"))) == list(range(LARGE))


def pieces_on_store(target: str, store: dict[str, str]) -> set[str]:
    """The names of the objects of the spool."""
    system, path = file_system(f"{target}/_state", store)
    found = system.get_file_info(FileSelector(path, recursive=True))
    return {info.base_name for info in found if info.base_name.endswith(".piece")}


@pytest.mark.long
def test_batches_and_streams_of_what_only_the_driver_sees(
    mysql97: Server, cluster: Cluster, shared: Path, store: dict[str, str], tmp_path: Path
) -> None:
    small, large = tmp_path / "bin.000001", tmp_path / "bin.000002"
    write_numbered(small, [1] * 20)
    write_numbered(large, [40], filler=450_000)
    packed = tmp_path / "packed.000003.gz"
    packed.write_bytes(gzip.compress(small.read_bytes(), 1))
    system, bucket = file_system(f"s3://{BUCKET}/logs", store)
    for path in (small, large):
        with system.open_output_stream(f"{bucket}/{path.name}") as target:
            target.write(path.read_bytes())
    options = {"storageOptions": json.dumps(store)}
    spool = {"spoolDir": f"file://{shared}/spool"}
    with mysql97.fresh_schema() as schema:
        table = f"{schema}.t"
        mysql97.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(4000))")
        live = options_of(mysql97, [table]) | {"spoolDir": str(tmp_path / "spool")}
        live |= {"startingOffsets": now(live), "maxBytesPerTrigger": "20k", "sourceName": "a"}
        insert(mysql97, table, 0, 1000)
        found = run_driver(
            driver_environment(cluster, tmp_path),
            {"options": {"path": str(small)}},
            {"options": {"path": str(tmp_path / "*.0*")}},
            {"options": {"path": str(large)} | spool},
            {"options": {"path": str(packed)}},
            {"options": options | {"path": f"s3://{BUCKET}/logs/bin.*"}},
            {"options": live, "stream": True},
        )
    few, many = rows_of(20), rows_of(40)
    both = {name: few[name] + many[name] for name in few}
    every = {name: both[name] + few[name] for name in few}
    assert found[:5] == [few, every, many, few, both]
    assert (shared / "spool").exists()
    latest = found[5].pop("latest")
    assert found[5] == {"rows": 1000, "places": 1000, "total": sum(range(1000))}
    assert {"lag_bytes", "lag_seconds", "received_bytes", "spool_bytes", "stored_bytes"} < latest.keys()


def rows_of(events: int) -> dict[str, int]:
    count = events * ROWS_PER_EVENT
    return {"rows": count, "places": count, "total": events * sum(range(ROWS_PER_EVENT))}


def run_driver(environment: dict[str, str], *reads: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tests.spark.support.cluster_driver", json.dumps(reads)]
    done = subprocess.run(
        ["timeout", str(SECONDS), *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-4000:]}"
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
