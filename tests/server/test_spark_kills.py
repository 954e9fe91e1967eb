"""A changelog whose driver and JVM are killed again and again has every row once, in Parquet and in Delta."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import DeltaTable

from tests.server.support.killed_queries import KilledQuery, Writer
from tests.server.support.spark_sources import now, options_of
from tests.spark.conftest import spark, spark_missing  # noqa: F401 -- the one session of the test run
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 300_000
RANDOM_KILLS = 10
# The short form: one kill, and as many rows as a few micro-batches have.
FEW_ROWS = 20_000
# Which query is killed where; what stands on the disk then: offsets that are not committed, and files that are.
KILLS = {
    "parquet:before_offsets:2": "offsets are committed",
    "delta:after_offsets:2": "offsets are open",
    "parquet:inside_read:1": "offsets are open",
    "delta:inside_fsync:2": "anything",
    "parquet:after_sink:1": "files are open",
    "delta:after_sink:2": "offsets are open",
}
ATTEMPTS = 10
# It may take several runs to kill the query there: no code of this project runs at that point.
_BY_CHANCE = "parquet:after_sink:1"


@pytest.fixture
def tables(server: Server) -> Iterator[list[str]]:
    if reason := spark_missing():
        pytest.skip(reason)
    with server.fresh_schema() as schema:
        names = [f"{schema}.t", f"{schema}.u"]
        for name in names:
            server.query(f"CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(100))")
        yield names


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_every_row_comes_once(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    tables: list[str],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    rng = random.Random(seed)
    start = now(options_of(server, tables))
    query = KilledQuery(server, tmp_path, tables, maxRowsPerTrigger=8000, startingOffsets=start)
    is_long = pytestconfig.getoption("long")
    kills: list[str] = [*KILLS, *[""] * RANDOM_KILLS]
    rng.shuffle(kills)
    kills = kills if is_long else [rng.choice(sorted(KILLS.keys() - {_BY_CHANCE}))]
    rows_written = ROWS if is_long else FEW_ROWS
    with Writer(server, tables, rng) as writer:
        for number, kill_at in enumerate(kills, 1):
            writer.allowed = rows_written * number // len(kills)
            if kill_at:
                kill_at_point(query, kill_at)
            else:
                kill_at_random(query, rng)
            print(f"{number}: {kill_at or 'random'}, written {writer.written}, committed {query.commits()}")
        writer.reach(rows_written)
    if is_long:
        query.run_until(query.has_all)
    else:
        query.finish(spark)
    rows = spark.read.parquet(str(tmp_path / "parquet")).select("after", "seq").toArrow()
    check(rows, writer.written)
    check(DeltaTable(tmp_path / "delta").to_pyarrow_table(columns=["after", "seq"]), writer.written)


def check(rows: pa.Table, count: int) -> None:
    """Each number once, and in the order in which they were written."""
    found = sorted(zip(rows["seq"].to_pylist(), rows["after"].to_pylist(), strict=True))
    assert [json.loads(after)["id"] for _, after in found] == list(range(count))


def kill_at_point(query: KilledQuery, kill_at: str) -> None:
    format, expected = kill_at.partition(":")[0], KILLS[kill_at]
    for _ in range(ATTEMPTS):
        query.run_to_its_death(kill_at)
        offsets, commits = (query.batches(format, log) for log in ("offsets", "commits"))
        is_open = offsets == commits + 1
        found = {
            "anything": True,
            "offsets are committed": not is_open,
            "offsets are open": is_open,
            "files are open": is_open and query.batches(format, "sink") == offsets,
        }
        if found[expected]:
            return
    raise AssertionError(f"{kill_at}: never so that {expected}")


def kill_at_random(query: KilledQuery, rng: random.Random) -> None:
    """While it starts, or while it works."""
    if rng.random() < 0.2:
        query.run_until(lambda: True, rng.uniform(3, 15))
    else:
        before = query.commits()
        query.run_until(lambda: query.commits() != before, rng.uniform(0, 6))


@pytest.mark.parametrize(
    "server", ["mysql:9.7", pytest.param("mariadb:11.8", marks=pytest.mark.long)], indirect=True
)
def test_a_query_killed_before_its_first_batch_is_done_loses_nothing(
    spark: SparkSession,  # noqa: F811
    server: Server,
    tables: list[str],
    tmp_path: Path,
    pytestconfig: pytest.Config,
) -> None:
    query = KilledQuery(server, tmp_path, tables, startingOffsets="latest")
    with Writer(server, tables, random.Random(0)) as writer:
        with query.run("parquet:after_offsets:1", when=tmp_path / "go") as process:
            query.wait(process, lambda: query.batches("parquet", "offsets") == 0)
            writer.reach(1000)
            (tmp_path / "go").touch()
            query.wait_for_death(process)
        assert query.batches("parquet", "commits") == -1
        writer.reach(writer.written + 1000)
    if pytestconfig.getoption("long"):
        query.run_until(query.has_all)
    else:
        query.finish(spark)
    check(spark.read.parquet(str(tmp_path / "parquet")).select("after", "seq").toArrow(), writer.written)
