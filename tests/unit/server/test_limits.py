"""BinlogServer and bad clients: wrong passwords, silence, too many connections, invalid packets, slow readers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

import replica
from protocol.constants import BINLOG_MAGIC, ENCRYPTED_BINLOG_MAGIC, Capability, EventType
from protocol.conversation.commands import BinlogDump, Query, RegisterReplica
from protocol.conversation.messages import Err, Handshake, HandshakeResponse, SslRequest
from protocol.conversation.packets import FrameStream
from protocol.errors import AuthenticationError, ConfigurationError, ServerError
from replica.config.options import Options
from replica.server import BinlogServer
from replica.server.identity import ServerKeys, create_certificate
from replica.source.session import Session
from tests.support.fake_source import sha2_scramble
from tests.support.log_builder import LogBuilder
from tests.support.served import (
    CHECKSUM_ASKED,
    PASSWORD,
    USER,
    RawClient,
    dumped,
    logged_in,
    mysql_log,
    options_for,
    read_for_ever,
    rows_in,
    serving,
    write_mysql_files,
)
from tests.support.socket_source import until

CAPABILITIES = (
    Capability.PROTOCOL_41
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.DEPRECATE_EOF
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_mysql_files(tmp_path)
    return tmp_path


async def test_wrong_passwords_and_users(files: Path) -> None:
    for plugin in ("caching_sha2_password", "mysql_native_password"):
        async with serving(files, auth_plugin=plugin, tls=True) as server:
            for given in (
                {"password": "wrong"},
                {"password": ""},
                {"user": "root"},
                {"tls": "required", "user": "x"},
            ):
                with pytest.raises(AuthenticationError, match="1045"):
                    await Session.open(options_for(server, **given))
            async with logged_in(server) as session:
                assert await session.query_value("SELECT CURRENT_USER()") == f"{USER}@%"


async def test_an_empty_password_only_if_allowed(files: Path) -> None:
    with pytest.raises(ConfigurationError, match="allow_empty_password"):
        BinlogServer(files, user=USER, password="")
    async with serving(files, password="", allow_empty_password=True) as server:
        await (await Session.open(options_for(server, password=""))).aclose()
        with pytest.raises(AuthenticationError):
            await Session.open(options_for(server, password="x"))


async def test_tls(files: Path) -> None:
    async with serving(files, tls=True) as server:
        async with logged_in(server, tls="required") as session:
            assert session.uses_tls
            [(_, cipher)] = await session.query("SHOW STATUS LIKE 'Ssl_cipher'")
            assert str(cipher).startswith("TLS_")
        async with logged_in(server) as session:
            assert not session.uses_tls
        with pytest.raises(ConfigurationError, match="not trusted"):
            await Session.open(options_for(server, tls="verify-ca"))
    async with serving(files, tls=True, require_tls=True) as server:
        with pytest.raises(ServerError, match="insecure transport"):
            await Session.open(options_for(server))
        await (await Session.open(options_for(server, tls="required"))).aclose()
    async with serving(files) as server:
        with pytest.raises(replica.SourceConfigurationError, match="TLS is required"):
            await Session.open(options_for(server, tls="required"))


async def test_a_context_of_the_users_own(files: Path, tmp_path: Path) -> None:
    keys = ServerKeys()
    certificate = create_certificate(keys.private_key())
    pem = serialization.Encoding.PEM
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (tmp_path / "key.pem").write_bytes(
        keys.private_key().private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with serving(files, tls=context) as server:
        for mode in ("verify-ca", "verify-identity"):
            session = await Session.open(options_for(server, tls=mode, tls_ca=tmp_path / "cert.pem"))
            assert session.uses_tls
            await session.aclose()


async def test_silent_clients_are_closed_in_time(files: Path) -> None:
    async with serving(files, login_timeout=0.1) as server:
        async with RawClient.connect(server) as silent, RawClient.connect(server) as halfway:
            halfway.writer.write(b"\x20\0\0\1")
            assert await silent.is_closed()
            assert await halfway.is_closed()
        async with logged_in(server) as session:
            await asyncio.sleep(0.2)
            assert await session.query_value("SELECT 1") == "1"


async def test_no_more_than_so_many_connections(files: Path) -> None:
    async with serving(files, max_connections=2) as server:
        async with logged_in(server), logged_in(server):
            with pytest.raises(ServerError, match="1040"):
                await Session.open(options_for(server))
        await until(lambda: not server._connections)
        async with logged_in(server):
            pass


async def test_connections_that_come_faster_than_clients_are_served(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that waited were accepted at once, however many there may be, and nobody else had a turn meanwhile."""
    async with serving(files, max_connections=5, max_pending_logins=1000) as server:
        counts: list[int] = []
        begin = BinlogServer._begin

        def counted(server: BinlogServer, sock: socket.socket, host: str) -> None:
            begin(server, sock, host)
            counts.append(server.connections)

        monkeypatch.setattr(BinlogServer, "_begin", counted)
        with contextlib.ExitStack() as stack:
            for _ in range(50):
                client = stack.enter_context(socket.socket())
                client.connect(("127.0.0.1", server.port))
            await until(lambda: len(counts) == 50)
        assert max(counts) < 10


