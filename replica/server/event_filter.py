"""Skips the transactions that a replica already has: decides which events of the files are sent.

One class per family follows the server: MySQL's ``Binlog_sender::skip_event``, MariaDB's ``send_event_to_slave``.
After skipped events the replica is told the position. One thing differs from MariaDB, which skips ANNOTATE_ROWS for
replicas that have not asked for it: since 11.4 the events after it have no positions, so that a replica that loses
its connection there resumes at a wrong position. Here ANNOTATE_ROWS is always sent; all replicas understand it.
"""

from collections.abc import Callable
from typing import Final, Protocol

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import GtidEvent, MariadbGtidEvent
from protocol.constants import CHECKSUM_SIZE, EVENT_SIZE_OFFSET, EVENT_TYPE_OFFSET, ROW_CODES, EventType
from protocol.gtid import GtidSet, MariadbGtid
from protocol.wire import unpack_u32

from . import artificial
from .gtids import MariadbState
from .refusals import Refusals

_GTID: Final = frozenset({EventType.GTID, EventType.GTID_TAGGED})
# Outside all transactions: sent even if the transaction before it was skipped.
_OUTSIDE: Final = frozenset({EventType.ROTATE})
# Log_event::is_part_of_group: events between the GTID and the last event of a group that has no commit.
_INSIDE: Final = frozenset(
    {
        *(code[0] for code in ROW_CODES),
        EventType.MARIADB_GTID,
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.BEGIN_LOAD_QUERY,
        EventType.APPEND_BLOCK,
    }
)
_COMMITTING: Final = frozenset({EventType.XID, EventType.XA_PREPARE})
_COMMIT: Final = (b"\0COMMIT", b"\0ROLLBACK")

# Makes a heartbeat event that tells the replica this position.
MakeHeartbeat = Callable[[int], bytes]


class EventFilter(Protocol):
    """Selects from the events of one dump, in order."""

    def enter(self, decoder: EventDecoder) -> None:
        """The next event belongs to another file."""

    def select(self, events: list[bytes], position: int) -> list[bytes]:
        """The events to send out of ``events``, the first of which is at ``position``.

        A large event that is neither a GTID nor a commit may be given by its header alone.
        """

    def rest(self, position: int) -> list[bytes]:
        """The events to send at the end of the log as it is now."""


class AllEvents:
    """All events."""

    def enter(self, decoder: EventDecoder) -> None:
        """Nothing changes."""

    def select(self, events: list[bytes], position: int) -> list[bytes]:
        """All of them."""
        return events

    def rest(self, position: int) -> list[bytes]:
        """Nothing."""
        return []


class WithoutGtids:
    """MySQL: skips the transactions of a GTID set. A heartbeat tells the replica where skipped transactions end.

    A transaction without a GTID is refused: the set does not say whether the replica has it.
    """

    def __init__(self, gtids: GtidSet, make_heartbeat: MakeHeartbeat, refusals: Refusals) -> None:
        self._gtids = gtids
        self._make_heartbeat = make_heartbeat
        self._refusals = refusals
        self._decoder = EventDecoder()
        self._is_skipping = False
        self._owes_position = False

    def enter(self, decoder: EventDecoder) -> None:
        """The next event belongs to another file."""
        self._decoder = decoder
        self._is_skipping = False

    def select(self, events: list[bytes], position: int) -> list[bytes]:
        """The events of all other transactions. Raises ``DumpRefusedError`` for a transaction without a GTID."""
        chosen: list[bytes] = []
        for raw in events:
            kind = raw[EVENT_TYPE_OFFSET]
            if kind in _GTID:
                event = self._decoder.decode(raw)
                self._is_skipping = isinstance(event, GtidEvent) and event.gtid in self._gtids
            elif kind == EventType.ANONYMOUS_GTID:
                raise self._refusals.anonymous(self._decoder.file, position)
            if self._is_skipping and kind not in _OUTSIDE:
                self._owes_position = True
            else:
                chosen += (*self.rest(position), raw)
            position += unpack_u32(raw, EVENT_SIZE_OFFSET)[0]
        return chosen

    def rest(self, position: int) -> list[bytes]:
        """A heartbeat with the end of the skipped transactions, if none has been sent since."""
        if not self._owes_position:
            return []
        self._owes_position = False
        return [self._make_heartbeat(position)]


