"""``read_current``: tables with the changes that wait for a merge."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import replica.spark
from protocol.errors import ConfigurationError
from replica.spark.jobs import leaves
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.kept_table import KeptTable
from replica.spark.jobs.past_table import PastTable
from tests.spark.support.kept_log import KEY, RandomLog, packed
from tests.spark.support.kept_runs import target_of
from tests.spark.support.kept_tables import by_key, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_now(spark: SparkSession, target: Path, table: str) -> list[dict[str, Any]]:
    found: pa.Table = replica.spark.read_current(spark, str(target), table).toArrow()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@pytest.mark.parametrize("kind", [CurrentTable, PastTable])
def test_rows_that_wait(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KeptTable]
) -> None:
    monkeypatch.setattr(leaves, "JOINED_BYTES", 0)
    rng = random.Random(seed)
    log = RandomLog(rng)
    log.create("orders")
    target = target_of(tmp_path, kind)
    keeper = Keeper(target, JobState(), MergePolicy(1e9))
    table = log.tables["shop.orders"]
    done = 0
    for number in range(4):
        for _ in range(6):
            log.transaction(rng.randint(1, 8))
        items = list(packed(rng, log.transactions[done:]))
        done = len(log.transactions)
        keeper.run("query", number, lambda items=items: stage_here(target, items))  # type: ignore[misc]
        merged = rows_of(tmp_path, "shop.orders")
        found = rows_now(spark, tmp_path, "shop.orders")
        assert found != merged
        if kind is CurrentTable:
            assert by_key(found, *KEY) == table.rows
        else:
            assert sorted(row["_seq"] for row in found) == sorted(state.seq for state in table.past)
            assert by_key([row for row in found if row["is_current"]], *KEY).keys() == table.rows.keys()
        if number == 1:
            keeper.merge_waiting(is_end=True)
            assert len(rows_now(spark, tmp_path, "shop.orders")) == len(rows_of(tmp_path, "shop.orders"))
    with pytest.raises(ConfigurationError, match="is not a table of"):
        replica.spark.read_current(spark, str(tmp_path), "shop.other")
    with pytest.raises(ConfigurationError, match="has no tables of a mirror"):
        replica.spark.read_current(spark, str(tmp_path / "shop"), "shop.orders")
