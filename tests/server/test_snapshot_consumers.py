"""Copies that wait: for a consumer that takes its time, and for what the log does not tell of a row."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

import replica
import replica.sync
from replica import SnapshotCompleteEvent, SnapshotRestartedEvent, SnapshotRowsEvent
from tests.server.support.streams import SECONDS, busy, stream_of
from tests.support.servers import Server

ROWS = 500
# The default is 30 seconds: a copy of some rows that waits for a heartbeat would be found by the limit.
QUIET: dict[str, Any] = {"start": "snapshot", "heartbeat": 600, "snapshot_chunk_rows": 100}


@pytest.fixture
def table(server: Server, schema: str) -> str:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT)")
    server.query(f"INSERT INTO {schema}.t VALUES {','.join(f'({n}, {n})' for n in range(ROWS))}")
    server.query("FLUSH BINARY LOGS")
    return f"{schema}.t"


@pytest.mark.parametrize("connections", [1, 4])
async def test_a_slow_consumer_gets_each_row_once(server: Server, table: str, connections: int) -> None:
    """While it has the rows of a chunk, the next ones are read: those behind it."""
    keys: list[object] = []
    options = {**QUIET, "tables": table, "snapshot_connections": connections}
    async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
        async for event in stream:
            await asyncio.sleep(0.05)
            if isinstance(event, SnapshotRowsEvent):
                keys += [row[0] for row in event.rows]
            if isinstance(event, SnapshotCompleteEvent):
                assert event.rows == ROWS
                break
    assert keys == list(range(ROWS))


def test_a_consumer_without_asyncio_gets_each_row_once(server: Server, table: str) -> None:
    keys: list[object] = []
    with replica.sync.connect(server.dsn(), tables=table, **QUIET) as stream:
        for event in stream:
            if isinstance(event, SnapshotRowsEvent):
                keys += [row[0] for row in event.rows]
            if isinstance(event, SnapshotCompleteEvent):
                # What comes next is the statement, not the rows again.
                server.query(f"DELETE FROM {table} WHERE id = 7")
            if isinstance(event, replica.DeleteRowsEvent):
                break
    assert keys == list(range(ROWS))


async def test_a_table_is_ordered_while_the_stream_waits_for_an_idle_source(
    server: Server, table: str
) -> None:
    """The order was found at the next heartbeat."""
    rows = 0
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, tables=table, heartbeat=600, start="now") as stream,
    ):
        asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(stream.snapshot(table)))
        async for event in stream:
            if isinstance(event, SnapshotCompleteEvent):
                break
            rows += len(event.rows) if isinstance(event, SnapshotRowsEvent) else 0
        # Again, with the last event that the source has: the consumer hears first that the rows are void.
        server.query(f"DELETE FROM {table} LIMIT 1")
        async for event in stream:
            if isinstance(event, replica.XidEvent):
                await stream.snapshot(table)
            if isinstance(event, SnapshotRestartedEvent):
                break
    assert rows == ROWS


def test_another_thread_orders_a_table_without_asyncio(server: Server, table: str) -> None:
    rows = 0
    with replica.sync.connect(server.dsn(), tables=table, heartbeat=600) as stream:
        threading.Timer(1, stream.snapshot, (table,)).start()
        for event in stream:
            if isinstance(event, SnapshotCompleteEvent):
                break
            rows += len(event.rows) if isinstance(event, SnapshotRowsEvent) else 0
        with pytest.raises(replica.ConfigurationError, match=r"other\.t is left out by tables="):
            stream.snapshot("other.t")
    assert rows == ROWS


@pytest.mark.parametrize("name", ["mariadb:11.8", "mysql:5.6"])
async def test_rows_that_the_log_does_not_tell_wait_for_the_next_file(
    extra_server: Callable[..., Server], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted and made again in one transaction, without a column: no low mark says that this is visible."""
    server = extra_server(name, "--binlog-row-image=MINIMAL")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (id INT PRIMARY KEY, n INT, left_out INT DEFAULT 7)")
    server.query("INSERT INTO d.t VALUES (1, 1, 1), (2, 2, 2)")
    with contextlib.closing(server.connect(autocommit=False)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM d.t WHERE id = 1")
            cursor.execute("INSERT INTO d.t (id, n) VALUES (1, 3)")
        connection.commit()
    read: dict[object, object] = {}
    chunks = 0
    stream = stream_of(server, tables="d.t", **QUIET)
    with busy(server):
        await stream.__aenter__()
    async with asyncio.timeout(SECONDS), contextlib.aclosing(stream):
        async for event in stream:
            if isinstance(event, SnapshotCompleteEvent):
                break
            if not isinstance(event, SnapshotRowsEvent):
                continue
            chunks += 1
            read |= {row[0]: row for row in event.rows}
            if chunks == 1:
                assert read == {2: (2, 2, 2)}
                asyncio.get_running_loop().call_later(1, server.query, "FLUSH BINARY LOGS")
    assert (read, chunks) == ({1: (1, 3, 7), 2: (2, 2, 2)}, 2)
    assert [getattr(record, "rows", None) for record in caplog.records if "FLUSH" in record.getMessage()] == [
        1
    ]
