"""The source of jobs with kept tables: its tasks leave rows in files, and say what they are about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.demo import recorded_log
from replica.spark.jobs import staged_source
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.keeper import stage_here
from replica.spark.jobs.leaf_files import folder
from replica.spark.jobs.staging import FOLDER, Part, Staged, read_part
from replica.spark.jobs.target import Target
from replica.spark.packed_items import PackedItem
from tests.spark.support.kept_runs import target_of
from tests.spark.support.kept_tables import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def staged(spark: SparkSession, path: Path, target: Path, **more: str) -> list[Staged]:
    staged_source.register(spark)
    options = {"path": str(path), "schemaMode": "packed", "maxPartitionBytes": "2000", **more}
    options |= staged_source.staging_options(str(target), is_changelog=False)
    return staged_source.staged_items(spark.read.format(staged_source.NAME).options(**options).load())


def about(one: Staged, target: Target) -> tuple[object, ...]:
    """An item, with the rows of its files in place of their names."""
    system = folder(target.path, {})

    def known(part: Part) -> tuple[Part, list[Row]]:
        return replace(part, path="", offset=0), read_part(system, part).to_pylist()

    if one.rows is None:
        return one.item, None
    facts = replace(one.rows, committed=None, prepared={})
    return one.item, facts, [known(part) for part in one.parts]


def test_tasks_stage_what_they_read(spark: SparkSession, tmp_path: Path) -> None:
    with recorded_log() as path:
        options = {"schemaMode": "packed", "maxPartitionBytes": "2000"}
        rows = spark.read.format("mysql-binlog").options(**options).load(str(path)).collect()
        found = staged(spark, path, tmp_path / "there")
    here, there = (target_of(tmp_path / name, CurrentTable) for name in ("here", "there"))
    expected = stage_here(here, [PackedItem(*row) for row in rows])
    assert {one.item.op for one in found} >= {"rows", "ddl"}
    assert [about(one, there) for one in found] == [about(one, here) for one in expected]
    # A file for each task that had rows, and nothing else.
    files = {part.path for one in found for part in one.parts}
    assert len(files) > 1
    assert {str(file.relative_to(there.path)) for file in Path(there.path, FOLDER).iterdir()} == files


def test_it_shows_no_secret(tmp_path: Path) -> None:
    source = staged_source.StagedSource(
        {
            "path": "/logs",
            "schemaMode": "packed",
            "storageOptions": '{"aws_secret_access_key": "Gwoh7ahc"}',
            **staged_source.staging_options(str(tmp_path), is_changelog=True),
        }
    )
    assert "Gwoh7ahc" not in repr(source.sink())
