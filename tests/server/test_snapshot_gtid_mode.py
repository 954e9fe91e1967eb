"""GTIDs that are turned off under a stream by position tell no more what a copy's reads show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import replica
from tests.server.support.semi_sync_sources import Source, waiting
from tests.server.support.streams import SECONDS, end_of_log, stream_of, take_changes
from tests.support.servers import Server


async def test_a_commit_without_gtid_that_waits(extra_server: Callable[..., Server]) -> None:
    """The stream has had its row before the copy is ordered, and the read does not show it."""
    server = extra_server("mysql:9.7")
    with server.fresh_schema() as schema, waiting(server):
        source = Source(server, schema)
        source.set("wait_point", "AFTER_SYNC")
        source.set("timeout", 3000)
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
        server.query(f"INSERT INTO {schema}.t VALUES (1, 0), (2, 0)")
        kept: dict[int, int] = {}
        async with stream_of(server, start=end_of_log(server), tables=f"{schema}.t") as stream:
            # Behind the beginning of a file the GTIDs are known.
            server.query("FLUSH BINARY LOGS")
            server.query(f"INSERT INTO {schema}.t VALUES (3, 0)")
            await take_changes(stream, 1)
            for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
                server.query(f"SET GLOBAL gtid_mode = {mode}")
            async with replica.connect(server.dsn("root", server.root_password), semi_sync=True):
                sql = f"UPDATE {schema}.t SET v = 9 WHERE id = 1"
                committing = asyncio.create_task(asyncio.to_thread(server.query, sql))
                await take_changes(stream, 1)
                assert not committing.done()
                await stream.snapshot(f"{schema}.t")
                async with asyncio.timeout(SECONDS):
                    while not isinstance(event := await anext(stream), replica.SnapshotCompleteEvent):
                        if isinstance(event, replica.RowsEvent):
                            kept |= {
                                change.after["id"]: change.after["v"]
                                for change in event.changes()
                                if change.after
                            }
                await committing
        assert kept == dict(server.query(f"SELECT * FROM {schema}.t"))
