"""One logged-in connection to a source: queries, registration and the binlog dump, with asyncio.

Moves bytes between ``Transport`` and the state machine in ``protocol.conversation.replica_side``, and limits the time
that answers may take. It does not decide which statements to send or where to start.
"""

import asyncio
import contextlib
import logging
import math
import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from protocol.constants import ARTIFICIAL, EVENT_FLAGS_OFFSET, HEARTBEATS
from protocol.conversation.compressed_packets import CompressionName
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Handshake, TextValue
from protocol.conversation.packets import BULK_SIZE, FrameStream, Item
from protocol.conversation.phases import BINARY_ROW, NEED_DATA, NeedData, Phase, StartTls
from protocol.conversation.prepared_statements import Prepared, RowsBegin
from protocol.conversation.replica_side import Connection, ConnectionEvent
from protocol.conversation.results import ColumnDefinition
from protocol.errors import ConnectionLostError, ProtocolError, ReplicaError, ServerError, SourceSilentError
from protocol.records import replace

from ..config.log_facts import log_facts
from ..config.options import Options
from .process_list import COLUMNS, PROCESS_LIST, Activity, activity_of
from .server_name import NAME_VARIABLES, server_name, variables_of, variables_statement, warn_of_others
from .session_settings import make_settings
from .sign_of_life import SignOfLife
from .statement_answers import Answer, Question, first_text, only_row, read_value, taken
from .transport import Transport

_Value = TypeVar("_Value")
_LOGGER: Final = logging.getLogger(__name__)
#: Rows that stream are received in pieces of so many bytes, or what comes in ``_PIECE_SECONDS``. A server on the same
#: machine sends 16 KB at once: 43 MB took up to 1,600 reads of 50 us, and 180 with this.
PIECE_SIZE: Final = 256 << 10
_PIECE_SECONDS: Final = 0.002
# Statements on their way; neither side's socket buffer is filled by them.
_SENT_AT_ONCE: Final = 100
# Seconds in which a source that searches its log has to find something.
_LONGEST_SEARCH: Final = 3600.0
#: Connections to an address before another server than the wanted one is an error: proxies take turns, or draw lots.
TRIES: Final = 8
# Seconds for rows to arrive from a server that says it is sending them, or has sent all.
_ON_THEIR_WAY: Final = 1.0


