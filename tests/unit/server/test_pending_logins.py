"""BinlogServer and hosts that connect without logging in, or guess passwords."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from pathlib import Path
from typing import cast

import pytest

from protocol.conversation.messages import Handshake
from protocol.errors import AuthenticationError
from replica.server.pending_logins import FailedLogins
from replica.source.session import Session
from tests.support.served import RawClient, logged_in, options_for, serving, write_mysql_files
from tests.support.socket_source import until


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_mysql_files(tmp_path)
    return tmp_path


async def test_the_oldest_pending_login_of_a_host_makes_room(files: Path) -> None:
    """Idle sockets and half-open TLS of a host keep nobody out: neither their own host nor another one."""
    async with (
        serving(files, max_pending_logins=3, max_connections=5, login_timeout=30) as server,
        contextlib.AsyncExitStack() as stack,
    ):
        idle = [await stack.enter_async_context(RawClient.connect(server)) for _ in range(3)]
        for client in idle:
            assert Handshake.parse(await client.payload()).connection_id > 0
        async with logged_in(server) as session:
            assert await session.query_value("SELECT 1") == "1"
            assert await idle[0].is_closed()
            assert len(server._pending) == 2
            other = await stack.enter_async_context(RawClient.connect(server, host="127.0.0.2"))
            assert Handshake.parse(await other.payload()).connection_id > 0
            assert len(server._pending) == 3
            # All connections but one are in use: those of the host that has the most make room, logins never do.
            async with logged_in(server), logged_in(server), logged_in(server):
                assert await idle[1].is_closed()
                assert await session.query_value("SELECT 1") == "1"
        await until(lambda: len(server._connections) <= 2)


async def test_pending_logins_make_room_where_descriptors_are_used_up(
    files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They kept all others out until their time was over; a warning came five times a second."""

    class Full:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    async with serving(files, login_timeout=30) as server, contextlib.AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(RawClient.connect(server)) for _ in range(2)]
        await until(lambda: len(server._pending) == 2)
        accepting = asyncio.create_task(server._accept(cast("socket.socket", Full())))
        assert all([await client.is_closed() for client in idle])
        accepting.cancel()
    assert [record.message for record in caplog.records] == [
        "a connection could not be accepted: [Errno 24] Too many open files"
    ]


@pytest.mark.thorough
async def test_failed_logins_are_slowed_down(files: Path) -> None:
    """The greeting of a host that guesses passwords waits; another host's does not."""
    async with serving(files) as server:
        for _ in range(6):
            with pytest.raises(AuthenticationError):
                await Session.open(options_for(server, password="guessed", connect_timeout=20))
        async with RawClient.connect(server) as guessing:
            greeting = asyncio.create_task(guessing.payload())
            await until(lambda: len(server._pending) == 1)
            async with RawClient.connect(server, host="127.0.0.2") as other:
                assert Handshake.parse(await other.payload())
                assert not greeting.done()
            assert Handshake.parse(await greeting)
        async with logged_in(server, connect_timeout=20):
            pass
        assert server._failed.delay("127.0.0.1") == 0


def test_the_delay_grows_and_hosts_are_forgotten() -> None:
    failed = FailedLogins()
    delays = []
    for _ in range(12):
        delays.append(failed.delay("a"))
        failed.failed("a")
    assert delays[:7] == [0, 0, 0, 0.25, 0.5, 1, 2]
    assert set(delays[7:]) == {4}
    for number in range(5000):
        failed.failed(f"host{number}")
    assert failed.delay("a") == 0
    assert len(failed._failures) == 1024
