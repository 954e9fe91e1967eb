"""GTIDs of the served files: of the whole log, of the deleted files, and of everything before a position.

Each file starts with the GTIDs of the files before it. Its own are read from its GTID events, once; later only the
added events are read. Other tasks get a turn after every 256 KB.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from protocol.binlog.events import AnonymousGtidEvent, GtidEvent, MariadbGtidEvent
from protocol.constants import EVENT_TYPE_OFFSET, EventType
from protocol.gtid import Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.position import FIRST_POSITION

from .served_log import FileEvents, FileHead, ServedLog

_GTID_TYPES: Final = frozenset(
    {EventType.GTID, EventType.GTID_TAGGED, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID}
)
# Stands for the GTID of a transaction without one.
ANONYMOUS: Final = None


class MariadbState:
    """The last transaction of each domain, and of each server in a domain, as in MariaDB's ``rpl_binlog_state``."""

    def __init__(self, gtids: Iterable[MariadbGtid] = ()) -> None:
        self.last = MariadbGtidSet()
        self._sequences: dict[tuple[int, int], int] = {}
        for gtid in gtids:
            self.add(gtid)

    def add(self, gtid: MariadbGtid) -> None:
        """Add the next transaction of the log."""
        self.last.add(gtid)
        self._sequences[gtid.domain_id, gtid.server_id] = gtid.sequence

    def has_reached(self, gtid: MariadbGtid) -> bool:
        """Whether the log holds this transaction, or a later one of the same server and domain."""
        return self._sequences.get((gtid.domain_id, gtid.server_id), -1) >= gtid.sequence

    def last_of(self, domain_id: int) -> MariadbGtid | None:
        """The last transaction of a domain."""
        return next((gtid for gtid in self.last if gtid.domain_id == domain_id), None)

    def gtids(self) -> list[MariadbGtid]:
        """The entries of a GTID_LIST: each server's last GTID, by domain, with the domain's last transaction last."""
        last = {gtid.domain_id: gtid.server_id for gtid in self.last}
        found = [MariadbGtid(*key, sequence) for key, sequence in self._sequences.items()]
        return sorted(found, key=lambda gtid: (gtid.domain_id, last[gtid.domain_id] == gtid.server_id))


class LogGtids:
    """The GTIDs of a log, read when they are first needed."""

    def __init__(self, log: ServedLog) -> None:
        self._log = log
        self._lock = asyncio.Lock()
        self._file = ""
        self._position = 0
        self._executed: GtidSet | None = None
        self._state: MariadbState | None = None
        self._is_anonymous = False

    async def mode(self) -> str:
        """gtid_mode, derived from the log: "ON" if its last transaction has a GTID."""
        await self._read_on()
        if self._executed is None or self._is_anonymous:
            return "OFF"
        # Servers without GTIDs write empty sets since 5.7. A log of one file without transactions says nothing yet.
        return "ON" if self._executed or len(self._log.names) == 1 else "OFF"

    async def executed(self) -> GtidSet:
        """MySQL: gtid_executed, all transactions up to the log's end."""
        await self._read_on()
        return GtidSet() if self._executed is None else self._executed.copy()

    def purged(self) -> GtidSet:
        """MySQL: gtid_purged, the transactions of deleted files."""
        for name in self._log.names:
            head = self._log.head(name)
            if head is not None and isinstance(head.previous, GtidSet):
                return head.previous.copy()
        return GtidSet()

    async def state(self) -> MariadbState:
        """MariaDB: gtid_binlog_state, the last transactions of the log."""
        await self._read_on()
        return MariadbState() if self._state is None else self._state

    async def end(self) -> tuple[str, int]:
        """File and position of the log's end, after the last complete event."""
        await self._read_on()
        return self._file, self._position

    async def state_at(self, file: str, position: int) -> MariadbGtidSet | None:
        """MariaDB: the GTID state before a position; None if no event starts there (``gtid_state_from_pos``)."""
        head = self._log.head(file) if file in self._log.names else None
        if head is None or not isinstance(head.previous, tuple):
            return None
        state = MariadbState(head.previous)
        if position <= head.first_event:
            return state.last if position <= FIRST_POSITION or position == head.first_event else None
        end = head.first_event
        decoder = head.decoder(file, end)
        with self._log.open(file, end) as events:
            while end < position and (batch := events.read()):
                for raw in batch:
                    if end >= position:
                        break
                    end += len(raw)
                    if raw[EVENT_TYPE_OFFSET] == EventType.MARIADB_GTID:
                        event = decoder.decode(raw)
                        assert isinstance(event, MariadbGtidEvent)
                        state.add(event.gtid)
                await asyncio.sleep(0)
        return state.last if end == position else None

    async def _read_on(self) -> None:
        """Read the events added to the newest file that is not empty."""
        async with self._lock:
            for name in reversed(self._log.names):
                head = self._log.head(name)
                if head is not None:
                    break
            else:
                return
            if name != self._file:
                self._begin(name, head)
            with self._log.open(name, self._position) as events:
                async for gtid, end in _gtids(events, head, name):
                    self._add(gtid)
                    self._position = end
                self._position = events.position

    def _begin(self, name: str, head: FileHead) -> None:
        self._file, self._position = name, head.first_event
        self._executed = head.previous.copy() if isinstance(head.previous, GtidSet) else None
        self._state = MariadbState(head.previous) if isinstance(head.previous, tuple) else None

    def _add(self, gtid: Gtid | MariadbGtid | None) -> None:
        self._is_anonymous = gtid is ANONYMOUS
        if isinstance(gtid, Gtid) and self._executed is not None:
            self._executed.add(gtid)
        elif isinstance(gtid, MariadbGtid) and self._state is not None:
            self._state.add(gtid)


async def _gtids(
    events: FileEvents, head: FileHead, file: str
) -> AsyncIterator[tuple[Gtid | MariadbGtid | None, int]]:
    """Each transaction that starts in ``events``: its GTID, and the end position of its GTID event."""
    decoder = head.decoder(file, events.position)
    end = events.position
    while batch := events.read():
        for raw in batch:
            end += len(raw)
            if raw[EVENT_TYPE_OFFSET] in _GTID_TYPES:
                event = decoder.decode(raw)
                if isinstance(event, GtidEvent | MariadbGtidEvent):
                    yield event.gtid, end
                elif isinstance(event, AnonymousGtidEvent):
                    yield ANONYMOUS, end
        await asyncio.sleep(0)


async def first_gtid(events: FileEvents, head: FileHead, file: str) -> Gtid | MariadbGtid | None:
    """The GTID of the first transaction in ``events``; None if there is none, or it has no GTID."""
    async for gtid, _ in _gtids(events, head, file):
        return gtid
    return None
