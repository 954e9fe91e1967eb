"""Rows counted through every fault at once: cut, stalled and damaged connections, and servers that are killed.

The short forms have a tenth of the rows and faults of the long ones (`--long`).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

import replica
from tests.faults import container
from tests.faults.proxy import FaultProxy, plan
from tests.faults.waiting import until
from tests.faults.workload import Collector, Workload, first_difference
from tests.faults.writer import Writer
from tests.server.support.faulty_streams import FILE_POSITION, GTID, report, start_of, stream_through
from tests.support.servers import Server

from .support.streams import SECONDS, take_rows

# Without GTIDs there is nothing but the position to go on by.
_WITHOUT_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
# How much smaller the workload's transactions are then.
_COMPRESSION = 10
# Small files: kills, rotations and faults are to meet.
_ARGUMENTS = ("--max-binlog-size=2M",)


@dataclass(frozen=True)
class Scale:
    """`reach`: the bytes of the log within which all faults happen. `pause`: seconds between transactions."""

    changes: int
    cuts: int
    stalls: int
    flips: int
    kills: int
    reach: int
    pause: float
    seconds: float


SHORT = Scale(20_000, cuts=10, stalls=1, flips=1, kills=1, reach=2_000_000, pause=0.05, seconds=240)
LONG = Scale(200_000, cuts=100, stalls=10, flips=10, kills=5, reach=20_000_000, pause=0.1, seconds=900)


async def disturb(server: Server, writer: Writer, kills: int, rng: random.Random) -> None:
    """Kill the server when so many changes have been committed, and while transactions are being written.

    Besides, an administrator kills its dumps twice.
    """
    pause, changes = writer.pause, writer.workload.changes
    deeds: list[Callable[[Server], None]] = [container.restart] * kills + [container.kill_dumps] * 2
    rng.shuffle(deeds)
    moments = sorted(rng.randrange(changes // 20, changes * 2 // 3) for _ in deeds)
    for moment, deed in zip(moments, deeds, strict=True):
        await until(partial(has_committed, writer, moment), seconds=600)
        # A kill takes seconds where the machine is busy: the writer waits for it before its work is done.
        writer.limit = writer.committed + changes // (4 * len(deeds))
        writer.pause = 0
        await asyncio.to_thread(deed, server)
        writer.pause, writer.limit = pause, changes


def has_committed(writer: Writer, number: int) -> bool:
    return writer.committed >= number


@pytest.mark.parametrize(
    ("name", "mode", "arguments"),
    [
        ("mysql:9.7", FILE_POSITION, _WITHOUT_GTIDS),
        ("mysql:9.7", GTID, ()),
        ("mysql:5.6", FILE_POSITION, _WITHOUT_GTIDS),
        ("mysql:5.6", GTID, ()),
        ("mariadb:11.8", FILE_POSITION, ()),
        ("mariadb:11.8", GTID, ()),
        # Many events in one that is cut anywhere, and rows that are compressed event by event.
        ("mysql:9.7", GTID, ("--binlog-transaction-compression=ON",)),
        ("mariadb:11.8", GTID, ("--log-bin-compress=ON",)),
    ],
    ids=lambda value: value if isinstance(value, str) else "".join(value).replace("-", " "),
)
async def test_every_row_once_and_in_order(
    seed: int,
    name: str,
    mode: str,
    arguments: tuple[str, ...],
    supervised_server: Callable[..., Server],
    pytestconfig: pytest.Config,
) -> None:
    scale = LONG if pytestconfig.getoption("long") else SHORT
    rng = random.Random(seed)
    workload = Workload(seed, scale.changes)
    reach = scale.reach // (_COMPRESSION if "compression" in "".join(arguments) else 1)
    faults = plan(rng, cuts=scale.cuts, stalls=scale.stalls, flips=scale.flips, reach=reach)
    server = supervised_server(name, *_ARGUMENTS, *arguments)
    with server.fresh_schema() as schema, contextlib.ExitStack() as stack:
        writer = Writer(server, schema, workload, pause=scale.pause)
        stack.callback(writer.stop)
        collector = Collector(schema)
        start = start_of(server, mode)
        writer.create_tables()
        async with (
            asyncio.timeout(scale.seconds),
            FaultProxy(server.port) as proxy,
            stream_through(proxy, server, start=start) as stream,
            asyncio.TaskGroup() as tasks,
        ):
            proxy.arm(faults)
            tasks.create_task(asyncio.to_thread(writer.run))
            tasks.create_task(disturb(server, writer, scale.kills, rng))
            try:
                async for event in stream:
                    collector.feed(event)
                    if collector.progress == workload.changes:
                        break
            finally:
                report(proxy, stream, collector, writer)
            await stream.acknowledge()
            checkpoint = stream.checkpoint
        writer.assert_all_is_there()
        assert first_difference(collector.delivered, list(workload.identities())) == ""
        assert (collector.restarts, collector.lost, collector.open) == (0, 0, [])
        assert_damage_took_effect(proxy, scale, stream.status.reconnects)
        assert writer.reconnects >= scale.kills
        await assert_nothing_is_behind(checkpoint, server, schema)
        if mode == GTID:
            assert checkpoint is not None
            assert checkpoint.gtid_set == str(start_of(server, GTID))


def assert_damage_took_effect(proxy: FaultProxy, scale: Scale, reconnects: int) -> None:
    """Each planned fault has happened, and dumps that faults ended were followed by others.

    A fault may meet a dump that a stream reads for its statements while it connects: that is no reconnect of its own.
    """
    assert proxy.pending == 0, "the workload was too small for all of its faults"
    assert sum(proxy.counts[kind] for kind in ("fin", "rst")) == scale.cuts
    assert (proxy.counts["stall"], proxy.counts["flip"]) == (scale.stalls, scale.flips)
    ended = [line for line in proxy.history if line.endswith("(dump)") and not line.startswith("flip")]
    assert ended, "no fault met a dump"
    connections = {line.split(" of ")[1] for line in ended}
    assert reconnects >= len(connections) // 2


async def assert_nothing_is_behind(
    checkpoint: replica.Checkpoint | None, server: Server, schema: str
) -> None:
    """A stream that goes on from there has no rows to give."""
    stream = replica.connect(
        server.dsn(),
        start=checkpoint,
        stop="now",
        tables=f"{schema}.*",
        events=replica.RowsEvent,
        tls="disabled",
    )
    async with asyncio.timeout(SECONDS), stream:
        assert [event async for event in stream] == []


@pytest.mark.parametrize("mode", [FILE_POSITION, GTID])
@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_any_bit_may_be_flipped(
    seed: int, server: Server, schema: str, mode: str, pytestconfig: pytest.Config
) -> None:
    """From the artificial event on that a dump begins with, and that alone has no checksum, to the transactions."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    start = start_of(server, mode)
    for number in range(1, 4):
        server.query(f"INSERT INTO {schema}.t VALUES ({number})")
    async with FaultProxy(server.port) as proxy:

        async def read() -> replica.BinlogStream:
            # Short periods: a server has many dumps at a time that it does not know to be over.
            async with (
                asyncio.timeout(SECONDS),
                stream_through(proxy, server, start=start, heartbeat=0.1) as stream,
            ):
                assert await take_rows(stream, 3) == [(1,), (2,), (3,)]
                await stream.acknowledge()
                return stream

        end = (await read()).position
        bits = proxy.dump_bytes * 8
        print("bits", bits)
        count = 1500 if pytestconfig.getoption("long") else 40
        noticed = 0
        for place in random.Random(seed).sample(range(bits), count):
            print("bit", place)
            proxy.damage_next(place // 8, place % 8)
            stream = await read()
            proxy.disarm()
            assert stream.position == end
            noticed += stream.status.reconnects > 0
        print("flipped", proxy.counts["flip"], "noticed", noticed)
        # The rest lies in the two events in front, which no checksum guards or one that the source leaves as it was,
        # where it changes nothing that is used; or behind the third row.
        assert proxy.counts["flip"] >= count * 9 // 10
        # On MariaDB a start at a position asks for the event there first, over a connection that is no reconnect.
        asks_first = server.family == "mariadb" and mode == FILE_POSITION
        assert noticed >= count // (4 if asks_first else 2)


@pytest.mark.parametrize("mode", [FILE_POSITION, GTID])
@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_checksums_come_and_go(server: Server, schema: str, mode: str) -> None:
    """Files with and without them, and lines that are cut in the middle of transactions of both kinds."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b VARCHAR(4000))")
    # More than a stream buffers.
    rows = 400
    try:
        async with (
            asyncio.timeout(SECONDS),
            FaultProxy(server.port) as proxy,
            stream_through(proxy, server, start=start_of(server, mode), tables=f"{schema}.t") as stream,
        ):
            delivered: list[int] = []
            for number, algorithm in enumerate(("NONE", "CRC32", "NONE", "CRC32")):
                server.query(f"SET GLOBAL binlog_checksum = {algorithm}")
                first = number * rows
                values = ", ".join(f"({n}, REPEAT('x', 4000))" for n in range(first, first + rows))
                server.query(f"INSERT INTO {schema}.t VALUES {values}")
                for wanted in (first + 1, first + rows):
                    while len(delivered) < wanted:
                        delivered += [row[0] for row in await take_rows(stream, 1)]
                    proxy.cut_now()
            assert delivered == list(range(4 * rows))
            assert stream.status.reconnects >= 4
            assert stream.status.restarts == 0
    finally:
        server.query("SET GLOBAL binlog_checksum = CRC32")
