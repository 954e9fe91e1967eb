"""Random logs, and jobs with kept tables that process them in random micro-batches, killed at random; no Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from replica.spark.jobs import kept_table
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.kept_table import KeptTable
from replica.spark.jobs.target import Target
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_log import RandomLog, packed

QUERY = "query"


class Killed(BaseException):
    """The job is killed in the middle of a micro-batch."""


def target_of(path: Path, kind: type[KeptTable]) -> Target:
    return Target(str(path), kind, lambda name: name.startswith("shop."))


def random_log(rng: random.Random, steps: int, *, alters: bool = True) -> RandomLog:
    log = RandomLog(rng)
    for name in ("orders", "Other table", "_t"):
        log.create(name)
    for _ in range(steps):
        kind = rng.random()
        if kind < 0.7:
            log.transaction(rng.randint(1, 8))
        elif kind < 0.8:
            log.transaction(rng.randint(1, 5), rng.choice(["rollback", "prepared"]))
        elif kind < 0.9:
            log.end_prepared()
        elif alters:
            log.alter()
    return log


class Process:
    """A process that keeps tables: it merges some tables with a micro-batch, some behind it, until it is killed."""

    def __init__(self, target: Target, rng: random.Random, share: float) -> None:
        """``share`` of the tables are due with each micro-batch."""
        self.target, self.rng, self.share = target, rng, share
        self.keeper = self._begun()

    def _begun(self) -> Keeper:
        rng, share = self.rng, self.share

        class RandomPolicy(MergePolicy):
            def is_due(self, *_: object) -> bool:
                return rng.random() < share

        return Keeper(self.target, JobState(), RandomPolicy())

    def run(self, number: int, items: list[PackedItem]) -> None:
        try:
            self.keeper.run(QUERY, number, lambda: stage_here(self.target, items))
            if self.rng.random() < 1 - self.share:
                self.keeper.merge_waiting(is_end=self.rng.random() < 0.5)
        except Killed:
            self.keeper = self._begun()
            raise

    def end(self, number: int) -> None:
        """What a process does that begins and has nothing to read: then nothing waits."""
        self.keeper = self._begun()
        self.keeper.run(QUERY, number, list)
        self.keeper.merge_waiting(is_end=True)


def keep(
    log: RandomLog,
    target: Target,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    kills: int,
    share: float = 1,
) -> int:
    """Process the log in micro-batches of random size, some killed and run again. Returns the number of kills."""
    process = Process(target, rng, share)
    done = killed = number = 0
    while done < len(log.transactions):
        size = rng.randint(1, 12)
        while True:
            rows = list(packed(rng, log.transactions[done : done + size]))
            try:
                with monkeypatch.context() as patch:
                    if killed < kills and rng.random() < 0.7:
                        kill_after(patch, rng.randint(0, 6), rng)
                    process.run(number, rows)
                break
            except Killed:
                killed += 1
        done += size
        number += 1
    process.end(number)
    return killed


def kill_after(patch: pytest.MonkeyPatch, commits: int, rng: random.Random) -> None:
    """Kill the process before or after a commit of a table, or before the commit of the job's state."""
    left = commits
    take = kept_table.Step.properties

    def properties(step: kept_table.Step, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return take(step, **options)

    def save(*_: object) -> None:
        raise Killed

    patch.setattr(kept_table.Step, "properties", properties)
    if rng.random() < 0.5:
        patch.setattr("replica.spark.jobs.job_state.save", save)
