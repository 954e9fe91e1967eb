"""Groups events into units, one for each transaction from begin to end. Streams and files share this code. No I/O.

    events -> TransactionGrouper.feed -> Unit -> Transaction (of a stream), FileTransaction (of a file)

``boundary.Progress`` decides where a unit begins and ends. Events between transactions belong to no unit.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

from protocol.binlog.commit_time import commit_microseconds, utc_time
from protocol.binlog.events import (
    AnonymousGtidEvent,
    CreateFileEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    IntvarEvent,
    LoadEvent,
    MariadbGtidEvent,
    PreGaRowsEvent,
    QueryEvent,
    RandEvent,
    RotateEvent,
    UpdateRowsEvent,
    UserVarEvent,
    WriteRowsEvent,
    XaPrepareEvent,
)
from protocol.binlog.row_changes import Change
from protocol.constants import ALTER_NOT_DONE, MariadbGtidExtraFlag
from protocol.errors import (
    LostEventsError,
    ReplicaError,
    RolledBackToSavepointError,
    StatementFormatError,
    TransactionOutcomeError,
    UnsupportedEventError,
)
from protocol.gtid import Gtid, MariadbGtid
from protocol.position import Checkpoint
from protocol.records import field, record

from ..sql.statement_kind import empties_table, kind_of
from ..sql.xa import XA_ROLLBACK, Xid, statement_xid
from .boundary import INSIDE, OPEN, Progress
from .replay import TransactionRestarted
from .snapshot_events import SNAPSHOT_EVENTS, SnapshotRowsEvent

#: ``restarted``: a failover cut the transaction off; its delivered changes are void (see ``TransactionRestarted``).
#: ``snapshot``: no transaction of the log, but a chunk of an initial copy, or the end of one.
Outcome = Literal["commit", "rollback", "prepared", "restarted", "snapshot"]

_BEGIN: Final = "BEGIN"
_SAVEPOINT, _ROLLBACK_TO = "SAVEPOINT ", "ROLLBACK TO "
#: Events with the rows of a table.
ROWS: Final = frozenset({WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})
#: Events that begin a transaction, whatever the event before them was.
GTIDS: Final = frozenset({AnonymousGtidEvent, GtidEvent, MariadbGtidEvent})
# Events that precede the event that tells the kind of unit.
_ANNOUNCING: Final = GTIDS | {IntvarEvent, RandEvent, UserVarEvent}
_FILE_STARTS: Final = frozenset({FormatDescriptionEvent, RotateEvent})
_RARE: Final = frozenset({IncidentEvent, TransactionRestarted}) | SNAPSHOT_EVENTS


@record(slots=True, eq=False)
class Unit:
    """One transaction, as far as it has been read; ``outcome`` is None until its end has been read.

    Events wait in ``waiting`` until they are taken. The changes that ``changes_of`` returns are counted, so that a
    rollback to a savepoint can say how many of them still stand.
    """

    begin: Event
    is_restart: bool = False
    has_head: bool = False
    outcome: Outcome | None = None
    xid: Xid | None = None
    ddl: list[QueryEvent] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    changes: int = 0
    is_iterated: bool = False
    is_left: bool = False
    waiting: deque[Event] = field(default_factory=deque)
    # All that were set, as in the memory of the source, which logs no RELEASE: 90 bytes each, and 70 in the log.
    _savepoints: dict[str, int] = field(default_factory=dict)
    _collected: list[Change] = field(default_factory=list)
    # Rows events, if their rows are undecoded, and their bytes in the log.
    _rows_events: list[Event] = field(default_factory=list)
    _rows_bytes: int = 0
    _is_collected: bool = False
    _error: ReplicaError | None = None

    @property
    def gtid(self) -> Gtid | MariadbGtid | None:
        begin = self.begin
        return begin.gtid if isinstance(begin, GtidEvent | MariadbGtidEvent) else None

    @property
    def commit_time(self) -> datetime:
        return utc_time(commit_microseconds(self.begin))

    @property
    def is_over(self) -> bool:
        """Whether the unit gets no more events."""
        return self.is_left or self.outcome is not None

    # Adding events.

    def add(self, event: Event, is_last: bool) -> None:
        """Add the unit's next event; ``is_last`` says whether the unit ends with it."""
        kind = type(event)
        if not self.is_left:
            self.waiting.append(event)
        if kind not in _ANNOUNCING:
            self.has_head = True
        if is_last:
            self.outcome = self._outcome(event)
        note = _NOTES.get(kind)
        if note is not None:
            note(self, event)

    def add_inside(self, event: Event) -> None:
        """As ``add``, for table maps and rows events."""
        self.has_head = True
        if not self.is_left:
            self.waiting.append(event)

    def _note_statement(self, event: QueryEvent) -> None:
        sql = event.sql
        if sql == _BEGIN:
            return
        self.xid = statement_xid(sql) or self.xid
        begin = self.begin
        if isinstance(begin, MariadbGtidEvent) and begin.extra_flags & ALTER_NOT_DONE:
            return
        kind = kind_of(event)
        # A statement outside BEGIN and COMMIT is a transaction of its own, and ends it.
        if kind == "ddl" or (kind == "dml" and self.outcome is not None and empties_table(sql)):
            self.ddl.append(event)

    def _note_xa_prepare(self, event: XaPrepareEvent) -> None:
        self.xid = Xid.of(event)

    def _note_mariadb_gtid(self, event: MariadbGtidEvent) -> None:
        if event.xid is not None:
            self.xid = Xid(*event.xid)

    def forget(self, event: Event) -> None:
        """Drop the newest event: the user has already had it."""
        if self.waiting and self.waiting[-1] is event:
            self.waiting.pop()

    def leave(self) -> None:
        """Drop the waiting events: the user has moved on to the next transaction."""
        self.is_left = True
        self.waiting.clear()

    def _outcome(self, event: Event) -> Outcome:
        if isinstance(event, XaPrepareEvent):
            return "commit" if event.one_phase else "prepared"
        if type(event) in SNAPSHOT_EVENTS:
            return "snapshot"
        if isinstance(event, QueryEvent) and (event.sql == "ROLLBACK" or event.sql.startswith(XA_ROLLBACK)):
            return "rollback"
        flags = self.begin.extra_flags if isinstance(self.begin, MariadbGtidEvent) else 0
        if flags & MariadbGtidExtraFlag.START_ALTER:
            return "prepared"
        return "rollback" if flags & MariadbGtidExtraFlag.ROLLBACK_ALTER else "commit"

    # The changes of an event.

    def changes_of(self, event: Event) -> Iterator[Change] | None:
        """The changes in an event of rows, None for others.

        Raises for an event that makes or undoes changes without showing them as rows.
        """
        step = _STEPS.get(type(event))
        return None if step is None else step(self, event)

    def _rows(
        self, event: WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent | SnapshotRowsEvent
    ) -> Iterator[Change]:
        changes, rows = event.changes(), len(event.rows)
        self.changes += rows
        return changes

    def _query(self, event: QueryEvent) -> None:
        sql = event.sql
        if sql == _BEGIN:
            return
        if sql.startswith(_SAVEPOINT):
            name = _savepoint_name(sql.removeprefix(_SAVEPOINT))
            self._savepoints.pop(name, None)
            self._savepoints[name] = self.changes
        elif sql.startswith(_ROLLBACK_TO):
            self._roll_back_to(_savepoint_name(sql.removeprefix(_ROLLBACK_TO)))
        elif kind_of(event) == "dml" and event not in self.ddl:
            self._statement(event)

    def _roll_back_to(self, name: str) -> None:
        """Roll back to a savepoint. If reading began within the transaction, an unknown savepoint was set before."""
        kept = self._savepoints.get(name, 0)
        if name in self._savepoints:
            while next(reversed(self._savepoints)) != name:
                self._savepoints.popitem()
        elif self.changes and (type(self.begin) in GTIDS or isinstance(self.begin, QueryEvent)):
            raise TransactionOutcomeError(
                f"transaction {self.gtid} was rolled back to savepoint {name}, which it has not set: which of its "
                f"{self.changes} changes so far still stand is not known -- copy their tables again"
            )
        if kept < self.changes:
            error = RolledBackToSavepointError(
                f"transaction {self.gtid} was rolled back to savepoint {name}: only the first {kept} of its "
                f"{self.changes} changes so far still stand -- undo the others and continue iterating, or use "
                "collect()",
                kept,
            )
            # Behind the last call: a signal handler may raise before, and then this is done again.
            self.changes = kept
            raise error
        self.changes = kept

    def _statement(self, event: Event) -> NoReturn:
        raise StatementFormatError(
            f"row changes are logged as a statement, without the rows, at {event.file}:{event.position}: SET GLOBAL "
            "binlog_format=ROW on the source, reconnect its sessions, and start behind it; a copy of the tables that "
            "met it begins behind it after FLUSH BINARY LOGS"
        )

    def _undecoded(self, event: PreGaRowsEvent) -> NoReturn:
        raise UnsupportedEventError(
            "rows in the format of the MySQL 5.1 development versions cannot be read",
            event.file,
            event.position,
            event.header.type,
        )

    # Collecting all changes.

    def begin_collecting(self) -> None:
        """Raise if collecting is no longer possible: an earlier error, or iteration has begun."""
        if self._error is not None:
            raise self._error
        if self.is_iterated:
            raise RuntimeError(
                "collect() returns all changes, but iterating the transaction has already begun"
            )

    def collect(self, event: Event, *, undecoded: bool = False) -> None:
        """Keep an event's changes for ``collected``; drop changes that were rolled back to a savepoint.

        ``undecoded``: the rows of an event are one item, and the event itself is kept.
        """
        before = self.changes
        try:
            self._keep(event, undecoded)
        except ReplicaError as error:
            self._error = error
            raise
        except BaseException:
            # A signal handler has raised: the event is collected again.
            self.changes = before
            raise

    def _keep(self, event: Event, undecoded: bool) -> None:
        if undecoded and isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent):
            self.changes += len(event.rows)
            self._rows_events.append(event)
            self._rows_bytes += event.header_fields[3]
            return
        try:
            changes = self.changes_of(event)
        except RolledBackToSavepointError as error:
            void = self._rows_events[error.changes_kept :]
            self._rows_bytes -= sum(dropped.header_fields[3] for dropped in void)
            del self._collected[error.changes_kept :], self._rows_events[error.changes_kept :]
            return
        if changes is not None and not undecoded:
            made = list(changes)
            self._collected += made

    @property
    def collected_so_far(self) -> int:
        """How many changes are kept for ``collected``; of undecoded rows, their bytes in the log."""
        return len(self._collected) + self._rows_bytes

    def collected_events(self) -> list[Event]:
        """The first event and the rows events; empty without rows. Raises as ``collected`` does."""
        self.collected(prepared=False)
        is_void = self.outcome == "rollback" or not self._rows_events
        return [] if is_void else [self.begin, *self._rows_events]

    def collected(self, prepared: bool) -> list[Change]:
        """The committed changes, after the last event. Raises ``TransactionOutcomeError`` if the outcome is open."""
        if self.outcome in (None, "restarted") or (self.is_left and not self._is_collected):
            raise TransactionOutcomeError(f"transaction {self.gtid} has not been read to its end")
        self._is_collected = True
        if self.outcome == "prepared" and (self._collected or self._rows_events) and not prepared:
            raise TransactionOutcomeError(
                f"XA transaction {self.xid} is only prepared, and a later transaction commits or rolls it back: keep "
                "the changes of collect(prepared=True) until then"
            )
        return [] if self.outcome == "rollback" else self._collected


