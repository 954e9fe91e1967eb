"""A consumer that is far behind, and asks about each table: what it reads of the log grows with the log alone."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import replica
from protocol.position import BinlogPosition
from replica import WriteRowsEvent
from replica.schemas.reading import TableReader
from replica.schemas.touched import Touched
from replica.source.log_scan import LogScan
from replica.source.session import Session
from tests.server.support.streams import PASSWORD, begin_log, end_of_log, user_of
from tests.support.servers import Server

FEW, MANY = 10, 40
#: Bytes of log behind each table.
FILLING = 20_000
REPLICATION = "REPLICATION SLAVE, REPLICATION CLIENT"
SERVERS = pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)


class Reads:
    """How much of the log is read for names, and how often it is begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dumps = self.bytes = 0
        dump, read = LogScan._dump, Session.read_events

        async def counted_dump(scan: LogScan, *arguments: Any) -> Any:
            self.dumps += 1
            return await dump(scan, *arguments)

        async def counted_read(session: Session, silence: float | None) -> list[bytes]:
            events = await read(session, silence)
            self.bytes += sum(map(len, events))
            return events

        monkeypatch.setattr(LogScan, "_dump", counted_dump)
        monkeypatch.setattr(Session, "read_events", counted_read)


def make(server: Server, schema: str, tables: int) -> BinlogPosition:
    """So many tables, each with one row behind the place that is returned, and statements between the rows."""
    server.query(f"CREATE TABLE {schema}.other (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.filling (id INT PRIMARY KEY, v LONGBLOB)")
    for number in range(tables):
        server.query(f"CREATE TABLE {schema}.t{number} (id INT PRIMARY KEY, a INT)")
    # None of these statements is in the log.
    begin_log(server)
    begin = end_of_log(server)
    for number in range(tables):
        server.query(f"INSERT INTO {schema}.t{number} VALUES ({number}, 1)")
        server.query(f"INSERT INTO {schema}.filling VALUES ({number}, REPEAT('x', {FILLING}))")
        if not number % 4:
            server.query(f"ALTER TABLE {schema}.other ADD c{number} INT")
    return begin


async def names_of(
    dsn: str, begin: BinlogPosition, on_row: Callable[[], object] = lambda: None, **options: Any
) -> Counter[str]:
    """The names that the first columns of the tables t0, t1... come with."""
    names: Counter[str] = Counter()
    async with replica.connect(dsn, start=begin, stop="now", reconnect=False, **options) as stream:
        async for event in stream:
            if isinstance(event, WriteRowsEvent):
                on_row()
                if event.table.name.startswith("t"):
                    names[event.table.column_names[0]] += 1
    return names


@SERVERS
async def test_tables_that_the_user_may_see_since_then(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history lacks them: each was looked for in the log from its place to the end."""
    reads = []
    for tables in (FEW, MANY):
        with server.fresh_schema() as schema, user_of(server, REPLICATION) as user:
            begin = make(server, schema, tables)
            server.query(f"GRANT SELECT ON {schema}.other TO '{user}'@'%'")
            grants = iter([f"GRANT SELECT ON {schema}.* TO '{user}'@'%'"])

            def grant(grants: Any = grants) -> None:
                for sql in grants:
                    server.query(sql)

            with monkeypatch.context() as patch:
                count = Reads(patch)
                names = await names_of(server.dsn(user, PASSWORD), begin, grant)
            # The first row came before it.
            assert names == {"@1": 1, "id": tables - 1}
            assert count.bytes < 2 * tables * (FILLING + 2000)
            reads.append(count.dumps)
    assert reads[0] == reads[1]


@contextlib.contextmanager
def writing(server: Server, table: str) -> Iterator[None]:
    """The source has new transactions all the time."""
    is_over = threading.Event()

    def run() -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            for number in itertools.count(1_000_000):
                if is_over.wait(0.001):
                    return
                cursor.execute(f"INSERT INTO {table} VALUES ({number}, 'x')")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


async def test_a_busy_source_does_not_read_its_log_for_each_table(
    mysql97: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By GTIDs it read the newest file from the beginning, whatever it sent."""
    questions: list[object] = []

    async def touched_in(reader: TableReader, begin: object, end: BinlogPosition) -> Touched:
        questions.append(begin)
        return await before(reader, begin, end)  # type: ignore[arg-type]

    before = TableReader._touched_in
    monkeypatch.setattr(TableReader, "_touched_in", touched_in)
    with mysql97.fresh_schema() as schema, user_of(mysql97, REPLICATION) as user:
        begin = make(mysql97, schema, MANY)
        sql = f"GRANT SELECT ON {schema}.* TO '{user}'@'%'"
        options: dict[str, Any] = {"start": begin, "stop": "now", "reconnect": False}
        with writing(mysql97, f"{schema}.filling"):
            async with replica.connect(mysql97.dsn(user, PASSWORD), **options) as stream:
                questions.clear()
                mysql97.query(sql)
                async for event in stream:
                    if isinstance(event, WriteRowsEvent):
                        assert event.table.names_from == "history"
    assert questions == []


@SERVERS
async def test_tables_that_were_made_anew(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows what they were before: the source was asked for each, and again behind each statement."""
    reads = []
    for tables in (FEW, MANY):
        with server.fresh_schema() as schema:
            begin = make(server, schema, tables)
            for number in range(tables):
                server.query(f"DROP TABLE {schema}.t{number}")
                server.query(f"CREATE TABLE {schema}.t{number} (a INT, id INT)")
            with monkeypatch.context() as patch:
                count = Reads(patch)
                names = await names_of(server.dsn(), begin, on_schema_mismatch="positional")
            assert names == {"@1": tables}
            assert count.bytes < 2 * tables * (FILLING + 2000)
            reads.append(count.dumps)
    assert reads[0] == reads[1]


@SERVERS
async def test_a_user_who_may_not_ask_for_the_end_of_the_log(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest file was read from its beginning twice for each table, to find its end."""
    reads = []
    for tables in (FEW, MANY):
        with server.fresh_schema() as schema, user_of(server, "REPLICATION SLAVE, SELECT") as user:
            begin = make(server, schema, tables)
            for number in range(tables):
                server.query(f"DROP TABLE {schema}.t{number}")
            with monkeypatch.context() as patch:
                count = Reads(patch)
                names = await names_of(server.dsn(user, PASSWORD), begin)
            assert names == {"@1": tables}
            reads.append(count.bytes / tables)
    assert reads[1] < 1.5 * reads[0]
