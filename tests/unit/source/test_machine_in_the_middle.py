"""A machine in the middle gets the password neither by its own RSA key nor, without a warning, by its own TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import AuthenticationError
from replica.config.options import Options
from replica.server import BinlogServer
from replica.source.session import Session
from replica.source.transport import Transport, _Receiver
from tests.support.certificates import Authority
from tests.support.served import options_for, serving, write_mysql_files


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    folder.mkdir()
    write_mysql_files(folder)
    return folder


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server, which listens on a loopback address, counts as another machine."""
    monkeypatch.setattr(Transport, "is_local", False)


async def log_in(server: BinlogServer, times: int = 1, **given: Any) -> Session:
    options = options_for(server, **given)
    for _ in range(times):
        session = await Session.open(options)
        assert await session.query_value("SELECT 1") == "1"
        await session.aclose()
    return session


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize("tls", ["disabled", "preferred"])
async def test_no_password_under_a_key_of_the_same_connection(files: Path, tls: str) -> None:
    """``preferred`` as well: whoever is in the middle says that there is no TLS."""
    async with serving(files, full_authentication=True) as server:
        with pytest.raises(
            AuthenticationError, match=r"2061.*three ways: TLS.*server_public_key_path.*get_"
        ) as no:
            await log_in(server, tls=tls)
        assert no.value.code == 2061
        await log_in(server, tls=tls, get_server_public_key=True)
        with pytest.raises(AuthenticationError, match="2061"):
            await log_in(server, tls=tls, get_server_public_key=False)


async def test_on_this_machine_the_key_is_fetched(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(files, full_authentication=True, tls=True) as server:
        await log_in(server)
        await log_in(server, tls="required")
        with pytest.raises(AuthenticationError, match="2061"):
            await log_in(server, get_server_public_key=False)
    assert not caplog.records


@pytest.mark.usefixtures("remote")
async def test_a_password_over_unverified_tls_is_warned_of_once(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(files, full_authentication=True, tls=True) as server:
        session = await log_in(server, times=3, tls="required")
        assert session.uses_tls
        [warning] = caplog.records
        assert warning.levelno == logging.WARNING
        assert "the password itself was sent" in warning.message
        assert "tls='verify-identity'" in warning.message
    caplog.clear()
    # A scramble of the password is not the password.
    async with serving(files, tls=True) as server:
        await log_in(server, tls="required")
    assert not caplog.records


@pytest.mark.usefixtures("remote")
async def test_a_verified_server_may_have_the_password(
    files: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority.create(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    async with serving(files, full_authentication=True, tls=context) as server:
        await log_in(server, tls="verify-identity", tls_ca=authority.path)
    assert not caplog.records


@pytest.mark.parametrize(
    ("peer", "is_local"),
    [
        (("127.0.0.1", 3306), True),
        (("127.8.9.1", 3306), True),
        (("::1", 3306, 0, 0), True),
        (("::ffff:127.0.0.1", 3306, 0, 0), True),
        ("/run/mysqld/mysqld.sock", True),
        (("192.0.2.1", 3306), False),
        (("::ffff:192.0.2.1", 3306, 0, 0), False),
        (("fe80::1%eth0", 3306, 0, 2), False),
        (("0.0.0.0", 3306), False),
    ],
)
async def test_addresses_of_this_machine(peer: object, is_local: bool) -> None:
    transport = Transport(asyncio.Transport({"peername": peer}), _Receiver(), "db")
    assert transport.is_local is is_local


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", None), ("?get_server_public_key=true", True), ("?get_server_public_key=0", False)],
)
def test_the_option_in_a_dsn(text: str, expected: bool | None) -> None:
    assert Options.build(f"mysql://repl@db/{text}", {}).get_server_public_key is expected
