"""Dead connections are noticed, slow consumers hold the socket and not memory, cancelling leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any

import pymysql
import pytest

import replica
from replica import QueryEvent, WriteRowsEvent
from tests.faults import container
from tests.faults.proxy import Fault, FaultProxy
from tests.faults.waiting import until
from tests.server.support.faulty_streams import FILE_POSITION, GTID, start_of, stream_through
from tests.support.servers import Server

from .support.streams import (
    MYSQL97_AND_MARIADB118,
    PASSWORD,
    SECONDS,
    end_of_log,
    take_changes,
    take_rows,
    user_of,
)

# Where the servers hardly differ and waiting is long.
MYSQL97_IF_LONG, MYSQL56_IF_LONG, MARIADB118_IF_LONG = (
    pytest.param(name, marks=pytest.mark.long) for name in ("mysql:9.7", "mysql:5.6", "mariadb:11.8")
)
HEARTBEAT = 1.5
CHUNK = 256 << 10
# Seconds; connecting again takes some thirty of them.
CANCEL_STEP = 0.001
# The stream's own, and the one that it looks up column names with.
CONNECTIONS = 2


@contextlib.asynccontextmanager
async def proxied(
    server: Server, schema: str, **options: Any
) -> AsyncIterator[tuple[FaultProxy, replica.BinlogStream]]:
    """A stream of the schema's table `t`, through a proxy."""
    server.query(f"CREATE TABLE IF NOT EXISTS {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
    async with FaultProxy(server.port) as proxy:
        options = {"events": WriteRowsEvent} | options
        async with stream_through(
            proxy, server, tables=f"{schema}.t", start=end_of_log(server), **options
        ) as stream:
            yield proxy, stream


async def numbers(stream: replica.BinlogStream, count: int) -> list[int]:
    return [row[0] for row in await take_rows(stream, count)]


def insert(server: Server, schema: str, first: int, last: int, size: int = 1) -> None:
    rows = ", ".join(f"({n}, REPEAT('x', {size}))" for n in range(first, last + 1))
    server.query(f"INSERT INTO {schema}.t VALUES {rows}")


@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_a_black_hole_is_noticed(server: Server, schema: str) -> None:
    """Within three heartbeat periods, and the stream goes on when there is a way through again."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SECONDS), proxied(server, schema, heartbeat=HEARTBEAT) as (proxy, stream):
        insert(server, schema, 1, 1)
        assert await numbers(stream, 1) == [1]
        following = asyncio.create_task(numbers(stream, 3))
        # The last sign of life shall be a heartbeat, not the row.
        await asyncio.sleep(1.2 * HEARTBEAT)
        proxy.black_hole()
        began = loop.time()
        insert(server, schema, 2, 2)
        await until(lambda: stream.status.last_error is not None)
        waited = loop.time() - began
        assert isinstance(stream.status.last_error, replica.SourceSilentError)
        assert waited <= 3 * HEARTBEAT
        assert stream.status.state in ("waiting", "connecting")
        insert(server, schema, 3, 3)
        proxy.serve()
        insert(server, schema, 4, 4)
        assert await following == [2, 3, 4]
        assert stream.status.reconnects == 1
        assert str(stream.status.state) == "streaming"


async def test_a_look_up_that_is_refused_for_now_is_repeated(extra_server: Callable[..., Server]) -> None:
    """A server with no connection to spare is no reason to call a column @1 from then on."""
    server = extra_server("mysql:9.7", "--max-connections=4")
    with (
        server.fresh_schema() as schema,
        user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user,
        contextlib.ExitStack() as connections,
    ):
        server.query(f"CREATE TABLE {schema}.t (number INT PRIMARY KEY)")
        writer = connections.enter_context(server.connect())
        login = {"user": user, "password": PASSWORD, "get_server_public_key": True}
        async with (
            asyncio.timeout(SECONDS),
            FaultProxy(server.port) as proxy,
            stream_through(proxy, server, tables=f"{schema}.t", events=WriteRowsEvent, **login) as stream,
        ):
            # When the stream was opened, the user could not see the table.
            writer.cursor().execute(f"GRANT SELECT ON {schema}.* TO '{user}'@'%'")
            others = fill_up(server)
            connections.callback(close_all, others)
            writer.cursor().execute(f"INSERT INTO {schema}.t VALUES (1)")
            following = asyncio.create_task(take_changes(stream, 1))
            await until(lambda: stream.status.last_error is not None)
            close_all(others)
            [change] = await following
    assert change.after == {"number": 1}


def fill_up(server: Server) -> list[pymysql.Connection[Any]]:
    """Connections, so many that the server has no room for another one."""
    opened = []
    while True:
        try:
            opened.append(server.connect(user=server.replica_user, password=server.replica_password))
        except pymysql.err.OperationalError:  # Too many connections.
            return opened


def close_all(connections: list[pymysql.Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


@pytest.mark.parametrize("name", [MYSQL97_IF_LONG, "mysql:5.6", "mariadb:11.8"])
async def test_a_source_that_is_shut_down_in_order(
    name: str, supervised_server: Callable[..., Server]
) -> None:
    """It ends its dumps with one word or another; when it is there again the next event comes.

    The events need no look-up: MySQL waits ten seconds for idle connections before it goes.
    """
    server = supervised_server(name)
    with server.fresh_schema() as schema:
        async with asyncio.timeout(SECONDS), proxied(server, schema, events=QueryEvent) as (_, stream):
            created = [f"CREATE TABLE {schema}.t{number} (a INT)" for number in range(2)]
            server.query(created[0])
            assert await statement(stream) == created[0]
            following = asyncio.create_task(statement(stream))
            await asyncio.to_thread(container.restart, server, "TERM")
            server.query(created[1])
            assert await following == created[1]
            assert stream.status.reconnects >= 1


async def statement(stream: replica.BinlogStream) -> str:
    event = await anext(stream)
    assert isinstance(event, QueryEvent)
    return event.sql


@pytest.mark.parametrize(
    ("name", "mode"),
    [("mysql:9.7", GTID), ("mysql:5.6", GTID), ("mariadb:10.11", FILE_POSITION), ("mariadb:11.8", GTID)],
)
async def test_a_connection_that_is_lost_while_the_source_writes(
    name: str, mode: str, extra_server: Callable[..., Server]
) -> None:
    """The server waits for net_write_timeout, which is longer here than the test: the stream must not.

    By GTIDs, silence may also be a search in the log. MariaDB lets the next dump wait for the end of the lost one.
    """
    server = extra_server(name)
    server.query("SET GLOBAL net_write_timeout = 3600")
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
        start = start_of(server, mode)
        # More than the sockets between the server and the proxy hold.
        for number in range(60):
            insert(server, schema, number, number, size=2_000_000)
        async with asyncio.timeout(SECONDS), FaultProxy(server.port) as proxy:
            options: dict[str, Any] = {"tables": f"{schema}.t", "events": WriteRowsEvent}
            async with stream_through(proxy, server, start=start, heartbeat=HEARTBEAT, **options) as stream:
                assert await numbers(stream, 1) == [0]
                proxy.arm([Fault("stall", 5_000_000, is_seen=False)])
                assert await numbers(stream, 9) == list(range(1, 10))
            assert stream.status.reconnects == 1


async def test_a_source_that_comes_back_late_is_found(server: Server, schema: str) -> None:
    """New connections fall into the black hole as well: each of them has its own limit."""
    async with asyncio.timeout(SECONDS), proxied(server, schema, heartbeat=0.2) as (proxy, stream):
        proxy.black_hole()
        following = asyncio.create_task(numbers(stream, 1))
        while proxy.connections < 4:
            proxy.cut_now()
            await asyncio.sleep(0.05)
        insert(server, schema, 1, 1)
        proxy.serve()
        assert await following == [1]
        assert proxy.open_connections <= CONNECTIONS


@pytest.mark.parametrize("bit", range(7))
async def test_a_length_that_was_damaged_is_noticed_while_the_source_is_idle(
    mysql97: Server, bit: int
) -> None:
    """What waits for a packet of megabytes must not take heartbeats for its bytes, and for signs of life."""
    with mysql97.fresh_schema() as schema:
        async with asyncio.timeout(SECONDS), proxied(mysql97, schema, heartbeat=0.4) as (proxy, stream):
            following = asyncio.create_task(numbers(stream, 1))
            await asyncio.sleep(0.5)
            # The third byte of the length of the transaction's first packet, its GTID.
            proxy.damage_next(2, bit)
            insert(mysql97, schema, 1, 1)
            assert await following == [1]
            assert stream.status.reconnects == 1


@pytest.mark.parametrize("server", ["mysql:9.7", MYSQL56_IF_LONG, "mariadb:11.8"], indirect=True)
async def test_a_consumer_that_outlasts_the_servers_patience(server: Server, schema: str) -> None:
    """The source gives up writing after `net_write_timeout`; the consumer sees the next row, and no exception."""
    with impatient(server), user_of(server) as user:
        login = {"user": user, "password": PASSWORD}
        async with asyncio.timeout(SECONDS), proxied(server, schema, **login) as (proxy, stream):
            insert(server, schema, 1, 1)
            assert await numbers(stream, 1) == [1]
            # More than all the sockets on the way hold.
            for n in range(2, 32):
                insert(server, schema, n, n, size=2_000_000)
            assert await numbers(stream, 1) == [2]
            await asyncio.to_thread(wait_for_no_dump, server, user)
            assert await numbers(stream, 29) == list(range(3, 32))
            assert stream.status.reconnects >= 1
            assert proxy.open_connections <= CONNECTIONS


@contextlib.contextmanager
def impatient(server: Server) -> Iterator[None]:
    """New connections have a `net_write_timeout` of a second."""
    [(before,)] = server.query("SELECT @@GLOBAL.net_write_timeout")
    server.query("SET GLOBAL net_write_timeout = 1")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL net_write_timeout = {before}")


def wait_for_no_dump(server: Server, user: str) -> None:
    sql = "SELECT 1 FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%%' AND user = %s"
    deadline = time.monotonic() + SECONDS
    while server.query(sql, user):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("server", ["mysql:9.7", MARIADB118_IF_LONG], indirect=True)
async def test_a_slow_consumer_holds_the_socket_and_not_memory(
    server: Server, schema: str, pytestconfig: pytest.Config
) -> None:
    """A consumer of ten rows a second, and a log of as many megabytes as a process can well do without."""
    seconds, megabytes = (300, 400) if pytestconfig.getoption("long") else (6, 100)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY AUTO_INCREMENT, b LONGTEXT)")
    start = end_of_log(server)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.slow_consumer", server.dsn(), f"{schema}.t", str(start), str(seconds),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    insert_many = f"INSERT INTO {schema}.t (b) VALUES {', '.join(['(REPEAT(0x78, 10000))'] * 100)}"

    def write() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(megabytes):
                cursor.execute(insert_many)

    writing = asyncio.create_task(asyncio.to_thread(write))
    async with asyncio.timeout(seconds + SECONDS):
        *samples, last = (await process.stdout.read()).decode().splitlines()
        assert await process.wait() == 0
        await writing
    resident = [int(sample) for sample in samples]
    print(last, resident)
    # The buffers have filled within the first second or two.
    assert max(resident[2:]) - resident[1] < 4_000


async def test_other_tasks_get_their_turn_under_full_load(server: Server, schema: str) -> None:
    """Between two turns of another task no more than some 256 KB are handed out, however much has come."""
    async with asyncio.timeout(SECONDS), proxied(server, schema) as (_, stream):
        for n in range(20):
            insert(server, schema, n * 1000, n * 1000 + 999, size=1000)
        seen: list[int] = []

        async def watch() -> None:
            while True:
                seen.append(stream.status.rows)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        assert len(await numbers(stream, 20_000)) == 20_000
        watching.cancel()
    steps = [after - before for before, after in itertools.pairwise(seen)]
    # Each row has a little more than 1,000 bytes, and an event some 8,000.
    assert sum(steps) >= 19_000
    assert max(steps) * 1000 <= CHUNK + 12_000


class CancelledAt:
    """Awaits a coroutine in the present task, and cancels the task where it would wait for the `count`-th time.

    `waits` is how often it has waited.
    """

    def __init__(self, coroutine: Awaitable[Any], count: int) -> None:
        self._coroutine = coroutine
        self._count = count
        self.waits = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._coroutine.__await__()
        task = asyncio.current_task()
        assert task is not None
        try:
            future = next(steps)
            while True:
                self.waits += 1
                if self.waits == self._count:
                    task.cancel()
                try:
                    yield future
                except asyncio.CancelledError as cancelled:
                    future = steps.throw(cancelled)
                else:
                    future = next(steps)
        except StopIteration as stop:
            return stop.value


async def settled(proxy: FaultProxy, connections: int) -> None:
    """Return when no more than these connections are left, and no task but this one and the proxy's.

    Connecting again goes on when it is cancelled, and ends by itself.
    """

    def is_settled() -> bool:
        own = {task for task in asyncio.all_tasks() if "BinlogStream" in str(task.get_coro())}
        return proxy.open_connections <= connections and not own

    await until(is_settled, seconds=5)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_cancelling_at_any_await_leaves_nothing(server: Server, schema: str) -> None:
    """While a stream is opened, read and closed; afterwards there is no socket and no task."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
    start = end_of_log(server)
    insert(server, schema, 1, 3)
    async with asyncio.timeout(SECONDS), FaultProxy(server.port) as proxy:

        async def use() -> list[int]:
            stream = stream_through(proxy, server, tables=f"{schema}.t", start=start, events=WriteRowsEvent)
            async with stream:
                return await numbers(stream, 3)

        for count in itertools.count(1):
            run = CancelledAt(use(), count)
            try:
                rows = await asyncio.ensure_future(awaited(run))
            except asyncio.CancelledError:
                await settled(proxy, 0)
            else:
                assert rows == [1, 2, 3]
                break
        assert count > 10
        await settled(proxy, 0)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_stream_can_be_iterated_again_after_cancelling_at_any_await(
    server: Server, schema: str
) -> None:
    """Also while it reconnects: no row is lost, none comes twice, and no connection is left over."""
    async with asyncio.timeout(SECONDS), proxied(server, schema) as (proxy, stream):
        delivered: list[int] = []
        written = 0
        count, is_over = 0, False
        while not is_over:
            count += 1
            proxy.cut_now()
            insert(server, schema, written + 1, written + 3)
            written += 3
            run = CancelledAt(numbers_into(stream, delivered, written), count)
            try:
                await asyncio.ensure_future(awaited(run))
            except asyncio.CancelledError:
                await settled(proxy, CONNECTIONS)
            else:
                is_over = run.waits < count
            await numbers_into(stream, delivered, written)
            assert delivered == list(range(1, written + 1))
            assert proxy.open_connections <= CONNECTIONS
        # All of connecting again is one await: it is a task of its own.
        assert count > 4
        print("cancelled", count, "times, reconnects", stream.status.reconnects)
        assert stream.status.reconnects >= count


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_stream_can_be_iterated_again_after_cancelling_at_any_moment(
    server: Server, schema: str
) -> None:
    """A little later each time, until connecting again and reading is done before."""
    async with asyncio.timeout(SECONDS), proxied(server, schema) as (proxy, stream):
        delivered: list[int] = []
        written = early = late = 0
        while late < 3:
            proxy.cut_now()
            insert(server, schema, written + 1, written + 3)
            written += 3
            reading = asyncio.create_task(numbers_into(stream, delivered, written))
            await asyncio.sleep(early * CANCEL_STEP)
            if reading.cancel():
                early += 1
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
                await settled(proxy, CONNECTIONS)
                await numbers_into(stream, delivered, written)
            else:
                late += 1
            assert delivered == list(range(1, written + 1))
        print("cancelled", early, "times, reconnects", stream.status.reconnects)
        assert early > 10


async def awaited(run: CancelledAt) -> Any:
    return await run


async def numbers_into(stream: replica.BinlogStream, delivered: list[int], count: int) -> None:
    """Read until so many rows have come; each row is kept when it comes."""
    while len(delivered) < count:
        event = await anext(stream)
        assert isinstance(event, WriteRowsEvent)
        delivered += [int(str(row[0])) for row in event.rows]
