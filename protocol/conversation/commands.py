"""The command packets that a replica sends, as payloads.

Every command encodes and parses, so that the replica's and the source's side use the same classes. Arguments that
do not fit their fields raise ``ConfigurationError``; payloads that do not parse raise ``ProtocolError``.
``replica_side`` and ``source_side`` decide when a command may be sent and what answers it.
"""

import contextlib

from ..constants import Command
from ..errors import ConfigurationError, ProtocolError
from ..position import FIRST_POSITION
from ..records import field, record
from ..wire import Reader
from .messages import decode_text, message_reader

SEMI_SYNC_MAGIC = 0xEF


def encode_uint(value: int, size: int, name: str) -> bytes:
    """An unsigned number in ``size`` bytes; ``ConfigurationError`` if it does not fit."""
    if not 0 <= value < 1 << 8 * size:
        raise ConfigurationError(f"{name} {value} does not fit into {size} bytes")
    return value.to_bytes(size, "little")


def encode_text(text: str, name: str) -> bytes:
    """The text in UTF-8; ``ConfigurationError`` for surrogates, which UTF-8 cannot encode."""
    with contextlib.suppress(UnicodeEncodeError):
        return text.encode()
    # Raised outside of the except block: UnicodeEncodeError holds the text, which may be a password, and would become
    # the context of this error.
    raise ConfigurationError(f"{name} holds characters that are not Unicode text")


def encode_name(text: str, name: str) -> bytes:
    """The text in UTF-8; ``ConfigurationError`` for a zero byte, which would end the field early."""
    data = encode_text(text, name)
    if b"\0" in data:
        raise ConfigurationError(f"{name} holds a zero character")
    return data


def _short(text: str, name: str) -> bytes:
    data = encode_name(text, name)
    return encode_uint(len(data), 1, f"the length of {name}") + data


def _decode_name(data: bytes) -> str:
    """A file name up to its first zero byte, as servers read it; python-mysql-replication sends three zero bytes."""
    return decode_text(data.partition(b"\0")[0])


def command_reader(payload: bytes, command: int) -> Reader:
    """A cursor over a command's payload, after its command byte; ``ProtocolError`` for another command byte."""
    reader = message_reader(payload)
    received = reader.u8()
    if received != command:
        raise ProtocolError(f"the command byte is 0x{received:02x}, not 0x{command:02x}")
    return reader


@record(frozen=True, slots=True)
class Answered:
    """A command that was answered when it was read. 23 KB of compressed packets can hold three million commands."""


@record(frozen=True, slots=True)
class Quit:
    """COM_QUIT: the server closes the connection without an answer."""

    @classmethod
    def parse(cls, payload: bytes) -> "Quit":
        """Read the command."""
        command_reader(payload, Command.QUIT).expect_end()
        return cls()

    def encode(self) -> bytes:
        """The payload of this command."""
        return bytes([Command.QUIT])


@record(frozen=True, slots=True)
class Query:
    """COM_QUERY, without query attributes."""

    sql: str

    @classmethod
    def parse(cls, payload: bytes) -> "Query":
        """Read the command."""
        return cls(decode_text(command_reader(payload, Command.QUERY).rest()))

    def encode(self) -> bytes:
        """The payload of this command."""
        return bytes([Command.QUERY]) + encode_text(self.sql, "the statement")


@record(frozen=True, slots=True)
class RegisterReplica:
    """COM_REGISTER_SLAVE: what SHOW REPLICAS lists (user and password only with --show-slave-auth-info)."""

    server_id: int
    host: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    port: int = 0
    rank: int = 0
    source_id: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> "RegisterReplica":
        """Read the command."""
        reader = command_reader(payload, Command.REGISTER_SLAVE)
        server_id = reader.uint(4)
        host, user, password = [decode_text(reader.short_bytes()) for _ in range(3)]
        port = reader.uint(2)
        rank = reader.uint(4)
        source_id = reader.uint(4)
        reader.expect_end()
        return cls(server_id, host, user, password, port, rank, source_id)

    def encode(self) -> bytes:
        """The payload of this command."""
        return b"".join(
            [
                bytes([Command.REGISTER_SLAVE]),
                encode_uint(self.server_id, 4, "server id"),
                _short(self.host, "the replica's host name"),
                _short(self.user, "the replica's user name"),
                _short(self.password, "the replica's password"),
                encode_uint(self.port, 2, "port"),
                encode_uint(self.rank, 4, "rank"),
                encode_uint(self.source_id, 4, "source id"),
            ]
        )


@record(frozen=True, slots=True)
class BinlogDump:
    """COM_BINLOG_DUMP: asks for the events from a file's byte position on; an empty name is the oldest file."""

    file: str
    position: int
    server_id: int
    flags: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> "BinlogDump":
        """Read the command."""
        reader = command_reader(payload, Command.BINLOG_DUMP)
        position = reader.uint(4)
        flags = reader.uint(2)
        server_id = reader.uint(4)
        return cls(decode_text(reader.rest()), position, server_id, flags)

    def encode(self) -> bytes:
        """The payload of this command. Its position has 32 bits; larger positions can only be reached by GTID."""
        return b"".join(
            [
                bytes([Command.BINLOG_DUMP]),
                encode_uint(self.position, 4, "binlog position"),
                encode_uint(self.flags, 2, "dump flags"),
                encode_uint(self.server_id, 4, "server id"),
                encode_name(self.file, "the binlog file name"),
            ]
        )


@record(frozen=True, slots=True)
class BinlogDumpGtid:
    """COM_BINLOG_DUMP_GTID: asks for all transactions that an encoded GTID set lacks. MySQL only."""

    gtid_set: bytes
    server_id: int
    flags: int = 0
    file: str = ""
    position: int = FIRST_POSITION

    @classmethod
    def parse(cls, payload: bytes) -> "BinlogDumpGtid":
        """Read the command."""
        reader = command_reader(payload, Command.BINLOG_DUMP_GTID)
        flags = reader.uint(2)
        server_id = reader.uint(4)
        file = _decode_name(reader.take(reader.uint(4)))
        position = reader.uint(8)
        gtid_set = reader.take(reader.uint(4))
        reader.expect_end()
        return cls(gtid_set, server_id, flags, file, position)

    def encode(self) -> bytes:
        """The payload of this command."""
        file = encode_name(self.file, "the binlog file name")
        return b"".join(
            [
                bytes([Command.BINLOG_DUMP_GTID]),
                encode_uint(self.flags, 2, "dump flags"),
                encode_uint(self.server_id, 4, "server id"),
                encode_uint(len(file), 4, "file name length"),
                file,
                encode_uint(self.position, 8, "binlog position"),
                encode_uint(len(self.gtid_set), 4, "GTID set length"),
                self.gtid_set,
            ]
        )


@record(frozen=True, slots=True)
class SemiSyncAck:
    """A semi-synchronous replica has all events up to this end position (``semisync_replica.cc``: slaveReply)."""

    file: str
    position: int

    @classmethod
    def parse(cls, payload: bytes) -> "SemiSyncAck":
        """Read the acknowledgement; ``ProtocolError`` without a file."""
        reader = command_reader(payload, SEMI_SYNC_MAGIC)
        position = reader.uint(8)
        file = decode_text(reader.rest())
        if not file:
            raise ProtocolError("an acknowledgement names no file")
        return cls(file, position)

    def encode(self) -> bytes:
        """The payload of this acknowledgement."""
        return (
            bytes([SEMI_SYNC_MAGIC])
            + encode_uint(self.position, 8, "binlog position")
            + encode_name(self.file, "the binlog file name")
        )
