"""The changelog in a process of its own, as Parquet and as Delta at once, that is killed: by others or by itself.

    python -m tests.spark.support.killed_query FOLDER OPTION=VALUE...  ->  FOLDER/parquet, FOLDER/delta

With ``KILL_AT=delta:inside_read:3`` in the environment the third time that the query which writes Delta comes to that
point, everything is killed with SIGKILL: the process, its JVM, and Spark's Python processes; if ``KILL_WHEN`` names a
file, not before that is there. The points are in ``KilledReader``, which Spark gets instead of the real one; the
product knows nothing of this.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

import replica.spark
from replica.spark.data_source import BinlogDataSource
from replica.spark.jobs import changelog, delta_append
from replica.spark.jobs.spark_session import await_queries
from replica.spark.stream_reader import BinlogStreamReader
from replica.spool import spool

FORMATS = ("parquet", "delta")
#: A JVM that is killed soon: half of its time is spent on compiling what would be fast in the end.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: Where a query may be killed.
POINTS = ("before_offsets", "after_offsets", "inside_read", "inside_fsync", "after_sink")


class Kill:
    """What the environment says: at which point of which query, and the how manieth time."""

    def __init__(self) -> None:
        self.format, self.point, count = os.environ.get("KILL_AT", "::0").split(":")
        self.left = int(count)

    def reach(self, format: str, point: str) -> None:
        """That point has been come to."""
        if (format, point) == (self.format, self.point):
            self.left -= 1
            if self.left == 0:
                while not Path(os.environ.get("KILL_WHEN", "/")).exists():
                    time.sleep(0.01)
                die()


def die() -> None:
    """Kill the process that was started, its JVM, and this one, which may be in a group of its own."""
    os.killpg(int(os.environ["KILLED_GROUP"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class KilledReader(BinlogStreamReader):
    """The reader of one query, with points at which it is killed."""

    format: str
    kill: Kill
    #: A task has a reader of its own, and few batches: what it comes to is counted over all tasks of a process.
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
        for batch in super().read(partition):
            yield batch
            self.reads.reach(self.format, "inside_read")


class KilledSource(BinlogDataSource):
    """Has that reader."""

    def streamReader(self, schema: StructType) -> BinlogStreamReader:
        reader = super().streamReader(schema)
        reader.__class__ = KilledReader
        assert isinstance(reader, KilledReader)
        reader.format, reader.kill = Path(self.options["spoolDir"]).parts[-3], Kill()
        spool.os = KilledSystem(reader)  # type: ignore[attr-defined]
        return reader


class KilledSystem:
    """``os`` for the spool of one source process."""

    def __init__(self, reader: KilledReader) -> None:
        self._reader = reader

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, descriptor: int) -> None:
        """The data are written and not yet safe."""
        self._reader.kill.reach(self._reader.format, "inside_fsync")
        os.fsync(descriptor)


class KilledAppend(delta_append.AppendToDelta):
    """Killed when Delta has a micro-batch, of which Spark does not know yet."""

    kill = Kill()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        super().__call__(frame, batch)
        self.kill.reach("delta", "after_sink")


def watch_parquet(folder: Path) -> None:
    """Killed when the sink has noted its files of a micro-batch, of which Spark does not know yet.

    Nothing of ours runs there, so that the folders are watched; whether it came in time, these say afterwards.
    """
    sink, commits = folder / "_spark_metadata", folder / "_state" / "checkpoint" / "commits"
    while True:
        done, known = last_number(sink), last_number(commits)
        if done > max(known, 0):
            die()
        time.sleep(0.0005)


def last_number(folder: Path) -> int:
    """Of the micro-batches that a log of Spark's has; -1 if none."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name.removesuffix(".compact")) for name in names if name[0].isdigit()), default=-1)


def main(folder: Path, *pairs: str) -> None:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "KILLED_GROUP": str(os.getpgid(0))}
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", SHORT_LIVED)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    replica.spark.register = lambda session: session.dataSource.register(KilledSource)
    delta_append.AppendToDelta = KilledAppend  # type: ignore[misc]
    if os.environ.get("KILL_AT", "").startswith("parquet:after_sink"):
        threading.Thread(target=watch_parquet, args=(folder / "parquet",), daemon=True).start()
    source = dict(pair.split("=", 1) for pair in pairs)
    queries = [changelog.start(session, source, str(folder / format), format=format) for format in FORMATS]
    await_queries(*queries)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
