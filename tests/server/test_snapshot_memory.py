"""A large table is read in memory that does not grow with it."""

from __future__ import annotations

import asyncio
import gc
import resource
import tracemalloc

import pytest

import replica
from replica.snapshot.chunk_reader import ChunkReader
from replica.snapshot.row_keys import KeyRange
from tests.server.support.table_reading import plan_of, reading_session
from tests.support.servers import Server

SECONDS = 30


def fill(server: Server, schema: str, rows: int) -> None:
    """``rows`` rows, by doubling."""
    server.query(f"CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(100) NOT NULL)")
    server.query(f"INSERT INTO {schema}.t (v) VALUES (REPEAT('x', 80))")
    count = 1
    while count < rows:
        more = min(count, rows - count)
        server.query(f"INSERT INTO {schema}.t (v) SELECT v FROM {schema}.t LIMIT {more}")
        count += more


async def read_all(server: Server, schema: str) -> list[int]:
    """One SELECT over all rows; what was traced as allocated after each tenth of them."""
    total = int(server.query(f"SELECT COUNT(*) FROM {schema}.t")[0][0])
    allocated: list[int] = []
    async with reading_session(server) as session:
        chunk = await ChunkReader(session, await plan_of(session, schema, "t")).start(KeyRange())
        tracemalloc.start()
        try:
            async for _ in chunk:
                if chunk.rows >= (len(allocated) + 1) * total // 10:
                    allocated.append(tracemalloc.get_traced_memory()[0])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert chunk.rows == total
    return [*allocated, peak]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_memory_does_not_grow_with_the_rows(server: Server, schema: str) -> None:
    """One result set of 10 MB: never more than a few buffers of it are in memory."""
    fill(server, schema, 100_000)
    *allocated, peak = await read_all(server, schema)
    print(f"allocated after each tenth: {allocated}, at most {peak}")
    assert peak < 4 << 20


async def test_chunks_of_large_rows_are_small(mysql97: Server) -> None:
    """The first chunk, and one behind small rows, had 10,000 rows whatever their size: with 1 MB each, 10 GB."""
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (id INT AUTO_INCREMENT PRIMARY KEY, v MEDIUMBLOB NOT NULL)")
        for size, count in ((90_000, 200), (10, 400), (90_000, 200)):
            rows = ", ".join([f"(REPEAT(0x78, {size}))"] * count)
            mysql97.query(f"INSERT INTO {schema}.t (v) VALUES {rows}")
        ids, sizes = list[int](), list[int]()
        async with (
            asyncio.timeout(SECONDS),
            replica.connect(mysql97.dsn(), tables=[f"{schema}.t"], start="snapshot") as stream,
        ):
            async for event in stream:
                if isinstance(event, replica.SnapshotCompleteEvent):
                    break
                if isinstance(event, replica.SnapshotRowsEvent):
                    ids += [int(str(row[0])) for row in event.rows]
                    sizes.append(sum(len(str(row[1])) for row in event.rows))
    print(f"chunks of {sizes} bytes")
    assert len(ids) == len(set(ids)) == 800
    assert max(sizes) < 20_000_000


@pytest.mark.long
@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_five_million_rows(server: Server, schema: str) -> None:
    fill(server, schema, 5_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gc.collect()
    async with reading_session(server) as session:
        chunk = await ChunkReader(session, await plan_of(session, schema, "t")).start(KeyRange())
        async for _ in chunk:
            pass
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(f"{chunk.rows} rows: the process grew by {grown / 1e6:.1f} MB")
    assert chunk.rows == 5_000_000
    assert grown < 50_000_000
