"""Which events of the files a replica is sent: without the transactions that it has.

One class per family, as the servers do it: MySQL's ``Binlog_sender::skip_event`` and MariaDB's
``send_event_to_slave``. Where something was left out the replica is told the place behind it. One thing is otherwise
here: MariaDB leaves ANNOTATE_ROWS out for replicas that have not asked for it, and as the events behind it have no
positions since 11.4, a replica that lost its connection there goes on at a wrong place. All replicas understand it.
"""

from collections.abc import Callable
from typing import Final, Protocol

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import GtidEvent, MariadbGtidEvent
from protocol.constants import CHECKSUM_SIZE, ROW_CODES, EventType
from protocol.gtid import GtidSet, MariadbGtid

from . import artificial
from .gtids import MariadbState
from .refusals import Refusals

_TYPE_OFFSET: Final = 4
_GTID: Final = frozenset({EventType.GTID, EventType.GTID_TAGGED})
# Sent whatever transaction was left out before: it is of none.
_OUTSIDE: Final = frozenset({EventType.ROTATE})
# Log_event::is_part_of_group: what may stand between the GTID and the end of a group without a commit.
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

# Tells a place: makes the event that says that the log goes on there.
TellPlace = Callable[[int], bytes]


class Choice(Protocol):
    """Chooses from the events of one dump, in order."""

    def enter(self, decoder: EventDecoder) -> None:
        """What comes next is of another file."""

    def choose(self, events: list[bytes], position: int) -> list[bytes]:
        """What is sent of these events, the first of which stands at ``position``."""

    def rest(self, position: int) -> list[bytes]:
        """What is sent where there is nothing more to choose from for now."""


class Everything:
    """All events."""

    def enter(self, decoder: EventDecoder) -> None:
        """Nothing changes."""

    def choose(self, events: list[bytes], position: int) -> list[bytes]:
        """Just these."""
        return events

    def rest(self, position: int) -> list[bytes]:
        """Nothing."""
        return []


class WithoutGtids:
    """MySQL: without the transactions of a set. Heartbeats (``tell``) say where those end that are left out.

    Of a transaction without a GTID nobody can tell whether the replica has it: it is refused.
    """

    def __init__(self, gtids: GtidSet, tell: TellPlace, refusals: Refusals) -> None:
        self._gtids = gtids
        self._tell = tell
        self._refusals = refusals
        self._decoder = EventDecoder()
        self._is_skipping = False
        self._is_untold = False

    def enter(self, decoder: EventDecoder) -> None:
        """What comes next is of another file."""
        self._decoder = decoder
        self._is_skipping = False

    def choose(self, events: list[bytes], position: int) -> list[bytes]:
        """What is sent of these events."""
        chosen: list[bytes] = []
        for raw in events:
            kind = raw[_TYPE_OFFSET]
            if kind in _GTID:
                event = self._decoder.decode(raw)
                self._is_skipping = isinstance(event, GtidEvent) and event.gtid in self._gtids
            elif kind == EventType.ANONYMOUS_GTID:
                raise self._refusals.anonymous(self._decoder.file, position)
            if self._is_skipping and kind not in _OUTSIDE:
                self._is_untold = True
            else:
                chosen += (*self.rest(position), raw)
            position += len(raw)
        return chosen

    def rest(self, position: int) -> list[bytes]:
        """The end of what was left out, if that has not been told yet."""
        if not self._is_untold:
            return []
        self._is_untold = False
        return [self._tell(position)]


class BehindState:
    """MariaDB: of each domain what comes behind the replica's last transaction.

    ``state`` are these transactions, ``known`` what the log holds in all. A GTID_LIST with the source's
    ``server_id`` tells the place where a domain goes on. ``strict``: it is an error if the log passes over a
    transaction of the replica.
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
        self._unknown = {domain for domain in state if known.last_of(domain) is None}
        self._server_id = server_id
        self._refusals = refusals
        self._strict = strict
        self._decoder = EventDecoder()
        self._skips_to: Callable[[bytes], bool] | None = None  # the end of the group that is left out
        self._is_untold = False
        self._passed = MariadbState()

    def enter(self, decoder: EventDecoder) -> None:
        """What comes next is of another file."""
        self._decoder = decoder

    @property
    def has_begun(self) -> bool:
        """Whether all that was asked to be left out lies behind."""
        return not self._state

    def choose(self, events: list[bytes], position: int) -> list[bytes]:
        """What is sent of these events. ``DumpRefusedError`` where the log does not hold the replica's place."""
        if not self._state and self._skips_to is None:
            return events
        chosen: list[bytes] = []
        for raw in events:
            position += len(raw)
            if raw[_TYPE_OFFSET] == EventType.MARIADB_GTID and self._state:
                self._meet(raw)
            if self._skips_to is None:
                chosen.append(raw)
            elif self._skips_to(raw):
                self._skips_to = None
            if self._is_untold and self._skips_to is None:
                chosen.append(self._tell(position))
                self._is_untold = False
        return chosen

    def rest(self, position: int) -> list[bytes]:
        """Nothing: what is left out belongs to a domain that goes on later."""
        return []

    def _tell(self, position: int) -> bytes:
        has_checksum = self._decoder.checksum_enabled
        return artificial.gtid_list(
            self._server_id, self._passed.gtids(), position, has_checksum=has_checksum
        )

    def _meet(self, raw: bytes) -> None:
        """The next transaction: is it left out, and is it where its domain goes on?"""
        event = self._decoder.decode(raw)
        assert isinstance(event, MariadbGtidEvent)
        gtid = event.gtid
        self._passed.add(gtid)
        wanted = self._state.get(gtid.domain_id)
        if wanted is None:
            return
        is_same = gtid.server_id == wanted.server_id
        if gtid.domain_id in self._unknown:
            # Nothing of this domain was in the log when the replica came.
            self._unknown.discard(gtid.domain_id)
            if not is_same or gtid.sequence > wanted.sequence:
                raise self._refusals.unknown_gtid(wanted, has_diverged=gtid.sequence >= wanted.sequence)
        if not is_same or gtid.sequence <= wanted.sequence:
            self._skips_to = _ends_statement if event.is_standalone else self._commits
        if is_same and gtid.sequence >= wanted.sequence:
            if self._strict and gtid.sequence > wanted.sequence:
                raise self._refusals.gtid_in_a_hole(wanted)
            self._is_untold = True
            del self._state[gtid.domain_id]

    def _commits(self, raw: bytes) -> bool:
        kind = raw[_TYPE_OFFSET]
        if kind != EventType.QUERY:
            return kind in _COMMITTING
        end = len(raw) - CHECKSUM_SIZE * self._decoder.checksum_enabled
        return raw[:end].endswith(_COMMIT)


def _ends_statement(raw: bytes) -> bool:
    return raw[_TYPE_OFFSET] not in _INSIDE
