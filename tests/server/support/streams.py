"""What the tests of live streams share: users, places in the log, and reading with a limit."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql

import replica
from replica import BinlogPosition, BinlogStream, Change, Event, RowsEvent
from tests.support.servers import Server

SECONDS = 60
PASSWORD = "pässword-Secret_1"
_USER_NUMBERS = itertools.count(1)

MYSQL97_AND_MARIADB118 = ["mysql:9.7", "mariadb:11.8"]
MYSQL = ["mysql:9.7", "mysql:5.6"]
MARIADB = ["mariadb:10.11", "mariadb:11.8"]


def stream_of(server: Server, user: str | None = None, **options: Any) -> BinlogStream:
    """A stream of the replica user, or of another one with `PASSWORD`."""
    dsn = server.dsn() if user is None else server.dsn(user, PASSWORD)
    return replica.connect(dsn, **options)


def end_of_log(server: Server) -> BinlogPosition:
    file, size, *_ = server.query("SHOW BINARY LOGS")[-1]
    return BinlogPosition(file, int(size))


def begin_log(server: Server) -> None:
    """Have the log begin here: what other tests have written, statements above all, is not read from the earliest."""
    server.query("FLUSH BINARY LOGS")
    purge_older_logs(server)


def purge_older_logs(server: Server) -> None:
    """Have the log begin with its present file."""
    until = time.monotonic() + SECONDS
    # MariaDB keeps a file that a dump reads, and notices late that its replica has gone.
    while len(files := server.query("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until, files
        server.query(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
        time.sleep(0.05)


def executed(server: Server) -> str:
    """All transactions of the log, as text."""
    variable = "gtid_executed" if server.family == "mysql" else "gtid_binlog_pos"
    [(text,)] = server.query(f"SELECT @@GLOBAL.{variable}")
    return str(text).replace("\n", "")


@contextlib.contextmanager
def busy(server: Server) -> Iterator[None]:
    """A statement runs all the while: a copy finds no quiet moment, and begins at the start of the log file."""
    with contextlib.closing(server.connect()) as sleeping:
        [(number,)] = _rows(sleeping, "SELECT CONNECTION_ID()")
        thread = threading.Thread(target=_sleep, args=(sleeping,))
        thread.start()
        running = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {number} AND COMMAND = 'Query'"
        while not server.query(running):
            time.sleep(0.01)
        try:
            yield
        finally:
            server.query(f"KILL {number}")
            thread.join()


def _rows(connection: pymysql.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _sleep(connection: pymysql.Connection[Any]) -> None:
    with contextlib.suppress(pymysql.Error):
        _rows(connection, "SELECT SLEEP(600)")


@contextlib.contextmanager
def user_of(
    server: Server, grants: str = "REPLICATION SLAVE, REPLICATION CLIENT, SELECT", how: str = "BY"
) -> Iterator[str]:
    """The name of a new user with `PASSWORD`, who is dropped afterwards."""
    name = f"user_{next(_USER_NUMBERS)}"
    server.query(f"CREATE USER '{name}'@'%' IDENTIFIED {how} '{PASSWORD}'")
    try:
        if grants:
            server.query(f"GRANT {grants} ON *.* TO '{name}'@'%'")
        yield name
    finally:
        server.query(f"DROP USER '{name}'@'%'")


def sessions_of(server: Server, user: str) -> list[int]:
    """The numbers of a user's connections."""
    rows = server.query("SELECT id FROM information_schema.processlist WHERE user = %s", user)
    return [number for (number,) in rows]


def kill_sessions(server: Server, user: str) -> None:
    """End a user's connections."""
    for number in sessions_of(server, user):
        try:
            server.query(f"KILL {number}")
        except pymysql.OperationalError as error:
            # It has ended meanwhile.
            assert error.args[0] == 1094  # noqa: PT017


async def take(stream: BinlogStream, count: int) -> list[Event]:
    """The next so many events."""
    async with asyncio.timeout(SECONDS):
        return [await anext(stream) for _ in range(count)]


async def take_rows(stream: BinlogStream, count: int) -> list[tuple[Any, ...]]:
    """The next so many rows; of updates, both images."""
    rows: list[Any] = []
    async with asyncio.timeout(SECONDS):
        while len(rows) < count:
            event = await anext(stream)
            if isinstance(event, RowsEvent):
                rows += event.rows  # type: ignore[attr-defined]
    return rows


async def take_changes(stream: BinlogStream, count: int) -> list[Change]:
    """The next so many changes."""
    changes: list[Change] = []
    async with asyncio.timeout(SECONDS):
        while len(changes) < count:
            event = await anext(stream)
            if isinstance(event, RowsEvent):
                changes += event.changes()
    return changes


async def to_the_end(stream: BinlogStream) -> list[tuple[Any, ...]]:
    """All rows of a stream with a stop."""
    rows: list[Any] = []
    async with asyncio.timeout(SECONDS), stream:
        async for event in stream:
            if isinstance(event, RowsEvent):
                rows += event.rows  # type: ignore[attr-defined]
    return rows


COMPRESSIONS = [
    ("mysql:9.7", "zlib"),
    ("mysql:9.7", "zstd"),
    ("mysql:5.6", "zlib"),
    ("mariadb:10.11", "zlib"),
    ("mariadb:11.8", "zlib"),
]
