"""Tables of a copy that get other rows by a statement: copied anew, unless the consumer has these rows."""

from __future__ import annotations

import pytest

from protocol.binlog.events import Event, XidEvent
from protocol.records import replace
from replica.snapshot.copy_outline import CopyOutline
from replica.snapshot.copy_state import CopyState
from replica.snapshot.marks import Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.statement_effects import Coverage
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.transaction_touches import KeyColumns
from replica.sql.dialect import Dialect
from replica.transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent
from tests.support.grouped_events import AT
from tests.support.scripted_source import query

PLACE, KEY = Place("binlog.000001", 4), KeyColumns(("id",), (0,))
WHOLE = TableProgress(rows=3, is_read=True, is_whole=True)
BEGUN = TableProgress((b"5",), (b"9",), rows=7)
SWAP = "RENAME TABLE shop.t TO shop.old, shop.new TO shop.t"
MADE = "CREATE TABLE shop.new LIKE shop.t"
EXCHANGE = "ALTER TABLE shop.t EXCHANGE PARTITION p1 WITH TABLE shop.new"


def copy_of(*names: str, progress: TableProgress = WHOLE, selected: str = "") -> SnapshotCopy:
    """A copy of tables, which was begun with all of the schema, or those whose names begin so."""
    copy = SnapshotCopy()
    copy.has_all, copy.dialect = True, Dialect(is_mariadb=True)
    copy.coverage = Coverage(lambda schema, name: schema == "shop" and name.startswith(selected))
    for name in names:
        copy.add(("shop", name), KEY, PLACE, progress)
    return copy


def states(copy: CopyState) -> dict[str, str]:
    found = {}
    for (_, name), progress in sorted(copy.tables.items()):
        found[name] = "anew" if progress.is_void else "whole" if progress.is_whole else "begun"
    return found


def behind(copy: SnapshotCopy, *statements: str) -> dict[str, str]:
    """The tables behind statements; a checkpoint that was written before they are done says the same."""
    events: list[Event] = [query(sql) for sql in statements]
    ahead = copy.state(events)
    copy.settle(events)
    state = copy.state()
    assert ahead == state
    assert ahead.outline == state.outline == CopyOutline.of(state.tables)
    return states(state)


@pytest.mark.parametrize(
    ("tables", "statements", "expected"),
    [
        ("t", [SWAP], {"t": "anew", "old": "whole"}),
        ("t", [MADE, SWAP], {"t": "whole", "old": "whole"}),
        ("t", [MADE, SWAP, "DROP TABLE shop.old"], {"t": "whole"}),
        ("t", [MADE.replace("TABLE", "TABLE IF NOT EXISTS"), SWAP], {"t": "anew", "old": "whole"}),
        ("t new", [SWAP], {"t": "whole", "old": "whole"}),
        ("t", ["RENAME TABLE shop.t TO other.t"], {}),
        ("t", ["RENAME TABLE shop.t TO other.t", "RENAME TABLE other.t TO shop.t"], {"t": "anew"}),
        ("t", ["RENAME TABLE shop.t TO shop.x, shop.x TO shop.t"], {"t": "whole"}),
        (
            "t u",
            ["RENAME TABLE shop.t TO shop.x, shop.u TO shop.t, shop.x TO shop.u"],
            {"t": "whole", "u": "whole"},
        ),
        ("t", ["ALTER TABLE other.t ADD c INT, RENAME TO shop.u"], {"t": "whole", "u": "anew"}),
        ("t", ["ALTER TABLE shop.t RENAME shop.u"], {"u": "whole"}),
        ("t new", [EXCHANGE], {"t": "anew", "new": "anew"}),
        ("t", [EXCHANGE], {"t": "anew", "new": "anew"}),
        ("t", ["ALTER TABLE shop.t CONVERT TABLE other.x TO PARTITION p1"], {"t": "anew"}),
        ("t", ["ALTER TABLE shop.t IMPORT TABLESPACE"], {"t": "anew"}),
        ("t", ["DROP DATABASE shop"], {}),
    ],
)
def test_tables_behind_statements(tables: str, statements: list[str], expected: dict[str, str]) -> None:
    assert behind(copy_of(*tables.split()), *statements) == expected


