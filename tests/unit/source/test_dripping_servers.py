"""Servers that send a byte now and then, and nothing whole: they are given up as silent ones are."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from protocol.constants import Command
from protocol.conversation.messages import Handshake, Ok
from protocol.conversation.packets import FrameStream
from protocol.conversation.prepared_statements import Prepared
from protocol.conversation.results import ColumnDefinition
from protocol.errors import SourceSilentError
from replica.config.options import Options
from replica.source import session as session_module
from replica.source.process_list import Activity
from replica.source.session import Session
from tests.support.fake_source import NONCE, OLD_CAPABILITIES

_COLUMN = ColumnDefinition("a", 253).encode()
_END = b"\xfe\0\0\2\0"
_ANSWERS = {
    Command.STMT_PREPARE: [Prepared(1, 1).encode(), _COLUMN, _END],
    Command.STMT_EXECUTE: [b"\1", _COLUMN, _END],
    Command.BINLOG_DUMP: [],
}
# The header of a row or an event of a megabyte, without its number.
_LARGE = b"\0\0\x10"


class Dripping:
    """After two commands it sends the first bytes of a large row or event, ``size`` every two milliseconds."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sent = 0
        self.has_closed = asyncio.Event()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameStream()

        async def receive() -> bytes:
            while (payload := frames.read()) is None:
                frames.receive(await reader.readexactly(1))
            return payload

        def send(*payloads: bytes) -> None:
            # A list: from Python 3.12 on, writing an iterator that gives nothing fails.
            writer.writelines([frames.encode(payload) for payload in payloads])

        send(Handshake("9.7.4", 7, OLD_CAPABILITIES, NONCE + b"\0", "mysql_native_password").encode())
        await receive()
        send(Ok().encode())
        command = 0
        while command not in (Command.STMT_EXECUTE, Command.BINLOG_DUMP):
            frames.start_command()
            command = (await receive())[0]
            send(*_ANSWERS.get(Command(command), [Ok().encode()]))
        writer.write(_LARGE + bytes([frames.sequence]))
        while self.sent < 1 << 20:
            writer.write(bytes(self.size))
            await writer.drain()
            self.sent += self.size
            await asyncio.sleep(0.002)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.talk(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.has_closed.set()


@contextlib.asynccontextmanager
async def session_with(server: Dripping, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    async def activity(self: Session) -> Activity:
        return "none"

    monkeypatch.setattr(Session, "activity", activity)
    monkeypatch.setattr(session_module, "_ON_THEIR_WAY", 0.05)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    dsn = f"mysql://repl:secret@127.0.0.1:{port}/?tls=disabled"
    async with asyncio.timeout(60), listening:
        session = await Session.open(Options.build(dsn, {}))
        try:
            yield session
        finally:
            await session.aclose()
            await server.has_closed.wait()


async def test_a_row_in_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte was a sign of life: a copy waited for a row for years."""
    server = Dripping(1)
    async with session_with(server, monkeypatch) as session:
        await session.start_rows("SELECT a FROM t", 0.1)
        with pytest.raises(SourceSilentError, match=r"sent no rows for 0\.1 s"):
            await session.read_rows(0.1)
    assert 0 < server.sent < 1 << 16


async def test_an_event_in_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Dripping(1)
    async with session_with(server, monkeypatch) as session:
        session.start_dump("binlog.000001", 4, 4711, 0)
        with pytest.raises(SourceSilentError, match=r"for 0\.1 s"):
            await session.read_events(0.1)
    assert server.sent < 1 << 16


async def test_a_slow_network_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Dripping(1 << 14)
    async with session_with(server, monkeypatch) as session:
        await session.start_rows("SELECT a FROM t", 30)
        [row] = await session.read_rows(30)
    assert len(row) == (1 << 20) - 1
