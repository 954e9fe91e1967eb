"""Logging in to real servers: each plugin on each path, over TCP in clear and over TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

import replica
from protocol.auth import CachingSha2Password
from replica.options import Options
from replica.session import Session
from tests.servers import Server

from .streams import MARIADB, MYSQL97_AND_MARIADB118, PASSWORD, stream_of, take_rows, user_of

# caching_sha2_password.cc: what the server answers to the scramble.
FAST_PATH, FULL_PATH = b"\3", b"\4"


async def log_in(server: Server, user: str, **given: object) -> Session:
    return await Session.open(Options.build(server.dsn(user, PASSWORD), given))


async def cipher(session: Session) -> str:
    [(_, name)] = await session.query("SHOW STATUS LIKE 'Ssl_cipher'")
    return str(name)


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


async def test_sha256_password(mysql97: Server) -> None:
    with user_of(mysql97, how="WITH sha256_password BY") as user:
        for tls in ("disabled", "required"):
            session = await log_in(mysql97, user, tls=tls)
            assert await session.query_value("SELECT CURRENT_USER()") == f"{user}@%"
            await session.aclose()


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


async def test_the_authority_is_verified(mysql97: Server, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(mysql97.exec("cat", "/var/lib/mysql/ca.pem"))
    verified = {"tls": "verify-ca", "tls_ca": tmp_path / "ca.pem"}
    session = await Session.open(Options.build(mysql97.dsn(), verified))
    assert session.uses_tls
    await session.aclose()
    with pytest.raises(replica.ConfigurationError, match=r"not trusted.*tls_ca"):
        await Session.open(Options.build(mysql97.dsn(), {"tls": "verify-ca"}))
    with pytest.raises(replica.ConfigurationError, match="not trusted"):
        await Session.open(Options.build(mysql97.dsn(), verified | {"tls": "verify-identity"}))


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
@pytest.mark.parametrize("tls", ["disabled", "required"])
async def test_rows_arrive_in_clear_and_encrypted(server: Server, schema: str, tls: str) -> None:
    async with stream_of(server, tables=f"{schema}.*", tls=tls) as stream:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
        server.query(f"INSERT INTO {schema}.t VALUES (1, REPEAT('x', 1000000)), (2, 'y')")
        assert await take_rows(stream, 2) == [(1, "x" * 1_000_000), (2, "y")]
