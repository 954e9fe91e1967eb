"""Runs one micro-batch of a job that keeps tables, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, stage_here
from replica.spark.jobs.target import Target
from replica.spark.packed_items import PackedItem


def run_batch(
    target: Target, begin: JobState, query: str, number: int, items: Callable[[], Iterable[PackedItem]]
) -> None:
    """Run one micro-batch, whose rows are in this process, as the first one of a process."""
    Keeper(target, begin).run(query, number, lambda: stage_here(target, items()))
