"""Logging in to real servers over TCP: each plugin of MySQL on each path, in clear and over TLS."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import replica
from protocol.conversation.client_plugins import CachingSha2Password
from protocol.conversation.server_plugins import public_pem
from replica.config.options import Options
from replica.source.session import Session
from tests.support.password_leaks import assert_silent
from tests.support.servers import Server

from .support.logins import account, check_login, cipher, log_in
from .support.streams import MARIADB, MYSQL97_AND_MARIADB118, PASSWORD, stream_of, take_rows, user_of

# caching_sha2_password.cc: what the server answers to the scramble.
FAST_PATH, FULL_PATH = b"\3", b"\4"


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the server says of the path, login after login."""
    seen: list[bytes] = []
    more = CachingSha2Password.more

    def record(self: CachingSha2Password, data: bytes) -> bytes | None:
        if data in (FAST_PATH, FULL_PATH):
            seen.append(data)
        return more(self, data)

    monkeypatch.setattr(CachingSha2Password, "more", record)
    return seen


@pytest.mark.parametrize("tls", ["disabled", "required"])
async def test_caching_sha2_password_whole(mysql97: Server, paths: list[bytes], tls: str) -> None:
    """The first login takes the full path (over plain TCP: with the server's RSA key), the second the fast one."""
    with user_of(mysql97, how="WITH caching_sha2_password BY") as user:
        for _ in range(2):
            session = await log_in(mysql97, user, tls=tls)
            assert await session.query_value("SELECT CURRENT_USER()") == f"{user}@%"
            assert bool(await cipher(session)) == session.uses_tls == (tls == "required")
            await session.aclose()
        assert paths == [FULL_PATH, FAST_PATH]
        mysql97.query("FLUSH PRIVILEGES")  # empties the server's cache
        await (await log_in(mysql97, user, tls=tls)).aclose()
    assert paths == [FULL_PATH, FAST_PATH, FULL_PATH]


@pytest.mark.parametrize("tls", ["disabled", "required"])
async def test_sha256_password(mysql97: Server, tls: str) -> None:
    with user_of(mysql97, how="WITH sha256_password BY") as user:
        await check_login(mysql97, user, tls=tls)
        with pytest.raises(replica.AuthenticationError, match=r"1045.*Access denied"):
            await log_in(mysql97, user, PASSWORD + "x", tls=tls)


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
async def test_the_servers_key_is_fetched_given_or_missing(
    mysql97: Server, tmp_path: Path, plugin: str
) -> None:
    path = tmp_path / "public_key.pem"
    path.write_bytes(mysql97.read_file("/var/lib/mysql/public_key.pem"))
    plain: dict[str, Any] = {"tls": "disabled", "get_server_public_key": False}
    with user_of(mysql97, how=f"WITH {plugin} BY") as user:
        with pytest.raises(replica.AuthenticationError, match=r"2061.*not encrypted.*three ways"):
            await log_in(mysql97, user, **plain)
        await check_login(mysql97, user, **plain, server_public_key_path=path)


@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
async def test_another_servers_key(mysql97: Server, tmp_path: Path, plugin: str) -> None:
    """The password is encrypted with the given key, so only the owner of that key can read it."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path = tmp_path / "other.pem"
    path.write_bytes(public_pem(key))
    refused = pytest.raises(replica.AuthenticationError, match="1045")
    with user_of(mysql97, how=f"WITH {plugin} BY") as user, refused:
        await log_in(mysql97, user, tls="disabled", server_public_key_path=path)


@pytest.mark.parametrize("tls", ["disabled", "required"])
async def test_an_empty_password(mysql97: Server, tls: str) -> None:
    """The greeting always names caching_sha2_password: the other one comes by a switch."""
    for plugin in ("caching_sha2_password", "sha256_password"):
        with account(mysql97, f"IDENTIFIED WITH {plugin} BY ''") as user:
            await check_login(mysql97, user, "", tls=tls)


@pytest.mark.parametrize("server", ["mysql:5.6", *MARIADB], indirect=True)
async def test_mysql_native_password_over_plain_tcp(server: Server) -> None:
    with user_of(server) as user:
        [(plugin,)] = server.query("SELECT plugin FROM mysql.user WHERE user = %s", user)
        assert plugin == "mysql_native_password"
        session = await log_in(server, user, tls="disabled")
        assert await session.query_value("SELECT CURRENT_USER()") == f"{user}@%"
        assert not session.uses_tls
        await session.aclose()


async def test_mysql_native_password_over_tls(mariadb118: Server) -> None:
    with user_of(mariadb118) as user:
        session = await log_in(mariadb118, user, tls="required")
        assert await cipher(session)
        assert await session.query_value("SELECT CURRENT_USER()") == f"{user}@%"
        await session.aclose()


async def test_no_password(server: Server) -> None:
    name = "without_password"
    server.query(f"CREATE USER '{name}'@'%'")
    try:
        session = await Session.open(Options.build(server.dsn(name, ""), {}))
        assert await session.query_value("SELECT CURRENT_USER()") == f"{name}@%"
        await session.aclose()
    finally:
        server.query(f"DROP USER '{name}'@'%'")


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_preferred_takes_tls_where_it_is_offered(server: Server) -> None:
    session = await Session.open(Options.build(server.dsn(), {}))
    assert session.uses_tls
    await session.aclose()


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:10.11"], indirect=True)
async def test_preferred_goes_without_and_required_does_not(server: Server) -> None:
    session = await Session.open(Options.build(server.dsn(), {}))
    assert not session.uses_tls
    await session.aclose()
    with pytest.raises(replica.SourceConfigurationError, match="TLS is required"):
        await Session.open(Options.build(server.dsn(), {"tls": "required"}))


async def test_a_password_that_is_refused_is_not_shown(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither by the error and its traceback, nor in the log of any library, with asyncio's debug mode."""
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    wrong = PASSWORD + "-wrong"
    with user_of(server) as user:
        stream = replica.connect(server.dsn(user, wrong))
        with pytest.raises(replica.AuthenticationError, match="1045") as caught:
            async with stream:
                pass
    assert_silent(caught.value, wrong, repr(stream), caplog.text)


@pytest.mark.parametrize("server", ["mysql:5.6", *MARIADB], indirect=True)
async def test_passwords_of_before_mysql_4_1(server: Server) -> None:
    """The server forbids them, or lets the client decide: we do not have them."""
    how = "VIA mysql_old_password USING '5d2e19393cc5ef67'"
    with account(
        server, "IDENTIFIED " + (how if server.family == "mariadb" else "WITH mysql_old_password")
    ) as user:
        if server.family == "mysql":
            server.query("UPDATE mysql.user SET Password = '5d2e19393cc5ef67' WHERE User = %s", user)
            server.query("FLUSH PRIVILEGES")
        for secure_auth in (1, 0):
            server.query(f"SET GLOBAL secure_auth = {secure_auth}")
            try:
                with pytest.raises(
                    replica.AuthenticationError, match=r"(2049|1275).*set the account's password again"
                ):
                    await log_in(server, user, "password")
            finally:
                server.query("SET GLOBAL secure_auth = 1")


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
@pytest.mark.parametrize("tls", ["disabled", "required"])
async def test_rows_arrive_in_clear_and_encrypted(server: Server, schema: str, tls: str) -> None:
    async with stream_of(server, tables=f"{schema}.*", tls=tls) as stream:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
        server.query(f"INSERT INTO {schema}.t VALUES (1, REPEAT('x', 1000000)), (2, 'y')")
        assert await take_rows(stream, 2) == [(1, "x" * 1_000_000), (2, "y")]
