"""A fuzzer of whole conversations: ``BinlogServer`` against clients that lie.

Each step is one server and a few connections to it: damaged logins, random statements and dumps, packets out of
order. The server may only refuse them: a defect that it logs, a connection that it keeps, and a server that no longer
answers fail the step. See ``tests.support.limited_steps``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from protocol.constants import Capability, Command
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid, Query, RegisterReplica, SemiSyncAck
from protocol.conversation.messages import Handshake, HandshakeResponse, SslRequest
from protocol.conversation.packets import FrameStream
from replica.server import BinlogServer
from tests.support.fake_source import sha2_scramble
from tests.support.limited_steps import Step
from tests.support.served import (
    PASSWORD,
    USER,
    RawClient,
    gtids,
    logged_in,
    mariadb_log,
    mariadb_transaction,
    serving,
    write_mysql_files,
)
from tests.support.socket_source import until

_WORDS = (
    "SELECT", "SET", "SHOW", "VARIABLES", "GLOBAL", "STATUS", "LIKE", "WHERE", "Variable_name", "IN", "KILL",
    "BINARY", "LOGS", "LOG", "MASTER", "PROCESSLIST", "REPLICAS", "SLAVE", "HOSTS", "FROM", "information_schema",
    "COLUMNS", "LIMIT", "AS", "NULL", "UNIX_TIMESTAMP()", "NOW()", "CONNECTION_ID()", "BINLOG_GTID_POS", "(", ")",
    ",", "=", ":=", "@a", "@b", "@@server_id", "@@gtid_executed", "@@global.gtid_binlog_state", "@@nothing", "1",
    "-1", "9" * 5000, "'x'", "'%a%b%c%d%e%f'", "'" + "%a" * 60 + "'", "'\udcff'", '"y"', "`z`", "X'ff'", "0xfffe",
    "'", "/*", "*/", "--", "#", ";", "\\", "\x00", "\x1b", "é", "'" + "x" * 60_000 + "'",
)  # fmt: skip
_VARIABLES = (
    "master_heartbeat_period", "source_heartbeat_period", "master_binlog_checksum", "slave_uuid", "replica_uuid",
    "rpl_semi_sync_replica", "slave_connect_state", "slave_gtid_strict_mode", "mariadb_slave_capability",
)  # fmt: skip
_VALUES = (
    "0", "1", "NULL", "'CRC32'", "'NONE'", "1e9", "9" * 400, "18446744073709551615", "'0-1-2'", "'0-1-2,0-1-3'", "''",
    "'x'", "'1-1-9,0-2-4'",
)  # fmt: skip
_CAPABILITIES = (
    Capability.PROTOCOL_41
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.DEPRECATE_EOF
)
_SECONDS = 30


def _statement(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return f"SET @{rng.choice(_VARIABLES)} = {rng.choice(_VALUES)}"
    return " ".join(rng.choices(_WORDS, k=rng.choice((2, 4, 8, 30))))


def _command(rng: random.Random) -> bytes:
    file = rng.choice(("", "bin.000001", "bin.000002", "bin.000009", "../x", "bin.000001\0"))
    position = rng.choice((0, 3, 4, 5, 126, 200, 1 << 31, (1 << 32) - 1))
    server_id = rng.choice((0, 1, 7))
    kind = rng.randrange(7)
    if kind == 0:
        return BinlogDump(file.strip("\0"), position, server_id, rng.choice((0, 1, 2, 0xFFFF))).encode()
    if kind == 1:
        encoded = rng.choice(
            (b"", gtids(1, 3).encode(), gtids(1, 99).encode(), rng.randbytes(30), b"\xff" * 8)
        )
        return BinlogDumpGtid(encoded, server_id, rng.randrange(8), file.strip("\0"), position).encode()
    if kind == 2:
        return RegisterReplica(server_id, "host\n", "user", "password", 3306).encode()
    if kind == 3:
        return rng.choice(
            (
                bytes([Command.PING]),
                bytes([Command.QUIT]),
                SemiSyncAck("bin.000001", 9).encode(),
                rng.randbytes(9),
            )
        )
    statement = _statement(rng).encode("utf-8", "surrogateescape")
    return bytes([Command.QUERY]) + statement if kind < 6 else Query("SELECT 1").encode()


def _login(rng: random.Random, greeting: Handshake) -> bytes:
    answer = sha2_scramble(PASSWORD, greeting.auth_data[:20])
    user = USER if rng.random() < 0.9 else rng.choice(("root", "x\ny", "\x1b[31m", ""))
    response = HandshakeResponse(
        _CAPABILITIES,
        user,
        answer,
        auth_plugin="caching_sha2_password",
        attributes={"_client_name": "fuzzer"},
    )
    return response.encode()


def _damaged(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 40))
    changed = bytearray(data or b"\0")
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0xFB, 0xFC, 0xFE, 0xFF))
    return bytes(changed)


def _bytes_of(rng: random.Random, greeting: Handshake) -> Iterator[bytes]:
    """What one client sends, piece by piece."""
    frames = FrameStream()
    frames.sequence = 1
    if rng.random() < 0.1:
        yield frames.encode(SslRequest(_CAPABILITIES | Capability.SSL).encode()) + rng.randbytes(
            rng.randrange(60)
        )
    login = _login(rng, greeting)
    yield frames.encode(_damaged(login, rng) if rng.random() < 0.2 else login)
    for _ in range(rng.randrange(1, 12)):
        frames = FrameStream()
        frames.sequence = rng.randrange(256) if rng.random() < 0.03 else 0
        command = _command(rng)
        data = frames.encode(_damaged(command, rng) if rng.random() < 0.1 else command)
        yield _damaged(data, rng) if rng.random() < 0.03 else data


async def _client(server: BinlogServer, rng: random.Random) -> None:
    async with RawClient.connect(server, host=f"127.0.0.{rng.randrange(1, 250)}") as client:
        greeting = Handshake.parse(await client.payload())
        with contextlib.suppress(OSError):
            for data in _bytes_of(rng, greeting):
                client.writer.write(data)
                await client.writer.drain()
                await asyncio.sleep(0)
            client.writer.write_eof()
        await client.is_closed()


class _Complaints(logging.Handler):
    """What the server logs as a warning or worse: nothing that a client does may cause that."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(self.format(record))


def _write(folder: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        write_mysql_files(folder)
        return
    log = mariadb_log()
    for sequence in range(1, 5):
        mariadb_transaction(log, sequence)
    (folder / "bin.000001").write_bytes(log.data)


async def _converse(rng: random.Random, folder: Path) -> None:
    _write(folder, rng)
    complaints = _Complaints()
    logger = logging.getLogger("replica.server")
    logger.addHandler(complaints)
    try:
        given = {"tls": False, "auth_plugin": "caching_sha2_password", "semi_sync": rng.random() < 0.3}
        async with asyncio.timeout(_SECONDS), serving(folder, **given) as server:
            await asyncio.gather(*(_client(server, rng) for _ in range(4)))
            await until(lambda: not server._connections)
            assert not server.replicas
            async with logged_in(server) as session:
                assert await session.query_value("SELECT 1") == "1"
    finally:
        logger.removeHandler(complaints)
    assert not complaints.records, complaints.records[0]


def steps(seed: int) -> Iterator[Step]:
    """Conversations without end; each depends on the seed and its number alone."""
    number = 0
    while True:
        yield f"clients {number}", partial(_run, random.Random(f"{seed}/{number}"))
        number += 1


def _run(rng: random.Random) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_converse(rng, Path(folder)))
