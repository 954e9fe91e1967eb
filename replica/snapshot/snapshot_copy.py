"""The copy of all tables of a stream: follows the stream's events, hands out windows and due chunks. Pure: no I/O.

settle    takes the events that the consumer is done with, in order: touches, XA, DDL, delivered chunks
add       begins the copy of a table at the stream's place
windows   what to read next, in the order of the tables
deliver   the event of a chunk that is due at the stream's place, or of a table whose copy has ended
state     what a checkpoint keeps
"""

import re
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from protocol.binlog.events import Event, EventHeader, QueryEvent, RowsEvent
from protocol.errors import StatementFormatError
from protocol.rows.table import Table

from ..sql import ddl_statements as ddl
from ..sql.dialect import Dialect
from ..sql.statement_kind import kind_of, read_event
from ..sql.xa import Xid
from ..transactions.snapshot_events import (
    SNAPSHOT_EVENTS,
    SnapshotCompleteEvent,
    SnapshotRestartedEvent,
    SnapshotRowsEvent,
)
from .copy_state import CopyState
from .hidden_tables import digests_from, stated_with
from .marks import LOWEST, Place
from .table_copy import TableCopy, TableProgress
from .tables_at_work import CopyTotals, TablesAtWork
from .touches import DOUBTFUL
from .transaction_touches import KeyColumns, TableId, Touching, TransactionTouches
from .window import Window

# Statements of these kinds wait until all transactions on their table have ended, and hold others back meanwhile.
_EXCLUSIVE: Final = (
    ddl.AlterTable,
    ddl.TruncateTable,
    ddl.RenameTables,
    ddl.DropTables,
    ddl.DropSchema,
    ddl.CreateTable,
)
# Clauses of ALTER TABLE, by their first words, by which rows come or go.
_TAKE_ROWS: Final = frozenset(f"{word} PARTITION" for word in ("DROP", "TRUNCATE", "EXCHANGE", "CONVERT")) | {
    "CONVERT TABLE",
    "DISCARD TABLESPACE",
    "IMPORT TABLESPACE",
}
# What stands between two marks or spaces of a statement.
_WORD: Final = re.compile(r"[\w$]+")


