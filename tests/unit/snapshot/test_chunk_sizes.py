"""How many rows a chunk has, when rows are larger than those before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from replica.snapshot.chunk_reader import Chunk
from replica.snapshot.chunk_sizes import ChunkSizes, LargeRowsError
from replica.snapshot.touches import Row

TABLE = ("s", "t")
MB = 1 << 20


class SizedChunk:
    """A chunk whose rows come one by one, and have these sizes."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self.rows = self.size = 0

    async def __aiter__(self) -> AsyncIterator[list[Row]]:
        for size in self._sizes:
            self.rows += 1
            self.size += size
            yield [(size,)]


async def read(sizes: ChunkSizes, *rows: int) -> int:
    return len(await sizes.read(TABLE, cast("Chunk", SizedChunk(*rows))))


async def test_large_rows_are_read_with_fewer_at_once() -> None:
    sizes = ChunkSizes(1000)
    with pytest.raises(LargeRowsError):
        await read(sizes, *[MB] * 1000)
    assert sizes.limit(TABLE) == 4
    assert await read(sizes, *[MB] * 4) == 4
    assert sizes.limit(("s", "other")) == 1000


async def test_rows_that_are_larger_than_a_chunk_are_read_one_by_one() -> None:
    sizes = ChunkSizes(1000)
    with pytest.raises(LargeRowsError):
        await read(sizes, 40 * MB, MB)
    assert sizes.limit(TABLE) == 1
    for size in (40 * MB, 900 * MB):
        assert await read(sizes, size) == 1
        assert sizes.limit(TABLE) == 1


async def test_small_rows_are_read_many_at_once_again() -> None:
    sizes = ChunkSizes(1000)
    assert await read(sizes, *[MB] * 15) == 15
    assert sizes.limit(TABLE) == 4
    assert await read(sizes, *[10] * 4) == 4
    assert sizes.limit(TABLE) == 1000
    assert await read(sizes) == 0
    assert sizes.limit(TABLE) == 1000
