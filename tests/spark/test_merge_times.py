"""When kept tables are merged, and what is deleted then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import replica.spark
from protocol.errors import ReplicaError, SchemaMismatchError
from replica.demo import DemoSource
from replica.spark.jobs import job_state, keeper, mirror
from replica.spark.jobs.job_state import JobState, TableState, Waiting
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.leaves import MOST_BYTES
from replica.spark.jobs.spark_session import await_queries
from replica.spark.jobs.staging import Part
from tests.spark.support.demo_connection import connection_to
from tests.spark.support.kept_shop import CREATE, ONE, Kept
from tests.spark.support.kept_tables import rows_of, run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 120


def options_of(source: DemoSource) -> dict[str, str]:
    return connection_to(source) | {"includeTables": "shop.*"}


def test_what_waits_is_merged_though_nothing_comes(spark: SparkSession, tmp_path: Path) -> None:
    with DemoSource() as source:
        query = mirror.start(spark, options_of(source), str(tmp_path), merge_interval=1)
        try:
            until = time.monotonic() + SECONDS
            while not (rows_of(tmp_path, "shop.orders") and not waiting(tmp_path)):
                assert query.isActive, query.exception()
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            query.stop()
    merged = rows_of(tmp_path, "shop.orders")
    now = replica.spark.read_current(spark, str(tmp_path), "shop.orders").toArrow()
    assert sorted(map(str, merged)) == sorted(map(str, now.to_pylist()))


def test_what_waits_is_merged_by_a_run_that_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with DemoSource() as source:
        query = mirror.start(spark, options_of(source), str(tmp_path))
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        found = job_state.peek(str(tmp_path), {})
        assert found is not None
        name = next(iter(found[0].waiting))
        now = replica.spark.read_current(spark, str(tmp_path), name).toArrow()
        assert now.num_rows
        run_once(mirror, spark, options_of(source), tmp_path)
    after = job_state.peek(str(tmp_path), {})
    assert after is not None
    assert (after[2], after[0].waiting) == (found[2], {})
    assert sorted(map(str, rows_of(tmp_path, name))) == sorted(map(str, now.to_pylist()))


def waiting(target: Path) -> bool:
    found = job_state.peek(str(target), {})
    return found is None or bool(found[0].waiting)


def test_a_merge_behind_a_micro_batch_that_fails_ends_the_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SchemaMismatchError("shop.orders cannot be merged")

    monkeypatch.setattr(keeper.Keeper, "merge_waiting", fail)
    with DemoSource() as source:
        query = mirror.start(spark, options_of(source), str(tmp_path), merge_interval=0.5)
        with pytest.raises(ReplicaError, match=r"shop\.orders cannot be merged"):
            await_queries(query)
    assert not query.isActive


def test_what_is_due() -> None:
    policy = MergePolicy(300)
    large = TableState(size=100 * MOST_BYTES)
    few, many = (
        Waiting((), pa.schema([]), 1000, [Part("", 0, size, 1, 0, 0)])
        for size in (MOST_BYTES // 100, MOST_BYTES // 10)
    )
    assert [policy.is_due(TableState(), rows, 1001) for rows in (few, many)] == [False, True]
    assert not policy.is_due(large, many, 1001)
    assert policy.is_due(large, few, 1300)
    assert MergePolicy().is_due(large, few, 1000)


def test_many_parts_that_wait_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_MOST_PARTS", 2)
    kept = Kept(tmp_path)
    process = Keeper(kept.target, JobState(), MergePolicy(1e9))

    def run(number: int) -> None:
        items = kept.packed()
        process.run("query", number, lambda: stage_here(kept.target, items))

    kept.say(CREATE)
    for number in range(3):
        kept.insert({**ONE, "id": number})
        run(number)
        assert len(kept.rows()) == (3 if number == 2 else 0)
    assert not waiting(tmp_path)


def test_old_files_are_deleted_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_VACUUM_SECONDS", 0)
    kept = Kept(tmp_path)
    process = Keeper(kept.target, JobState(), MergePolicy(0, retention_hours=0))
    kept.say(CREATE).insert(ONE)
    for number in range(3):
        items = kept.packed()
        process.run("query", number, lambda items=items: stage_here(kept.target, items))  # type: ignore[misc]
        kept.update(ONE, {**ONE, "a": number})
    path = Path(table_path(str(tmp_path), "shop.t"))
    assert len(list(path.glob("*.parquet"))) == 1
    assert kept.rows() == [{**ONE, "a": 1}]
