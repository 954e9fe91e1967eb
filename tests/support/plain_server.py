"""A plain asyncio server on loopback for tests of the transport."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from replica.config.options import Options

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(serve: Client) -> AsyncIterator[Options]:
    tasks: list[asyncio.Task[None] | None] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await serve(reader, writer)
        writer.close()

    listening = await asyncio.start_server(guarded, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield Options.build(None, {"host": "127.0.0.1", "port": port, "user": "repl", "tls": "disabled"})
    finally:
        listening.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*filter(None, tasks))
            await listening.wait_closed()
