"""What the log before a copy's start says: of transactions before that place only, wherever they stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.gtid import AnyGtidSet, Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.rows.column import ABSENT
from protocol.values.jsonb_diff import JsonDiff
from replica.render.json_values import JsonChanges
from replica.snapshot.log_touches import _Scan
from replica.snapshot.marks import Place
from replica.snapshot.touches import DOUBTFUL, NEWEST_KEYS, Touch
from replica.snapshot.transaction_touches import KeyColumns
from replica.sql.dialect import Dialect
from replica.sql.xa import Xid
from tests.support.grouped_events import AT
from tests.support.scripted_source import FILE, IDENTITY, SOURCE, TABLE, query

DIFF = JsonDiff("replace", "$.a", b"\x05\x01\x00")


def mysql_gtid(number: int) -> Event:
    return GtidEvent(*AT, 0, gtid=Gtid(SOURCE, number))


def mariadb_gtid(number: int) -> Event:
    return MariadbGtidEvent(*AT, MariadbGtid(0, 1, number), 0)


def prepared(xid: bytes, key: int) -> list[Event]:
    row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(key, 2, 3)])
    return [query(f"XA START X'{xid.hex()}',X'',1"), row, XaPrepareEvent(*AT, False, 1, xid, b"")]


@pytest.mark.parametrize(
    ("gtid", "end"),
    [(mysql_gtid, GtidSet(f"{SOURCE}:1-2")), (mariadb_gtid, MariadbGtidSet("0-1-2"))],
    ids=["mysql", "mariadb"],
)
def test_xa_that_is_decided_behind_the_end_is_found_as_prepared(
    gtid: Callable[[int], Event], end: AnyGtidSet
) -> None:
    """Else its rows stay doubtful, and are read again and again where low marks are beginnings of files."""
    scan = _Scan(Place(FILE, 500, end), {IDENTITY: KeyColumns(("id",), (0,))}, Dialect())
    scan.feed([gtid(1), query("BEGIN"), WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(7, 2, 3)]), XidEvent(*AT, 1)])
    scan.feed([gtid(2), *prepared(b"\x01", 8)])
    scan.feed([gtid(3), query("XA COMMIT X'01',X'',1")])
    scan.feed([gtid(4), *prepared(b"\x02", 8)])
    found = scan.found
    assert found.touched == {IDENTITY: {(7,): Touch((7, 2, 3), is_new=True)}}
    assert list(found.prepared) == [Xid(1, b"\x01", b"")]
    assert found.prepared[Xid(1, b"\x01", b"")].touched == {IDENTITY: {(8,): Touch((8, 2, 3), is_new=True)}}


def test_the_newest_rows_that_were_made_are_those_of_transactions_that_may_be_invisible() -> None:
    """A row that a later transaction has changed was visible before."""
    scan = _Scan(Place(FILE, 50000), {IDENTITY: KeyColumns(("id",), (0,))}, Dialect())

    def transaction(*events: Event) -> tuple[object, ...]:
        scan.feed([query("BEGIN"), *events, XidEvent(*AT, 1)])
        return tuple(scan.found.made[IDENTITY])

    def insert(*keys: int) -> Event:
        return WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(key, 2, 3) for key in keys])

    def update(key: int, new: int) -> Event:
        return UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((key, 2, 3), (new, 4, 5))])

    def delete(key: int) -> Event:
        return DeleteRowsEvent(*AT, 1, TABLE, 0, b"", [(key, 2, 3)])

    assert transaction(insert(1, 2, 3)) == ((1,), (2,), (3,))
    assert transaction(update(1, 1), delete(2)) == ((3,),)
    assert transaction(update(1, 4), insert(5), delete(5)) == ((3,), (4,))
    assert transaction(delete(3), insert(6), update(6, 6)) == ((4,), (6,))
    assert transaction(insert(*range(100, 100 + NEWEST_KEYS))) == tuple(
        (100 + n,) for n in range(NEWEST_KEYS)
    )
    scan.feed([query(f"ALTER TABLE {'.'.join(IDENTITY)} ADD COLUMN d INT")])
    assert scan.found.made == {IDENTITY: ()}


def test_an_alter_that_fails_waits_for_no_transaction() -> None:
    """MariaDB 11.8 logs ROLLBACK ALTER (binlog_alter_two_phase) while others write to the table: what was logged just
    before it may be invisible still."""
    began, committed, gave_up = (query(f"ALTER TABLE shop.{IDENTITY[1]} ADD UNIQUE (a)") for _ in range(3))
    began.status_variables = b"\x82\x02"
    committed.status_variables = b"\x82\x04" + bytes(8)
    gave_up.status_variables = b"\x82\x08" + bytes(8)
    row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(7, 2, 3)])
    for end, is_void in ((gave_up, False), (committed, True)):
        scan = _Scan(Place(FILE, 50000), {IDENTITY: KeyColumns(("id",), (0,))}, Dialect(is_mariadb=True))
        scan.feed([began, query("BEGIN"), row, XidEvent(*AT, 1), end])
        assert (not scan.found.touched[IDENTITY]) is is_void
        assert (not scan.found.made[IDENTITY]) is is_void


@pytest.mark.parametrize("changes", [[DIFF], JsonChanges((DIFF,))], ids=["values", "documents"])
def test_a_partial_document_is_not_laid_over_a_row(changes: object) -> None:
    """Whichever cells the log is read with: the command line has its own, and its reads got the differences."""
    scan = _Scan(Place(FILE, 50000), {IDENTITY: KeyColumns(("id",), (0,))}, Dialect())
    update: Any = ((7, ABSENT, ABSENT), (ABSENT, ABSENT, changes))
    scan.feed([query("BEGIN"), UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [update]), XidEvent(*AT, 1)])
    assert scan.found.touched == {IDENTITY: {(7,): DOUBTFUL}}
