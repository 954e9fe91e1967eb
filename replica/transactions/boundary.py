"""``Progress``: the last transaction boundary in the log, and the GTIDs before it.

It follows the events that MySQL and MariaDB write around a transaction, and knows no connection. As recorded:

    MySQL     GTID or ANONYMOUS_GTID, then QUERY "BEGIN" ... XID or QUERY "COMMIT"
              (5.6 without GTIDs: no first event), or one QUERY (DDL);
              QUERY "XA START" ... XA_PREPARE, and a QUERY "XA COMMIT" of its own
    MariaDB   GTID ... XID, QUERY "COMMIT" or XA_PREPARE; with the flag standalone: GTID, one QUERY
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from protocol.binlog.events import (
    AnonymousGtidEvent,
    DeleteRowsEvent,
    Event,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.constants import ENDING_STATEMENTS
from protocol.errors import DecodeError
from protocol.gtid import AnyGtidSet, Gtid, MariadbGtid, MariadbGtidSet, uuid_of

# The first event of a transaction, on servers that write one.
_FIRST: Final = frozenset({AnonymousGtidEvent, GtidEvent, MariadbGtidEvent})
_OPENING: Final = ("BEGIN", "XA START")


class State(Enum):
    """Whether a transaction is open at this point of the log."""

    OUTSIDE = "no transaction is open"
    ANNOUNCED = "its GTID has come; what follows says whether it is a transaction or one statement"
    OPEN = "its end is to come"


# An attribute of an Enum costs more than a name.
OUTSIDE: Final = State.OUTSIDE
OPEN: Final = State.OPEN


class Progress:
    """``file`` and ``position`` are the end of the last finished transaction in the source's log.

    ``gtid_set`` holds all transactions before that place. It is None if they are unknown: after a start in the middle
    of a file until the next file begins, and always without ``has_gtids``. ``begun`` is the name of a file and the
    time at which the source began it, as its format description says; None before the first one. ``unlogged``: see
    ``Source``; a file of MariaDB does not list it.
    """

    def __init__(self, file: str, position: int, gtid_set: AnyGtidSet | None, has_gtids: bool) -> None:
        self.file = file
        self.position = position
        self.gtid_set = None if gtid_set is None else gtid_set.copy()
        self._has_gtids = has_gtids
        self.begun: tuple[str, int] | None = None
        self.unlogged: tuple[MariadbGtid, ...] = ()
        self.state = State.OUTSIDE
        self._gtid: Gtid | MariadbGtid | None = None
        # Whether the last transaction that began is of MySQL and has no GTID.
        self.is_anonymous = False

    @property
    def resume_set(self) -> AnyGtidSet | None:
        """The GTID set to go on by on any server; None if it is not known, or others may lack a GTID, too.

        A source that is asked by GTIDs passes over files that have none outside of the set, and over transactions
        without GTIDs in them.
        """
        return None if self.is_anonymous else self.gtid_set

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self.state is not State.OUTSIDE

    @property
    def file_begun(self) -> int | None:
        """The time at which the source began ``file``; None if it is not known."""
        return self.begun[1] if self.begun is not None and self.begun[0] == self.file else None

    @property
    def open_gtid(self) -> Gtid | MariadbGtid | None:
        """The GTID of the open transaction; None without one."""
        return self._gtid

    def begins(self, event: Event) -> bool:
        """Whether ``event``, as the next event of the log, begins a transaction."""
        return self.state is State.OUTSIDE and type(event) in BEGINNING

    def follow(self, event: Event, file: str, position: int) -> bool:
        """Take in the next event; ``file`` and ``position`` are the place after it.

        Returns whether that place lies between two transactions.
        """
        step = STEPS.get(type(event))
        if step is not None:
            step(self, event)
        if self.state is not State.OUTSIDE:
            return False
        self.file, self.position = file, position
        return True

    def follow_all(self, events: Sequence[Event], end: tuple[str, int] | None = None) -> int:
        """Take in consecutive events. Returns how many of them lie before the last place between two transactions.

        ``end`` is the place after all of them if they are parts of one event of the log (a compressed transaction).
        No event may be of the decoder's types ``ALONE``. Only the events after the last end of a transaction are
        followed one by one, and not even these if they are rows of an open transaction.
        """
        if self.state is OPEN and INSIDE.issuperset(map(type, events)):
            return 0
        closed = len(events)
        while closed and not _closes(events[closed - 1]):
            closed -= 1
        if closed:
            if self.gtid_set is not None:
                self._add_gtids(events[:closed])
            if self._has_gtids:
                self._note_kind(events[:closed])
            self.state, self._gtid = State.OUTSIDE, None
            self.file, self.position = end or place_behind(events[closed - 1])
        for number in range(closed, len(events)):
            event = events[number]
            if self.follow(event, *(end or place_behind(event))):
                closed = number + 1
        return closed

    def _add_gtids(self, events: Sequence[Event]) -> None:
        """Add the GTID of the open transaction and the GTIDs of ``events``, the last of which ends a transaction."""
        assert self.gtid_set is not None
        if self._gtid is not None:
            self._add(self._gtid)
        if isinstance(self.gtid_set, MariadbGtidSet):
            newest = {event.gtid.domain_id: event.gtid for event in events if type(event) is MariadbGtidEvent}
            for gtid in newest.values():
                self.gtid_set.add(gtid)
            return
        # Consecutive GTIDs of one source are added as one interval.
        source_id, first, last = b"", 0, 0
        for logged in [event.gtid_fields for event in events if type(event) is GtidEvent]:
            if type(logged) is not tuple:
                self.gtid_set.add(logged)
            elif last and logged[1] == last + 1 and logged[0] == source_id:
                last += 1
            else:
                if last:
                    self.gtid_set.add_interval(uuid_of(source_id), first, last)
                (source_id, first), last = logged, logged[1]
        if last:
            self.gtid_set.add_interval(uuid_of(source_id), first, last)

    def _note_kind(self, events: Sequence[Event]) -> None:
        """Note whether the last transaction of ``events`` has a GTID."""
        for event in reversed(events):
            if type(event) in _FIRST:
                self.is_anonymous = type(event) is AnonymousGtidEvent
                return

    def reopen(self) -> None:
        """Go back to the last boundary: the log is read again from there."""
        self.state, self._gtid = State.OUTSIDE, None

    def copy(self) -> "Progress":
        """An independent copy."""
        other = Progress(self.file, self.position, self.gtid_set, self._has_gtids)
        other.state, other._gtid, other.begun = self.state, self._gtid, self.begun
        other.is_anonymous, other.unlogged = self.is_anonymous, self.unlogged
        return other

    def idle(self, file: str, position: int) -> None:
        """The source has sent everything up to this place. It may have skipped transactions without an event."""
        if self.state is State.OUTSIDE and file == self.file and position > self.position:
            self.position = position

    def _finish(self, event: Event | None = None) -> None:
        self.state = State.OUTSIDE
        gtid, self._gtid = self._gtid, None
        if gtid is not None and self.gtid_set is not None:
            self._add(gtid)

    def _add(self, gtid: Gtid | MariadbGtid) -> None:
        if isinstance(gtid, MariadbGtid) is not isinstance(self.gtid_set, MariadbGtidSet):
            raise DecodeError(f"the log has the GTID {gtid}, and the other family's GTID sets", self.file)
        self.gtid_set.add(gtid)  # type: ignore[union-attr, arg-type]

    def _anonymous(self, event: AnonymousGtidEvent) -> None:
        self.state, self._gtid, self.is_anonymous = State.ANNOUNCED, None, True

    def _gtid_begins(self, event: GtidEvent) -> None:
        self.state, self._gtid, self.is_anonymous = State.ANNOUNCED, event.gtid, False

    def _mariadb_gtid_begins(self, event: MariadbGtidEvent) -> None:
        self.state = State.ANNOUNCED if event.is_standalone else State.OPEN
        self._gtid = event.gtid

    def _query(self, event: QueryEvent) -> None:
        if self.state is not State.OPEN:
            if event.sql.startswith(_OPENING):
                self.state = State.OPEN
            else:
                self._finish()
        elif event.sql in ENDING_STATEMENTS:
            self._finish()

    def _inside(self, event: Event) -> None:
        self.state = State.OPEN

    def _format_description(self, event: FormatDescriptionEvent) -> None:
        # No transaction is open at the start of a file: the source lost an unfinished one in a crash. A format
        # description without a position precedes a start in the middle of a file.
        if event.header.next_position:
            self.state, self._gtid = State.OUTSIDE, None

    def _rotate(self, event: RotateEvent) -> None:
        if event.header.next_position:
            self.state, self._gtid = State.OUTSIDE, None

    def _previous_gtids(self, event: PreviousGtidsEvent) -> None:
        if self.gtid_set is None and self._has_gtids:
            self.gtid_set = event.gtid_set.copy()

    def _gtid_list(self, event: MariadbGtidListEvent) -> None:
        if self.gtid_set is None:
            self.gtid_set = MariadbGtidSet([*self.unlogged, *event.gtids])


STEPS: Final[Mapping[type[Event], Callable[[Progress, Any], None]]] = MappingProxyType(
    {
        AnonymousGtidEvent: Progress._anonymous,
        GtidEvent: Progress._gtid_begins,
        MariadbGtidEvent: Progress._mariadb_gtid_begins,
        QueryEvent: Progress._query,
        XidEvent: Progress._finish,
        XaPrepareEvent: Progress._finish,
        TransactionPayloadEvent: Progress._finish,
        IncidentEvent: Progress._finish,
        TableMapEvent: Progress._inside,
        WriteRowsEvent: Progress._inside,
        UpdateRowsEvent: Progress._inside,
        DeleteRowsEvent: Progress._inside,
        FormatDescriptionEvent: Progress._format_description,
        RotateEvent: Progress._rotate,
        PreviousGtidsEvent: Progress._previous_gtids,
        MariadbGtidListEvent: Progress._gtid_list,
    }
)
#: Events that leave an open transaction open.
INSIDE: Final = frozenset({TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})
#: Events that end a transaction, whatever events came before.
_ALWAYS_CLOSING: Final = frozenset({XidEvent, XaPrepareEvent, IncidentEvent})


def _closes(event: Event) -> bool:
    kind = type(event)
    return kind in _ALWAYS_CLOSING or (kind is QueryEvent and event.sql in ENDING_STATEMENTS)  # type: ignore[attr-defined]


def place_behind(event: Event) -> tuple[str, int]:
    """File and position after an event that is not part of a compressed transaction."""
    return event.file, event.position + event.header_fields[3]


BEGINNING: Final = frozenset({AnonymousGtidEvent, GtidEvent, MariadbGtidEvent, QueryEvent, TableMapEvent})
