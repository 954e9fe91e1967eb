"""Rows that compress well cross Spark in slices of a bounded size, in their order: its JVM must hold each of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from replica.spark.jobs import merge_tasks, merges
from replica.spark.jobs.leaf_merge import LeafTable
from replica.spark.jobs.leaves import HIGHEST, LOWEST, Group
from replica.spark.jobs.merges import Merge
from replica.spark.jobs.staging import Part, StagingFile, part_from_json, part_to_json
from tests.spark.support.kept_log import BEGIN, KEY, TYPES, Change, groups

ROWS = 5000
TEXT = "x" * 400


@pytest.fixture
def merge(tmp_path: Path) -> Merge:
    """A merge of parts with 2 MB of rows, which are much smaller in their file."""
    values = {"a": 1, "b": TEXT, "Some name": None, "blob": b""}
    layout = tuple(TYPES.items())
    changes = [
        Change(
            "shop.t",
            layout,
            "insert",
            {"id": number, "k": "k", **values},
            None,
            None,
            None,
            BEGIN,
            number,
            "commit",
            None,
        )
        for number in range(ROWS)
    ]
    file = StagingFile(str(tmp_path), {})
    items = [item for begin in range(0, ROWS, 1000) for item in groups(changes[begin : begin + 1000])]
    parts = tuple(part for item in items for part in file.stage(item).parts)
    file.close()
    table = LeafTable("shop.t", str(tmp_path / "shop/t"), KEY, pa.schema(list(layout)))
    return Merge(table, (Group(((LOWEST, HIGHEST),), ()),), parts)


def test_slices(merge: Merge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "CHUNK_BYTES", 1 << 20)
    monkeypatch.setattr(merge_tasks, "SLICE_BYTES", 1 << 18)
    assert sum(part.length for part in merge.parts) < 1 << 20
    chunks = list(merges.chunks(merge))
    assert len(chunks) > 1
    options = {"target": str(tmp_path), "storage": "{}", "plan": ""}
    (tables, plan), _ = merge_tasks._plan([merge])
    found = []
    for number, share in [share for shares in plan for share in shares]:
        for batch in merge_tasks.PiecesReader(options)._pieces(number, tables[number], share):
            [row] = batch.to_pylist()
            rows = pa.ipc.open_stream(row["rows"]).read_all()
            assert rows.nbytes < 1.5 * (1 << 18)
            found.append((row["place"], row["number"], row["slice"], rows["id"].to_pylist()))
    assert len(found) > 7
    # As Spark sorts them.
    found.sort(key=lambda piece: piece[:3])
    assert [number for *_, numbers in found for number in numbers] == list(range(ROWS))


def test_parts_of_an_older_version(merge: Merge) -> None:
    """The state of a job that was written before parts had a size."""
    part = merge.parts[0]
    *older, size = part_to_json(part)
    assert size > 100 * ROWS / len(merge.parts)
    found = part_from_json(older)
    assert isinstance(found, Part)
    assert found.size == 0


def test_groups_without_changes_have_no_task(merge: Merge) -> None:
    bounds = [(LOWEST, -1), (0, ROWS - 1), (ROWS, 9 * ROWS), (9 * ROWS + 1, HIGHEST)]
    several = replace(merge, groups=tuple(Group((range_,), ()) for range_ in bounds))
    assert several.touched == [1]
    assert merge_tasks._plan([several])[1] == 1
    # Shares of the same files are all written again.
    shares = tuple(replace(group, is_share=True) for group in several.groups)
    assert replace(several, groups=shares).touched == [0, 1, 2, 3]


def test_the_plan_of_a_large_table_has_each_group_once(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merges, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(merge_tasks, "CHUNK_BYTES", 1 << 16)
    lows = [LOWEST, *range(1, 1000)]
    bounds = zip(lows, [*(low - 1 for low in lows[1:]), HIGHEST], strict=True)
    many = replace(merge, groups=tuple(Group((range_,), ()) for range_ in bounds))
    (tables, plan), _ = merge_tasks._plan([many])
    assert len(plan) == len(merge.parts) == 5
    assert len(tables) == 1
    assert len(json.dumps(plan)) < len(json.dumps(tables)) / 10
