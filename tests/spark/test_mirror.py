"""The mirror job against a plain model: random logs in random micro-batches, killed at any commit, no Spark."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import write_deltalake

from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.kept_table import Step
from tests.spark.support.kept_log import KEY, Modelled
from tests.spark.support.kept_runs import keep, random_log, target_of
from tests.spark.support.kept_tables import Row, by_key, rows_of


def expected_now(table: Modelled) -> dict[Any, Row]:
    return {key: {name: row[name] for name in table.columns} for key, row in table.rows.items()}


@pytest.mark.parametrize(("attempt", "share"), [(0, 1), (1, 0.3), (2, 0.3), (3, 0)])
def test_random_logs(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int, share: float
) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 120)
    killed = keep(log, target_of(tmp_path, CurrentTable), rng, monkeypatch, 12, share)
    assert killed
    for name, table in log.tables.items():
        assert by_key(rows_of(tmp_path, name), *KEY) == expected_now(table), name


def test_keys_of_more_digits_than_a_double_are_found(tmp_path: Path) -> None:
    """By a range of doubles in Delta's log, a MERGE would skip the row's file and add the row once more."""
    keys = [Decimal(2**64 - 1), Decimal(2**63 + 1), Decimal(2**53 + 1)]
    rows = pa.table({"id": pa.array(keys, pa.decimal128(20, 0)), "v": [1, 2, 3]})
    path = str(tmp_path / "t")
    table = CurrentTable("shop.t", path)
    table.conform(rows, {}, Step("query", 0, 1))
    for number in range(rows.num_rows):
        write_deltalake(path, rows.slice(number, 1), mode="append")
    kept = table.open()
    kept.update_incremental()
    for number in range(rows.num_rows):
        done = (
            kept.merge(
                rows.slice(number, 1),
                "target.id = source.id",
                source_alias="source",
                target_alias="target",
                streamed_exec=False,
            )
            .when_matched_update({"v": "source.v + 10"})
            .execute()
        )
        assert done["num_target_rows_updated"] == 1
    assert sorted(row["v"] for row in kept.to_pyarrow_table().to_pylist()) == [11, 12, 13]
