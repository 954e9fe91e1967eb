"""Merges of kept tables as tasks of Spark: the same tables as in one process."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.spark.jobs import job_state, leaves, merge_tasks, staging
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.merges import Merge, Merged
from replica.spark.jobs.past_table import PastTable
from replica.spark.jobs.target import Target
from tests.spark.support.kept_log import KEY, packed
from tests.spark.support.kept_runs import random_log
from tests.spark.support.kept_tables import by_key, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("kind", [CurrentTable, PastTable])
@pytest.mark.parametrize("is_shuffled", [False, True])
def test_tasks_of_spark(
    seed: int,
    spark: SparkSession,
    tmp_path: Path,
    kind: type[CurrentTable] | type[PastTable],
    is_shuffled: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(merge_tasks, "SMALL_BYTES", 0)
    # Also in the tasks, which get what is cut from the driver's plan.
    monkeypatch.setattr(leaves, "JOINED_BYTES", 0)
    taken = Counter[str]()
    for name in ("merge_directly", "_shuffled"):
        run = getattr(merge_tasks, name)

        def counted(spark: SparkSession, merges: list[Merge], *more: Any, run: Any = run) -> list[Merged]:
            taken[run.__name__] += len(merges)
            found: list[Merged] = run(spark, merges, *more)
            return found

        monkeypatch.setattr(merge_tasks, name, counted)
    if is_shuffled:
        monkeypatch.setattr(merge_tasks, "is_direct", lambda merge: False)
    rng = random.Random(seed)
    log = random_log(rng, 40)
    target = Target(str(tmp_path), kind, lambda name: name.startswith("shop."))
    size = len(log.transactions) // 3 + 1
    for number in range(3):
        items = list(packed(rng, log.transactions[number * size : (number + 1) * size]))
        Keeper(target, JobState()).run("query", number, partial(stage_here, target, items), spark)
    for name, table in log.tables.items():
        rows = rows_of(tmp_path, name)
        if kind is CurrentTable:
            assert by_key(rows, *KEY) == {
                key: {column: row[column] for column in table.columns} for key, row in table.rows.items()
            }
        else:
            assert sorted(row["_seq"] for row in rows) == sorted(state.seq for state in table.past)
    assert list(taken) == ["_shuffled" if is_shuffled else "merge_directly"]
    # What nobody needs any more is deleted.
    assert {path.suffix for path in (tmp_path / staging.FOLDER).iterdir()} <= {".arrow"}


def test_in_another_thread(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the timer that merges what has waited: Spark has no active session there."""
    monkeypatch.setattr(merge_tasks, "SMALL_BYTES", 0)
    rng = random.Random(seed)
    log = random_log(rng, 20, alters=False)
    target = Target(str(tmp_path), CurrentTable, lambda name: name.startswith("shop."))
    keeper = Keeper(target, JobState(), MergePolicy(1000))
    items = list(packed(rng, log.transactions))
    with ThreadPoolExecutor(2) as pool:
        pool.submit(keeper.run, "query", 0, partial(stage_here, target, items), spark).result()
        assert any(keeper_state(target).waiting)
        pool.submit(keeper.merge_waiting, is_end=True).result()
    for name, table in log.tables.items():
        assert by_key(rows_of(tmp_path, name), *KEY) == table.rows


def keeper_state(target: Target) -> JobState:
    found = job_state.peek(target.path, {})
    assert found is not None
    return found[0]
