"""What the tests of logins share: sessions, accounts, and servers with certificates and a socket of ours."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replica.config.options import Options
from replica.source.session import Session
from tests.support.certificates import Authority
from tests.support.servers import SHARED, Server, ServerPool

from .streams import PASSWORD

_SOCKET = "mysqld.sock"
_NUMBERS = itertools.count(1)

# A PAM service whose check of the password is a script.
_PAM_SERVICE = """auth required pam_exec.so expose_authtok /usr/local/bin/check-password
account required pam_permit.so
"""
_CHECK_PASSWORD = f"""#!/bin/sh
[ "$(tr -d '\\0')" = '{PASSWORD}' ]
"""
_WRITE = 'printf %s "$0" >"$1" && chmod 755 "$1"'


async def log_in(server: Server, user: str, password: str = PASSWORD, **given: Any) -> Session:
    return await Session.open(Options.build(server.dsn(user, password), given))


async def check_login(server: Server, user: str, password: str = PASSWORD, **given: Any) -> None:
    """Log in, ask who we are, and see whether the connection is encrypted if that was asked for."""
    session = await log_in(server, user, password, **given)
    assert await session.query_value("SELECT CURRENT_USER()") == f"{user}@%"
    assert bool(await cipher(session)) == session.uses_tls
    if "tls" in given or "ssl_context" in given:
        assert session.uses_tls == (given.get("tls") != "disabled")
    await session.aclose()


async def cipher(session: Session) -> str:
    [(_, name)] = await session.query("SHOW STATUS LIKE 'Ssl_cipher'")
    return str(name)


@contextlib.contextmanager
def account(server: Server, how: str, name: str | None = None) -> Iterator[str]:
    """The name of a new account: ``how`` is what stands behind its name in CREATE USER."""
    name = name or f"login_{next(_NUMBERS)}"
    server.query(f"CREATE USER '{name}'@'%' {how}")
    try:
        yield name
    finally:
        server.query(f"DROP USER '{name}'@'%'")


@dataclass(frozen=True)
class CertifiedServer:
    """A server with a certificate of `authority`, and with its socket at `socket`."""

    server: Server
    authority: Authority
    socket: Path


@contextlib.contextmanager
def certified_server(
    pool: ServerPool, name: str, directory: Path, *arguments: str
) -> Iterator[CertifiedServer]:
    """Start one; removed afterwards."""
    authority = Authority.create(directory)
    certificate, key = authority.issue("server")
    files = {"ca": authority.path, "cert": certificate, "key": key}
    options = [f"--ssl-{option}={SHARED}/{path.name}" for option, path in files.items()]
    server = pool.start(name, *options, f"--socket={SHARED}/{_SOCKET}", *arguments, shared=directory)
    try:
        yield CertifiedServer(server, authority, directory / _SOCKET)
    finally:
        pool.stop(server.container)


def prepare_pam(server: Server) -> None:
    """Accounts of the PAM service `mysql-replica` have `PASSWORD`."""
    files = {"/etc/pam.d/mysql-replica": _PAM_SERVICE, "/usr/local/bin/check-password": _CHECK_PASSWORD}
    for path, text in files.items():
        server.exec("bash", "-c", _WRITE, text, path)
