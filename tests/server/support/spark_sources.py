"""Live sources of the Spark tests: rows that are written, and logs that are purged."""

from __future__ import annotations

import time

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


def purge(server: Server) -> None:
    """Have the source forget all of its log but a new file; it does not while it still sends the old ones."""
    server.query("FLUSH BINARY LOGS")
    until = time.monotonic() + WAIT
    while len(files := server.query("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < until, files
        server.query(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
        time.sleep(0.1)
