"""Parquet files with commits of this project, as they are written to an object store; here the store is a disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql.datasource import WriterCommitMessage

from protocol.errors import CheckpointError, ConfigurationError
from replica.spark.jobs import parquet_append
from replica.spark.jobs.parquet_append import ParquetWriter, append, committed_files, create

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Values that are no names of folders.
TABLES = ["shop.orders", "a/b", "x=y%2F", "größe", ""]


def numbered(spark: SparkSession, first: int, count: int) -> DataFrame:
    rows = [(number, TABLES[number % len(TABLES)], 2.5) for number in range(first, first + count)]
    # Statistics of files need the column.
    return spark.createDataFrame(rows, "n long, table string, v double").selectExpr(
        "*", "timestamp_seconds(n) AS ts"
    )


def numbers(files: list[str]) -> list[int]:
    found = ds.dataset([name.removeprefix("file://") for name in files], format="parquet").to_table(["n"])
    return sorted(found["n"].to_pylist())


def test_spark_reads_it_as_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """Over several commits that name all files so far; a micro-batch that comes again is written once."""
    target = (tmp_path / "t").as_uri()
    for batch in range(23):
        count = 0 if batch == 5 else 10
        append(numbered(spark, 10 * batch, count), target, ["table"], {}, batch)
        if batch % 7 == 0:
            append(numbered(spark, 10 * batch, count), target, ["table"], {}, batch)
    expected = [number for number in range(230) if not 50 <= number < 60]
    assert numbers(committed_files(target)) == expected
    found = spark.read.parquet(target).orderBy("n").collect()
    assert [row.n for row in found] == expected
    # Hive has one name for an empty text and NULL.
    assert [row.table for row in found] == [TABLES[number % len(TABLES)] or None for number in expected]


def test_files_that_no_commit_names_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    """A driver was killed before its commit, and its commit comes late."""
    target = (tmp_path / "t").as_uri()
    rows = numbered(spark, 0, 10)

    def written() -> tuple[ParquetWriter, list[WriterCommitMessage | None]]:
        writer = ParquetWriter(target, ("table",), 0)
        batch = pa.Table.from_pylist([row.asDict() for row in rows.collect()]).combine_chunks()
        return writer, [writer.write(iter(batch.to_batches()))]

    (first, early), (second, late) = written(), written()
    assert committed_files(target) == []
    second.commit(late)
    files = committed_files(target)
    first.commit(early)
    assert committed_files(target) == files
    assert numbers(files) == list(range(10))
    # What came late has left nothing.
    assert len(list((tmp_path / "t").rglob("*.parquet"))) == len(files)


def test_commits_are_deleted_that_later_ones_repeat(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tenth one names all files so far: after 10,000 micro-batches of one file they had 1.2 GB."""
    target, log = (tmp_path / "t").as_uri(), tmp_path / "t" / "_spark_metadata"

    def commit(batch: int) -> None:
        writer = ParquetWriter(target, ("day",), batch)
        rows = pa.RecordBatch.from_pydict({"n": pa.array([batch], pa.int64()), "day": ["a"]})
        writer.commit([writer.write(iter([rows]))])

    for batch in range(35):
        commit(batch)
    assert len(list(log.iterdir())) == 35, "somebody may read them"
    monkeypatch.setattr(parquet_append, "_READER_SECONDS", 0)
    for batch in (*range(35, 70), 3):
        commit(batch)
    assert {int(path.name.removesuffix(".compact")) for path in log.iterdir()} == set(range(59, 70))
    assert numbers(committed_files(target)) == list(range(70))
    assert sorted(row.n for row in spark.read.parquet(target).collect()) == list(range(70))


def test_what_is_not_begun_anew(spark: SparkSession, tmp_path: Path) -> None:
    target = (tmp_path / "t").as_uri()
    create(numbered(spark, 0, 10), target, ["table"])
    with pytest.raises(ConfigurationError, match="has rows already"):
        create(numbered(spark, 0, 10), target, ["table"])
    (tmp_path / "t" / "_spark_metadata" / "0").write_text("v2\n")
    with pytest.raises(CheckpointError, match="no list of files"):
        committed_files(target)
