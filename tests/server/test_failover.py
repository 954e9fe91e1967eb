"""A stream that is moved to another server of its topology, in the middle of a transaction and under load.

The replicas cut their events in other places than the source does, so a transaction is not gone on with by position.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import os
import random
from collections.abc import AsyncGenerator, Callable

import pytest

from replica import BinlogStream
from tests.faults import container, topology
from tests.faults.proxy import FaultProxy
from tests.faults.workload import Collector, Workload, first_difference
from tests.faults.writer import Writer
from tests.servers import Server

from .streams import MYSQL97_AND_MARIADB118, executed
from .test_chaos import GTID, report, start_of, stream_through

# So slow that the replicas, which do not go through the proxy, are always ahead of the stream.
_BYTES_PER_SECOND = 1_000_000
_EVENT_SIZES = (8192, 1024, 3000)
_ARGUMENTS = {"mysql": (), "mariadb": ("--log-slave-updates",)}

Follow = Callable[[Collector], Callable[[BinlogStream, int], AsyncGenerator[None, None]]]
BY_EVENT: Follow = operator.attrgetter("follow_events")
BY_TRANSACTION: Follow = operator.attrgetter("follow_transactions")


class Failover:
    """Moves stream, writer and replicas from one server to the next."""

    def __init__(
        self, servers: list[Server], proxy: FaultProxy, writer: Writer, collector: Collector
    ) -> None:
        self.servers = servers
        self.rows_of_open_transaction: list[int] = []
        self._proxy = proxy
        self._writer = writer
        self._collector = collector

    def cut(self) -> None:
        """From now on nothing reaches the stream."""
        self._proxy.black_hole()
        self._proxy.cut_now()

    async def run(self) -> None:
        """What has reached the stream has to be on the replica before the source dies."""
        source, promoted, *others = self.servers
        await asyncio.to_thread(topology.catch_up, promoted, source)
        await asyncio.to_thread(container.kill, source, stays_down=True)
        # What was on its way through the stream itself has been read by now.
        self.rows_of_open_transaction.append(len(self._collector.open))
        await asyncio.to_thread(topology.promote, promoted)
        for other in others:
            await asyncio.to_thread(topology.switch, other, promoted)
        self._writer.server = promoted
        self._proxy.retarget(promoted.port)
        self._proxy.serve()
        del self.servers[0]


@pytest.mark.parametrize("follow", [BY_EVENT, BY_TRANSACTION], ids=["events", "transactions"])
@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_stream_goes_on_at_promoted_replicas(
    name: str, follow: Follow, supervised_server: Callable[..., Server], pytestconfig: pytest.Config
) -> None:
    """Twice in a row, each time where a transaction of many rows is open."""
    changes = 200_000 if pytestconfig.getoption("long") else 20_000
    seed = int(os.environ.get("FAULT_SEED", random.randrange(1 << 32)))
    print("seed", seed)
    workload = Workload(seed, changes)
    servers = [
        supervised_server(name, f"--binlog-row-event-max-size={size}", *_ARGUMENTS[name.split(":")[0]])
        for size in _EVENT_SIZES
    ]
    for follower in servers[1:]:
        await asyncio.to_thread(topology.follow, follower, servers[0])
    start = start_of(servers[0], GTID)
    schema = "moved"
    servers[0].query(f"CREATE DATABASE {schema}")
    writer = Writer(servers[0], schema, workload, pause=0.05)
    writer.create_tables()
    collector = Collector(schema)
    places = moments(workload, random.Random(seed), len(servers) - 1)
    print("moved when so many changes have come:", places)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(writer.stop)
        await stack.enter_async_context(asyncio.timeout(600 if pytestconfig.getoption("long") else 120))
        proxy = await stack.enter_async_context(FaultProxy(servers[0].port))
        proxy.throttle(_BYTES_PER_SECOND)
        failover = Failover(servers, proxy, writer, collector)
        stream = await stack.enter_async_context(stream_through(proxy, servers[0], start=start))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        tasks.create_task(asyncio.to_thread(writer.run))
        try:
            async with contextlib.aclosing(follow(collector)(stream, changes)) as steps:
                async for _ in steps:
                    if places and collector.arrived >= places[0]:
                        del places[0]
                        failover.cut()
                        tasks.create_task(failover.run())
        finally:
            report(proxy, stream, collector, writer)
            print("rows of the open transaction", failover.rows_of_open_transaction)
        await stream.acknowledge()
        checkpoint = stream.checkpoint
    writer.assert_all_is_there()
    assert first_difference(collector.delivered, list(workload.identities())) == ""
    assert (collector.restarts, collector.lost, collector.open) == (0, 0, [])
    assert len(failover.rows_of_open_transaction) == len(_EVENT_SIZES) - 1
    assert any(failover.rows_of_open_transaction), "no transaction was open"
    [last] = servers
    assert checkpoint is not None
    assert type(start)(checkpoint.gtid_set) == type(start)(executed(last))
    assert stream.status.server_id == last.server_id


def moments(workload: Workload, rng: random.Random, count: int) -> list[int]:
    """Numbers of changes in the first halves of the largest transactions, in order."""
    ends = [0, *(transaction.end for transaction in workload.transactions)]
    largest = sorted(range(1, len(ends)), key=lambda i: ends[i - 1] - ends[i])[: count + 2]
    return sorted(
        ends[i - 1] + rng.randrange(1, (ends[i] - ends[i - 1]) // 2) for i in rng.sample(largest, count)
    )
