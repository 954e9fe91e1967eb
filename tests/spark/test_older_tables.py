"""A table that was taken back to an older version, alone: the rows that it lost do not come again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa
from deltalake import DeltaTable

from protocol.errors import CheckpointError
from replica.spark.jobs import job_state, mirror
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.past_table import PastTable
from replica.spark.jobs.table_versions import empty_commit
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept

THREE, FOUR = ({"id": number, "k": "", "a": number} for number in (3, 4))


def restored(path: Path, older: Path) -> None:
    DeltaTable(path).restore(DeltaTable(older).version())


def copied(path: Path, older: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(older, path)


def deleted(path: Path, older: Path) -> None:
    shutil.rmtree(path)


def reasons(kept: Kept) -> dict[str, str]:
    return {
        row["table"]: row["reason"] for row in mirror.progress(str(kept.path)).to_pylist() if row["reason"]
    }


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Two tables with two rows each, and a copy of one of them from when it had one row."""
    found = Kept(tmp_path / "target")
    found.target = replace(found.target, parks=True, is_live=True)
    found.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE).insert(ONE, table="shop.u").run()
    shutil.copytree(path_of(found), tmp_path / "older")
    found.insert(TWO).insert(TWO, table="shop.u").run()
    return found


def path_of(kept: Kept) -> Path:
    return Path(table_path(str(kept.path), "shop.t"))


@pytest.mark.parametrize("take_back", [restored, copied, deleted])
@pytest.mark.parametrize("has_changes", [True, False])
def test_an_older_table_is_parked(
    kept: Kept, tmp_path: Path, take_back: Callable[[Path, Path], None], has_changes: bool
) -> None:
    """It went on without the rows between, and nobody was told."""
    take_back(path_of(kept), tmp_path / "older")
    if has_changes:
        kept.insert(THREE)
    kept.insert(THREE, table="shop.u").run()
    assert kept.rows("shop.u") == [ONE, TWO, THREE]
    [(name, reason)] = reasons(kept).items()
    assert name == "shop.t"
    assert "an older copy than" in reason
    assert "resync --target" in reason


@pytest.mark.parametrize("take_back", [restored, copied, deleted])
def test_without_parking_it_is_an_error(
    kept: Kept, tmp_path: Path, take_back: Callable[[Path, Path], None]
) -> None:
    kept.target = replace(kept.target, parks=False)
    take_back(path_of(kept), tmp_path / "older")
    with pytest.raises(CheckpointError, match=r"shop\.t: .* an older copy than"):
        kept.insert(THREE).run()


def test_what_others_commit_is_no_loss(kept: Kept, tmp_path: Path) -> None:
    """Nor is a RESTORE that was undone."""
    table = DeltaTable(path_of(kept))
    version = table.version()
    table.optimize.compact()
    table.restore(version - 1)
    table.restore(version)
    table.optimize.compact()
    kept.insert(THREE).run()
    assert not reasons(kept)
    assert kept.rows() == [ONE, TWO, THREE]


def test_a_table_that_was_dropped_and_made_anew_has_versions_of_its_own(kept: Kept) -> None:
    kept.say("DROP TABLE t", CREATE, "RENAME TABLE u TO v").insert(THREE).run()
    kept.say("RENAME TABLE t TO u, v TO t").run()
    kept.insert(THREE).run()
    assert not reasons(kept)
    assert kept.rows() == [ONE, TWO, THREE]
    assert kept.rows("shop.u") == [THREE]


def test_a_history_too(tmp_path: Path) -> None:
    kept = Kept(tmp_path, kind=PastTable)
    kept.target = replace(kept.target, parks=True, is_live=True)
    kept.say(CREATE).insert(ONE).run()
    kept.insert(TWO).run()
    table = DeltaTable(path_of(kept))
    table.restore(table.version() - 1)
    kept.insert(THREE).run()
    assert list(reasons(kept)) == ["shop.t"]


def commits(path: Path) -> list[Path]:
    return sorted((path / "_delta_log").glob("*.json"))


def emptied(kept: Kept, number: int) -> None:
    """As a power failure leaves the file of a commit."""
    os.truncate(commits(path_of(kept))[number], 0)


@pytest.mark.parametrize("number", [-1, -2])
@pytest.mark.parametrize("has_changes", [True, False])
def test_a_commit_is_an_empty_file(kept: Kept, number: int, has_changes: bool) -> None:
    """Delta passes over it, and the table went on without its rows."""
    kept.insert(THREE).run()
    emptied(kept, number)
    if has_changes:
        kept.insert(FOUR).run()
    kept.insert(THREE, table="shop.u").run()
    kept.run()
    assert kept.rows("shop.u") == [ONE, TWO, THREE]
    [(name, reason)] = reasons(kept).items()
    assert name == "shop.t"
    assert "has lost the rows of version" in reason
    assert "resync --target" in reason


@pytest.mark.parametrize("number", [-1, -2])
@pytest.mark.parametrize("is_merged", [True, False])
def test_rows_of_an_empty_commit_that_come_again(
    kept: Kept, tmp_path: Path, number: int, is_merged: bool
) -> None:
    """The job was killed before it saved its state: the table has all rows, and no later start says otherwise."""
    state = kept.path / job_state.FOLDER
    shutil.copytree(state, tmp_path / "state")
    known = len(commits(path_of(kept)))
    kept.layout = (*kept.layout, ("b", pa.int32()))
    new = THREE | {"b": 1}
    again = kept.say("ALTER TABLE t ADD COLUMN b INT").insert(new).run()
    assert len(commits(path_of(kept))) == known + 2
    emptied(kept, number)
    if number == -2:
        # Without the file behind it: the order of files on a disk is not that of their commits.
        commits(path_of(kept))[-1].unlink()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "state", state)
    kept.number -= 1
    kept.run(again)
    for number in range(2 * is_merged):
        kept.insert({"id": 5 + number, "k": "", "a": 5, "b": 5}).run()
    kept.run()
    assert not reasons(kept)
    expected = [row | {"b": None} for row in (ONE, TWO)] + [new]
    assert kept.rows()[:3] == expected
    assert len(kept.rows()) == 3 + 2 * is_merged


def test_a_state_that_was_restored(kept: Kept) -> None:
    """It keeps the number of the last micro-batch, but says what was known earlier."""
    table = DeltaTable(f"{kept.path}/{job_state.FOLDER}")
    table.restore(table.version() - 1)
    with pytest.raises(CheckpointError, match="restored"):
        kept.insert(THREE).run()


def test_the_search_for_an_empty_commit_looks_behind_the_last_checkpoint_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each merge makes it, and a log may have 30 days of commits."""
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(300):
        (log / f"{version:020}.json").touch()
    for version, text in ((99, "x"), (199, "x"), (299, "")):
        (log / f"{version:020}.checkpoint.parquet").write_text(text)
    for version in range(200, 300):
        (log / f"{version:020}.json").write_text("{}")
    looked: list[str] = []
    size = os.path.getsize

    def look(path: str) -> int:
        looked.append(path)
        return size(path)

    monkeypatch.setattr(os.path, "getsize", look)
    assert empty_commit(str(tmp_path)) is None
    assert len(looked) == 102
    for version in (250, 240):
        (log / f"{version:020}.json").write_text("")
    assert empty_commit(str(tmp_path)) == 240
