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
from replica.snapshot.marks import FileMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.touches import DOUBTFUL, NEWEST_KEYS, Touch
from replica.snapshot.transaction_touches import KeyColumns
from replica.sql.dialect import Dialect
from replica.sql.xa import Xid
from replica.transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent
from tests.support.grouped_events import AT
from tests.support.scripted_source import FILE, IDENTITY, SOURCE, TABLE, query

BEGINNING = Place("binlog.000001", 4)
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


def update(key: int) -> list[Event]:
    return [
        query("BEGIN"),
        UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((key, 2, 3), (key, 5, 6))]),
        XidEvent(*AT, 1),
    ]


def begun_anew(*before: str, restarts: bool = False, is_late: bool = False) -> SnapshotCopy:
    """A copy whose consumer has been told, behind some statements, that the table is read anew.

    ``is_late``: a transaction has come to the consumer before that.
    """
    copy = SnapshotCopy()
    copy.coverage.restarts = restarts
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), BEGINNING, TableProgress((b"1",), (b"9",)))
    for sql in before:
        copy.settle([query(sql)])
    if is_late:
        copy.settle(update(8))
    told = copy.deliver(Place("binlog.000001", 900))
    assert isinstance(told, SnapshotRestartedEvent)
    copy.settle([told])
    return copy


@pytest.mark.parametrize(
    ("statements", "restarts", "is_known"),
    [
        (["ALTER TABLE shop.t ADD x INT"], True, True),
        (["TRUNCATE TABLE shop.t"], False, True),
        (["ANALYZE TABLE shop.t", "RENAME TABLE shop.t TO shop.o, shop.n TO shop.t"], True, True),
        # Rows of an unknown transaction may not be visible.
        (["ALTER TABLE shop.t ADD x INT", "XA COMMIT X'61',X'',1"], True, False),
        (["XA COMMIT X'61',X'',1"], False, False),
    ],
)
def test_a_statement_that_waits_for_transactions_begins_a_copy_anew(
    statements: list[str], restarts: bool, is_known: bool
) -> None:
    """All before it is visible. The log file was read from its beginning again, once for each table."""
    copy = begun_anew(*statements, restarts=restarts)
    copy.settle(update(7))
    [(_, window)] = copy.windows(Place("binlog.000001", 950), 1)
    assert window.take_low(FileMark("binlog.000001")) is is_known
    if is_known:
        assert window.touch((7,)) is not None
        assert window.touch((8,)) is None
    # A row that is void now, and that reads do not show yet, has to be waited for.
    copy = begun_anew(*statements, restarts=restarts, is_late=True)
    [(_, window)] = copy.windows(Place("binlog.000001", 950), 1)
    assert not window.take_low(FileMark("binlog.000001"))


def test_a_whole_table_that_no_statement_begins_anew() -> None:
    """What an ALTER before that said of it does not hold: its touches were not kept since."""
    copy = SnapshotCopy()
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), BEGINNING, TableProgress(is_read=True))
    told: object = copy.deliver(Place("binlog.000001", 500))
    assert isinstance(told, SnapshotCompleteEvent)
    copy.settle([told])
    copy.settle([query("ALTER TABLE shop.t ADD x INT")])
    copy.settle(update(7))
    copy.settle([query("XA COMMIT X'61',X'',1")])
    told = copy.deliver(Place("binlog.000001", 900))
    assert isinstance(told, SnapshotRestartedEvent)
    copy.settle([told])
    [(_, window)] = copy.windows(Place("binlog.000001", 950), 1)
    assert not window.take_low(FileMark("binlog.000001"))
