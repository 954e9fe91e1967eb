"""A query on one server in processes that are killed one after another, and a writer that goes on all the time."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from replica.spark.jobs import changelog
from replica.spark.jobs.spark_session import Pace, await_queries
from tests.spark.support.killed_query import FORMATS, last_number
from tests.spark.support.spark_python import retried
from tests.support.process_groups import process_group
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 150


class Writer:
    """Commits rows with the numbers 0, 1, 2... to two tables in turn: as many as are ``allowed``, then a few more."""

    def __init__(self, server: Server, tables: list[str], rng: random.Random) -> None:
        self._server, self._tables, self._rng = server, tables, rng
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.allowed = self.written = 0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def reach(self, rows: int) -> None:
        """Wait until it has written so many."""
        self.allowed = rows
        until = time.monotonic() + SECONDS
        while self.written < rows:
            assert time.monotonic() < until
            time.sleep(0.05)

    def _run(self) -> None:
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while self.allowed == 0 and not self._stop.wait(0.05):
                pass
            while not self._stop.is_set():
                left = self.allowed - self.written
                # A query that waits for its next micro-batch to be killed in gets one.
                count = max(1, min(self._rng.choice([1, 10, 100, 300]), left))
                table = self._rng.choice(self._tables)
                rows = [(self.written + number, "x" * (number % 60)) for number in range(count)]
                cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)
                connection.commit()
                self.written += count
                self._stop.wait(0.01 if left > 0 else 0.3)


class KilledQuery:
    """What ``module`` does, in processes one after another; ``formats`` are folders, each with a state of its own."""

    def __init__(
        self,
        server: Server,
        folder: Path,
        tables: list[str],
        *,
        module: str = "tests.spark.support.killed_query",
        formats: Sequence[str] = FORMATS,
        environment: Mapping[str, str] = MappingProxyType({}),
        **more: object,
    ) -> None:
        self._environment = environment
        self.server, self.folder, self.formats = server, folder, formats
        self._module = module
        options = {
            "host": server.host,
            "port": server.port,
            "user": server.replica_user,
            "password": server.replica_password,
            "includeTables": ",".join(tables),
            "rowFormat": "json",
            "heartbeat": 1,
        }
        #: The options of the source.
        self.source = {name: str(value) for name, value in (options | more).items()}

    @contextlib.contextmanager
    def run(self, kill_at: str = "", when: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """A run, which is killed at the end if it is still there. It kills itself only when a file is there."""
        pairs = [f"{name}={value}" for name, value in self.source.items()]
        command = [sys.executable, "-m", self._module, str(self.folder), *pairs]
        environment = os.environ | {"KILL_AT": kill_at or "::0", "LC_ALL": "C.UTF-8", **self._environment}
        if when is not None:
            environment["KILL_WHEN"] = str(when)
        with (
            open(self.folder / "output", "ab") as output,
            process_group(command, output, environment) as process,
        ):
            yield process

    def finish(self, spark: SparkSession) -> None:
        """Have a session of this process write what ``changelog`` still lacks: that saves a start of Spark."""

        def run() -> None:
            starts = []
            for format in FORMATS:
                target = str(self.folder / format)
                starts.append(
                    changelog.start(spark, self.source, target, format=format, pace=Pace(once=True))
                )
            await_queries(*starts)

        retried(run)

    def run_until(self, is_done: Callable[[], bool], seconds: float = 0.0) -> None:
        """Run it until something is so, and so many seconds longer; then it is killed."""
        with self.run() as process:
            self.wait(process, is_done)
            time.sleep(seconds)

    def run_to_its_death(self, kill_at: str) -> None:
        """Run it until it has killed itself."""
        with self.run(kill_at) as process:
            self.wait_for_death(process)

    def wait_for_death(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a run has killed itself."""
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"never came to that point: {self.output()}") from None
        assert code == -signal.SIGKILL, self.output()

    def wait(self, process: subprocess.Popen[bytes], is_done: Callable[[], bool]) -> None:
        until = time.monotonic() + SECONDS
        while not is_done():
            assert process.poll() is None, self.output()
            assert time.monotonic() < until, self.output()
            time.sleep(0.1)

    def output(self) -> str:
        """The end of what all runs have said."""
        return (self.folder / "output").read_text(errors="replace")[-4000:]

    def batches(self, format: str, log: str) -> int:
        """The last micro-batch in ``offsets``, ``commits`` or ``sink``."""
        if log == "sink":
            return last_number(self.folder / format / "_spark_metadata")
        return last_number(self.folder / format / "_state" / "checkpoint" / log)

    def commits(self) -> list[int]:
        return [self.batches(format, "commits") for format in self.formats]

    def has_all(self) -> bool:
        """Whether all that the server has logged by now is committed in all formats."""
        [status] = self.server.query(self.server.log_status)
        return all(self._end(format) >= (str(status[0]), int(status[1])) for format in self.formats)

    def _end(self, format: str) -> tuple[str, int]:
        batch = self.batches(format, "commits")
        if batch < 0:
            return "", 0
        offset = self.offset(format, batch)
        return offset["file"], offset["position"]

    def offset(self, format: str, batch: int) -> dict[str, Any]:
        """Where a micro-batch ends."""
        path = self.folder / format / "_state" / "checkpoint" / "offsets" / str(batch)
        offset: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
        return offset
