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

from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

SECONDS = 900


@pytest.fixture
def table(mysql97: Server) -> Iterator[str]:
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(100))")
        yield f"{schema}.t"


class Pipeline:
    """One streaming query that may be started many times: the same checkpoint, spool and Parquet."""

    def __init__(self, session: SparkSession, server: Server, folder: Path, table: str) -> None:
        self.session, self.server, self.folder, self.table = session, server, folder, table

    def options(self, **more: object) -> dict[str, str]:
        given: dict[str, object] = {
            "host": self.server.host,
            "port": self.server.port,
            "user": self.server.replica_user,
            "password": self.server.replica_password,
            "includeTables": self.table,
            "rowFormat": "json",
            "heartbeat": 1,
            "spoolDir": self.folder / "spool",
        }
        return {name: str(value) for name, value in (given | more).items()}

    def frame(self, **more: object) -> DataFrame:
        return self.session.readStream.format("mysql-binlog").options(**self.options(**more)).load()

    def run(self, **more: object) -> StreamingQuery:
        """Everything that is there now."""
        return self.write(self.frame(**more))

    def write(self, frame: DataFrame) -> StreamingQuery:
        query = self.start(frame, availableNow=True)
        try:
            assert query.awaitTermination(SECONDS)
        finally:
            query.stop()
        return query

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.format("parquet")
        writer = writer.trigger(**trigger) if trigger else writer
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(
            str(self.folder / "rows")
        )

    def table_frame(self) -> DataFrame:
        """The same in table mode, where the table's columns are those of the rows."""
        options = self.options(schemaMode="table", table=self.table)
        for name in ("includeTables", "rowFormat"):
            del options[name]
        return self.session.readStream.format("mysql-binlog").options(**options).load()

    def run_table(self) -> StreamingQuery:
        """Everything that is there now, in table mode."""
        return self.write(self.table_frame())

    def start_table(self) -> StreamingQuery:
        """Until it is stopped, in table mode."""
        return self.start(self.table_frame())

    def count(self) -> int:
        return self.session.read.parquet(str(self.folder / "rows")).count()

    def ids(self) -> list[int]:
        rows = self.session.read.parquet(str(self.folder / "rows")).orderBy("seq").collect()
        return [next(iter(json.loads(row["after"]).values())) for row in rows]

    def insert(self, first: int, count: int) -> None:
        rows = [(number, str(number)) for number in range(first, first + count)]
        with self.server.connect() as connection, connection.cursor() as cursor:
            for begin in range(0, count, 10):
                cursor.executemany(f"INSERT INTO {self.table} VALUES (%s, %s)", rows[begin : begin + 10])


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
