"""Events to transactions, one unit each from its begin to its end, without I/O: what streams and files share.

    events -> TransactionGrouper.feed -> Unit -> Transaction (of a stream), FileTransaction (of a file)

Where units begin and end, ``progress`` knows. What stands between them belongs to none.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, Literal

from protocol.binlog.commit_time import commit_microseconds
from protocol.binlog.events import (
    AnonymousGtidEvent,
    Change,
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
from protocol.records import record

from ..sql.statement_kind import empties_table, statement_kind
from ..sql.xa import XA_ROLLBACK, Xid, statement_xid
from .boundary import Progress
from .replay import TransactionRestarted

#: ``restarted``: a failover has cut it off, and what was delivered of it is void: see ``TransactionRestarted``.
Outcome = Literal["commit", "rollback", "prepared", "restarted"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SAVEPOINT, _ROLLBACK_TO = "SAVEPOINT ", "ROLLBACK TO "
# Of MariaDB's GTID event: a two-phase ALTER TABLE that only begins here, and one that has failed.
_START_ALTER, _ROLLBACK_ALTER = 2, 8
# In front of what says which kind of unit it is.
_GTIDS: Final = frozenset({AnonymousGtidEvent, GtidEvent, MariadbGtidEvent})
_ANNOUNCING: Final = _GTIDS | {IntvarEvent, RandEvent, UserVarEvent}
_FILE_STARTS: Final = frozenset({FormatDescriptionEvent, RotateEvent})
_RARE: Final = frozenset({IncidentEvent, TransactionRestarted})


@record(slots=True, eq=False)
class Unit:
    """One transaction as far as it has come; ``outcome`` is None until its end has.

    Events wait in it until they are taken. What ``changes_of`` has given out is counted, so that a rollback to a
    savepoint can be told in changes.
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
    _waiting: deque[Event] = field(default_factory=deque)
    _savepoints: dict[str, int] = field(default_factory=dict)
    _collected: list[Change] = field(default_factory=list)
    _is_collected: bool = False
    _error: ReplicaError | None = None

    @property
    def gtid(self) -> Gtid | MariadbGtid | None:
        begin = self.begin
        return begin.gtid if isinstance(begin, GtidEvent | MariadbGtidEvent) else None

    @property
    def commit_time(self) -> datetime:
        return _EPOCH + timedelta(microseconds=commit_microseconds(self.begin))

    @property
    def is_over(self) -> bool:
        """Whether no more events are to come for it."""
        return self.is_left or self.outcome is not None

    # What comes in.

    def add(self, event: Event, is_last: bool) -> None:
        """Its next event, and whether it is the last one."""
        kind = type(event)
        if not self.is_left:
            self._waiting.append(event)
        if kind not in _ANNOUNCING:
            self.has_head = True
        if is_last:
            self.outcome = self._outcome(event)
        note = _NOTES.get(kind)
        if note is not None:
            note(self, event)

    def _note_statement(self, event: QueryEvent) -> None:
        sql = event.sql
        self.xid = statement_xid(sql) or self.xid
        begin = self.begin
        if isinstance(begin, MariadbGtidEvent) and begin.extra_flags & (_START_ALTER | _ROLLBACK_ALTER):
            return
        kind = statement_kind(sql)
        # One that ends a transaction of its own stands alone.
        if kind == "ddl" or (kind == "dml" and self.outcome is not None and empties_table(sql)):
            self.ddl.append(event)

    def _note_xa_prepare(self, event: XaPrepareEvent) -> None:
        self.xid = Xid(event.format_id, event.gtrid, event.bqual)

    def _note_mariadb_gtid(self, event: MariadbGtidEvent) -> None:
        if event.xid is not None:
            self.xid = Xid(*event.xid)

    def forget(self, event: Event) -> None:
        """Somebody has had the event, its last one so far, by another way."""
        if self._waiting and self._waiting[-1] is event:
            self._waiting.pop()

    def leave(self) -> None:
        """Nobody is to take more of it."""
        self.is_left = True
        self._waiting.clear()

    def _outcome(self, event: Event) -> Outcome:
        if isinstance(event, XaPrepareEvent):
            return "commit" if event.one_phase else "prepared"
        if isinstance(event, QueryEvent) and (event.sql == "ROLLBACK" or event.sql.startswith(XA_ROLLBACK)):
            return "rollback"
        flags = self.begin.extra_flags if isinstance(self.begin, MariadbGtidEvent) else 0
        if flags & _START_ALTER:
            return "prepared"
        return "rollback" if flags & _ROLLBACK_ALTER else "commit"

    # What is taken out.

    def take(self) -> Event | None:
        """The next event that waits."""
        return self._waiting.popleft() if self._waiting else None

    def changes_of(self, event: Event) -> Iterator[Change]:
        """The changes in an event; raises for what makes changes or takes them back without showing them."""
        step = _STEPS.get(type(event))
        return iter(()) if step is None else step(self, event)

    def _rows(self, event: WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent) -> Iterator[Change]:
        self.changes += len(event.rows)
        return event.changes()

    def _query(self, event: QueryEvent) -> Iterator[Change]:
        sql = event.sql
        if sql.startswith(_SAVEPOINT):
            name = sql.removeprefix(_SAVEPOINT).casefold()
            self._savepoints.pop(name, None)
            self._savepoints[name] = self.changes
        elif sql.startswith(_ROLLBACK_TO):
            self._roll_back_to(sql.removeprefix(_ROLLBACK_TO))
        elif statement_kind(sql) == "dml" and event not in self.ddl:
            self._statement(event)
        return iter(())

    def _roll_back_to(self, name: str) -> None:
        """One that is not known lies before the place at which reading began."""
        names = list(self._savepoints)
        kept = self._savepoints.get(name.casefold(), 0)
        if name.casefold() in names:
            for later in names[names.index(name.casefold()) + 1 :]:
                del self._savepoints[later]
        changes, self.changes = self.changes, kept
        if kept < changes:
            raise RolledBackToSavepointError(
                f"transaction {self.gtid} was rolled back to savepoint {name}: of its {changes} changes so far only "
                f"the first {kept} stand -- undo the others and iterate it again, or use collect()",
                kept,
            )

    def _statement(self, event: Event) -> Iterator[Change]:
        raise StatementFormatError(
            f"what changes rows stands as a statement at {event.file}:{event.position} of the log, without the rows: "
            "SET GLOBAL binlog_format=ROW on the source, and have its sessions begin again"
        )

    def _undecoded(self, event: PreGaRowsEvent) -> Iterator[Change]:
        raise UnsupportedEventError(
            "rows of the 5.1 development trees cannot be read", event.file, event.position, event.header.type
        )

    # The whole of it.

    def begin_collecting(self) -> None:
        """Raises where it is too late for that."""
        if self._error is not None:
            raise self._error
        if self.is_iterated:
            raise RuntimeError("collect() is for all changes, but iterating them has begun already")

    def collect(self, event: Event) -> None:
        """Keep an event's changes for ``collected``, and drop those that a rollback to a savepoint takes back."""
        try:
            self._collected.extend(self.changes_of(event))
        except RolledBackToSavepointError as error:
            del self._collected[error.changes_kept :]
        except ReplicaError as error:
            self._error = error
            raise

    def collected(self, prepared: bool) -> list[Change]:
        """The committed changes, when no more are to come; raises where there is no saying."""
        if self.outcome in (None, "restarted") or (self.is_left and not self._is_collected):
            raise TransactionOutcomeError(f"transaction {self.gtid} has not been read to its end")
        self._is_collected = True
        if self.outcome == "prepared" and self._collected and not prepared:
            raise TransactionOutcomeError(
                f"XA transaction {self.xid} is prepared, and a later one says what becomes of its changes: "
                "until then, keep those of collect(prepared=True)"
            )
        return [] if self.outcome == "rollback" else self._collected