class SnapshotCopy:
    """The copies of one stream's tables."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TableCopy] = {}
        self._at_work = TablesAtWork()
        self._key_names: dict[TableId, tuple[str, ...]] | None = None
        self._digests: dict[TableId, int] | None = None
        # Tables that statements have made or dropped: see ``Unnamed``.
        self._stated: frozenset[TableId] | None = frozenset()
        # The tables by the longest word of their names.
        self._by_word: dict[str, list[TableId]] | None = None
        #: Whether the copy was begun with all tables that the stream's filter lets through.
        self.has_all = False
        #: That filter, by ``selection_text``.
        self.selection = ""
        # The keys of tables that were added, and of those whose touches are kept.
        self._known: dict[TableId, KeyColumns] = {}
        self._keys: dict[TableId, KeyColumns] = {}
        self._touches = TransactionTouches(
            self._keys, self._add_touches, self._copy_again, self._note_statement
        )
        #: How statements of the log are read.
        self.dialect = Dialect()
        #: Whether DDL begins the copy of its table anew, for a consumer that cannot apply it.
        self.restarts_after_ddl = False
        # The event that was handed out, and the progress of its table once the consumer is done with it.
        self._handed: tuple[TableId, TableProgress] | None = None

    @property
    def is_active(self) -> bool:
        """Whether a table's copy has not been delivered to its end."""
        return bool(self._at_work.unfinished)

    @property
    def in_flight(self) -> int:
        """How many windows are open, or hold rows that were not delivered."""
        return self._at_work.in_flight

    @property
    def key_names(self) -> Mapping[TableId, tuple[str, ...]]:
        """The columns of the key of each table."""
        if self._key_names is None:
            self._key_names = {identity: table.key.names for identity, table in self.tables.items()}
        return self._key_names

    @property
    def totals(self) -> CopyTotals:
        """Sums over the tables."""
        return self._at_work.totals

    @property
    def unfinished(self) -> Iterable[tuple[TableId, TableCopy]]:
        """The tables whose copy is not complete."""
        return self._at_work.unfinished.items()

    def add(
        self, table: TableId, key: KeyColumns, start: Place, progress: TableProgress | None = None
    ) -> None:
        """Begin the copy of a table, or go on from ``progress``; ``start``: touches are known from there on."""
        previous = self.tables.get(table)
        if previous is not None:
            previous.void()
            progress = progress or previous.progress.anew()
        self._put(table, TableCopy(key, start, progress))
        self._known[table] = key
        if key.names or progress is None or not progress.is_read:
            self._follow(table)

    def add_ended(self, table: TableId, progress: TableProgress) -> None:
        """Take over a table that is complete, or that does not exist any more."""
        self._put(table, TableCopy(KeyColumns((), ()), LOWEST, progress))
        if not progress.is_whole:
            self.tables[table].dropped()
        self._changed(table)

    def restore(self, state: CopyState) -> None:
        """Take the prepared XA transactions of a checkpoint over; ``add`` takes the tables."""
        for xid, tables in state.prepared.items():
            touching = Touching(
                {table: dict.fromkeys(keys, DOUBTFUL) for table, keys in tables.items()}, is_prepared=True
            )
            touching.make_doubtful()
            self._touches.prepared[xid] = touching

    def resolve(self, prepared: Mapping[Xid, Touching]) -> None:
        """Take in the rows of XA transactions whose XA PREPARE came before the place of a checkpoint.

        The checkpoint has their keys only. Where low marks stay at the beginning of the log file, reading such a row
        again and again would not tell whether the transaction is visible in it.
        """
        for xid, touching in prepared.items():
            mine = self._touches.prepared.get(xid)
            if mine is None:
                for table, touched in touching.touched.items():
                    self.tables[table].segments.resolve(touched)
                continue
            for table, keys in mine.touched.items():
                known = touching.touched.get(table, {})
                mine.touched[table] = {key: known.get(key, touch) for key, touch in keys.items()}

    # Following the stream

    def settle(self, events: Iterable[Event]) -> None:
        """Take in events that the consumer is done with."""
        self._touches.follow(events)
        if self._handed is not None and any(type(event) in SNAPSHOT_EVENTS for event in events):
            (table, progress), self._handed = self._handed, None
            self._set(table, progress)
            if progress.is_whole or (progress.is_read and not self.tables[table].key.names):
                # The rows of a table without a key reach the consumer from here on.
                self._keys.pop(table, None)

    def hides(self, event: Event) -> bool:
        """Whether an event must not reach the consumer: rows of a table without a key, before its copy."""
        if not isinstance(event, RowsEvent) or isinstance(event, SnapshotRowsEvent):
            return False
        identity = event.table.schema, event.table.name
        table = self.tables.get(identity) if self.follows(identity) else None
        return table is not None and not table.key.names and not table.progress.is_read

    def follows(self, table: TableId) -> bool:
        """Whether touches of the table are kept: from the beginning of its copy to its end, or to its only chunk."""
        return table in self._keys

    def void(self) -> None:
        """The connection is lost: windows in flight are read anew."""
        self._handed = None
        for table in self._at_work.reading():
            table.void()

    def move(self) -> None:
        """Another server sends the log from now on."""
        for table in self.tables.values():
            table.segments.move()

    def forget(self, window: Window) -> None:
        """A window could not be read."""
        for table in self._at_work.reading():
            table.forget(window)

    def drop(self, table: TableId) -> None:
        """The table does not exist any more."""
        if table in self.tables:
            self.tables[table].dropped()
            self._changed(table)

    def _add_touches(self, touching: Touching) -> None:
        for identity, touched in touching.touched.items():
            table = self.tables[identity]
            if self._lacks(touching, identity, table.progress):
                self._restart(identity)
            elif not table.progress.is_whole:
                table.add_touches(touched, self._touches.file)
                self._changed(identity)
        for identity, keys in touching.moved.items():
            table = self.tables[identity]
            if table.key.names and not table.progress.is_whole:
                touched = touching.touched[identity]
                moved = table.progress.with_moved(keys, touched, is_reading=table.is_reading)
                self._set(identity, moved)

    def _lacks(self, touching: Touching, identity: TableId, progress: TableProgress) -> bool:
        """Whether the copy of a table has to begin anew because a transaction that has ended misses rows of it.

        With a key the consumer has these rows from the stream, and chunks lack them. Without a key the rows were
        hidden from it, because the table was still to be read; if it is, what was read did not show them.
        """
        table = self.tables[identity]
        if table.is_dropped or not touching.misses(identity):
            return False
        return not progress.is_whole if table.key.names else progress.is_read

    def _put(self, identity: TableId, table: TableCopy) -> None:
        self.tables[identity] = table
        self._key_names = self._digests = self._by_word = None
        self._changed(identity)

    def _changed(self, identity: TableId) -> None:
        self._at_work.note(identity, self.tables[identity])

    def _restart(self, identity: TableId) -> None:
        self.tables[identity].restart()
        self._changed(identity)
        self._follow(identity)

    def _set(self, identity: TableId, progress: TableProgress) -> None:
        table = self.tables[identity]
        if progress.upto is None and table.progress.upto is not None and not progress.is_read:
            # Too many keys are to be read again: the table begins anew.
            table.void()
        table.progress = progress
        self._changed(identity)

    def _copy_again(self, xid: Xid) -> None:
        """An XA transaction was prepared before the copy began: its rows are unknown, and now they are visible."""
        for identity, table in self.tables.items():
            if not table.is_dropped:
                self._restart(identity)

    def _follow(self, table: TableId) -> None:
        """Keep touches of a table whose copy begins, if its key is known. Else its plan tells the key."""
        if table not in self._known:
            return
        if table not in self._keys:
            # Rows that they have of this table passed before.
            prepared = self._touches.prepared
            self._touches.prepared = {xid: touching.missing(table) for xid, touching in prepared.items()}
        self._keys[table] = self._known[table]

    def _note_statement(self, event: QueryEvent) -> None:
        statement, named = self._about(event)
        self._stated = stated_with(self._stated, statement, self.tables)
        for identity in named:
            self._apply(statement, identity)
        if self.is_active and kind_of(event) == "dml":
            self._check_statement(event)

    def _about(self, event: QueryEvent) -> tuple[object, Collection[TableId]]:
        """What a statement does, and which of the tables it is about."""
        if not self.tables or kind_of(event) == "frame":
            return None, ()
        statement = read_event(event, self.dialect)
        if isinstance(statement, ddl.DropSchema):
            return statement, [identity for identity in self.tables if identity[0] == statement.schema]
        if isinstance(statement, ddl.Unread) and statement.is_about_any:
            return statement, [*self.tables]
        return statement, self.tables.keys() & changed_tables(statement)

    def _apply(self, statement: object, identity: TableId) -> None:
        table = self.tables[identity]
        if waits_for_transactions(statement):
            table.altered()
        else:
            table.perhaps_altered()
        if self._begins_anew(statement, table.progress):
            self._restart(identity)

    def _begins_anew(self, statement: object, progress: TableProgress) -> bool:
        """Whether a statement about a table begins its copy anew.

        The log does not tell which rows it takes away, and the consumer may have them: from chunks, and where the
        stream began before the copy, from the log. They are no rows of the copy that is not complete yet.
        """
        return self.restarts_after_ddl or (not progress.is_whole and takes_rows_away(statement))

    def _check_statement(self, event: QueryEvent) -> None:
        text, default = event.sql.casefold(), event.schema.casefold()
        for schema, name in self._named_in(text):
            is_in_schema = default == schema.casefold() or _has_word(text, schema)
            if is_in_schema and _has_word(text, name) and not self.tables[schema, name].progress.is_whole:
                raise StatementFormatError(
                    f"rows of {schema}.{name} were changed by a statement that is logged without its rows, at "
                    f"{event.file}:{event.position}, while the table is copied: SET GLOBAL binlog_format=ROW on the "
                    "source, reconnect its sessions, FLUSH BINARY LOGS, and copy the tables again"
                )

    def _named_in(self, text: str) -> Iterator[TableId]:
        """The tables that a statement may name, without a look at each of the others."""
        if self._by_word is None:
            self._by_word = {}
            for table in self.tables:
                word = max(_WORD.findall(table[1].casefold()), key=len, default="")
                self._by_word.setdefault(word, []).append(table)
        for word in {"", *_WORD.findall(text)}:
            yield from self._by_word.get(word, ())

    # Reading and delivering

    def windows(self, place: Place, most: int) -> Iterator[tuple[TableId, Window]]:
        """The windows to read next, as long as fewer than ``most`` are in flight."""
        for identity, table in self._at_work.unfinished.items():
            if self.in_flight >= most:
                return
            progress = table.progress
            if self._handed is not None and self._handed[0] == identity:
                # The consumer has rows, and is not done with them yet: what comes behind them is read meanwhile.
                progress = self._handed[1]
            while self.in_flight < most and (window := table.next_window(place, progress)) is not None:
                self._changed(identity)
                yield identity, window

    @property
    def waiting(self) -> Iterator[TableId]:
        """The tables whose first rows are to be read, in the order in which they are copied."""
        handed = None if self._handed is None else self._handed[0]
        unfinished = self._at_work.unfinished.items()
        return (identity for identity, table in unfinished if table.waits and identity != handed)

    def first_windows(self, place: Place, alone: Container[TableId]) -> Iterator[tuple[TableId, Window]]:
        """The windows of tables whose first rows are to be read, but for those ``alone``."""
        for identity in self.waiting:
            if identity not in alone:
                table = self.tables[identity]
                window = table.next_window(place, table.progress)
                if window is not None:
                    self._changed(identity)
                    yield identity, window

    def deliver(
        self, place: Place
    ) -> SnapshotRowsEvent | SnapshotCompleteEvent | SnapshotRestartedEvent | None:
        """The next event that is due at a place between two transactions; None if none is due.

        The event counts as done when ``settle`` gets it.
        """
        for identity, table in self._at_work.look():
            if table.progress.is_void:
                # The new copy is read after this: rows that come meanwhile are visible in it.
                self._handed = identity, table.begin_anew(place)
                shown = table.table or Table(*identity, ())
                return SnapshotRestartedEvent(_header(), place.file, place.position, shown)
            delivery = table.deliver(place)
            if delivery is not None:
                self._handed = identity, delivery.behind
                return SnapshotRowsEvent(
                    _header(), place.file, place.position, 0, delivery.table, 0, b"", delivery.rows
                )
            if table.is_complete() and not self._awaits(identity, table):
                progress = table.progress
                self._handed = identity, TableProgress(rows=progress.rows, is_read=True, is_whole=True)
                shown = table.table or Table(*identity, ())
                return SnapshotCompleteEvent(
                    _header(), place.file, place.position, shown, progress.rows, table.is_dropped
                )
        return None

    def _awaits(self, identity: TableId, table: TableCopy) -> bool:
        """Whether a prepared XA transaction has rows that only its end brings to the consumer, by another read."""
        if table.is_dropped or table.key.names:
            return False
        return any(touching.misses(identity) for touching in self._touches.prepared.values())

    # Checkpoints

    def state(self, ahead: Sequence[Event] = ()) -> CopyState:
        """What a checkpoint keeps, as if the events ``ahead`` were done."""
        tables = {identity: table.progress for identity, table in self.tables.items()}
        touches, stated = self._touches, self._stated
        if ahead:
            restarts: list[Xid] = []
            statements: list[object] = []
            touches = self._touches.copy(
                lambda touching: self._end_ahead(tables, touching),
                restarts.append,
                lambda event: statements.append(self._note_ahead(tables, event)),
            )
            touches.follow(ahead)
            for statement in statements:
                stated = stated_with(stated, statement, self.tables)
            if restarts:
                tables = {
                    identity: one if self.tables[identity].is_dropped else one.anew()
                    for identity, one in tables.items()
                }
            if self._handed is not None and any(type(event) in SNAPSHOT_EVENTS for event in ahead):
                tables[self._handed[0]] = self._handed[1]
        prepared = {
            xid: {table: tuple(touched) for table, touched in touching.touched.items()}
            for xid, touching in touches.prepared.items()
        }
        shown = {identity: progress.from_place() for identity, progress in tables.items()}
        if self._digests is None:
            self._digests = digests_from(self.tables) if self.has_all else {}
        return CopyState(shown, prepared, self.has_all, self.selection, stated, digests=self._digests)

    def _note_ahead(self, tables: dict[TableId, TableProgress], event: QueryEvent) -> object:
        statement, named = self._about(event)
        for identity in named:
            if self._begins_anew(statement, tables[identity]):
                tables[identity] = tables[identity].anew()
        return statement

    def _end_ahead(self, tables: dict[TableId, TableProgress], touching: Touching) -> None:
        for identity in touching.touched:
            if self._lacks(touching, identity, tables[identity]):
                tables[identity] = tables[identity].anew()
        for identity, keys in touching.moved.items():
            if not tables[identity].is_whole and self.tables[identity].key.names:
                touched = touching.touched[identity]
                tables[identity] = tables[identity].with_moved(keys, touched, is_reading=False)


