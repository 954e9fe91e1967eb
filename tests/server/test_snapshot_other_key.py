"""A table gets another key, or its key another order, in the midst of its copy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replica import Checkpoint
from tests.server.support.copied_tables import Kept
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, stream_of
from tests.support.servers import Server

_KEYS = {
    "another column": "DROP PRIMARY KEY, ADD PRIMARY KEY (m)",
    "another order": "DROP PRIMARY KEY, ADD PRIMARY KEY (m, id)",
    "no primary key": "DROP PRIMARY KEY, ADD UNIQUE KEY (m)",
}
ROWS = 100


async def copied(server: Server, kept: Kept, table: str, start: Any, rows: int | None = None) -> Checkpoint:
    """Follow until so many rows were read, or to the end of the log and the copy."""
    options: dict[str, Any] = {"tables": table, "snapshot_chunk_rows": 10}
    stop = None if rows else "now"
    async with asyncio.timeout(SECONDS), stream_of(server, start=start, stop=stop, **options) as stream:
        async for tx in stream.transactions():
            await kept.take(tx)
            checkpoint = tx.checkpoint
            if rows and kept.reads >= rows:
                break
    return checkpoint


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
@pytest.mark.parametrize("change", _KEYS)
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_bounds_of_the_previous_key_are_not_those_of_the_new_one(
    server: Server, schema: str, change: str, image: str
) -> None:
    """It changes while the consumer is down. One column falls where the other rises: rows that were not read lie
    before the bound. With MINIMAL images the rows in front of the change lack the new key."""
    server.query(f"CREATE TABLE {schema}.t (id INT NOT NULL, m INT NOT NULL, a INT, PRIMARY KEY (id))")
    values = ", ".join(f"({number}, {1000 - number}, 0)" for number in range(ROWS))
    server.query(f"INSERT INTO {schema}.t VALUES {values}")
    kept = Kept({"t": ("id",)})
    checkpoint = await copied(server, kept, f"{schema}.t", "snapshot", 30)
    with server.connect() as session, session.cursor() as cursor:
        for sql in (
            f"SET SESSION binlog_row_image = '{image}'",
            "UPDATE {}.t SET a = 1 WHERE id IN (3, 70)",
            f"ALTER TABLE {{}}.t {_KEYS[change]}",
            "SET SESSION binlog_row_image = 'FULL'",
            "UPDATE {}.t SET a = 2 WHERE id IN (4, 71)",
        ):
            cursor.execute(sql.format(schema))
    await copied(server, kept, f"{schema}.t", checkpoint)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize(
    "change",
    ["MODIFY k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL", "MODIFY k INT NOT NULL"],
)
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_the_order_of_a_key_changes(server: Server, schema: str, change: str, is_down: bool) -> None:
    """Upper case comes before lower case in one collation, and beside it in the other; 9 comes before 10."""
    server.query(
        f"CREATE TABLE {schema}.t (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL "
        "PRIMARY KEY, n INT NOT NULL)"
    )
    keys = [f"{'aA'[number % 2]}{number:03}" if "bin" in change else str(number) for number in range(ROWS)]
    values = ", ".join(f"('{key}', {number})" for number, key in enumerate(keys))
    server.query(f"INSERT INTO {schema}.t VALUES {values}")
    kept, table, left = Kept({"t": ("n",)}, checks=False), f"{schema}.t", [f"ALTER TABLE {schema}.t {change}"]
    start: Any = "snapshot"
    if is_down:
        start = await copied(server, kept, table, "snapshot", 30)
        server.query(left.pop())
    options: dict[str, Any] = {"start": start, "tables": table, "snapshot_chunk_rows": 10}
    # Its stop waits for the end of the copy.
    async with asyncio.timeout(SECONDS), stream_of(server, stop="now", **options) as stream:
        async for tx in stream.transactions():
            await kept.take(tx)
            if kept.reads >= 30 and left:
                server.query(left.pop())
    assert len(kept.rows["t"]) == ROWS
    assert kept.differences(server, schema, "t") == []


async def test_a_table_that_had_fewer_columns_in_the_same_log_file(server: Server, schema: str) -> None:
    """A copy that goes on reads the file from its beginning, where the table lacks names, and the key's place."""
    server.query(f"CREATE TABLE {schema}.t (a INT NOT NULL, id INT NOT NULL PRIMARY KEY)")
    values = ", ".join(f"(0, {number})" for number in range(ROWS))
    for sql in (
        "FLUSH BINARY LOGS",
        f"INSERT INTO {{}}.t VALUES {values}",
        "UPDATE {}.t SET a = 1 WHERE id < 10",
        "ALTER TABLE {}.t ADD COLUMN c INT NOT NULL DEFAULT 5 FIRST",
        "UPDATE {}.t SET a = 2 WHERE id < 5",
    ):
        server.query(sql.format(schema))
    kept = Kept({"t": ("id",)})
    checkpoint = await copied(server, kept, f"{schema}.t", "snapshot", 30)
    await copied(server, kept, f"{schema}.t", checkpoint)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []
