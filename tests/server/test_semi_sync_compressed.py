"""Semi-synchronous replication over compressed connections: both sides count anew with each acknowledgement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.server.support.semi_sync_sources import TIMEOUT_SECONDS, Source, waiting_source
from tests.support.servers import Server

from .support.streams import COMPRESSIONS, SECONDS, stream_of, take_rows


@pytest.fixture
def source(server: Server, schema: str) -> Iterator[Source]:
    with waiting_source(server, schema) as source:
        yield source


# The image of 5.6 has no plugin for it.
@pytest.mark.parametrize(
    ("server", "compression"), [way for way in COMPRESSIONS if way[0] != "mysql:5.6"], indirect=["server"]
)
async def test_every_commit_is_acknowledged(source: Source, compression: str) -> None:
    sizes = [1, 60, 20_000, (1 << 24) - 100, 17 << 20, 3]
    async with (
        asyncio.timeout(SECONDS),
        stream_of(
            source.server, tables=f"{source.schema}.*", semi_sync=True, compression=compression
        ) as stream,
    ):
        for number in range(30):
            size = sizes[number % len(sizes)] if number < 12 else number
            commit = await source.inserting(number, size)
            [(found, text)] = await take_rows(stream, 1)
            assert (found, len(text)) == (number, size)
            reading = asyncio.create_task(take_rows(stream, 1))
            # Only with the next request for events is it done.
            assert await commit < TIMEOUT_SECONDS / 2
            reading.cancel()
            await asyncio.wait([reading])
    assert source.missed == 0
