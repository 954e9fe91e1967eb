"""One client's stay: login, statements, registration, and the dump, until either side ends it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.constants import DumpFlag
from protocol.conversation.commands import (
    BinlogDump,
    BinlogDumpGtid,
    Query,
    Quit,
    RegisterReplica,
    SemiSyncAck,
)
from protocol.conversation.messages import Err
from protocol.conversation.server_errors import Phase
from protocol.conversation.source_side import LoggedIn
from protocol.errors import ConfigurationError, DecodeError
from protocol.position import BinlogPosition

from .answers import Answers, Client
from .beginning import Beginnings
from .peer import ClientGoneError, Peer
from .refusals import DumpRefusedError, Refusals
from .replica_sql import SqlError
from .replicas import ConnectedReplica, Replicas
from .send_dump import Dump, DumpOptions
from .variables import Facts

# Of MySQL's replicas since 8.0.26, and of all others.
_REPLICA_UUID: Final = ("replica_uuid", "slave_uuid")
_HEARTBEAT_PERIOD: Final = ("source_heartbeat_period", "master_heartbeat_period")
_CHECKSUM: Final = ("source_binlog_checksum", "master_binlog_checksum")
_SEMI_SYNC: Final = ("rpl_semi_sync_replica", "rpl_semi_sync_slave")
_NANOSECONDS: Final = 1_000_000_000
_UNKNOWN_ERROR: Final = 1105
# What reading files raises that have been damaged or removed meanwhile.
_UNREADABLE: Final = (OSError, ConfigurationError, DecodeError)


@dataclass(frozen=True, slots=True)
class House:
    """What all conversations of a server share."""

    facts: Facts
    replicas: Replicas
    clients: Callable[[], Sequence[Client]]
    kill: Callable[[int], bool]
    poll_interval: float
    idle_timeout: float


class Conversation:
    """One client's. ``log_in`` first, then ``run``; both raise ``ClientGoneError`` and what the acceptor raises."""

    def __init__(self, house: House, peer: Peer, client: Client) -> None:
        self._house = house
        self._peer = peer
        self.client = client
        self._registered: RegisterReplica | None = None
        self._answers = Answers(house.facts, client, house.clients, lambda: list(house.replicas), house.kill)

    async def log_in(self) -> None:
        """Greet, and return when the client has proved who it is."""
        event = await self._peer.next_event()
        assert isinstance(event, LoggedIn)
        self.client.user = event.user
        self.client.tls_cipher = self._peer.cipher

    async def run(self) -> None:
        """Do what the client asks, until it leaves."""
        acceptor = self._peer.acceptor
        while True:
            async with asyncio.timeout(self._house.idle_timeout):
                event = await self._peer.next_event()
            if isinstance(event, Query):
                await self._query(event.sql)
            elif isinstance(event, RegisterReplica):
                self._registered = event
                acceptor.send_ok()
            elif isinstance(event, BinlogDump | BinlogDumpGtid):
                await self._dump(event)
            elif isinstance(event, Quit):
                return
            await self._peer.flush()

    async def _query(self, sql: str) -> None:
        acceptor = self._peer.acceptor
        try:
            answer = await self._answers.answer(sql)
        except SqlError as error:
            acceptor.send_error(error.err)
            return
        except _UNREADABLE as error:
            acceptor.send_error(Err(_UNKNOWN_ERROR, "HY000", f"the binary log cannot be read: {error}"))
            return
        if answer is None:
            acceptor.send_ok()
        else:
            acceptor.send_rows(answer.columns, answer.rows, answer.numbers)

    # The dump

    async def _dump(self, command: BinlogDump | BinlogDumpGtid) -> None:
        replica = self._replica(command)
        dump, beginnings = self._make_dump(command, replica)
        variables = self.client.variables

        async def send() -> None:
            try:
                beginning = await beginnings.find(command, variables, dump.tell_place)
            except _UNREADABLE as error:
                raise Refusals(self._version).unreadable_file(str(error)) from error
            await dump.run(beginning)

        self._house.facts.log.refresh()
        sending = asyncio.create_task(send())
        replica.task = sending
        self._house.replicas.add(replica)
        listening = asyncio.create_task(self._listen(replica))
        try:
            await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and listening.exception() is None:
                # All has been sent, and the client's next command has come.
                await asyncio.wait({sending})
        finally:
            self._house.replicas.remove(replica)
            # A dump that has ended in order has been told so already; who stops listening has left.
            for task in (sending, listening):
                task.cancel()
            await asyncio.gather(sending, listening, return_exceptions=True)
        self._settle(sending, listening, dump, replica)

    def _settle(
        self,
        sending: asyncio.Task[None],
        listening: asyncio.Task[None],
        dump: Dump,
        replica: ConnectedReplica,
    ) -> None:
        """What came of a dump: refused, replaced by a twin, left by the client, or ended in order."""
        if replica.was_replaced and self._peer.acceptor.phase is Phase.DUMP:
            self._peer.acceptor.send_error(Refusals(self._version).twin(dump.place()).err)
            return
        for task in (listening, sending):
            error = None if task.cancelled() else task.exception()
            if isinstance(error, DumpRefusedError):
                self._peer.acceptor.send_error(error.err)
            elif error is not None:
                raise error
        if sending.cancelled():
            raise ClientGoneError

    @property
    def _version(self) -> str:
        return self._house.facts.identity.version

    def _make_dump(
        self, command: BinlogDump | BinlogDumpGtid, replica: ConnectedReplica
    ) -> tuple[Dump, Beginnings]:
        facts, acceptor = self._house.facts, self._peer.acceptor
        identity = facts.identity
        refusals = Refusals(self._version)
        beginnings = Beginnings(facts.log, facts.gtids, refusals, identity.server_id, identity.server_uuid)
        acceptor.semi_sync = facts.semi_sync and _first(self.client.variables, _SEMI_SYNC) == "1"
        options = DumpOptions(
            waits=bool(command.server_id) and not command.flags & DumpFlag.NON_BLOCK,
            heartbeat=_heartbeat(self.client.variables),
            has_long_heartbeats=beginnings.has_long_heartbeats(command.flags, self._version),
            has_checksums=_has_checksums(self.client.variables),
            poll_interval=self._house.poll_interval,
            asks_for_acknowledgements=acceptor.semi_sync,
        )
        dump = Dump(facts.log, acceptor, self._peer.flush, replica, options, identity.server_id, refusals)
        return dump, beginnings

    def _replica(self, command: BinlogDump | BinlogDumpGtid) -> ConnectedReplica:
        client = self.client
        return ConnectedReplica(
            command.server_id,
            _first(client.variables, _REPLICA_UUID) or "",
            client.user,
            client.host,
            client.connection_id,
            self._registered,
        )

    async def _listen(self, replica: ConnectedReplica) -> None:
        """Take acknowledgements until the client leaves, or the dump has ended and something else comes."""
        acceptor = self._peer.acceptor
        while acceptor.phase is Phase.DUMP:
            event = acceptor.next_event()
            if isinstance(event, SemiSyncAck):
                replica.acknowledged = BinlogPosition(event.file, event.position)
            elif isinstance(event, Quit):
                raise ClientGoneError
            else:
                await self._peer.receive()


def _first(variables: Mapping[str, str | None], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name) is not None), None)


def _heartbeat(variables: Mapping[str, str | None]) -> float | None:
    text = _first(variables, _HEARTBEAT_PERIOD) or "0"
    return int(text) / _NANOSECONDS if text.isdecimal() and int(text) else None


def _has_checksums(variables: Mapping[str, str | None]) -> bool | None:
    text = _first(variables, _CHECKSUM)
    return None if text is None else text.upper() not in ("NONE", "0")
