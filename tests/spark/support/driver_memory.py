"""What a driver's Python process takes to plan files, or to receive a stream: its largest memory, in bytes.

    python -m tests.spark.support.driver_memory FOLDER OPTION=VALUE...  ->  a line of JSON

With the option ``path`` the files are planned. Else the stream is planned up to the first micro-batch of several
pieces, and everything behind it is received and not taken. Pieces go as objects to FOLDER, as on a cluster.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from replica.spark.data_source import BinlogDataSource, arrow_schema
from replica.spark.source_options import parse_options

SECONDS = 900


def largest_memory() -> int:
    """The most memory that this process has had so far; mapped files count."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) << 10


def main(folder: Path, *pairs: str) -> None:
    options = dict(pair.split("=", 1) for pair in pairs)
    options |= {
        "spoolDir": f"file://{folder}/objects",
        "spoolCache": str(folder / "cache"),
        "rowFormat": "json",
    }
    source = BinlogDataSource(options)
    source.schema()
    schema = from_arrow_schema(arrow_schema(parse_options(options)))
    found = {"before": largest_memory()}
    if "path" in options:
        found["pieces"] = len(source.reader(schema).partitions())
        print(json.dumps(found | {"after": largest_memory()}))
        return
    reader = source.streamReader(schema)
    start = reader.initialOffset()
    reader.latestOffset(start, ReadAllAvailable())
    until = time.monotonic() + SECONDS
    found["pieces"] = 0
    while found["pieces"] < 2:
        assert time.monotonic() < until
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found["pieces"] = len(reader.partitions(start, end))
        start = end
    found["planned"] = largest_memory()
    waiting = -1
    while (report := reader.reportLatestOffset()) is not None and waiting != report["lag_bytes"]:
        waiting = int(report["lag_bytes"] or 0)
        time.sleep(3)
    reader.stop()
    print(json.dumps(found | {"waiting": waiting, "after": largest_memory()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
