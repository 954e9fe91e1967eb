"""Helpers for the jobs mirror and history: run a job once, and read its tables as plain rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.spark_session import Pace, await_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = dict[str, Any]


def rows_of(target: Path, table: str) -> list[Row]:
    """All rows of a kept table; none if the table does not exist."""
    path = table_path(str(target), table)
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[Row] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def by_key(rows: Iterable[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    """The rows by their keys. Fails if a key occurs twice."""
    rows = list(rows)
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), rows
    return found


def run_once(
    job: ModuleType, spark: SparkSession, source: Mapping[str, str], target: Path, **more: Any
) -> StreamingQuery:
    """Run a job up to the present end of the log. Raises the errors of the job."""
    query: StreamingQuery = job.start(spark, source, str(target), pace=Pace(once=True), **more)
    await_queries(query)
    return query


def check_intervals(target: Path, table: str, key: tuple[str, ...]) -> None:
    """Check that each state ends where the next state of its key begins, or earlier, where the row was deleted."""
    states: dict[object, list[dict[str, object]]] = {}
    for row in sorted(rows_of(target, table), key=lambda row: row["_seq"]):
        states.setdefault(tuple(str(row[name]) for name in key), []).append(row)
    for several in states.values():
        assert [row["is_current"] for row in several[:-1]] == [False] * (len(several) - 1)
        for row, following in itertools.pairwise(several):
            # A state that was there before the history has no beginning.
            begin = row["valid_from"] or row["valid_to"]
            assert begin <= row["valid_to"] <= following["valid_from"], (row, following)  # type: ignore[operator]
        assert several[-1]["is_current"] == (several[-1]["valid_to"] is None)
