"""The transport against a plain server on loopback: chunks, ends, limits, TLS and what errors say."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from protocol.errors import ConfigurationError, ConnectionLostError, SourceConfigurationError
from replica.options import Options
from replica.transport import Transport

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Client) -> AsyncIterator[Options]:
    tasks: list[asyncio.Task[None] | None] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(guarded, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield Options.build(None, {"host": "127.0.0.1", "port": port, "user": "repl", "tls": "disabled"})
    finally:
        listening.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*filter(None, tasks))
            await listening.wait_closed()


async def read_to_end(transport: Transport) -> bytes:
    data = b""
    while chunk := await transport.read():
        data += chunk
    return data


async def test_bytes_go_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readexactly(5)).upper())

    async with server(echo) as options:
        transport = await Transport.connect(options)
        transport.write(b"hello")
        assert await read_to_end(transport) == b"HELLO"
        assert await transport.read() == b""
        assert transport.local_port > 0
        await transport.aclose()
        await transport.aclose()
        transport.write(b"to nobody")


async def test_a_slow_reader_holds_the_sender() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            sent += 65536

    async with server(flood) as options:
        transport = await Transport.connect(options)
        before = -1
        while sent != before:  # until the sender is stuck
            before = sent
            await asyncio.sleep(0.2)
        # Kernel buffers hold some megabytes; what is kept here is bounded.
        assert transport._receiver._size <= 512 << 10
        received = 0
        while received < before + (8 << 20):
            received += len(await transport.read())
        assert sent > before
        await transport.aclose()


async def test_other_tasks_get_a_turn_before_each_chunk() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(4 << 20))
        await writer.drain()

    async with server(flood) as options:
        transport = await Transport.connect(options)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.create_task(count())
        while chunk := await transport.read():
            assert len(chunk) <= 256 << 10
            assert turns > 0
            turns = 0
        counter.cancel()
        await transport.aclose()


async def test_a_cancelled_read_loses_nothing() -> None:
    go_on = asyncio.Event()

    async def wait_and_send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(b"all of it")

    async with server(wait_and_send) as options:
        transport = await Transport.connect(options)
        reading = asyncio.create_task(transport.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        go_on.set()
        assert await read_to_end(transport) == b"all of it"
        await transport.aclose()


async def test_two_readers_are_a_mistake() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(wait) as options:
        transport = await Transport.connect(options)
        reading = asyncio.create_task(transport.read())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await transport.read()
        transport.abort()
        assert await reading == b""
        await transport.aclose()


async def test_a_reset_is_told() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        linger = b"\1\0\0\0\0\0\0\0"
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    async with server(reset) as options:
        transport = await Transport.connect(options)
        transport.write(b"x")
        with pytest.raises(ConnectionLostError, match=f"{options.address} broke"):
            await transport.read()
        await transport.aclose()


async def test_the_socket_is_tuned() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(wait) as options:
        transport = await Transport.connect(options)
        raw = transport._transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        await transport.aclose()


def options(**given: object) -> Options:
    return Options.build(None, {"user": "repl", "tls": "disabled", **given})


@pytest.mark.parametrize(
    "given",
    [{"host": "127.0.0.1", "port": 1}, {"host": "host.invalid"}, {"unix_socket": "/nowhere/mysqld.sock"}],
)
async def test_no_connection(given: dict[str, object]) -> None:
    with pytest.raises(ConnectionLostError, match=r"cannot connect to .* -- is the server running"):
        await Transport.connect(options(**given))


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..b"])
async def test_what_is_no_host_name(host: str) -> None:
    with pytest.raises((ConfigurationError, ConnectionLostError), match=r"host|connect"):
        await Transport.connect(options(host=host))


async def test_a_unix_socket(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    path = tmp_path / "mysqld.sock"
    listening = await asyncio.start_unix_server(greet, path)
    async with listening:
        transport = await Transport.connect(options(unix_socket=path))
        assert await read_to_end(transport) == b"hello"
        assert transport.local_port == 0
        await transport.aclose()


# TLS, with certificates made here: an authority, and a server's for 127.0.0.1.


def _certificate(
    path: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    path.with_suffix(".pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path.with_suffix(".key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = _certificate(folder / "ca", "Test authority", None)
    _certificate(folder / "server", "server", authority)
    _certificate(folder / "other", "Another authority", None)
    return folder


@contextlib.asynccontextmanager
async def tls_server(certificates: Path) -> AsyncIterator[int]:
    """The port of a server that changes to TLS behind seven bytes.

    In a thread: asyncio's own server may have read the client's first TLS bytes by then, and loses them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(10)
                connection.sendall(b"greeting")
                assert connection.recv(7, socket.MSG_WAITALL) == b"to tls!"
                with context.wrap_socket(connection, server_side=True) as secure:
                    secure.sendall(secure.recv(5).upper())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        serving = asyncio.create_task(asyncio.to_thread(serve))
        yield listening.getsockname()[1]
        await serving


async def _over_tls(port: int, **given: object) -> bytes:
    secure = Options.build(None, {"host": "127.0.0.1", "port": port, "user": "repl", **given})
    assert secure.ssl_context is not None
    transport = await Transport.connect(secure)
    try:
        assert await transport.read() == b"greeting"
        transport.write(b"to tls!")
        await transport.start_tls(secure.ssl_context, secure.host)
        transport.write(b"hello")
        return await transport.read()
    finally:
        await transport.aclose()


@pytest.mark.parametrize("mode", ["preferred", "required", "verify-ca", "verify-identity"])
async def test_tls(certificates: Path, mode: str) -> None:
    authority = {"tls_ca": certificates / "ca.pem"} if mode.startswith("verify") else {}
    async with tls_server(certificates) as port:
        assert await _over_tls(port, tls=mode, **authority) == b"HELLO"


@pytest.mark.parametrize(
    ("mode", "host", "ca", "hint"),
    [
        ("verify-ca", "127.0.0.1", "other.pem", "tls_ca"),
        ("verify-identity", "127.0.0.1", "other.pem", "tls_ca"),
        ("verify-identity", "localhost", "ca.pem", "mismatch.*connect by a name that it has"),
    ],
)
async def test_a_certificate_that_is_not_trusted(
    certificates: Path, mode: str, host: str, ca: str, hint: str
) -> None:
    async with tls_server(certificates) as port:
        with pytest.raises(ConfigurationError, match=hint):
            await _over_tls(port, tls=mode, tls_ca=certificates / ca, host=host)


async def test_verify_ca_does_not_ask_for_the_name(certificates: Path) -> None:
    async with tls_server(certificates) as port:
        assert await _over_tls(port, tls="verify-ca", tls_ca=certificates / "ca.pem", host="localhost")


async def test_an_ssl_context_of_ones_own(certificates: Path) -> None:
    context = ssl.create_default_context(cafile=certificates / "ca.pem")
    async with tls_server(certificates) as port:
        assert await _over_tls(port, ssl_context=context) == b"HELLO"


async def _then(data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"greeting")
    await reader.readexactly(7)
    await reader.read(1)
    writer.write(data)
    await writer.drain()


async def test_a_server_without_tls_behind_its_greeting() -> None:
    async with server(lambda reader, writer: _then(b"this is no TLS at all", reader, writer)) as plain:
        with pytest.raises(SourceConfigurationError, match="tls='disabled'"):
            await _over_tls(plain.port, tls="required")


async def test_a_connection_that_ends_instead_of_tls() -> None:
    async with server(lambda reader, writer: _then(b"", reader, writer)) as plain:
        with pytest.raises(ConnectionLostError, match="instead of TLS"):
            await _over_tls(plain.port, tls="required")
