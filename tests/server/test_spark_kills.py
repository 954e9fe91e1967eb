"""A query whose driver and JVM are killed again and again has every row in Parquet once; the long form, ten times."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.servers import Server
from tests.spark.conftest import spark, spark_missing  # noqa: F401 -- the one session of the test run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SECONDS = 240


class Killed:
    """The query in processes of its own, and a writer that goes on all the time."""

    def __init__(self, server: Server, folder: Path, table: str) -> None:
        self.server, self.folder, self.table = server, folder, table
        self.stop = threading.Event()
        self.written = 0
        self.thread = threading.Thread(target=self._write)

    def run(self, seconds: float | None, until_rows: int | None = None) -> None:
        """Run the query, and kill all of its processes after a while, or when it has done so many rows."""
        options = {
            "host": self.server.host,
            "port": self.server.port,
            "user": self.server.replica_user,
            "password": self.server.replica_password,
            "includeTables": self.table,
            "rowFormat": "json",
            "maxRowsPerTrigger": 2000,
        }
        pairs = [f"{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "tests.spark.killed_query", str(self.folder), *pairs]
        with open(self.folder / "output", "ab") as output:
            process = subprocess.Popen(
                command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
            )
        try:
            self._wait(process, seconds, until_rows)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _wait(self, process: subprocess.Popen[bytes], seconds: float | None, until_rows: int | None) -> None:
        until = time.monotonic() + (SECONDS if seconds is None else seconds)
        while time.monotonic() < until:
            assert process.poll() is None, (self.folder / "output").read_text()[-4000:]
            if until_rows is not None and self.committed() >= until_rows:
                return
            time.sleep(0.2)
        assert seconds is not None, (self.folder / "output").read_text()[-4000:]

    def committed(self) -> int:
        """All rows that are written, if the last batch that is done ends where the log does; else 0."""
        commits = [int(path.name) for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*")]
        if not commits:
            return 0
        path = self.folder / "checkpoint" / "offsets" / str(max(commits))
        offset = json.loads(path.read_text().splitlines()[-1])
        end, rows = self.server_end()
        return rows if (offset["file"], offset["position"]) >= end else 0

    def server_end(self) -> tuple[tuple[str, int], int]:
        rows = self.written
        show = "SHOW MASTER STATUS" if self.server.family == "mariadb" else "SHOW BINARY LOG STATUS"
        [status] = self.server.query(show)
        return (str(status[0]), int(status[1])), rows

    def _write(self) -> None:
        with self.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not self.stop.is_set():
                rows = [(self.written + number, "x" * 40) for number in range(100)]
                cursor.executemany(f"INSERT INTO {self.table} VALUES (%s, %s)", rows)
                connection.commit()
                self.written += len(rows)
                time.sleep(0.02)


@pytest.fixture
def killed(server: Server, tmp_path: Path) -> Iterator[Killed]:
    if reason := spark_missing():
        pytest.skip(reason)
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(100))")
        killed = Killed(server, tmp_path, f"{schema}.t")
        yield killed
        killed.stop.set()
        if killed.thread.ident is not None:
            killed.thread.join()


@pytest.mark.long  # several minutes, of which Spark's start takes most
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_every_row_comes_once(
    spark: SparkSession,  # noqa: F811
    killed: Killed,
    request: pytest.FixtureRequest,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    checkpoint = killed.folder / "checkpoint" / "offsets" / "0"
    killed.run(None, until_rows=0)
    until = time.monotonic() + SECONDS
    while not checkpoint.exists():
        # Before the start is pinned there is nothing that could be lost.
        assert time.monotonic() < until
        killed.run(rng.uniform(8, 20))
    killed.thread.start()
    for _ in range(10 if request.config.getoption("--long") else 2):
        killed.run(rng.uniform(6, 25))
    killed.stop.set()
    killed.thread.join()
    killed.run(None, until_rows=killed.written)
    found = spark.read.parquet(str(killed.folder / "rows")).selectExpr(
        "count(*)", "count(DISTINCT get_json_object(after, '$.id'))"
    )
    assert [tuple(row) for row in found.collect()] == [(killed.written, killed.written)]