_NOTES: Final[Mapping[type[Event], Callable[[Unit, Any], None]]] = MappingProxyType(
    {
        QueryEvent: Unit._note_statement,
        XaPrepareEvent: Unit._note_xa_prepare,
        MariadbGtidEvent: Unit._note_mariadb_gtid,
    }
)
_STEPS: Final[Mapping[type[Event], Callable[[Unit, Any], Iterator[Change]]]] = MappingProxyType(
    {
        WriteRowsEvent: Unit._rows,
        UpdateRowsEvent: Unit._rows,
        DeleteRowsEvent: Unit._rows,
        QueryEvent: Unit._query,
        ExecuteLoadQueryEvent: Unit._statement,
        LoadEvent: Unit._statement,
        CreateFileEvent: Unit._statement,
        ExecuteLoadEvent: Unit._statement,
        PreGaRowsEvent: Unit._undecoded,
    }
)


class TransactionGrouper:
    """Feed it events; ``next_unit`` gives one unit after the other, each as soon as it is known what it is."""

    def __init__(self, has_gtids: bool = False) -> None:
        self.progress = Progress("", 0, None, has_gtids)
        self._unit: Unit | None = None
        self._given: Unit | None = None
        self._restarted: TransactionRestarted | None = None

    @property
    def unit(self) -> Unit | None:
        """The one that came last."""
        return self._unit

    def stands_behind(self, unit: Unit) -> bool:
        """Whether nothing but what stands between transactions has come behind a unit, or its end was lost."""
        return unit is self._unit or (unit is self._given and not unit.is_left)

    def next_unit(self) -> Unit | None:
        """The unit behind the one of the last call; None as long as it takes more events to say."""
        if self._given is not None:
            self._given.leave()
        unit = self._unit
        if unit is None or unit is self._given or not (unit.has_head or unit.outcome):
            return None
        self._given = unit
        return unit

    def feed(self, event: Event, file: str = "", position: int = 0) -> None:
        """Take in the next event, which ends at ``position`` of ``file``.

        Raises ``LostEventsError`` for the source's word that events are missing; one can go on behind it.
        """
        kind, progress = type(event), self.progress
        if kind in _RARE:
            self._rare(event, file, position)
            return
        was_open = progress.in_transaction
        # A GTID begins one in any case: the end of the one before is lost.
        begins = kind in _GTIDS or progress.begins(event)
        is_between = progress.follow(event, file, position)
        if was_open and (begins or (is_between and kind in _FILE_STARTS)):
            # The source has crashed within it, and lost it.
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
        "What it changed then is in no log: copy the tables anew, and start behind this place"
    )
