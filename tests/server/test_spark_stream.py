"""Micro-batches through Spark: from a live source to Parquet, in several runs of one query."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from tests.server.support.spark_pipeline import SECONDS, Pipeline
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def table(mysql97: Server) -> Iterator[str]:
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(100))")
        yield f"{schema}.t"


@pytest.fixture
def pipeline(spark: SparkSession, mysql97: Server, tmp_path: Path, table: str) -> Pipeline:  # noqa: F811
    return Pipeline(spark, mysql97, tmp_path, table)


def batches(query: StreamingQuery) -> list[dict[str, Any]]:
    return [json.loads(progress.json) for progress in query.recentProgress]


def test_a_query_goes_on_where_it_ended(pipeline: Pipeline) -> None:
    first = pipeline.run()
    # Only the start is pinned, by a batch without rows.
    assert [progress["numInputRows"] for progress in batches(first)] == [0]
    pipeline.insert(0, 100)
    pipeline.run()
    assert pipeline.ids() == list(range(100))
    pipeline.insert(100, 200)
    third = pipeline.run(maxRowsPerTrigger=50)
    assert pipeline.ids() == list(range(300))
    sizes = [progress["numInputRows"] for progress in batches(third) if progress["numInputRows"]]
    assert len(sizes) >= 4
    assert sum(sizes) == 200
    assert max(sizes) <= 60
    source = batches(third)[-1]["sources"][0]
    assert "password" not in json.dumps(source)
    assert json.loads(json.dumps(source["endOffset"]))["file"].startswith("binlog.")
    latest = source["latestOffset"]
    assert latest["lag_bytes"] == 0
    # Nothing is left in the spool but what the next run goes on behind.
    assert len(list((pipeline.folder / "spool").glob("*.binlog"))) <= 2


def test_ddl_ends_a_query_in_table_mode_and_the_next_run_has_the_new_columns(
    pipeline: Pipeline, mysql97: Server
) -> None:
    pipeline.run_table()
    pipeline.insert(0, 20)
    query = pipeline.start_table()
    until = time.monotonic() + SECONDS
    while pipeline.count() < 20:
        assert query.isActive
        assert time.monotonic() < until
        time.sleep(0.5)
    mysql97.query(f"ALTER TABLE {pipeline.table} ADD COLUMN n BIGINT UNSIGNED")
    mysql97.query(f"INSERT INTO {pipeline.table} VALUES (20, 'x', 18446744073709551615)")
    with pytest.raises(StreamingQueryException, match=r"SchemaMismatchError: .* change here: n is new"):
        query.awaitTermination(SECONDS)
    assert pipeline.count() == 20
    pipeline.run_table()
    rows = pipeline.session.read.option("mergeSchema", True).parquet(str(pipeline.folder / "rows"))
    found = sorted((row["id"], row["n"]) for row in rows.collect())
    assert found == [*((number, None) for number in range(20)), (20, 18446744073709551615)]
