"""Tables read while statements change them, and compared once the log is at its end."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet, parse_gtid_set
from protocol.position import BinlogPosition
from replica import FileSchemaStore
from replica.config.options import Options
from replica.schemas import reconciliation, schema_keeper
from replica.schemas.reading import TableReader
from replica.schemas.reconciliation import only_tables
from replica.schemas.shape import Shape
from replica.source.server_facts import ask
from replica.source.session import Session
from replica.sql.token_reader import TableName
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import (
    PASSWORD,
    SECONDS,
    begin_log,
    end_of_log,
    executed,
    stream_of,
    user_of,
)
from tests.support.servers import Server
from tests.support.socket_source import until

NO_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
# The default, which other tests leave for speed; the log's end is known this long before it is sent.
SYNCED = ("--sync-binlog=1", "--binlog-group-commit-sync-delay=5000")
READINGS = 150


@contextlib.contextmanager
def renaming(server: Server, table: TableName) -> Iterator[None]:
    """The names of two columns are exchanged again and again."""
    is_over = threading.Event()

    def run() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            # A pause now and then leaves a reading room.
            while not is_over.wait(0.004):
                cursor.execute(f"ALTER TABLE {table} RENAME COLUMN a TO b, RENAME COLUMN b TO a")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("gtids", [(), NO_GTIDS], ids=["GTID", "default"])
@pytest.mark.parametrize("sync", [(), SYNCED], ids=["flushed", "synced"])
async def test_a_reading_is_right_for_its_place(
    gtids: tuple[str, ...], sync: tuple[str, ...], extra_server: Callable[..., Server]
) -> None:
    """MySQL logs a statement before information_schema shows what it did, and before it sends it."""
    server = extra_server("mysql:9.7", *gtids, *sync)
    with server.fresh_schema() as schema:
        table = TableName(schema, "t")
        server.query(f"CREATE TABLE {table} (a INT, b INT)")
        begin = end_of_log(server)
        found: list[tuple[BinlogPosition, str]] = []
        session = await Session.open(Options.build(server.dsn(), {"tables": f"{schema}.*"}))
        try:
            source = await ask(session)
            reader = TableReader(session, source)
            with renaming(server, table):
                for _ in range(READINGS):
                    reading = await reader.read(only_tables([table]))
                    state = reading.catalog.get(table)
                    if isinstance(state, Shape):
                        found.append((reading.place, state.columns[0].name))
            statements = await reader.statements(begin, end_of_log(server))
        finally:
            await session.aclose()
    ends = [logged.end for logged in statements]
    assert len(ends) > READINGS / 4
    # The reader gives up on a table that never rests.
    assert len(found) > READINGS / 4
    wrong = [place for place, name in found if name != "ab"[bisect.bisect_right(ends, place) % 2]]
    assert wrong == []


def without(now: str, after: str, before: str) -> AnyGtidSet:
    """The transactions of ``now`` without those between ``before`` and ``after``."""
    whole, early = parse_gtid_set(now), parse_gtid_set(before)
    if isinstance(whole, GtidSet):
        return whole - (GtidSet(after) - GtidSet(before))
    assert isinstance(early, MariadbGtidSet)
    return MariadbGtidSet([*early, *(gtid for gtid in whole if gtid.domain_id == 7)])


async def test_statements_that_the_source_leaves_out_are_followed(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """A GTID set with a gap (MySQL), or of one domain behind another (MariaDB): what it has stands behind the gap."""
    table = f"{schema}.t"
    server.query(f"CREATE TABLE {table} (a INT, b INT)")
    store = FileSchemaStore(tmp_path / "schemas")
    with user_of(server) as user:
        options: dict[str, Any] = {"tables": f"{schema}.*", "schemas": store, "stop": "now"}
        dsn = server.dsn(user, PASSWORD)
        async with replica.connect(dsn, **options) as stream:
            async for _ in stream:
                pass
        before = executed(server)
        server.query(f"INSERT INTO {table} VALUES (1, 2)")
        after = executed(server)
        with server.connect() as connection, connection.cursor() as cursor:
            if server.family == "mariadb":
                cursor.execute("SET gtid_domain_id = 7")
            cursor.execute(f"ALTER TABLE {table} CHANGE a b INT, CHANGE b a INT")
        start = without(executed(server), after, before)
        server.query(f"INSERT INTO {table} VALUES (3, 4)")
        rows = []
        async with replica.connect(dsn, **(options | {"start": start})) as stream:
            async for event in stream:
                if isinstance(event, replica.WriteRowsEvent):
                    rows += [change.after for change in event.changes()]
    assert rows == [{"a": 1, "b": 2}, {"b": 3, "a": 4}]


async def test_a_start_by_gtids_reads_no_log_before_it(server: Server, schema: str) -> None:
    """The server says that its dump begins at the start of a file: that is far before what it sends."""
    table = f"{schema}.t"
    server.query(f"CREATE TABLE {table} (a INT PRIMARY KEY, b LONGBLOB)")
    for number in range(8):
        server.query(f"INSERT INTO {table} VALUES ({number}, REPEAT('abcdefgh', 100000))")
    start = parse_gtid_set(executed(server))
    server.query(f"INSERT INTO {table} VALUES (8, 'x')")
    async with FaultProxy(server.port) as proxy:
        assert await rows_since(proxy, server, schema, start) == [{"a": 8, "b": b"x"}]
        assert proxy.dump_bytes < 1 << 20


@pytest.mark.parametrize("is_by_gtid", [True, False])
async def test_names_that_a_statement_took_away_stand_before_the_start(
    server: Server, schema: str, is_by_gtid: bool
) -> None:
    """What the table was, the CREATE TABLE in front of the start says: the log's file is read from its beginning.

    MariaDB 11.8 has an index of GTIDs: the place that it tells first is a transaction shortly before the start.
    """
    table = f"{schema}.t"
    server.query(f"CREATE TABLE {table} (a INT PRIMARY KEY, b INT, d LONGBLOB)")
    server.query(
        f"INSERT INTO {table} VALUES (1, 1, REPEAT('abcdefgh', 100000)), (2, 1, REPEAT('abcd', 50000))"
    )
    server.query(f"UPDATE {table} SET d = NULL")
    start = parse_gtid_set(executed(server)) if is_by_gtid else end_of_log(server)
    server.query(f"INSERT INTO {table} VALUES (8, 1, 'x')")
    server.query(f"ALTER TABLE {table} CHANGE a c BIGINT")
    server.query(f"INSERT INTO {table} VALUES (9, 2, 'y')")
    async with FaultProxy(server.port) as proxy:
        rows = await rows_since(proxy, server, schema, start)
    assert rows == [{"a": 8, "b": 1, "d": b"x"}, {"c": 9, "b": 2, "d": b"y"}]


async def rows_since(
    proxy: FaultProxy, server: Server, schema: str, start: AnyGtidSet | BinlogPosition
) -> list[Any]:
    """The rows that were inserted since, with their names."""
    rows: list[Any] = []
    async with stream_through(proxy, server, start=start, stop="now", tables=f"{schema}.*") as stream:
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                rows += [change.after for change in event.changes()]
    return rows


async def test_a_statement_that_was_not_logged_is_noticed(
    server: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Behind the next statement that is logged, once the log is at its end."""
    caplog.set_level(logging.WARNING)
    server.query(f"CREATE TABLE {schema}.t (a INT, b INT)")
    rows: list[dict[str, Any]] = []
    async with replica.connect(server.dsn(), tables=f"{schema}.*") as stream:

        async def read() -> None:
            async for event in stream:
                if isinstance(event, replica.WriteRowsEvent):
                    rows.extend(dict(change.after or {}) for change in event.changes())

        task = asyncio.create_task(read())
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            cursor.execute(f"ALTER TABLE {schema}.t CHANGE a b INT, CHANGE b a INT")
            cursor.execute("SET sql_log_bin = 1")
            cursor.execute(f"ALTER TABLE {schema}.t COMMENT 'x', ADD c INT")
        tracker = stream._schemas.tracker
        async with asyncio.timeout(SECONDS):
            await until(lambda: tracker.statements > 0 and not tracker.changed)
            server.query(f"INSERT INTO {schema}.t VALUES (1, 2, 3)")
            await until(lambda: bool(rows) or task.done())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert rows == [{"b": 1, "a": 2, "c": 3}]
    [record] = [record for record in caplog.records if "not logged" in record.getMessage()]
    assert f"other columns of {schema}.t" in record.getMessage()


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_statement_that_was_not_logged_is_noticed_by_the_id_of_the_table(
    server: Server,
    schema: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_busy: bool,
) -> None:
    """Without another statement. Rows had the names from before it for as long as the stream ran."""
    caplog.set_level(logging.WARNING)
    if is_busy:
        monkeypatch.setattr(reconciliation, "_PATIENCE", 0.2)
    server.query(f"CREATE TABLE {schema}.t (a INT, b INT)")
    server.query(f"CREATE TABLE {schema}.u (c INT)")
    rows: list[dict[str, Any]] = []
    store = FileSchemaStore(tmp_path / "schemas")
    async with replica.connect(server.dsn(), tables=f"{schema}.*", schemas=store) as stream:
        begin = stream.checkpoint

        async def read() -> None:
            async for event in stream:
                if isinstance(event, replica.WriteRowsEvent) and event.table.name == "t":
                    rows.extend(dict(change.after or {}) for change in event.changes())

        task = asyncio.create_task(read())
        async with asyncio.timeout(SECONDS):
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {schema}.t VALUES (1, 2)")
                await until(lambda: len(rows) == 1 or task.done())
                cursor.execute("SET sql_log_bin = 0")
                cursor.execute(f"ALTER TABLE {schema}.t CHANGE a b INT, CHANGE b a INT")
                cursor.execute("SET sql_log_bin = 1")
                cursor.execute(f"INSERT INTO {schema}.t VALUES (3, 4)")
            await until(lambda: len(rows) == 2 or task.done())
            assert stream._schemas.tracker.changed
            while is_busy and "not logged" not in caplog.text:
                await asyncio.to_thread(server.query, f"INSERT INTO {schema}.u VALUES (1)")
            await until(lambda: "not logged" in caplog.text or task.done())
            server.query(f"INSERT INTO {schema}.t VALUES (5, 6)")
            await until(lambda: len(rows) == 3 or task.done())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert rows == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"b": 5, "a": 6}]
    # Now the second row is known, too, and the first one still is.
    again = []
    async with replica.connect(
        server.dsn(), tables=f"{schema}.t", schemas=store, start=begin, stop="now"
    ) as stream:
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                again += [change.after for change in event.changes()]
    assert again == [{"a": 1, "b": 2}, {"b": 3, "a": 4}, {"b": 5, "a": 6}]


