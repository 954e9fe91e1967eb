"""A stream that has nothing to read asks the source nothing, however often Spark asks the stream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from tests.server.support.spark_pipeline import Pipeline
from tests.server.support.spark_readers import ALL, Readers, next_offset
from tests.server.support.spark_sources import LIVE_SERVERS, insert
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 10
_MOST_PER_SECOND = 0.2


class Questions:
    """Counts the statements of all clients of a server but its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = self._read()

    def _read(self) -> int:
        [(_, value)] = self._server.query("SHOW GLOBAL STATUS LIKE 'Questions'")
        return int(value)

    def count(self) -> int:
        # What connecting and asking takes is found by doing it twice.
        once = self._read()
        twice = self._read()
        return once - self._before - (twice - once)


@pytest.fixture
def readers(tmp_path: Path) -> Iterator[Readers]:
    with contextlib.closing(Readers(tmp_path / "spool")) as readers:
        yield readers


@pytest.mark.parametrize("server", LIVE_SERVERS, indirect=True)
def test_the_reader_asks_nothing(server: Server, readers: Readers, table: str) -> None:
    reader = readers(server, rowFormat="json", includeTables=table)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    insert(server, table, 0, 10)
    end = next_offset(reader, start)
    reader.commit(end)
    questions, calls, until = Questions(server), 0, time.monotonic() + _SECONDS
    while time.monotonic() < until:
        # Nothing is written; but a log may be seen to its end only now.
        end = reader.latestOffset(end, ALL)
        assert reader.reportLatestOffset() is not None
        calls += 1
    assert calls > 2 * _SECONDS
    assert questions.count() <= _MOST_PER_SECOND * _SECONDS


@pytest.fixture
def pipeline(spark: SparkSession, mysql97: Server, tmp_path: Path) -> Iterator[Pipeline]:  # noqa: F811
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v VARCHAR(100))")
        yield Pipeline(spark, mysql97, tmp_path, f"{schema}.t")


def test_a_query_asks_nothing(pipeline: Pipeline, mysql97: Server) -> None:
    writer = pipeline.frame(startingOffsets="latest").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(pipeline.folder / "checkpoint"))
    query = writer.start(str(pipeline.folder / "rows"))
    try:
        while not query.recentProgress:
            assert query.isActive
            time.sleep(0.1)
        pipeline.insert(0, 50)
        query.processAllAvailable()
        questions = Questions(mysql97)
        time.sleep(_SECONDS)
        assert questions.count() <= _MOST_PER_SECOND * _SECONDS
        assert query.isActive
    finally:
        query.stop()
    assert pipeline.ids() == list(range(50))
