"""Tables are copied under writers: what the consumer keeps equals SELECT at the end, and each before image before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import replica
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.streams import SECONDS, stream_of
from tests.support.servers import Server

ROWS = 6000
SEED = 1
import os; XA = bool(os.environ.get("XA"))


async def consume(
    stream: replica.BinlogStream, kept: Kept, writers: Writers, *, after_complete: int = 200
) -> None:
    """Apply everything until the copy is complete, then until the log has been followed to its end."""
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


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_copy_under_writers(server: Server, schema: str) -> None:
    make_table(server, schema, "t", ROWS)
    kept = Kept({"t": ("id",)})
    options: dict[str, Any] = {"tables": f"{schema}.t"}
    with Writers(server, f"{schema}.t", 2 * ROWS, with_xa=XA).run(4, SEED) as writers:
        async with stream_of(server, start="snapshot", snapshot_chunk_rows=200, **options) as stream:
            await consume(stream, kept, writers)
            status = stream.status.snapshot
            await stream.acknowledge()
            checkpoint = stream.checkpoint
    assert checkpoint is not None
    await follow_to_end(server, checkpoint, kept, **options)
    print(status, writers.transactions, kept.reads)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []
