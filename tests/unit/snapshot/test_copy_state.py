"""The text that a checkpoint carries of a copy: it gives the same state again, and stays small."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest

from protocol.errors import CheckpointError
from protocol.position import Checkpoint
from protocol.records import replace
from replica.config.table_filter import table_filter
from replica.snapshot.copied_selection import selection_text
from replica.snapshot.copy_outline import name_digest
from replica.snapshot.copy_state import MOST_KEYS, MOST_TEXT, CopyState
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.touches import Key
from replica.sql.xa import Xid

KEYS = (
    (1, "a"),
    (Decimal("1.50"), "\udcff"),
    (date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6)),
    (b"\x00\xff", timedelta(days=-1, seconds=3, microseconds=7)),
)


def test_a_state_survives_a_checkpoint() -> None:
    state = CopyState(
        {
            ("shop", "waits"): TableProgress(),
            ("shop", "begun"): TableProgress((b"\xff",), (b"9",), KEYS, 12, True),
            ("shop", "void"): TableProgress(rows=2, is_void=True),
            ("shop", "whole"): TableProgress(rows=3, is_read=True, is_whole=True),
        },
        {Xid(1, b"g", b"b"): {("shop", "begun"): KEYS}},
    )
    checkpoint = Checkpoint("binlog.000001", 4, snapshot=state.to_text())
    read = Checkpoint.from_dict(checkpoint.to_dict())
    assert read == checkpoint
    assert read.snapshot is not None
    assert CopyState.from_text(read.snapshot) == state
    assert not state.is_whole


def test_a_state_with_many_keys_to_read_again_is_small() -> None:
    keys = tuple((f"K{number:019d}",) for number in range(MOST_KEYS))
    state = CopyState({("shop", f"t{n}"): TableProgress((b"5",), (b"9",), keys, 12) for n in range(3)})
    text = state.to_text()
    assert len(text) < 2000
    assert CopyState.from_text(text) == state


@pytest.mark.parametrize("width", [8, 40, 700])
def test_a_state_that_would_be_long_has_the_tables_with_most_keys_begin_anew(width: int) -> None:
    """A checkpoint is written for each transaction: it stays below 4 KB however many keys are to be read again."""
    chance = random.Random(width)

    def keys(count: int) -> tuple[Key, ...]:
        letters = "abcdefghijklmnopqrstuvwxyz0123456789"
        return tuple(("".join(chance.choices(letters, k=width)),) for _ in range(count))

    few = TableProgress((b"5",), (b"9",), keys(2), 12)
    many = {("shop", f"t{n}"): replace(few, again=keys(40 * n)) for n in range(1, 7)}
    xid, prepared = Xid(1, b"g", b""), keys(1)
    xids = {xid: {("shop", "few"): prepared, ("shop", "t1"): keys(5_000)}}
    state = CopyState({("shop", "few"): few, **many}, xids)
    text = state.to_text()
    assert len(text) <= MOST_TEXT + 500
    read = CopyState.from_text(text)
    assert read.tables["shop", "few"] == few
    anew = [table for table, progress in read.tables.items() if progress.is_void]
    assert all(read.tables[table] == state.tables[table].anew() for table in anew)
    assert {**state.tables, **{table: read.tables[table] for table in anew}} == read.tables
    # Of the prepared transaction the table is known, and no row: its end begins the copy of the table anew.
    assert read.prepared[xid] == {("shop", "few"): prepared, ("shop", "t1"): ((),)}
    assert ("shop", "t6") in anew


@pytest.mark.parametrize("whole", [0, 1, 300, 599, 600])
def test_a_state_of_many_tables_is_small(whole: int) -> None:
    """Of the tables behind those that are whole, one has begun and one is whole, too."""
    tables = {("shop", f"a_table_with_a_long_name_{number:04d}"): TableProgress() for number in range(600)}
    names = list(tables)
    for name in names[:whole]:
        tables[name] = TableProgress(rows=2, is_read=True, is_whole=True)
    if whole < 590:
        tables[names[whole + 2]] = TableProgress((b"1",), (b"9",), rows=3)
        tables[names[whole + 4]] = TableProgress(rows=5, is_read=True, is_whole=True)
    state = CopyState(tables, has_all=True)
    text = state.to_text()
    assert len(text) < 1000
    read = CopyState.from_text(text, [*names, ("shop", "b")])
    assert sum(progress.rows for progress in read.tables.values()) == sum(one.rows for one in tables.values())
    read.tables.pop(("shop", "b"), None)
    assert {name: one.is_whole for name, one in read.tables.items()} == {
        name: one.is_whole for name, one in tables.items()
    }
    assert {name for name, one in read.tables.items() if one == TableProgress()} == {
        name for name, one in tables.items() if one == TableProgress()
    }
    assert read.has_all


@pytest.mark.parametrize("tables", [600, 6_000])
def test_a_state_of_many_tables_behind_a_large_one_is_small(tables: int) -> None:
    """The large table has not come to its end, the others have: each was named, and 10,000 took 34 KB."""
    names = [("shop", f"a_table_with_a_long_name_{number:04d}") for number in range(tables)]
    state = CopyState(
        {name: TableProgress(rows=2, is_read=True, is_whole=True) for name in names[: tables // 2]},
        has_all=True,
    )
    for name in names[tables // 2 :]:
        state.tables[name] = TableProgress()
    begun = {names[number]: TableProgress((b"1",), (b"9",), rows=3) for number in (0, 7, 10, 300)}
    state.tables |= begun
    text = state.to_text()
    assert len(text) < 1000
    dropped, made = names[3], ("shop", "a_table_with_a_long_name_0020a")
    read = CopyState.from_text(text, [*(set(names) - {dropped}), made])
    assert {name: one for name, one in read.tables.items() if one.upto} == begun
    assert read.tables.pop(made).is_whole
    kinds = {
        name: (one.is_whole, one == TableProgress()) for name, one in state.tables.items() if name != dropped
    }
    assert kinds == {name: (one.is_whole, one == TableProgress()) for name, one in read.tables.items()}
    assert sum(one.rows for one in read.tables.values()) == sum(one.rows for one in state.tables.values())


@pytest.mark.parametrize("tables", [600, 6_000])
def test_a_state_is_small_when_tables_were_made_meanwhile(tables: int) -> None:
    """The last one does not wait, so each that waits was named: 28 KB for 10,000 of them, with each transaction."""
    names = [("shop", f"a_table_with_a_long_name_{number:04d}") for number in range(tables)]
    whole = TableProgress(rows=2, is_read=True, is_whole=True)
    state = CopyState(dict.fromkeys(names, TableProgress()), has_all=True, stated=frozenset())
    state.tables |= dict.fromkeys(names[:7], whole)
    made = [("shop", "z_new"), *(("shop", f"a_table_with_a_long_name_0500_{number}") for number in range(9))]
    state.tables |= dict.fromkeys(made, whole)
    void = names[550]
    state.tables[void] = TableProgress(is_void=True)
    text = state.to_text()
    assert len(text) < 1000
    read = CopyState.from_text(text, [*names, *made])
    assert {name for name, one in read.tables.items() if one.is_whole} == {*names[:7], *made}
    assert {name for name, one in read.tables.items() if one.is_void} == {void}
    assert sum(one.rows for one in read.tables.values()) == sum(one.rows for one in state.tables.values())
    # The digest is of those that wait.
    assert read.unnamed is not None
    digest = 0
    for name in read.waiting:
        digest ^= name_digest(name)
    assert (read.unnamed.first, read.unnamed.digest) == (names[7], digest)


def test_a_table_that_was_made_and_is_not_in_the_copy_begins_anew() -> None:
    """CREATE TABLE IF NOT EXISTS: the consumer has its rows from the log. Without a key it had them twice."""
    names = [("shop", f"t{number:04d}") for number in range(100)]
    made = ("shop", "z_new")
    state = CopyState(dict.fromkeys(names, TableProgress()), has_all=True, stated=frozenset([made]))
    read = CopyState.from_text(state.to_text(), [*names, made])
    assert read.tables == {**state.tables, made: TableProgress(is_void=True)}
    assert CopyState.from_text(state.to_text(), names).tables == state.tables


def test_tables_that_were_ordered_one_by_one_are_all_named() -> None:
    tables = {("shop", f"t{number:04d}"): TableProgress() for number in range(100)}
    assert CopyState.from_text(CopyState(tables).to_text(), [("shop", "t0000x")]).tables == tables


def test_another_selection() -> None:
    """New tables begin anew, unless the checkpoint cannot tell which are new; others leave, with their XA."""
    a, b, c = (("shop", name) for name in "abc")
    whole, xid = TableProgress(rows=2, is_read=True, is_whole=True), Xid(1, b"x", b"")
    state = CopyState({a: whole, b: whole}, {xid: {b: ((1,),)}}, has_all=True)
    state.selection = selection_text(["shop.a", "shop.b"], [])
    read = CopyState.from_text(state.to_text())
    assert read == state
    assert read.select(selection_text(["shop.b", "shop.a"], ()), None, [a, b], copies_new=True) == []
    wants = table_filter(["shop.a", "shop.c"])
    assert read.select(selection_text(["shop.a", "shop.c"], []), wants, [a, c], copies_new=True) == [c]
    assert read.tables == {a: whole, c: TableProgress(is_void=True)}
    assert not read.prepared
    assert CopyState.from_text(read.to_text()) == read

    long = selection_text([f"shop.{number}" for number in range(100)], [])
    assert len(long) < 100
    for unknown in ("", long):
        state = CopyState({a: whole}, has_all=True, selection=unknown)
        assert CopyState.from_text(state.to_text()) == state
        assert state.select(selection_text(["shop.*"], []), None, [a, b], copies_new=True) == []
        assert state.selection == selection_text(["shop.*"], [])


def test_a_stream_that_was_not_told_to_copy() -> None:
    """It copies no new table, and a later one that is told to copies it, also one that left in between."""
    a, b, c = (("shop", name) for name in "abc")
    whole = TableProgress(rows=2, is_read=True, is_whole=True)
    state = CopyState({a: whole, b: whole}, has_all=True, selection=selection_text(["shop.a", "shop.b"], []))
    wants = table_filter(["shop.a", "shop.c"])
    assert state.select(selection_text(["shop.a", "shop.c"], []), wants, [a, c], copies_new=False) == []
    assert state.tables == {a: whole}
    for _ in range(20):
        state = CopyState.from_text(state.to_text())
        assert state.select(selection_text(["shop.a", "shop.c"], []), wants, [a, c], copies_new=False) == []
    assert state.select(selection_text(["shop.*"], []), None, [a, b, c], copies_new=True) == [b, c]


def test_a_table_between_others_that_was_not_selected() -> None:
    names = [("shop", f"t{number:02d}") for number in range(40)]
    whole = TableProgress(rows=1, is_read=True, is_whole=True)
    state = CopyState(dict.fromkeys(names, whole), has_all=True, selection=selection_text(["shop.t??"], []))
    listed = [*names, ("shop", "t05_new")]
    assert set(CopyState.from_text(state.to_text(), listed).tables) == set(names)


def test_a_checkpoint_without_a_copy_is_what_it_was() -> None:
    assert "snapshot" not in Checkpoint("binlog.000001", 4).to_dict()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "zlib:",
        "zlib:AAAA",
        "zlib:%",
        '{"version":2}',
        '{"version":1,"waiting":[1]}',
        '{"version":1,"selected":"[","waiting":[],"begun":[],"whole":[],"prepared":[]}',
        '{"version":1,"selected":"[1]","waiting":[],"begun":[],"whole":[],"prepared":[]}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CheckpointError, match="copy"):
        CopyState.from_text(text)
