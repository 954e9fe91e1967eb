"""A stream that is moved to another server of its topology, in the middle of a transaction and under load.

The replicas cut their events in other places than the source does, so a transaction is not gone on with by position.
"""

from __future__ import annotations

import asyncio
import contextlib
import operator
import random
from collections.abc import AsyncGenerator, Callable

import pytest

from replica import BinlogStream, GtidSet, TransactionRestarted, TransactionsUnavailableError
from tests.faults import container, topology
from tests.faults.proxy import FaultProxy
from tests.faults.workload import Collector, Workload, first_difference
from tests.faults.writer import Writer
from tests.server.support.faulty_streams import GTID, report, start_of, stream_through
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, executed, take_rows

# So slow that the replicas, which do not go through the proxy, are always ahead of the stream.
_BYTES_PER_SECOND = 1_000_000
# From small to large events and back: what was delivered then ends inside of one.
_EVENT_SIZES = (1024, 8192, 2000)
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
        self.is_under_way = False
        self._proxy = proxy
        self._writer = writer
        self._collector = collector

    def cut(self) -> None:
        """From now on nothing reaches the stream."""
        self.is_under_way = True
        self._proxy.black_hole()
        self._proxy.cut_now()

    async def run(self) -> None:
        """What has reached the stream has to be on the replica before the source dies."""
        source, promoted, *others = self.servers
        # The writer goes on until the source dies, and no other replica may get what the promoted one never will.
        for other in others:
            await asyncio.to_thread(topology.stop, other)
        for ahead in (source, *others):
            await asyncio.to_thread(topology.catch_up, promoted, ahead)
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
        self.is_under_way = False


@pytest.mark.parametrize(
    ("name", "follow", "in_one"),
    [
        pytest.param("mysql:9.7", BY_EVENT, False, id="mysql:9.7-events", marks=pytest.mark.long),
        pytest.param("mysql:9.7", BY_TRANSACTION, True, id="mysql:9.7-transactions"),
        pytest.param("mariadb:11.8", BY_EVENT, True, id="mariadb:11.8-events"),
        pytest.param(
            "mariadb:11.8", BY_TRANSACTION, False, id="mariadb:11.8-transactions", marks=pytest.mark.long
        ),
    ],
)
async def test_a_stream_goes_on_at_promoted_replicas(
    seed: int,
    name: str,
    follow: Follow,
    in_one: bool,
    supervised_server: Callable[..., Server],
    pytestconfig: pytest.Config,
) -> None:
    """Twice in a row, each time where a transaction of many rows is open: the same one, or another."""
    changes = 200_000 if pytestconfig.getoption("long") else 20_000
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
    # A replica that has nothing yet asks the promoted one for a GTID from before its log: MariaDB refuses it (1236).
    for follower in servers[1:]:
        await asyncio.to_thread(topology.catch_up, follower, servers[0])
    collector = Collector(schema)
    places = moments(workload, random.Random(seed), len(servers) - 1, in_one=in_one)
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
                    if places and collector.arrived >= places[0] and not failover.is_under_way:
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


def moments(workload: Workload, rng: random.Random, count: int, *, in_one: bool) -> list[int]:
    """Numbers of changes within the first halves of large transactions, or all within the largest one."""
    ends = [0, *(transaction.end for transaction in workload.transactions)]
    begins = sorted(range(len(ends) - 1), key=lambda i: ends[i] - ends[i + 1])
    if in_one:
        begin, end = ends[begins[0]], ends[begins[0] + 1]
        part = (end - begin) // (2 * count)
        # Not next to one another: buffered events are read before a failover takes effect.
        return [begin + part * 2 * number + rng.randrange(1, part) for number in range(count)]
    chosen = rng.sample(begins[: count + 2], count)
    return sorted(ends[i] + rng.randrange(1, (ends[i + 1] - ends[i]) // 2) for i in chosen)


@pytest.mark.parametrize("has_whole", [False, True], ids=["in the middle", "behind it"])
@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_the_new_source_never_had_a_transaction(
    name: str, has_whole: bool, extra_server: Callable[..., Server]
) -> None:
    """A part of it is taken back by a marker; what was delivered whole cannot be, and is an error."""
    source, other = (extra_server(name, *_ARGUMENTS[name.split(":")[0]]) for _ in range(2))
    topology.follow(other, source)
    start = start_of(source, GTID)
    source.query("CREATE DATABASE torn")
    source.query("CREATE TABLE torn.t (a INT PRIMARY KEY, b VARCHAR(4000))")
    source.query("INSERT INTO torn.t VALUES (1, '')")
    topology.catch_up(other, source)
    topology.promote(other)
    # Far more than a stream buffers.
    lost = ", ".join(f"({number}, REPEAT('x', 4000))" for number in range(100, 1100))
    source.query(f"INSERT INTO torn.t VALUES {lost}")
    lost_gtid = executed(source)
    if source.family == "mysql":
        lost_gtid = str(GtidSet(lost_gtid) - GtidSet(executed(other)))
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=start) as stream,
    ):
        if has_whole:
            assert len(await take_rows(stream, 1001)) == 1001
        else:
            proxy.throttle(_BYTES_PER_SECOND)
            assert [row[0] for row in await take_rows(stream, 2)][:2] == [1, 100]
        proxy.retarget(other.port)
        proxy.cut_now()
        other.query("INSERT INTO torn.t VALUES (2, '')")
        if has_whole:
            with pytest.raises(TransactionsUnavailableError):
                await take_rows(stream, 1)
            return
        while not isinstance(marker := await anext(stream), TransactionRestarted):
            pass
        assert [row[0] for row in await take_rows(stream, 1)] == [2]
    assert 1 <= marker.rows < 1000
    assert str(marker.gtid) == lost_gtid
    assert stream.status.restarts == 1
