"""The job changelog, as Parquet and as Delta at once, in a process that others kill, or that kills itself.

    python -m tests.spark.support.killed_query FOLDER OPTION=VALUE...  ->  FOLDER/parquet, FOLDER/delta

The environment variable ``KILL_AT=delta:inside_read:3`` means: when the query that writes Delta reaches that point
for the third time, the process, its JVM, and Spark's Python processes are killed with SIGKILL. If ``KILL_WHEN`` names
a file, the kill waits until that file exists. ``KilledReader``, which Spark gets in place of the real reader, has the
points; the product has no code for this.

``CLUSTER`` has the settings of a cluster's driver as JSON. There ``inside_read`` is for a worker: a task that comes
to it when the file ``WAITS`` in FOLDER, which executors see, names its worker, leaves a file with the worker's number
there, and waits to be killed.
``TARGETS`` has the targets by format as JSON; without it they are FOLDER/parquet and FOLDER/delta.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

import replica.spark
from replica.spark.data_source import BinlogDataSource
from replica.spark.jobs import changelog, delta_append
from replica.spark.jobs.spark_session import await_queries, state_of
from replica.spark.stream_reader import BinlogStreamReader
from replica.spool import shipping, spool
from replica.spool.pieces import LogPiece
from tests.spark.support.cluster import SHORT_LIVED, WORKER_VARIABLE
from tests.spark.support.spark_python import retried, spark_python

FORMATS: tuple[Literal["parquet", "delta"], ...] = ("parquet", "delta")
#: The points at which a query may be killed.
INSIDE_READ = "inside_read"
POINTS = ("before_offsets", "after_offsets", INSIDE_READ, "inside_fsync", "after_sink")
#: The file with the numbers of the workers of which one is to wait; the beginning of the name of what it leaves.
WAITS, WAITING = "waits", "waiting-"
_WAITING_SECONDS = 60


class Kill:
    """``KILL_AT`` from the environment: the query, the point, and how often it must be reached."""

    def __init__(self) -> None:
        self.format, self.point, count = os.environ.get("KILL_AT", "::0").split(":")
        self.left = int(count)

    def reach(self, format: str, point: str) -> None:
        """The query has reached this point: kill it if ``KILL_AT`` says so."""
        if (format, point) == (self.format, self.point):
            self.left -= 1
            if self.left == 0:
                while not Path(os.environ.get("KILL_WHEN", "/")).exists():
                    time.sleep(0.01)
                die()


def die() -> None:
    """Kill the started process, its JVM, and this process, which may be in another process group."""
    os.killpg(int(os.environ["KILLED_GROUP"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KilledReader(BinlogStreamReader):
    """The reader of one query, which may be killed at some points."""

    format: str
    kill: Kill
    #: Each task has a reader of its own, with few batches, so all tasks of a process count together.
    reads = Kill()

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"format": self.format}

    def latestOffset(self, start: Mapping[str, object], limit: ReadLimit) -> dict[str, str | int | None]:
        end = super().latestOffset(start, limit)
        if end != start:
            self.kill.reach(self.format, "before_offsets")
        return end

    def partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> Sequence[InputPartition]:
        self.kill.reach(self.format, "after_offsets")
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        folder = os.environ.get("WAITING_FOLDER")
        for batch in super().read(partition):
            yield batch
            if folder is None:
                self.reads.reach(self.format, INSIDE_READ)
            else:
                wait_to_be_killed(Path(folder))


def wait_to_be_killed(folder: Path) -> None:
    """Where the file ``WAITS`` names this worker, say once which one this is, and wait."""
    worker = os.environ[WORKER_VARIABLE]
    try:
        if worker not in (folder / WAITS).read_text().split():
            return
        (folder / WAITS).unlink()
    except FileNotFoundError:
        return
    (folder / f"{WAITING}{worker}").touch()
    time.sleep(_WAITING_SECONDS)


class KilledSource(BinlogDataSource):
    """The data source with a ``KilledReader``, for a local master or a cluster."""

    shares_folders = "CLUSTER" not in os.environ

    def streamReader(self, schema: StructType) -> BinlogStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = KilledReader
        assert isinstance(reader, KilledReader)
        spool_dir = self.options.get("spoolCache") or self.options["spoolDir"]
        reader.format, reader.kill = Path(spool_dir).parts[-3], Kill()
        spool.os = KilledSystem(reader)  # type: ignore[attr-defined, assignment]
        write = shipping.ObjectFolder._write

        def killed_write(self: shipping.ObjectFolder, name: str, piece: LogPiece) -> None:
            reader.kill.reach(reader.format, "before_upload")
            write(self, name, piece)

        shipping.ObjectFolder._write = killed_write  # type: ignore[method-assign]
        return reader


class KilledSystem:
    """A replacement of ``os`` for the spool, which may be killed in ``fsync``."""

    def __init__(self, reader: KilledReader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """The point at which data are written but not yet fsynced."""
        self._reader.kill.reach(self._reader.format, "inside_fsync")
        os.fsync(descriptor)


class KilledAppend(delta_append.AppendToDelta):
    """Killed after Delta has committed a micro-batch, before Spark has."""

    kill = Kill()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        super().__call__(frame, batch)
        self.kill.reach("delta", "after_sink")


def watch_parquet(folder: Path) -> None:
    """Kill the query after the sink has noted the files of a micro-batch, before Spark has committed it.

    No code of this project runs at that point, so this watches the folders. They show afterwards whether the kill
    came in time.
    """
    sink, commits = folder / "_spark_metadata", folder / "_state" / "checkpoint" / "commits"
    while True:
        done, known = last_number(sink), last_number(commits)
        if done > max(known, 0):
            die()
        time.sleep(0.0005)


def last_number(folder: Path) -> int:
    """The last number in a metadata log of Spark; -1 if there is none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name.removesuffix(".compact")) for name in names if name[0].isdigit()), default=-1)


def main(folder: Path, *pairs: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", spark_python(folder / "local"))
    os.environ["KILLED_GROUP"] = str(os.getpgid(0))
    builder = SparkSession.builder
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    replica.spark.register = lambda spark: spark.dataSource.register(KilledSource)
    delta_append.AppendToDelta = KilledAppend  # type: ignore[misc]
    if os.environ.get("KILL_AT", "").startswith("parquet:after_sink"):
        threading.Thread(target=watch_parquet, args=(folder / "parquet",), daemon=True).start()
    source = dict(pair.split("=", 1) for pair in pairs)
    targets = json.loads(os.environ.get("TARGETS", "null")) or {one: str(folder / one) for one in FORMATS}

    def run() -> None:
        queries = []
        for format, target in targets.items():
            state = state_of(str(folder / format))
            if "CLUSTER" in os.environ:
                source["spoolCache"] = str(folder / format / "_state" / "spool")
            queries.append(changelog.start(session, source, target, format=format, state=state))
        await_queries(*queries)

    retried(run)


def settings(folder: Path) -> dict[str, str]:
    """The settings of the session."""
    if "CLUSTER" in os.environ:
        found: dict[str, str] = json.loads(os.environ["CLUSTER"])
        if os.environ["KILL_AT"].split(":")[1] == INSIDE_READ:
            found["spark.executorEnv.WAITING_FOLDER"] = str(folder)
        return found
    return {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(folder / "local"),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
