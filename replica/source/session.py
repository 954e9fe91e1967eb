"""One logged-in connection to a source: queries, registration and the binlog dump, with asyncio.

Moves bytes between ``Transport`` and the state machine in ``protocol.conversation.replica_side``, and limits the
time that answers take. What to ask a source, and where to start, is decided above.
"""

import asyncio

from protocol.conversation.compressed_packets import CompressionName
from protocol.conversation.messages import Handshake, Ok, ResultSet, TextValue
from protocol.conversation.replica_side import NEED_DATA, Authenticated, Connection, ConnectionEvent, StartTls
from protocol.conversation.server_errors import Phase
from protocol.errors import ConnectionLostError, SourceSilentError

from ..config.options import Options
from .hosts import first_host
from .transport import Transport


class Session:
    """A connection that has logged in.

    Every method raises ``ConnectionLostError`` when the network fails or an answer takes longer than the options'
    ``connect_timeout``, ``ServerError`` when the server refuses, and ``ProtocolError`` when it talks nonsense.
    """

    def __init__(self, transport: Transport, connection: Connection, options: Options) -> None:
        self._transport = transport
        self._connection = connection
        self._options = options
        self.bytes_received = 0

    @classmethod
    async def open(cls, options: Options) -> "Session":
        """Connect and log in, within ``connect_timeout``; of several hosts, to the first one that lets us in."""
        return await first_host(options, cls._open)

    @classmethod
    async def _open(cls, options: Options) -> "Session":
        connection = Connection(
            options.user,
            options.password,
            want_tls=options.ssl_context is not None,
            require_tls=options.tls not in ("disabled", "preferred"),
            secure_transport=options.unix_socket is not None,
            server_public_key=options.server_public_key,
            get_server_public_key=options.get_server_public_key,
            enable_cleartext_plugin=options.enable_cleartext_plugin,
            compression=options.compression,
        )
        transport: Transport | None = None
        try:
            async with asyncio.timeout(options.connect_timeout):
                transport = await Transport.connect(options)
                session = cls(transport, connection, options)
                await session._log_in()
        except TimeoutError:
            if transport is not None:
                transport.abort()
            raise ConnectionLostError(
                f"no login at {options.address} within {options.connect_timeout:g} s (connect_timeout)"
            ) from None
        except BaseException:
            if transport is not None:
                transport.abort()
            raise
        return session

    @property
    def options(self) -> Options:
        """The options that it was opened with, of the one host that it is connected to."""
        return self._options

    @property
    def handshake(self) -> Handshake:
        """The server's greeting."""
        assert self._connection.handshake is not None
        return self._connection.handshake

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self._connection.tls

    @property
    def compression(self) -> CompressionName:
        """How everything behind the login is compressed."""
        return self._connection.compression

    async def query(self, sql: str) -> list[tuple[TextValue, ...]]:
        """The rows of a statement; none for one without a result set."""
        self._connection.send_query(sql)
        answer = await self._answer()
        return answer.rows if isinstance(answer, ResultSet) else []

    async def query_value(self, sql: str) -> str:
        """The only value of a statement's only row, as text; empty for NULL or no row."""
        rows = await self.query(sql)
        value = rows[0][0] if rows else None
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""

    async def register(self) -> None:
        """COM_REGISTER_SLAVE: from now on the source lists us among its replicas."""
        options = self._options
        port = self._transport.local_port if options.report_port is None else options.report_port
        self._connection.send_register_replica(options.server_id, host=options.report_host, port=port)
        await self._answer()

    def start_dump(self, file: str, position: int, server_id: int, flags: int) -> None:
        """COM_BINLOG_DUMP from a position on; an empty file name is the oldest file."""
        self._connection.send_dump(file, position, server_id, flags)
        self._flush()

    def start_dump_gtid(self, gtid_set: bytes, server_id: int, flags: int) -> None:
        """COM_BINLOG_DUMP_GTID: everything but the transactions of this encoded set."""
        self._connection.send_dump_gtid(gtid_set, server_id, flags)
        self._flush()

    @property
    def connection_id(self) -> int:
        """What the server calls this connection: the Id of SHOW PROCESSLIST."""
        return self.handshake.connection_id

    def expect_semi_sync(self) -> None:
        """The source has been told that we acknowledge: the events of the dump will have one more header."""
        self._connection.semi_sync = True

    @property
    def is_semi_sync(self) -> bool:
        """Whether the source has been told that we acknowledge."""
        return self._connection.semi_sync

    @property
    def ack_requested(self) -> bool:
        """Whether the source waits for ``acknowledge``: it has asked for it with the last event that came."""
        return self._connection.ack_requested

    def acknowledge(self, file: str, position: int) -> None:
        """Tell a semi-synchronous source that everything up to that place is safe here, as it has asked."""
        self._connection.ack_requested = False
        self.acknowledge_unasked(file, position)

    def acknowledge_unasked(self, file: str, position: int) -> None:
        """As ``acknowledge``, and what the source has asked for is still to be answered."""
        self._connection.send_semi_sync_ack(file, position)
        self._flush()

    @property
    def dump_ended(self) -> bool:
        """Whether the source has ended the dump, and all its events have been taken."""
        return self._connection.dump_ended

    def next_events(self) -> list[bytes]:
        """All whole raw events at hand; may be empty."""
        return self._connection.next_events()

    async def wait(self, limit: float | None) -> bool:
        """Take in the next bytes that come; False when none have come within ``limit`` seconds (None: for ever)."""
        try:
            async with asyncio.timeout(limit):
                await self._receive()
        except TimeoutError:
            return False
        return True

    async def read_events(self, silence: float | None) -> list[bytes]:
        """All whole raw events at hand, at least one; empty when the source has ended the dump.

        Raises ``SourceSilentError`` when nothing comes for ``silence`` seconds (None: wait for ever).
        """
        while True:
            events = self.next_events()
            if events or self.dump_ended:
                return events
            if not await self.wait(silence):
                raise self.silent(silence or 0)

    def silent(self, seconds: float) -> SourceSilentError:
        """The error for a source that has said nothing for so long."""
        return SourceSilentError(
            f"{self._options.address} sent neither events nor heartbeats for {seconds:g} s -- the connection is "
            "dead, or the source is too busy to answer"
        )

    def abort(self) -> None:
        """Close at once; whoever waits for data is woken."""
        if self._connection.phase is Phase.READY:
            self._connection.send_quit()
            self._flush()
        self._transport.abort()

    async def aclose(self) -> None:
        """Close, and return when the socket is closed."""
        self.abort()
        await self._transport.aclose()

    async def _log_in(self) -> None:
        while True:
            event = self._connection.next_event()
            self._flush()
            if event is NEED_DATA:
                await self._receive()
            elif isinstance(event, StartTls):
                assert self._options.ssl_context is not None
                await self._transport.start_tls(self._options.ssl_context, self._options.host)
                is_proven_later = self._options.tls == "verify-password"
                self._connection.tls_established(
                    self._transport.peer_fingerprint if is_proven_later else None
                )
                self._flush()
            elif isinstance(event, Authenticated):
                return

    async def _answer(self) -> ConnectionEvent:
        """The one answer to the command that was sent last."""
        self._flush()
        limit = self._options.connect_timeout
        try:
            async with asyncio.timeout(limit):
                while (event := self._connection.next_event()) is NEED_DATA:
                    await self._receive()
        except TimeoutError:
            self.abort()
            raise ConnectionLostError(f"{self._options.address} did not answer within {limit:g} s") from None
        except asyncio.CancelledError:
            # The answer may still come, and would be taken for that to the next command.
            self.abort()
            raise
        assert isinstance(event, Ok | ResultSet)
        return event

    async def _receive(self) -> None:
        data = await self._transport.read()
        if not data:
            raise ConnectionLostError(
                f"{self._options.address} closed the connection during {self._connection.phase.value}"
            )
        self.bytes_received += len(data)
        self._connection.receive_data(data)

    def _flush(self) -> None:
        self._transport.write(self._connection.data_to_send())
