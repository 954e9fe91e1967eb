"""Rows that a foreign key has deleted or changed before a copy began, which older servers do not log."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from replica import Delete
from tests.server.support.streams import SECONDS, busy, stream_of
from tests.support.servers import Server


@pytest.fixture
def cascades(server: Server, schema: str) -> str:
    """Children of a deleted parent: one table has lost its row, the other one has another value."""
    server.query(f"CREATE TABLE {schema}.parent (id INT PRIMARY KEY)")
    for name, rule in (("gone", "CASCADE"), ("emptied", "SET NULL")):
        server.query(
            f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, parent INT, "
            f"FOREIGN KEY (parent) REFERENCES {schema}.parent (id) ON DELETE {rule})"
        )
    server.query(f"INSERT INTO {schema}.parent VALUES (1), (2)")
    for name in ("gone", "emptied"):
        server.query(f"INSERT INTO {schema}.{name} VALUES (10, 1), (20, 2)")
    server.query(f"DELETE FROM {schema}.parent WHERE id = 1")
    return schema


async def copied(server: Server, schema: str) -> tuple[dict[str, dict[object, Any]], list[str]]:
    """The tables as a consumer keeps them, and all that it was told."""
    kept: dict[str, dict[object, Any]] = {"parent": {}, "gone": {}, "emptied": {}}
    ops: list[str] = []
    options: dict[str, Any] = {"start": "snapshot", "stop": "now", "tables": f"{schema}.*"}
    async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
        async for tx in stream.transactions():
            async for change in tx:
                ops.append(change.op)
                rows = kept[change.table.name]
                if change.before is not None:
                    del rows[change.before["id"]]
                if not isinstance(change, Delete):
                    rows[change.after["id"]] = tuple(change.after.values())
    return kept, ops


async def test_rows_that_were_gone_before_the_copy_do_not_come_back(server: Server, cascades: str) -> None:
    """Elsewhere than on MySQL with GTIDs, the changes of the current log file came first, and they have no DELETE."""
    kept, ops = await copied(server, cascades)
    for name, rows in kept.items():
        assert sorted(rows.values()) == sorted(server.query(f"SELECT * FROM {cascades}.{name}")), name
    assert ops == ["read"] * 4


@contextlib.contextmanager
def replica_of_the_same_user(server: Server) -> Iterator[None]:
    """A stream that follows the log in a thread."""
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()
    following = threading.Event()

    async def follow() -> None:
        async with stream_of(server) as stream:
            following.set()
            reading = asyncio.ensure_future(anext(stream))
            await stop.wait()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(follow(),))
    thread.start()
    assert following.wait(SECONDS)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:10.11", "mariadb:11.8"], indirect=True)
async def test_rows_of_a_prepared_transaction_come(server: Server, cascades: str) -> None:
    """They are in MariaDB's log and in no table, so the log is read from before them."""
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in ("START 'x'", None, "END 'x'", "PREPARE 'x'"):
            cursor.execute(f"XA {statement}" if statement else f"INSERT INTO {cascades}.parent VALUES (3)")
        _, ops = await copied(server, cascades)
        assert "insert" in ops
        cursor.execute("XA COMMIT 'x'")
    decided, ops = await copied(server, cascades)
    assert set(decided["parent"]) == {2, 3}
    assert ops == ["read"] * 5


async def test_another_stream_of_the_same_user_does_not_count(server: Server, cascades: str) -> None:
    with replica_of_the_same_user(server):
        _, ops = await copied(server, cascades)
    assert ops == ["read"] * 4


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:10.11", "mariadb:11.8"], indirect=True)
async def test_beside_a_statement_the_changes_of_the_log_file_come_first(server: Server, schema: str) -> None:
    server.query("FLUSH BINARY LOGS")
    server.query(f"CREATE TABLE {schema}.parent (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.parent VALUES (1)")
    with busy(server):
        kept, ops = await copied(server, schema)
    assert (kept["parent"], ops) == ({1: (1,)}, ["insert", "read"])
