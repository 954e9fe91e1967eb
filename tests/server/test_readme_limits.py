"""Sentences of the README about what a log does not have, which no other test shows."""

from __future__ import annotations

from typing import Any

import pytest

import replica
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, begin_log, end_of_log, stream_of, to_the_end


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_what_a_replace_sets_to_its_default_is_absent_on_mariadb(server: Server, schema: str) -> None:
    """With ``binlog_row_image=MINIMAL``: MySQL logs the default, too."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT DEFAULT 5, b INT)")
    server.query(f"INSERT INTO {schema}.t VALUES (1, 1, 1)")
    start = end_of_log(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")
        cursor.execute("REPLACE INTO t (id, b) VALUES (1, 2)")
        connection.commit()
    rows = await to_the_end(stream_of(server, start=start, stop="now", tables=f"{schema}.*"))
    absent = replica.ABSENT
    logged_default = 5 if server.family == "mysql" else absent
    assert rows == [((1, absent, absent), (1, logged_default, 2))]
    assert server.query(f"SELECT a FROM {schema}.t") == [(5,)]


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
@pytest.mark.parametrize("older", [10, 11])
async def test_names_come_from_up_to_ten_older_files(server: Server, schema: str, older: int) -> None:
    begin_log(server)
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT)")
    for _ in range(older):
        server.query("FLUSH BINARY LOGS")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (1, 2)")
    server.query(f"DROP TABLE {schema}.t")
    options: dict[str, Any] = {"start": start, "stop": "now", "tables": f"{schema}.*"}
    stream = stream_of(server, connect_timeout=SECONDS, **options)
    names = []
    async with stream:
        async for event in stream:
            if isinstance(event, replica.RowsEvent):
                names.append(event.table.column_names)
    assert names == [("id", "a") if older == 10 else ("@1", "@2")]