def _savepoint_name(text: str) -> str:
    """A savepoint's name in lower case and without quotes.

    MariaDB quotes it as the session's sql_mode (ANSI_QUOTES) and sql_quote_show_create say at each statement, so the
    same name can have backticks once, and quotation marks or nothing the next time. The server compares names
    without case (``find_savepoint`` in sql/transaction.cc).
    """
    mark = text[:1]
    if mark in ("`", '"') and len(text) > 1 and text.endswith(mark):
        text = text[1:-1].replace(mark * 2, mark)
    return text.casefold()


_NOTES: Final[Mapping[type[Event], Callable[[Unit, Any], None]]] = MappingProxyType(
    {
        QueryEvent: Unit._note_statement,
        XaPrepareEvent: Unit._note_xa_prepare,
        MariadbGtidEvent: Unit._note_mariadb_gtid,
    }
)
_STEPS: Final[Mapping[type[Event], Callable[[Unit, Any], Iterator[Change] | None]]] = MappingProxyType(
    {
        WriteRowsEvent: Unit._rows,
        UpdateRowsEvent: Unit._rows,
        DeleteRowsEvent: Unit._rows,
        SnapshotRowsEvent: Unit._rows,
        QueryEvent: Unit._query,
        ExecuteLoadQueryEvent: Unit._statement,
        LoadEvent: Unit._statement,
        CreateFileEvent: Unit._statement,
        ExecuteLoadEvent: Unit._statement,
        PreGaRowsEvent: Unit._undecoded,
    }
)


