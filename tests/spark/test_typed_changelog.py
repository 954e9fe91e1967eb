"""The typed changelog: changes of random logs and DDL, in a Delta table for each source table. Mostly no Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

import pyarrow as pa
from deltalake import DeltaTable

from protocol.errors import ConfigurationError
from replica.spark.jobs import job_state, merge_tasks, mirror, typed_changelog
from replica.spark.jobs.changes_table import ChangesTable, holds
from replica.spark.jobs.copy_requests import Requests
from replica.spark.jobs.current_rows import read_current
from replica.spark.jobs.job_state import JobState
from replica.spark.jobs.keeper import Keeper, stage_here
from replica.spark.jobs.kept_table import table_path
from replica.spark.jobs.resync import resync
from replica.spark.packed import pack
from replica.spark.packed_items import unpack
from tests.spark.support.kept_log import BEGIN, KEY, Change, RandomLog, packed
from tests.spark.support.kept_runs import keep, target_of
from tests.spark.support.kept_shop import ONE, TWO, Kept
from tests.spark.support.kept_tables import Row, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = ("_op", "_seq", "_ts", "_deleted", "_absent")


def applied(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """What a reader makes of changes that it sorts by ``_seq``: the last one of each key, as AUTO CDC does."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (row["_seq"], not row["_deleted"])):
        if row["_op"] == "truncate":
            found.clear()
        key = tuple(row[name] for name in KEY)
        before = found.pop(key, {})
        if not row["_deleted"]:
            absent = {name: before.get(name) for name in row["_absent"] or ()}
            found[key] = {name: value for name, value in row.items() if name not in OWN} | absent
    return found


@pytest.mark.parametrize("is_minimal", [False, True])
def test_random_logs(seed: int, tmp_path: Path, is_minimal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at random: each change is there once, and gives the source's rows."""
    rng = random.Random(seed)
    log = RandomLog(rng, minimal=is_minimal)
    for name in ("orders", "Other table"):
        log.create(name)
    for _ in range(60):
        kind = rng.random()
        if kind < 0.75:
            log.transaction(rng.randint(1, 8))
        elif kind < 0.85:
            log.transaction(rng.randint(1, 5), rng.choice(["rollback", "prepared"]))
        elif kind < 0.95:
            log.end_prepared()
        else:
            log.statement("TRUNCATE TABLE orders")
            log.tables["shop.orders"].clear(log._ts)
    committed = {
        (change.table, change.seq)
        for transaction in log.transactions
        for change in transaction
        if isinstance(change, Change) and change.outcome == "commit"
    }
    keep(log, target_of(tmp_path, ChangesTable), rng, monkeypatch, kills=8, share=rng.choice([0.2, 1]))
    for name, table in log.tables.items():
        rows = rows_of(tmp_path, name)
        changes = [(row["_seq"], row["_deleted"]) for row in rows]
        assert len(set(changes)) == len(changes)
        assert {seq for one, seq in committed if one == name} <= {int(row["_seq"]) for row in rows}
        assert all(row["_deleted"] == (row["_op"] in ("delete", "truncate")) for row in rows)
        if not is_minimal:
            assert applied(rows) == table.rows


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path, kind=ChangesTable)


def changes(kept: Kept, table: str = "shop.t") -> list[tuple[Any, ...]]:
    """The changes without their times."""
    rows = sorted(rows_of(kept.path, table), key=lambda row: (row["_seq"], not row["_deleted"]))
    return [
        (row["_op"], {name: value for name, value in row.items() if name not in OWN}, row["_absent"])
        for row in rows
    ]


def test_a_changelog_begins_anywhere(kept: Kept) -> None:
    """No CREATE TABLE is needed, and a key that moves is deleted where it was."""
    kept.insert(ONE).update(ONE, ONE | {"a": 5}).update(ONE | {"a": 5}, {"id": 1, "k": "y", "a": 6}).run()
    nothing = {"id": 1, "k": "x", "a": None}
    expected = [
        ("insert", ONE, None),
        ("update", ONE | {"a": 5}, None),
        ("delete", nothing, ["a"]),
        ("insert", {"id": 1, "k": "y", "a": 6}, None),
    ]
    assert changes(kept) == expected
    row = rows_of(kept.path, "shop.t")[0]
    assert row["_ts"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=BEGIN)
    table = DeltaTable(table_path(str(kept.path), "shop.t"))
    assert pa.schema(table.schema().to_arrow()).field("_seq").type == pa.decimal128(38, 0)
    # Readers skip files by the times of changes, though ``_seq`` has no range.
    [action] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert action["min._ts"] == action["max._ts"] == row["_ts"]
    assert action.get("min._seq") is None


