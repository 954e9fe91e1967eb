"""A stream that is closed while it connects."""

from __future__ import annotations

import asyncio

import pytest

import replica
from tests.support.scripted_log import Log, mysql, transaction
from tests.support.socket_source import serving, until


@pytest.mark.parametrize("statements", range(1, 9))
async def test_aclose_while_the_stream_connects_ends_the_loop(statements: int) -> None:
    """Before the log was asked for, the loop ended with a RuntimeError: Ctrl-C in a slow start was "a defect"."""
    source = mysql(transaction(Log(), 1), delay=0.02)
    async with serving(source):
        stream = replica.connect(source.dsn, start="earliest")

        async def close() -> None:
            await until(lambda: len(source.statements) >= statements)
            await stream.aclose()

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(close())
            async with stream:
                async for _ in stream:
                    pass
        assert stream.status.state == "closed"
