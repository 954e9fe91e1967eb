"""Mirrors against a plain model, without Spark: random logs, cut into micro-batches and killed in any commit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from replica.spark.jobs.current_table import CurrentTable
from tests.spark.kept_log import KEY, Modelled
from tests.spark.kept_runs import keep, random_log, target_of
from tests.spark.kept_tables import Row, by_key, rows_of


def expected_now(table: Modelled) -> dict[Any, Row]:
    return {key: {name: row[name] for name in table.columns} for key, row in table.rows.items()}


@pytest.mark.parametrize("attempt", range(3))
def test_random_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = random_log(rng, 120)
    killed = keep(log, target_of(tmp_path, CurrentTable), rng, monkeypatch, kills=12)
    assert killed
    for name, table in log.tables.items():
        assert by_key(rows_of(tmp_path, name), *KEY) == expected_now(table), name
