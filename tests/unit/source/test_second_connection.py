"""The connection beside the dump, against a scripted source."""

from __future__ import annotations

import asyncio

import pytest

from protocol.errors import ConnectionLostError
from replica.config.options import Options
from replica.source.second_connection import SecondConnection
from tests.support.socket_source import Rows, SocketSource, serving


async def test_closing_while_it_is_opened_leaves_no_connection() -> None:
    """One that was closed during its first statements was kept, and nobody closed it."""
    closings: list[asyncio.Task[None]] = []

    def close() -> Rows:
        closings.append(asyncio.create_task(connection.aclose()))
        return []

    async with serving(SocketSource(answers={"SET SESSION": close})) as source:
        connection = SecondConnection(Options.build(source.dsn, {}), "SET SESSION lock_wait_timeout = 1")
        with pytest.raises(ConnectionLostError, match="the stream was closed"):
            await connection.query("SELECT 1")
        await source.until_closed()
        await asyncio.gather(*closings)