class Session:
    """A connection that has logged in.

    Every method raises ``ConnectionLostError`` if the network fails or an answer takes longer than the options'
    ``connect_timeout``, unless the server is at work on the statement; ``ServerError`` if the server refuses,
    ``ProtocolError`` if an answer breaks the protocol.
    """

    def __init__(self, transport: Transport, connection: Connection, options: Options) -> None:
        self._transport = transport
        self._connection = connection
        self._options = options
        self.bytes_received = 0
        self._statement_id = 0
        # When events of the log came last, or else the first heartbeat.
        self._progress_at = math.inf
        self._life = SignOfLife()
        # Nobody asks over another connection what the server does for this one: not while it makes sure of the
        # server, which that one would have to do, too; nor while it asks the same for another one.
        self._is_asking = True

    @classmethod
    async def open(cls, options: Options, turn: int = 0) -> "Session":
        """Connect to the options' one host, log in and make the settings, within ``connect_timeout``.

        If they name a server, and others answer some times: ``ConnectionLostError``. ``turn``: see ``Transport``.
        """
        for number in range(TRIES):
            session, found = await cls._open(options, turn + number), ""
            try:
                if options.server is not None:
                    rows = await session.query(variables_statement(NAME_VARIABLES), 2)
                    found = server_name(variables_of(rows))
            except BaseException:
                session.abort()
                raise
            if options.server in (None, found):
                session._is_asking = False
                return session
            await session.aclose()
            warn_of_others(options, found)
        raise ConnectionLostError(
            f"server {found} answers at {options.address}, and {options.server} sends the log: a connection to that "
            "one is needed"
        )

    @classmethod
    async def _open(cls, options: Options, turn: int) -> "Session":
        connection = Connection(
            options.user,
            options.password,
            want_tls=options.ssl_context is not None,
            require_tls=options.tls not in ("disabled", "preferred"),
            secure_transport=options.unix_socket is not None,
            server_public_key=options.server_public_key,
            enable_cleartext_plugin=options.enable_cleartext_plugin,
            compression=options.compression,
            max_event_bytes=options.max_event_bytes,
        )
        transport: Transport | None = None
        session: Session | None = None
        try:
            async with asyncio.timeout(options.connect_timeout):
                transport = await Transport.connect(options, turn)
                wanted = options.get_server_public_key
                connection.get_server_public_key = transport.is_local if wanted is None else wanted
                session = cls(transport, connection, options)
                await session._log_in()
                await make_settings(session.handshake, session.query)
        except TimeoutError:
            if transport is not None:
                transport.abort()
            raise ConnectionLostError(
                f"{options.address} did not complete the login within {options.connect_timeout:g} s (connect_timeout)"
                + (": it sent nothing -- is this its port?" if session and not session.bytes_received else "")
            ) from None
        except BaseException as error:
            if transport is not None:
                transport.abort()
            if isinstance(error, ProtocolError) and connection.handshake is None:
                raise ProtocolError(
                    f"{options.address} does not answer as a MySQL or MariaDB server: {error} -- is this its port?"
                ) from error
            raise
        return session

    @property
    def options(self) -> Options:
        """The options of this connection, with the one host that it is connected to."""
        return self._options

    def stay_with(self, server: str) -> None:
        """From now on ``options`` name the server that this connection has reached."""
        self._options = replace(self._options, server=server)

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
        """The compression in use after the login."""
        return self._connection.compression

    async def query(self, sql: str, columns: int | None = None) -> list[tuple[TextValue, ...]]:
        """Run a statement and return its rows; an empty list if it has no result set.

        With ``columns`` each row has that many values: further ones are left out, fewer are a ``ProtocolError``.
        """
        answer = await self._prompt(self._connection.send_query, sql)
        return taken(answer, Question(sql, columns))

    async def query_each(self, questions: Sequence[Question]) -> list[Answer]:
        """Run many statements, and wait for the network once per 100 of them; the rows or the refusal of each.

        The server runs them one after another. Servers before MySQL 8.0 get one at a time: Aurora of these versions
        never reads a statement that comes before its answer to the one before (MySqlConnector issue 1088). A question
        that ``is_packed`` gets the payloads of its rows' packets, for ``parse_row``: few of many are looked at.
        """
        answers: list[Answer] = []
        is_older = not self.handshake.is_mariadb and self.handshake.version < (8, 0)
        at_once = 1 if is_older else _SENT_AT_ONCE
        for start in range(0, len(questions), at_once):
            group = questions[start : start + at_once]
            self._connection.send_queries([(question.sql, question.is_packed) for question in group])
            for question in group:
                try:
                    answers.append(taken(await self._answer(), question))
                except ServerError as error:
                    answers.append(error)
                except ProtocolError:
                    # The answers behind it would be taken for those to the next command.
                    self.abort()
                    raise
        return answers

    async def query_row(self, sql: str) -> tuple[TextValue, ...]:
        """Run a statement whose answer is one row; anything else is a ``ProtocolError``."""
        return only_row(await self.query(sql), sql)

    async def query_as(self, kind: Callable[[str], _Value], sql: str) -> _Value:
        """Run a statement and return ``kind(text)`` of its first value; ``ProtocolError`` if that is none."""
        return read_value(kind, await self.query_value(sql), sql)

    async def query_value(self, sql: str) -> str:
        """Run a statement and return the first value of its first row as text; empty for NULL or no row."""
        return first_text(await self.query(sql))

    async def start_rows(self, sql: str, silence: float) -> tuple[ColumnDefinition, ...]:
        """Run a SELECT in the binary protocol and return its columns; ``read_rows`` returns the rows.

        The server may take long until it has found the first row. Raises ``SourceSilentError`` if neither a row nor
        64 KB arrive in ``silence`` seconds, and the server does not work on the statement. After an error of the
        network, and when the rows are not read to their end, the session has to be closed.
        """
        prepared = await self._prompt(self._connection.send_prepare, sql)
        assert isinstance(prepared, Prepared)
        self._statement_id = prepared.statement_id
        self._connection.send_execute(prepared.statement_id)
        self._flush()
        self._life.renew()
        while (begin := self._connection.next_event()) is NEED_DATA:
            await self._more_rows(silence)
        if not isinstance(begin, RowsBegin):
            raise ProtocolError("the server answered a SELECT without a result set")
        return begin.columns

    async def read_rows(self, silence: float) -> list[bytes]:
        """Wait for complete rows and return some 32 KB of them, undecoded; empty after the last one.

        Raises ``SourceSilentError`` as ``start_rows`` does, and the server's error if it cannot go on.
        """
        return await self.take_rows(lambda frames: frames.read_prefixed(BINARY_ROW), silence)

    async def take_rows(
        self, take: Callable[[FrameStream], list[Item]], silence: float, *, are_many: bool = False
    ) -> list[Item]:
        """As ``read_rows``, but returns the items that ``take`` makes of the frames.

        ``are_many``: at least ``PIECE_SIZE`` bytes of rows are probably on their way, and are waited for together.
        """
        while True:
            rows = self._connection.take_rows(take)
            if rows:
                self._life.renew()
                return rows
            if self._connection.rows_ended:
                self._connection.send_close_statement(self._statement_id)
                self._flush()
                return []
            if are_many and await self._wait_for_piece():
                continue
            await self._more_rows(silence)

    async def _more_rows(self, silence: float) -> None:
        try:
            while not await self._wait_for_life(silence):
                if await self.activity() in ("working", "locked"):
                    self._life.renew()
                elif self._life.is_extended:
                    raise SourceSilentError(f"{self._options.address} sent no rows for {silence:g} s")
                else:
                    # Rows may have come since, from a server that is idle by now, too.
                    self._life.extend(silence, _ON_THEIR_WAY)
        except BaseException:
            # A late answer would be taken for the answer to the next command.
            self.abort()
            raise

    async def _wait_for_life(self, silence: float) -> bool:
        """As ``wait``, but a slow answer must be whole, or bring 64 KB, within ``silence`` seconds."""
        left = self._life.left(silence, self.bytes_received)
        return left > 0 and await self.wait(left)

    async def activity(self) -> Activity:
        """The server's work for this connection, asked over another one. Raises the errors of ``open``."""
        other = await type(self).open(self._options)
        other._is_asking = True
        try:
            return activity_of(await other.query(PROCESS_LIST, COLUMNS), self.connection_id)
        finally:
            await other.aclose()

    async def register(self) -> None:
        """Send COM_REGISTER_SLAVE: from now on SHOW REPLICAS on the source lists this replica."""
        options = self._options
        port = self._transport.local_port if options.report_port is None else options.report_port
        self._connection.send_register_replica(options.server_id, host=options.report_host, port=port)
        await self._answer()

    def start_dump(self, file: str, position: int, server_id: int, flags: int) -> None:
        """Send COM_BINLOG_DUMP from a position; an empty file name means the oldest file."""
        self._connection.send_dump(file, position, server_id, flags)
        self._begin_dump()

    def start_dump_gtid(self, gtid_set: bytes, server_id: int, flags: int) -> None:
        """Send COM_BINLOG_DUMP_GTID for all transactions outside this encoded set."""
        self._connection.send_dump_gtid(gtid_set, server_id, flags)
        self._begin_dump()

    def _begin_dump(self) -> None:
        self._flush()
        self._life.renew()
        self._transport.expect_log(is_one_way=not self._connection.semi_sync)

    @property
    def connection_id(self) -> int:
        """The server's id of this connection: the Id of SHOW PROCESSLIST."""
        return self.handshake.connection_id

    def expect_semi_sync(self) -> None:
        """Expect the semi-sync header before each event; the source has been told that this replica acknowledges."""
        self._connection.semi_sync = True

    @property
    def is_semi_sync(self) -> bool:
        """Whether the source has been told that this replica acknowledges."""
        return self._connection.semi_sync

    @property
    def ack_requested(self) -> bool:
        """Whether the source waits for ``acknowledge``: the last event received asked for it."""
        return self._connection.ack_requested

    def acknowledge(self, file: str, position: int) -> None:
        """Answer a semi-synchronous source: everything up to this place is safe here."""
        self._connection.ack_requested = False
        self.acknowledge_unasked(file, position)

    def acknowledge_unasked(self, file: str, position: int) -> None:
        """Like ``acknowledge``, but a request of the source stays open."""
        self._connection.send_semi_sync_ack(file, position)
        self._flush()

    @property
    def dump_ended(self) -> bool:
        """Whether the source has ended the dump and ``next_events`` has returned all its events."""
        return self._connection.dump_ended

    def next_events(self, bulk_size: int = BULK_SIZE) -> list[bytes]:
        """The next complete raw events received, about ``bulk_size`` bytes of many; may be empty."""
        return self._connection.next_events(bulk_size)

    async def wait(self, limit: float | None) -> bool:
        """Receive the next bytes; False if none arrive within ``limit`` seconds (None: wait for ever)."""
        if not await self._transport.wait(limit):
            return False
        self._accept(self._transport.take())
        return True

    async def _wait_for_piece(self) -> bool:
        """Wait until ``PIECE_SIZE`` bytes are there; False if that takes long: fewer bytes may have come."""
        self._transport.wake_at(PIECE_SIZE)
        try:
            return await self.wait(_PIECE_SECONDS)
        finally:
            self._transport.wake_at(1)

    def wake(self) -> None:
        """Let a pending ``wait`` return, as if its limit were over."""
        self._transport.wake()

    async def read_events(self, silence: float | None) -> list[bytes]:
        """Wait for complete raw events and return all received; empty if the source has ended the dump.

        Raises ``SourceSilentError`` as ``start_rows`` does after ``silence`` seconds (None: wait for ever), and
        ``ProtocolError`` if nothing but heartbeats comes for an hour.
        """
        while True:
            events = self.next_events()
            if events or self.dump_ended:
                if events:
                    self._life.renew()
                    self._check_progress(events)
                return events
            if not await (self.wait(None) if silence is None else self._wait_for_life(silence)):
                raise self.silent(silence or 0)

    def _check_progress(self, events: list[bytes]) -> None:
        now = asyncio.get_running_loop().time()
        if any(map(_is_of_log, events)):
            self._progress_at = now
        self._progress_at = min(self._progress_at, now)
        if now - self._progress_at > _LONGEST_SEARCH:
            raise ProtocolError(
                f"{self._options.address} has sent nothing of its log for {_LONGEST_SEARCH / 3600:g} h, and "
                "heartbeats all the time"
            )

    def silent(self, seconds: float) -> SourceSilentError:
        """The error for a source that has sent nothing for ``seconds``."""
        return SourceSilentError(
            f"{self._options.address} sent neither events nor heartbeats for {seconds:g} s -- the connection is "
            "dead, or the source is too busy to answer"
        )

    def abort(self) -> None:
        """Close at once; a task that waits for data is woken."""
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
                self._warn_of_impostors()
                return

    def _warn_of_impostors(self) -> None:
        """Warn once for a stream if the password itself went to another machine that nobody has verified.

        It is no error: after a server's restart each account of caching_sha2_password has to send its password once,
        and a server's own certificate, made at its installation, is signed by nobody.
        """
        context, address = self._options.ssl_context, self._options.address
        is_verified = context is not None and context.verify_mode is ssl.CERT_REQUIRED
        if not self._connection.has_sent_password or is_verified or self._transport.is_local:
            return
        if address not in self._options.warned:
            self._options.warned.add(address)
            _LOGGER.warning(
                "the password itself was sent to %s over TLS, and nobody has verified the server's certificate: a "
                "machine in the middle could read the password -- set tls='verify-identity' (or 'verify-ca') and "
                "tls_ca. This is logged once",
                address,
                extra=log_facts("password-exposed", source=address),
            )

    async def _prompt(self, send: Callable[[str], None], sql: str) -> ConnectionEvent:
        """Send a statement whose answer is due within ``connect_timeout``."""
        send(sql)
        return await self._answer()

    async def _answer(self) -> ConnectionEvent:
        """The answer to the last command. After ``connect_timeout`` seconds the server has to be at work on it.

        A server with thousands of tables may take minutes to list them before it has opened each for the first time.
        """
        self._flush()
        limit, now = self._options.connect_timeout, asyncio.get_running_loop().time
        due, latest = now() + limit, now() + _LONGEST_SEARCH
        try:
            while (event := self._connection.next_event()) is NEED_DATA:
                if (left := due - now()) > 0 and await self.wait(left):
                    continue
                if now() > latest or not await self._is_worked_on():
                    raise ConnectionLostError(
                        f"{self._options.address} did not answer within {limit:g} s (connect_timeout)"
                    )
                due = now() + limit
        except (asyncio.CancelledError, ConnectionLostError):
            # A late answer would be taken for the answer to the next command.
            self.abort()
            raise
        assert not isinstance(event, NeedData)
        return event

    async def _is_worked_on(self) -> bool:
        if self._is_asking:
            return False
        with contextlib.suppress(ReplicaError):
            return await self.activity() == "working"
        return False

    async def _receive(self) -> None:
        self._accept(await self._transport.read())

    def _accept(self, data: bytes) -> None:
        if not data:
            raise ConnectionLostError(
                f"{self._options.address} closed the connection during {self._connection.phase.value}"
            )
        self.bytes_received += len(data)
        self._connection.receive_data(data)

    def _flush(self) -> None:
        self._transport.write(self._connection.data_to_send())


def _is_of_log(raw: bytes) -> bool:
    """Whether the event is one of the log, and not made for the connection."""
    return len(raw) > EVENT_FLAGS_OFFSET and not (
        raw[4] in HEARTBEATS or raw[EVENT_FLAGS_OFFSET] & ARTIFICIAL
    )
