"""Logging in to real servers by each TLS mode, with certificates of both sides, and over Unix sockets."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import replica
from tests.support.certificates import Authority
from tests.support.servers import ServerPool, ServerUnavailableError

from .support.logins import CertifiedServer, account, certified_server, check_login, log_in, prepare_pam
from .support.streams import PASSWORD

# TLS 1.0 and its renegotiation, without the short keys of Diffie and Hellman.
OLD_CIPHERS = "AES256-SHA:@SECLEVEL=0"
LEGACY_SERVER_CONNECT = 0x4  # ssl.OP_LEGACY_SERVER_CONNECT, since Python 3.12

ARGUMENTS = {
    "mysql:9.7": (),
    "mariadb:10.11": ("--plugin-load-add=auth_ed25519", "--plugin-load-add=auth_pam"),
    "mariadb:11.8": (
        "--plugin-load-add=auth_ed25519",
        "--plugin-load-add=auth_parsec",
        "--plugin-load-add=auth_pam",
        "--pam-use-cleartext-plugin",
    ),
    "mysql:5.6": (),
}
CURRENT = ["mysql:9.7", "mariadb:10.11", "mariadb:11.8"]
BY_PASSWORD = f"IDENTIFIED BY '{PASSWORD}'"


@pytest.fixture(scope="module")
def certified(
    request: pytest.FixtureRequest, server_pool: ServerPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CertifiedServer]:
    name = request.param
    with contextlib.ExitStack() as stack:
        try:
            directory = tmp_path_factory.mktemp("shared")
            server = stack.enter_context(certified_server(server_pool, name, directory, *ARGUMENTS[name]))
        except ServerUnavailableError as error:
            pytest.skip(str(error))
        yield server


on_current = pytest.mark.parametrize("certified", CURRENT, indirect=True)
on_mariadb = pytest.mark.parametrize("certified", ["mariadb:10.11", "mariadb:11.8"], indirect=True)
on_mysql97 = pytest.mark.parametrize("certified", ["mysql:9.7"], indirect=True)
on_mysql56 = pytest.mark.parametrize("certified", ["mysql:5.6"], indirect=True)


@on_current
@pytest.mark.parametrize("tls", ["disabled", "preferred", "required", "verify-ca", "verify-identity"])
async def test_each_mode(certified: CertifiedServer, tls: str) -> None:
    trust: dict[str, Any] = {"tls_ca": certified.authority.path} if tls.startswith("verify") else {}
    with account(certified.server, BY_PASSWORD) as user:
        await check_login(certified.server, user, tls=tls, **trust)


@on_current
async def test_an_authority_alone_is_asked(certified: CertifiedServer, tmp_path: Path) -> None:
    server = certified.server
    with account(server, BY_PASSWORD) as user:
        session = await log_in(server, user, tls_ca=certified.authority.path)
        assert session.uses_tls
        await session.aclose()
        with pytest.raises(replica.ConfigurationError, match=r"not trusted.*name its authority"):
            await log_in(server, user, tls_ca=Authority.create(tmp_path).path)


@on_current
async def test_the_name_counts_where_it_is_to_be_verified(certified: CertifiedServer) -> None:
    trust: dict[str, Any] = {"tls_ca": certified.authority.path, "host": "localhost"}
    with account(certified.server, BY_PASSWORD) as user:
        await check_login(certified.server, user, tls="verify-ca", **trust)
        with pytest.raises(
            replica.ConfigurationError, match=r"(?i)hostname mismatch.*connect to a host name in"
        ):
            await log_in(certified.server, user, tls="verify-identity", **trust)


REQUIRED = {
    "SSL": (True, True),
    "X509": (False, True),
    "SUBJECT '/C=DE/O=mysql-replica/CN=replica'": (False, True),
    "ISSUER '/C=DE/O=mysql-replica/CN=authority'": (False, True),
    "SUBJECT '/C=DE/O=mysql-replica/CN=another'": (False, False),
}


@on_current
@pytest.mark.parametrize("requirement", REQUIRED)
async def test_accounts_that_require_a_certificate(certified: CertifiedServer, requirement: str) -> None:
    server, authority = certified.server, certified.authority
    certificate, key = authority.issue("replica")
    ours: dict[str, Any] = {"tls_cert": certificate, "tls_key": key}
    goes_without, goes_with = REQUIRED[requirement]
    with account(server, f"{BY_PASSWORD} REQUIRE {requirement}") as user:
        for given, is_right in (({}, goes_without), (ours, goes_with)):
            if is_right:
                await check_login(server, user, tls_ca=authority.path, **given)
            else:
                with pytest.raises(replica.AuthenticationError, match=r"1045.*TLS or tls_cert"):
                    await log_in(server, user, tls_ca=authority.path, **given)
        with pytest.raises(replica.AuthenticationError, match=r"1045.*TLS or tls_cert"):
            await log_in(server, user, tls="disabled")


@on_current
@pytest.mark.parametrize("issuer", ["stranger", "authority"])
async def test_a_certificate_that_the_server_does_not_trust(
    certified: CertifiedServer, tmp_path: Path, issuer: str
) -> None:
    """It says so behind the handshake of TLS 1.3, where it must not look like a broken connection.

    Authorities of one name are common: servers of one version make them.
    """
    certificate, key = Authority.create(tmp_path, issuer).issue("replica")
    refused = pytest.raises(
        replica.ConfigurationError, match=r"tls_cert: .* rejects the client's certificate"
    )
    with account(certified.server, BY_PASSWORD) as user, refused:
        await log_in(certified.server, user, tls="required", tls_cert=certificate, tls_key=key)


@on_current
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_context_of_ones_own(certified: CertifiedServer, version: ssl.TLSVersion) -> None:
    server = certified.server
    context = ssl.create_default_context(cafile=certified.authority.path)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(*certified.authority.issue("replica"))
    with account(server, f"{BY_PASSWORD} REQUIRE X509") as user:
        session = await log_in(server, user, ssl_context=context)
        [(_, name)] = await session.query("SHOW STATUS LIKE 'Ssl_version'")
        assert name == version.name.replace("_", ".")
        await session.aclose()
        with pytest.raises(replica.ConfigurationError, match="not trusted"):
            await log_in(server, user, ssl_context=ssl.create_default_context())


@on_current
async def test_a_server_that_takes_encrypted_connections_only(certified: CertifiedServer) -> None:
    server = certified.server
    with account(server, BY_PASSWORD) as user:
        server.query("SET GLOBAL require_secure_transport = ON")
        try:
            # MariaDB 10.11 answers 1045, as for a wrong password.
            with pytest.raises(replica.AuthenticationError, match=r"turn TLS on|requires TLS"):
                await log_in(server, user, tls="disabled")
            await check_login(server, user, tls="preferred")
            await check_login(server, user, unix_socket=certified.socket)
        finally:
            # PyMySQL does without TLS otherwise.
            with (
                server.connect(unix_socket=str(certified.socket)) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute("SET GLOBAL require_secure_transport = OFF")


@pytest.mark.parametrize("certified", ["mariadb:10.11"], indirect=True)
async def test_no_proof_by_the_password_before_mariadb_11_4(certified: CertifiedServer) -> None:
    refused = pytest.raises(replica.AuthenticationError, match=r"2026.*does not prove.*MariaDB 11\.4")
    with account(certified.server, BY_PASSWORD) as user, refused:
        await log_in(certified.server, user, tls="verify-password")


@on_mysql97
@pytest.mark.parametrize("plugin", ["caching_sha2_password", "sha256_password"])
@pytest.mark.parametrize("tls", [None, "required"])
async def test_a_unix_socket_with_mysqls_plugins(
    certified: CertifiedServer, plugin: str, tls: str | None
) -> None:
    """caching_sha2_password takes a socket for secure, sha256_password does not. The second time is the fast path."""
    given = {"tls": tls} if tls else {}
    with account(certified.server, f"IDENTIFIED WITH {plugin} BY '{PASSWORD}'") as user:
        for _ in range(2):
            await check_login(certified.server, user, unix_socket=certified.socket, **given)
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(certified.server, user, "wrong", unix_socket=certified.socket, **given)


@on_mariadb
@pytest.mark.parametrize("tls", [None, "required"])
async def test_a_unix_socket_with_mariadbs_plugins(certified: CertifiedServer, tls: str | None) -> None:
    given = {"tls": tls} if tls else {}
    names = [name for name, *_ in certified.server.query("SHOW PLUGINS")]
    plugins = {"mysql_native_password", "ed25519", "parsec"}.intersection(names)
    assert len(plugins) == (3 if "11.8" in certified.server.name else 2)
    for plugin in plugins:
        how = f"IDENTIFIED VIA {plugin} USING PASSWORD('{PASSWORD}')"
        with account(certified.server, how) as user:
            await check_login(certified.server, user, unix_socket=certified.socket, **given)


@on_mariadb
async def test_pam_where_nobody_can_listen(certified: CertifiedServer) -> None:
    """10.11 asks by dialog, 11.8 by mysql_clear_password: see its arguments."""
    server = certified.server
    prepare_pam(server)
    secure: list[dict[str, Any]] = [{"tls": "required"}, {"unix_socket": certified.socket}]
    with account(server, "IDENTIFIED VIA pam USING 'mysql-replica'") as user:
        for given in secure:
            await check_login(server, user, enable_cleartext_plugin=True, **given)
            with pytest.raises(replica.AuthenticationError, match="1045"):
                await log_in(server, user, "wrong", enable_cleartext_plugin=True, **given)
            with pytest.raises(replica.AuthenticationError, match=r"2059.*enable_cleartext_plugin=True"):
                await log_in(server, user, **given)
        with pytest.raises(replica.AuthenticationError, match=r"2061.*not encrypted"):
            await log_in(server, user, tls="disabled", enable_cleartext_plugin=True)


# MySQL 5.6 knows TLS 1.0 only.


@on_mysql56
@pytest.mark.parametrize("tls", ["preferred", "required", "verify-ca", "verify-identity"])
async def test_old_tls_is_refused(certified: CertifiedServer, tls: str) -> None:
    trust: dict[str, Any] = {"tls_ca": certified.authority.path} if tls.startswith("verify") else {}
    with account(certified.server, BY_PASSWORD) as user:
        with pytest.raises(
            replica.SourceConfigurationError,
            match=r"TLS 1\.0 and 1\.1.*tls='disabled', or give an ssl_context",
        ):
            await log_in(certified.server, user, tls=tls, **trust)
        await check_login(certified.server, user, tls="disabled")


def old_tls(certified: CertifiedServer) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certified.authority.path)
    context.options |= LEGACY_SERVER_CONNECT
    context.set_ciphers(OLD_CIPHERS)
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    return context


@on_mysql56
async def test_old_tls_by_a_context_of_ones_own(certified: CertifiedServer) -> None:
    with account(certified.server, BY_PASSWORD) as user:
        session = await log_in(certified.server, user, ssl_context=old_tls(certified))
        assert await session.query("SHOW STATUS LIKE 'Ssl_version'") == [("Ssl_version", "TLSv1")]
        await session.aclose()


@on_mysql56
async def test_sha256_password_of_a_server_without_rsa(certified: CertifiedServer) -> None:
    """Servers that were built with yaSSL take the password over TLS only."""
    with account(certified.server, "IDENTIFIED WITH sha256_password") as user:
        with certified.server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET old_passwords = 2")
            cursor.execute(f"SET PASSWORD FOR '{user}'@'%' = PASSWORD('{PASSWORD}')")
        await check_login(certified.server, user, ssl_context=old_tls(certified))
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(certified.server, user, "wrong", ssl_context=old_tls(certified))
        with pytest.raises(replica.AuthenticationError, match="1045"):
            await log_in(certified.server, user, tls="disabled")


@on_mysql56
async def test_a_unix_socket_of_an_old_server(certified: CertifiedServer) -> None:
    with account(certified.server, BY_PASSWORD) as user:
        await check_login(certified.server, user, unix_socket=certified.socket)
