"""Tables are copied under writers: what the consumer keeps equals SELECT at the end, and each before image before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import replica
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, stream_of
from tests.support.servers import Server

ROWS = 6000
SEED = 1


async def consume(stream: replica.BinlogStream, kept: Kept, writers: Writers) -> None:
    """Apply everything until the copy is complete. The writers follow the place where it stands."""
    async with asyncio.timeout(SECONDS):
        async for tx in stream.transactions():
            for change in await kept.take(tx):
                if change.op == "read":
                    writers.front = change.after["id"]
            status = stream.status.snapshot
            if status is not None and status.complete:
                break


async def follow_to_end(server: Server, checkpoint: replica.Checkpoint, kept: Kept, **options: Any) -> None:
    async with asyncio.timeout(SECONDS), stream_of(server, start=checkpoint, stop="now", **options) as stream:
        async for tx in stream.transactions():
            await kept.take(tx)


async def test_copy_under_writers(server: Server, schema: str) -> None:
    await copy_under_writers(server, schema)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_copy_with_locked_rows(server: Server, schema: str) -> None:
    await copy_under_writers(server, schema, snapshot_locking="rows")


async def copy_under_writers(server: Server, schema: str, **options: Any) -> None:
    make_table(server, schema, "t", ROWS)
    kept = Kept({"t": ("id",)})
    options = {"tables": f"{schema}.t", **options}
    with Writers(server, f"{schema}.t", 2 * ROWS).run(4, SEED) as writers:
        async with stream_of(server, start="snapshot", snapshot_chunk_rows=200, **options) as stream:
            await consume(stream, kept, writers)
            status = stream.status.snapshot
            await stream.acknowledge()
            checkpoint = stream.checkpoint
    assert checkpoint is not None
    assert status is not None
    await follow_to_end(server, checkpoint, kept, **options)
    print(status, writers.transactions, kept.reads)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []
    assert status.chunks_corrected * 10 >= status.chunks, status
