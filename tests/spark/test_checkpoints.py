"""A target and a checkpoint that do not belong to each other, as after one was restored: an error, and no loss."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import CheckpointError
from replica.demo import DemoSource
from replica.demo.source import USER
from replica.spark.jobs import changelog, history, mirror, typed_changelog
from replica.spark.jobs.file_sink import check_file_sink
from replica.spark.jobs.pipeline import SCHEMA
from replica.spark.jobs.spark_session import Pace, await_queries, state_of

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
        host, _, port = source.address.rpartition(":")
        options = {"host": host, "port": port, "user": USER, "password": source.password}
        options |= {"includeTables": f"{SCHEMA}.*", "startingOffsets": "earliest", "maxRowsPerTrigger": "20"}
        await_queries(job(spark, options, str(target), pace=Pace(once=True)))
        last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
        assert last > 1
        for log in ("offsets", "commits"):
            (checkpoint / log / str(last)).unlink()
        with pytest.raises(CheckpointError, match=rf"up to {last}, .* up to {last - 1}, .* older copy"):
            job(spark, options, str(target), pace=Pace(once=True))
