"""A running stream copies a table again and again under writers: each copy has what the table had at its place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

import replica
from replica.snapshot import waiting_tables
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.semi_sync_sources import acknowledged_slowly, waiting
from tests.server.support.streams import SECONDS, stream_of
from tests.server.support.xa_sessions import Steps, two_xa
from tests.support.servers import Server

ROWS, ORDERS, LONG_ORDERS = 400, 5, 100


async def copy_again(server: Server, schema: str, seed: int, orders: int) -> None:
    """Some orders come before the copy before them is complete."""
    rng = random.Random(seed)
    make_table(server, schema, "t", ROWS)
    server.query(f"CREATE TABLE {schema}.last (id INT PRIMARY KEY)")
    table, kept, voided = f"{schema}.t", Kept({"t": ("id",), "last": ("id",)}), 0
    options: dict[str, Any] = {"snapshot_chunk_rows": 50, "heartbeat": 600}
    async with (
        asyncio.timeout(SECONDS + orders),
        stream_of(server, tables=f"{schema}.*", **options) as stream,
    ):
        await stream.snapshot(table)
        with Writers(server, table, 2 * ROWS, front=ROWS, pause=0.005).run(4, seed) as writers:
            left = rng.randint(1, 60)
            async for tx in stream.transactions():
                await kept.take(tx)
                voided += tx.voided is not None
                left -= 1
                if not left:
                    if not orders:
                        break
                    orders, left = orders - 1, rng.randint(1, 60)
                    await stream.snapshot(table)
            writers.stop()
        server.query(f"INSERT INTO {schema}.last VALUES (1)")
        is_last = False
        async for tx in stream.transactions():
            changes = await kept.take(tx)
            is_last = is_last or any(change.table.name == "last" for change in changes)
            if is_last and is_complete(tx.checkpoint.snapshot or ""):
                break
    print(f"{server.name}: {voided} copies began anew, {kept.reads} rows were read")
    assert voided
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []


def is_complete(state: str) -> bool:
    """Whether no copy goes on. A compressed state has keys that are read again."""
    found = json.loads(state if state[:1] == "{" else '{"waiting": 1}')
    return not (found["waiting"] or found["begun"])


async def test_a_table_is_copied_again_under_writers(seed: int, server: Server, schema: str) -> None:
    await copy_again(server, schema, seed, ORDERS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mysql:9.7", "mariadb:11.8"])
async def test_a_table_is_copied_again_under_writers_whose_commits_wait(
    seed: int, name: str, extra_server: Callable[..., Server]
) -> None:
    """Streams have each transaction 20 ms before tables show it; MySQL is without GTIDs."""
    is_mysql = name == "mysql:9.7"
    server = extra_server(name, *(("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF") if is_mysql else ()))
    with server.fresh_schema() as schema, waiting(server):
        server.query(f"SET GLOBAL rpl_semi_sync_{server.semi_sync_word}_wait_point = 'AFTER_SYNC'")
        with acknowledged_slowly(server):
            await copy_again(server, schema, seed, LONG_ORDERS)


def overlap(free: list[Steps], insert: str, is_over: threading.Event) -> None:
    """XA transactions without end, of which one is always prepared."""
    prepared = [free.pop()]
    prepared[0]("START", insert, "END", "PREPARE")
    while not is_over.wait(0.03):
        free[0]("START", insert, "END", "PREPARE")
        prepared.append(free.pop(0))
        if not free:
            prepared[0]("COMMIT")
            free.append(prepared.pop(0))
    for xa in prepared:
        xa("COMMIT")


async def test_a_copy_that_xa_transactions_keep_from_ending_is_told(
    mysql97: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A table without a key was read again at each commit, without end and without a word."""

    def told() -> list[logging.LogRecord]:
        return [one for one in caplog.records if getattr(one, "event", "") == "copy-restarts"]

    with (
        mysql97.fresh_schema() as schema,
        two_xa(mysql97, schema) as one,
        two_xa(mysql97, f"{schema}_") as two,
    ):
        mysql97.query(f"CREATE TABLE {schema}.nokey (a INT)")
        is_over = threading.Event()
        thread = threading.Thread(
            target=overlap, args=([*one, *two], f"INSERT INTO {schema}.nokey VALUES (7)", is_over)
        )
        thread.start()
        try:
            async with (
                asyncio.timeout(SECONDS),
                stream_of(mysql97, start="snapshot", tables=f"{schema}.*") as stream,
            ):
                async for _ in stream.transactions():
                    if told():
                        break
        finally:
            is_over.set()
            await asyncio.to_thread(thread.join)
    [record] = told()
    assert record.__dict__["table"] == f"{schema}.nokey"
    assert "XA RECOVER" in record.getMessage()


async def rows_until_complete(stream: replica.BinlogStream) -> list[Any]:
    rows = list[Any]()
    async for tx in stream.transactions():
        rows = [] if tx.voided is not None else rows + [change.after async for change in tx]
        if is_complete(tx.checkpoint.snapshot or ""):
            break
    return rows


async def test_a_copy_that_waits_for_an_xa_transaction_is_told(
    mysql97: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table without a key waited without a word for a transaction that was prepared and forgotten."""
    monkeypatch.setattr(waiting_tables, "PATIENCE", 0.05)

    def told() -> list[logging.LogRecord]:
        return [one for one in caplog.records if getattr(one, "event", "") == "copy-awaits-xa"]

    with mysql97.fresh_schema() as schema, two_xa(mysql97, schema) as (forgotten, _):
        mysql97.query(f"CREATE TABLE {schema}.nokey (a INT)")
        forgotten("START", f"INSERT INTO {schema}.nokey VALUES (7)", "END", "PREPARE")
        try:
            async with (
                asyncio.timeout(SECONDS),
                stream_of(mysql97, start="snapshot", tables=f"{schema}.*") as stream,
            ):
                reading = asyncio.create_task(rows_until_complete(stream))
                while not told():  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                assert not reading.done()
                forgotten("COMMIT")
                assert await reading == [{"a": 7}]
        finally:
            with contextlib.suppress(pymysql.err.Error):
                forgotten("ROLLBACK")
    [record] = told()
    assert record.__dict__["table"] == f"{schema}.nokey"
    assert f"{schema}first".encode().hex() in record.__dict__["xids"]
