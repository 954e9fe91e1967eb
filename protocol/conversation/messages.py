"""The messages of the client/server protocol that a replica and a source exchange at login and in queries.

Every message parses and encodes one whole payload (``packets`` makes the frames), so that the same classes serve
the client's side, the server's side and the tests. Parsers raise ``ProtocolError`` for a payload that is too short,
too long or malformed. Layouts: MySQL's "Client/Server Protocol" pages (doxygen ``page_protocol_*``) and
MariaDB's knowledge base. Nothing here keeps state or decides on the order of messages.
"""

import re
from collections.abc import Mapping

from ..constants import Capability, StatusFlag
from ..errors import ConfigurationError, ProtocolError
from ..records import field, record
from ..wire import Reader, encode_lenenc_bytes, encode_lenenc_int, utf8_bytes

UTF8MB4_GENERAL_CI = 45  # known to every server since 5.5.3, unlike utf8mb4_0900_ai_ci
MAX_PACKET_SIZE = 1 << 30

OK_HEADER = 0x00
AUTH_MORE_DATA_HEADER = 0x01
EOF_HEADER = 0xFE
ERR_HEADER = 0xFF

# Bytes of an error's text that are read; servers send up to 512 (mysql_com.h: MYSQL_ERRMSG_SIZE).
_LONGEST_MESSAGE = 8192
_AUTH_DATA_FIRST = 8
_AUTH_DATA_SECOND_MINIMUM = 13

TextValue = str | bytes | None


def message_reader(payload: bytes) -> Reader:
    """A cursor over a payload of the client/server protocol; raises ProtocolError if it is too short or too long."""
    return Reader(payload, truncated=_malformed)


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(f"a malformed packet: {reason}")


def _expect_header(reader: Reader, header: int, name: str) -> None:
    found = reader.u8()
    if found != header:
        raise ProtocolError(f"{name} begins with 0x{header:02x}, not with 0x{found:02x}")


def decode_text(data: bytes) -> str:
    """Text of names and messages; bytes that are not UTF-8 become backslash escapes. Never fails."""
    return data.decode("utf-8", "backslashreplace")


@record(frozen=True, slots=True)
class Handshake:
    """The server's greeting, protocol version 10.

    ``server_version`` is the server's own text, including MariaDB's "5.5.5-". ``auth_data`` is for the
    authentication plugin: 20 random bytes and a zero. ``capabilities`` holds MariaDB's extended bits
    from bit 32 on.
    """

    server_version: str
    connection_id: int
    capabilities: Capability
    auth_data: bytes
    auth_plugin: str = ""
    collation: int = UTF8MB4_GENERAL_CI
    status: int = StatusFlag.AUTOCOMMIT

    @property
    def is_mariadb(self) -> bool:
        """Whether the version names MariaDB or, if the version was reconfigured, MariaDB's own bits are set."""
        return "mariadb" in self.server_version.lower() or self.capabilities >> 32 != 0

    @property
    def version(self) -> tuple[int, ...]:
        """The numbers of the version, such as ``(10, 11, 18)``; empty if the text has none."""
        # MariaDB before 11 puts 5.5.5 first, because old replicas would read "10" as "1".
        text = self.server_version.removeprefix("5.5.5-") if self.is_mariadb else self.server_version
        numbers = re.match(r"[0-9]{1,4}(?:\.[0-9]{1,4}){0,3}", text)
        return tuple(int(number) for number in numbers[0].split(".")) if numbers else ()

    @classmethod
    def parse(cls, payload: bytes) -> "Handshake":
        """Read a greeting; protocol versions other than 10 are refused."""
        reader = message_reader(payload)
        protocol = reader.u8()
        if protocol != 10:
            raise ProtocolError(f"the server speaks protocol version {protocol}, not 10")
        server_version = decode_text(reader.nul_terminated())
        connection_id = reader.uint(4)
        auth_data = reader.take(_AUTH_DATA_FIRST)
        reader.skip(1)
        capabilities = Capability(reader.uint(2))
        collation = reader.u8()
        status = reader.uint(2)
        capabilities |= Capability(reader.uint(2) << 16)
        auth_size = reader.u8()
        reader.skip(6)
        # MySQL sends zeros here, so the bits can be read without knowing the family.
        capabilities |= Capability(reader.uint(4) << 32)
        if Capability.SECURE_CONNECTION in capabilities:
            auth_data += reader.take(max(_AUTH_DATA_SECOND_MINIMUM, auth_size - _AUTH_DATA_FIRST))
        auth_plugin = ""
        if Capability.PLUGIN_AUTH in capabilities:
            auth_plugin = decode_text(reader.nul_terminated())
        reader.expect_end()
        return cls(server_version, connection_id, capabilities, auth_data, auth_plugin, collation, status)

    def encode(self) -> bytes:
        """The payload of this greeting."""
        has_plugin = Capability.PLUGIN_AUTH in self.capabilities
        parts = [
            b"\x0a",
            self.server_version.encode() + b"\0",
            self.connection_id.to_bytes(4, "little"),
            self.auth_data[:_AUTH_DATA_FIRST] + b"\0",
            (self.capabilities & 0xFFFF).to_bytes(2, "little"),
            self.collation.to_bytes(1, "little"),
            self.status.to_bytes(2, "little"),
            (self.capabilities >> 16 & 0xFFFF).to_bytes(2, "little"),
            (len(self.auth_data) if has_plugin else 0).to_bytes(1, "little"),
            bytes(6),
            (self.capabilities >> 32).to_bytes(4, "little"),
        ]
        if Capability.SECURE_CONNECTION in self.capabilities:
            parts.append(self.auth_data[_AUTH_DATA_FIRST:].ljust(_AUTH_DATA_SECOND_MINIMUM, b"\0"))
        if has_plugin:
            parts.append(self.auth_plugin.encode() + b"\0")
        return b"".join(parts)


