"""Kept tables against a plain model, without Spark: random logs, cut into micro-batches at random and killed in any
commit of them; statements that change tables; and what is refused."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")


from replica.spark.jobs import kept_table
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Target, run_batch
from replica.spark.jobs.kept_table import KeptTable
from replica.spark.jobs.past_table import OWN_FIELDS, PastTable
from tests.spark.kept_log import KEY, Modelled, RandomLog, packed
from tests.spark.kept_tables import Row, by_key, rows_of

QUERY = "query"
OWN = {field.name for field in OWN_FIELDS}


class Killed(BaseException):
    """In the middle of a micro-batch."""


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


def keep(
    log: RandomLog, target: Target, rng: random.Random, monkeypatch: pytest.MonkeyPatch, kills: int
) -> int:
    """The whole log in micro-batches of any size, some of which are killed and run again. Returns how many."""
    done = killed = number = 0
    while done < len(log.transactions):
        size = rng.randint(1, 12)
        while True:
            rows = list(packed(rng, log.transactions[done : done + size]))
            try:
                with monkeypatch.context() as patch:
                    if killed < kills and rng.random() < 0.7:
                        kill_after(patch, rng.randint(0, 6), rng)
                    run_batch(target, JobState(), QUERY, number, lambda rows=rows: rows)
                break
            except Killed:
                killed += 1
        done += size
        number += 1
    return killed


def kill_after(patch: pytest.MonkeyPatch, commits: int, rng: random.Random) -> None:
    """The process dies before or behind a commit of a table, or before that of the job's state."""
    left = commits
    take = kept_table.Step.properties

    def properties(step: kept_table.Step) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed
        return take(step)

    def save(*_: object) -> None:
        raise Killed

    patch.setattr(kept_table.Step, "properties", properties)
    if rng.random() < 0.5:
        patch.setattr("replica.spark.jobs.job_state.save", save)


def micros(moment: datetime | None) -> int | None:
    return (
        None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    )


def expected_now(table: Modelled) -> dict[Any, Row]:
    return {key: {name: row[name] for name in table.columns} for key, row in table.rows.items()}


@pytest.mark.parametrize("attempt", range(3))
def test_random_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = random_log(rng, 120)
    killed = keep(log, target_of(tmp_path, CurrentTable), rng, monkeypatch, kills=12)
    assert killed
    for name, table in log.tables.items():
        assert by_key(rows_of(tmp_path, name), *KEY) == expected_now(table), name


@pytest.mark.parametrize("attempt", range(3))
def test_random_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = random_log(rng, 120)
    killed = keep(log, target_of(tmp_path, PastTable), rng, monkeypatch, kills=12)
    assert killed
    for name, table in log.tables.items():
        found = sorted(rows_of(tmp_path, name), key=lambda row: row["_seq"])
        expected = sorted(table.past, key=lambda state: state.seq)
        assert [micros(row["valid_from"]) for row in found] == [state.begin for state in expected]
        assert [micros(row["valid_to"]) for row in found] == [state.end for state in expected]
        assert [row["is_current"] for row in found] == [state.end is None for state in expected]
        for row, state in zip(found, expected, strict=True):
            values = {column: value for column, value in row.items() if column not in OWN}
            assert {column: state.values.get(column) for column in values} == values
