"""The plan of a first copy: as JSON, and which leaves a table gets."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa

from protocol.errors import CheckpointError
from replica.snapshot.row_keys import KeyRange
from replica.spark.jobs.copy_plan import CopiedTable, CopyPlan, leaf_ranges
from replica.spark.jobs.copy_tasks import Piece
from replica.spark.jobs.first_copy import grouped
from replica.spark.jobs.leaves import HIGHEST, LOWEST

NUMBER, TEXT = pa.field("id", pa.int64()), pa.field("id", pa.string())


def ranges(*bounds: int) -> list[KeyRange]:
    keys = [(str(bound).encode(),) for bound in bounds]
    return [KeyRange(*pair) for pair in zip([None, *keys], [*keys, (b"1000",)], strict=True)]


@pytest.mark.parametrize(
    ("count", "lows"),
    [(0, []), (1, []), (2, [31]), (3, [21, 41]), (5, [11, 21, 31, 41]), (50, [11, 21, 31, 41])],
)
def test_leaves_lie_between_ranges(count: int, lows: list[int]) -> None:
    found = leaf_ranges(NUMBER, ranges(10, 20, 30, 40), count)
    assert [low for low, _ in found] == [LOWEST, *lows]
    assert [high for _, high in found] == [*(low - 1 for low in lows), HIGHEST]


def test_keys_without_an_order_are_spread_over_all_hashes() -> None:
    found = leaf_ranges(TEXT, ranges(10), 4)
    assert len(found) == 4
    assert (found[0][0], found[-1][1]) == (LOWEST, HIGHEST)
    assert all(before[1] + 1 == after[0] for before, after in itertools.pairwise(found))


def test_a_plan_is_what_it_was() -> None:
    table = CopiedTable(
        pa.schema([NUMBER, ("v", pa.string())]), ("id",), tuple(ranges(10)), ((LOWEST, HIGHEST),), 4096
    )
    plan = CopyPlan('{"file": "b.1"}', "b.1:9", {"": "b.1:9", "s.t": "b.1:7"}, {"s.t": table})
    assert CopyPlan.from_json(plan.to_json()) == plan
    with pytest.raises(CheckpointError, match="another version"):
        CopyPlan.from_json(plan.to_json().replace(b'"version": 4', b'"version": 2'))


def test_small_tables_are_copied_together() -> None:
    """Thousands of them would be a job of Spark each; a cluster has several jobs for each connection all the same."""
    schema, leaves, small, large = pa.schema([NUMBER]), ((LOWEST, HIGHEST),), 1000, 5 << 20
    tables = {
        f"s.t{number:03}": CopiedTable(schema, ("id",), tuple(ranges()), leaves, small)
        for number in range(80)
    }
    tables["s.t003"] = CopiedTable(schema, ("id",), tuple(ranges(10)), leaves, 9 << 20)
    tables |= {
        name: CopiedTable(schema, ("id",), tuple(ranges()), leaves, large) for name in ("s.t020", "s.t021")
    }
    plan = CopyPlan("", "b.1:9", {}, tables)
    pieces = [
        Piece(name, "", table, number, 1)
        for name, table in tables.items()
        for number in range(len(table.ranges))
    ]

    def sizes(parallelism: int) -> list[int]:
        groups = list(grouped(plan, pieces, parallelism))
        assert list(itertools.chain(*groups)) == pieces
        return [len(group) for group in groups]

    assert sizes(1) == [3, 1, 1, 17, 20, 20, 19]
    assert sizes(50) == [1] * 81
