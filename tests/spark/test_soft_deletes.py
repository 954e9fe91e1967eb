"""Mirrors whose rows have the number and the time of their last change, and stay when they are deleted. No Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import DeltaTable

from replica.spark.jobs import leaves
from replica.spark.jobs.current_table import CurrentTable, SoftTable, StampedTable
from replica.spark.jobs.kept_table import Step, table_path
from tests.spark.support.kept_log import KEY, Modelled, RandomLog, State
from tests.spark.support.kept_runs import keep, random_log, target_of
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept
from tests.spark.support.kept_tables import Row, by_key, rows_of

STAMPS = ("_seq", "_ts", "_deleted")


def plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in STAMPS}


def moment(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def last_states(table: Modelled) -> dict[tuple[Any, ...], State]:
    """The last state that each key has had."""
    return {tuple(state.values[name] for name in KEY): state for state in table.past}


@pytest.mark.parametrize("kind", [StampedTable, SoftTable])
@pytest.mark.parametrize("is_minimal", [True, None])
def test_random_logs(
    seed: int,
    tmp_path: Path,
    kind: type[CurrentTable],
    is_minimal: bool | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaves, "JOINED_BYTES", 0)
    rng = random.Random(seed)
    log = RandomLog(rng, minimal=is_minimal)
    for name in ("orders", "Other table"):
        log.create(name)
    for _ in range(40):
        choice = rng.random()
        if choice < 0.75:
            log.transaction(rng.randint(1, 8))
        elif choice < 0.85:
            log.transaction(rng.randint(1, 5), rng.choice(["rollback", "prepared"]))
        elif choice < 0.95:
            log.end_prepared()
        else:
            while log._prepared:
                log.end_prepared()
            log.statement("TRUNCATE TABLE orders")
            log.tables["shop.orders"].clear(log._ts)
    keep(log, target_of(tmp_path, kind), rng, monkeypatch, kills=3, share=rng.choice([0.2, 1]))
    for name, table in log.tables.items():
        found, states = by_key(rows_of(tmp_path, name), *KEY), last_states(table)
        expected = states if kind is SoftTable else {key: states[key] for key in table.rows}
        assert {key: plain(row) for key, row in found.items()} == {
            key: state.values for key, state in expected.items()
        }
        for key, row in found.items():
            is_deleted = key not in table.rows
            assert row.get("_deleted", False) == is_deleted
            assert row["_ts"] == moment(states[key].end if is_deleted else states[key].begin)  # type: ignore[arg-type]
            assert row["_seq"] > states[key].seq if is_deleted else row["_seq"] == states[key].seq


@pytest.mark.parametrize("kind", [StampedTable, SoftTable])
def test_random_statements(
    seed: int, tmp_path: Path, kind: type[CurrentTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and tables come, go, and get other names."""
    rng = random.Random(seed)
    log = random_log(rng, 60)
    keep(log, target_of(tmp_path, kind), rng, monkeypatch, kills=3)
    for name, table in log.tables.items():
        rows = [plain(row) for row in rows_of(tmp_path, name) if not row.get("_deleted")]
        assert by_key(rows, *KEY) == table.rows


def test_a_table_that_is_dropped_and_made_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path, kind=SoftTable)
    kept.say(CREATE).insert(ONE, TWO).say("DROP TABLE t").run()
    assert [(plain(row), row["_deleted"]) for row in kept.rows()] == [(ONE, True), (TWO, True)]
    assert {int(row["_seq"]) for row in kept.rows()} == {4}
    kept.say(CREATE).insert(TWO).run()
    assert [(plain(row), row["_deleted"]) for row in kept.rows()] == [(TWO, False)]


@pytest.mark.parametrize("kind", [StampedTable, SoftTable])
def test_a_copy_gets_the_columns(tmp_path: Path, kind: type[CurrentTable]) -> None:
    """Rows of the first copy, or of a table that is copied anew, have had no change in the log."""
    copied = Kept(tmp_path / "copy")
    copied.say(CREATE).insert(ONE).run()
    kept = Kept(tmp_path / "target", kind=kind)
    kept.say(CREATE).insert(TWO).run()
    table = kept.target.table("shop.t")
    table.take_over(copied.target.table("shop.t"), Step("copy", 0, 1), (5, 7))
    own = {"_seq": None, "_ts": None} | ({"_deleted": False} if kind is SoftTable else {})
    assert kept.rows() == [ONE | own]
    kept.update(ONE, ONE | {"a": 3}).run()
    [row] = kept.rows()
    assert (plain(row), int(row["_seq"])) == (ONE | {"a": 3}, 3)
    assert (
        DeltaTable(table_path(str(kept.path), "shop.t"))
        .metadata()
        .configuration["delta.dataSkippingStatsColumns"]
        == "`id`,`a`,`_ts`"
    )
