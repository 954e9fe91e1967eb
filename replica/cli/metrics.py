"""``--metrics HOST:PORT``: an HTTP endpoint with ``/metrics`` (OpenMetrics) and ``/healthz``, in the event loop.

It answers GET, one request a connection, and reads no more of a request than its first lines.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import MappingProxyType
from typing import Final

from protocol.errors import ConfigurationError
from protocol.records import record

from ..config.open_metrics import CONTENT_TYPE
from .arguments import read_address
from .console import Console

_SECONDS: Final = 5.0
_LONGEST: Final = 8192
#: Connections at a time: more of them could take all files that the process may open, and the stream needs some.
_MOST: Final = 50
_REASONS: Final = MappingProxyType(
    {200: "OK", 400: "Bad Request", 404: "Not Found", 503: "Service Unavailable"}
)


@record(frozen=True, slots=True)
class Report:
    """What a command says of itself: ``state`` in a word, ``is_healthy`` for ``/healthz``, ``metrics`` as text."""

    state: str
    is_healthy: bool
    metrics: str


@contextlib.asynccontextmanager
async def serving_metrics(
    address: str | None, report: Callable[[], Report], console: Console
) -> AsyncIterator[None]:
    """Serve the report while the block runs; do nothing without an address. Raises ``ConfigurationError``."""
    if address is None:
        yield
        return
    host, port = read_address("--metrics", address)
    waiting: dict[asyncio.StreamWriter, None] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(waiting) == _MOST:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.transport.abort()
        waiting[writer] = None
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request, report()))
                await writer.drain()
        waiting.pop(writer, None)
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_LONGEST)
    except OSError as error:
        raise ConfigurationError(f"--metrics: {address}: {error.strerror or error}") from error
    async with server:
        place = server.sockets[0].getsockname()
        console.note(f"metrics at http://{host}:{place[1]}/metrics")
        yield


def _response(request: bytes, report: Report) -> bytes:
    words = request.split(b"\r\n", 1)[0].split()
    kind = "text/plain; charset=utf-8"
    if len(words) != 3 or words[0] not in (b"GET", b"HEAD"):
        code, body = 400, "only GET\n"
    elif words[1] == b"/metrics":
        code, body, kind = 200, report.metrics, CONTENT_TYPE
    elif words[1] == b"/healthz":
        code, body = 200 if report.is_healthy else 503, f"{report.state}\n"
    else:
        code, body = 404, "/metrics or /healthz\n"
    content = body.encode()
    head = (
        f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if words[:1] == [b"HEAD"] else content)
