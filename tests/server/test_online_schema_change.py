"""pt-online-schema-change as it runs while a writer is at work: each row under the names of its place."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import replica
from replica import FileSchemaStore, RowsEvent, SchemaChangeEvent
from tests.server.support.streams import MYSQL97_AND_MARIADB118, PASSWORD, SECONDS, user_of
from tests.support.servers import Server

TOOL = "pt-online-schema-change"
ROWS = 300
# `n` is always ten times `id`, under either name.
BEFORE, AFTER = ("id", "n", "label"), ("id", "label", "number", "more")
ALTER = "CHANGE n number BIGINT UNSIGNED AFTER label, ADD more INT NOT NULL DEFAULT 7"


def insert(server: Server, schema: str, ids: range) -> None:
    """Rows one by one, in whatever columns the table has by then."""
    with server.connect(database=schema, autocommit=True) as connection, connection.cursor() as cursor:
        for number in ids:
            for column in ("n", "number"):
                try:
                    cursor.execute(
                        f"INSERT INTO t (id, {column}, label) VALUES (%s, %s, 'b')", (number, 10 * number)
                    )
                    break
                except cursor.connection.OperationalError as error:
                    assert error.args[0] == 1054, error  # noqa: PT017


async def run_tool(server: Server, schema: str) -> None:
    place = f"h=127.0.0.1,P={server.port},u=root,p={server.root_password},D={schema},t=t"
    process = await asyncio.create_subprocess_exec(
        *(TOOL, "--execute", "--alter", ALTER, "--recursion-method=none", "--chunk-size=50"),
        *("--no-check-replication-filters", "--no-check-alter", "--no-version-check", "--sleep=0.02", place),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_rows_come_under_the_names_of_their_place(server: Server, schema: str, tmp_path: Path) -> None:
    if shutil.which(TOOL) is None:
        pytest.skip(f"{TOOL} is not installed: apt-get install percona-toolkit")
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT, label VARCHAR(9))")
    insert(server, schema, range(1, ROWS))
    store = FileSchemaStore(tmp_path / "schemas")
    given: dict[str, Any] = {"tables": f"{schema}.*", "schemas": store}
    with user_of(server) as user:
        dsn = server.dsn(user, PASSWORD)
        async with replica.connect(dsn, **given) as stream:
            start = stream.checkpoint
        writing = asyncio.create_task(asyncio.to_thread(insert, server, schema, range(ROWS, 2 * ROWS)))
        async with asyncio.timeout(SECONDS * 2):
            await run_tool(server, schema)
            await writing
        insert(server, schema, range(2 * ROWS, 2 * ROWS + 10))
        events = []
        async with replica.connect(dsn, start=start, stop="now", **given) as stream:
            events = [event async for event in stream]
    names: dict[str, set[tuple[str, ...]]] = {}
    kept: set[int] = set()
    for event in events:
        if not isinstance(event, RowsEvent):
            continue
        assert event.table.names_from == "history"
        assert event.table.primary_key == ("id",)
        names.setdefault(event.table.name, set()).add(event.table.column_names)
        for change in event.changes():
            assert change.after is not None
            value = change.after["number" if "number" in change.after else "n"]
            assert isinstance(value, int)
            assert value == 10 * change.after["id"]
            if event.table.column_names == AFTER:
                kept.add(change.after["id"])
    assert names == {"t": {BEFORE, AFTER}, "_t_new": {AFTER}}
    # What the tool copied and what came later is the whole table.
    assert kept == {row[0] for row in server.query(f"SELECT id FROM {schema}.t")}
    swapped = [event for event in events if isinstance(event, SchemaChangeEvent) and event.renamed_to]
    assert {(event.name, event.renamed_to) for event in swapped} == {
        ("t", f"{schema}._t_old"),
        ("_t_new", f"{schema}.t"),
    }
