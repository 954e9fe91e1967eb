"""Follows the events of the log and collects which keys of the copied tables each transaction touches. Pure: no I/O.

Touches count at the end of their transaction. The rows of a prepared XA transaction count at its XA COMMIT: until
then nobody sees them, although the GTID of its XA PREPARE is already executed.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    RowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.binlog.query_status import is_unfinished_alter
from protocol.errors import SourceConfigurationError
from protocol.records import field, record
from protocol.rows.column import ABSENT
from protocol.rows.table import Table
from protocol.values.jsonb_diff import JsonDiff

from ..render.json_values import JsonChanges
from ..sql.xa import XA_COMMIT, XA_ROLLBACK, Xid, statement_xid
from ..transactions.replay import TransactionRestarted
from .touches import DOUBTFUL, GONE, Key, Moved, Row, Touch, Touched, add_touch, changed, part_of, written

#: Schema and name of a table.
TableId = tuple[str, str]
#: The one key for all rows of a table without a key. For another table: rows whose keys are unknown.
WHOLE_TABLE: Final[Key] = ()

# The end of the period of current rows in MariaDB: the largest TIMESTAMP, with a sign and (11.5) without one; or the
# largest number of a transaction.
_ENDLESS: Final = frozenset(
    {
        datetime(2038, 1, 19, 3, 14, 7, 999999, UTC),
        datetime(2106, 2, 7, 6, 28, 15, 999999, UTC),
        (1 << 64) - 1,
    }
)


@record(slots=True)
class KeyColumns:
    """The key by which a table is copied: names of its columns, and their places among all columns, from 0 on.

    Without columns the table has no usable key: then all its rows count as one key, ``WHOLE_TABLE``. ``end`` and
    ``end_ordinal`` are name and place of the period's end column in a system-versioned table, by which rows of the
    past differ from current rows; None and -1 for other tables. ``order`` is a digest of the names and types, on
    which the bounds of chunks depend; empty without columns. ``generated`` are columns that updates of MariaDB may
    change without logging them.
    """

    names: tuple[str, ...]
    ordinals: tuple[int, ...]
    end: str | None = None
    end_ordinal: int = -1
    order: str = ""
    generated: tuple[str, ...] = ()
    _of_table: Table | None = None
    _indexes: tuple[int, ...] = ()
    _end_index: int = -1
    _generated: tuple[int, ...] = ()

    def indexes(self, table: Table) -> tuple[int, ...]:
        """Where the rows of a logged table have the key."""
        if table is not self._of_table:
            self._find(table)
            self._of_table = table
        return self._indexes

    def end_index(self, table: Table) -> int:
        """Where the rows of a logged table have the end of their period; -1 without one."""
        self.indexes(table)
        return self._end_index

    def generated_indexes(self, table: Table) -> tuple[int, ...]:
        """Where the rows of a logged table have generated columns that an image may lack."""
        self.indexes(table)
        return self._generated

    def _find(self, table: Table) -> None:
        names = table.column_names
        self._generated = tuple(names.index(name) for name in self.generated if name in names)
        wanted = self.names if self.end is None else (*self.names, self.end)
        if all(name in names for name in wanted):
            self._indexes = tuple(names.index(name) for name in self.names)
            self._end_index = -1 if self.end is None else names.index(self.end)
        elif table.names_from is None and max(*self.ordinals, self.end_ordinal) < len(names):
            self._indexes, self._end_index = self.ordinals, self.end_ordinal
        else:
            raise no_key((table.schema, table.name))


@record(slots=True)
class Touching:
    """The keys that one transaction touched, by table.

    ``moved``: new keys that updates gave to rows, each with the keys that these rows had before. It also has keys
    whose row the log does not show; these have no keys before if it may be any key of the transaction.

    ``is_prepared``: an XA transaction, which may end long after its rows came. ``handed``: tables that were not
    followed when their rows came, so that these rows went to the consumer.
    """

    touched: dict[TableId, Touched] = field(default_factory=dict)
    moved: dict[TableId, Moved] = field(default_factory=dict)
    is_prepared: bool = False
    handed: set[TableId] = field(default_factory=set)
    # The result of ``keys``, which is the same each time, as nothing adds keys to a prepared transaction.
    _kept: dict[TableId, tuple[Key, ...]] | None = field(default=None, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.touched)

    def misses(self, table: TableId) -> bool:
        """Whether this XA transaction has rows of a table that were not followed, or did not reach the consumer."""
        return self.is_prepared and WHOLE_TABLE in self.touched.get(table, ())

    def miss(self, table: TableId) -> None:
        """Note that rows of a table were not followed. The dicts that a checkpoint has got stay as they are."""
        self.touched[table] = {**self.touched.get(table, {}), WHOLE_TABLE: DOUBTFUL}
        self._kept = None

    @classmethod
    def of_keys(cls, tables: Mapping[TableId, Sequence[Key]]) -> "Touching":
        """A prepared transaction of a checkpoint: the reverse of ``keys``, without rows."""
        touched = {table: dict.fromkeys(keys, DOUBTFUL) for table, keys in tables.items()}
        # Perhaps, if all rows count as one key: the checkpoint does not tell.
        handed = {table for table, keys in tables.items() if not keys or WHOLE_TABLE in keys}
        touching = cls(touched, is_prepared=True, handed=handed)
        touching.make_doubtful()
        return touching

    def keys(self) -> dict[TableId, tuple[Key, ...]]:
        """The keys of a prepared transaction for a checkpoint; no keys for tables whose rows went to the consumer."""
        if self._kept is None:
            touched = {table: tuple(keys) for table, keys in self.touched.items()}
            self._kept = dict.fromkeys(sorted(self.handed), ()) | touched
        return self._kept

    def make_doubtful(self) -> None:
        """Have all rows read again, as the log does not say which of the changes remain."""
        for table, touched in self.touched.items():
            moved = self.moved.setdefault(table, {})
            moved.update((key, ()) for key in touched if key != WHOLE_TABLE)
            self.touched[table] = dict.fromkeys(touched, DOUBTFUL)


class TransactionTouches:
    """Collects the touches of the open transaction, and of prepared ones by their xid.

    ``ended`` is called with the touches of each transaction that has ended, ``unknown`` with the xid of an XA COMMIT
    whose XA PREPARE was not followed, ``stated`` with each other statement that is done: not with an ALTER TABLE of
    MariaDB that has only begun, or has failed.
    """

    def __init__(
        self,
        tables: Mapping[TableId, KeyColumns],
        ended: Callable[[Touching], None],
        unknown: Callable[[Xid], None],
        stated: Callable[[QueryEvent], None],
    ) -> None:
        self._tables = tables
        self._ended = ended
        self._unknown = unknown
        self._stated = stated
        self._open = Touching()
        self.prepared: dict[Xid, Touching] = {}
        #: The log file of the newest transaction.
        self.file = ""

    def copy(
        self,
        ended: Callable[[Touching], None],
        unknown: Callable[[Xid], None],
        stated: Callable[[QueryEvent], None],
    ) -> "TransactionTouches":
        """An independent follower at the same place."""
        other = TransactionTouches(self._tables, ended, unknown, stated)
        other._open = Touching(
            {table: dict(touched) for table, touched in self._open.touched.items()},
            {table: dict(keys) for table, keys in self._open.moved.items()},
            handed=set(self._open.handed),
        )
        other.prepared = dict(self.prepared)
        return other

    def brings_rows(self, sql: str, prepared: Container[Xid]) -> bool:
        """Whether a statement commits an XA transaction with unknown rows; those ``prepared`` since are known."""
        xid = statement_xid(sql) if sql.startswith(XA_COMMIT) else None
        if xid is None or xid in prepared:
            return False
        touching = self.prepared.get(xid)
        return touching is None or any(map(touching.misses, touching.touched))

    def has_missing(self, table: TableId) -> bool:
        """Whether prepared transactions have unknown rows of a table, which is read again when they end."""
        return any(touching.misses(table) for touching in self.prepared.values())

    def has_handed(self, table: TableId) -> bool:
        """Whether the consumer has rows of a table that it will apply at a later XA COMMIT."""
        return any(table in touching.handed for touching in self.prepared.values())

    def follow(self, events: Iterable[Event]) -> None:
        """Take in consecutive events of the stream."""
        for event in events:
            step = _STEPS.get(type(event))
            if step is not None:
                step(self, event)

    def _begin(self, event: Event) -> None:
        self.file = event.file
        if self._open or self._open.handed:
            self._open = Touching()

    def _rows(self, event: RowsEvent, note: Callable[[Any, "_Notes"], None]) -> None:
        table = event.table
        identity = table.schema, table.name
        key_columns = self._tables.get(identity)
        if key_columns is None:
            self._open.handed.add(identity)
            return
        touched = self._open.touched.setdefault(identity, {})
        if not key_columns.names:
            touched[WHOLE_TABLE] = DOUBTFUL
            return
        try:
            notes = _Notes(
                key_columns.indexes(table),
                touched,
                identity,
                self._open,
                key_columns.end_index(table),
                key_columns.generated_indexes(table),
            )
            note(event, notes)
        except SourceConfigurationError:
            # The key is the table's key of now, and DDL may have added it since. Then this touch is void before it
            # matters to a window.
            touched[WHOLE_TABLE] = DOUBTFUL

    def _written(self, event: WriteRowsEvent) -> None:
        self._rows(event, _note_written)

    def _updated(self, event: UpdateRowsEvent) -> None:
        self._rows(event, _note_updated)

    def _deleted(self, event: DeleteRowsEvent) -> None:
        self._rows(event, _note_deleted)

    def _end(self, event: Event | None = None) -> None:
        if self._open:
            ended, self._open = self._open, Touching()
            self._ended(ended)

    def _prepare(self, event: XaPrepareEvent) -> None:
        if event.one_phase:
            self._end()
            return
        self._open.is_prepared = True
        # Also a transaction without rows: its XA COMMIT is then known to bring nothing.
        self.prepared[Xid.of(event)] = self._open
        self._open = Touching()

    def _query(self, event: QueryEvent) -> None:
        sql = event.sql
        if sql == "BEGIN" or sql.startswith("XA START"):
            self._begin(event)
        elif sql == "COMMIT":
            self._end()
        elif sql == "ROLLBACK" or sql.startswith("ROLLBACK TO"):
            # Rows of tables without transactions stay as they are.
            self._open.make_doubtful()
            if sql == "ROLLBACK":
                self._end()
        elif sql.startswith((XA_COMMIT, XA_ROLLBACK)):
            self._decide(sql)
        elif not (sql.startswith(("SAVEPOINT", "XA ")) or is_unfinished_alter(event.status_variables)):
            # MariaDB logs that an ALTER TABLE has failed while transactions on its table are open.
            self._stated(event)

    def _decide(self, sql: str) -> None:
        xid = statement_xid(sql)
        if xid is None:
            return
        touching = self.prepared.pop(xid, None)
        if sql.startswith(XA_ROLLBACK):
            return
        if touching is None:
            self._unknown(xid)
        elif touching:
            self._ended(touching)

    def _restarted(self, event: TransactionRestarted) -> None:
        self._open = Touching()


@record(slots=True)
class _Notes:
    indexes: tuple[int, ...]
    touched: Touched
    table: TableId
    touching: Touching
    end: int
    generated: tuple[int, ...]

    def is_past(self, row: Row) -> bool:
        """Whether a row of a system-versioned table has ended: the table keeps it, but a SELECT does not show it."""
        return self.end >= 0 and row[self.end] is not ABSENT and row[self.end] not in _ENDLESS

    def key(self, row: Row) -> Key:
        key = tuple([row[index] for index in self.indexes])
        if ABSENT in key:
            raise no_key(self.table)
        return key

    def add(self, key: Key, touch: Touch) -> None:
        add_touch(self.touched, key, touch)

    def add_moved(self, old: Key, new: Key) -> None:
        moved = self.touching.moved.setdefault(self.table, {})
        moved[new] = (*moved.get(new, ()), old)


def _note_written(event: WriteRowsEvent, notes: _Notes) -> None:
    for row in event.rows:
        if not notes.is_past(row):
            notes.add(notes.key(row), written(row))


def _note_deleted(event: DeleteRowsEvent, notes: _Notes) -> None:
    for row in event.rows:
        if not notes.is_past(row):
            notes.add(notes.key(row), GONE)


def _note_updated(event: UpdateRowsEvent, notes: _Notes) -> None:
    for before, after in event.rows:
        if notes.is_past(before):
            continue
        old = notes.key(before)
        if notes.is_past(after):
            # The log of a system-versioned table has a DELETE as such an update.
            notes.add(old, GONE)
            continue
        new = tuple([old[n] if after[i] is ABSENT else after[i] for n, i in enumerate(notes.indexes)])
        if old != new:
            notes.add(old, GONE)
            notes.add(new, written(after))
            # The consumer may not have the row, and then an update does not give it.
            notes.add_moved(old, new)
        elif _has_diffs(after):
            notes.add(old, DOUBTFUL)
            notes.add_moved(old, old)
        else:
            notes.add(old, changed(after, notes.generated))


def _has_diffs(row: Row) -> bool:
    """Whether a JSON column shows only what has changed in its document: that cannot be laid over twice."""
    return ABSENT in row and any(_is_diff(value) for value in part_of(row).values())


def _is_diff(value: object) -> bool:
    is_list = isinstance(value, list) and bool(value) and isinstance(value[0], JsonDiff)
    return is_list or isinstance(value, JsonChanges)


def no_key(table: TableId) -> SourceConfigurationError:
    """The error for a table whose rows in the log lack its key."""
    return SourceConfigurationError(
        f"an image of {'.'.join(table)} in the log lacks columns of the key by which the table is copied: set "
        "binlog_row_image=FULL on the source, or give the table a primary key"
    )


_STEPS: Final[Mapping[type[Event], Callable[[TransactionTouches, Any], None]]] = MappingProxyType(
    {
        GtidEvent: TransactionTouches._begin,
        AnonymousGtidEvent: TransactionTouches._begin,
        MariadbGtidEvent: TransactionTouches._begin,
        WriteRowsEvent: TransactionTouches._written,
        UpdateRowsEvent: TransactionTouches._updated,
        DeleteRowsEvent: TransactionTouches._deleted,
        XidEvent: TransactionTouches._end,
        XaPrepareEvent: TransactionTouches._prepare,
        QueryEvent: TransactionTouches._query,
        TransactionRestarted: TransactionTouches._restarted,
    }
)
