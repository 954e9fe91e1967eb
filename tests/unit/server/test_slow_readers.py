"""BinlogServer and clients that stop reading, also inside of large events."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from pathlib import Path

import pytest

import replica
from protocol.constants import EventType
from tests.support.log_builder import LogBuilder
from tests.support.served import (
    CHECKSUM_ASKED,
    dumped,
    logged_in,
    mysql_log,
    read_for_ever,
    serving,
    stored_events,
)
from tests.support.socket_source import until


async def test_a_client_that_does_not_read_holds_up_nobody(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(64):
        log.add(EventType.ROWS_QUERY, b"\0" + bytes(1 << 20))
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        async with logged_in(server, CHECKSUM_ASKED) as slow:
            slow.start_dump("", 4, 77, 0)
            await until(lambda: bool(server.replicas))
            assert len(await dumped(server)) == 66
            [stalled] = server.replicas
            # Only as much was sent as the buffers of the sockets and of asyncio hold.
            assert stalled.sent is not None
            assert stalled.sent.position < 32 << 20
            received = 0
            while received < 66:
                received += len(await slow.read_events(10))
        await until(lambda: not server._connections)


@pytest.mark.parametrize("compression", ["uncompressed", pytest.param("zlib", marks=pytest.mark.thorough)])
async def test_stopped_clients_do_not_hold_large_events(tmp_path: Path, compression: str) -> None:
    """Twelve clients stop reading inside of an event of 40 MB: together they hold less than one such event."""
    size = 40 << 20
    log = mysql_log()
    log.add(EventType.ROWS_QUERY, b"\0" + random.Random(15).randbytes(size))
    log.transaction([1])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server, contextlib.AsyncExitStack() as stack:
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        for server_id in range(12):
            client = await stack.enter_async_context(
                logged_in(server, CHECKSUM_ASKED, compression=compression)
            )
            client.start_dump("", 4, 100 + server_id, 0)
            received = await client.read_events(10)
        assert len(server.replicas) == 12
        _, peak = tracemalloc.get_traced_memory()
        assert peak < size
        tracemalloc.stop()
        stored = stored_events(path)
        while received[-1] != stored[-1]:
            received += await client.read_events(10)
        assert received[1 - len(stored) :] == stored[1:]


async def test_a_duplicate_replica_ends_a_dump_inside_of_an_event(tmp_path: Path) -> None:
    """Nothing can be said there: the connection is closed, and the client reads no error as a part of the event."""
    log = mysql_log()
    log.add(EventType.ROWS_QUERY, b"\0" + bytes(40 << 20))
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server, logged_in(server, CHECKSUM_ASKED) as older:
        older.start_dump("", 4, 77, 0)
        assert await older.read_events(10)
        async with logged_in(server, CHECKSUM_ASKED) as newer:
            newer.start_dump("", 4, 77, 0)
            assert await newer.read_events(10)
            with pytest.raises(replica.ConnectionLostError):
                await read_for_ever(older)
            assert len(server.replicas) == 1
