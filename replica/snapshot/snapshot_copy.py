"""The copy of all tables of a stream: follows the stream's events, hands out windows and due chunks. Pure: no I/O.

settle    takes the events that the consumer is done with, in order: touches, XA, DDL, delivered chunks
add       begins the copy of a table at the stream's place
windows   what to read next, in the order of the tables
deliver   the event of a chunk that is due at the stream's place, or of a table whose copy has ended
state     what a checkpoint keeps
"""

import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from protocol.binlog.events import Event, EventHeader, QueryEvent, RowsEvent, XaPrepareEvent
from protocol.constants import STATEMENT_FRAME
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
from .hidden_tables import stated_with
from .marks import LOWEST, Place
from .named_tables import NamedTables, without_rows
from .statement_effects import Coverage, changed_tables, moved_tables, waits_for_transactions
from .table_copy import TableCopy, TableProgress
from .tables_ahead import ShownTables, TablesAhead
from .tables_at_work import CopyTotals, TablesAtWork
from .transaction_touches import KeyColumns, TableId, Touching, TransactionTouches
from .window import Window


class SnapshotCopy:
    """The copies of one stream's tables."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TableCopy] = {}
        self._at_work = TablesAtWork()
        # The progress that a checkpoint shows of each table, and the tables that were changed since.
        self._shown, self._noted = ShownTables(), dict[TableId, None]()
        self._key_names: dict[TableId, tuple[str, ...]] | None = None
        # Tables that statements may have made: see ``Unnamed``.
        self._stated: frozenset[TableId] | None = frozenset()
        self._named: NamedTables | None = None
        #: Whether the copy was begun with all tables that the stream's filter lets through.
        self.has_all = False
        #: The stream's filter, by ``selection_text``.
        self.selection = ""
        # The keys of tables that were added, and of those whose touches are kept.
        self._known: dict[TableId, KeyColumns] = {}
        self._keys: dict[TableId, KeyColumns] = {}
        # The known tables without a key.
        self._keyless: set[TableId] = set()
        #: The keys that open and prepared transactions have touched.
        self.touches = TransactionTouches(
            self._keys, self._add_touches, self._copy_again, self._note_statement
        )
        #: How statements of the log are read.
        self.dialect = Dialect()
        #: Which tables are copied, and the effects of statements about them.
        self.coverage = Coverage()
        # New keys of tables; their copies go on by them from the next place between two transactions on.
        self._learned: dict[TableId, KeyColumns] = {}
        # The table of the event that was handed out, and its progress once the consumer is done with the event.
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
        self._know(table, key)
        if key.names or progress is None or not progress.is_read:
            self._follow(table)

    def add_ended(self, table: TableId, progress: TableProgress, *, is_keyless: bool = False) -> None:
        """Take over a table that is complete or no longer exists. ``is_keyless``: it surely has no key."""
        self._put(table, TableCopy(KeyColumns((), ()), LOWEST, progress))
        if is_keyless:
            self._know(table, KeyColumns((), ()))
        if not progress.is_whole:
            self.tables[table].dropped()
        self._changed(table)

    def _know(self, table: TableId, key: KeyColumns) -> None:
        self._known[table] = key
        (self._keyless.discard if key.names else self._keyless.add)(table)

    def restore(self, state: CopyState) -> None:
        """Take the prepared XA transactions of a checkpoint over; ``add`` takes the tables."""
        for xid, tables in state.prepared.items():
            self.touches.prepared[xid] = Touching.of_keys(tables)

    def resolve(self, prepared: Mapping[Xid, Touching]) -> None:
        """Take in the rows of XA transactions whose XA PREPARE came before the place of a checkpoint.

        The checkpoint has only their keys. If low marks are beginnings of log files, reading a row by its key does
        not tell whether the transaction is visible in it, however often it is read.
        """
        for xid, touching in prepared.items():
            mine = self.touches.prepared.get(xid)
            if mine is None:
                for table, touched in touching.touched.items():
                    if table in self.tables:
                        self.tables[table].segments.resolve(touched)
                continue
            for table, keys in mine.touched.items():
                known = touching.touched.get(table, {})
                mine.touched[table] = {key: known.get(key, touch) for key, touch in keys.items()}

    # Following the stream

    def settle(self, events: Iterable[Event]) -> None:
        """Take in events that the consumer is done with."""
        self.touches.follow(events)
        if self._handed is not None and any(type(event) in SNAPSHOT_EVENTS for event in events):
            (table, progress), self._handed = self._handed, None
            self._set(table, progress)
            if self._leaves(table, progress):
                self._remove(table)
            elif progress.is_whole or (progress.is_read and not self.tables[table].key.names):
                # From here on the log's rows of a table without a key reach the consumer.
                self._keys.pop(table, None)

    def hides(self, event: Event) -> bool:
        """Whether an event must not reach the consumer: rows of a table without a key, before its copy."""
        if not isinstance(event, RowsEvent) or isinstance(event, SnapshotRowsEvent):
            return False
        identity = event.table.schema, event.table.name
        table = self.tables.get(identity) if self.follows(identity) else None
        return table is not None and not table.key.names and not table.progress.is_read

    def next_statement(self, events: Sequence[Event]) -> int:
        """The index of the first event with a statement that may begin copies anew; -1 without one.

        The consumer is told that its rows are void before it gets later changes. After an XA COMMIT, rows of a table
        without a key may be hidden.
        """
        prepared = list[Xid]()
        for number, event in enumerate(events):
            if type(event) is QueryEvent:
                if not event.sql.startswith(STATEMENT_FRAME) or self.touches.brings_rows(event.sql, prepared):
                    return number
            elif type(event) is XaPrepareEvent:
                prepared.append(Xid.of(event))
        return -1

    def follows(self, table: TableId) -> bool:
        """Whether touches of the table are kept: from the beginning of its copy to its end, or to its only chunk."""
        return table in self._keys

    def void(self) -> None:
        """Read windows in flight anew, as the connection is lost."""
        self._handed = None
        for table in self._at_work.reading():
            table.void()

    def move(self) -> None:
        """Note that another server sends the log from now on."""
        for table in self.tables.values():
            table.segments.move()

    def forget(self, window: Window) -> None:
        """Forget a window that could not be read."""
        for table in self._at_work.reading():
            table.forget(window)

    def goes_on_by(self, table: TableId, key: KeyColumns) -> bool:
        """Whether a table is copied by this key already."""
        return self.follows(table) and self.tables[table].goes_on_by(key)

    def learn(self, table: TableId, key: KeyColumns) -> None:
        """Copy a table by this key, which differs from the key before, or was not known."""
        self.tables[table].void()
        self._learned[table] = key

    def drop(self, table: TableId) -> None:
        """Note that a table no longer exists."""
        if table in self.tables:
            self.tables[table].dropped()
            self._changed(table)

    def _add_touches(self, touching: Touching) -> None:
        for identity, touched in touching.touched.items():
            table = self.tables.get(identity)
            if table is None:
                continue
            if self._lacks(touching, identity, table.progress):
                self._restart(identity)
            elif not table.progress.is_whole:
                table.add_touches(touched, self.touches.file)
                self._changed(identity)
        for identity, keys in touching.moved.items():
            table = self.tables.get(identity)
            if table is not None and table.key.names and not table.progress.is_whole:
                touched = touching.touched[identity]
                moved = table.progress.with_moved(keys, touched, is_reading=table.is_reading)
                self._set(identity, moved)

    def _lacks(self, touching: Touching, identity: TableId, progress: TableProgress) -> bool:
        """Whether the copy of a table has to begin anew because rows of an ended transaction are not known.

        With a key, the consumer has these rows from the stream, and chunks lack them. Without a key, the rows were
        hidden from the consumer, as the table was still to be read; if it has been read since, it did not show them.
        """
        table = self.tables[identity]
        if table.is_dropped or not touching.misses(identity):
            return False
        return not progress.is_whole if table.key.names else progress.is_read

    def _put(self, identity: TableId, table: TableCopy) -> None:
        self.tables[identity] = table
        self._key_names = self._named = None
        self._changed(identity)

    def _changed(self, identity: TableId) -> None:
        self._noted[identity] = None
        self._at_work.note(identity, self.tables[identity])

    def _remove(self, identity: TableId) -> None:
        table = self.tables.pop(identity)
        table.dropped()
        self._noted[identity] = None
        self._at_work.remove(identity)
        self._key_names = self._named = None
        for known in (self._known, self._keys, self._learned):
            known.pop(identity, None)
        self._keyless.discard(identity)

    def _leaves(self, identity: TableId, progress: TableProgress) -> bool:
        """Whether a table leaves the copy: it no longer exists, and was not copied to its end.

        A table that was ordered by name stays, as the copy is about whatever table has this name.
        """
        return progress.is_whole and self.tables[identity].is_dropped and self.coverage.wants is not None

    def _restart(self, identity: TableId, *, is_settled: bool = False) -> None:
        self.tables[identity].restart(is_settled=is_settled)
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
        """Copy all tables again: an XA transaction from before the copy is committed, and its rows are not known."""
        for identity, table in self.tables.items():
            if not table.is_dropped:
                self._restart(identity)

    def _follow(self, table: TableId) -> None:
        """Keep touches of a table whose copy begins, if its key is known; else from its first plan on."""
        if table not in self._known:
            return
        if table not in self._keys:
            # Rows of this table in prepared transactions have passed before.
            for touching in self.touches.prepared.values():
                touching.miss(table)
        self._keys[table] = self._known[table]

    def _note_statement(self, event: QueryEvent) -> None:
        statement, named = self._about(event, self.tables)
        for identity in named:
            self._apply(statement, identity)
        progress = {identity: self.tables[identity].progress for identity in named}
        for identity, moved in moved_tables(statement, progress, self.coverage).items():
            self._move(identity, moved, is_settled=waits_for_transactions(statement))
        self._stated = stated_with(self._stated, statement, self.tables, self.coverage.wants)
        if self.is_active and kind_of(event) == "dml":
            self._check_statement(event)

    def _move(self, identity: TableId, progress: TableProgress | None, *, is_settled: bool) -> None:
        """Take the new progress of a table from ``moved_tables``; its key is not known."""
        if progress is None:
            self._remove(identity)
        elif identity in self.tables and not progress.is_whole:
            self._restart(identity, is_settled=is_settled)
        else:
            if identity in self.tables:
                self._remove(identity)
            self._put(identity, TableCopy(KeyColumns((), ()), LOWEST, progress))

    def _about(
        self, event: QueryEvent, tables: Mapping[TableId, object]
    ) -> tuple[ddl.DdlStatement | None, Collection[TableId]]:
        """The statement of an event, and those of these tables that it is about."""
        if not (tables or self.coverage.wants) or kind_of(event) == "frame":
            return None, ()
        statement = read_event(event, self.dialect)
        if isinstance(statement, ddl.DropSchema):
            return statement, [identity for identity in tables if identity[0] == statement.schema]
        if isinstance(statement, ddl.Unread) and statement.is_about_any:
            return statement, [*tables]
        return statement, tables.keys() & changed_tables(statement)

    def _apply(self, statement: object, identity: TableId) -> None:
        table = self.tables[identity]
        if is_settled := waits_for_transactions(statement):
            table.altered()
        else:
            table.perhaps_altered()
        if self._begins_anew(statement, identity, table.progress):
            self._restart(identity, is_settled=is_settled)

    def _begins_anew(self, statement: object, identity: TableId, progress: TableProgress) -> bool:
        """Whether a statement about a table begins its copy anew."""
        key = self.tables[identity].key.names if identity in self.tables else ()
        return self.coverage.begins_anew(statement, progress, key)

    def _check_statement(self, event: QueryEvent) -> None:
        if self._named is None:
            self._named = NamedTables(self.tables)
        for identity in self._named.named_in(event.sql, event.schema):
            if not self.tables[identity].progress.is_whole:
                raise without_rows(event, identity)

    # Reading and delivering

    def windows(self, place: Place, most: int) -> Iterator[tuple[TableId, Window]]:
        """The windows to read next, as long as fewer than ``most`` are in flight."""
        for identity, table in self._at_work.unfinished.items():
            if self.in_flight >= most:
                return
            if identity in self._learned:
                continue
            progress = table.progress
            if self._handed is not None and self._handed[0] == identity:
                # While the consumer is busy with its rows, the rows after them are read.
                progress = self._handed[1]
            while self.in_flight < most and (window := table.next_window(place, progress)) is not None:
                self._changed(identity)
                yield identity, window

    @property
    def waiting(self) -> Iterator[TableId]:
        """The tables whose first rows are to be read, in the order in which they are copied."""
        handed = None if self._handed is None else self._handed[0]
        unfinished = self._at_work.unfinished.items()
        return (
            identity
            for identity, table in unfinished
            if table.waits and identity != handed and identity not in self._learned
        )

    def first_windows(self, place: Place, alone: Container[TableId]) -> Iterator[tuple[TableId, Window]]:
        """The windows of tables whose first rows are to be read, except the tables ``alone``."""
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
        self._take_learned(place)
        for identity, table in self._at_work.void():
            if self.follows(identity) and not table.key.names and self.touches.has_handed(identity):
                # Wait: the consumer applies rows of a prepared transaction to its rows, and all others are hidden
                # from it. Rows of a table that is not followed, as its key is not known, are not hidden, and the wait
                # would not end. The consumer is told again when the key is known.
                continue
            # First, as the consumer has void rows. The new copy is read later: rows of until then are visible in it.
            self._handed = identity, table.begin_anew(place, is_followed=self.follows(identity))
            shown = table.table or Table(*identity, ())
            return SnapshotRestartedEvent(_header(), place.file, place.position, shown)
        for identity, table in self._at_work.look():
            before, delivery = table.progress, table.deliver(place)
            if table.progress is not before:
                self._changed(identity)
            if delivery is not None:
                self._handed = identity, delivery.behind
                return SnapshotRowsEvent(
                    _header(), place.file, place.position, 0, delivery.table, 0, b"", delivery.rows
                )
            hidden = not table.key.names and not table.is_dropped and self.touches.has_missing(identity)
            if table.is_complete() and not hidden:
                progress = table.progress
                self._handed = identity, TableProgress(rows=progress.rows, is_read=True, is_whole=True)
                shown = table.table or Table(*identity, ())
                return SnapshotCompleteEvent(
                    _header(), place.file, place.position, shown, progress.rows, table.is_dropped
                )
        return None

    def _take_learned(self, place: Place) -> None:
        """Copy tables by their new keys. Not within a transaction: its changes so far would not be known."""
        while self._learned:
            identity, key = self._learned.popitem()
            progress = self.tables[identity].progress
            # If the consumer has just heard of the table, and takes reads for upserts, it has nothing to delete.
            is_new = bool(key.names) and identity not in self._known and not self.coverage.restarts
            self.add(identity, key, place, progress if is_new else None)

    # Checkpoints

    def state(self, ahead: Sequence[Event] = ()) -> CopyState:
        """The state for a checkpoint, as if the events ``ahead`` were done."""
        tables, touches = TablesAhead(self.tables, self._stated), self.touches
        if ahead:
            restarts: list[Xid] = []
            touches = self.touches.copy(
                lambda touching: self._end_ahead(tables, touching),
                restarts.append,
                lambda event: self._note_ahead(tables, event),
            )
            touches.follow(ahead)
            if restarts:
                for identity in list(tables):
                    if identity not in self.tables or not self.tables[identity].is_dropped:
                        tables[identity] = tables[identity].anew()
            if self._handed is not None and any(type(event) in SNAPSHOT_EVENTS for event in ahead):
                identity, progress = self._handed
                tables[identity] = progress
                if self._leaves(identity, progress):
                    del tables[identity]
        prepared = {xid: touching.keys() for xid, touching in touches.prepared.items()}
        shown = tables.shown(self._shown.now(self.tables, self._noted))
        self._noted.clear()
        orders = {table: self._known[table].order for table in shown.outline.begun if table in self._known}
        state = CopyState(shown.tables, prepared, self.has_all, self.selection, tables.stated, orders=orders)
        state.outline, state.keyless = shown.outline, frozenset(self._keyless)
        return state

    def _note_ahead(self, tables: TablesAhead, event: QueryEvent) -> None:
        statement, named = self._about(event, tables)
        for identity in named:
            if self._begins_anew(statement, identity, tables[identity]):
                tables[identity] = tables[identity].anew()
        progress = {identity: tables[identity] for identity in named}
        for identity, moved in moved_tables(statement, progress, self.coverage).items():
            if moved is None:
                del tables[identity]
            else:
                tables[identity] = moved
        tables.stated = stated_with(tables.stated, statement, tables, self.coverage.wants)

    def _end_ahead(self, tables: TablesAhead, touching: Touching) -> None:
        for identity in (one for one in touching.touched if one in tables and one in self.tables):
            if self._lacks(touching, identity, tables[identity]):
                tables[identity] = tables[identity].anew()
        for identity in (one for one in touching.moved if one in tables and one in self.tables):
            keys = touching.moved[identity]
            if not tables[identity].is_whole and self.tables[identity].key.names:
                touched = touching.touched[identity]
                tables[identity] = tables[identity].with_moved(keys, touched, is_reading=False)


def _header() -> EventHeader:
    return EventHeader(int(time.time()), 0, 0, 0, 0, 0)