async def test_what_no_checkpoint_needs_is_forgotten(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_keeper, "_MOST_ADDED", 10)
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    store = FileSchemaStore(tmp_path / "schemas")

    async def follow(start: object = None) -> replica.Checkpoint:
        options: dict[str, Any] = {"schemas": store, "stop": "now", "start": start or "now"}
        async with replica.connect(server.dsn(), tables=f"{schema}.*", **options) as stream:
            async for _ in stream:
                pass
            assert stream.checkpoint is not None
            return stream.checkpoint

    place = await follow()
    for number in range(30):
        server.query(f"ALTER TABLE {schema}.t CHANGE a{number or ''} a{number + 1} INT")
    place = await follow(place)
    assert len(known_places(store, schema)) > 20
    begin_log(server)
    with contextlib.ExitStack() as stack:
        stack.callback(server.query, f"ALTER TABLE {schema}.t CHANGE a60 z INT")
        for number in range(30, 60):
            server.query(f"ALTER TABLE {schema}.t CHANGE a{number} a{number + 1} INT")
    await follow(place)
    assert 2 < len(known_places(store, schema)) < 45


def known_places(store: FileSchemaStore, schema: str) -> list[BinlogPosition]:
    """The places at which the table's shape has changed, as the store has them."""
    lines = store.load()
    assert lines is not None
    return schema_keeper.history_of(store, lines).places_of(TableName(schema, "t"))


