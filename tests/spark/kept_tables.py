"""Tables that the jobs mirror and history keep, read back as plain rows, and a job that runs once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.session import Pace, await_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = dict[str, Any]


def rows_of(target: Path, table: str) -> list[Row]:
    """All rows of a kept table; none where it is not there."""
    path = table_path(str(target), table)
    if not DeltaTable.is_deltatable(path):
        return []
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def by_key(rows: Iterable[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    """Rows by their keys, of which each is there once."""
    rows = list(rows)
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), rows
    return found


def run_once(
    job: ModuleType, spark: SparkSession, source: Mapping[str, str], target: Path, **more: Any
) -> StreamingQuery:
    """Everything that is there now. Raises what the job raises."""
    query: StreamingQuery = job.start(spark, source, str(target), pace=Pace(once=True), **more)
    await_queries(query)
    return query
