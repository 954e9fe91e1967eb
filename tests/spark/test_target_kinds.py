"""A job in the target of another kind of job: refused at its start, as readers of either would see too much."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import ConfigurationError
from replica.spark.jobs import changelog, history, mirror, typed_changelog
from replica.spark.jobs.target_kind import kinds_of
from tests.support.log_builder import numbered_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How each job loads files, and how it follows a source.
JOBS: dict[str, tuple[Callable[..., object], Callable[..., object]]] = {
    "parquet": (partial(changelog.load, format="parquet"), partial(changelog.start, format="parquet")),
    "delta": (partial(changelog.load, format="delta"), partial(changelog.start, format="delta")),
    "mirror": (mirror.load, mirror.start),
    "history": (history.load, history.start),
    "typed": (typed_changelog.load, typed_changelog.start),
}
# Nothing answers there: what is refused at the start asks no source.
LIVE = {"host": "127.0.0.1", "port": "1", "user": "repl", "password": ""}


@pytest.fixture(scope="module")
def targets(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target of each kind of job, made from files."""
    folder = tmp_path_factory.mktemp("targets")
    (folder / "binlog.000001").write_bytes(numbered_log().data)
    for job, (load, _) in JOBS.items():
        load(spark, {"path": str(folder / "binlog.000001")}, str(folder / job))
    return {job: folder / job for job in JOBS}


@pytest.mark.parametrize(
    ("found", "job"), [pair for pair in product(JOBS, JOBS) if pair[0] != pair[1] or pair[0] == "parquet"]
)
def test_a_target_of_another_kind(
    spark: SparkSession, tmp_path: Path, targets: dict[str, Path], found: str, job: str
) -> None:
    """Nor does a stream write beside files in Parquet that were loaded: Spark would not read them any more."""
    (tmp_path / "binlog.000001").write_bytes(numbered_log().data)
    load, start = JOBS[job]
    before = sorted(targets[found].rglob("*"))
    with pytest.raises(ConfigurationError, match=f"^target: {targets[found]} has .* -- give "):
        start(spark, LIVE, str(targets[found]))
    if found != job:
        with pytest.raises(ConfigurationError, match=f"^target: {targets[found]} has .* -- give "):
            load(spark, {"path": str(tmp_path / "binlog.000001")}, str(targets[found]))
    assert sorted(targets[found].rglob("*")) == before


@pytest.mark.parametrize(
    ("folders", "kinds"),
    [
        (["day=2026-11-26"], ["parquet"]),
        (["schema=shop/table=orders/day=2026-11-26"], ["parquet"]),
        (["_spark_metadata"], ["parquet"]),
        (["day=2026-11-26", "_delta_log"], ["delta"]),
        (["day=241/orders/_delta_log", "schema=24prod/t/_delta_log"], []),
        (["schema=24prod/t/_delta_log", "_state/tables/_delta_log"], ["tables"]),
        (["_state/checkpoint"], []),
    ],
)
def test_what_lies_in_a_folder(tmp_path: Path, folders: list[str], kinds: list[str]) -> None:
    """A mirror has folders for the schemas day$1 and schema$prod, which look like partitions."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    assert kinds_of(str(tmp_path), {}) == kinds