@record(frozen=True, slots=True)
class SslRequest:
    """The first half of a handshake response, sent unencrypted; the TLS handshake follows."""

    capabilities: Capability
    max_packet_size: int = MAX_PACKET_SIZE
    collation: int = UTF8MB4_GENERAL_CI

    @classmethod
    def parse(cls, payload: bytes) -> "SslRequest":
        """Read a request of exactly 32 bytes."""
        reader = message_reader(payload)
        request = cls._parse_from(reader)
        reader.expect_end()
        if Capability.SSL not in request.capabilities:
            raise ProtocolError("a handshake response of the size of an SSL request does not ask for TLS")
        return request

    @classmethod
    def _parse_from(cls, reader: Reader) -> "SslRequest":
        capabilities = Capability(reader.uint(4))
        if Capability.PROTOCOL_41 not in capabilities:
            raise ProtocolError("the client speaks the protocol of servers before MySQL 4.1")
        max_packet_size = reader.uint(4)
        collation = reader.u8()
        reader.skip(19)
        capabilities |= Capability(reader.uint(4) << 32)
        return cls(capabilities, max_packet_size, collation)

    def encode(self) -> bytes:
        """The payload of this request."""
        return (
            (self.capabilities & 0xFFFFFFFF).to_bytes(4, "little")
            + self.max_packet_size.to_bytes(4, "little")
            + self.collation.to_bytes(1, "little")
            + bytes(19)
            + (self.capabilities >> 32).to_bytes(4, "little")
        )


