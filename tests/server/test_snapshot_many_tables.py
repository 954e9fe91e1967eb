"""Many small tables are copied with few statements each, and one that changes meanwhile does not stop the others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from protocol.errors import ConfigurationError
from replica.snapshot.copy_state import _plain_text
from tests.server.support.streams import SECONDS, begin_log, stream_of
from tests.support.servers import Server

FEW, MANY = 40, 140
# A SELECT is prepared, executed and closed; the other statements are for several tables together. It was 17.
PER_TABLE = 5
LARGE = 1_000_000
LARGE_ROWS = 10_000


@pytest.fixture(autouse=True)
def own_log(server: Server) -> None:
    begin_log(server)


def make_tables(server: Server, schema: str, numbers: range) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in numbers:
            cursor.execute(f"CREATE TABLE {schema}.t{number:03} (id INT PRIMARY KEY, a INT, b LONGTEXT)")
            cursor.execute(f"INSERT INTO {schema}.t{number:03} VALUES (1, {number}, 'x'), (2, 0, NULL)")


async def copied(
    server: Server, schema: str, *meanwhile: str, **options: Any
) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables; ``meanwhile`` runs when the first ones are there."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    tables = f"{schema}.*"
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, tables=tables, start="snapshot", stop="now", **options) as stream,
    ):
        async for tx in stream.transactions():
            changes = [change async for change in tx]
            if changes and meanwhile:
                for sql in meanwhile:
                    server.query(sql.format(schema))
                meanwhile = ()
            for change in changes:
                rows[change.table.name].append(dict(change.after or {}))
    return rows


def statements(server: Server) -> int:
    [(_, count)] = server.query("SHOW GLOBAL STATUS LIKE 'Queries'")
    return int(count)


async def test_a_table_takes_few_statements(server: Server, schema: str) -> None:
    """Counted for two numbers of tables: what the stream itself asks is left out."""
    counts = []
    for numbers in (range(FEW), range(FEW, MANY)):
        make_tables(server, schema, numbers)
        # Without GTIDs a copy reads the beginning of the file, statements of these tables included.
        begin_log(server)
        before = statements(server)
        rows = await copied(server, schema)
        counts.append(statements(server) - before)
        assert sorted(rows) == [f"t{number:03}" for number in range(numbers.stop)]
        assert all(len(found) == 2 for found in rows.values())
    assert counts[1] - counts[0] <= PER_TABLE * (MANY - FEW), counts


async def test_tables_that_change_while_others_are_copied(server: Server, schema: str) -> None:
    """Their plans were read before that; a table that is gone, or has fewer columns, is found among the others."""
    make_tables(server, schema, range(FEW))
    rows = await copied(
        server,
        schema,
        "ALTER TABLE {}.t030 DROP COLUMN b",
        "DROP TABLE {}.t031",
        "ALTER TABLE {}.t032 DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)",
        "INSERT INTO {}.t033 VALUES (3, 5, 'new')",
        snapshot_connections=1,
    )
    rows.pop("t031", None)
    ids = {name: sorted({row["id"] for row in found}) for name, found in rows.items()}
    assert ids.pop("t033") == [1, 2, 3]
    assert ids == {f"t{number:03}": [1, 2] for number in range(FEW) if number not in (31, 33)}
    assert all(row["a"] in (0, 5, int(name[1:])) for name, found in rows.items() for row in found)


async def test_large_rows_of_several_tables(server: Server, schema: str) -> None:
    """More than a chunk's bytes: the tables that are left are read in views of their own."""
    make_tables(server, schema, range(10))
    for number in range(10):
        server.query(f"UPDATE {schema}.t{number:03} SET b = REPEAT('y', {LARGE}) WHERE id = 1")
    begin_log(server)
    rows = await copied(server, schema)
    assert {name: [len(row["b"] or "") for row in found] for name, found in rows.items()} == {
        f"t{number:03}": [LARGE, 0] for number in range(10)
    }


async def test_a_copy_goes_on_behind_a_large_table(server: Server, schema: str) -> None:
    """Small tables are whole before the first one is: the checkpoint names the ends of a run of them."""
    make_tables(server, schema, range(FEW))
    server.query(f"CREATE TABLE {schema}.a_large (id INT PRIMARY KEY)")
    rows = ", ".join(f"({number})" for number in range(LARGE_ROWS))
    server.query(f"INSERT INTO {schema}.a_large VALUES {rows}")
    begin_log(server)
    ids: dict[str, set[int]] = defaultdict(set)
    options: dict[str, Any] = {"tables": f"{schema}.*", "stop": "now", "snapshot_chunk_rows": 50}
    start: Any = "snapshot"
    async with asyncio.timeout(SECONDS), stream_of(server, start=start, **options) as stream:
        async for tx in stream.transactions():
            async for change in tx:
                ids[change.table.name].add((change.after or {})["id"])
            start = tx.checkpoint
            if '"ranges":' in _plain_text(start.snapshot):
                break
    assert len(ids["a_large"]) < LARGE_ROWS
    async with asyncio.timeout(SECONDS), stream_of(server, start=start, **options) as stream:
        async for tx in stream.transactions():
            async for change in tx:
                known, row = ids[change.table.name], (change.after or {})["id"]
                assert row not in known
                known.add(row)
    assert ids.pop("a_large") == set(range(LARGE_ROWS))
    assert ids == {f"t{number:03}": {1, 2} for number in range(FEW)}


async def test_a_condition_that_names_no_column_is_an_error(server: Server, schema: str) -> None:
    make_tables(server, schema, range(3))
    with pytest.raises(ConfigurationError, match="nope"):
        await copied(server, schema, snapshot_where={f"{schema}.t001": "nope > 1"})
