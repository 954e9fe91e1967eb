"""The state of a job with kept tables: what its Delta tables keep of earlier micro-batches."""

from __future__ import annotations

import os
import random
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


def written(target: Path) -> int:
    """The bytes of all files of the state, also of earlier versions, and of its log."""
    return sum(file.stat().st_size for file in (target / job_state.FOLDER).rglob("*.*") if file.is_file())


def test_a_save_takes_bytes_for_what_has_changed(tmp_path: Path) -> None:
    """Each micro-batch wrote the state of all tables: 303 kB for 5,000."""
    bytes_of = {}
    for tables in (10, 1000):
        target = tmp_path / str(tables)
        names = [f"shop.table_{number}" for number in range(tables)]
        state = JobState(tables={name: TableState(kinds={"id": "int", "name": name}) for name in names})
        job_state.save(str(target), state, "query", 0, {})
        before = written(target)
        for batch in range(1, 11):
            job_state.save(str(target), state, "query", batch, {})
        unchanged = written(target)
        for batch in range(11, 21):
            state.tables[names[batch % 10]].merged_batch = batch
            job_state.save(str(target), state, "query", batch, {})
        bytes_of[tables] = unchanged - before, written(target) - unchanged
        found = job_state.load(str(target), "query", 21, {})
        assert found == (state, 20)
    for few, many in zip(bytes_of[10], bytes_of[1000], strict=True):
        assert many < 2 * few, bytes_of


def change(state: JobState, rng: random.Random, batch: int) -> None:
    """Change a table of the state, or let it be gone."""
    name = f"shop.t{rng.randrange(40)}"
    match rng.randrange(6):
        case 0 | 1:
            state.tables.setdefault(name, TableState()).kinds["id"] = f"int({batch})"
        case 2:
            state.tables.pop(name, None)
            state.begins.pop(name, None)
        case 3:
            state.absent.symmetric_difference_update({name})
        case 4:
            state.begins[name] = f"bin.000001:{batch}"
        case _:
            state.parked[name] = str(batch)


def test_the_state_is_what_was_saved_last(tmp_path: Path, seed: int) -> None:
    """Of rows in two files, those of the first are replaced, and some are gone."""
    rng, state = random.Random(seed), JobState()
    layouts = set()
    for batch in range(60):
        change(state, rng, batch)
        if batch % 9 == 0:
            # As a killed driver goes on.
            found = job_state.peek(str(tmp_path), {})
            state = state if found is None else found[0]
            state.epoch = batch
        job_state.save(str(tmp_path), state, "query", batch, {})
        assert job_state.peek(str(tmp_path), {}) == (state, "query", batch)
        layouts.add(len(DeltaTable(tmp_path / job_state.FOLDER).file_uris()))
    assert layouts == {1, 2}


@pytest.mark.parametrize("tables", [1, 100])
def test_only_one_of_two_drivers_saves(tables: int, tmp_path: Path) -> None:
    state = JobState(tables={f"shop.t{number}": TableState() for number in range(tables)})
    job_state.save(str(tmp_path), state, "query", 0, {})
    for batch in range(1, 4):
        one, other = (job_state.peek(str(tmp_path), {}) for _ in range(2))
        assert one is not None
        assert other is not None
        one[0].merges, other[0].merges = batch, 100 + batch
        job_state.save(str(tmp_path), one[0], "query", batch, {})
        with pytest.raises(CheckpointError, match="another driver runs this job"):
            job_state.save(str(tmp_path), other[0], "query", batch, {})
        assert job_state.peek(str(tmp_path), {}) == (one[0], "query", batch)


def test_others_may_change_the_table_without_its_rows(tmp_path: Path) -> None:
    state = JobState(tables={f"shop.t{number}": TableState() for number in range(100)})
    for batch in range(4):
        job_state.save(str(tmp_path), state, "query", batch, {})
        DeltaTable(tmp_path / job_state.FOLDER).alter.set_table_properties({"delta.appendOnly": "false"})
    assert job_state.peek(str(tmp_path), {}) == (state, "query", 3)
