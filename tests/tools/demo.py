"""`make demo SERVER=mysql:9.7`: a real server in Docker, the demo's shop at work in it, its changes as they arrive.

It starts a server, writes to it from a thread, shows what the stream yields as `mysql-replica demo` does, and removes
the server again. It is no part of the test suite.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from dataclasses import replace

from replica import BinlogPosition
from replica.cli.console import Console
from replica.cli.demo import Shown
from replica.cli.paint import Paint
from replica.config.options import Options
from replica.statistics.layout import Span
from replica.stream.binlog_stream import BinlogStream
from tests.faults.waiting import until
from tests.support import shop
from tests.support.servers import SERVERS, Server, ServerPool, ServerStartError, ServerUnavailableError

SERVER = "mysql:9.7"
_TRANSACTIONS = 24
_PAUSE = 0.1
_TIME_LIMIT = 60.0
# MySQL 5.6 has neither the type nor metadata.
_JSON_SINCE = (5, 7)
_BINARY_LOG_STATUS_SINCE = (8, 2)


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else SERVER
    if name not in SERVERS:
        print(f"The demo knows {', '.join(SERVERS)}, not {name}.", file=sys.stderr)
        return 2
    console = Console.standard()
    with contextlib.closing(ServerPool()) as pool:
        print(f"Starting {name} in Docker ...", flush=True)
        try:
            server = pool.shared(name)
        except (ServerUnavailableError, ServerStartError) as error:
            print(f"The demo needs a Docker daemon and an image of {name}: {error}", file=sys.stderr)
            return 1
        paint = Paint(console.output)
        shown = Shown(paint)
        asyncio.run(asyncio.wait_for(watch(server, shown, paint, console), _TIME_LIMIT))
    return 0 if shown.statistics.with_rows >= _TRANSACTIONS // 2 else 1


async def watch(server: Server, shown: Shown, paint: Paint, console: Console) -> None:
    """Show the shop's first transactions while they are made."""
    has_json = server.version >= _JSON_SINCE
    if has_json:
        # Names, signs and labels travel with the log from here on.
        server.query("SET GLOBAL binlog_row_metadata = FULL")
    options = Options.build(server.dsn(), {"start": "now"})
    stream = BinlogStream(replace(options, cells=shown.renderer.cells))
    start = time.perf_counter()
    async with stream:
        paint.write(
            [Span(f'replica.connect("mysql://repl:***@{server.host}:{server.port}", start="now")', "name")]
        )
        paint.write([])
        closing = asyncio.create_task(_work(server, stream, "JSON" if has_json else "TEXT"))
        try:
            async for event in stream:
                shown.add(event)
                console.output.flush()
        finally:
            await closing
    for line in shown.summary(time.perf_counter() - start):
        paint.write(line)
    console.output.flush()


async def _work(server: Server, stream: BinlogStream, json_type: str) -> None:
    """Do the shop's work, and close the stream when it has all of it."""
    try:
        await asyncio.to_thread(_write, server, json_type)
        is_new = server.family == "mysql" and server.version >= _BINARY_LOG_STATUS_SINCE
        sql = "SHOW BINARY LOG STATUS" if is_new else "SHOW MASTER STATUS"
        end = BinlogPosition(*(await asyncio.to_thread(server.query, sql))[0][:2])
        await until(lambda: stream.position == end)
    finally:
        await stream.aclose()


def _write(server: Server, json_type: str) -> None:
    for sql in shop.create_statements(json_type):
        server.query(sql)
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for work in shop.transactions(_TRANSACTIONS):
            for sql in work.statements:
                cursor.execute(sql)
            connection.commit()
            time.sleep(_PAUSE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
