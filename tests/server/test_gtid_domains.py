"""MariaDB's GTID domains: sources that have nothing of a domain in their logs, or less than the stream has read."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from replica import BinlogStream, MariadbGtidSet
from tests.faults import topology
from tests.faults.proxy import FaultProxy
from tests.faults.waiting import until
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import SECONDS, end_of_log, executed, stream_of, take_rows
from tests.support.servers import Server

# Server ids of the sources of domain 0 and domain 1.
_MAIN, _OTHER = 5, 6
# Sequence numbers of one domain, as gtid_strict_mode=OFF allows them.
_GOING_BACK = [100, 50, 51, 60, 101, 55, 110]


@pytest.fixture
def pair(extra_server: Callable[..., Server]) -> tuple[Server, Server]:
    """Two servers with the same empty table, and empty logs."""
    return new_server(extra_server), new_server(extra_server)


def new_server(extra_server: Callable[..., Server]) -> Server:
    server = extra_server("mariadb:11.8", "--log-slave-updates")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY)")
    server.query("RESET MASTER")
    return server


def write(server: Server, domain: int, server_id: int, *numbers: int) -> None:
    """A transaction for each number, which is the sequence of its GTID, as a replica logs them."""
    with server.connect() as connection, connection.cursor() as cursor:
        for number in numbers:
            cursor.execute(f"SET gtid_domain_id = {domain}, server_id = {server_id}, gtid_seq_no = {number}")
            cursor.execute(f"INSERT INTO d.t VALUES ({domain * 100 + number})")


def told(stream: BinlogStream) -> str:
    return str(stream.status.last_error)


async def ids(stream: BinlogStream, count: int) -> list[int]:
    return [row[0] for row in await take_rows(stream, count)]


@pytest.mark.parametrize("begin", ["now", "earliest", "position"])
async def test_a_domain_that_was_replicated_before_the_log_began(
    begin: str, pair: tuple[Server, Server]
) -> None:
    """Its rows were there when the stream began, and came as new ones from another server, whose log has them."""
    restored, other = pair
    write(other, 0, _MAIN, 1, 2)
    write(other, 1, _OTHER, 1, 2, 3)
    restored.query("SET GLOBAL gtid_slave_pos = '0-5-2,1-6-3'")
    start: Any = end_of_log(restored) if begin == "position" else begin
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(restored.port) as proxy,
        stream_through(proxy, restored, start=start, tables="d.*") as stream,
    ):
        for server in pair:
            write(server, 0, _MAIN, 3)
        assert await ids(stream, 1) == [3]
        assert stream.checkpoint is not None
        proxy.retarget(other.port)
        proxy.cut_now()
        write(other, 1, _OTHER, 4)
        assert await ids(stream, 1) == [104]


async def test_a_domain_that_the_log_begins_to_have(pair: tuple[Server, Server]) -> None:
    """A source that is asked with a place that is not in its log leaves out transactions of other servers."""
    restored, _ = pair
    restored.query("SET GLOBAL gtid_slave_pos = '0-5-2,1-6-3'")
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(restored.port) as proxy,
        stream_through(proxy, restored, start="now", tables="d.*") as stream,
    ):
        write(restored, 0, _MAIN, 3)
        assert await ids(stream, 1) == [3]
        proxy.black_hole()
        proxy.cut_now()
        write(restored, 1, 9, 4)
        proxy.serve()
        assert await ids(stream, 1) == [104]


@pytest.mark.parametrize("has_domain", [False, True], ids=["without the domain", "behind in the domain"])
async def test_a_replica_that_lags_behind_in_one_domain(
    has_domain: bool, pair: tuple[Server, Server]
) -> None:
    """The stream ended there, and told to copy the data again."""
    source, lagging = pair
    write(source, 0, _MAIN, 1)
    write(source, 1, _OTHER, 1, 2, 3)
    write(lagging, 0, _MAIN, 1)
    if has_domain:
        write(lagging, 1, _OTHER, 1)
    # Its replication runs, and applies nothing.
    lagging.query(f"SET GLOBAL gtid_slave_pos = '{executed(lagging)}'")
    lagging.query("CHANGE MASTER TO MASTER_DELAY = 3600")
    topology.switch(lagging, source)
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=MariadbGtidSet(), tables="d.*") as stream,
    ):
        assert sorted(await ids(stream, 4)) == [1, 101, 102, 103]
        proxy.retarget(lagging.port)
        proxy.cut_now()
        taking = asyncio.create_task(ids(stream, 1))
        if not has_domain:
            await until(lambda: stream.status.reconnects == 1 and stream.status.state == "streaming")
            write(lagging, 1, _OTHER, 1)
        await until(lambda: "does not have these transactions of the start set yet: 1-6-3" in told(stream))
        assert not taking.done()
        write(lagging, 1, _OTHER, 2, 3, 4)
        assert await taking == [104]


async def test_numbers_that_go_back_in_a_domain(extra_server: Callable[..., Server]) -> None:
    """Asked by GTIDs, the source sent up to six transactions again, or passed over five of six."""
    source = new_server(extra_server)
    for domain, (count, rotates) in enumerate(itertools.product([1, 2, 6], [False, True]), 2):
        before, behind = _GOING_BACK[:count], _GOING_BACK[count:]
        async with (
            asyncio.timeout(SECONDS),
            FaultProxy(source.port) as proxy,
            stream_through(proxy, source, start="now", tables="d.*") as stream,
        ):
            write(source, domain, 77, *before)
            expected = [domain * 100 + number for number in before]
            assert await ids(stream, count) == expected
            checkpoint, handed = stream.checkpoint, expected[-1:]
            proxy.black_hole()
            proxy.cut_now()
            for number in behind:
                if rotates:
                    source.query("FLUSH BINARY LOGS")
                write(source, domain, 77, number)
            proxy.serve()
            expected = [domain * 100 + number for number in behind]
            assert await ids(stream, len(behind)) == expected
        # The checkpoint is in front of the row that was handed out last: the first one is of an empty log.
        async with (
            asyncio.timeout(SECONDS),
            stream_of(source, start=checkpoint, tables="d.*", stop="now") as stream,
        ):
            assert await ids(stream, len(behind) + 1) == handed + expected
