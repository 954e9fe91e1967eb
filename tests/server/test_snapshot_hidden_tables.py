"""A copy of many tables goes on at a checkpoint, which names only the first of those that wait: all are there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import replica
from protocol.errors import PrivilegeError
from replica import Checkpoint
from tests.server.support.streams import SECONDS, begin_log, stream_of, user_of
from tests.support.servers import Server

COUNT = 40


@pytest.fixture(params=["mysql:9.7", "mariadb:11.8"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param.replace(":", "").replace(".", ""))
    begin_log(found)
    return found


@pytest.fixture
def schema(server: Server) -> Iterator[str]:
    with server.fresh_schema() as name:
        for number in range(COUNT):
            server.query(f"CREATE TABLE {name}.t{number:02} (id INT PRIMARY KEY)")
            server.query(f"INSERT INTO {name}.t{number:02} VALUES ({number})")
        yield name


@pytest.fixture
def user(server: Server, schema: str) -> Iterator[str]:
    """One who may read some of the tables by name."""
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as name:
        for number in range(COUNT):
            server.query(f"GRANT SELECT ON {schema}.t{number:02} TO '{name}'@'%'")
        yield name


async def begun(server: Server, schema: str, user: str) -> Checkpoint:
    """The place behind the first rows of a copy."""
    stream = stream_of(server, user, start="snapshot", tables=f"{schema}.*", snapshot_connections=1)
    async with asyncio.timeout(SECONDS), stream:
        async for unit in stream.transactions():
            if unit.outcome == "snapshot":
                async for _ in unit:
                    pass
                break
    assert unit.checkpoint.snapshot is not None
    return unit.checkpoint


async def rest(server: Server, schema: str, user: str, start: Checkpoint, **options: Any) -> set[str]:
    """The tables whose rows come behind a checkpoint."""
    names: set[str] = set()
    stream = stream_of(server, user, start=start, tables=f"{schema}.*", stop="now", **options)
    async with asyncio.timeout(SECONDS), stream:
        async for event in stream:
            if isinstance(event, replica.RowsEvent):
                names.add(event.table.name)
    return names


@pytest.mark.parametrize("others_change", [False, True])
async def test_a_table_that_waits_and_is_hidden_since(
    server: Server, schema: str, user: str, others_change: bool
) -> None:
    """Its rows were missing without an error."""
    checkpoint = await begun(server, schema, user)
    server.query(f"REVOKE SELECT ON {schema}.t39 FROM '{user}'@'%'")
    if others_change:
        server.query(f"CREATE TABLE {schema}.t395 (id INT PRIMARY KEY)")
        server.query(f"GRANT SELECT ON {schema}.t395 TO '{user}'@'%'")
        server.query(f"DROP TABLE {schema}.t38")
    with pytest.raises(PrivilegeError, match="hidden from the user"):
        await rest(server, schema, user, checkpoint)
    server.query(f"GRANT SELECT ON {schema}.t39 TO '{user}'@'%'")
    assert "t39" in await rest(server, schema, user, checkpoint)


async def test_another_choice_of_tables(server: Server, schema: str, user: str) -> None:
    """A table that waits may be left out from now on."""
    checkpoint = await begun(server, schema, user)
    server.query(f"REVOKE SELECT ON {schema}.t39 FROM '{user}'@'%'")
    found = await rest(server, schema, user, checkpoint, exclude_tables=f"{schema}.t39")
    assert "t38" in found


async def test_tables_that_came_and_went_since(server: Server, schema: str, user: str) -> None:
    checkpoint = await begun(server, schema, user)
    server.query(f"GRANT SELECT ON {schema}.* TO '{user}'@'%'")
    server.query(f"CREATE TABLE {schema}.t395 (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t395 VALUES (1)")
    server.query(f"DROP TABLE IF EXISTS {schema}.t38, {schema}.t99")
    server.query(f"RENAME TABLE {schema}.t37 TO {schema}.t375")
    server.query(f"CREATE TABLE IF NOT EXISTS {schema}.t36 (id INT PRIMARY KEY)")
    found = await rest(server, schema, user, checkpoint)
    assert {"t36", "t375", "t39", "t395"} <= found
    assert "t38" not in found


async def test_tables_that_came_and_went_before_the_checkpoint(
    server: Server, schema: str, user: str
) -> None:
    """No table is hidden; the copy was refused at its restart."""
    server.query(f"GRANT SELECT ON {schema}.* TO '{user}'@'%'")
    stream = stream_of(server, user, start="snapshot", tables=f"{schema}.*", snapshot_connections=1)
    has_changed, checkpoint = False, None
    async with asyncio.timeout(SECONDS), stream:
        async for unit in stream.transactions():
            changes = [change async for change in unit]
            if unit.outcome == "snapshot" and not has_changed:
                has_changed = True
                server.query(f"CREATE TABLE {schema}.t395 (id INT PRIMARY KEY)")
                server.query(f"DROP TABLE {schema}.t38")
                server.query(f"INSERT INTO {schema}.t395 VALUES (1)")
            elif unit.outcome == "commit" and changes:
                checkpoint = unit.checkpoint
                break
    assert checkpoint is not None
    found = await rest(server, schema, user, checkpoint)
    assert "t39" in found
    # Its only row has come from the log.
    assert "t395" not in found
    server.query(f"REVOKE SELECT ON {schema}.* FROM '{user}'@'%'")
    server.query(f"REVOKE SELECT ON {schema}.t39 FROM '{user}'@'%'")
    with pytest.raises(PrivilegeError, match=r"hidden from the user|SELECT command denied"):
        await rest(server, schema, user, checkpoint)
