"""MariaDB's own ways in: ed25519, parsec, PAM, and accounts that have several of them."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import replica
from tests.faults.interceptor import intercepting
from tests.support.certificates import Authority
from tests.support.servers import Server

from .support.logins import account, check_login, log_in, prepare_pam
from .support.streams import PASSWORD, stream_of, take_rows

LIBRARIES = {"ed25519": "auth_ed25519", "parsec": "auth_parsec", "pam": "auth_pam"}
# parsec came with MariaDB 11.6.
EVERY_PLUGIN = [("mariadb:10.11", "ed25519"), ("mariadb:11.8", "ed25519"), ("mariadb:11.8", "parsec")]
LONG_PASSWORD = "pässword " * 20


def install(server: Server, *plugins: str) -> None:
    for plugin in plugins:
        server.query(f"INSTALL PLUGIN IF NOT EXISTS {plugin} SONAME '{LIBRARIES[plugin]}'")


@pytest.fixture
def plugin(server: Server, request: pytest.FixtureRequest) -> str:
    install(server, request.param)
    return str(request.param)


@pytest.mark.parametrize(("server", "plugin"), EVERY_PLUGIN, indirect=True)
async def test_every_password(server: Server, plugin: str) -> None:
    # MariaDB 10.11 lets nobody in with an empty one, its own client neither.
    empty = [] if server.version < (11,) else [""]
    for password in (PASSWORD, "x", LONG_PASSWORD, *empty):
        with account(server, f"IDENTIFIED VIA {plugin} USING PASSWORD('{password}')") as user:
            await check_login(server, user, password, tls="disabled")
            if password:
                for wrong in (password + "x", ""):
                    with pytest.raises(replica.AuthenticationError, match=r"1045.*Access denied"):
                        await log_in(server, user, wrong, tls="disabled")


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
@pytest.mark.parametrize("plugin", ["ed25519", "parsec"], indirect=True)
async def test_over_tls(server: Server, plugin: str) -> None:
    with account(server, f"IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')") as user:
        await check_login(server, user, tls="required")
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(server, user, "wrong", tls="required")


@pytest.mark.parametrize(("server", "plugin"), EVERY_PLUGIN, indirect=True)
async def test_rows_arrive(server: Server, plugin: str, schema: str) -> None:
    with account(server, f"IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')") as user:
        server.query(f"GRANT REPLICATION SLAVE, BINLOG MONITOR, SELECT ON *.* TO '{user}'@'%'")
        async with stream_of(server, user, tables=f"{schema}.*") as stream:
            server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
            server.query(f"INSERT INTO {schema}.t VALUES (1), (2)")
            assert await take_rows(stream, 2) == [(1,), (2,)]


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
@pytest.mark.parametrize("cost", range(4))
async def test_parsec_with_each_number_of_rounds(server: Server, cost: int) -> None:
    """PASSWORD() makes accounts of the cheapest kind only, and the server takes others too."""
    install(server, "parsec")
    salt = secrets.token_bytes(18)
    seed = hashlib.pbkdf2_hmac("sha512", PASSWORD.encode(), salt, 1024 << cost, 32)
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    stored = f"P{cost}:{b64encode(salt).decode()}:{b64encode(key).decode().rstrip('=')}"
    with account(server, f"IDENTIFIED VIA parsec USING '{stored}'") as user:
        await check_login(server, user)


WAYS = {
    "ed25519": "ed25519 USING PASSWORD('{}')",
    "mysql_native_password": "mysql_native_password USING PASSWORD('{}')",
    "parsec": "parsec USING PASSWORD('{}')",
}
# Behind a parsec that was not the right one the server can read nothing more over TLS: it has left an error in
# OpenSSL's queue (11.8.6).
ORDERS = [
    ("mariadb:10.11", "disabled", "ed25519 mysql_native_password"),
    ("mariadb:10.11", "disabled", "mysql_native_password ed25519"),
    ("mariadb:11.8", "disabled", "ed25519 parsec mysql_native_password"),
    ("mariadb:11.8", "disabled", "mysql_native_password parsec ed25519"),
    ("mariadb:11.8", "disabled", "parsec mysql_native_password ed25519"),
    ("mariadb:11.8", "required", "ed25519 mysql_native_password parsec"),
    ("mariadb:11.8", "required", "mysql_native_password ed25519 parsec"),
]


@pytest.mark.parametrize(("server", "tls", "order"), ORDERS, indirect=["server"])
async def test_accounts_with_several_ways_in(server: Server, tls: str, order: str) -> None:
    """The server asks for one after the other until one is right: a switch from each plugin to each other."""
    install(server, *(plugin for plugin in order.split() if plugin in LIBRARIES))
    passwords = {plugin: f"{plugin}-Secret_1" for plugin in order.split()}
    ways = " OR ".join(WAYS[plugin].format(password) for plugin, password in passwords.items())
    with account(server, f"IDENTIFIED VIA {ways}") as user:
        for password in passwords.values():
            await check_login(server, user, password, tls=tls)
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(server, user, "another", tls=tls)


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
async def test_pam_asks_by_dialog(server: Server) -> None:
    install(server, "pam")
    prepare_pam(server)
    with account(server, "IDENTIFIED VIA pam USING 'mysql-replica'") as user:
        await check_login(server, user, tls="required", enable_cleartext_plugin=True)
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(server, user, "wrong", tls="required", enable_cleartext_plugin=True)
        with pytest.raises(replica.AuthenticationError, match=r"2059.*enable_cleartext_plugin=True"):
            await log_in(server, user, tls="required")
        with pytest.raises(replica.AuthenticationError, match=r"2061.*not encrypted"):
            await log_in(server, user, tls="disabled", enable_cleartext_plugin=True)


@pytest.mark.parametrize(
    ("server", "plugin"), [way for way in EVERY_PLUGIN if way[0] == "mariadb:11.8"], indirect=True
)
async def test_the_password_proves_the_certificate(server: Server, plugin: str) -> None:
    """MariaDB from 11.4 on makes itself a certificate that nobody vouches for."""
    ways = {
        name: f"VIA {name} USING PASSWORD('{PASSWORD}')" for name in (plugin, "mysql_native_password")
    } | {"both": f"VIA mysql_native_password USING PASSWORD('x') OR {plugin} USING PASSWORD('{PASSWORD}')"}
    for how in ways.values():
        with account(server, f"IDENTIFIED {how}") as user:
            await check_login(server, user, tls="verify-password")
            with pytest.raises(replica.ConfigurationError, match="not trusted"):
                await log_in(server, user, tls="verify-ca")
            with pytest.raises(replica.AuthenticationError, match="1045"):
                await log_in(server, user, "wrong", tls="verify-password")


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
@pytest.mark.parametrize("plugin", ["ed25519", "parsec", "mysql_native_password"])
async def test_somebody_in_the_middle_cannot_prove_his(server: Server, plugin: str, tmp_path: Path) -> None:
    install(server, *({plugin} & LIBRARIES.keys()))
    theirs = Authority.create(tmp_path).issue("server")
    how = f"IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')"
    with account(server, how) as user:
        async with intercepting(server.port, *theirs) as port:
            for tls in ("required", "verify-password"):
                await check_login(server, user, tls=tls)
            await check_login(server, user, tls="required", port=port)
            with pytest.raises(replica.AuthenticationError, match=r"2026.*not the one of the server"):
                await log_in(server, user, tls="verify-password", port=port)


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_other_servers_prove_nothing(server: Server) -> None:
    refused = pytest.raises(replica.AuthenticationError, match=r"2026.*tls_ca")
    with account(server, f"IDENTIFIED BY '{PASSWORD}'") as user, refused:
        await log_in(server, user, tls="verify-password")
