"""A cluster whose machines have nothing in common but the target: every row comes once, whoever is killed."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSelector

from replica.spool.storage import file_system
from tests.server.support.clusters import BUCKET, driver_environment, run_driver
from tests.server.support.killed_queries import KilledQuery, Writer
from tests.server.support.spark_sources import insert, insert_at_once, now, options_of
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.cluster import WORKERS, Cluster
from tests.spark.support.killed_query import FORMATS, INSIDE_READ, POINTS, WAITING, WAITS
from tests.spark.support.numbered_log import ROWS_PER_EVENT, write_numbered
from tests.spark.support.sink_files import sink_files
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, FEW_ROWS = 40_000, 2_000
RANDOM_KILLS = 10
#: So many rows of 4 kB are more than what travels with tasks.
LARGE = 8_000


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
    """The rows of the files that Spark's sink has committed."""
    schema = pa.schema([("seq", pa.decimal128(38, 0)), ("after", pa.string())])
    return ds.dataset(sink_files(folder), schema=schema, format="parquet").to_table()


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
                await_commits(query, process)
            writer.reach(FEW_ROWS)
        query.finish(spark)
        check(shared, writer.written)


@pytest.mark.long  # some ten minutes: each driver takes twenty seconds to start
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_every_row_comes_once(
    seed: int, server: Server, tables: list[str], cluster: Cluster, shared: Path, tmp_path: Path
) -> None:
    """The driver is killed at each of its points, and at random; so is each worker."""
    rng = random.Random(seed)
    query = KilledQuery(
        server,
        shared,
        tables,
        environment=driver_environment(cluster, tmp_path),
        maxRowsPerTrigger=500,
        startingOffsets=now(options_of(server, tables)),
    )
    kills: list[str | int] = [f"{rng.choice(FORMATS)}:{point}:2" for point in POINTS if point != INSIDE_READ]
    kills += [*range(WORKERS), *[""] * RANDOM_KILLS]
    rng.shuffle(kills)
    with Writer(server, tables, rng) as writer:
        for number, kill in enumerate(kills, 1):
            writer.allowed = ROWS * number // len(kills)
            began = time.monotonic()
            if isinstance(kill, int):
                with query.run(f"{rng.choice(FORMATS)}:{INSIDE_READ}:1") as process:
                    kill_a_reading_worker(query, process, cluster, kill)
                    await_commits(query, process)
            elif kill:
                query.run_to_its_death(kill)
            else:
                kill_all_at_random(query, cluster, rng)
            print(
                f"{number}: {kill if kill != '' else 'random'}, written {writer.written}, "
                f"committed {query.commits()}, {time.monotonic() - began:.0f} s"
            )
        writer.reach(ROWS)
    query.run_until(query.has_all)
    check(shared, writer.written)


def kill_all_at_random(query: KilledQuery, cluster: Cluster, rng: random.Random) -> None:
    """Kill each worker at some time, and then the driver: in one of five cases while that starts."""
    with query.run() as process:
        begun = query.commits()
        if rng.random() < 0.8:
            query.wait(process, lambda: query.commits() != begun)
        for worker in rng.sample(range(WORKERS), WORKERS):
            time.sleep(rng.uniform(0, 4))
            assert process.poll() is None, query.output()
            cluster.kill_worker(worker)
            cluster.start_worker(worker)
        time.sleep(rng.uniform(0, 4))
        assert process.poll() is None, query.output()


def check(folder: Path, count: int) -> None:
    """Each number once in Parquet and in Delta, in the order in which they were written."""
    assert ids(parquet_rows(folder / "parquet")) == list(range(count))
    assert ids(DeltaTable(folder / "delta").to_pyarrow_table(columns=["after", "seq"])) == list(range(count))


def await_commits(query: KilledQuery, process: subprocess.Popen[bytes]) -> None:
    """Wait until each format has committed a micro-batch more."""
    begun = min(query.commits())
    query.wait(process, lambda: min(query.commits()) > begun)


def kill_a_reading_worker(
    query: KilledQuery, process: subprocess.Popen[bytes], cluster: Cluster, wanted: int | None = None
) -> None:
    """Kill a worker whose task reads: the first one, or the wanted one."""
    for path in query.folder.glob(f"{WAITING}*"):
        path.unlink()
    (query.folder / WAITS).write_text("0 1" if wanted is None else str(wanted))
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
            cluster,
            tmp_path,
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
