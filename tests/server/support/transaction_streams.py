"""What the tests of transactions on real sources share: short forms of what they see, and servers by family."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from replica import BinlogStream, Change
from replica.sql.xa import Xid
from replica.transactions.units import Outcome
from tests.support.servers import Server

from .streams import SECONDS, end_of_log, stream_of

THREE = ["mysql:9.7", "mysql:5.6", "mariadb:11.8"]
WITH_XA = ["mysql:9.7", "mariadb:11.8"]

on_three = pytest.mark.parametrize("server", THREE, indirect=True)
on_xa = pytest.mark.parametrize("server", WITH_XA, indirect=True)
on_mariadb = pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
on_mysql97 = pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)


class Seen(NamedTuple):
    outcome: Outcome | None
    changes: list[tuple[object, ...]]
    ddl: list[str]
    xid: Xid | None = None


def short(change: Change) -> tuple[object, ...]:
    """Kind, table and the values of an image: `("insert", "t", 1)`; of an update both images."""
    values = [value for image in (change.before, change.after) if image for value in image.values()]
    return change.op, change.table.name, *values


def run(server: Server, schema: str, *statements: str) -> None:
    """On one connection; what the server refuses is refused for the test, too."""
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def stream_from(server: Server, schema: str, start: object, **options: Any) -> BinlogStream:
    """What has been logged since then."""
    return stream_of(server, tables=f"{schema}.*", start=start, stop=end_of_log(server), **options)


async def seen_since(server: Server, schema: str, start: object) -> list[Seen]:
    seen = []
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        async for tx in stream.transactions():
            changes = [short(change) async for change in tx]
            seen.append(Seen(tx.outcome, changes, [statement.sql for statement in tx.ddl], tx.xid))
    return seen


def insert(*ids: int, table: str = "t") -> list[tuple[object, ...]]:
    return [("insert", table, number) for number in ids]


@contextlib.contextmanager
def compressing(server: Server) -> Iterator[None]:
    """Transactions as compressed payloads on MySQL, compressed events on MariaDB."""
    variable = "binlog_transaction_compression" if server.family == "mysql" else "log_bin_compress"
    server.query(f"SET GLOBAL {variable} = ON")
    try:
        yield
    finally:
        server.query(f"SET GLOBAL {variable} = OFF")
