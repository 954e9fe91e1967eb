"""Mirrors whose rows have the number and the time of their last change, and stay when they are deleted. No Spark."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa
from deltalake import DeltaTable

from protocol.errors import SchemaMismatchError
from replica.spark.jobs import leaves
from replica.spark.jobs.current_table import CurrentTable, SoftTable, StampedTable
from replica.spark.jobs.kept_table import Step, table_path
from tests.spark.support.kept_log import KEY, Modelled, RandomLog, State
from tests.spark.support.kept_runs import keep, random_log, target_of
from tests.spark.support.kept_shop import CREATE, LAYOUT, ONE, TWO, Kept
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
    table.take_over(copied.target.table("shop.t"), Step("copy", 0, 1), (5, 7), ("id", "k"))
    own = {"_seq": None, "_ts": None} | ({"_deleted": False} if kind is SoftTable else {})
    gone = [TWO | {"_seq": 7, "_ts": moment(5), "_deleted": True}] if kind is SoftTable else []
    assert kept.rows() == [ONE | own, *gone]
    kept.update(ONE, ONE | {"a": 3}).run()
    row, *others = kept.rows()
    assert others == gone
    assert (plain(row), int(row["_seq"])) == (ONE | {"a": 3}, 3)
    assert (
        DeltaTable(table_path(str(kept.path), "shop.t"))
        .metadata()
        .configuration["delta.dataSkippingStatsColumns"]
        == "`id`,`a`,`_ts`"
    )


LAYOUTS: dict[str, tuple[tuple[str, pa.DataType], ...]] = {
    "number": (("id", pa.int32()), ("k", pa.string()), ("a", pa.int64()), ("gone", pa.int32())),
    "text": (("k", pa.string()), ("id", pa.int32()), ("a", pa.int64()), ("gone", pa.int32())),
}


def filled(path: Path, rows: list[Row], layout: str, *, seed: int, wide: bool = False) -> Kept:
    """A table with these rows, in some files; the copy (not ``wide``) has other columns."""
    rng = random.Random(seed)
    kept = Kept(path, kind=SoftTable if wide else CurrentTable)
    columns = LAYOUTS[layout]
    kept.layout = columns if wide else tuple((name.replace("gone", "new"), kind) for name, kind in columns)
    if not wide:
        kept.layout = tuple((name, pa.int32() if name == "a" else kind) for name, kind in kept.layout)
    key = ", ".join(name for name, _ in columns[:2])
    kept.say(f"CREATE TABLE t (id INT, k VARCHAR(9), a INT, PRIMARY KEY ({key}))")
    shuffled = rng.sample(rows, len(rows))
    for start in range(0, len(shuffled), 40):
        kept.insert(*shuffled[start : start + 40]).run()
    return kept


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_rows_that_a_copy_lacks_stay(
    seed: int, tmp_path: Path, layout: str, is_compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In many files; the copy has another type of a column, one that is new, and lacks one."""
    for name in ("JOINED_BYTES", "MOST_BYTES", "LEAF_BYTES"):
        monkeypatch.setattr(leaves, name, {"JOINED_BYTES": 0}.get(name, 3000))
    rng = random.Random(seed)
    keys = [(number, rng.choice("xyz")) for number in rng.sample(range(10_000), 300)]
    before: list[Row] = [
        {"id": one, "k": k, "a": rng.choice([one, 1 << 40]), "gone": 4} for one, k in keys[:200]
    ]
    after = [{"id": one, "k": k, "a": -one, "new": 5} for one, k in keys[100:]]
    kept = filled(tmp_path / "target", before, layout, seed=seed, wide=True)
    copied = filled(tmp_path / "copy", after, layout, seed=seed)
    assert len(kept.target.table("shop.t").files(())) > 1
    if is_compacted:
        kept.target.table("shop.t").open().optimize.compact()
    table, step = kept.target.table("shop.t"), Step("copy", 0, 1)
    table.take_over(copied.target.table("shop.t"), step, (5, 7), [name for name, _ in LAYOUTS[layout][:2]])
    found = by_key(kept.rows(), *KEY)
    live = {"_seq": None, "_ts": None, "_deleted": False}
    deleted = {"_seq": 7, "_ts": moment(5), "_deleted": True, "new": None}
    expected = {(row["id"], row["k"]): row | live for row in after}
    for row in before[:100]:
        fits = row["a"] if row["a"] < 1 << 31 else None
        expected[row["id"], row["k"]] = {"id": row["id"], "k": row["k"], "a": fits} | deleted
    assert found == expected
    version = table.open().version()
    table.take_over(copied.target.table("shop.t"), step, (6, 8), ("id", "k"))
    assert table.open().version() == version


def test_a_copy_with_another_key(tmp_path: Path) -> None:
    """Its rows cannot be told from the deleted ones."""
    copied = Kept(tmp_path / "copy")
    copied.layout = (("other", pa.int32()), *LAYOUT)
    copied.say("CREATE TABLE t (other INT PRIMARY KEY, id INT, k VARCHAR(9), a INT)")
    copied.insert(ONE | {"other": 1}).run()
    kept = Kept(tmp_path / "target", kind=SoftTable)
    kept.say(CREATE).insert(TWO).run()
    table = kept.target.table("shop.t")
    with pytest.raises(SchemaMismatchError, match=r"another key now \(other\)"):
        table.take_over(copied.target.table("shop.t"), Step("copy", 0, 1), (5, 7), ("other",))
    assert [plain(row) for row in kept.rows()] == [TWO]
