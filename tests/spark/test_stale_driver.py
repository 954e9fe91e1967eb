"""A driver that was thought dead, and goes on beside the one that has taken its job over on another machine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from protocol.errors import CheckpointError
from replica.spark.jobs import job_state
from replica.spark.jobs.changes_table import ChangesTable
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.kept_table import KeptTable
from replica.spark.jobs.past_table import PastTable
from replica.spark.jobs.staging import Staged
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept

LATER = MergePolicy(1e9)


class Machine:
    """A driver of the job with a process of its own."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.keeper = Keeper(kept.target, JobState(), LATER)

    def run(self, number: int, items: list[PackedItem]) -> None:
        self.keeper.run("query", number, lambda: stage_here(self.kept.target, items))


def goes_on(stale: Machine, items: list[PackedItem]) -> None:
    stale.run(2, items)


def merges(stale: Machine, items: list[PackedItem]) -> None:
    stale.keeper.merge_waiting(is_end=True)


@pytest.mark.parametrize("act", [goes_on, merges])
@pytest.mark.parametrize("is_history", [False, True])
def test_it_ends_and_changes_nothing(
    act: Callable[[Machine, list[PackedItem]], None], is_history: bool, tmp_path: Path
) -> None:
    """Its older state replaced the newer one, and it deleted files of rows that waited."""
    kept = Kept(tmp_path, kind=PastTable) if is_history else Kept(tmp_path)
    stale = Machine(kept)
    kept.say(CREATE).insert(ONE)
    stale.run(0, kept.packed())
    kept.update(ONE, {**ONE, "a": 5})
    stale.run(1, kept.packed())
    other = Machine(kept)
    kept.insert(TWO)
    second = kept.packed()
    other.run(2, second)
    kept.update(TWO, {**TWO, "a": 6})
    other.run(3, kept.packed())
    with pytest.raises(CheckpointError, match="another driver runs this job"):
        act(stale, second)
    kept.update(TWO, {**TWO, "a": 7})
    other.run(4, kept.packed())
    other.keeper.merge_waiting(is_end=True)
    found: list[dict[str, Any]] = sorted(kept.rows(), key=lambda row: (row["id"], row["a"]))
    if not is_history:
        assert found == [{**ONE, "a": 5}, {**TWO, "a": 7}]
    else:
        assert [(row["id"], row["a"], row["is_current"]) for row in found] == [
            (1, ONE["a"], False),
            (1, 5, True),
            (2, TWO["a"], False),
            (2, 6, False),
            (2, 7, True),
        ]
    # The next driver finds the state of the other one.
    state = job_state.load(str(kept.path), "query", 5, {})
    assert state is not None
    assert state[1] == 4


def test_two_begin_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have found a target without a state."""
    kept = Kept(tmp_path)
    first, second = Machine(kept), Machine(kept)
    kept.say(CREATE).insert(ONE)
    items = kept.packed()
    with monkeypatch.context() as early:
        early.setattr(job_state, "load", lambda *_: None)
        first.run(0, items)
        with pytest.raises(CheckpointError, match="another driver runs this job"):
            second.run(0, items)
    first.keeper.merge_waiting(is_end=True)
    assert kept.rows() == [ONE]


def test_its_own_saves_and_vacuums_are_none_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("replica.spark.jobs.keeper._SAVES_PER_VACUUM", 2)
    kept = Kept(tmp_path)
    with monkeypatch.context() as earlier:
        earlier.setattr(job_state, "_RETENTION", {})
        machine = Machine(kept)
        kept.say(CREATE)
        machine.run(0, kept.packed())
    for number in range(1, 6):
        kept.insert({**ONE, "id": number})
        machine.run(number, kept.packed())
    machine.keeper.merge_waiting(is_end=True)
    assert len(kept.rows()) == 5


@pytest.mark.parametrize("kind", [CurrentTable, PastTable, ChangesTable])
def test_it_merges_nothing_if_the_other_one_began_meanwhile(kind: type[KeptTable], tmp_path: Path) -> None:
    """It looked before its tasks read the log, which may take minutes, and not before it changed the tables."""
    kept = Kept(tmp_path, kind=kind)
    stale = Machine(kept)
    kept.say(CREATE).insert(ONE)
    stale.run(0, kept.packed())
    other = Machine(kept)
    # It is in another process.
    other.keeper._lock = threading.Lock()
    kept.insert(TWO)
    items = kept.packed()

    def read() -> list[Staged]:
        other.run(1, items)
        kept.update(TWO, {**TWO, "a": 5})
        other.run(2, kept.packed())
        return stage_here(kept.target, items)

    hasty = Keeper(kept.target, JobState(), MergePolicy())
    hasty._saved = stale.keeper._saved
    with pytest.raises(CheckpointError, match="another driver runs this job"):
        hasty.run("query", 1, read)
    assert kept.rows() == []
    other.keeper.merge_waiting(is_end=True)
    assert len(kept.rows()) == {CurrentTable: 2, PastTable: 3, ChangesTable: 3}[kind]
