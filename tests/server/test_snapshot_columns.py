"""Columns that a server hides, makes or stores in its own way are read as the log has them."""

from __future__ import annotations

import pytest

import replica
from protocol.rows.column import ABSENT
from tests.server.support.streams import end_of_log
from tests.server.support.table_reading import plan_of, read_chunks, reading_session
from tests.support.servers import Server

MARIADB = ["mariadb:10.11", "mariadb:11.8"]
TABLES = {
    "versioned": "id INT PRIMARY KEY, v VARCHAR(9)) WITH SYSTEM VERSIONING",
    "periods": "id INT PRIMARY KEY, v VARCHAR(9), s TIMESTAMP(6) GENERATED ALWAYS AS ROW START INVISIBLE, "
    "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
    "hashed": "id INT PRIMARY KEY, v LONGTEXT, UNIQUE (v))",
    "parted": "id INT PRIMARY KEY, v VARCHAR(9)) PARTITION BY HASH (id) PARTITIONS 3",
}


@pytest.mark.parametrize("server", MARIADB, indirect=True)
async def test_hidden_columns_and_partitions(server: Server, schema: str) -> None:
    start = end_of_log(server)
    for name, definition in TABLES.items():
        server.query(f"CREATE TABLE {schema}.{name} ({definition}")
        server.query(f"INSERT INTO {schema}.{name} (id, v) VALUES (1, 'a'), (2, NULL), (3, 'c')")
    logged: dict[str, list[tuple[object, ...]]] = {}
    async with replica.connect(server.dsn(), start=start, stop="now", tables=f"{schema}.*") as stream:
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                logged.setdefault(event.table.name, []).extend(event.rows)
    async with reading_session(server) as session:
        for name in TABLES:
            plan = await plan_of(session, schema, name)
            assert plan.key_names == ("id",)
            read = await read_chunks(session, plan, 2)
            # The hash of a unique key cannot be selected.
            known = [
                tuple(
                    ABSENT if mine is ABSENT else value for mine, value in zip(row, logged_row, strict=True)
                )
                for row, logged_row in zip(read, logged[name], strict=True)
            ]
            assert read == known, name
            assert (ABSENT in read[0]) is (name == "hashed")
