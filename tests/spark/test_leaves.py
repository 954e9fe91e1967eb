"""Leaves of kept tables: places of keys, groups of files, and merges of many small leaves. No Spark."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import DeltaTable

from replica.spark.jobs import leaves
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.kept_table import KeptTable, Step, table_path
from replica.spark.jobs.leaf_merge import KeyIndex
from replica.spark.jobs.leaves import HIGHEST, LOWEST, PAST, ROWS, Group, LeafFile
from replica.spark.jobs.past_table import PastTable
from tests.spark.support.kept_log import KEY
from tests.spark.support.kept_runs import keep, random_log, target_of
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept
from tests.spark.support.kept_tables import by_key, rows_of

# Keys in their order.
ORDERED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integers": (pa.int64(), [LOWEST, -5, 0, 7, HIGHEST]),
    "unsigned": (pa.decimal128(20, 0), [Decimal(0), Decimal(2**53 + 1), Decimal(2**64 - 1)]),
    "decimals": (
        pa.decimal128(12, 2),
        [Decimal("-3.50"), Decimal("-3.49"), Decimal("0.01"), Decimal("7.99")],
    ),
    "wide decimals": (pa.decimal128(38, 10), [Decimal(-(10**25)), Decimal("0.5"), Decimal(10**25)]),
    "dates": (pa.date32(), [date(1000, 1, 1), date(1970, 1, 1), date(2026, 1, 1)]),
    "times": (
        pa.timestamp("us", "UTC"),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(2038, 1, 1, tzinfo=UTC)],
    ),
}


@pytest.mark.parametrize("name", ORDERED)
def test_places_are_in_the_order_of_keys(name: str) -> None:
    kind, values = ORDERED[name]
    found = leaves.places(pa.table({"id": pa.array(values, kind)}))
    assert found.dtype == np.int64
    assert sorted(found.tolist()) == found.tolist()
    assert len(set(found.tolist())) > 1


def test_places_of_other_keys_are_spread() -> None:
    rng = random.Random(0)
    texts = [f"user-{rng.random()}" for _ in range(4000)]
    keys = pa.table({"k": texts, "b": [text.encode() for text in texts], "n": list(range(4000))})
    found = leaves.places(keys)
    counts, _ = np.histogram(found.astype(float), bins=4, range=(float(LOWEST), float(HIGHEST)))
    assert counts.min() > 800
    assert leaves.places(keys).tolist() == found.tolist()
    zero = [leaves.places(pa.table({"f": [value]})).tolist() for value in (0.0, -0.0)]
    assert zero[0] == zero[1]


def test_names_of_files_say_their_places() -> None:
    field = pa.field("id", pa.int64())
    said = leaves.tag([field])
    name = leaves.file_name(ROWS, said, (-7, 12))
    assert leaves.leaf_file(name, 1, 2, said) == LeafFile(name, 1, 2, -7, 12)
    # The names of other keys mean nothing.
    for other in (leaves.tag([pa.field("id", pa.string())]), leaves.tag([pa.field("other", pa.int64())])):
        assert leaves.leaf_file(name, 1, 2, other) == LeafFile(name, 1, 2, LOWEST, HIGHEST)
    assert leaves.leaf_file("a.parquet", 1, 2, said, (3, 4)) == LeafFile("a.parquet", 1, 2, 3, 4, (3, 4))
    assert leaves.is_past(leaves.file_name(PAST, said, (0, 0)))
    assert not leaves.is_past(name)


def file(low: int, high: int, size: int = leaves.JOINED_BYTES) -> LeafFile:
    return LeafFile(f"{low}", size, 10, low, high)


def test_files_that_overlap_are_one_group() -> None:
    found = leaves.groups([file(50, 60), file(0, 10), file(10, 20), file(30, 40)])
    assert [[one.path for one in group.files] for group in found] == [["0", "10"], ["30"], ["50"]]
    assert [group.ranges for group in found] == [((LOWEST, 29),), ((30, 49),), ((50, HIGHEST),)]
    assert leaves.owners(found, np.array([-1, 29, 30, 45, 50, 99])).tolist() == [0, 0, 1, 1, 2, 2]
    # Small neighbours, too.
    small = [file(number, number, leaves.JOINED_BYTES // 2) for number in range(4)]
    assert [len(group.files) for group in leaves.groups(small)] == [2, 2]
    assert leaves.groups([]) == [Group(((LOWEST, HIGHEST),), ())]


def test_groups_between_which_rows_move() -> None:
    found = leaves.groups([file(low, low) for low in (0, 10, 20, 30)])
    assert leaves.united(found, []) == found
    both = leaves.united(found, [(25, 3)])
    assert [group.ranges for group in both] == [
        ((LOWEST, 9), (20, 29)),
        ((10, 19),),
        ((30, HIGHEST),),
    ]
    assert leaves.owners(both, np.array([5, 15, 25, 35])).tolist() == [0, 1, 0, 2]
    assert len(leaves.united(found, None)) == 1


def test_groups_that_are_too_large_for_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "SHARE_BYTES", 100)
    small, large = (
        Group(((LOWEST, 99),), (LeafFile("a", 90, 9, LOWEST, 99, (0, 99)),)),
        Group(((100, HIGHEST),), ()),
    )
    assert leaves.shares([small, large], [(10, 50, 120)]) == [small, large]
    found = leaves.shares([small, large], [(390, 100, 420)])
    assert found[0] == small
    assert [share.ranges for share in found[1:]] == [((100, 219),), ((220, 319),), ((320, HIGHEST),)]
    assert all(share.is_share for share in found[1:])
    [one, other] = leaves.shares([small], [(150, 0, 99)])
    assert (one.ranges[0][1] + 1, other.ranges[0][1]) == (other.ranges[0][0], 99)
    # Both read the file, and it counts once.
    assert [file.path for share in (one, other) for file in share.files] == ["a", "a"]
    assert one.size + other.size == 90


def test_large_groups_are_cut_between_keys() -> None:
    group = Group(((LOWEST, 9), (20, 29)), ())
    assert leaves.cut(group, np.zeros(0, np.int64), leaves.MOST_BYTES) == [(LOWEST, 9), (20, 29)]
    sample = np.array([1, 2, 3, 4, 5, 6, 21, 22])
    found = leaves.cut(group, sample, 4 * leaves.LEAF_BYTES)
    assert found == [(LOWEST, 2), (3, 4), (5, 9), (20, 20), (21, 29)]
    # One key that all rows have cannot be cut.
    assert leaves.cut(Group(((LOWEST, HIGHEST),), ()), np.full(9, 7), 9 * leaves.LEAF_BYTES) == [
        (LOWEST, 6),
        (7, HIGHEST),
    ]


def test_groups_are_cut_where_changes_begin_and_end() -> None:
    group = Group(((LOWEST, HIGHEST),), (file(0, 999),))
    sample, size = np.arange(1000), leaves.UNCHANGED_BYTES * 4
    for span, expected in (
        ((900, 2000), [900]),
        ((-5, 99), [100]),
        ((300, 399), [300, 400]),
        # Less than a quarter is beyond the changes.
        ((249, 751), []),
        ((-5, 2000), []),
    ):
        assert leaves.edges(sample, size, span) == expected
    assert leaves.edges(sample, leaves.JOINED_BYTES, (900, 2000)) == []
    assert leaves.cut(group, sample, size, [300, 400]) == [(LOWEST, 299), (300, 399), (400, HIGHEST)]
    # Parts that are still too large are cut by their rows.
    found = leaves.cut(group, sample, 4 * leaves.LEAF_BYTES, [900])
    assert found == [(LOWEST, 224), (225, 449), (450, 674), (675, 899), (900, HIGHEST)]


@pytest.mark.parametrize(
    ("span", "expected"),
    [((900, 999), True), ((0, 800), False), ((2000, 3000), True), ((LOWEST, HIGHEST), False)],
)
def test_changes_of_a_part_of_a_group(span: leaves.Range, expected: bool) -> None:
    whole = (LOWEST, HIGHEST)
    assert leaves.is_part(Group((whole,), (file(0, 999),)), span) == expected
    assert not leaves.is_part(Group((whole,), ()), span)
    # Rows move between these ranges.
    assert not leaves.is_part(Group(((0, 10), (20, 999)), (file(0, 999),)), span)


def test_rows_are_found_by_keys_of_several_columns() -> None:
    keys = pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"], "c": pa.array([b"", b"\0", None], pa.binary())})
    rows = pa.table(
        {"c": pa.array([b"\0", b"", b"", b"\0"], pa.binary()), "a": [1, 1, 2, 1], "b": ["y", "x", "x", "x"]}
    )
    assert KeyIndex(keys.select(["a", "b"])).find(rows).tolist() == [1, 0, 2, 0]
    assert KeyIndex(keys.slice(0, 2)).find(rows).tolist() == [1, 0, -1, -1]
    assert KeyIndex(keys.slice(0, 0)).find(rows).tolist() == [-1] * 4


@pytest.mark.parametrize(("share", "shared_bytes"), [(1, 1 << 30), (0.3, 1 << 30), (0.3, 2000)])
@pytest.mark.parametrize("kind", [CurrentTable, PastTable])
def test_random_logs_in_many_leaves(
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[KeptTable],
    share: float,
    shared_bytes: int,
) -> None:
    monkeypatch.setattr(leaves, "MOST_BYTES", 4200)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 3600)
    monkeypatch.setattr(leaves, "JOINED_BYTES", 3300)
    monkeypatch.setattr(leaves, "UNCHANGED_BYTES", 500)
    monkeypatch.setattr(leaves, "SHARE_BYTES", shared_bytes)
    rng = random.Random(seed)
    log = random_log(rng, 120)
    keep(log, target_of(tmp_path, kind), rng, monkeypatch, 8, share)
    for name, table in log.tables.items():
        rows = rows_of(tmp_path, name)
        if kind is CurrentTable:
            expected = {
                key: {column: row[column] for column in table.columns} for key, row in table.rows.items()
            }
            assert by_key(rows, *KEY) == expected, name
        else:
            assert sorted(row["_seq"] for row in rows) == sorted(state.seq for state in table.past), name
            present = by_key([row for row in rows if row["is_current"]], *KEY)
            assert present.keys() == table.rows.keys(), name


def paths(kept: Kept) -> set[str]:
    table = DeltaTable(table_path(str(kept.path), "shop.t"))
    return set(pa.table(table.get_add_actions())["path"].to_pylist())


def test_only_leaves_with_changes_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_BYTES", "LEAF_BYTES", "JOINED_BYTES"):
        monkeypatch.setattr(leaves, name, 1500)
    kept = Kept(tmp_path)
    rows = [{"id": number, "k": "x", "a": number} for number in range(2000)]
    kept.say(CREATE).insert(*rows).run()
    kept.update(rows[0], {**rows[0], "a": -1}).run()
    before = paths(kept)
    assert len(before) > 3
    kept.update(rows[1999], {**rows[1999], "a": -2}).insert({"id": 5000, "k": "", "a": 0}).run()
    assert len(before - paths(kept)) == 1
    found = {row["id"]: row["a"] for row in kept.rows()}
    assert found == {number: number for number in range(2000)} | {0: -1, 1999: -2, 5000: 0}


def test_what_changes_do_not_reach_becomes_a_leaf_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows, and changes of the newest ones, leave the old ones where they are."""
    monkeypatch.setattr(leaves, "JOINED_BYTES", 1500)
    monkeypatch.setattr(leaves, "UNCHANGED_BYTES", 1000)
    kept = Kept(tmp_path)
    rows = [{"id": number, "k": "x", "a": number} for number in range(2000)]
    kept.say(CREATE).insert(*rows).run()
    [whole] = paths(kept)
    kept.update(rows[1990], {**rows[1990], "a": -1}).run()
    first = paths(kept)
    assert (len(first), whole in first) == (2, False)
    kept.update(rows[1995], {**rows[1995], "a": -2}).insert({"id": 5000, "k": "", "a": 0}).run()
    second = paths(kept)
    assert (len(second), len(first & second)) == (2, 1)
    found = {row["id"]: row["a"] for row in kept.rows()}
    assert found == {number: number for number in range(2000)} | {1990: -1, 1995: -2, 5000: 0}


