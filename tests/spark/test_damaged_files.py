"""Files of a target that are damaged, missing or not allowed: an error that names the place and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from protocol.errors import CheckpointError
from replica.spark.jobs import job_state, mirror
from replica.spark.jobs.checkpoints import check_query
from replica.spark.jobs.copy_requests import Requests
from replica.spark.jobs.first_copy import read_plan
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, MergePolicy, stage_here
from replica.spark.jobs.settled_copy import ExactBeginning
from replica.spark.jobs.spark_session import State
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept

Damage = Callable[[Path], None]
LATER = MergePolicy(1e9)
THREE, FOUR = ({"id": number, "k": "", "a": number} for number in (3, 4))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Two tables, one of them with a change that waits."""
    found = Kept(tmp_path / "target")
    found.target = replace(found.target, parks=True, is_live=True)
    found.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE).insert(ONE, table="shop.u").run()
    found.insert(TWO)
    one_more(found, Keeper(found.target, JobState(), LATER))
    return found


def one_more(kept: Kept, keeper: Keeper) -> None:
    items = kept.packed()
    keeper.run("query", kept.number, lambda: stage_here(kept.target, items))
    kept.number += 1


def goes_on(kept: Kept) -> None:
    """The job is started again, and merges all tables."""
    keeper = Keeper(kept.target, JobState(), LATER)
    kept.insert(THREE).insert(THREE, table="shop.u")
    one_more(kept, keeper)
    keeper.merge_waiting(is_end=True)


def cut_files(folder: Path) -> None:
    for file in folder.glob("*.*"):
        os.truncate(file, file.stat().st_size // 2)


def missing_files(folder: Path) -> None:
    for file in folder.glob("*.parquet"):
        file.unlink()


def cut_log(folder: Path) -> None:
    last = max((folder / "_delta_log").glob("*.json"))
    os.truncate(last, last.stat().st_size // 2)


def log_of_others(folder: Path) -> None:
    max((folder / "_delta_log").glob("*.json")).write_text("no JSON\n")


def no_beginning(folder: Path) -> None:
    min((folder / "_delta_log").glob("*.json")).unlink()


def no_log(folder: Path) -> None:
    shutil.rmtree(folder / "_delta_log")


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


@pytest.mark.parametrize(
    "damage", [cut_files, missing_files, cut_log, log_of_others, no_beginning, no_log, a_file]
)
def test_a_state_that_cannot_be_read(damage: Damage, kept: Kept) -> None:
    damage(kept.path / job_state.FOLDER)
    for act in (lambda: mirror.progress(str(kept.path)), lambda: goes_on(kept)):
        with pytest.raises(
            CheckpointError, match=r"_state/tables: .* -- let this user read and write the folder"
        ):
            act()


def test_a_state_in_a_folder_that_cannot_be_looked_into(kept: Kept) -> None:
    """It was a target without a job, where the state of the query was to be deleted; so it is without permission."""
    (kept.path / "_state").rename(kept.path / "moved")
    (kept.path / "_state").symlink_to(kept.path / "_state")
    with pytest.raises(CheckpointError, match=r"_state/tables: .* [Ss]ymbolic links"):
        goes_on(kept)


@pytest.mark.parametrize("damage", [cut_log, log_of_others, no_beginning])
def test_a_table_that_cannot_be_opened(damage: Damage, kept: Kept) -> None:
    damage(kept.path / "shop" / "t")
    with pytest.raises(CheckpointError, match=r"shop/t: .* delete the folder, and the job says how"):
        goes_on(kept)
    shutil.rmtree(kept.path / "shop" / "t")
    kept.number -= 1
    kept.insert(FOUR, table="shop.u")
    goes_on(kept)
    assert "resync --target" in reason(kept)
    assert kept.rows("shop.u")


@pytest.mark.parametrize("where", ["shop/t", "_state/changes"])
def test_rows_that_cannot_be_read_park_their_table(where: str, kept: Kept) -> None:
    cut_files(kept.path / where)
    goes_on(kept)
    assert "is damaged: " in reason(kept)
    assert kept.rows("shop.u") == [ONE, THREE]


@pytest.mark.parametrize("damage", [cut_log, log_of_others, no_beginning, a_file])
def test_progress_is_for_people(damage: Damage, kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    """A job ended, and could not be started again."""
    damage(kept.path / job_state.PROGRESS)
    goes_on(kept)
    assert kept.rows() == [ONE, TWO, THREE]
    assert "_state/progress: " in caplog.text


QUERY = '{"id": "query"}'
OFFSETS = 'v1\n{}\n{"version": 1}'


@pytest.mark.parametrize(
    ("metadata", "offsets", "said"),
    [
        (QUERY[:9], OFFSETS, "checkpoint/metadata: "),
        ("", OFFSETS, "checkpoint/metadata: "),
        ("{}", OFFSETS, "checkpoint/metadata: "),
        (QUERY, OFFSETS[:12], "checkpoint/offsets/1: "),
        (QUERY, OFFSETS, "checkpoint/offsets/1: "),
        (QUERY, "", "checkpoint/offsets/1: "),
    ],
)
def test_a_checkpoint_of_spark_that_cannot_be_read(
    metadata: str, offsets: str, said: str, tmp_path: Path
) -> None:
    """Spark's error named neither the file nor what to do."""
    checkpoint = tmp_path / "checkpoint"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
        (checkpoint / name / "1").write_text(offsets)
    (checkpoint / "metadata").write_text(metadata)
    with pytest.raises(CheckpointError, match=f"{said}.* -- the file is damaged: restore"):
        check_query(str(checkpoint), "t", {"query": 1}.get, {})


def test_a_request_that_cannot_be_read(kept: Kept) -> None:
    requests = kept.path / "_state" / "requests"
    requests.mkdir()
    (requests / "shop.t.json").touch()
    with pytest.raises(CheckpointError, match=r"requests/shop\.t\.json: .* delete the file, and ask"):
        Requests(str(kept.path), {}).open()


@pytest.mark.parametrize("text", ["", '{"version', "null", "[]"])
def test_a_file_of_a_first_copy_that_cannot_be_read(text: str, kept: Kept) -> None:
    """It was a JSONDecodeError, as of a defect."""
    state = State(str(kept.path / "_state" / "checkpoint"))
    beginning = ExactBeginning(None, None, {}, kept.target, state)  # type: ignore[arg-type]
    for name, read in (("copy", lambda: read_plan(kept.target)), ("begin", beginning.run)):
        (kept.path / "_state" / f"{name}.json").write_text(text)
        says = rf"_state/{name}\.json: .* -- the file is damaged .*: delete {kept.path}, and the tables are copied"
        with pytest.raises(CheckpointError, match=says):
            read()


def reason(kept: Kept) -> str:
    [found] = [row["reason"] for row in mirror.progress(str(kept.path)).to_pylist() if row["reason"]]
    return str(found)
