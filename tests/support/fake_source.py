"""A source in memory: frames the messages that a test wants a server to send, and reads the client's."""

from __future__ import annotations

import hashlib
from typing import Protocol

from protocol.constants import Capability
from protocol.conversation.commands import BinlogDump, Query
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Handshake, HandshakeResponse, Ok
from protocol.conversation.packets import MAX_PAYLOAD, FrameStream
from protocol.conversation.replica_side import Connection

PASSWORD = "repl-Secret_1"
NONCE = bytes(range(1, 21))
MYSQL_CAPABILITIES = Capability(0xDFFFFFFF)  # as 9.7 greets
OLD_CAPABILITIES = Capability(0x807FF7FF)  # as 5.6 greets: no SSL, no DEPRECATE_EOF
MARIADB_CAPABILITIES = Capability(0x1D81FFF7FE)  # as 10.11 greets: no SSL


class Message(Protocol):
    def encode(self) -> bytes: ...


class FakeSource:
    """The server's end of one connection. A test says each message itself; nothing is answered on its own."""

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.frames = FrameStream(MAX_PAYLOAD)
        self.sent = b""

    def send(self, *messages: Message | bytes) -> None:
        """Put messages or payloads into the client, frame after frame."""
        for message in messages:
            payload = message if isinstance(message, bytes) else message.encode()
            data = self.frames.encode(payload)
            self.sent += data
            self.client.receive_data(data)

    def read(self) -> bytes:
        """The next payload that the client sends."""
        self.frames.receive(self.client.data_to_send())
        payload = self.frames.read()
        assert payload is not None, "the client has sent nothing"
        return payload

    def read_command(self) -> bytes:
        """The next command: numbers start again."""
        self.frames.sequence = 0
        return self.read()

    def is_quiet(self) -> bool:
        """The client has nothing to send."""
        return not self.client.data_to_send()

    def greet(
        self,
        plugin: str = "mysql_native_password",
        version: str = "9.7.4",
        capabilities: Capability = MYSQL_CAPABILITIES,
    ) -> Handshake:
        handshake = Handshake(version, 7, capabilities, NONCE + b"\0", plugin)
        self.send(handshake)
        return handshake

    def read_login(self) -> HandshakeResponse:
        return HandshakeResponse.parse(self.read())


def native_scramble(password: str, nonce: bytes = NONCE) -> bytes:
    """SHA1(password) XOR SHA1(nonce + SHA1(SHA1(password)))."""
    once = hashlib.sha1(password.encode()).digest()
    mask = hashlib.sha1(nonce + hashlib.sha1(once).digest()).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def sha2_scramble(password: str, nonce: bytes = NONCE) -> bytes:
    """SHA256(password) XOR SHA256(SHA256(SHA256(password)) + nonce)."""
    once = hashlib.sha256(password.encode()).digest()
    mask = hashlib.sha256(hashlib.sha256(once).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(once, mask, strict=True))


def connect(**options: object) -> tuple[Connection, FakeSource]:
    client = Connection("repl", PASSWORD, **options)  # type: ignore[arg-type]
    return client, FakeSource(client)


def ready(capabilities: Capability = MYSQL_CAPABILITIES) -> tuple[Connection, FakeSource]:
    """A connection that has logged in."""
    client, source = connect()
    source.greet(capabilities=capabilities)
    assert isinstance(client.next_event(), Handshake)
    source.read_login()
    source.send(Ok())
    assert client.next_event() == Authenticated(Ok())
    return client, source


def dumping(*, semi_sync: bool = False) -> tuple[Connection, FakeSource]:
    """A connection that has asked for events."""
    client, source = ready()
    client.semi_sync = semi_sync
    client.send_dump("binlog.000001", 4, 4711, 2)
    assert BinlogDump.parse(source.read_command()) == BinlogDump("binlog.000001", 4, 4711, 2)
    return client, source


def ask(client: Connection, source: FakeSource, sql: str = "SELECT 1") -> None:
    client.send_query(sql)
    assert Query.parse(source.read_command()) == Query(sql)