@record(frozen=True, slots=True)
class HandshakeResponse:
    """The client's answer to the greeting (HandshakeResponse41). Its repr omits the authentication response.

    ``zstd_level``, from 1 to 22, is sent if the capabilities have ZSTD_COMPRESSION.
    """

    capabilities: Capability
    user: str
    auth_response: bytes = field(repr=False)
    database: str = ""
    auth_plugin: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    max_packet_size: int = MAX_PACKET_SIZE
    collation: int = UTF8MB4_GENERAL_CI
    zstd_level: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> "HandshakeResponse":
        """Read a response; its own capabilities say which fields it has."""
        reader = message_reader(payload)
        start = SslRequest._parse_from(reader)
        capabilities = start.capabilities
        user = decode_text(reader.nul_terminated())
        if Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA in capabilities:
            auth_response = reader.lenenc_bytes()
        elif Capability.SECURE_CONNECTION in capabilities:
            auth_response = reader.short_bytes()
        else:
            auth_response = reader.nul_terminated()
        database = auth_plugin = ""
        if Capability.CONNECT_WITH_DB in capabilities:
            database = decode_text(reader.nul_terminated())
        if Capability.PLUGIN_AUTH in capabilities:
            auth_plugin = decode_text(reader.nul_terminated())
        attributes: dict[str, str] = {}
        if Capability.CONNECT_ATTRS in capabilities:
            attributes = _parse_attributes(reader.lenenc_bytes())
        zstd_level = reader.u8() if Capability.ZSTD_COMPRESSION in capabilities else 0
        reader.expect_end()
        return cls(
            capabilities,
            user,
            auth_response,
            database,
            auth_plugin,
            attributes,
            start.max_packet_size,
            start.collation,
            zstd_level,
        )

    def encode(self) -> bytes:
        """The payload of this response, with the fields that its capabilities name."""
        capabilities = self.capabilities
        parts = [SslRequest(capabilities, self.max_packet_size, self.collation).encode()]
        parts.append(self.user.encode() + b"\0")
        if Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA in capabilities:
            parts.append(encode_lenenc_bytes(self.auth_response))
        elif Capability.SECURE_CONNECTION in capabilities:
            if len(self.auth_response) > 255:
                raise ConfigurationError(
                    f"the authentication response has {len(self.auth_response)} bytes; "
                    "this server accepts 255 at most: use a shorter password"
                )
            parts.append(len(self.auth_response).to_bytes(1, "little") + self.auth_response)
        else:
            parts.append(self.auth_response + b"\0")
        if Capability.CONNECT_WITH_DB in capabilities:
            parts.append(self.database.encode() + b"\0")
        if Capability.PLUGIN_AUTH in capabilities:
            parts.append(self.auth_plugin.encode() + b"\0")
        if Capability.CONNECT_ATTRS in capabilities:
            pairs = (encode_lenenc_bytes(text.encode()) for pair in self.attributes.items() for text in pair)
            parts.append(encode_lenenc_bytes(b"".join(pairs)))
        if Capability.ZSTD_COMPRESSION in capabilities:
            parts.append(self.zstd_level.to_bytes(1, "little"))
        return b"".join(parts)


def _parse_attributes(data: bytes) -> dict[str, str]:
    reader = message_reader(data)
    attributes = {}
    while reader.remaining:
        name = decode_text(reader.lenenc_bytes())
        attributes[name] = decode_text(reader.lenenc_bytes())
    return attributes


@record(frozen=True, slots=True)
class AuthSwitchRequest:
    """The server asks for another authentication plugin; ``data`` is that plugin's data, unchanged.

    An empty ``plugin`` is the request of servers before 4.1: a packet of the single byte 0xFE.
    """

    plugin: str
    data: bytes

    @classmethod
    def parse(cls, payload: bytes) -> "AuthSwitchRequest":
        """Read a request of either form."""
        reader = message_reader(payload)
        _expect_header(reader, EOF_HEADER, "AuthSwitchRequest")
        if not reader.remaining:
            return cls("", b"")
        plugin = reader.nul_terminated()
        if not plugin:
            raise ProtocolError("AuthSwitchRequest names no plugin")
        return cls(decode_text(plugin), reader.rest())

    def encode(self) -> bytes:
        """The payload of this request."""
        return b"\xfe" + (self.plugin.encode() + b"\0" + self.data if self.plugin else b"")


@record(frozen=True, slots=True)
class AuthMoreData:
    """A further message from the server's authentication plugin to ours."""

    data: bytes

    @classmethod
    def parse(cls, payload: bytes) -> "AuthMoreData":
        """Read the message."""
        reader = message_reader(payload)
        _expect_header(reader, AUTH_MORE_DATA_HEADER, "AuthMoreData")
        return cls(reader.rest())

    def encode(self) -> bytes:
        """The payload of this message."""
        return b"\x01" + self.data


