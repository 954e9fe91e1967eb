"""Transactions of real sources as they come: huge ones, leaving and going on, lost connections."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from replica import BinlogStream
from replica.transactions.transaction import Transaction
from tests.support.servers import Server

from .support.other_process import result_of
from .support.streams import SECONDS, end_of_log, executed, stream_of
from .support.transaction_streams import compressing, insert, on_mysql97, on_three, run, short, stream_from

# Huge ones

NUMBERED = "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(200))"


def many_rows(server: Server, schema: str, doublings: int) -> int:
    """One transaction of so many rows of 200 bytes."""
    statements = ["INSERT INTO t (text) VALUES (REPEAT('x', 200))"]
    statements += ["INSERT INTO t (text) SELECT text FROM t"] * doublings
    run(server, schema, "BEGIN", *statements, "COMMIT")
    return 1 << doublings


@on_three
@pytest.mark.parametrize("is_compressed", [False, True])
async def test_a_huge_transaction_in_little_memory(server: Server, schema: str, is_compressed: bool) -> None:
    if is_compressed and server.name == "mysql:5.6":
        return
    run(server, schema, NUMBERED)
    seen = []
    with compressing(server) if is_compressed else contextlib.nullcontext():
        for doublings in (8, 17):
            start = end_of_log(server)
            count = many_rows(server, schema, doublings)
            seen.append(await result_of("transaction_consumer", server, schema, start))
            [(total,)] = server.query(f"SELECT SUM(id) FROM {schema}.t")
            assert (seen[-1]["rows"], seen[-1]["total"], seen[-1]["outcome"]) == (count, total, "commit")
            run(server, schema, "TRUNCATE TABLE t")
    # The second one has 25 MB of rows.
    assert seen[1]["peak_kb"] - seen[0]["peak_kb"] < 16 << 10


# Leaving, going on, losing the connection


@on_three
async def test_leaving_and_going_on(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.*") as stream:
        transactions = stream.transactions()
        for first in (10, 20, 30, 40):
            run(server, schema, f"INSERT INTO t VALUES ({first}), ({first + 1}), ({first + 2})")
        seen = []
        async for tx in transactions:
            async for change in tx:
                seen.append(short(change))
                break
            seen += [short(change) async for change in tx]
            break
        # The next is left after one row, the third is not read.
        async for tx in stream.transactions():
            seen.append(short(await anext(tx)))
            break
        await anext(transactions)
        tx = await anext(transactions)
        kinds = [type(event).__name__ async for event in tx.events()]
        assert kinds[-2:] == ["WriteRowsEvent", "XidEvent"]
    assert seen == insert(10, 11, 12, 20)


@on_three
async def test_closing_within_a_transaction(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.*") as stream:
        run(server, schema, "INSERT INTO t VALUES (1), (2)")
        seen = 0
        async for tx in stream.transactions():
            seen += 1
            async for _ in tx:
                await stream.aclose()
            assert tx.outcome is None
            with pytest.raises(RuntimeError, match="at its end"):
                _ = tx.checkpoint
    assert seen == 1


def kill_dump(server: Server, stream: BinlogStream) -> None:
    """Have the server end the connection of the log; it may not have begun to send, nor ended the ones before."""
    assert stream._deliveries.current is not None
    server.query(f"KILL {stream._deliveries.current.dump.session.connection_id}")


@on_three
@pytest.mark.parametrize("by_gtid", [True, False])
async def test_a_connection_lost_within_a_transaction(server: Server, schema: str, by_gtid: bool) -> None:
    run(server, schema, NUMBERED)
    start = executed(server) if by_gtid else end_of_log(server)
    # More than the buffers on the way can hold.
    count = many_rows(server, schema, 18)
    run(server, schema, "INSERT INTO t (text) VALUES ('last')")
    seen = []
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start, tls="disabled") as stream:
        transactions = stream.transactions()
        tx = await anext(transactions)
        async for change in tx:
            seen.append(change.after["id"] if change.after else None)
            if len(seen) == 20_000:
                kill_dump(server, stream)
        assert (tx.outcome, tx.is_restart, stream.status.reconnects) == ("commit", False, 1)
        last = await (await anext(transactions)).collect()
    ids = [number for (number,) in server.query(f"SELECT id FROM {schema}.t ORDER BY id")]
    assert len(seen) == count
    assert seen + [change.after["id"] for change in last if change.after] == ids


async def collected(tx: Transaction) -> int:
    return len(await tx.collect())


@on_three
async def test_a_connection_lost_while_collecting(server: Server, schema: str) -> None:
    run(server, schema, NUMBERED)
    start = end_of_log(server)
    count = many_rows(server, schema, 18)
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start, tls="disabled") as stream:
        tx = await anext(stream.transactions())
        task = asyncio.create_task(collected(tx))
        await asyncio.sleep(0)
        kill_dump(server, stream)
        assert await task == count
        assert stream.status.reconnects == 1


@on_mysql97
async def test_queries_of_a_source_that_logs_them(server: Server, schema: str) -> None:
    """They are events of the transaction, and no statements of it."""
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    run(server, schema, "SET SESSION binlog_rows_query_log_events = ON", "INSERT INTO t VALUES (1)")
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        seen = [
            ([type(event).__name__ async for event in tx.events()], tx.ddl)
            async for tx in stream.transactions()
        ]
    kinds = ["GtidEvent", "QueryEvent", "RowsQueryEvent", "TableMapEvent", "WriteRowsEvent", "XidEvent"]
    assert seen == [(kinds, ())]
