"""The state of a job with kept tables: what its Delta tables keep of earlier micro-batches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import CheckpointError
from replica.spark.jobs import job_state
from replica.spark.jobs.job_state import JobState, TableState

_FOLDERS = (job_state.FOLDER, job_state.PROGRESS)
_RETENTION = "delta.logRetentionDuration"


def save(target: Path, *batches: int) -> None:
    found = job_state.peek(str(target), {})
    state = JobState(tables={"shop.t": TableState()}) if found is None else found[0]
    for batch in batches:
        job_state.save(str(target), state, "query", batch, {})
        job_state.save_progress(str(target), state, batch, {})


def commits(target: Path, folder: str) -> int:
    return len([name for name in os.listdir(target / folder / "_delta_log") if name.endswith("0.json")])


def test_old_commits_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_state, "_RETENTION", {_RETENTION: "interval 0 seconds"})
    save(tmp_path, *range(205))
    # Each tenth commit counts here.
    assert [commits(tmp_path, folder) for folder in _FOLDERS] == [1, 1]
    found = job_state.load(str(tmp_path), "query", 205, {})
    assert found is not None
    assert found[1] == 204


def test_tables_of_an_earlier_release_get_the_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(job_state, "_RETENTION", {})
        save(tmp_path, 0)
    for _ in range(2):
        job_state.vacuum(str(tmp_path), 1, {})
    for folder in _FOLDERS:
        table = DeltaTable(tmp_path / folder)
        assert table.metadata().configuration[_RETENTION] == "interval 1 hours"
    save(tmp_path, 1)
    found = job_state.peek(str(tmp_path), {})
    assert found is not None
    assert found[1:] == ("query", 1)


@pytest.mark.parametrize(
    "row",
    [
        ("other", "shop.t", "1", None),
        ("log", "other", "1", None),
        ("table", "shop.t", '{"other": 1}', None),
        ("again", "shop.t", "{}", None),
        ("waiting", "shop.t", "[]", None),
    ],
)
def test_a_state_of_a_later_release_is_not_read_as_another_one(
    row: tuple[str, str, str, None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of an unknown kind made its table one that the log has dropped."""
    rows = JobState().rows()
    with monkeypatch.context() as later:
        later.setattr(JobState, "rows", lambda _: [*rows, row])
        save(tmp_path, 0)
    with pytest.raises(
        CheckpointError, match=r"cannot read the state .*: if a later one has written it, upgrade"
    ):
        job_state.load(str(tmp_path), "query", 1, {})
    with pytest.raises(CheckpointError, match="cannot read the state"):
        job_state.peek(str(tmp_path), {})


def test_names_of_dropped_tables_do_not_pile_up() -> None:
    """A source that makes tables for an hour drops thousands of them; the state is written with each micro-batch."""
    state = JobState(is_birth=True)
    for number in range(1000):
        state.miss(f"shop.t{number}")
    assert state.absent == {"shop.t999"}
    other = JobState()
    for number in range(3):
        other.miss(f"shop.t{number}")
    assert len(other.absent) == 3
