"""A log of 1 GB that a real server has written: however it is cut, the rows of open_binlog in the order of `seq`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from replica.spark.read_task import read_piece
from tests.benchmarks.large_log import LARGE_BYTES, write_large_log
from tests.benchmarks.logs import CACHE, cached_logs
from tests.benchmarks.workloads import COMPARED, QUICK_SHARE
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.expected_rows import expected_changes, open_expected
from tests.spark.support.planned import JSON_PLAN, as_expected, plan
from tests.support.servers import ServerPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEGABYTE = 1 << 20


def large_log(pool: ServerPool, share: int, size: int) -> Path:
    [log] = cached_logs(pool, [workload for workload in COMPARED if workload.name == "bulk"], share)
    path = CACHE / f"large-{size}-{log.path.name}"
    write_large_log(log.path, path, size)
    return path


def sums(spark: SparkSession, path: Path, size: int) -> tuple[int, int, Any, Any, Any]:  # noqa: F811
    """Partitions, rows, first and last place, and the sum of the hashes of whole rows, places included."""
    options = {"rowFormat": "json", "maxPartitionBytes": str(size)}
    frame = spark.read.format("mysql-binlog").options(**options).load(str(path))
    frame.createOrReplaceTempView("changes")
    hashed = spark.sql("SELECT seq, CAST(xxhash64(*) AS DECIMAL(38, 0)) AS hash FROM changes")
    row = hashed.selectExpr("count(*)", "min(seq)", "max(seq)", "sum(hash)").first()
    assert row is not None
    return (frame.rdd.getNumPartitions(), *row)


@pytest.mark.parametrize(
    ("share", "size"), [(QUICK_SHARE, 20_000_000), pytest.param(1, LARGE_BYTES, marks=pytest.mark.long)]
)
def test_in_partitions_of_any_size(
    spark: SparkSession,  # noqa: F811
    server_pool: ServerPool,
    share: int,
    size: int,
) -> None:
    path = large_log(server_pool, share, size)
    rows, first, last = 0, None, Decimal(0)
    with open_expected(path) as log:
        expected = expected_changes(log)
        for piece in plan(path, 16 * _MEGABYTE):
            found = [row for batch in read_piece(piece, JSON_PLAN) for row in batch.to_pylist()]
            found.sort(key=lambda row: row["seq"])
            for row in found:
                wanted = next(expected)
                assert as_expected(row, wanted) == wanted
                assert row["seq"] > last
                last = row["seq"]
            rows += len(found)
            first = first or found[0]["seq"]
        assert next(expected, None) is None
    sizes = [16 << exponent for exponent in range(7)]
    cut = {size: sums(spark, path, size * _MEGABYTE) for size in (sizes if share == 1 else (16, 1024))}
    partitions = [parts for parts, *_ in cut.values()]
    assert partitions == sorted(partitions, reverse=True)
    assert partitions[0] >= path.stat().st_size // (17 * _MEGABYTE) > 0
    assert len(set(partitions)) > 1
    assert partitions[-1] == 1
    [(found_rows, found_first, found_last, _)] = {tuple(found[1:]) for found in cut.values()}
    assert (found_rows, found_first, found_last) == (rows, first, last)
