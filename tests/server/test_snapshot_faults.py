"""Faults in the middle of a copy: the source restarts, another server takes over, the log is purged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import replica
from replica import ConnectionLostError, SnapshotCompleteEvent, SnapshotRowsEvent
from replica.source.session import Session
from tests.faults import container, topology
from tests.faults.proxy import FaultProxy
from tests.faults.waiting import until
from tests.server.support.copied_tables import Kept, make_table
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import SECONDS, begin_log, end_of_log, stream_of
from tests.support.servers import Server

ROWS = 1500
CHUNK = 100
Start = Callable[..., Server]


def change(server: Server, table: str, value: int) -> None:
    """Changes in the part that was copied, in the part that was not, and of a key that moves between them."""
    server.query(f"UPDATE {table} SET a = {value} WHERE id % 10 = 0")
    server.query(f"DELETE FROM {table} WHERE id % 14 = 0")
    server.query(f"INSERT INTO {table} (id, a) VALUES ({2 * value + 1}, {value})")
    server.query(
        f"UPDATE {table} SET id = {4 * value + 1} WHERE id = (SELECT * FROM (SELECT MAX(id) FROM {table}) x)"
    )


async def copied_through(
    stream: replica.BinlogStream, kept: Kept, fault: Callable[[], Awaitable[None]]
) -> None:
    """Consume until the copy is complete; the fault comes after the fifth chunk."""
    chunks = 0
    async with asyncio.timeout(3 * SECONDS), stream:
        async for event in stream:
            if isinstance(event, replica.RowsEvent):
                for one in event.changes():
                    kept.apply(one)
            if isinstance(event, SnapshotRowsEvent):
                chunks += 1
                if chunks == 5:
                    await fault()
            if isinstance(event, SnapshotCompleteEvent):
                assert chunks > 5
                await stream.acknowledge()
                return


async def follow_to_end(server: Server, schema: str, stream: replica.BinlogStream, kept: Kept) -> None:
    """Follow the log to its end from where the copy was complete, and compare."""
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, start=stream.checkpoint, stop="now", tables=f"{schema}.t") as rest,
    ):
        async for event in rest:
            if isinstance(event, replica.RowsEvent):
                for one in event.changes():
                    kept.apply(one)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []


@pytest.mark.parametrize(
    "name",
    ["mysql:9.7", *(pytest.param(name, marks=pytest.mark.long) for name in ("mysql:5.6", "mariadb:11.8"))],
)
async def test_the_source_restarts(supervised_server: Start, name: str) -> None:
    server = supervised_server(name)
    with server.fresh_schema() as schema:
        make_table(server, schema, "t", ROWS)
        server.query("FLUSH BINARY LOGS")
        kept = Kept({"t": ("id",)}, defaults={"b": "none"})

        async def restart() -> None:
            change(server, f"{schema}.t", 101)
            await asyncio.to_thread(container.restart, server)
            change(server, f"{schema}.t", 103)

        stream = stream_of(server, start="snapshot", tables=f"{schema}.t", snapshot_chunk_rows=CHUNK)
        await copied_through(stream, kept, restart)
        change(server, f"{schema}.t", 107)
        await follow_to_end(server, schema, stream, kept)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "arguments"), [("mysql:9.7", ()), ("mariadb:11.8", ("--log-slave-updates",))]
)
async def test_another_server_takes_over(
    supervised_server: Start, name: str, arguments: tuple[str, ...]
) -> None:
    source, promoted = (supervised_server(name, *arguments) for _ in range(2))
    topology.follow(promoted, source)
    source.query("CREATE DATABASE copied")
    make_table(source, "copied", "t", ROWS)
    source.query("FLUSH BINARY LOGS")
    kept = Kept({"t": ("id",)}, defaults={"b": "none"})
    async with FaultProxy(source.port) as proxy:

        async def fail_over() -> None:
            change(source, "copied.t", 101)
            topology.catch_up(promoted, source)
            await asyncio.to_thread(container.kill, source, stays_down=True)
            topology.promote(promoted)
            change(promoted, "copied.t", 103)
            proxy.retarget(promoted.port)
            proxy.cut_now()

        options: dict[str, Any] = {"tables": "copied.t", "snapshot_chunk_rows": CHUNK}
        stream = stream_through(proxy, source, start="snapshot", **options)
        await copied_through(stream, kept, fail_over)
    change(promoted, "copied.t", 107)
    await follow_to_end(promoted, "copied", stream, kept)


async def test_the_log_is_purged(server: Server, schema: str) -> None:
    """The consumer comes back when the log that it needs is gone: the error says what is missing, and what to do."""
    begin_log(server)
    make_table(server, schema, "t", ROWS)
    server.query("FLUSH BINARY LOGS")
    options: dict[str, Any] = {"tables": f"{schema}.t", "snapshot_chunk_rows": CHUNK}
    async with asyncio.timeout(SECONDS), stream_of(server, start="snapshot", **options) as stream:
        async for event in stream:
            if isinstance(event, SnapshotRowsEvent):
                break
        await stream.acknowledge()
        checkpoint = stream.checkpoint
    assert checkpoint is not None
    change(server, f"{schema}.t", 101)
    server.query("FLUSH BINARY LOGS")

    def is_purged() -> bool:
        # A source keeps files that a dump reads, and it may not know yet that ours has ended.
        container.kill_dumps(server)
        server.query(f"PURGE BINARY LOGS TO '{end_of_log(server).file}'")
        return len(server.query("SHOW BINARY LOGS")) == 1

    await until(is_purged)
    with pytest.raises(replica.TransactionsUnavailableError) as caught:
        async with stream_of(server, start=checkpoint, **options) as stream:
            await anext(stream)
    print(caught.value)
    assert "copy the" in str(caught.value)


async def read_all(stream: replica.BinlogStream) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
@pytest.mark.parametrize("policy", [False, replica.ReconnectPolicy(attempts=3, maximum=0.01)])
async def test_the_policy_holds_for_the_connections_that_read(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch, policy: bool | replica.ReconnectPolicy
) -> None:
    """The log still comes, and nothing else would tell that the copy does not go on."""
    make_table(server, schema, "t", ROWS)
    opened = 0

    async def refuse(cls: type[Session], *given: object) -> Session:
        nonlocal opened
        opened += 1
        raise ConnectionLostError("no connection for the copy")

    async with stream_of(server, start="snapshot", tables=f"{schema}.t", reconnect=policy) as stream:
        # The dump has its connection.
        monkeypatch.setattr("replica.snapshot.copier.Session.open", classmethod(refuse))
        with pytest.raises(ConnectionLostError, match="no connection for the copy"):
            await asyncio.wait_for(read_all(stream), SECONDS)
    assert opened >= (1 if policy is False else 4)


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_a_hook_that_raises_while_the_stream_is_opened_leaves_no_reader(
    server: Server, schema: str
) -> None:
    """The tasks that read chunks, and their connections, stayed until the program ended."""
    make_table(server, schema, "t", ROWS)

    def refuse(status: replica.StreamStatus) -> None:
        if status.state in ("seeking", "streaming"):
            raise LookupError("of the hook")

    before = asyncio.all_tasks()
    with pytest.raises(LookupError, match="of the hook"):
        async with stream_of(server, start="snapshot", tables=f"{schema}.t", on_status=refuse):
            pass
    await until(lambda: asyncio.all_tasks() == before)