async def test_more_connections_than_there_are_ids(files: Path) -> None:
    """The server accepted none any more."""
    async with serving(files) as server:
        server._ids = itertools.count((1 << 32) - 1)
        for expected in ("4294967295", "0"):
            async with logged_in(server, connect_timeout=5) as session:
                assert await session.query_value("SELECT CONNECTION_ID()") == expected


async def test_idle_connections_are_closed(files: Path) -> None:
    async with serving(files, idle_timeout=0.1) as server, logged_in(server) as session:
        await until(lambda: not server._connections)
        with pytest.raises(replica.ConnectionLostError):
            await session.query("SELECT 1")


async def test_large_packets_before_login(files: Path) -> None:
    async with serving(files) as server, RawClient.connect(server) as client:
        await client.payload()
        client.writer.write(b"\xff\xff\xff\1" + bytes(1 << 20))
        with contextlib.suppress(ConnectionError):
            assert Err.parse(await client.payload()).code == 1043
        assert await client.is_closed()


# Invalid packets


def healthy(greeting: Handshake) -> list[bytes]:
    """The frames of a correct client, one by one."""
    frames = FrameStream()
    frames.sequence = 1
    response = HandshakeResponse(
        CAPABILITIES,
        USER,
        sha2_scramble(PASSWORD, greeting.auth_data[:20]),
        auth_plugin="caching_sha2_password",
        attributes={"program_name": "x"},
    )
    commands = [
        Query("SELECT @@GLOBAL.SERVER_ID").encode(),
        Query(CHECKSUM_ASKED).encode(),
        RegisterReplica(77, "here").encode(),
        BinlogDump("bin.000001", 4, 0).encode(),
    ]
    return [frames.encode(response.encode()), *(FrameStream().encode(command) for command in commands)]


def damage(packets: list[bytes], generator: random.Random) -> list[bytes]:
    """The frames of a client, with one packet random, truncated, too long, misnumbered, or out of order."""
    index = generator.randrange(len(packets))
    packet = bytearray(packets[index])
    kind = generator.randrange(6)
    if kind == 0:
        packet = bytearray(generator.randbytes(generator.randrange(1, 80)))
    elif kind == 1:
        packet = packet[: generator.randrange(len(packet))]
    elif kind == 2:
        packet[:3] = generator.randbytes(3)
    elif kind == 3:
        packet[3] ^= 1 << generator.randrange(8)
    elif kind == 4:
        for _ in range(generator.randrange(1, 5)):
            packet[generator.randrange(len(packet))] = generator.choice((0, 0xFB, 0xFE, 0xFF, 1))
    else:
        packets = generator.sample(packets, len(packets))
    return [*packets[:index], bytes(packet), *packets[index + 1 :]]


