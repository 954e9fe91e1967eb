"""The first copy on a cluster: driver and workers are killed while tables are copied, and after; others write."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.spark.jobs import history, mirror
from replica.spool.offsets import Offset
from tests.server.support import random_shop
from tests.server.support.cluster_job import KilledJob
from tests.server.support.copied_jobs import CopiedJob, check_states
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.server.support.streams import begin_log, purge_older_logs
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.cluster import WORKERS, Cluster
from tests.spark.support.kept_tables import check_intervals, rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS, LARGE = 10, 200_000


@pytest.mark.long  # some six minutes each: a driver takes twenty seconds to start
@pytest.mark.parametrize("job", [mirror, history], ids=["mirror", "history"])
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_drivers_and_workers_are_killed(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    cluster: Cluster,
    job: ModuleType,
    tmp_path: Path,
) -> None:
    """The tables are older than the log. Row images are of all kinds, and a statement comes in the middle."""
    rng = random.Random(seed)
    is_history = job is history
    with server.fresh_schema() as shop:
        killed = KilledJob(cluster, server, shop, job.JOB.name, tmp_path)
        begin_log(server)
        create_large(server, f"{shop}.large")
        server.query("FLUSH BINARY LOGS")
        random_shop.create(server, shop)
        with RandomWriter(server, shop, rng) as writer:
            writer.reach(50)
            server.query("FLUSH BINARY LOGS")
            writer.reach(100)
            # It has seen the log that is about to go.
            whole = whole_history(spark, server, shop, tmp_path / "whole") if is_history else None
            purge_older_logs(server)
            for number in range(KILLS):
                writer.allowed += 30
                if number == KILLS // 2:
                    server.query(f"ALTER TABLE {shop}.codes ADD COLUMN extra INT NOT NULL DEFAULT 7")
                kill(killed, cluster, rng)
            writer.reach(writer.allowed + 30)
        for _ in range(2):
            killed.finish()
        for table, (key, _) in TABLES.items():
            expected = source_rows(server, shop, table)
            assert expected
            assert kept_rows(killed.target, shop, table, is_history=is_history) == expected, table
            if is_history:
                check_intervals(killed.target, f"{shop}.{table}", key)
        found = rows_of(killed.target, f"{shop}.large")
        assert sorted(row["id"] for row in found) == list(range(LARGE))
        if whole is not None:
            check_history(whole, killed.target, shop)
        else:
            for row in mirror.progress(str(killed.target)).to_pylist():
                assert row["consistent_since"] is not None, row


def create_large(server: Server, table: str) -> None:
    """A table that takes a while."""
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    joined = ", ".join(f"({digits}) AS {name}" for name in "abcdef")
    number = "a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d + 100000 * f.d"
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(500))")
    server.query(
        f"INSERT INTO {table} SELECT * FROM (SELECT {number} AS n, REPEAT('x', 400) FROM {joined}) AS x "
        f"WHERE n < {LARGE}"
    )


def kill(killed: KilledJob, cluster: Cluster, rng: random.Random) -> None:
    """Kill perhaps one worker, and then the driver, some commits after each has begun."""
    began, was_copied, begun = time.monotonic(), killed.is_copied, killed.commits
    worker = rng.choice([None, *range(WORKERS)])
    with killed.running() as process:
        killed.wait(process, begun + rng.randint(1, 3))
        time.sleep(rng.uniform(0, 2))
        if worker is not None:
            cluster.kill_worker(worker)
            time.sleep(rng.uniform(0, 2))
            cluster.start_worker(worker)
            killed.wait(process, killed.commits + 1)
            time.sleep(rng.uniform(0, 1))
        assert process.poll() is None
    print(
        f"killed {'after' if was_copied else 'during'} the copy, worker {worker}, commits {begun} to "
        f"{killed.commits}, {time.monotonic() - began:.0f} s"
    )


def whole_history(spark: SparkSession, server: Server, shop: str, folder: Path) -> CopiedJob:  # noqa: F811
    """A history of the whole log of the random tables, so far."""
    whole = CopiedJob(spark, server, shop, folder, history)
    whole.source |= {"startingOffsets": "earliest", "excludeTables": f"{shop}.large"}
    whole.run(snapshot=False)
    return whole


def check_history(whole: CopiedJob, target: Path, shop: str) -> None:
    """The states are those of a history of the whole log, from the place of the copy on."""
    whole.run(snapshot=False)
    begun = json.loads((target / "_state" / "begin.json").read_text())
    place = Offset.from_dict(json.loads(begun["offset"]))
    for table, (key, _) in TABLES.items():
        name = f"{shop}.{table}"
        check_states(rows_of(target, name), rows_of(whole.target, name), place, key)
