"""A target and a checkpoint that do not belong to each other, as after one was restored: an error, and no loss."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import CheckpointError, ReplicaError
from replica.demo import DemoSource
from replica.spark.jobs import changelog, history, mirror, typed_changelog
from replica.spark.jobs.checkpoints import check_place, note_append
from replica.spark.jobs.file_sink import check_file_sink
from replica.spark.jobs.pipeline import SCHEMA
from replica.spark.jobs.spark_session import Pace, await_queries, state_of
from tests.spark.support.demo_connection import connection_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("files", "offsets", "commits", "is_right"),
    [
        ([], [], [], True),
        (["0"], ["0"], [], True),
        (["0", ".0.crc"], ["0"], ["0"], True),
        (["9.compact", "10", "11"], ["11"], ["10", ".10.crc"], True),
        (["9.compact"], [], [], False),
        ([], ["0"], ["0"], False),
        (["3"], ["4"], ["4"], False),
        (["5"], ["3"], ["3"], False),
        # The next micro-batch would be planned anew, and end elsewhere.
        (["4"], ["3"], ["3"], False),
    ],
)
def test_files_and_state_that_are_not_of_each_other(
    tmp_path: Path, files: list[str], offsets: list[str], commits: list[str], is_right: bool
) -> None:
    state = state_of(str(tmp_path / "t"))
    for folder, names in (
        (tmp_path / "t" / "_spark_metadata", files),
        (Path(state.checkpoint) / "offsets", offsets),
        (Path(state.checkpoint) / "commits", commits),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    with contextlib.nullcontext() if is_right else pytest.raises(CheckpointError, match="delete both"):
        check_file_sink(f"file:{tmp_path}/t", state)


def as_delta(*arguments: Any, **options: Any) -> Any:
    return changelog.start(*arguments, format="delta", **options)


@pytest.mark.parametrize("job", [mirror.start, history.start, typed_changelog.start, as_delta])
def test_a_checkpoint_that_is_an_older_copy(
    spark: SparkSession, tmp_path: Path, job: Callable[..., Any]
) -> None:
    target = tmp_path / "t"
    checkpoint = Path(state_of(str(target)).checkpoint)
    with DemoSource() as source:
        options = connection_to(source) | {
            "includeTables": f"{SCHEMA}.*",
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": "20",
        }
        await_queries(job(spark, options, str(target), pace=Pace(once=True)))
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
        assert last > 1
        for log in ("offsets", "commits"):
            (checkpoint / log / str(last)).unlink()
        with pytest.raises(CheckpointError, match=rf"up to {last}, .* up to {last - 1}, .* older copy"):
            job(spark, options, str(target), pace=Pace(once=True))


@pytest.mark.parametrize("job", [mirror.start, changelog.start, as_delta])
def test_a_job_that_was_killed_while_it_wrote_its_first_offsets(
    spark: SparkSession, tmp_path: Path, job: Callable[..., Any]
) -> None:
    """Spark left an unfinished file then, and refused to begin the query again for ever."""
    target = tmp_path / "t"
    offsets = Path(state_of(str(target)).checkpoint) / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.7b1b62ad-5bd5-4e35-bb83-1f2a1ee1b8ad.tmp").write_text("v1\n")
    (offsets / "..0.7b1b62ad-5bd5-4e35-bb83-1f2a1ee1b8ad.tmp.crc").touch()
    with DemoSource() as source:
        options = connection_to(source) | {"includeTables": f"{SCHEMA}.*", "startingOffsets": "earliest"}
        await_queries(job(spark, options, str(target), pace=Pace(once=True)))
    assert (offsets / "0").exists()


@pytest.fixture(name="source")
def demo() -> Iterator[dict[str, str]]:
    """A live source, whose first table alone has changes in the later micro-batches of a query."""
    with DemoSource() as source:
        yield connection_to(source) | {"startingOffsets": "earliest", "maxRowsPerTrigger": "60"}


def run_to_end(spark: SparkSession, source: dict[str, str], target: Path) -> None:
    await_queries(as_delta(spark, source, str(target), pace=Pace(once=True)))


def commits(target: Path) -> list[Path]:
    return sorted((target / "_delta_log").glob("*.json"))


def test_a_delta_table_that_is_an_older_copy(
    spark: SparkSession, tmp_path: Path, source: dict[str, str]
) -> None:
    """Micro-batches without rows leave nothing in the table, so their numbers alone do not show it."""
    target = tmp_path / "t"
    run_to_end(spark, source, target)
    run_to_end(spark, source, target)
    commits(target)[-1].unlink()
    with pytest.raises(CheckpointError, match="older copy"):
        run_to_end(spark, source, target)


def test_a_delta_table_that_was_restored(spark: SparkSession, tmp_path: Path, source: dict[str, str]) -> None:
    """It keeps the numbers of the micro-batches whose rows it has no longer, until that is undone."""
    target = tmp_path / "t"
    run_to_end(spark, source, target)
    table = DeltaTable(target)
    last = table.version()
    assert last > 1
    table.restore(last - 1)
    with pytest.raises(CheckpointError, match=rf"restored .* version {last}"):
        run_to_end(spark, source, target)
    DeltaTable(target).restore(last)
    run_to_end(spark, source, target)


def test_a_delta_changelog_whose_checkpoint_is_lost(
    spark: SparkSession, tmp_path: Path, source: dict[str, str]
) -> None:
    """All its changes would come twice. Another source, with a name of its own, begins."""
    target, first = tmp_path / "t", source | {"sourceName": "a", "maxRowsPerTrigger": "100000"}
    run_to_end(spark, first, target)
    rows = DeltaTable(target).to_pyarrow_table().num_rows
    shutil.rmtree(target / "_state")
    with pytest.raises(CheckpointError, match="another query"):
        run_to_end(spark, first, target)
    # Nor does a query that has begun, and whose first micro-batch runs again.
    checkpoint = Path(state_of(str(target), source=first).checkpoint)
    checkpoint.mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id": "5b0f0b0e-0000-4000-8000-000000000000"}')
    with pytest.raises(ReplicaError, match="another query"):
        run_to_end(spark, first, target)
    run_to_end(spark, first | {"sourceName": "b"}, target)
    found = DeltaTable(target).to_pyarrow_table()["source_name"].to_pylist()
    assert sorted(found) == ["a"] * rows + ["b"] * rows


@pytest.mark.parametrize(
    ("written", "appended", "is_right"),
    [(2, 2, True), (2, None, True), (1, 2, False), (5, 2, True), (6, 5, False)],
)
def test_a_delta_table_lacks_micro_batches_without_rows(
    tmp_path: Path, written: int, appended: int | None, is_right: bool
) -> None:
    for log, count in (("offsets", 6), ("commits", 5)):
        (tmp_path / log).mkdir()
        for number in range(count):
            (tmp_path / log / str(number)).touch()
    if appended is not None:
        note_append(str(tmp_path), appended, {})
    with contextlib.nullcontext() if is_right else pytest.raises(CheckpointError, match="older copy"):
        check_place(str(tmp_path), "t", written, {}, skips_empty=True)
