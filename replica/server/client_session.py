"""One client's connection from login to its end: statements, registration as a replica, and binlog dumps.

It handles commands, not bytes: ``peer`` reads and writes the socket.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
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
from protocol.conversation.phases import Phase
from protocol.conversation.source_side import LoggedIn
from protocol.errors import ConfigurationError, DecodeError
from protocol.position import BinlogPosition
from protocol.records import record

from .answers import Answers, Client
from .dump_start import DumpStarts
from .peer import ClientGoneError, Peer
from .refusals import DumpRefusedError, Refusals
from .replica_sql import SqlError, read_number
from .replicas import ConnectedReplica, Replicas
from .send_dump import Dump, DumpOptions
from .variables import Facts

# User variables that a replica SETs: the name that MySQL uses since 8.0.26, and the older one.
_REPLICA_UUID: Final = ("replica_uuid", "slave_uuid")
_HEARTBEAT_PERIOD: Final = ("source_heartbeat_period", "master_heartbeat_period")
_CHECKSUM: Final = ("source_binlog_checksum", "master_binlog_checksum")
_SEMI_SYNC: Final = ("rpl_semi_sync_replica", "rpl_semi_sync_slave")
_NANOSECONDS: Final = 1_000_000_000
# The shortest period that CHANGE REPLICATION SOURCE accepts. A replica could ask for a billion heartbeats a second.
_SHORTEST_HEARTBEAT: Final = 0.001
_UNKNOWN_ERROR: Final = 1105
# Raised when a served file is damaged, or was removed meanwhile.
_UNREADABLE: Final = (OSError, ConfigurationError, DecodeError)


@record(frozen=True, slots=True)
class SharedState:
    """What all client sessions of a server share."""

    facts: Facts
    replicas: Replicas
    clients: Callable[[], Sequence[Client]]
    kill: Callable[[int], bool]
    poll_interval: float
    idle_timeout: float


class ClientSession:
    """One client's session: ``log_in``, then ``run``. Both raise ``ClientGoneError`` and the acceptor's errors."""

    def __init__(self, shared: SharedState, peer: Peer, client: Client) -> None:
        self._shared = shared
        self._peer = peer
        self.client = client
        self._registered: RegisterReplica | None = None
        self._answers = Answers(
            shared.facts, client, shared.clients, lambda: list(shared.replicas), shared.kill
        )

    async def log_in(self) -> None:
        """Send the greeting, and return when the client is authenticated."""
        event = await self._peer.next_event()
        assert isinstance(event, LoggedIn)
        self.client.user = event.user
        self.client.tls_cipher = self._peer.cipher

    async def run(self) -> None:
        """Answer the client's commands until it leaves."""
        acceptor = self._peer.acceptor
        while True:
            async with asyncio.timeout(self._shared.idle_timeout):
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
        dump, starts = self._make_dump(command, replica)
        variables = self.client.variables

        async def send() -> None:
            try:
                await dump.run(await starts.find(command, variables, dump.make_heartbeat))
            except _UNREADABLE as error:
                raise Refusals(self._version).unreadable_file(str(error)) from error

        self._shared.facts.log.refresh()
        sending = asyncio.create_task(send())
        replica.task = sending
        self._shared.replicas.add(replica)
        listening = asyncio.create_task(self._listen(replica))
        try:
            await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done() and listening.exception() is None:
                # The dump has ended, and the client's next command has come.
                await asyncio.wait({sending})
        finally:
            self._shared.replicas.remove(replica)
            # The task's exception holds its frames, and these the replica.
            replica.task = None
            # One of the tasks may still run: a dump whose client has left, or the wait for further acknowledgements.
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
        """Finish a dump that was refused, replaced (same identity), left by the client, or completed."""
        if self._peer.acceptor.is_inside_event:
            # No error can be sent in the middle of an event: the client would read it as part of the event.
            raise ClientGoneError
        if replica.was_replaced and self._peer.acceptor.phase is Phase.DUMP:
            self._peer.acceptor.send_error(Refusals(self._version).duplicate(dump.place()).err)
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
        return self._shared.facts.identity.version

    def _make_dump(
        self, command: BinlogDump | BinlogDumpGtid, replica: ConnectedReplica
    ) -> tuple[Dump, DumpStarts]:
        facts, acceptor = self._shared.facts, self._peer.acceptor
        identity = facts.identity
        refusals = Refusals(self._version)
        starts = DumpStarts(facts.log, facts.gtids, refusals, identity.server_id, identity.server_uuid)
        acceptor.semi_sync = facts.semi_sync and _first(self.client.variables, _SEMI_SYNC) == "1"
        options = DumpOptions(
            waits=bool(command.server_id) and not command.flags & DumpFlag.NON_BLOCK,
            heartbeat=_heartbeat(self.client.variables),
            has_long_heartbeats=starts.has_long_heartbeats(command.flags, self._version),
            has_checksums=_has_checksums(self.client.variables),
            poll_interval=self._shared.poll_interval,
            asks_for_acknowledgements=acceptor.semi_sync,
        )
        dump = Dump(facts.log, acceptor, self._peer.flush, replica, options, identity.server_id, refusals)
        return dump, starts

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
        """Read acknowledgements until the client leaves, or until the dump has ended."""
        acceptor = self._peer.acceptor
        while acceptor.phase is Phase.DUMP:
            event = acceptor.next_event()
            if isinstance(event, SemiSyncAck):
                replica.acknowledged = BinlogPosition(event.file, event.position)
                # A few compressed bytes from a client may hold a million acknowledgements.
                await asyncio.sleep(0)
            elif isinstance(event, Quit):
                raise ClientGoneError
            else:
                await self._peer.receive()


def _first(variables: Mapping[str, str | None], names: tuple[str, ...]) -> str | None:
    return next((variables[name] for name in names if variables.get(name) is not None), None)


def _heartbeat(variables: Mapping[str, str | None]) -> float | None:
    period = read_number(_first(variables, _HEARTBEAT_PERIOD) or "") or 0
    return max(period / _NANOSECONDS, _SHORTEST_HEARTBEAT) if period else None


def _has_checksums(variables: Mapping[str, str | None]) -> bool | None:
    text = _first(variables, _CHECKSUM)
    return None if text is None else text.upper() not in ("NONE", "0")
