"""Micro-batches in Spark's order of calls, without Spark: one process that is killed and started again.

    python -m tests.spark.support.micro_batches FOLDER OPTION=VALUE...  ->  FOLDER/plain

For each batch the offset is logged, the rows are read and written, and the batch is committed. At the start, a batch
that is logged but not committed is run again. ``KILL_AT`` has the points of ``killed_query``.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from pyspark.sql.pandas.types import from_arrow_schema

from replica.spark.data_source import arrow_schema
from replica.spark.source_options import parse_options
from tests.spark.support.killed_query import Kill, KilledReader, KilledSource, last_number

FORMAT = "plain"
Json = dict[str, Any]


class MicroBatches:
    """A streaming query: its logs, a sink that replaces a repeated batch, and the source's reader."""

    def __init__(self, folder: Path, options: dict[str, str]) -> None:
        target = folder / FORMAT
        self.offsets, self.commits = (
            target / "_state" / "checkpoint" / name for name in ("offsets", "commits")
        )
        self.rows = target / "rows"
        for path in (self.offsets, self.commits, self.rows):
            path.mkdir(parents=True, exist_ok=True)
        source = KilledSource({"spoolDir": str(target / "_state" / "spool")} | options)
        source.schema()
        reader = source.streamReader(from_arrow_schema(arrow_schema(parse_options(source.options))))
        assert isinstance(reader, KilledReader)
        self.reader = reader
        self.kill = Kill()

    def run(self) -> None:
        """Run until the process is killed or the source raises an error."""
        reader = self.reader
        limit = reader.getDefaultReadLimit()
        number, committed = last_number(self.offsets), last_number(self.commits)
        if number > committed:
            self.run_batch(number)
        while True:
            start = self.offset(number)
            if number >= 0:
                reader.commit(start)
            end = reader.latestOffset(start, limit)
            if end == start and number >= 0:
                continue
            number += 1
            write(self.offsets / str(number), end)
            self.run_batch(number)

    def offset(self, number: int) -> Json:
        """The offset at which a batch ends."""
        if number < 0:
            return self.reader.initialOffset()
        found: Json = json.loads((self.offsets / str(number)).read_text())
        return found

    def run_batch(self, number: int) -> None:
        partitions = self.reader.partitions(self.offset(number - 1), self.offset(number))
        # A pickled copy, as another process would get.
        copy = pickle.loads(pickle.dumps(self.reader))
        rows = [row for one in partitions for batch in copy.read(one) for row in batch.to_pylist()]
        kept = ("op", "schema", "table", "after", "sql")
        write(
            self.rows / str(number),
            [{name: row[name] for name in kept} | {"seq": int(row["seq"])} for row in rows],
        )
        self.kill.reach(FORMAT, "after_sink")
        write(self.commits / str(number), {})


def write(path: Path, value: object) -> None:
    """Write a file atomically."""
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    os.environ["KILLED_GROUP"] = str(os.getpgid(0))
    MicroBatches(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:])).run()
