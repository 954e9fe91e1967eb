"""TLS on loopback: what each mode verifies, certificates of both sides, and errors with their remedies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from protocol.errors import ConfigurationError, ConnectionLostError, SourceConfigurationError
from replica.config.options import Options
from replica.config.tls import create_ssl_context, read_public_key
from replica.source.transport import Transport
from tests.support.certificates import Authority
from tests.support.plain_server import server

MODES = ["preferred", "required", "verify-ca", "verify-identity", "verify-password"]
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    authority = Authority.create(tmp_path_factory.mktemp("certificates"))
    for name in ("server", "client"):
        authority.issue(name)
    return authority


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    stranger = Authority.create(tmp_path_factory.mktemp("stranger"), "stranger")
    stranger.issue("client")
    return stranger


def server_context(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.directory / "server.pem", authority.directory / "server-key.pem")
    return context


@contextlib.asynccontextmanager
async def tls_server(context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port of a server that changes to TLS after seven bytes.

    The server runs in a thread: asyncio's own server may already have read the client's first TLS bytes, and would
    lose them.
    """

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(10)
                connection.sendall(b"greeting")
                assert connection.recv(7, socket.MSG_WAITALL) == b"to tls!"
                with context.wrap_socket(
                    connection, server_side=True, do_handshake_on_connect=False
                ) as secure:
                    try:
                        secure.do_handshake()
                        secure.sendall(secure.recv(5).upper())
                    except ssl.SSLError:
                        # Closing with unread bytes resets the connection, and the alert may be lost.
                        with socket.socket(fileno=secure.detach()) as plain:
                            plain.shutdown(socket.SHUT_WR)
                            while plain.recv(1 << 16):
                                pass

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


@pytest.mark.parametrize("mode", MODES)
async def test_each_mode(authority: Authority, mode: str) -> None:
    trust = {"tls_ca": authority.path} if mode in ("verify-ca", "verify-identity") else {}
    async with tls_server(server_context(authority)) as port:
        assert await _over_tls(port, tls=mode, **trust) == b"HELLO"


@pytest.mark.parametrize("mode", ["verify-ca", "verify-identity"])
async def test_another_authority(authority: Authority, stranger: Authority, mode: str) -> None:
    for trust in ({"tls_ca": stranger.path}, {}):
        async with tls_server(server_context(authority)) as port:
            with pytest.raises(ConfigurationError, match=r"not trusted.*name its authority with tls_ca"):
                await _over_tls(port, tls=mode, **trust)


async def test_another_name(authority: Authority) -> None:
    trust = {"tls_ca": authority.path, "host": "localhost"}
    async with tls_server(server_context(authority)) as port:
        assert await _over_tls(port, tls="verify-ca", **trust) == b"HELLO"
    async with tls_server(server_context(authority)) as port:
        with pytest.raises(ConfigurationError, match=r"mismatch.*connect to a host name in the certificate"):
            await _over_tls(port, tls="verify-identity", **trust)


async def test_an_ssl_context_of_ones_own(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.path)
    async with tls_server(server_context(authority)) as port:
        assert await _over_tls(port, ssl_context=context) == b"HELLO"


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_certificate_of_the_client(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    """With TLS 1.2 the server rejects the certificate in the handshake, with TLS 1.3 after it."""
    context = server_context(authority)
    context.maximum_version = version
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.path)

    def given(issuer: Authority) -> dict[str, Path]:
        return {"tls_cert": issuer.directory / "client.pem", "tls_key": issuer.directory / "client-key.pem"}

    async with tls_server(context) as port:
        assert await _over_tls(port, tls="required", **given(authority)) == b"HELLO"
    wrong: list[dict[str, Path]] = [given(stranger)]
    if version is ssl.TLSVersion.TLSv1_3:
        # TLS 1.2 has no alert of its own for a missing certificate.
        wrong.append({})
    for certificate in wrong:
        async with tls_server(context) as port:
            with pytest.raises(
                ConfigurationError, match=r"tls_cert: .*rejects the client's certificate.*ssl_ca"
            ):
                await _over_tls(port, tls="required", **certificate)


def test_a_key_that_needs_a_passphrase(authority: Authority, tmp_path: Path) -> None:
    """OpenSSL would prompt for the passphrase at the terminal."""
    key = serialization.load_pem_private_key((authority.directory / "client-key.pem").read_bytes(), None)
    encrypted = tmp_path / "client-key.pem"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigurationError, match=r"tls_key: the key is encrypted.*ssl_context"):
        create_ssl_context("required", cert=str(authority.directory / "client.pem"), key=str(encrypted))


def test_a_key_of_another_certificate(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match=r"tls_cert: .*mismatch"):
        create_ssl_context(
            "required",
            cert=str(authority.directory / "client.pem"),
            key=str(authority.directory / "server-key.pem"),
        )


def test_a_public_key_that_is_none(authority: Authority) -> None:
    for path in (authority.path, authority.directory / "missing.pem"):
        with pytest.raises(ConfigurationError, match=f"server_public_key_path: {path}"):
            read_public_key(str(path))


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
        with pytest.raises(ConnectionLostError, match="during the TLS handshake"):
            await _over_tls(plain.port, tls="required")