class TransactionGrouper:
    """Groups the events that ``feed`` gets; ``next_unit`` returns each unit as soon as its kind is known."""

    def __init__(self, has_gtids: bool = False) -> None:
        self.progress = Progress("", 0, None, has_gtids)
        self._unit: Unit | None = None
        self._given: Unit | None = None
        self._restarted: TransactionRestarted | None = None

    @property
    def unit(self) -> Unit | None:
        """The newest unit."""
        return self._unit

    def stands_behind(self, unit: Unit) -> bool:
        """Whether the grouper still stands at the end of this unit: no later transaction has begun."""
        return unit is self._unit or (unit is self._given and not unit.is_left)

    def next_unit(self) -> Unit | None:
        """The unit after that of the last call; None if more events are needed."""
        if self._given is not None:
            self._given.leave()
        unit = self._unit
        if unit is None or unit is self._given or not (unit.has_head or unit.outcome):
            return None
        self._given = unit
        return unit

    def feed(self, event: Event, file: str = "", position: int = 0) -> None:
        """Add the next event, which ends at ``position`` of ``file``.

        Raises ``LostEventsError`` for an INCIDENT event: events are missing from the log. Feeding may continue.
        """
        kind, progress = type(event), self.progress
        if kind in INSIDE and progress.state is OPEN and self._unit is not None:
            # Nearly all events. They neither begin nor end anything; nothing else here would change that.
            if self._unit.outcome is None:
                self._unit.add_inside(event)
            return
        if kind in _RARE:
            self._rare(event, file, position)
            return
        was_open = progress.in_transaction
        # A GTID always begins a transaction: if the previous one is open, its end is lost.
        begins = kind in GTIDS or progress.begins(event)
        is_between = progress.follow(event, file, position)
        if was_open and (begins or (is_between and kind in _FILE_STARTS)):
            # The source crashed in the middle of the transaction, which is rolled back.
            self._break_off()
        if begins or not (was_open or is_between):
            self._begin(event)
        unit = self._unit
        if unit is not None and unit.outcome is None:
            unit.add(event, is_between)

    def _rare(self, event: Event, file: str, position: int) -> None:
        if isinstance(event, IncidentEvent):
            self.progress.follow(event, file, position)
            self._break_off()
            raise _lost(event)
        if isinstance(event, TransactionRestarted):
            self.progress.reopen()
            self._restarted = event
            if self._unit is not None and self._unit.outcome is None:
                self._unit.outcome = "restarted"
        if type(event) in SNAPSHOT_EVENTS:
            self._unit = Unit(event)
            self._unit.add(event, is_last=True)

    def _begin(self, event: Event) -> None:
        restarted, self._restarted = self._restarted, None
        self._unit = Unit(event)
        self._unit.is_restart = restarted is not None and restarted.gtid == self._unit.gtid

    def _break_off(self) -> None:
        if self._unit is not None and self._unit.outcome is None:
            self._unit.outcome = "rollback"


def _lost(event: IncidentEvent) -> LostEventsError:
    return LostEventsError(
        f"the source has logged an incident at {event.file}:{event.position}: {event.message or event.incident}. "
        "Some changes are missing from the log: copy the tables again, and start after this position"
    )
