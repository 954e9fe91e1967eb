"""Micro-batches in the order in which Spark runs them, without Spark: one process, to be killed and started again.

    python -m tests.spark.support.micro_batches FOLDER OPTION=VALUE...  ->  FOLDER/plain

The offset is logged, then the rows are read and written, then the batch is committed; at the start the last batch
that is logged and not committed is run again. Points of ``KILL_AT`` are those of ``killed_query``.
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
    """A query of its own: logs, a sink that takes a batch once, and the source's reader."""

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
        """Until it is killed, or the source raises."""
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
        """Where a batch ends."""
        if number < 0:
            return self.reader.initialOffset()
        found: Json = json.loads((self.offsets / str(number)).read_text())
        return found

    def run_batch(self, number: int) -> None:
        partitions = self.reader.partitions(self.offset(number - 1), self.offset(number))
        # As another process has it.
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
    """A file that is there as a whole or not at all."""
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(value))
    new.replace(path)


if __name__ == "__main__":
    os.environ["KILLED_GROUP"] = str(os.getpgid(0))
    MicroBatches(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:])).run()
