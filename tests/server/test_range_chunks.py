"""The chunks by which executors read ranges of a table grow, as each takes four queries beside its rows."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyarrow")

from replica.config.options import Options
from replica.snapshot.range_reader import read_ranges
from replica.snapshot.row_keys import KeyRange
from tests.support.servers import Server


async def sizes(options: Options, table: tuple[str, str]) -> list[int]:
    found = read_ranges(options, table, [KeyRange(None, None)])
    return [chunk.rows.num_rows async for chunk in found]


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
def test_chunks_have_some_megabytes(server: Server) -> None:
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.d (n INT PRIMARY KEY)")
        server.query(f"INSERT INTO {schema}.d VALUES {', '.join(f'({number})' for number in range(100))}")
        server.query(f"CREATE TABLE {schema}.small (id INT PRIMARY KEY, v INT)")
        server.query(f"INSERT INTO {schema}.small SELECT a.n * 100 + b.n, 1 FROM {schema}.d a, {schema}.d b")
        server.query(f"CREATE TABLE {schema}.large (id INT PRIMARY KEY, v MEDIUMTEXT)")
        server.query(f"INSERT INTO {schema}.large SELECT n, REPEAT('x', 1000000) FROM {schema}.d")
        options = Options.build(server.dsn(), {"snapshot_chunk_rows": 1000})
        assert asyncio.run(sizes(options, (schema, "small"))) == [1000, 9000]
        options = Options.build(server.dsn(), {"snapshot_chunk_rows": 20})
        assert asyncio.run(sizes(options, (schema, "large"))) == [20, *[8] * 10]
