"""Live sources of the Spark tests: rows that are written, and logs that are purged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.server.support.streams import begin_log
from tests.support.servers import Server

LIVE_SERVERS = ["mysql:9.7", "mariadb:11.8"]
WAIT = 60.0


def insert(server: Server, table: str, first: int, count: int, *, per_transaction: int = 10) -> None:
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for begin in range(first, first + count, per_transaction):
            rows = [
                (number, "x" * (number % 50))
                for number in range(begin, min(begin + per_transaction, first + count))
            ]
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s)", rows)
            connection.commit()


def insert_at_once(server: Server, table: str, rows: int, size: int) -> None:
    """One transaction with the numbers from 0 on, each with a text of that size."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for first in range(0, rows, 1000):
            values = ",".join(f"({number},'')" for number in range(first, min(first + 1000, rows)))
            cursor.execute(f"INSERT INTO {table} VALUES {values}")
        cursor.execute(f"UPDATE {table} SET v = REPEAT('x', {size})")
        connection.commit()


@contextmanager
def two_tables(server: Server, names: tuple[str, str], text_bytes: int) -> Iterator[list[str]]:
    """Tables with an id and a text, in a schema of their own, as ``schema.table``; the log begins before them."""
    begin_log(server)
    with server.fresh_schema() as schema:
        for name in names:
            server.query(f"CREATE TABLE `{schema}`.`{name}` (id INT PRIMARY KEY, v VARCHAR({text_bytes}))")
        yield [f"{schema}.{name}" for name in names]


def options_of(server: Server, tables: list[str]) -> dict[str, str]:
    """The options of a query that reads these tables."""
    return {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "password": server.replica_password,
        "includeTables": ",".join(tables),
        "heartbeat": "1",
    }


def now(options: dict[str, str]) -> str:
    """The present end of the log, for ``startingOffsets``."""
    from replica.spark.source_options import parse_options
    from replica.spark.stream_connection import connection_options
    from replica.spool.live_log import LiveLog

    with closing(LiveLog(connection_options(parse_options(options)), "")) as live:
        return json.dumps(live.end().to_dict())
