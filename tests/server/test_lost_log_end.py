"""A source that lost the end of its log with the power (sync_binlog=0), and has given its GTIDs anew since.

What consumers have read then never happened, and what has happened has GTIDs that they know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import replica
from protocol.errors import PositionPastEndError, SourceChangedError
from tests.faults import container
from tests.server.support.streams import SECONDS, stream_of
from tests.support.servers import Server

_GTIDS = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")


def fill(server: Server, first: int, count: int) -> None:
    for number in range(first, first + count):
        server.query(f"INSERT INTO w.t VALUES ({number})")


@pytest.mark.parametrize(
    ("name", "is_by_gtid"),
    [("mysql:9.7", True), ("mysql:9.7", False), ("mariadb:11.8", True), ("mariadb:11.8", False)],
)
async def test_a_running_stream(
    supervised_server: Callable[..., Server], name: str, is_by_gtid: bool
) -> None:
    """By GTIDs it went on behind as many transactions as were lost: it had others with their GTIDs."""
    server = supervised_server(name, *(_GTIDS if name.startswith("mysql") else ()))
    server.query("CREATE DATABASE w")
    server.query("CREATE TABLE w.t (id INT PRIMARY KEY)")
    file, position = server.query(server.log_status)[0][:2]
    start = "now" if is_by_gtid else replica.BinlogPosition(str(file), int(position))
    seen: list[int] = []
    async with asyncio.timeout(SECONDS), stream_of(server, tables="w.t", start=start) as stream:

        async def read(last: int) -> None:
            async for event in stream:
                if isinstance(event, replica.WriteRowsEvent):
                    seen.extend(row[0] for row in event.rows if isinstance(row[0], int))
                if last in seen and isinstance(event, replica.XidEvent):
                    return

        await asyncio.to_thread(fill, server, 0, 3)
        await asyncio.to_thread(container.keep_state, server)
        await asyncio.to_thread(fill, server, 3, 5)
        await read(7)
        # The connection is lost meanwhile, and the stream looks for it again behind that.
        await asyncio.to_thread(container.lose_power, server)
        await asyncio.to_thread(fill, server, 100, 9)
        expected = SourceChangedError if is_by_gtid else PositionPastEndError
        with pytest.raises(expected, match=r"copy the data again|choose a new start"):
            await read(108)
    assert seen == list(range(8))
