"""A statement changes all rows of a mirrored table; driver and workers are killed while its files are converted."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.spark.jobs import history, mirror
from tests.server.support.cluster_job import SECONDS, KilledJob
from tests.server.support.streams import begin_log
from tests.spark.support.cluster import WORKERS, Cluster
from tests.spark.support.kept_tables import check_intervals, rows_of
from tests.support.servers import Server

# More than a conversion in the driver's process takes (``merge_tasks.SMALL_BYTES``), in several files.
ROWS, BYTES = 120_000, 300
STATEMENTS = (
    "ADD COLUMN a INT NOT NULL DEFAULT 7",
    "MODIFY id BIGINT",
    "RENAME COLUMN v TO w",
    "ADD COLUMN b VARCHAR(9) DEFAULT 'b'",
    "DROP COLUMN n",
    "ADD COLUMN n VARCHAR(9) NOT NULL DEFAULT 'again'",
)


@pytest.mark.long  # some six minutes each: a driver takes twenty seconds to start
@pytest.mark.parametrize("job", [mirror, history], ids=["mirror", "history"])
@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_killed_while_files_are_converted(
    seed: int, server: Server, cluster: Cluster, job: ModuleType, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    with server.fresh_schema() as shop:
        table = f"{shop}.large"
        begin_log(server)
        create(server, table)
        killed = KilledJob(cluster, server, shop, job.JOB.name, tmp_path)
        killed.finish()
        folder = killed.target / shop / "large"
        for statement in STATEMENTS:
            server.query(f"UPDATE {table} SET k = k + 1 WHERE id % 1000 = {rng.randrange(1000)}")
            server.query(f"ALTER TABLE {table} {statement}")
            server.query(f"DELETE FROM {table} WHERE id = {rng.randrange(ROWS)}")
            kill(killed, cluster, rng, folder, statement)
        for _ in range(2):
            killed.finish()
        expected = source(server, table)
        found = rows_of(killed.target, table)
        if job is history:
            check_intervals(killed.target, table, ("id",))
            found = [row for row in found if row["is_current"]]
        names = list(expected[0])
        assert (
            sorted(({name: row[name] for name in names} for row in found), key=lambda row: row["id"])
            == expected
        )
        assert [row["state"] for row in mirror.progress(str(killed.target)).to_pylist()] == ["kept"]


def create(server: Server, table: str) -> None:
    server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, k INT, n INT, v VARBINARY({BYTES}))")
    server.query("SET GLOBAL cte_max_recursion_depth = 1000000")
    for first in range(0, ROWS, 20_000):
        server.query(
            f"INSERT INTO {table} WITH RECURSIVE s AS (SELECT {first} AS i UNION ALL SELECT i + 1 FROM s "
            f"WHERE i < {first + 19_999}) SELECT i, i, i, RANDOM_BYTES({BYTES}) FROM s"
        )


def source(server: Server, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        assert cursor.description is not None
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def kill(killed: KilledJob, cluster: Cluster, rng: random.Random, folder: Path, statement: str) -> None:
    """Kill perhaps a worker, and then the driver, when the first converted files are there."""
    before, worker = files(folder), rng.choice([None, *range(WORKERS)])
    with killed.running() as process:
        until = time.monotonic() + SECONDS
        while len(files(folder) - before) < rng.randint(1, 3):
            assert process.poll() is None, statement
            assert time.monotonic() < until, statement
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        if worker is not None:
            cluster.kill_worker(worker)
            time.sleep(rng.uniform(0, 2))
            cluster.start_worker(worker)
            time.sleep(rng.uniform(0, 2))
        assert process.poll() is None
    print(f"{statement}: killed with {len(files(folder) - before)} new files, worker {worker}", flush=True)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.parquet")}
