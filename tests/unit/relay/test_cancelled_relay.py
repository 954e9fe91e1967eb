"""BinlogRelay whose ``run`` is cancelled while it connects."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replica.config.options import Options
from replica.relay import BinlogRelay
from replica.source.session import Session
from tests.support.socket_source import SocketSource, serving


async def test_a_relay_that_is_cancelled_when_it_has_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection stayed open."""
    open_session = Session.open

    async def cancelled_then(options: Options) -> Session:
        session = await open_session(options)
        asyncio.get_running_loop().call_soon(run.cancel)
        return session

    monkeypatch.setattr(Session, "open", cancelled_then)
    async with serving(SocketSource()) as source:
        run = asyncio.create_task(BinlogRelay(source.dsn, tmp_path, reconnect=False).run())
        with pytest.raises(asyncio.CancelledError):
            await run
        await source.until_closed()