@pytest.mark.parametrize("kind", [CurrentTable, PastTable])
def test_a_file_that_several_tasks_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[KeptTable]
) -> None:
    kept = Kept(tmp_path, kind=kind)
    rows = [{"id": number, "k": "x", "a": number} for number in range(2000)]
    kept.say(CREATE).insert(*rows).run()
    assert len(paths(kept)) == 1
    monkeypatch.setattr(leaves, "SHARE_BYTES", 2500)
    monkeypatch.setattr(leaves, "JOINED_BYTES", 0)
    for row in (rows[0], rows[1999]):
        kept.update(row, {**row, "a": -1})
    kept.run()
    assert len([path for path in paths(kept) if path.startswith("rows-")]) > 2
    found = {row["id"]: row["a"] for row in kept.rows() if row.get("is_current", True)}
    assert found == {number: number for number in range(2000)} | {0: -1, 1999: -1}
    assert len(kept.rows()) == (2000 if kind is CurrentTable else 2002)


def test_a_commit_beside_an_optimize_is_planned_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path)
    kept.say(CREATE).insert(ONE).run()
    path = table_path(str(tmp_path), "shop.t")
    replace_files = KeptTable.replace_files
    optimized: list[Any] = []

    def beside_an_optimize(table: KeptTable, *arguments: Any) -> bool:
        if len(optimized) < 2:
            user = DeltaTable(path)
            # A file more, so that there is something to compact.
            user.alter.add_constraint({f"c{len(optimized)}": "id > 0"})
            user.update(updates={"a": "a"})
            optimized.append(user.optimize.compact())
        return replace_files(table, *arguments)

    monkeypatch.setattr(KeptTable, "replace_files", beside_an_optimize)
    kept.update(ONE, {**ONE, "a": 5}).insert(TWO).run()
    assert len(optimized) == 2
    assert kept.rows() == [{**ONE, "a": 5}, TWO]
    assert all(path.startswith("rows-") for path in paths(kept))
    # The files of refused commits are gone.
    files = {path.name for path in Path(path).glob("rows-*")}
    table = DeltaTable(path)
    assert files - paths(kept) <= set(table.vacuum(0, enforce_retention_duration=False))


def test_a_refused_commit_that_another_process_has_made(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.say(CREATE).insert(ONE).run()
    [one, other] = (kept.target.table("shop.t") for _ in range(2))
    step = Step("query", 1, 2)
    nothing = [table.planned(("id", "k"), {}, ()) for table in (one, other)]
    assert [merge.table.key for merge in nothing] == [("id", "k")] * 2
    from replica.spark.jobs.merges import Merged

    assert one.replace_files(Merged([], []), step)
    assert other.replace_files(Merged([], []), step)
    assert other.is_taken(step)
    assert DeltaTable(table_path(str(tmp_path), "shop.t")).version() == one.open().version()
