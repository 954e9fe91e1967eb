"""The source's side of the client/server protocol as a state machine, without any input or output.

The counterpart of ``replica_side``. A driver moves the bytes: it passes received bytes to ``receive_data()``, sends
what ``data_to_send()`` returns (first the greeting), and ``next_event()`` returns the client's next request:

    (StartTls ->) LoggedIn -> [Query -> send_ok() | send_rows() | send_error()]... -> BinlogDump -> send_events()

The state machine decides on the order of messages and on who may log in. The driver decides on the answers and on the
events of a dump. The state machine never waits and reads no clock.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa

from ..constants import MAX_FRAME_PAYLOAD, Capability, ColumnType, Command
from ..errors import AuthenticationError, ProtocolError, ReplicaError
from ..records import record, replace
from ..wire import encode_lenenc_int
from .client_plugins import DEFAULT_PLUGIN, NONCE_SIZE
from .commands import Answered, BinlogDump, BinlogDumpGtid, Query, Quit, RegisterReplica, SemiSyncAck
from .compressed_packets import Codec, CompressedPackets, agreed_codec
from .login import PROOF
from .messages import (
    AuthMoreData,
    AuthSwitchRequest,
    Eof,
    Err,
    Handshake,
    HandshakeResponse,
    Ok,
    SslRequest,
    TextValue,
)
from .packets import FrameStream, PayloadInPieces
from .phases import EVENT, NEED_DATA, SEMI_SYNC_EVENT, SEMI_SYNC_EVENT_WITH_ACK, NeedData, Phase, StartTls
from .query_attributes import parse_query
from .results import ColumnDefinition, encode_row
from .server_plugins import VERIFIERS, Account, Challenge, StoredPassword, Verdict, Verifier
from .source_errors import (
    BAD_HANDSHAKE,
    INSECURE,
    MALFORMED_PACKET,
    OLD_CLIENT,
    UNKNOWN_COMMAND,
    access_denied,
    refused,
)

#: The largest payload before login. Connection attributes take most of it; servers keep at most 64 KB of them.
MAX_LOGIN_REQUEST: Final = 1 << 17
#: The largest command: statements are short, but a GTID set may have many intervals.
MAX_COMMAND: Final = 1 << 24

NATIVE_PASSWORD: Final = DEFAULT_PLUGIN
_SSL_REQUEST_SIZE: Final = 32

# The bytes before an event: a status byte, and with semi-sync a magic byte and the ACK flag. Here they are shifted
# past the four bytes of the frame header, to form one integer with it.
_SEMI_SYNC: Final = int.from_bytes(SEMI_SYNC_EVENT, "little") << 32
_ACK_REQUESTED: Final = 1 << 48
# The number of the frame after an event that asks for an acknowledgement (semisync_source.cc: net_clear).
_RESTART: Final = 1


@record(frozen=True, slots=True)
class LoggedIn:
    """The client is authenticated and may send commands."""

    user: str
    attributes: Mapping[str, str]


Request = Query | RegisterReplica | BinlogDump | BinlogDumpGtid
AcceptorEvent = StartTls | LoggedIn | Request | Answered | SemiSyncAck | Quit


class Acceptor:
    """One client's connection, from the greeting to its end.

    ``greeting`` is sent at once. The client chooses from its capabilities (TLS if SSL is among them); its
    ``auth_data`` is the 20 bytes of ``create_nonce()`` and a zero. ``accounts`` has the users that may log in.
    ``require_tls`` refuses clients without TLS. ``secure_transport``: the transport needs no encryption (a Unix
    socket). ``private_key`` decrypts passwords that are sent over other transports. ``fingerprint`` returns the
    SHA-256 of the TLS certificate, so that MariaDB's clients (11.4 and later) can verify the certificate with the
    password. ``peer`` is the client's host, for messages.

    One command is outstanding at a time: an answer without a command, like all other misuse, is a RuntimeError. After
    an error that ends the conversation ``phase`` is ``Phase.CLOSED`` and every further call raises that error again;
    ``data_to_send()`` returns the ERR packet for the client.
    """

    def __init__(
        self,
        greeting: Handshake,
        accounts: Mapping[str, Account],
        *,
        require_tls: bool = False,
        secure_transport: bool = False,
        private_key: Callable[[], rsa.RSAPrivateKey] | None = None,
        fingerprint: Callable[[], bytes | None] | None = None,
        peer: str = "localhost",
    ) -> None:
        self.greeting = greeting
        self.phase = Phase.HANDSHAKE
        #: TLS is in use.
        self.tls = False
        #: The capabilities that both sides have, once the client has answered.
        self.capabilities = Capability(0)
        #: Set before a dump's first event if the replica asked for semi-sync: each event then has two bytes more.
        self.semi_sync = False

        self._accounts = accounts
        self._require_tls = require_tls
        self._secure_transport = secure_transport
        self._private_key = private_key
        self._fingerprint = fingerprint
        self._peer = peer
        self._response: HandshakeResponse | None = None
        self._account: Account | None = None
        self._verifier: Verifier | None = None
        self._has_started = False
        self._frames = FrameStream(MAX_LOGIN_REQUEST)
        self._sequence = 0  # number of the next event's frame
        self._event: PayloadInPieces | None = None
        self._outgoing: list[bytes] = []
        # Two counters, because acknowledgements arrive between the packets of a dump.
        self._incoming_packets: CompressedPackets | None = None
        self._outgoing_packets: CompressedPackets | None = None
        self._packed: list[bytes] = []
        self._error: ReplicaError | None = None
        self._send(greeting.encode())

    def __repr__(self) -> str:
        return f"<Acceptor of {self._peer!r} in phase {self.phase.name}>"

    # What the driver calls

    @property
    def bytes_wanted(self) -> int:
        """Maximum number of bytes to read, or 0 for no limit: the limit keeps TLS bytes out of ``receive_data()``."""
        return self._frames.missing if self.phase is Phase.HANDSHAKE and not self.tls else 0

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the network, in pieces of any size. next_event() parses them."""
        (self._incoming_packets or self._frames).receive(data)

    def data_to_send(self) -> bytes:
        """Return the bytes to send now and remove them from the buffer; empty if there are none."""
        self._pack()
        data = self._packed[0] if len(self._packed) == 1 else b"".join(self._packed)
        self._packed.clear()
        return data

    def next_event(self) -> AcceptorEvent | NeedData:
        """The client's next request, or NEED_DATA. A ping is answered here, which ``Answered`` tells.

        Raises ``AuthenticationError`` if the client is refused, ``ProtocolError`` for malformed packets.
        """
        if self._error is not None:
            raise self._error
        if self.phase in (Phase.QUERY, Phase.REGISTER):
            raise RuntimeError(f"{self.phase.value} must be answered first")
        try:
            return self._step()
        except AuthenticationError as error:
            self._close(error, Err(error.code, error.sqlstate, error.message))
            raise
        except ReplicaError as error:
            is_login = self.phase in (Phase.HANDSHAKE, Phase.TLS, Phase.AUTHENTICATION)
            self._close(error, BAD_HANDSHAKE if is_login else MALFORMED_PACKET)
            raise

    def tls_established(self) -> None:
        """The driver has changed the transport to TLS, as StartTls asked."""
        if self.phase is not Phase.TLS:
            raise RuntimeError("no change to TLS is under way")
        self.tls = True
        self.phase = Phase.HANDSHAKE

    def send_ok(self) -> None:
        """The query or registration has succeeded."""
        if self.phase not in (Phase.QUERY, Phase.REGISTER):
            raise RuntimeError(f"send_ok() answers a query or a registration; this is {self.phase.value}")
        self._send(Ok().encode(self.capabilities))
        self._end_command()

    def send_error(self, error: Err) -> None:
        """The command has failed; a dump ends with it."""
        if self.phase not in (Phase.QUERY, Phase.REGISTER, Phase.DUMP):
            raise RuntimeError(f"send_error() answers a command; this is {self.phase.value}")
        if self.is_inside_event:
            raise RuntimeError("an event has begun and is not complete")
        if self.phase is Phase.DUMP:
            self._frames.sequence = self._sequence
        self._send(error.encode())
        self._end_command()

    def send_rows(
        self, columns: Sequence[str], rows: Iterable[Sequence[TextValue]], numbers: Collection[str] = ()
    ) -> None:
        """Answer a query with a text result set. ``numbers`` names the columns whose texts are integers."""
        if self.phase is not Phase.QUERY:
            raise RuntimeError("rows answer a query only")
        self._send(encode_lenenc_int(len(columns)))
        for name in columns:
            kind = ColumnType.LONGLONG if name in numbers else ColumnType.VAR_STRING
            self._send(ColumnDefinition(name, kind).encode())
        if Capability.DEPRECATE_EOF not in self.capabilities:
            self._send(Eof().encode())
        for row in rows:
            self._send(encode_row(row))
        self._send(self._end_of_rows())
        self._end_command()

    def send_events(self, events: Iterable[bytes]) -> None:
        """Send complete raw events of the dump; none of them asks for an acknowledgement.

        The frame header and the bytes before an event are written as one integer: 4 million events a second instead
        of 1.5 million (one AMD EPYC core, Python 3.11).
        """
        self._check_dump()
        extra, prefix = (3, _SEMI_SYNC) if self.semi_sync else (1, 0)
        width = 4 + extra
        sequence = self._sequence
        append = self._outgoing.append
        for raw in events:
            size = len(raw) + extra
            if size >= MAX_FRAME_PAYLOAD:
                sequence = self._send_large(raw, sequence, SEMI_SYNC_EVENT[:extra])
                continue
            append((size | sequence << 24 | prefix).to_bytes(width, "little"))
            append(raw)
            sequence = (sequence + 1) & 0xFF
        self._sequence = sequence

    def send_event_to_acknowledge(self, raw: bytes) -> None:
        """Send a raw event that the semi-synchronous replica has to acknowledge."""
        self._check_dump()
        if not self.semi_sync:
            raise RuntimeError("only a semi-synchronous replica acknowledges events")
        size = len(raw) + 3
        if size >= MAX_FRAME_PAYLOAD:
            self._send_large(raw, self._sequence, SEMI_SYNC_EVENT_WITH_ACK)
        else:
            word = size | self._sequence << 24 | _SEMI_SYNC | _ACK_REQUESTED
            self._outgoing += (word.to_bytes(7, "little"), raw)
        self._sequence = _RESTART
        if self._outgoing_packets is not None:
            self._pack()
            # MySQL's semisync_source.cc clears this counter, MariaDB's sets it to 1.
            self._outgoing_packets.sequence = _RESTART if self.greeting.is_mariadb else 0

    def begin_event(self, size: int) -> None:
        """Begin a raw event of ``size`` bytes; ``send_piece`` sends it. It does not ask for an acknowledgement."""
        self._check_dump()
        prefix = SEMI_SYNC_EVENT if self.semi_sync else EVENT
        self._event = PayloadInPieces(len(prefix) + size, self._sequence)
        self.send_piece(prefix)

    def send_piece(self, piece: bytes) -> None:
        """Send the next bytes of the event that ``begin_event`` began."""
        if self._event is None:
            raise RuntimeError("no event has begun")
        self._outgoing += self._event.encode(piece)
        if self._event.is_complete:
            self._sequence, self._event = self._event.sequence, None

    @property
    def is_inside_event(self) -> bool:
        """Whether an event has begun and is not complete: the client would take anything else for a part of it."""
        return self._event is not None

    def send_dump_end(self) -> None:
        """End the dump in order: the client asked not to wait for further events."""
        self._check_dump()
        self._frames.sequence = self._sequence
        self._send(self._end_of_rows())
        self._end_command()

    # What packets mean, phase by phase

    def _step(self) -> AcceptorEvent | NeedData:
        while (payload := self._read()) is not None:
            # An empty password is an empty answer.
            if not payload and self.phase is not Phase.AUTHENTICATION:
                raise ProtocolError(f"the client sent an empty packet in {self.phase.value}")
            event = _HANDLERS[self.phase](self, payload)
            if event is not None:
                return event
        return NEED_DATA

    def _read(self) -> bytes | None:
        while (payload := self._frames.read()) is None and self._unpack():
            pass
        return payload

    def _unpack(self) -> bool:
        """Make the client's next packet readable; False while the packet is incomplete."""
        incoming, outgoing = self._incoming_packets, self._outgoing_packets
        if incoming is None or outgoing is None:
            return False
        packet = incoming.unpack()
        if packet is None:
            return False
        if self.phase is Phase.DUMP:
            incoming.sequence = 0
        else:
            outgoing.sequence = incoming.sequence
        self._frames.receive(packet[1])
        return True

    def _pack(self) -> None:
        """Flush the outgoing frames, into packets if the connection is compressed."""
        if self._outgoing:
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            packets = self._outgoing_packets
            self._packed.append(data if packets is None else packets.pack(data))

    def _on_response(self, payload: bytes) -> AcceptorEvent | None:
        if self._asks_for_tls(payload):
            SslRequest.parse(payload)
            if self._frames.buffered:
                raise ProtocolError("the client sent data in clear after its request for TLS")
            self.phase = Phase.TLS
            return StartTls()
        response = HandshakeResponse.parse(payload)
        self._response = response
        self.capabilities = response.capabilities & self.greeting.capabilities
        self.phase = Phase.AUTHENTICATION
        if self._require_tls and not self.tls:
            raise refused(INSECURE)
        self._account = self._accounts.get(response.user)
        account = self._account or self._decoy()
        secure = self.tls or self._secure_transport
        challenge = Challenge(account, self.greeting.auth_data[:NONCE_SIZE], secure, self._private_key)
        self._verifier = VERIFIERS[account.plugin](challenge)
        has_plugin = Capability.PLUGIN_AUTH in self.capabilities
        if account.plugin == (response.auth_plugin if has_plugin else NATIVE_PASSWORD):
            return self._on_authentication(response.auth_response)
        if not has_plugin:
            raise refused(OLD_CLIENT)
        self._send(AuthSwitchRequest(account.plugin, self.greeting.auth_data).encode())
        return None

    def _asks_for_tls(self, payload: bytes) -> bool:
        offered = Capability.SSL in self.greeting.capabilities and not self.tls
        return offered and len(payload) == _SSL_REQUEST_SIZE

    def _decoy(self) -> Account:
        """An account for an unknown user, which gets the same challenges as a known one."""
        for account in self._accounts.values():
            return replace(account, password=StoredPassword.unknown())
        return Account(StoredPassword.unknown(), NATIVE_PASSWORD)

    def _on_tls(self, payload: bytes) -> AcceptorEvent:
        raise ProtocolError("the client sent data in clear while the transport was being changed to TLS")

    def _on_authentication(self, payload: bytes) -> AcceptorEvent | None:
        assert self._verifier is not None
        verify = self._verifier.more if self._has_started else self._verifier.start
        self._has_started = True
        verdict = verify(payload)
        return None if self._goes_on(verdict) else self._log_in()

    def _goes_on(self, verdict: Verdict) -> bool:
        """Whether the client has to answer once more. Raises ``AuthenticationError`` if the client is refused."""
        assert self._response is not None
        # An unknown user is refused even if the answer was accepted.
        if verdict.accepted is False or (verdict.accepted and self._account is None):
            using = "YES" if self._response.auth_response.strip(b"\0") else "NO"
            raise refused(access_denied(self._response.user, self._peer, using))
        if verdict.send is not None:
            self._send(AuthMoreData(verdict.send).encode())
        return verdict.accepted is None

    def _log_in(self) -> LoggedIn:
        assert self._response is not None
        self._send(Ok(info=self._certificate_hash()).encode(self.capabilities))
        self._frames.max_payload = MAX_COMMAND
        self._end_command()
        codec = agreed_codec(self.capabilities)
        if codec is not None:
            self._begin_compression(codec)
        return LoggedIn(self._response.user, self._response.attributes)

    def _certificate_hash(self) -> str:
        """The proof that this server knows the password and has this certificate (MDEV-31855); mostly empty."""
        account = self._account
        is_usable = account is not None and account.plugin == NATIVE_PASSWORD and self.greeting.is_mariadb
        fingerprint = self._fingerprint() if self.tls and self._fingerprint else None
        if not (fingerprint and is_usable):
            return ""
        assert account is not None
        nonce = self.greeting.auth_data[:NONCE_SIZE]
        return PROOF + account.password.prove_certificate(nonce, fingerprint)

    def _on_command(self, payload: bytes) -> AcceptorEvent | None:
        command = payload[0]
        if command == Command.PING:
            self._send(Ok().encode(self.capabilities))
            self._end_command()
            return Answered()
        known = _COMMANDS.get(command)
        if known is None:
            self._send(UNKNOWN_COMMAND.encode())
            self._end_command()
            return Answered()
        parse, phase = known
        if command == Command.QUERY and Capability.QUERY_ATTRIBUTES in self.capabilities:
            parse = parse_query
        event = parse(payload)
        self.phase = phase
        if phase is Phase.DUMP:
            self._sequence = self._frames.sequence
            self._frames.sequence = 0
            if self._incoming_packets is not None:
                self._incoming_packets.sequence = 0
        return event

    def _on_dump(self, payload: bytes) -> AcceptorEvent:
        """During a dump the client sends only acknowledgements, each numbered 0, and COM_QUIT."""
        self._frames.sequence = 0
        if payload[0] == Command.QUIT:
            self.phase = Phase.CLOSED
            return Quit.parse(payload)
        return SemiSyncAck.parse(payload)

    def _on_closed(self, payload: bytes) -> AcceptorEvent:
        raise ProtocolError("the client sent data after the end of the conversation")

    # Helpers

    def _send(self, payload: bytes) -> None:
        self._outgoing.append(self._frames.encode(payload))

    def _send_large(self, raw: bytes, sequence: int, prefix: bytes) -> int:
        """Send an event of several frames; returns the next frame's number."""
        frames = FrameStream()
        frames.sequence = sequence
        self._outgoing.append(frames.encode(prefix + raw))
        return frames.sequence

    def _end_of_rows(self) -> bytes:
        if Capability.DEPRECATE_EOF in self.capabilities:
            return Ok(ends_rows=True).encode(self.capabilities)
        return Eof().encode()

    def _end_command(self) -> None:
        self.phase = Phase.READY
        self._frames.sequence = 0
        if self._incoming_packets is not None:
            self._pack()
            self._incoming_packets.sequence = 0

    def _begin_compression(self, codec: Codec) -> None:
        """Compress everything after the OK, in both directions."""
        self._pack()
        rest = self._frames.rest()
        self._frames = FrameStream(MAX_COMMAND)
        self._incoming_packets, self._outgoing_packets = CompressedPackets(codec), CompressedPackets(codec)
        self._incoming_packets.receive(rest)

    def _check_dump(self) -> None:
        if self.phase is not Phase.DUMP or self._event is not None:
            raise RuntimeError("events are sent in a dump only, one after another")

    def _close(self, error: ReplicaError, told: Err) -> None:
        if self.phase is Phase.DUMP:
            self._frames.sequence = self._sequence
        if not self.is_inside_event:
            self._send(told.encode())
        self._error = error
        self.phase = Phase.CLOSED


_HANDLERS: Final[Mapping[Phase, Callable[[Acceptor, bytes], AcceptorEvent | None]]] = MappingProxyType(
    {
        Phase.HANDSHAKE: Acceptor._on_response,
        Phase.TLS: Acceptor._on_tls,
        Phase.AUTHENTICATION: Acceptor._on_authentication,
        Phase.READY: Acceptor._on_command,
        Phase.DUMP: Acceptor._on_dump,
        Phase.CLOSED: Acceptor._on_closed,
    }
)
_COMMANDS: Final[Mapping[int, tuple[Callable[[bytes], AcceptorEvent], Phase]]] = MappingProxyType(
    {
        Command.QUIT: (Quit.parse, Phase.CLOSED),
        Command.QUERY: (Query.parse, Phase.QUERY),
        Command.REGISTER_SLAVE: (RegisterReplica.parse, Phase.REGISTER),
        Command.BINLOG_DUMP: (BinlogDump.parse, Phase.DUMP),
        Command.BINLOG_DUMP_GTID: (BinlogDumpGtid.parse, Phase.DUMP),
    }
)
