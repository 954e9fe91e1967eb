"""Micro-batches that find waiting rows, killed at each commit of a table and run again: nothing is lost. No Spark."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from replica.spark.jobs import job_state, kept_table
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.past_table import PastTable
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_runs import Killed
from tests.spark.support.kept_shop import CREATE, LAYOUT, ONE, TWO, Kept
from tests.spark.support.kept_tables import Row

ZERO = {"id": 0, "k": "x", "a": 0}
WIDE = (*LAYOUT, ("c", pa.int32()))
KEY, C = LAYOUT[:2], WIDE[-1]
THREE = {"id": 3, "k": "x", "a": 3, "c": 5}
# Statement -> the columns behind it, a row that is inserted then, and the table.
STATEMENTS: dict[str, tuple[tuple[tuple[str, pa.DataType], ...], Row, str]] = {
    "TRUNCATE t": (WIDE, THREE, "shop.t"),
    "ALTER TABLE t CHANGE a b INT": (
        (*KEY, ("b", pa.int32()), C),
        {"id": 3, "k": "x", "b": 3, "c": 5},
        "shop.t",
    ),
    "ALTER TABLE t DROP COLUMN a": ((*KEY, C), {"id": 3, "k": "x", "c": 5}, "shop.t"),
    "ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 8": (
        (*WIDE, ("b", pa.int32())),
        THREE | {"b": 4},
        "shop.t",
    ),
    "RENAME TABLE t TO u": (WIDE, THREE, "shop.u"),
    # The same columns, and others without a statement that the job knows.
    "/* nothing */": (WIDE, THREE, "shop.t"),
    "/* a is BIGINT */": ((*KEY, ("a", pa.int64()), C), THREE, "shop.t"),
}


class Job:
    """Three micro-batches, and processes that run them, until they are killed."""

    def __init__(self, path: Path, kind: Any, statement: str) -> None:
        layout, row, self.table = STATEMENTS[statement]
        self.kept = Kept(path, kind=kind)
        first = self.kept.say(CREATE).insert(ZERO).packed()
        # What waits has a column that the target lacks, and with it a value for the row that is there.
        self.kept.say("ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 9").layout = WIDE
        second = self.kept.insert(*(one | {"c": 4} for one in (ONE, TWO))).packed()
        self.kept.layout = layout
        self.batches = [first, second, self.kept.say(statement).insert(row, table=self.table).packed()]

    def process(self, *numbers: int, seconds: float = 0) -> Keeper:
        """A process that has run these micro-batches. By default they are merged."""
        keeper = Keeper(self.kept.target, JobState(), MergePolicy(seconds, due_bytes=1 << 40))
        for number in numbers:
            self.run(keeper, number, self.batches[number])
        return keeper

    def run(self, keeper: Keeper, number: int, items: list[PackedItem]) -> None:
        keeper.run("query", number, lambda: stage_here(self.kept.target, items))


def kill_after(patch: pytest.MonkeyPatch, commits: int) -> None:
    """Kill the process before the next commit of a table."""
    left = [None] * commits
    take = kept_table.Step.properties

    def properties(step: kept_table.Step, **options: Any) -> Any:
        if not left:
            raise Killed
        left.pop()
        return take(step, **options)

    patch.setattr(kept_table.Step, "properties", properties)


def fail(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("is_merged", [False, True], ids=["waiting", "merged"])
@pytest.mark.parametrize("kind", [CurrentTable, PastTable], ids=["mirror", "history"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, kind: Any, is_merged: bool
) -> None:
    """``is_merged``: what waited was merged behind its micro-batch, and the state that says so was not saved."""
    whole = Job(tmp_path / "whole", kind, statement)
    whole.process(0, 1, 2)
    expected = whole.kept.rows(whole.table)
    assert expected
    was_killed = True
    commits = 0
    while was_killed:
        job = Job(tmp_path / str(commits), kind, statement)
        job.process(0)
        process = job.process(1, seconds=1000)
        if is_merged:
            with monkeypatch.context() as patch:
                patch.setattr(job_state, "save", fail)
                with pytest.raises(Killed):
                    process.merge_waiting(is_end=True)
        was_killed = False
        with monkeypatch.context() as patch:
            kill_after(patch, commits)
            try:
                job.process(2)
            except Killed:
                was_killed = True
        job.process(2)
        assert job.kept.rows(job.table) == expected, f"killed after {commits} commits"
        commits += 1
    assert commits > 1


@pytest.mark.parametrize("statement", list(STATEMENTS)[:1])
def test_a_job_that_was_stopped_leaves_the_state_to_the_next(tmp_path: Path, statement: str) -> None:
    """Its threads were at work when it was started again: one of the two failed, or wrote an older state."""
    job = Job(tmp_path, CurrentTable, statement)
    job.process(0)
    stopped, following = job.process(1, seconds=1000), job.process()
    with ThreadPoolExecutor(1) as pool:
        with stopped._lock:
            begun = pool.submit(job.run, following, 2, job.batches[2])
            with pytest.raises(TimeoutError):
                begun.result(0.2)
            stopped.is_active = lambda: False
        begun.result()
    before = job.kept.rows(job.table)
    stopped.merge_waiting(is_end=True)
    assert stopped.change(lambda state, batch: True, None) is None  # type: ignore[arg-type]
    assert job.kept.rows(job.table) == before
