"""Several hosts in one DSN with real servers: dead ports, servers that die, replicas that lag."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql.cursors
import pytest

import replica
from protocol.errors import ConnectionLostError, TransactionsUnavailableError
from replica import BinlogStream, RowsEvent, SourceChangedError, XidEvent
from tests.faults import container, topology
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import GTID, start_of, stream_through
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log, executed, take_rows

ARGUMENTS = {"mysql": (), "mariadb": ("--log-slave-updates",)}
QUICK = replica.ReconnectPolicy(initial=0.05, maximum=0.5)


def dead_port() -> int:
    """A port of this machine where nobody listens, and nobody will soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def dsn_of(*servers: Server, extra: str = "") -> str:
    hosts = ",".join(f"{server.host}:{server.port}" for server in servers)
    user = f"{servers[0].replica_user}:{servers[0].replica_password}"
    return f"mysql://{user}@{extra}{hosts}/"


def stream_of(*servers: Server, extra: str = "", **options: Any) -> BinlogStream:
    given: dict[str, Any] = {
        "heartbeat": 0.5,
        "connect_timeout": 5.0,
        "reconnect": QUICK,
        "tls": "disabled",
    } | options
    return replica.connect(dsn_of(*servers, extra=extra), **given)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def until_waiting(stream: BinlogStream, text: str) -> None:
    """Return when the stream has failed to connect, and this is in the reason."""
    await until(lambda: stream.status.state == "waiting" and text in str(stream.status.last_error))


async def finish(stream: BinlogStream) -> None:
    """To the end of the transaction, which is done then."""
    async with asyncio.timeout(SECONDS):
        while not isinstance(await anext(stream), XidEvent):
            pass
    await stream.acknowledge()


def insert(server: Server, *numbers: int) -> None:
    server.query(f"INSERT INTO moved.t VALUES {', '.join(f'({number})' for number in numbers)}")


