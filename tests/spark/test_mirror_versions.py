"""Each version of a mirrored table, which a reader may see, is a state that the source had; killed, no Spark."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import DeltaTable

from replica.spark.jobs import leaves
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.kept_table import table_path
from tests.spark.support.kept_log import KEY, RandomLog
from tests.spark.support.kept_runs import keep, target_of
from tests.spark.support.kept_tables import Row, by_key

Rows = dict[tuple[Any, ...], Row]


class RememberingLog(RandomLog):
    """A random log that knows all states which its tables have had between transactions."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.states: dict[str, list[Rows]] = {}

    def remember(self) -> None:
        for name, table in self.tables.items():
            rows = {key: {column: row[column] for column in table.columns} for key, row in table.rows.items()}
            self.states.setdefault(name, [{}]).append(rows)
        for name in self.states.keys() - self.tables.keys():
            # It has another name now.
            self.states[name].append({})

    def transaction(self, size: int, outcome: str = "commit", only: str | None = None) -> None:
        self.remember()
        super().transaction(size, outcome, only)
        self.remember()

    def alter(self) -> None:
        super().alter()
        self.remember()

    def end_prepared(self) -> None:
        super().end_prepared()
        self.remember()


@pytest.mark.parametrize("share", [1, 0.3])
def test_all_versions(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    for name, size in (("MOST_BYTES", 4200), ("LEAF_BYTES", 3600), ("JOINED_BYTES", 3300)):
        monkeypatch.setattr(leaves, name, size)
    rng = random.Random(seed)
    log = RememberingLog(rng)
    for name in ("orders", "lines"):
        log.create(name)
    for _ in range(120):
        kind = rng.random()
        if kind < 0.75:
            log.transaction(rng.randint(1, 8))
        elif kind < 0.8:
            log.transaction(rng.randint(1, 5), rng.choice(["rollback", "prepared"]))
        elif kind < 0.9:
            log.end_prepared()
        else:
            log.alter()
    assert keep(log, target_of(tmp_path, CurrentTable), rng, monkeypatch, 8, share)
    seen = 0
    for name, states in log.states.items():
        path = table_path(str(tmp_path), name)
        if not DeltaTable.is_deltatable(path):
            continue
        # Versions only go forward: each state is that of the one before, or a later one.
        at = 0
        for version in range(DeltaTable(path).version() + 1):
            rows = by_key(DeltaTable(path, version=version).to_pyarrow_table().to_pylist(), *KEY)
            found = [number for number in range(at, len(states)) if states[number] == rows]
            assert found, (name, version)
            at = found[0]
            seen += 1
    assert seen > 20