class AfterGtidState:
    """MariaDB: skips each domain up to and including the replica's last transaction in it.

    ``state`` holds these last transactions by domain, ``known`` the state of the whole log. A GTID_LIST with the
    source's ``server_id`` tells the replica the position where a domain continues. ``strict``: the dump is refused
    if the log has later transactions of a domain, but not the replica's last one.
    """

    def __init__(
        self,
        state: dict[int, MariadbGtid],
        known: MariadbState,
        server_id: int,
        refusals: Refusals,
        *,
        strict: bool,
    ) -> None:
        self._state = state
        self._unseen_domains = {domain for domain in state if known.last_of(domain) is None}
        self._server_id = server_id
        self._refusals = refusals
        self._strict = strict
        self._decoder = EventDecoder()
        # Whether an event is the last one of the group that is being skipped; None if no group is.
        self._ends_skipped_group: Callable[[bytes], bool] | None = None
        self._owes_position = False
        self._passed = MariadbState()

    def enter(self, decoder: EventDecoder) -> None:
        """The next event belongs to another file."""
        self._decoder = decoder

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to skip."""
        return not self._state

    def select(self, events: list[bytes], position: int) -> list[bytes]:
        """The events to send. Raises ``DumpRefusedError`` if the log lacks the replica's last transaction."""
        if not self._state and self._ends_skipped_group is None:
            return events
        chosen: list[bytes] = []
        for raw in events:
            position += unpack_u32(raw, EVENT_SIZE_OFFSET)[0]
            if raw[EVENT_TYPE_OFFSET] == EventType.MARIADB_GTID and self._state:
                self._begin_group(raw)
            if self._ends_skipped_group is None:
                chosen.append(raw)
            elif self._ends_skipped_group(raw):
                self._ends_skipped_group = None
            if self._owes_position and self._ends_skipped_group is None:
                chosen.append(self._gtid_list(position))
                self._owes_position = False
        return chosen

    def rest(self, position: int) -> list[bytes]:
        """Nothing: a GTID_LIST is only sent where a domain continues."""
        return []

    def _gtid_list(self, position: int) -> bytes:
        has_checksum = self._decoder.checksum_enabled
        return artificial.gtid_list(
            self._server_id, self._passed.gtids(), position, has_checksum=has_checksum
        )

    def _begin_group(self, raw: bytes) -> None:
        """Decide whether the next transaction is skipped, and whether its domain continues after it."""
        event = self._decoder.decode(raw)
        assert isinstance(event, MariadbGtidEvent)
        gtid = event.gtid
        self._passed.add(gtid)
        wanted = self._state.get(gtid.domain_id)
        if wanted is None:
            return
        is_same = gtid.server_id == wanted.server_id
        if gtid.domain_id in self._unseen_domains:
            # The log held nothing of this domain when the dump started.
            self._unseen_domains.discard(gtid.domain_id)
            if not is_same or gtid.sequence > wanted.sequence:
                raise self._refusals.unknown_gtid(wanted, has_diverged=gtid.sequence >= wanted.sequence)
        if not is_same or gtid.sequence <= wanted.sequence:
            self._ends_skipped_group = _ends_statement if event.is_standalone else self._commits
        if is_same and gtid.sequence >= wanted.sequence:
            if self._strict and gtid.sequence > wanted.sequence:
                raise self._refusals.gtid_in_a_hole(wanted)
            self._owes_position = True
            del self._state[gtid.domain_id]

    def _commits(self, raw: bytes) -> bool:
        kind = raw[EVENT_TYPE_OFFSET]
        if kind != EventType.QUERY:
            return kind in _COMMITTING
        end = len(raw) - CHECKSUM_SIZE * self._decoder.checksum_enabled
        return raw[:end].endswith(_COMMIT)


def _ends_statement(raw: bytes) -> bool:
    return raw[EVENT_TYPE_OFFSET] not in _INSIDE
