"""What an administrator does to the user's account while a stream copies: an error says so, no row is left out."""

from __future__ import annotations

import asyncio

import pytest

import replica
from tests.support.servers import Server

from .support.streams import (
    MYSQL97_AND_MARIADB118,
    SECONDS,
    kill_sessions,
    sessions_of,
    stream_of,
    take_changes,
    user_of,
)

ROWS = 50


def fill(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
    server.query(f"INSERT INTO {schema}.t VALUES {', '.join(f'({number}, 0)' for number in range(ROWS))}")
    server.query("FLUSH BINARY LOGS")


async def pass_to_end(stream: replica.BinlogStream) -> None:
    async with asyncio.timeout(SECONDS):
        async for event in stream:
            assert not isinstance(event, replica.SnapshotCompleteEvent)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_select_revoked_while_a_table_is_copied(server: Server, schema: str) -> None:
    """information_schema does not list it any more, as if it had been dropped."""
    fill(server, schema)
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        server.query(f"GRANT SELECT ON {schema}.t TO '{user}'@'%'")
        async with stream_of(
            server, user, tables=f"{schema}.t", start="snapshot", snapshot_chunk_rows=1
        ) as stream:
            while not isinstance(await anext(stream), replica.SnapshotRowsEvent):
                pass
            await stream.acknowledge()
            checkpoint = stream.checkpoint
            server.query(f"REVOKE SELECT ON {schema}.t FROM '{user}'@'%'")
            kill_sessions(server, user)
            with pytest.raises(replica.PrivilegeError, match=rf"GRANT SELECT ON {schema}\.t"):
                await pass_to_end(stream)
        assert checkpoint is not None
        with pytest.raises(replica.PrivilegeError, match=rf"GRANT SELECT ON {schema}\.t"):
            async with stream_of(server, user, tables=f"{schema}.t", start=checkpoint) as stream:
                await pass_to_end(stream)


async def test_an_account_of_one_connection(server: Server, schema: str) -> None:
    """A stream reads the tables before it asks for the log; a copy would wait for ever, and leave names out."""
    fill(server, schema)
    with user_of(server) as user:
        is_new = server.family == "mysql" and server.version >= (5, 7)
        words = "ALTER USER" if is_new else "GRANT USAGE ON *.* TO"
        server.query(f"{words} '{user}'@'%' WITH MAX_USER_CONNECTIONS 1")
        async with stream_of(server, user, tables=f"{schema}.t") as stream:
            server.query(f"INSERT INTO {schema}.t VALUES ({ROWS}, 1)")
            [change] = await take_changes(stream, 1)
            assert change.after == {"id": ROWS, "v": 1}
        kill_sessions(server, user)
        async with asyncio.timeout(SECONDS):
            while sessions_of(server, user):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(replica.PrivilegeError, match="MAX_USER_CONNECTIONS"):
            await copied_by(server, user, f"{schema}.t")


async def copied_by(server: Server, user: str, table: str) -> None:
    async with asyncio.timeout(SECONDS), stream_of(server, user, tables=table, start="snapshot") as stream:
        await pass_to_end(stream)
