"""What a server sets for all sessions, or its init_connect, changes nothing: least of all what is copied."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import replica
from replica import SnapshotRowsEvent
from tests.server.support.doctor_findings import findings_of
from tests.server.support.streams import (
    MYSQL97_AND_MARIADB118,
    SECONDS,
    purge_older_logs,
    stream_of,
    user_of,
)
from tests.support.servers import Server

ROWS = [(1, "a"), (2, "é日"), (3, "")]
# "日本" cannot be said in latin1.
NAMES = ["t", "u", "日本"]
# PyMySQL trusts MySQL's status flags, which do not tell of a global autocommit=0.
PLAIN = "SET autocommit = 1"
GIPK = ["sql_generate_invisible_primary_key", "show_gipk_in_create_table_and_information_schema"]


@contextlib.contextmanager
def with_globals(server: Server, **values: object) -> Iterator[None]:
    before = {}
    try:
        for name, value in values.items():
            [(before[name],)] = server.query(f"SELECT @@GLOBAL.{name}")
            server.query(f"SET GLOBAL {name} = %s", value)
        yield
    finally:
        # The setting may be in force for these sessions, too.
        with server.connect(init_command=PLAIN) as connection, connection.cursor() as cursor:
            for name, value in before.items():
                cursor.execute(f"SET GLOBAL {name} = %s", (value,))


def make_tables(server: Server, schema: str) -> None:
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for name in NAMES:
            cursor.execute(
                f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, `ключ` VARCHAR(9)) CHARSET utf8mb4"
            )
            cursor.executemany(f"INSERT INTO {schema}.{name} VALUES (%s, %s)", ROWS)
    server.query("FLUSH BINARY LOGS")
    purge_older_logs(server)


async def copy(server: Server, schema: str, **options: Any) -> dict[str, set[tuple[Any, ...]]]:
    """The rows that a copy gives, by table, after which the changes of all tables come with the same names."""
    found: dict[str, set[tuple[Any, ...]]] = {name: set() for name in NAMES}
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, tables=f"{schema}.*", start="snapshot", snapshot_chunk_rows=2, **options) as stream,
    ):
        for rows in await pass_copies(stream):
            found[rows.table.name] |= {tuple((change.after or {}).items()) for change in rows.changes()}
        for name in NAMES:
            await asyncio.to_thread(insert, server, f"{schema}.{name}")
        for name in NAMES:
            while not isinstance(event := await anext(stream), replica.WriteRowsEvent):
                pass
            [change] = event.changes()
            assert (event.table.name, change.after) == (name, {"id": 4, "ключ": "日"})
    return found


async def pass_copies(stream: replica.BinlogStream) -> list[SnapshotRowsEvent]:
    """The rows of the copies of all tables."""
    rows, complete = [], 0
    while complete < len(NAMES):
        event = await anext(stream)
        if isinstance(event, SnapshotRowsEvent):
            rows.append(event)
        complete += isinstance(event, replica.SnapshotCompleteEvent)
    return rows


def insert(server: Server, table: str) -> None:
    with server.connect(init_command=PLAIN) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {table} VALUES (4, '日')")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sql_select_limit", 1),
        ("max_join_size", 1),
        ("completion_type", "RELEASE"),
        ("autocommit", 0),
        ("init_connect", "SET NAMES latin1"),
        ("init_connect", "SET character_set_connection = ucs2"),
    ],
)
async def test_a_copy(server: Server, schema: str, name: str, value: object) -> None:
    await copy_with(server, schema, name, value)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_copy_with_a_limit_of_time(server: Server, schema: str) -> None:
    if server.family == "mysql":
        await copy_with(server, schema, "max_execution_time", 1)
    else:
        await copy_with(server, schema, "max_statement_time", 0.0005)


async def copy_with(server: Server, schema: str, name: str, value: object) -> None:
    make_tables(server, schema)
    with with_globals(server, **{name: value}):
        found = await copy(server, schema)
    rows = {(("id", number), ("ключ", text)) for number, text in ROWS}
    assert found == dict.fromkeys(NAMES, rows)


async def test_the_stream_leaves_no_transaction_open(server: Server, schema: str) -> None:
    """With autocommit=0 its own connection, and those that read, would hold the tables' locks, and their views."""
    make_tables(server, schema)
    with with_globals(server, autocommit=0):
        where = {f"{schema}.{name}": "id > 0" for name in NAMES}
        async with (
            asyncio.timeout(SECONDS),
            stream_of(server, tables=f"{schema}.*", start="snapshot", snapshot_where=where) as stream,
        ):
            await pass_copies(stream)
            open_since = (
                "SELECT t.trx_started FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p "
                f"ON p.ID = t.trx_mysql_thread_id WHERE p.USER = '{server.replica_user}'"
            )
            assert server.query(open_since) == []
            await asyncio.to_thread(alter, server, f"{schema}.t")


def alter(server: Server, table: str) -> None:
    with (
        server.connect(init_command="SET lock_wait_timeout = 2") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"ALTER TABLE {table} ADD c INT")


async def test_a_key_that_the_server_made(mysql97: Server) -> None:
    """It is in the log, and information_schema does not list it."""
    with (
        mysql97.fresh_schema() as schema,
        with_globals(mysql97, **dict(zip(GIPK, ["ON", "OFF"], strict=True))),
    ):
        mysql97.query(f"CREATE TABLE {schema}.t (v INT)")
        mysql97.query(f"INSERT INTO {schema}.t VALUES (10), (20)")
        mysql97.query("FLUSH BINARY LOGS")
        purge_older_logs(mysql97)
        rows = []
        async with (
            asyncio.timeout(SECONDS),
            stream_of(mysql97, tables=f"{schema}.t", start="snapshot") as stream,
        ):
            while not isinstance(event := await anext(stream), replica.SnapshotCompleteEvent):
                if isinstance(event, SnapshotRowsEvent):
                    rows += [change.after for change in event.changes()]
            mysql97.query(f"INSERT INTO {schema}.t VALUES (30)")
            while not isinstance(event := await anext(stream), replica.WriteRowsEvent):
                pass
            rows += [change.after for change in event.changes()]
    assert rows == [{"my_row_id": number, "v": 10 * number} for number in (1, 2, 3)]


async def test_the_doctor_with_names_without_quotes(server: Server, schema: str) -> None:
    make_tables(server, schema)
    with (
        user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user,
        with_globals(server, sql_quote_show_create=0),
    ):
        server.query(f"GRANT SELECT ON {schema}.* TO '{user}'@'%'")
        found = await findings_of(server, user, tables=f"{schema}.*")
    assert found["select privilege"].state == "ok", found["select privilege"]
