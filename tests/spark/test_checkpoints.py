"""A target and a checkpoint that do not belong to each other, as after one was restored: an error, and no loss."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from protocol.errors import CheckpointError, ReplicaError
from replica.demo import DemoSource
from replica.spark.jobs import changelog, checkpoints, history, mirror, typed_changelog
from replica.spark.jobs.changelog_layout import PARTITIONS, note_layout, partitions_of
from replica.spark.jobs.checkpoints import check_place, note_append
from replica.spark.jobs.delta_append import AppendToDelta
from replica.spark.jobs.file_sink import check_file_sink
from replica.spark.jobs.pipeline import SCHEMA
from replica.spark.jobs.spark_session import Pace, await_queries, state_of
from replica.spool.offsets import Offset
from tests.spark.support.demo_connection import connection_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = Offset("b.000001", 4, None, None, None)
OFFSETS = f"v1\n{{}}\n{json.dumps(PLACE.to_dict())}"
COMMIT = "v1\n{}"


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
    for folder, names, text in (
        (tmp_path / "t" / "_spark_metadata", files, "v1"),
        (Path(state.checkpoint) / "offsets", offsets, OFFSETS),
        (Path(state.checkpoint) / "commits", commits, COMMIT),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(text)
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


def delete(file: Path) -> None:
    file.unlink()
    (file.parent / f".{file.name}.crc").unlink()


def test_a_damaged_file_is_deleted_as_the_error_says(
    spark: SparkSession, tmp_path: Path, source: dict[str, str]
) -> None:
    target = tmp_path / "t"
    run_to_end(spark, source, target)
    rows = DeltaTable(target).to_pyarrow_table()["seq"].to_pylist()
    last = max((Path(state_of(str(target)).checkpoint) / "commits").glob("[0-9]*"), key=number_of)
    os.truncate(last, 0)
    with pytest.raises(CheckpointError, match=rf"delete the file, and \.{last.name}\.crc beside it"):
        run_to_end(spark, source, target)
    delete(last)
    run_to_end(spark, source, target)
    assert DeltaTable(target).to_pyarrow_table()["seq"].to_pylist() == rows
    assert len(rows) == len(set(rows)) > 0


def number_of(file: Path) -> int:
    return int(file.stem)


@pytest.mark.parametrize(
    ("lists", "empty", "begun", "done", "deleted"),
    [
        (["9.compact", "10", "11"], "11", 11, 10, ["_spark_metadata/11"]),
        (["9.compact", "10", "11"], "11", 11, 11, ["commits/11", "_spark_metadata/11"]),
        (["9.compact", "10"], "10", 11, 10, ["offsets/11", "commits/10", "_spark_metadata/10"]),
        (["8", "9.compact"], "9.compact", 9, 8, ["_spark_metadata/9.compact"]),
        (["9.compact", "10"], "10", 10, 10, ["commits/10", "_spark_metadata/10"]),
        (
            ["9.compact", "10", "11"],
            "10",
            11,
            10,
            ["offsets/11", "commits/10", "_spark_metadata/10", "_spark_metadata/11"],
        ),
        (["8", "9.compact"], "8", 9, 9, None),
        (["0"], "0", 0, -1, ["_spark_metadata/0"]),
    ],
)
def test_an_empty_list_of_the_sink(
    tmp_path: Path, lists: list[str], empty: str, begun: int, done: int, deleted: list[str] | None
) -> None:
    state = state_of(str(tmp_path / "t"))
    for folder, names, text in (
        (tmp_path / "t" / "_spark_metadata", lists, "v1"),
        (Path(state.checkpoint) / "offsets", range(begun + 1), OFFSETS),
        (Path(state.checkpoint) / "commits", range(done + 1), COMMIT),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / str(name)).write_text(text)
    os.truncate(tmp_path / "t" / "_spark_metadata" / empty, 0)
    if deleted is None:
        check_file_sink(str(tmp_path / "t"), state)
        return
    said = ", ".join(rf"\S*/{name}" for name in deleted)
    with pytest.raises(CheckpointError, match=f"/{empty}: the file is empty .* -- delete {said}, each with"):
        check_file_sink(str(tmp_path / "t"), state)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("empty", [["_spark_metadata"], ["offsets", "commits", "_spark_metadata"]])
def test_micro_batches_of_empty_files_are_run_again(
    spark: SparkSession, tmp_path: Path, source: dict[str, str], empty: list[str], is_done: bool
) -> None:
    """As a power failure leaves them. The sink passed over a micro-batch that was not done, and rows were lost."""
    target = tmp_path / "t"
    checkpoint = Path(state_of(str(target)).checkpoint)

    def run() -> list[int]:
        await_queries(changelog.start(spark, source, str(target), pace=Pace(once=True)))
        return sorted(row.seq for row in spark.read.parquet(str(target)).collect())

    rows = run()
    if not is_done:
        delete(max((checkpoint / "commits").glob("[0-9]*"), key=number_of))
    for folder in (checkpoint / "offsets", checkpoint / "commits", target / "_spark_metadata"):
        if folder.name in empty:
            for file in sorted(folder.glob("[0-9]*"), key=number_of)[-2:]:
                os.truncate(file, 0)
    found: list[int] = []
    while not found:
        try:
            found = run()
        except CheckpointError as error:
            for name in re.findall(r"(?:-- delete|,) (/\S*)(?=,)", str(error)):
                delete(Path(name))
    assert found == rows
    assert len(rows) == len(set(rows)) > 0


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


@pytest.mark.parametrize(
    ("number", "written", "begun", "done", "appended", "said"),
    [
        # The file is that of the last micro-batch, which had not ended, and is run again.
        (-1, 2, 3, 2, 2, None),
        (-1, 2, 3, 2, 1, None),
        # Micro-batches without rows have come between.
        (-1, 2, 5, 4, 2, None),
        # That of a commit of others.
        (-1, 2, 2, 2, 2, None),
        (-1, 2, 3, 3, 3, "older copy"),
        (-1, 2, 3, 3, 2, "has lost the rows of version 3, as the file"),
        (-2, 3, 3, 3, 3, "has lost the rows of version 2, as the file"),
        (-2, 3, 4, 3, 3, "has lost the rows of version 2, as the file"),
    ],
)
def test_an_empty_commit_of_a_delta_table(
    tmp_path: Path, number: int, written: int, begun: int, done: int, appended: int, said: str | None
) -> None:
    """As a power failure leaves it: Delta passes over it, and the rows were lost."""
    target, checkpoint = tmp_path / "t", tmp_path / "c"
    for row in range(4):
        done_ = Transaction("q", row) if row <= written else Transaction("others", 1)
        properties = CommitProperties(app_transactions=[done_])
        write_deltalake(target, pa.table({"a": [row]}), mode="append", commit_properties=properties)
    for log, last, text in (("offsets", begun, OFFSETS), ("commits", done, COMMIT)):
        (checkpoint / log).mkdir(parents=True)
        (checkpoint / log / str(last)).write_text(text)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    note_append(str(checkpoint), appended, {})
    os.truncate(commits(target)[number], 0)
    check = AppendToDelta(str(target), (), str(checkpoint), {}).check
    if said is not None:
        with pytest.raises(CheckpointError, match=said):
            check()
        return
    check()
    # The rows that come again: the empty file behind them says nothing any more.
    write_deltalake(target, pa.table({"a": [4]}), mode="append")
    check()


@pytest.mark.parametrize(
    ("name", "written", "done", "remedy"),
    [
        ("commits/2", 2, 2, r"delete \S*/offsets/3, \S*/commits/2, \S*/_spark_metadata/2, each"),
        (
            "offsets/3",
            2,
            2,
            r"delete \S*/offsets/3, each with its .crc file beside it: the micro-batches from 3 on",
        ),
        ("offsets/3", 3, 2, r"delete \S*/offsets/3, \S*/_spark_metadata/3, each"),
        ("offsets/3", 3, 3, r"delete \S*/offsets/3, \S*/commits/3, \S*/_spark_metadata/3, each"),
        (
            "offsets/2",
            2,
            2,
            r"delete \S*/offsets/2, \S*/offsets/3, \S*/commits/2, \S*/_spark_metadata/2, each",
        ),
        ("metadata", 2, 2, "restore the checkpoint and the target"),
        ("offsets/1", 2, 2, None),
        ("commits/1", 2, 2, None),
    ],
)
@pytest.mark.parametrize("is_cut", [True, False])
def test_a_damaged_checkpoint_of_a_changelog_in_parquet(
    tmp_path: Path, name: str, written: int, done: int, remedy: str | None, is_cut: bool
) -> None:
    """Spark's error had no remedy, and named no file that is cut."""
    state = state_of(str(tmp_path / "t"))
    for folder, last, text in (
        (tmp_path / "t" / "_spark_metadata", written, "v1"),
        (Path(state.checkpoint) / "offsets", 3, OFFSETS),
        (Path(state.checkpoint) / "commits", done, COMMIT),
    ):
        folder.mkdir(parents=True)
        for number in range(last + 1):
            (folder / str(number)).write_text(text)
    (Path(state.checkpoint) / "metadata").write_text('{"id": "query"}')
    damaged = Path(state.checkpoint) / name
    os.truncate(damaged, damaged.stat().st_size // 2 * is_cut)
    says = (
        contextlib.nullcontext()
        if remedy is None
        else pytest.raises(CheckpointError, match=f"{name}: .*{remedy}")
    )
    with says:
        check_file_sink(str(tmp_path / "t"), state)


def test_the_first_offsets_are_not_planned_anew(tmp_path: Path) -> None:
    """They say where the log is read from."""
    state = state_of(str(tmp_path / "t"))
    Path(state.checkpoint, "offsets").mkdir(parents=True)
    Path(state.checkpoint, "offsets", "0").touch()
    with pytest.raises(CheckpointError, match=r"offsets/0: .* restore the checkpoint and the target"):
        check_file_sink(str(tmp_path / "t"), state)


def test_an_object_store_has_no_checksums_of_hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error named files that are not there."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "2").touch()
    monkeypatch.setattr(checkpoints, "local_path", lambda path: None)
    with pytest.raises(CheckpointError, match=r"commits/2: .* -- delete the file: its micro-batch"):
        checkpoints.check_logs(str(tmp_path), {})


@pytest.mark.parametrize("text", ["", '{"part', "{}", "null", "[]", '{"partitions": null}'])
def test_a_note_of_the_layout_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    note_layout(str(tmp_path), PARTITIONS["tables"], {})
    (tmp_path / "_state" / "layout.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"/_state/layout.json: .* -- the file is damaged: delete it"):
        partitions_of(str(tmp_path), "parquet", None, {})


def test_a_checkpoint_without_its_delta_table_is_left_to_the_append(tmp_path: Path) -> None:
    """It refuses a table that has nothing of the query."""
    (tmp_path / "metadata").write_text('{"id": "q"}')
    AppendToDelta(str(tmp_path / "t"), (), str(tmp_path), {}).check()


def test_a_note_of_the_last_append_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "appended").touch()
    with pytest.raises(CheckpointError, match=r"/appended: .* -- the file is damaged: restore"):
        check_place(str(tmp_path), "t", 1, {}, skips_empty=True)
