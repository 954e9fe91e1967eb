"""Events made by hand for transactions, and a stream that gives them out as ``BinlogStream`` does."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Iterable, Sequence

from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.row_changes import Change
from protocol.constants import ColumnType
from protocol.gtid import Gtid, GtidSet, MariadbGtid
from protocol.position import Checkpoint
from protocol.rows.column import Column
from protocol.rows.table import Table
from replica.sql.xa import Xid
from replica.transactions.boundary import Progress
from replica.transactions.replay import TransactionRestarted
from replica.transactions.transaction import Transaction, Transactions
from replica.transactions.units import Outcome

UUID = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
FILE = "binlog.000001"
HEADER = EventHeader(1_700_000_000, 0, 1, 50, 100, 0)
AT = (HEADER, FILE, 4)
TABLE = Table("shop", "orders", (Column("id", ColumnType.LONG, 0, nullable=False),))


def query(sql: str) -> QueryEvent:
    return QueryEvent(*AT, 1, 0, 0, "", sql, b"")


def gtid(sequence: int) -> GtidEvent:
    return GtidEvent(*AT, 0, gtid=Gtid(UUID, sequence))


def mariadb_gtid(sequence: int, flags: int = 0, extra: int = 0) -> MariadbGtidEvent:
    xid = (7, b"q", b"b") if flags & (64 | 128) else None
    return MariadbGtidEvent(*AT, MariadbGtid(0, 1, sequence), flags, None, xid, extra)


def rows(*values: int) -> WriteRowsEvent:
    return WriteRowsEvent(*AT, 7, TABLE, 1, b"", [(value,) for value in values])


def updates(*values: int) -> UpdateRowsEvent:
    return UpdateRowsEvent(*AT, 7, TABLE, 1, b"", [((value,), (value + 1,)) for value in values])


def deletes(*values: int) -> DeleteRowsEvent:
    return DeleteRowsEvent(*AT, 7, TABLE, 1, b"", [(value,) for value in values])


def xa_prepare(*, one_phase: bool = False) -> XaPrepareEvent:
    return XaPrepareEvent(*AT, one_phase, 7, b"q", b"b")


def description() -> FormatDescriptionEvent:
    return FormatDescriptionEvent(*AT, 4, "9.7.4", 0, 19, b"", 1)


def anonymous() -> AnonymousGtidEvent:
    return AnonymousGtidEvent(*AT, 0)


def restarted(sequence: int) -> TransactionRestarted:
    return TransactionRestarted(*AT, Gtid(UUID, sequence), 1, "the rows differ")


BEGIN, COMMIT, ROLLBACK = query("BEGIN"), query("COMMIT"), query("ROLLBACK")
TABLE_MAP, XID = TableMapEvent(*AT, 7, 0, TABLE), XidEvent(*AT, 5)
NEXT_FILE = [
    RotateEvent(*AT, "binlog.000002", 4),
    description(),
    PreviousGtidsEvent(*AT, GtidSet(f"{UUID}:1-9")),
]


def transaction(sequence: int, *values: int) -> list[Event]:
    """One with a rows event for each value."""
    content = [event for value in values for event in (TABLE_MAP, rows(value))]
    return [gtid(sequence), BEGIN, *content, XID]


class ListStream:
    """Gives out events, and an error among them is raised once. ``given`` counts them; ends are 100, 200, 300..."""

    def __init__(self, *parts: Iterable[Event | Exception], gtid_set: GtidSet | None = None) -> None:
        self._items = itertools.chain(*parts)
        self._progress = Progress(FILE, 0, gtid_set, has_gtids=gtid_set is not None)
        self.given = 0

    async def __anext__(self) -> Event:
        # What is cancelled here has taken nothing.
        await asyncio.sleep(0)
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            self.given += 1
            if isinstance(item, TransactionRestarted):
                self._progress.reopen()
            else:
                self._progress.follow(item, FILE, self.given * 100)
            return item
        raise StopAsyncIteration

    def checkpoint(self) -> Checkpoint:
        progress = self._progress
        gtid_set = None if progress.gtid_set is None else str(progress.gtid_set)
        return Checkpoint(progress.file, progress.position, gtid_set)

    def transactions(self) -> Transactions:
        return Transactions(self.__anext__, self.checkpoint)


def ids(changes: Sequence[Change]) -> list[object]:
    """What is in the rows; of an update, what was in it."""
    return [(change.before or change.after or {})["id"] for change in changes]


async def changes_of(tx: Transaction) -> list[object]:
    return ids([change async for change in tx])


CREATE = query("CREATE TABLE t (a INT)")
NAME = Xid(7, b"q", b"b")

# What was recorded on MySQL 9.7, 5.6 and MariaDB 11.8: events, outcome, changes, xid, number of DDL statements.
FORMS: dict[str, tuple[list[Event], Outcome, list[object], Xid | None, int]] = {
    "transaction": (transaction(5, 1, 2), "commit", [1, 2], None, 0),
    "every kind of change": (
        [gtid(5), BEGIN, TABLE_MAP, rows(1, 2), updates(3), deletes(4), XID],
        "commit",
        [1, 2, 3, 4],
        None,
        0,
    ),
    "anonymous": ([anonymous(), BEGIN, TABLE_MAP, rows(1), XID], "commit", [1], None, 0),
    "without GTIDs": ([BEGIN, TABLE_MAP, rows(1), XID], "commit", [1], None, 0),
    "MyISAM": ([gtid(5), BEGIN, TABLE_MAP, rows(1), COMMIT], "commit", [1], None, 0),
    "empty": ([gtid(5), BEGIN, COMMIT], "commit", [], None, 0),
    "rolled back": ([mariadb_gtid(5), TABLE_MAP, rows(1), ROLLBACK], "rollback", [1], None, 0),
    "DDL": ([gtid(5), CREATE], "commit", [], None, 1),
    "DDL without GTIDs": ([query("/* x */ DROP TABLE t")], "commit", [], None, 1),
    "TRUNCATE": ([gtid(5), query("TRUNCATE TABLE t")], "commit", [], None, 1),
    "MEMORY table, 5.6": ([gtid(5), query("DELETE FROM `s`.`t`")], "commit", [], None, 1),
    "CREATE ... SELECT, 9.7": (
        [gtid(5), BEGIN, query("CREATE TABLE `t` (\n `a` int\n) START TRANSACTION"), TABLE_MAP, rows(1), XID],
        "commit",
        [1],
        None,
        1,
    ),
    "CREATE ... SELECT, MariaDB": (
        [mariadb_gtid(5, 40), query("CREATE TABLE `t` (\n `a` int\n)"), TABLE_MAP, rows(1), XID],
        "commit",
        [1],
        None,
        1,
    ),
    "XA prepared": (
        [
            gtid(5),
            query("XA START X'71',X'62',7"),
            TABLE_MAP,
            rows(1),
            query("XA END X'71',X'62',7"),
            xa_prepare(),
        ],
        "prepared",
        [1],
        NAME,
        0,
    ),
    "XA in one phase": (
        [
            gtid(5),
            query("XA START X'71',X'62',7"),
            TABLE_MAP,
            rows(1),
            query("XA END X'71',X'62',7"),
            xa_prepare(one_phase=True),
        ],
        "commit",
        [1],
        NAME,
        0,
    ),
    "XA COMMIT": ([gtid(5), query("XA COMMIT X'71',X'62',7")], "commit", [], NAME, 0),
    "XA ROLLBACK": ([gtid(5), query("XA ROLLBACK X'',X'62',1")], "rollback", [], Xid(1, b"", b"b"), 0),
    "MariaDB XA prepared": (
        [mariadb_gtid(5, 76), TABLE_MAP, rows(1), query("XA END X'71',X'62',7"), xa_prepare()],
        "prepared",
        [1],
        NAME,
        0,
    ),
    "MariaDB XA COMMIT": (
        [mariadb_gtid(5, 141), query("XA COMMIT X'71',X'62',7")],
        "commit",
        [],
        NAME,
        0,
    ),
    "MariaDB DDL": ([mariadb_gtid(5, 41), CREATE], "commit", [], None, 1),
    "START ALTER": ([mariadb_gtid(5, 41, 18), query("ALTER TABLE t")], "prepared", [], None, 0),
    "COMMIT ALTER": ([mariadb_gtid(5, 41, 20), query("ALTER TABLE t")], "commit", [], None, 1),
    "ROLLBACK ALTER": ([mariadb_gtid(5, 41, 24), query("ALTER TABLE t")], "rollback", [], None, 0),
    "from the middle": ([TABLE_MAP, rows(1), XID], "commit", [1], None, 0),
    "from between the rows": ([rows(1), rows(2), XID], "commit", [1, 2], None, 0),
}
