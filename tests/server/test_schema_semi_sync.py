"""A question about columns never stands between an event and its acknowledgement: CREATE TABLE ... SELECT.

The source waits for the acknowledgement while it holds the statement's metadata lock. A stream that asked
information_schema for the new table's columns would wait for that lock (MariaDB), or be shown no such table (MySQL).
"""

from __future__ import annotations

import asyncio
import time

import pytest

from replica import RowsEvent
from tests.server.support.semi_sync_sources import TIMEOUT_SECONDS, waiting_source
from tests.server.support.streams import SECONDS, stream_of
from tests.support.servers import Server


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:10.11", "mariadb:11.8"], indirect=True)
async def test_a_table_made_of_a_select_has_names_and_holds_nobody_up(server: Server, schema: str) -> None:
    with waiting_source(server, schema) as source:
        rows: list[tuple[str, dict[str, object], str | None]] = []

        async def consume() -> None:
            async for event in stream:
                if isinstance(event, RowsEvent):
                    rows.extend(
                        (event.table.name, dict(change.after or {}), event.table.names_from)
                        for change in event.changes()
                    )

        async with stream_of(server, tables=f"{schema}.*", semi_sync=True) as stream:
            consuming = asyncio.create_task(consume())
            await source.until(lambda: source.status("clients") == 1)
            await asyncio.to_thread(source.insert, 1)
            begin = time.monotonic()
            for name in ("first", "second"):
                sql = f"CREATE TABLE {schema}.{name} AS SELECT a AS number, b FROM {schema}.t"
                await asyncio.to_thread(server.query, sql)
                await asyncio.to_thread(server.query, f"INSERT INTO {schema}.{name} VALUES (7, 'y')")
            # It would be the whole timeout of the source.
            assert time.monotonic() - begin < TIMEOUT_SECONDS
            async with asyncio.timeout(SECONDS):
                while len(rows) < 5:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
        assert source.missed == 0
    made = [{"number": 1, "b": "x"}, {"number": 7, "b": "y"}]
    assert [row for name, row, _ in rows if name == "first"] == made
    assert [row for name, row, _ in rows if name == "second"] == made
    assert {names_from for _, _, names_from in rows} == {"history"}