def test_columns_come_and_go(kept: Kept) -> None:
    kept.insert(ONE).run()
    kept.layout = (("id", pa.int32()), ("k", pa.string()), ("b", pa.string()))
    kept.say("ALTER TABLE t DROP a, ADD b VARCHAR(9)").insert({"id": 2, "k": "x", "b": "new"}).run()
    assert [row for _, row, _ in changes(kept)] == [
        ONE | {"b": None},
        {"id": 2, "k": "x", "a": None, "b": "new"},
    ]
    # A narrower type and another spelling do not change the table; a wider one does; another kind parks it.
    kept.layout = (("id", pa.int64()), ("k", pa.string()), ("B", pa.int32()))
    kept.insert({"id": 1 << 40, "k": "x", "B": 7}).run()
    kept.layout = (("id", pa.int16()), ("k", pa.string()), ("b", pa.decimal128(9, 2)))
    kept.insert({"id": 3, "k": "x", "b": Decimal("1.50")}).run()
    rows = changes(kept)
    assert [(row["id"], row["b"]) for _, row, _ in rows[2:]] == [(1 << 40, "7"), (3, "1.50")]
    kept.layout = (("id", pa.int16()), ("k", pa.string()), ("b", pa.date32()))
    kept.target = kept.target.__class__(str(kept.path), ChangesTable, kept.target.wants, parks=True)
    kept.insert({"id": 4, "k": "x", "b": None}).insert(TWO, table="shop.other").run()
    assert changes(kept) == rows
    found = job_state.peek(str(kept.path), {})
    assert found is not None
    assert list(found[0].parked) == ["shop.t"]
    assert [row for _, row, _ in changes(kept, "shop.other")] == [{"id": 2, "k": "x", "b": None}]


def test_statements(kept: Kept) -> None:
    """TRUNCATE and DROP are changes, also as the first ones; RENAME leaves changes where they are."""
    nothing = {"id": None, "k": None, "a": None}
    kept.say("TRUNCATE t").run()
    kept.insert(ONE).run()
    kept.say("DROP TABLE t").run()
    assert changes(kept) == [("truncate", nothing, None), ("insert", ONE, None), ("truncate", nothing, None)]
    assert sorted(int(row["_seq"]) for row in rows_of(kept.path, "shop.t")) == [1, 2, 3]
    kept.insert(ONE, table="shop.u").say("RENAME TABLE u TO v").insert(TWO, table="shop.v").run()
    assert [row for _, row, _ in changes(kept, "shop.u")] == [ONE]
    assert [row for _, row, _ in changes(kept, "shop.v")] == [TWO]


def test_what_is_a_wider_type() -> None:
    wide = [
        (pa.int64(), pa.int32()),
        (pa.decimal128(20, 0), pa.int64()),
        (pa.decimal128(14, 4), pa.decimal128(12, 2)),
        (pa.float64(), pa.float32()),
        (pa.string(), pa.int8()),
    ]
    for one, other in wide:
        assert holds(one, other)
        assert not holds(other, one)
    assert not holds(pa.decimal128(12, 4), pa.decimal128(12, 2))
    assert not holds(pa.float64(), pa.int64())
    assert not holds(pa.timestamp("us"), pa.date32())


def test_tables_without_a_key(tmp_path: Path) -> None:
    """An update deletes the row as it was before."""
    kept = Kept(tmp_path, kind=ChangesTable)
    items = kept.insert(ONE).update(ONE, TWO).packed()
    for number, item in enumerate(items):
        rows = unpack(item.rows or b"").rows
        items[number] = replace(item, rows=pack(rows, (), has_names=True))
    kept.run(items)
    assert changes(kept) == [("insert", ONE, None), ("delete", ONE, None), ("insert", TWO, None)]


def test_tasks_of_spark(
    seed: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file and a commit for each table that has changes; a target of changes is no target of a mirror."""
    monkeypatch.setattr(merge_tasks, "SMALL_BYTES", 0)
    log = RandomLog(random.Random(seed), minimal=False)
    for number in range(5):
        log.create(f"t{number}")
    for number in [*range(5), 3]:
        log.transaction(5, only=f"shop.t{number}")
    target = target_of(tmp_path, ChangesTable)
    keeper = Keeper(target, JobState())
    for number, share in enumerate((log.transactions[:-1], log.transactions[-1:])):
        items = list(packed(log.rng, share))
        keeper.run("query", number, partial(stage_here, target, items), spark)
    for name, table in log.tables.items():
        found = DeltaTable(table_path(str(tmp_path), name))
        count = 2 if name == "shop.t3" else 1
        assert (len(found.file_uris()), found.version()) == (count, count)
        assert applied(rows_of(tmp_path, name)) == table.rows
    with pytest.raises(ConfigurationError, match="another job"):
        mirror.start(spark, {"host": "127.0.0.1", "port": "1", "user": "u"}, str(tmp_path))
    with pytest.raises(ConfigurationError, match="has changes"):
        read_current(spark, str(tmp_path), "shop.t3")
    found_states = typed_changelog.progress(str(tmp_path))["state"].to_pylist()
    assert found_states == ["kept"] * 5
    with pytest.raises(ConfigurationError, match="typed changelog, and a copy has rows, not changes"):
        resync(str(tmp_path), ["shop.t3"])
    assert not Requests(str(tmp_path), {}).all()


def test_what_helps_a_parked_table(tmp_path: Path) -> None:
    """Not a copy: it has no changes."""
    remedy = replace(target_of(tmp_path, ChangesTable), is_live=True).remedy("shop.t")
    assert "another folder" in remedy
    assert "resync" not in remedy