async def throw(server: BinlogServer, generator: random.Random) -> None:
    async with RawClient.connect(server) as client:
        greeting = Handshake.parse(await client.payload())
        for packet in damage(healthy(greeting), generator):
            client.writer.write(packet)
            await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            client.writer.write_eof()
        await client.is_closed()


async def test_malformed_packets(
    seed: int, files: Path, caplog: pytest.LogCaptureFixture, pytestconfig: pytest.Config
) -> None:
    """Every connection ends without a logged defect, and the server keeps working."""
    generator = random.Random(seed)
    rounds = 500 if pytestconfig.getoption("long") else 25
    async with asyncio.timeout(600), serving(files, login_timeout=30) as server:
        for _ in range(rounds):
            await asyncio.gather(*(throw(server, generator) for _ in range(20)))
        await until(lambda: not server._connections)
        assert not server._pending
        assert not server.replicas
        assert rows_in(await dumped(server)) == [1, 2, 3, 4, 5, 6]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_nonsense_instead_of_tls(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(files, tls=True, login_timeout=5) as server:
        for nonsense in (b"", b"\x16\x03\x01\x00\x05hello", bytes(100), random.Random(5).randbytes(500)):
            async with RawClient.connect(server) as client:
                await client.payload()
                frames = FrameStream()
                frames.sequence = 1
                client.writer.write(
                    frames.encode(SslRequest(CAPABILITIES | Capability.SSL).encode()) + nonsense
                )
                client.writer.write_eof()
                assert await client.is_closed()
        async with logged_in(server, tls="required") as session:
            assert session.uses_tls
        await until(lambda: not server._pending)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_commands_behind_a_dump(files: Path) -> None:
    """After the end of a dump that does not wait, a client can send any command on the same connection."""
    async with serving(files) as server, RawClient.connect(server) as client:
        greeting = Handshake.parse(await client.payload())
        response, ask, checksums, _, dump = healthy(greeting)
        client.writer.write(response)
        client.frames.sequence = 2
        assert (await client.payload())[:2] == b"\x01\x03"
        assert (await client.payload())[:1] == b"\0"
        for _ in range(30):
            for command in (checksums, dump, ask):
                client.frames.sequence = 1
                client.writer.write(command)
                answers = [await client.payload()]
                while command is not checksums and answers[-1][:1] != b"\xfe":
                    answers.append(await client.payload())
            assert answers[2] == b"\x011"
        await until(lambda: not server.replicas)


async def test_closing_ends_everything(files: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with serving(files) as server:
            session = await stack.enter_async_context(logged_in(server, CHECKSUM_ASKED))
            session.start_dump("", 4, 77, 0)
            await session.read_events(10)
            pending = await stack.enter_async_context(RawClient.connect(server))
            await pending.payload()
            forever = asyncio.create_task(server.serve_forever())
            await asyncio.sleep(0)
        await forever
        assert await pending.is_closed()
        assert not server._connections
        with pytest.raises(replica.ConnectionLostError):
            await read_for_ever(session)
        with pytest.raises(replica.ConnectionLostError, match="is the server running"):
            await Session.open(Options.build(None, {"port": server.port, "host": "127.0.0.1", "user": USER}))


# Files and options that cannot be used


@pytest.mark.parametrize("limit", ["max_connections", "max_pending_logins"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None])
def test_limits_that_let_nobody_in(tmp_path: Path, limit: str, value: object) -> None:
    """A server that began ended at its first connection, or refused each."""
    log = tmp_path / "bin.000001"
    log.write_bytes(mysql_log().data)
    given: Any = {"user": USER, "password": PASSWORD, limit: value}
    with pytest.raises(ConfigurationError, match=f"{limit}: a whole number of at least 1, not"):
        BinlogServer(log, **given)


def test_files_that_cannot_be_served(tmp_path: Path) -> None:
    def serve(files: object, **given: Any) -> BinlogServer:
        return BinlogServer(files, **({"user": USER, "password": PASSWORD} | given))  # type: ignore[arg-type]

    path = tmp_path / "bin.000001"
    for content, words in (
        (b"", "holds no event yet"),
        (BINLOG_MAGIC, "holds no event yet"),
        (ENCRYPTED_BINLOG_MAGIC + bytes(600), "is encrypted"),
        (b"\x1f\x8b" + bytes(50), "is no binary log"),
        (BINLOG_MAGIC + bytes(50), "is no binary log"),
        (BINLOG_MAGIC + LogBuilder().event(0)[:-1] * 2, "FORMAT_DESCRIPTION|no binary log|no event"),
    ):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=words):
            serve(path)
    log = mysql_log()
    log.offsets, log.data = log.offsets[:1], log.data[: log.offsets[1]]
    log.add(EventType.MARIADB_START_ENCRYPTION, bytes(17))
    path.write_bytes(log.data)
    with pytest.raises(ConfigurationError, match="encrypted"):
        serve(path)
    with pytest.raises(ConfigurationError, match="no binlog files"):
        serve(tmp_path / "nothing.*")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="no binlog files"):
        serve(tmp_path / "empty")
    for name in ("a.index", "b.index"):
        (tmp_path / "empty" / name).write_text("x\n")
    with pytest.raises(ConfigurationError, match="several index files"):
        serve(tmp_path / "empty")
    path.write_bytes(mysql_log().data)
    for given, words in (
        ({"user": ""}, "user"),
        ({"require_tls": True, "tls": False}, "require_tls"),
        ({"auth_plugin": "sha256_password"}, "auth_plugin"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            serve(path, **given)
    with open(path, "rb") as file, pytest.raises(ConfigurationError, match="open files cannot be served"):
        serve(file)


@pytest.mark.parametrize(
    "given", [{"server_id": 0}, {"server_id": -1}, {"server_id": 1 << 32}, {"server_uuid": "none"}]
)
def test_identities_that_there_are_not(files: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(given))):
        BinlogServer(files, user=USER, password=PASSWORD, **given)


async def test_who_waits_for_the_end_can_be_cancelled(files: Path) -> None:
    async with serving(files) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await server.serve_forever()
        # Cancelling the wait has not closed the server.
        assert rows_in(await dumped(server)) == [1, 2, 3, 4, 5, 6]
        waiting = asyncio.create_task(server.serve_forever())
        await asyncio.sleep(0)
        await server.aclose()
        await waiting


async def test_ports_that_are_taken(files: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = BinlogServer(files, user=USER, password=PASSWORD, port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError, match="cannot listen at 127"):
            await server.start()
    for port in (-1, 70000):
        with pytest.raises(ConfigurationError, match="port"):
            BinlogServer(files, user=USER, password=PASSWORD, port=port)
    async with serving(files, host="::1") as server:
        session = await Session.open(options_for(server, host="::1"))
        assert await session.query_value("SELECT 1") == "1"
        await session.aclose()


def test_nothing_shows_the_password(files: Path) -> None:
    server = BinlogServer(files, user=USER, password=PASSWORD)
    assert PASSWORD not in repr(server)
    assert all(PASSWORD not in repr(value) for value in vars(server).values())


@pytest.mark.parametrize("steps", range(8))
async def test_a_server_that_ends_while_it_accepts_closes_each_connection(
    files: Path, steps: int, recwarn: pytest.WarningsRecorder
) -> None:
    """After each number of steps of the event loop: no accepted socket is left to the garbage collector."""
    server = BinlogServer(files, user=USER, password=PASSWORD, tls=False)
    await server.start()
    await asyncio.sleep(0.01)  # the server waits for connections
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(3)]
        for client in clients:
            client.connect(("127.0.0.1", server.port))
        for _ in range(steps):
            await asyncio.sleep(0)
        await server.aclose()
        await asyncio.sleep(0)
        for client in clients:
            client.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                while client.recv(4096):
                    pass
    gc.collect()
    assert [str(warning.message) for warning in recwarn if warning.category is ResourceWarning] == []