async def test_who_may_select_some_columns_is_told(server: Server, schema: str) -> None:
    """Only these are in information_schema, and nothing that the log says leads to them."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT, secret INT)")
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        server.query(f"GRANT SELECT (id, n) ON {schema}.t TO '{user}'@'%'")
        start = end_of_log(server)
        server.query(f"INSERT INTO {schema}.t VALUES (1, 2, 3)")
        options: dict[str, Any] = {"start": start, "stop": "now", "tables": f"{schema}.*"}
        with pytest.raises(replica.SchemaMismatchError, match=rf"GRANT SELECT ON {schema}\.t shows all"):
            await read_to_the_end(stream_of(server, user, **options))


async def test_who_may_select_all_columns_is_told_something_else(server: Server, schema: str) -> None:
    """The log lacks a statement, and no privilege helps."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, n INT, m INT)")
    start = end_of_log(server)
    server.query(f"INSERT INTO {schema}.t VALUES (1, 2, 3)")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute(f"ALTER TABLE {schema}.t DROP COLUMN m")
    options: dict[str, Any] = {"start": start, "stop": "now", "tables": f"{schema}.*"}
    with pytest.raises(replica.SchemaMismatchError, match=r"that the log lacks.*sql_log_bin=0") as caught:
        await read_to_the_end(replica.connect(server.dsn(), tls="disabled", **options))
    assert "GRANT" not in str(caught.value)


async def read_to_the_end(stream: replica.BinlogStream) -> None:
    async with stream:
        async for _ in stream:
            pass