def waits_for_transactions(statement: object) -> bool:
    """Whether all transactions on the tables of a statement were visible when it ended."""
    return isinstance(statement, _EXCLUSIVE) and not getattr(statement, "is_conditional", False)


def takes_rows_away(statement: object) -> bool:
    """Whether rows leave a table by the statement, or others come, without rows in the log."""
    if isinstance(statement, ddl.AlterTable):
        return any(
            isinstance(clause, ddl.RenameTo)
            or (isinstance(clause, ddl.ChangePartitions) and clause.words in _TAKE_ROWS)
            for clause in statement.clauses
        )
    if isinstance(statement, ddl.CreateTable | ddl.CreateSequence):
        return statement.is_replaced
    return isinstance(statement, ddl.TruncateTable | ddl.DropTables | ddl.RenameTables | ddl.DropSchema)


def changed_tables(statement: ddl.DdlStatement | None) -> set[TableId]:
    """The tables whose columns or rows a statement changes, new names of renamed ones included."""
    if isinstance(statement, ddl.TruncateTable):
        return {statement.table}
    return set() if statement is None else set(ddl.tables_of(statement))


def _header() -> EventHeader:
    return EventHeader(int(time.time()), 0, 0, 0, 0, 0)


def _has_word(text: str, name: str) -> bool:
    """Whether a statement names something so; a word in a literal counts, too."""
    return re.search(rf"(?<![\w$]){re.escape(name.casefold())}(?![\w$])", text) is not None
