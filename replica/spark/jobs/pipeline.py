"""``make pipeline``: a whole pipeline on one machine, from a binary log to tables, without any server.

    the demo's recorded log -> BinlogServer -> the stream ``mysql-binlog`` -> ``mirror`` -> Delta -> printed tables

    python -m replica.spark.jobs.pipeline [FOLDER]

It is the demo for Spark, and runs the real ``mirror`` on a recorded source. The tables stay in ``FOLDER`` for any
reader of Delta.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.errors import ReplicaError

from ...demo import DemoSource
from ...demo.source import USER
from . import mirror
from .spark_errors import require_java
from .spark_session import Pace, await_queries, require_delta, require_spark, session_for

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA: Final = "shop"
_MASTER: Final = "local[2]"
# In a run as short as this, code that is compiled to be fast later, and threads that collect garbage beside it, take
# half of the processors' time: 34 s with Java's defaults, 18 s with these.
SETTINGS: Final = MappingProxyType(
    {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
)
_ROWS_SHOWN: Final = 6
_WIDEST: Final = 44
_DONE, _FAILED = 0, 1


def run(spark: "SparkSession | None", target: str) -> "dict[str, pa.Table]":
    """Mirror the demo's shop into Delta tables below ``target``. Returns these tables by name.

    A target that has them already is continued, without new changes. Raises the errors of the job.
    """
    with DemoSource() as source:
        host, _, port = source.address.rpartition(":")
        options = {
            "host": host,
            "port": port,
            "user": USER,
            "password": source.password,
            "includeTables": f"{SCHEMA}.*",
        }
        await_queries(mirror.start(spark, options, target, pace=Pace(once=True)))
    return tables(target)


def tables(target: str) -> "dict[str, pa.Table]":
    """The mirrored tables below a folder by name, each sorted by its first column."""
    from deltalake import DeltaTable

    from ...spool.storage import NO_STORAGE
    from .leaf_files import dataset

    found = {}
    for folder in sorted(Path(target, SCHEMA).iterdir()):
        table = dataset(DeltaTable(str(folder)), str(folder), NO_STORAGE).to_table()
        found[f"{SCHEMA}.{folder.name}"] = table.sort_by(table.column_names[0])
    return found


def text_table(table: "pa.Table", rows: int = _ROWS_SHOWN) -> str:
    """The first rows of a table as lines of text with aligned columns."""
    shown = [table.column_names, *(map(_text, row.values()) for row in table.slice(0, rows).to_pylist())]
    columns = [_column(texts) for texts in zip(*shown, strict=True)]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    if table.num_rows > rows:
        lines.append(f"... and {table.num_rows - rows} more")
    return "\n".join(lines)


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."


def _column(texts: Sequence[str]) -> list[str]:
    width = max(map(len, texts))
    return [text.ljust(width) for text in texts]


def main(arguments: Sequence[str] | None = None) -> int:
    """The script. Returns 0, or 1 after writing one line with the error."""
    parser = argparse.ArgumentParser(
        description="A pipeline from a recorded binary log to Delta tables on Spark"
    )
    parser.add_argument("folder", nargs="?", help="where the tables stay; default: a temporary folder")
    folder = parser.parse_args(arguments).folder
    # Bind Spark to the loopback interface; then it does not look up the machine's name either.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    try:
        require_java()
        require_spark()
        require_delta()
        with tempfile.TemporaryDirectory(prefix="mysql-replica-pipeline-") as scratch:
            _say(
                "A recorded shop is served as a MySQL would; Spark follows its log and mirrors its tables ..."
            )
            with session_for("mysql-replica pipeline", _MASTER, SETTINGS) as spark:
                found = run(spark, folder or scratch)
            show(found, folder)
    except ReplicaError as error:
        sys.stderr.write(f"pipeline: error: {error}\n")
        return _FAILED
    return _DONE


def show(found: "Mapping[str, pa.Table]", folder: str | None) -> None:
    """Print the first rows of the tables; ``folder`` is where they stay."""
    for name, table in found.items():
        _say(f"\n{name}: {table.num_rows} rows\n{text_table(table)}")
    if folder is not None:
        _say(f"\nThey are in {folder}/{SCHEMA}.")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
