"""The size of chunks follows the bytes and the time of those before."""

from __future__ import annotations

from replica.snapshot.chunk_size import CHUNK_BYTES, CHUNK_SECONDS, ChunkSize


def test_it_grows_by_steps_to_the_users_limit() -> None:
    size = ChunkSize(50_000)
    sizes = [size.rows]
    for _ in range(4):
        size.read(size.rows, 100 * size.rows, 0.001)
        sizes.append(size.rows)
    assert sizes == [1000, 4000, 16_000, 50_000, 50_000]
    assert ChunkSize(10).rows == 10


def test_large_rows_and_slow_servers_make_small_chunks() -> None:
    size = ChunkSize(50_000)
    size.read(1000, 1000 * (CHUNK_BYTES // 10), 0.1)
    assert size.rows == 10
    size = ChunkSize(50_000)
    size.read(1000, 1000, 10 * CHUNK_SECONDS)
    assert size.rows == 100
    size.read(1, 100 * CHUNK_BYTES, 0.1)
    assert size.rows == 1


def test_an_empty_chunk_says_nothing() -> None:
    size = ChunkSize(50_000)
    size.read(0, 0, 5.0)
    assert size.rows == 1000