@record(frozen=True, slots=True)
class Ok:
    """A command succeeded. With header 0xFE (``ends_rows``) the packet ends a result set, instead of EOF."""

    affected_rows: int = 0
    last_insert_id: int = 0
    status: int = StatusFlag.AUTOCOMMIT
    warnings: int = 0
    info: str = ""
    session_state: bytes = b""
    ends_rows: bool = False

    @classmethod
    def parse(cls, payload: bytes, capabilities: Capability = Capability.PROTOCOL_41) -> "Ok":
        """Read an OK packet; the agreed ``capabilities`` say whether session state may follow."""
        reader = message_reader(payload)
        header = reader.u8()
        if header not in (OK_HEADER, EOF_HEADER):
            raise ProtocolError(f"OK begins with 0x00 or 0xfe, not with 0x{header:02x}")
        affected_rows = reader.lenenc_int()
        last_insert_id = reader.lenenc_int()
        status = reader.uint(2)
        warnings = reader.uint(2)
        info = session_state = b""
        if Capability.SESSION_TRACK not in capabilities:
            # MySQL documents a string up to the packet's end; MariaDB, and MySQL since 5.7.5, send its length first.
            info = _lenenc_or_rest(reader)
        elif reader.remaining:
            info = reader.lenenc_bytes()
            if status & StatusFlag.SESSION_STATE_CHANGED:
                session_state = reader.lenenc_bytes()
        reader.expect_end()
        return cls(
            affected_rows,
            last_insert_id,
            status,
            warnings,
            decode_text(info),
            session_state,
            header == EOF_HEADER,
        )

    def encode(self, capabilities: Capability = Capability.PROTOCOL_41) -> bytes:
        """The payload of this packet."""
        parts = [
            b"\xfe" if self.ends_rows else b"\x00",
            encode_lenenc_int(self.affected_rows),
            encode_lenenc_int(self.last_insert_id),
            self.status.to_bytes(2, "little"),
            self.warnings.to_bytes(2, "little"),
        ]
        info = self.info.encode()
        changed = Capability.SESSION_TRACK in capabilities and self.status & StatusFlag.SESSION_STATE_CHANGED
        if info or changed:
            parts.append(encode_lenenc_bytes(info))
        if changed:
            parts.append(encode_lenenc_bytes(self.session_state))
        return b"".join(parts)


def _lenenc_or_rest(reader: Reader) -> bytes:
    start = reader.position
    try:
        text = reader.lenenc_bytes()
    except ProtocolError:
        text = None
    if text is not None and not reader.remaining:
        return text
    reader.position = start
    return reader.rest()


@record(frozen=True, slots=True)
class Err:
    """The server's error; ``sqlstate`` is empty if not sent (before the server knows the client's capabilities)."""

    code: int
    sqlstate: str
    message: str

    @classmethod
    def parse(cls, payload: bytes) -> "Err":
        """Read an ERR packet with or without SQLSTATE, and of a very long text the beginning."""
        reader = message_reader(payload)
        _expect_header(reader, ERR_HEADER, "ERR")
        code = reader.uint(2)
        sqlstate = ""
        if reader.peek() == ord("#"):
            sqlstate = decode_text(reader.take(6)[1:])
        return cls(code, sqlstate, decode_text(reader.take(min(reader.remaining, _LONGEST_MESSAGE))))

    def encode(self) -> bytes:
        """The payload of this packet."""
        state = b"#" + self.sqlstate.encode() if self.sqlstate else b""
        message = utf8_bytes(self.message)
        return b"\xff" + self.code.to_bytes(2, "little") + state + message


@record(frozen=True, slots=True)
class Eof:
    """The end of column definitions, rows or a binlog dump, for connections without DEPRECATE_EOF."""

    warnings: int = 0
    status: int = StatusFlag.AUTOCOMMIT

    @classmethod
    def parse(cls, payload: bytes) -> "Eof":
        """Read an EOF packet of five bytes."""
        reader = message_reader(payload)
        _expect_header(reader, EOF_HEADER, "EOF")
        warnings = reader.uint(2)
        status = reader.uint(2)
        reader.expect_end()
        return cls(warnings, status)

    def encode(self) -> bytes:
        """The payload of this packet."""
        return b"\xfe" + self.warnings.to_bytes(2, "little") + self.status.to_bytes(2, "little")


@record(frozen=True, slots=True)
class ResultSet:
    """A complete text result set: column names, and rows in the server's order.

    A value is ``str``, or ``bytes`` if it is not UTF-8, or None for NULL. Numbers stay the server's text.
    """

    columns: tuple[str, ...]
    rows: list[tuple[TextValue, ...]]


@record(frozen=True, slots=True)
class PackedRows:
    """A text result set whose rows are the payloads of their packets: ``parse_row`` reads one."""

    columns: tuple[str, ...]
    rows: list[bytes]
