"""`make demo`: a MySQL in Docker, a shop that somebody works in, and its row changes as they arrive.

It starts a server, writes to it from a thread, prints what the stream yields, and removes the server again. It is
no part of the test suite.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading

import replica
from replica import BinlogStream, Change, RowsEvent

from .servers import Server, ServerPool, ServerStartError, ServerUnavailableError

SERVER = "mysql:9.7"
_SCHEMA = """
CREATE DATABASE shop;
CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(40), email VARCHAR(80));
CREATE TABLE shop.orders (
    id INT PRIMARY KEY, customer_id INT, status ENUM('new', 'paid', 'sent'), total DECIMAL(10, 2), items JSON,
    placed TIMESTAMP(3) NULL
);
"""
# Each line is one transaction.
_WORK = (
    "INSERT INTO shop.customers VALUES (1, 'Zoë', 'zoe@example.com'), (2, 'Łukasz', NULL)",
    """INSERT INTO shop.orders VALUES (1, 1, 'new', 19.90, '[{"sku": "tea", "n": 2}]', '2026-01-02 03:04:05.678')""",
    "UPDATE shop.orders SET status = 'paid' WHERE id = 1",
    """INSERT INTO shop.orders VALUES (2, 2, 'new', 5.00, '[{"sku": "cup", "n": 1}]', NULL)""",
    "UPDATE shop.customers SET email = 'lukasz@example.com' WHERE id = 2",
    "UPDATE shop.orders SET status = 'sent', total = total - 1.00",
    "DELETE FROM shop.orders WHERE id = 2",
    "DELETE FROM shop.customers WHERE id = 2",
)
_ROWS_CHANGED = 10
_TIME_LIMIT = 60.0


def main() -> int:
    with contextlib.closing(ServerPool()) as pool:
        print(f"Starting {SERVER} in Docker ...", flush=True)
        try:
            server = pool.shared(SERVER)
        except (ServerUnavailableError, ServerStartError) as error:
            print(f"The demo needs a Docker daemon and an image of {SERVER}: {error}", file=sys.stderr)
            return 1
        _run(server, _SCHEMA)
        # Names, signs and labels travel with the log from here on.
        server.query("SET GLOBAL binlog_row_metadata = FULL")
        print(f"replica.connect('mysql://repl:***@127.0.0.1:{server.port}', tables=['shop.*'])\n", flush=True)
        count = asyncio.run(asyncio.wait_for(_watch(server), _TIME_LIMIT))
    print(f"\n{count} row changes, each as it was committed.")
    return 0 if count == _ROWS_CHANGED else 1


def _run(server: Server, script: str) -> None:
    for statement in filter(None, map(str.strip, script.split(";"))):
        server.query(statement)


async def _watch(server: Server) -> int:
    """Print changes until the last one of the work is there."""
    async with replica.connect(server.dsn(), tables=["shop.*"]) as stream:
        writer = threading.Thread(target=lambda: [server.query(statement) for statement in _WORK])
        writer.start()
        try:
            return await _print_changes(stream)
        finally:
            await asyncio.to_thread(writer.join)


async def _print_changes(stream: BinlogStream) -> int:
    count = 0
    async for event in stream:
        if isinstance(event, RowsEvent):
            for change in event.changes():
                print(_line(change), flush=True)
                count += 1
        if count >= _ROWS_CHANGED:
            break
    return count


def _line(change: Change) -> str:
    if change.before is None or change.after is None:
        return f"{change.op} {change.table}  {_columns(change.before or change.after or {})}"
    changed = {
        name: f"{change.before[name]} -> {value}"
        for name, value in change.after.items()
        if value != change.before[name]
    }
    return f"{change.op} {change.table}  id={change.after['id']}  {_columns(changed)}"


def _columns(values: dict[str, object] | dict[str, str]) -> str:
    return "  ".join(f"{name}={value}" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main())
