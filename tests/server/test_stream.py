"""Live streams of real servers: names, filters, handlers, DDL, and what is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import replica
from replica import (
    DeleteRowsEvent,
    QueryEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XidEvent,
)
from tests.faults.waiting import until
from tests.support.servers import Server

from .support.streams import (
    MARIADB,
    MYSQL,
    SECONDS,
    end_of_log,
    purge_older_logs,
    stream_of,
    take_changes,
    take_rows,
    to_the_end,
    user_of,
)

WITH_METADATA = ["mysql:9.7", *MARIADB]


async def test_changes_have_names_and_both_images(server: Server, schema: str) -> None:
    async with stream_of(server, tables=f"{schema}.*") as stream:
        server.query(
            f"CREATE TABLE {schema}.t (id INT UNSIGNED PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4)"
        )
        server.query(f"INSERT INTO {schema}.t VALUES (4000000000, 'é')")
        server.query(f"UPDATE {schema}.t SET name = NULL")
        server.query(f"DELETE FROM {schema}.t")
        changes = await take_changes(stream, 3)
    with_name, without_name = {"id": 4_000_000_000, "name": "é"}, {"id": 4_000_000_000, "name": None}
    assert [(change.op, change.before, change.after) for change in changes] == [
        ("insert", None, with_name),
        ("update", with_name, without_name),
        ("delete", without_name, None),
    ]
    assert {str(change.table) for change in changes} == {f"{schema}.t"}
    assert changes[0].table.primary_key == ("id",)


async def test_every_event_of_a_transaction_comes_in_order(server: Server, schema: str) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    async with stream_of(server, start=start, stop=end_of_log(server)) as stream:
        kinds = [type(event).__name__.removesuffix("Event") async for event in stream]
    if server.family == "mysql":
        assert kinds == ["Gtid", "Query", "Gtid", "Query", "TableMap", "WriteRows", "Xid"]
    else:
        assert kinds == [
            "MariadbGtid",
            "Query",
            "MariadbGtid",
            "AnnotateRows",
            "TableMap",
            "WriteRows",
            "Xid",
        ]


@pytest.mark.parametrize("server", WITH_METADATA, indirect=True)
@pytest.mark.parametrize("metadata", ["FULL", "MINIMAL", "NO_LOG"])
async def test_where_names_come_from(server: Server, schema: str, metadata: str) -> None:
    if (server.family, metadata) == ("mysql", "NO_LOG"):
        return
    [(before,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
    try:
        async with stream_of(server, tables=f"{schema}.*", events=RowsEvent) as stream:
            server.query(
                f"CREATE TABLE {schema}.t (id INT UNSIGNED, `with ``all'\"\n!` ENUM('a','b'), PRIMARY KEY (id))"
            )
            server.query(f"INSERT INTO {schema}.t VALUES (4294967295, 'b')")
            async with asyncio.timeout(SECONDS):
                event = await anext(stream)
    finally:
        server.query(f"SET GLOBAL binlog_row_metadata = {before}")
    assert isinstance(event, WriteRowsEvent)
    assert event.table.column_names == ("id", "with `all'\"\n!")
    assert event.table.names_from == ("log" if metadata == "FULL" else "history")
    assert event.rows == [(4294967295, "b")]
    assert event.table.primary_key == ("id",)


async def test_a_name_in_another_alphabet(server: Server, schema: str) -> None:
    async with stream_of(server, tables=f"{schema}.*") as stream:
        server.query(f"CREATE TABLE {schema}.`größe \\'5` (`naïve` INT, `日本` INT)")
        server.query(f"INSERT INTO {schema}.`größe \\'5` VALUES (1, 2)")
        [change] = await take_changes(stream, 1)
    assert str(change.table) == f"{schema}.größe \\'5"
    assert change.after == {"naïve": 1, "日本": 2}


async def test_columns_follow_a_ddl(server: Server, schema: str) -> None:
    async with stream_of(server, tables=f"{schema}.*") as stream:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b INT)")
        server.query(f"INSERT INTO {schema}.t VALUES (1, 10)")
        [first] = await take_changes(stream, 1)
        server.query(f"ALTER TABLE {schema}.t CHANGE b c INT")
        server.query(f"INSERT INTO {schema}.t VALUES (2, 20)")
        [second] = await take_changes(stream, 1)
        server.query(f"ALTER TABLE {schema}.t ADD z VARCHAR(5) FIRST")
        server.query(f"INSERT INTO {schema}.t VALUES ('z', 3, 30)")
        [third] = await take_changes(stream, 1)
    assert [change.after for change in (first, second, third)] == [
        {"a": 1, "b": 10},
        {"a": 2, "c": 20},
        {"z": "z", "a": 3, "c": 30},
    ]


async def test_rows_of_the_past_have_names_where_the_log_tells_them(server: Server, schema: str) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b INT)")
    server.query(f"INSERT INTO {schema}.t VALUES (1, 10)")
    server.query(f"ALTER TABLE {schema}.t ADD z VARCHAR(5) FIRST")
    options: dict[str, Any] = {"start": start, "stop": "now", "tables": f"{schema}.*"}
    assert await to_the_end(stream_of(server, **options)) == [(1, 10)]
    server.query("FLUSH BINARY LOGS")
    begun = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES ('z', 2, 20)")
    server.query(f"ALTER TABLE {schema}.t DROP z, MODIFY b VARCHAR(10)")
    # The statement that takes a column away does not say what it was: the table's creation does, in an older file.
    options["start"] = begun
    assert await to_the_end(stream_of(server, **options)) == [("z", 2, 20)]
    purge_older_logs(server)
    with pytest.raises(replica.SchemaMismatchError, match="the statement that ends at"):
        await to_the_end(stream_of(server, **options))
    [row] = await to_the_end(stream_of(server, on_schema_mismatch="positional", **options))
    # Without any metadata nothing tells that the column was text.
    assert row in (("z", 2, 20), (b"z", 2, 20))


async def test_a_table_that_is_gone(server: Server, schema: str, caplog: pytest.LogCaptureFixture) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    server.query(f"DROP TABLE {schema}.t")
    assert await to_the_end(stream_of(server, start=start, stop="now", tables=f"{schema}.*")) == [(1,)]
    # The log has its CREATE TABLE, so no name is missing; that the source has no such table now is said.
    [record] = caplog.records
    assert "matches no table of" in record.getMessage()


async def test_generated_columns_are_part_of_the_rows(mysql97: Server, mariadb118: Server) -> None:
    for server in (mysql97, mariadb118):
        with server.fresh_schema() as schema:
            async with stream_of(server, tables=f"{schema}.*") as stream:
                server.query(
                    f"CREATE TABLE {schema}.t (a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)"
                )
                server.query(f"INSERT INTO {schema}.t (a) VALUES (1)")
                [change] = await take_changes(stream, 1)
        assert change.after == {"a": 1, "v": 2, "s": 3}


@pytest.mark.parametrize("server", MARIADB, indirect=True)
async def test_mariadbs_hidden_columns(server: Server, schema: str) -> None:
    """The names that are found are those that the log itself gives with FULL metadata."""
    names: dict[str, list[tuple[str, ...]]] = {}
    steps = [
        (f"CREATE TABLE {schema}.v (a INT, b TEXT, UNIQUE (b)) WITH SYSTEM VERSIONING",),
        (
            "SET STATEMENT system_versioning_alter_history = KEEP FOR "
            f"ALTER TABLE {schema}.v ADD c INT, ADD d TEXT, ADD UNIQUE (d)",
        ),
        (
            f"DROP TABLE {schema}.v",
            f"CREATE TABLE {schema}.v (a INT, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
            "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e), b TEXT UNIQUE) "
            "WITH SYSTEM VERSIONING",
        ),
        (f"DROP TABLE {schema}.v",),
    ]
    for metadata in ("NO_LOG", "MINIMAL", "FULL"):
        names[metadata] = []
        server.query(f"SET GLOBAL binlog_row_metadata = {metadata}")
        try:
            async with stream_of(server, tables=f"{schema}.*") as stream:
                for statements in steps:
                    for statement in statements:
                        server.query(statement)
                    if len(names[metadata]) < 3:
                        server.query(f"INSERT INTO {schema}.v (a, b) VALUES ({len(names[metadata])}, UUID())")
                        [change] = await take_changes(stream, 1)
                        names[metadata].append(change.table.column_names)
        finally:
            server.query("SET GLOBAL binlog_row_metadata = NO_LOG")
    assert names["MINIMAL"] == names["FULL"]
    assert names["NO_LOG"] == names["FULL"]
    assert names["FULL"][0] == ("a", "b", "row_start", "row_end", "DB_ROW_HASH_1")
    assert names["FULL"][2] == ("a", "s", "e", "b", "DB_ROW_HASH_1")


async def test_tables_that_are_not_wanted_do_not_come(server: Server, schema: str) -> None:
    with server.fresh_schema() as other:
        for place in (f"{schema}.a", f"{schema}.b", f"{other}.a"):
            server.query(f"CREATE TABLE {place} (a INT PRIMARY KEY)")
        start = end_of_log(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for place in (f"{schema}.a", f"{schema}.b", f"{other}.a"):
                cursor.execute(f"INSERT INTO {place} VALUES (1)")
            cursor.execute("COMMIT")
        end = end_of_log(server)

        async def seen(**options: Any) -> list[str]:
            async with stream_of(server, start=start, stop=end, **options) as stream:
                return [
                    f"{type(event).__name__.removesuffix('Event')} {event.table}"
                    if isinstance(event, TableMapEvent | RowsEvent)
                    else type(event).__name__.removesuffix("Event")
                    async for event in stream
                    if not isinstance(event, replica.AnnotateRowsEvent)
                ]

        begin = ["Gtid", "Query"] if server.family == "mysql" else ["MariadbGtid"]
        wanted = [f"TableMap {schema}.a", f"WriteRows {schema}.a"]
        assert await seen(tables=f"{schema}.a") == [*begin, *wanted, "Xid"]
        assert await seen(tables="*.a", exclude_tables=f"{other}.*") == [*begin, *wanted, "Xid"]
        assert await seen(tables="nothing.*") == [*begin, "Xid"]
        assert await seen(events=[WriteRowsEvent, XidEvent], tables=f"{schema}.a") == [wanted[1], "Xid"]


async def test_chosen_columns(server: Server, schema: str) -> None:
    async with stream_of(server, tables=f"{schema}.*", columns={f"{schema}.t": ["c", "a"]}) as stream:
        server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT, c VARCHAR(5))")
        server.query(f"INSERT INTO {schema}.t VALUES (1, REPEAT('x', 100000), 'y')")
        [change] = await take_changes(stream, 1)
    assert change.after == {"a": 1, "c": "y"}


async def test_handlers_on_a_running_stream(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.orders (a INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.log (a INT PRIMARY KEY)")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.orders VALUES (1), (2)")
    server.query(f"INSERT INTO {schema}.log VALUES (1)")
    server.query(f"UPDATE {schema}.orders SET a = 3 WHERE a = 2")
    server.query(f"DELETE FROM {schema}.orders WHERE a = 1")
    stream = stream_of(server, start=start, stop="now")
    calls: list[object] = []

    @stream.on(WriteRowsEvent, table=f"{schema}.orders")
    async def inserted(event: WriteRowsEvent) -> None:
        await asyncio.sleep(0)
        calls.append(("insert", event.rows))

    @stream.on(UpdateRowsEvent)
    def updated(event: UpdateRowsEvent) -> None:
        calls.append(("update", event.rows))

    @stream.on(DeleteRowsEvent, table="*.orders")
    def deleted(event: DeleteRowsEvent) -> None:
        calls.append(("delete", event.rows))

    async with asyncio.timeout(SECONDS):
        await stream.run()
    assert calls == [
        ("insert", [(1,), (2,)]),
        ("update", [((2,), (3,))]),
        ("delete", [(1,)]),
    ]


async def test_aclose_from_another_task_while_the_source_is_idle(server: Server) -> None:
    async with stream_of(server) as stream:

        async def consume() -> int:
            return len([event async for event in stream])

        consuming = asyncio.create_task(consume())
        await asyncio.sleep(0.3)
        await stream.aclose()
        async with asyncio.timeout(SECONDS):
            await consuming


async def test_a_closed_stream_leaves_nothing_on_the_server(server: Server, schema: str) -> None:
    def sessions() -> int:
        return sum(row[1] == user for row in server.query("SHOW PROCESSLIST"))

    with user_of(server) as user:
        async with stream_of(server, user, tables=f"{schema}.*") as stream:
            server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
            server.query(f"INSERT INTO {schema}.t VALUES (1)")
            assert await take_rows(stream, 1) == [(1,)]
            # Those that looked around before may take a moment to end.
            await until(lambda: sessions() == 1)
        async with asyncio.timeout(SECONDS):
            while sessions():  # a source sees that a replica has gone when it next writes to it
                server.query(f"INSERT INTO {schema}.t SELECT MAX(a) + 1 FROM {schema}.t")
                await asyncio.sleep(0.1)


async def test_compressed_transactions(mysql97: Server) -> None:
    with mysql97.fresh_schema() as schema:
        mysql97.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b TEXT)")
        async with stream_of(mysql97, tables=f"{schema}.*", events=[RowsEvent, QueryEvent]) as stream:
            with mysql97.connect() as connection, connection.cursor() as cursor:
                cursor.execute("SET binlog_transaction_compression = ON")
                cursor.execute(f"INSERT INTO {schema}.t VALUES (1, REPEAT('x', 10000)), (2, 'y')")
                cursor.execute(f"UPDATE {schema}.t SET b = 'z'")
            changes = await take_changes(stream, 4)
            assert [change.op for change in changes] == ["insert", "insert", "update", "update"]
            assert changes[0].after == {"a": 1, "b": "x" * 10_000}
            assert changes[3].after == {"a": 2, "b": "z"}
            mysql97.query(f"INSERT INTO {schema}.t VALUES (3, 'not compressed')")
            assert await take_rows(stream, 1) == [(3, "not compressed")]
            assert stream.checkpoint is not None
            assert stream.checkpoint.gtid_set is not None


@pytest.mark.parametrize("server", MYSQL, indirect=True)
async def test_statements_of_a_rows_query_event(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    async with stream_of(server, events=replica.RowsQueryEvent) as stream:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET binlog_rows_query_log_events = ON")
            cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
        async with asyncio.timeout(SECONDS):
            event = await anext(stream)
    assert isinstance(event, replica.RowsQueryEvent)
    assert event.sql == f"INSERT INTO {schema}.t VALUES (1)"


async def test_xa_transactions(mysql97: Server, mariadb118: Server) -> None:
    for server in (mysql97, mariadb118):
        with server.fresh_schema() as schema:
            server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
            start = end_of_log(server)
            with server.connect() as connection, connection.cursor() as cursor:
                for statement in (
                    "XA START 'x'",
                    f"INSERT INTO {schema}.t VALUES (1)",
                    "XA END 'x'",
                    "XA PREPARE 'x'",
                    "XA COMMIT 'x'",
                ):
                    cursor.execute(statement)
            async with stream_of(server, start=start, stop="now") as stream:
                events = [event async for event in stream]
            assert any(isinstance(event, replica.XaPrepareEvent) for event in events)
            assert stream.position == end_of_log(server)
