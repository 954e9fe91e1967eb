"""The history job against a plain model of slowly changing dimensions: random logs, random kills, no Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from replica.spark.jobs.past_table import PastTable
from replica.spark.jobs.states import OWN_FIELDS
from tests.spark.support.kept_runs import keep, random_log, target_of
from tests.spark.support.kept_tables import rows_of

OWN = {field.name for field in OWN_FIELDS}


def micros(moment: datetime | None) -> int | None:
    return (
        None if moment is None else (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    )


@pytest.mark.parametrize(("attempt", "share"), [(0, 1), (1, 0.3), (2, 0.3), (3, 0)])
def test_random_histories(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: int, share: float
) -> None:
    rng = random.Random(seed)
    log = random_log(rng, 120)
    killed = keep(log, target_of(tmp_path, PastTable), rng, monkeypatch, 12, share)
    assert killed
    for name, table in log.tables.items():
        found = sorted(rows_of(tmp_path, name), key=lambda row: row["_seq"])
        expected = sorted(table.past, key=lambda state: state.seq)
        assert [micros(row["valid_from"]) for row in found] == [state.begin for state in expected]
        assert [micros(row["valid_to"]) for row in found] == [state.end for state in expected]
        assert [row["is_current"] for row in found] == [state.end is None for state in expected]
        for row, state in zip(found, expected, strict=True):
            values = {column: value for column, value in row.items() if column not in OWN}
            assert {column: state.values.get(column) for column in values} == values
