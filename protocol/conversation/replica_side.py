"""The replica's side of the client/server protocol as a state machine, without any input or output.

A driver moves the bytes: it passes received bytes to ``receive_data()``, sends what ``data_to_send()`` returns,
and ``next_event()`` returns what has happened so far:

    Handshake -> (StartTls ->) Authenticated -> [send_query() -> Ok | ResultSet]... -> send_dump() ->
    next_events()

Rows that stream: send_prepare() -> Prepared, send_execute() -> RowsBegin -> next_rows() until ``rows_ended``.
The state machine decides only on the order of messages: messages parse themselves, plugins prove the password,
and events stay raw bytes for the decoder. It never waits, retries or reads a clock.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from ..constants import MAX_EVENT_SIZE, Capability
from ..errors import ProtocolError, ReplicaError, SourceConfigurationError
from ..position import FIRST_POSITION
from ..records import replace
from .client_plugins import Credentials, load_public_key
from .commands import (
    BinlogDump,
    BinlogDumpGtid,
    Query,
    Quit,
    RegisterReplica,
    SemiSyncAck,
    encode_name,
    encode_text,
)
from .compressed_packets import (
    CompressedFrameStream,
    CompressionName,
    choose_compression,
    compression_capability,
    create_codec,
)
from .login import Authenticated, Login, common_capabilities
from .messages import (
    EOF_HEADER,
    ERR_HEADER,
    OK_HEADER,
    Err,
    Handshake,
    Ok,
    PackedRows,
    ResultSet,
    SslRequest,
)
from .packets import BULK_SIZE, MAX_PAYLOAD, FrameStream, Item
from .phases import (
    BINARY_ROW,
    EVENT,
    NEED_DATA,
    SEMI_SYNC_EVENT,
    SEMI_SYNC_EVENT_WITH_ACK,
    NeedData,
    Phase,
    StartTls,
)
from .prepared_statements import CloseStatement, Execute, Prepare, PrepareAnswer, Prepared, RowsBegin
from .results import EOF_LIMIT, MAX_ANSWER, OkAnswer, QueryAnswer, ResultHead, expect_last, parse_end
from .server_errors import server_error

ConnectionEvent = Handshake | StartTls | Authenticated | Ok | ResultSet | PackedRows | Prepared | RowsBegin


class Connection:
    """One connection to a source, from its greeting to the end of the binlog dump.

    ``want_tls``: use TLS if the server offers it. ``require_tls``: refuse servers that do not offer TLS
    (SourceConfigurationError). ``secure_transport``: the transport needs no encryption (a Unix socket), so plugins
    that need the password in clear may send it. ``server_public_key`` (PEM) encrypts the password on an unencrypted
    transport. Without it ``get_server_public_key`` allows a request to the server for its key, which protects against
    listeners but not against a machine in the middle. ``enable_cleartext_plugin`` allows plugins to send the password
    itself where nobody can listen. ``attributes`` are added to the connection attributes
    (``performance_schema.session_connect_attrs``). ``compression`` names algorithms in order of preference; a server
    that offers none of them is refused (SourceConfigurationError). A larger event than ``max_event_bytes`` is a
    DecodeError.

    Raises ConfigurationError for arguments that cannot be sent, RuntimeError for misuse: one command may be open at
    a time. After an error that ends the conversation all calls raise it again, and ``phase`` is ``Phase.CLOSED``.
    """

    def __init__(
        self,
        user: str,
        password: str = "",
        *,
        database: str | None = None,
        want_tls: bool = False,
        require_tls: bool = False,
        secure_transport: bool = False,
        server_public_key: bytes | None = None,
        get_server_public_key: bool = False,
        enable_cleartext_plugin: bool = False,
        attributes: Mapping[str, str] | None = None,
        compression: Sequence[CompressionName] = (),
        max_event_bytes: int = MAX_EVENT_SIZE,
    ) -> None:
        #: The server's greeting, once it has come.
        self.handshake: Handshake | None = None
        self.phase = Phase.HANDSHAKE
        #: TLS is in use.
        self.tls = False
        #: The password itself was sent, in clear: over TLS, or on a transport that needs no encryption.
        self.has_sent_password = False
        #: The compression after the login, known once the greeting has come.
        self.compression: CompressionName = "uncompressed"
        #: Set before the dump is requested if the source takes acknowledgements: each event then has two more bytes.
        self.semi_sync = False
        #: The last event of the list that next_events() returned has to be answered with send_semi_sync_ack().
        self.ack_requested = False
        #: The source has ended the dump in order (EOF): it has no more events for a replica that does not
        #: wait. MySQL 5.6 also sends EOF, without an error, when another replica with the same uuid connects.
        self.dump_ended = False
        #: The last row of a prepared statement has been returned.
        self.rows_ended = False

        encode_name(user, "the user name")
        encode_name(database or "", "the database name")
        self._user = user
        self._database = database
        self._credentials = Credentials(
            encode_text(password, "the password"),
            server_public_key=server_public_key,
            enable_cleartext_plugin=enable_cleartext_plugin,
        )
        self._attributes = {"_client_name": "mysql-replica"} | dict(attributes or {})
        for text in (*self._attributes, *self._attributes.values()):
            encode_text(text, "a connection attribute")
        if server_public_key is not None:
            load_public_key(server_public_key)
        #: May be changed until the greeting has been read.
        self.get_server_public_key = get_server_public_key
        self._want_tls = want_tls or require_tls
        self._require_tls = require_tls
        self._secure_transport = secure_transport
        self._wanted_compression = compression
        self._max_event_bytes = max_event_bytes
        # Made here, so that a missing extra is noticed before anything is sent.
        self._codecs = {name: create_codec(name) for name in compression}

        self._frames = FrameStream()
        self._outgoing: list[bytes] = []
        self._capabilities = Capability(0)
        self._fingerprint: bytes | None = None
        self._login: Login | None = None
        self._tls_requested = False
        self._answer: QueryAnswer | PrepareAnswer | ResultHead | OkAnswer | None = None
        self._error: ReplicaError | None = None
        self._sent_ahead: list[bool] = []  # ``is_packed`` of each statement behind the one being answered

    def __repr__(self) -> str:
        return f"<Connection of {self._user!r} in phase {self.phase.name}>"

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the network, in pieces of any size. next_event() parses them."""
        self._frames.receive(data)

    def data_to_send(self) -> bytes:
        """Return the bytes to send now and remove them from the buffer; empty if there are none."""
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        return data

    def next_event(self) -> ConnectionEvent | NeedData:
        """The next event in order, or NEED_DATA. In a dump call next_events() instead, for rows next_rows().

        An ERR packet is raised as the error of ``server_errors.server_error()``; if it answers a command, the
        conversation continues. A malformed packet raises ProtocolError.
        """
        self._check_open()
        if self.phase in (Phase.DUMP, Phase.ROWS):
            raise RuntimeError(f"not during {self.phase.value}: see next_events(), next_rows()")
        if self._sent_ahead and self.phase is Phase.READY:
            # The statement itself has gone out: this counts its frame.
            self._query(b"", is_packed=self._sent_ahead.pop(0))
            self._outgoing.pop()
        try:
            return self._step()
        except ReplicaError as error:
            self._close_unless_ready(error)
            raise

    def tls_established(self, fingerprint: bytes | None = None) -> None:
        """The driver has changed the transport to TLS, as StartTls asked.

        With a ``fingerprint`` (SHA-256 of the server's certificate) the server has to prove with the password that
        the certificate is its own: MariaDB 11.4 and later can, all others are refused (AuthenticationError).
        """
        if self.phase is not Phase.TLS or self._tls_requested:
            raise RuntimeError("no change to TLS is under way")
        self.tls = True
        self._fingerprint = fingerprint
        try:
            self._log_in()
        except ReplicaError as error:
            self._close(error)
            raise

    def send_query(self, sql: str) -> None:
        """Send COM_QUERY; next_event() returns Ok or ResultSet."""
        self.send_queries([(sql, False)])

    def send_queries(self, statements: Sequence[tuple[str, bool]]) -> None:
        """Send COM_QUERY for each (SQL, ``is_packed``: PackedRows, not ResultSet), one answer after another."""
        payloads = [Query(sql).encode() for sql, _ in statements]
        self._query(payloads[0], is_packed=statements[0][1])
        self._outgoing += [self._new_frames().encode(payload) for payload in payloads[1:]]
        self._sent_ahead = [is_packed for _, is_packed in statements[1:]]

    def send_prepare(self, sql: str) -> None:
        """Send COM_STMT_PREPARE for a statement without parameters; next_event() returns Prepared."""
        self._command(Prepare(sql).encode(), Phase.PREPARE)
        self._answer = PrepareAnswer(self._capabilities)

    def send_execute(self, statement_id: int) -> None:
        """Send COM_STMT_EXECUTE; next_event() returns RowsBegin, or Ok for a statement without rows."""
        self._command(Execute(statement_id).encode(), Phase.EXECUTE)
        self._frames.max_payload = MAX_PAYLOAD
        self._answer = ResultHead(self._capabilities)
        self.rows_ended = False

    def send_close_statement(self, statement_id: int) -> None:
        """Send COM_STMT_CLOSE, which has no answer."""
        self._command(CloseStatement(statement_id).encode(), Phase.READY)

    def next_rows(self) -> list[bytes]:
        """The next complete rows in the binary protocol, about 32 KB at most, each without its first byte (0)."""
        return self.take_rows(lambda frames: frames.read_prefixed(BINARY_ROW))

    def take_rows(self, take: Callable[[FrameStream], list[Item]]) -> list[Item]:
        """The items that ``take`` makes of frames of rows; empty if data is needed or ``rows_ended``. Raises ERR."""
        self._check_open()
        if self.rows_ended:
            return []
        if self.phase is not Phase.ROWS:
            raise RuntimeError("rows come after RowsBegin only")
        try:
            return take(self._frames) or self._end_of_rows(self._frames.read())
        except ReplicaError as error:
            self._close_unless_ready(error)
            raise

    def send_register_replica(
        self,
        server_id: int,
        *,
        host: str = "",
        user: str = "",
        password: str = "",
        port: int = 0,
        source_id: int = 0,
    ) -> None:
        """Send COM_REGISTER_SLAVE; next_event() returns Ok. SHOW REPLICAS prints these values."""
        command = RegisterReplica(server_id, host, user, password, port, source_id=source_id)
        self._command(command.encode(), Phase.REGISTER)
        self._answer = OkAnswer(self._capabilities)

    def send_dump(self, file: str, position: int, server_id: int, flags: int = 0) -> None:
        """Send COM_BINLOG_DUMP; next_events() returns the events. ``position`` must be below 4 GiB."""
        self._command(BinlogDump(file, position, server_id, flags).encode(), Phase.DUMP)
        self._frames.limit_events(self._max_event_bytes)

    def send_dump_gtid(
        self,
        gtid_set: bytes,
        server_id: int,
        flags: int = 0,
        *,
        file: str = "",
        position: int = FIRST_POSITION,
    ) -> None:
        """Send COM_BINLOG_DUMP_GTID; next_events() returns the events outside of the encoded ``gtid_set``."""
        self._command(BinlogDumpGtid(gtid_set, server_id, flags, file, position).encode(), Phase.DUMP)
        self._frames.limit_events(self._max_event_bytes)

    def next_events(self, bulk_size: int = BULK_SIZE) -> list[bytes]:
        """The next complete raw events, about ``bulk_size`` bytes; empty if data is needed or ``dump_ended`` is true.

        A raw event starts with its header and ends with its checksum, if it has one. An ERR packet is raised
        after the events before it. The list ends early with an event that sets ``ack_requested``.
        """
        self._check_open()
        if self.phase is not Phase.DUMP:
            raise RuntimeError("next_events() works in the dump phase only")
        self.ack_requested = False
        if self.dump_ended:
            return []
        try:
            return self._frames.read_prefixed(
                SEMI_SYNC_EVENT if self.semi_sync else EVENT, bulk_size
            ) or self._other_dump_packet(self._frames.read())
        except ReplicaError as error:
            self._close(error)
            raise

    def send_semi_sync_ack(self, file: str, position: int) -> None:
        """Acknowledge all events up to this end position, in a frame that is not counted with the events'."""
        self._outgoing.append(self._new_frames().encode(SemiSyncAck(file, position).encode()))

    def send_quit(self) -> None:
        """Send COM_QUIT; the server closes the connection without an answer."""
        self._outgoing.append(self._new_frames().encode(Quit().encode()))

    def _step(self) -> ConnectionEvent | NeedData:
        if self._tls_requested:
            self._tls_requested = False
            if self._frames.buffered:
                # A machine in the middle could have injected them, to pass as data of the authenticated server.
                raise ProtocolError(
                    "the server sent data in clear after its greeting, where TLS was to follow"
                )
            return StartTls()
        while (payload := self._frames.read()) is not None:
            if not payload:
                raise ProtocolError(f"the server sent an empty packet in {self.phase.value}")
            event = _HANDLERS[self.phase](self, payload)
            if event is not None:
                return event
        return NEED_DATA

    def _on_handshake(self, payload: bytes) -> ConnectionEvent:
        if payload[0] == ERR_HEADER:
            raise server_error(Err.parse(payload), self.phase)
        handshake = Handshake.parse(payload)
        self._capabilities = common_capabilities(handshake)
        self.handshake = handshake
        self.compression = choose_compression(self._wanted_compression, handshake.capabilities)
        self._capabilities |= compression_capability(self.compression)
        if self._database is not None:
            self._capabilities |= Capability.CONNECT_WITH_DB
        if not self._want_tls:
            self._log_in()
        elif Capability.SSL in handshake.capabilities:
            self._capabilities |= Capability.SSL
            self._send(SslRequest(self._capabilities).encode())
            self._tls_requested = True
            self.phase = Phase.TLS
        elif self._require_tls:
            raise SourceConfigurationError(
                "TLS is required and the server does not offer it: set ssl_cert and ssl_key on the server"
            )
        else:
            self._log_in()
        return handshake

    def _log_in(self) -> None:
        assert self.handshake is not None
        self.phase = Phase.AUTHENTICATION
        credentials = replace(
            self._credentials,
            secure=self.tls or self._secure_transport,
            tls=self.tls,
            get_server_public_key=self.get_server_public_key,
        )
        self._login = Login(self.handshake, credentials, self._fingerprint)
        self._send(self._login.first(self._capabilities, self._user, self._database or "", self._attributes))

    def _on_tls(self, payload: bytes) -> ConnectionEvent:
        raise ProtocolError("the server sent data in clear while the transport was being changed to TLS")

    def _on_authentication(self, payload: bytes) -> ConnectionEvent | None:
        assert self._login is not None
        if payload[0] == ERR_HEADER:
            raise server_error(Err.parse(payload), self.phase)
        if payload[0] == OK_HEADER:
            ok = Ok.parse(payload, self._capabilities)
            self._login.check(ok)
            self.has_sent_password = self._login.has_sent_password
            self._login = None
            self._begin_compression()
            self._end_command()
            return Authenticated(ok)
        answer = self._login.receive(payload)
        if answer is not None:
            self._send(answer)
        return None

    def _on_ready(self, payload: bytes) -> ConnectionEvent:
        if payload[0] != ERR_HEADER:
            raise self._unexpected(payload)
        # No command is outstanding: the server says why it will close the connection, such as 1927 or 4031.
        phase, self.phase = self.phase, Phase.CLOSED
        raise server_error(Err.parse(payload), phase)

    def _on_answer(self, payload: bytes) -> ConnectionEvent | None:
        assert self._answer is not None
        if payload[0] == ERR_HEADER:
            raise self._refused(payload)
        answer = self._answer.receive(payload)
        if isinstance(answer, tuple):
            self.phase = Phase.ROWS
            return RowsBegin(answer)
        if answer is not None:
            self._end_command()
        return answer

    def _end_of_rows(self, payload: bytes | None) -> list[Item]:
        if payload is None:
            return []
        if payload[:1] == bytes([ERR_HEADER]):
            raise self._refused(payload)
        if payload[:1] != bytes([EOF_HEADER]):
            raise self._unexpected(payload)
        expect_last(parse_end(payload, self._capabilities))
        self._end_command()
        self.rows_ended = True
        return []

    def _refused(self, payload: bytes) -> ReplicaError:
        error = server_error(Err.parse(payload), self.phase)
        self._end_command()
        return error

    def _other_dump_packet(self, payload: bytes | None) -> list[bytes]:
        if payload is None:
            return []
        if self.semi_sync and payload.startswith(SEMI_SYNC_EVENT_WITH_ACK):
            self.ack_requested = True
            # The source restarts its frame counter then (semisync_source.cc: readReplicaReply, skipReplicaReply).
            self._frames.allow_restart(1)
            return [payload[len(SEMI_SYNC_EVENT_WITH_ACK) :]]
        if payload[:1] == bytes([ERR_HEADER]):
            raise server_error(Err.parse(payload), self.phase)
        if payload[:1] == bytes([EOF_HEADER]) and len(payload) < EOF_LIMIT:
            parse_end(payload, self._capabilities)
            self.dump_ended = True
            return []
        raise self._unexpected(payload)

    def _command(self, payload: bytes, phase: Phase) -> None:
        self._check_open()
        if self.phase is not Phase.READY:
            raise RuntimeError(f"no command can be sent during {self.phase.value}")
        self.phase = phase
        self._frames.start_command()
        self._send(payload)

    def _query(self, payload: bytes, *, is_packed: bool) -> None:
        self._command(payload, Phase.QUERY)
        self._frames.max_payload = MAX_ANSWER
        self._answer = QueryAnswer(self._capabilities, self._frames, is_packed=is_packed)

    def _end_command(self) -> None:
        self.phase = Phase.READY
        self._answer = None
        # A server that closes an idle connection announces that in a packet numbered 0 (MySQL since 8.0.24: error
        # 4031).
        self._frames.allow_restart(0)

    def _begin_compression(self) -> None:
        before = self._frames
        before.max_payload = MAX_ANSWER
        if self._codecs.get(self.compression) is not None:
            self._frames = self._new_frames()
            self._frames.go_on_from(before)

    def _new_frames(self) -> FrameStream:
        """A new frame stream of the kind used after the login, counting from 0."""
        codec = self._codecs.get(self.compression)
        return FrameStream(MAX_PAYLOAD) if codec is None else CompressedFrameStream(codec)

    def _send(self, payload: bytes) -> None:
        self._outgoing.append(self._frames.encode(payload))

    def _unexpected(self, payload: bytes) -> ProtocolError:
        return ProtocolError(
            f"the server sent an unexpected packet in {self.phase.value}: "
            f"{len(payload)} bytes that start with 0x{payload[:4].hex()}"
        )

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error

    def _close_unless_ready(self, error: ReplicaError) -> None:
        # An ERR packet that answers a command leaves the conversation ready for the next one.
        if self.phase is not Phase.READY:
            self._close(error)

    def _close(self, error: ReplicaError) -> None:
        self._error = error
        self.phase = Phase.CLOSED


_HANDLERS: Mapping[Phase, Callable[[Connection, bytes], ConnectionEvent | None]] = MappingProxyType(
    {
        Phase.HANDSHAKE: Connection._on_handshake,
        Phase.TLS: Connection._on_tls,
        Phase.AUTHENTICATION: Connection._on_authentication,
        Phase.READY: Connection._on_ready,
        Phase.QUERY: Connection._on_answer,
        Phase.PREPARE: Connection._on_answer,
        Phase.EXECUTE: Connection._on_answer,
        Phase.REGISTER: Connection._on_answer,
    }
)