def test_a_table_whose_copy_has_not_ended_is_copied_anew_by_its_new_name() -> None:
    copy = copy_of("t", "new", progress=BEGUN)
    assert behind(copy, SWAP) == {"t": "anew", "new": "anew", "old": "anew"}


def test_names_that_are_not_selected() -> None:
    assert behind(copy_of("t", selected="t"), MADE, SWAP) == {"t": "anew"}


def test_a_consumer_that_cannot_follow_statements() -> None:
    copy = copy_of("t", "new")
    copy.coverage.restarts = True
    assert behind(copy, SWAP) == {"t": "anew", "new": "anew", "old": "anew"}


def test_tables_that_were_ordered_one_by_one() -> None:
    copy = copy_of("t")
    copy.has_all, copy.coverage = False, Coverage()
    assert behind(copy, MADE, SWAP) == {"t": "anew"}


def test_a_table_that_was_gone_before_its_copy_ended_is_not_known() -> None:
    """It had another name already when it was to be read: the statement comes later."""
    copy = copy_of("t", "new", progress=BEGUN)
    copy.drop(("shop", "new"))
    event = copy.deliver(PLACE)
    assert isinstance(event, SnapshotCompleteEvent)
    assert event.is_dropped
    assert states(copy.state([event])) == {"t": "begun"}
    copy.settle([event])
    assert behind(copy, "RENAME TABLE shop.new TO shop.u") == {"t": "begun", "u": "anew"}


def test_the_consumer_hears_of_void_rows_before_another_table_is_complete() -> None:
    """An export would end with them."""
    copy = copy_of("a")
    copy.add(("shop", "b"), KEY, PLACE, replace(BEGUN, is_read=True))
    copy.settle([query(EXCHANGE.replace("shop.t", "shop.a"))])
    heard = []
    while (event := copy.deliver(PLACE)) is not None:
        copy.settle([event])
        heard.append((type(event), event.table.name))
    assert set(heard[:2]) == {(SnapshotRestartedEvent, "a"), (SnapshotRestartedEvent, "new")}
    assert heard[2:] == [(SnapshotCompleteEvent, "b")]


@pytest.mark.parametrize("key", [KEY, KeyColumns((), ())])
def test_a_key_that_is_learned_counts_between_two_transactions(key: KeyColumns) -> None:
    """Changes of the open transaction so far would not be known. Without a key, rows that came before are void."""
    copy = copy_of("t")
    copy.settle([query("RENAME TABLE other.t TO shop.u")])
    event = copy.deliver(PLACE)
    assert isinstance(event, SnapshotRestartedEvent)
    copy.settle([event])
    [(identity, window)] = copy.windows(PLACE, 9)
    copy.learn(identity, key)
    assert window.is_void
    copy.settle([query("BEGIN")])
    assert list(copy.windows(PLACE, 9)) == []
    copy.settle([XidEvent(*AT, 1)])
    event = copy.deliver(Place("binlog.000001", 99))
    assert (event is None) is bool(key.names)
    if event is not None:
        assert isinstance(event, SnapshotRestartedEvent)
        copy.settle([event])
    [(_, window)] = copy.windows(PLACE, 9)
    assert window.what == ("first" if key.names else "table")
    assert copy.tables[identity].segments.start == Place("binlog.000001", 99)


def test_a_table_that_is_gone_still_counts_its_rows() -> None:
    copy = copy_of("t", "u")
    assert (copy.totals.complete, copy.totals.rows) == (2, 6)
    copy.settle([query("DROP TABLE shop.t")])
    assert (copy.totals.complete, copy.totals.rows) == (1, 6)
    assert not copy.is_active