async def test_a_dead_port_and_a_live_one(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    dead = f"127.0.0.1:{dead_port()},[::1]:{dead_port()},"
    # By position: 5.6 has no metadata, so that column names are looked up over a second connection.
    async with stream_of(server, extra=dead, tables=f"{schema}.*") as stream:
        server.query(f"INSERT INTO {schema}.t VALUES (1)")
        async with asyncio.timeout(SECONDS):
            while not isinstance(event := await anext(stream), RowsEvent):
                pass
        assert event.table.columns[0].name == "a"
        assert stream.status.address == f"{server.host}:{server.port}"
    with pytest.raises(ConnectionLostError, match=r"none of the hosts can be used: 127\.0\.0\.1:.*::1"):
        async with replica.connect(f"mysql://repl@{dead.rstrip(',')}"):
            pass


async def followed_source(name: str, supervised_server: Callable[..., Server]) -> tuple[Server, Server, Any]:
    """A source, a replica that follows it, and the place behind which the source gets a table ``moved.t``."""
    source, other = (supervised_server(name, *ARGUMENTS[name.split(":")[0]]) for _ in range(2))
    await asyncio.to_thread(topology.follow, other, source)
    start = start_of(source, GTID)
    source.query("CREATE DATABASE moved")
    source.query("CREATE TABLE moved.t (a INT PRIMARY KEY)")
    return source, other, start


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_restart_at_another_host(
    name: str, supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    """The store beside the checkpoint has the schema history of the server before: an AssertionError."""
    source, other, start = await followed_source(name, supervised_server)
    rows = []
    for number, server in enumerate((source, other, source)):
        store = replica.FileCheckpointStore(tmp_path / "checkpoint")
        insert(source, number)
        await asyncio.to_thread(topology.catch_up, other, source)
        async with stream_of(server, start=start, tables="moved.*", checkpoints=store) as stream:
            rows += await take_rows(stream, 1)
            await finish(stream)
    assert rows == [(0,), (1,), (2,)]


@pytest.mark.parametrize("begin", ["by GTID", "earliest"])
@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_stream_moves_to_the_next_host_and_back(
    name: str, begin: str, supervised_server: Callable[..., Server]
) -> None:
    """Its source dies, the replica lags; then the source comes back while the replica dies.

    What begins by position knows the GTIDs from the file's beginning on.
    """
    source, other, start = await followed_source(name, supervised_server)
    word = "REPLICA" if source.family == "mysql" else "SLAVE"
    place = start if begin == "by GTID" else begin
    async with stream_of(source, other, start=place, tables="moved.*") as stream:
        insert(source, 1, 2)
        assert await take_rows(stream, 2) == [(1,), (2,)]
        assert stream.status.server_id == source.server_id
        await asyncio.to_thread(topology.catch_up, other, source)
        # The replica gets what comes now, and does not execute it.
        other.query(f"STOP {word} SQL_THREAD")
        insert(source, 3)
        assert await take_rows(stream, 1) == [(3,)]
        await finish(stream)
        await asyncio.to_thread(received, other, source)
        await asyncio.to_thread(container.kill, source, stays_down=True)
        task = asyncio.create_task(take_rows(stream, 2))
        await until_waiting(stream, "transactions")
        assert str(source.port) in str(stream.status.last_error)
        other.query(f"START {word} SQL_THREAD")
        # Now it has them, and is asked next.
        await until(lambda: stream.status.state in ("streaming", "seeking"))
        assert stream.status.address == f"{other.host}:{other.port}"
        await asyncio.to_thread(topology.promote, other)
        insert(other, 4, 5)
        assert await task == [(4,), (5,)]
        assert stream.status.server_id == other.server_id
        # Back to the first one, which must have caught up by then.
        await asyncio.to_thread(container.start, source)
        await asyncio.to_thread(topology.switch, source, other)
        await asyncio.to_thread(topology.catch_up, source, other)
        await asyncio.to_thread(container.kill, other, stays_down=True)
        await asyncio.to_thread(topology.promote, source)
        insert(source, 6)
        assert await take_rows(stream, 1) == [(6,)]
        assert stream.status.server_id == source.server_id
        assert stream.status.restarts == 0
        await finish(stream)
        checkpoint = stream.checkpoint
    assert checkpoint is not None
    assert type(start)(checkpoint.gtid_set) == type(start)(executed(source))
    # A checkpoint goes on at whichever has it.
    async with stream_of(other, source, start=checkpoint, tables="moved.*") as stream:
        insert(source, 7)
        assert await take_rows(stream, 1) == [(7,)]


def received(follower: Server, source: Server) -> None:
    """Return when a replica's relay log has what its source's log has."""
    end = end_of_log(source)
    names = ("Source_Log_File", "Read_Source_Log_Pos", "Master_Log_File", "Read_Master_Log_Pos")
    word = "REPLICA" if source.family == "mysql" else "SLAVE"
    for _ in range(500):
        with (
            follower.connect(cursorclass=pymysql.cursors.DictCursor) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(f"SHOW {word} STATUS")
            row: Any = cursor.fetchone()
        file, position = (row[name] for name in names if name in row)
        if (file, int(position)) == (end.file, end.position):
            return
        time.sleep(0.05)
    raise AssertionError(f"{follower} does not receive {end}: {row}")


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_replica_that_never_had_a_transaction(
    name: str, supervised_server: Callable[..., Server]
) -> None:
    """Nobody goes on there. The source itself may come back; when it cannot be waited for, the error says so."""
    source, other, start = await followed_source(name, supervised_server)
    await asyncio.to_thread(topology.catch_up, other, source)
    await asyncio.to_thread(topology.promote, other)
    insert(source, 1)
    async with stream_of(source, other, start=start, tables="moved.*") as stream:
        assert await take_rows(stream, 1) == [(1,)]
        await finish(stream)
        checkpoint = stream.checkpoint
        await asyncio.to_thread(container.kill, source, stays_down=True)
        task = asyncio.create_task(take_rows(stream, 1))
        await until_waiting(stream, "transactions")
        await asyncio.to_thread(container.start, source)
        insert(source, 2)
        assert await task == [(2,)]
        assert stream.status.server_id == source.server_id
    with pytest.raises(TransactionsUnavailableError, match="none of the hosts can be used"):
        async with stream_of(other, other, start=checkpoint):
            pass


async def test_by_position_a_stream_waits_for_its_own_server(
    supervised_server: Callable[..., Server],
) -> None:
    arguments = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    source, other = (supervised_server("mysql:9.7", *arguments) for _ in range(2))
    for server in (source, other):
        server.query("CREATE DATABASE moved")
        server.query("CREATE TABLE moved.t (a INT PRIMARY KEY)")
    async with stream_of(source, other, tables="moved.*") as stream:
        insert(source, 1)
        assert await take_rows(stream, 1) == [(1,)]
        await finish(stream)
        checkpoint = stream.checkpoint
        await asyncio.to_thread(container.kill, source, stays_down=True)
        task = asyncio.create_task(take_rows(stream, 1))
        await until_waiting(stream, "a position is of no use on another server")
        insert(other, 99)
        await asyncio.to_thread(container.start, source)
        insert(source, 2)
        assert await task == [(2,)]
    with pytest.raises(SourceChangedError, match="none of the hosts can be used"):
        async with stream_of(other, other, start=checkpoint):
            pass


async def test_an_address_moves_to_a_replica_that_lags_behind(
    supervised_server: Callable[..., Server],
) -> None:
    """The replica has received what it lacks: the stream ended, and told to copy the data again."""
    source, other, start = await followed_source("mysql:9.7", supervised_server)
    async with (
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=start, tables="moved.*") as stream,
    ):
        await asyncio.to_thread(topology.catch_up, other, source)
        other.query("STOP REPLICA SQL_THREAD")
        insert(source, 1)
        assert await take_rows(stream, 1) == [(1,)]
        await asyncio.to_thread(received, other, source)
        proxy.retarget(other.port)
        proxy.cut_now()
        task = asyncio.create_task(take_rows(stream, 1))
        await until(lambda: "is a replica that lags behind" in str(stream.status.last_error))
        other.query("START REPLICA SQL_THREAD")
        insert(source, 2)
        assert await task == [(2,)]
        assert stream.status.server_id == other.server_id


@pytest.mark.parametrize(
    ("name", "argument"),
    [("mysql:9.7", "--log-replica-updates=OFF"), ("mariadb:11.8", "--log-slave-updates=OFF")],
)
async def test_a_replica_that_does_not_log_what_it_replicates(
    name: str, argument: str, supervised_server: Callable[..., Server]
) -> None:
    """A stream waited there without an error while rows came by replication, and then gave those behind them."""
    source = supervised_server(name, *ARGUMENTS[name.split(":")[0]])
    other = supervised_server(name, argument)
    await asyncio.to_thread(topology.follow, other, source)
    source.query("CREATE DATABASE moved")
    source.query("CREATE TABLE moved.t (a INT PRIMARY KEY)")
    start = start_of(source, GTID)
    async with stream_of(source, other, start=start, tables="moved.*") as stream:
        insert(source, 1)
        assert await take_rows(stream, 1) == [(1,)]
        await finish(stream)
        await asyncio.to_thread(topology.catch_up, other, source)
        await asyncio.to_thread(container.kill, source, stays_down=True)
        task = asyncio.create_task(take_rows(stream, 1))
        await until_waiting(stream, "its log lacks what it replicates")
        assert not task.done()
        # Nothing more comes to it by replication: its log has all from here on.
        await asyncio.to_thread(topology.promote, other)
        insert(other, 2)
        assert await task == [(2,)]
        assert stream.status.server_id == other.server_id
