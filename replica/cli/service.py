"""What subcommands that run until somebody stops them share: an event loop, and signals that end it in order."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..stream.binlog_stream import BinlogStream

# Whoever asks again after so many seconds has waited for nothing: the output may go to somebody who does not read.
# Sooner, it is the same Ctrl-C, passed on by what has started this process.
_PATIENCE: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run_until_stopped(run: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
    """Run in an event loop of its own. Ctrl-C and SIGTERM call ``stop``, whereupon ``run`` is to return.

    A signal that comes more than a second later raises ``KeyboardInterrupt`` wherever the process stands.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []
        first: list[float] = []

        def handle(number: int, frame: FrameType | None) -> None:
            # The loop's own handlers would not run while a write blocks.
            if not first:
                first.append(time.monotonic())
                loop.call_soon_threadsafe(lambda: stopping.append(loop.create_task(_awaited(stop))))
            elif time.monotonic() - first[0] > _PATIENCE:
                raise KeyboardInterrupt

        before = [(number, signal.signal(number, handle)) for number in _SIGNALS]
        try:
            await run()
            await asyncio.gather(*stopping)
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    asyncio.run(main())


def follow_until_stopped(stream: "BinlogStream", follow: Callable[[], Awaitable[None]]) -> None:
    """As ``run_until_stopped``, with the stream closed at the end; while it is connecting it is given up at once."""
    following: list[asyncio.Task[object] | None] = []
    is_given_up = False

    async def run() -> None:
        following.append(asyncio.current_task())
        try:
            await follow()
        except asyncio.CancelledError:
            if not is_given_up:
                raise

    async def stop() -> None:
        nonlocal is_given_up
        task = following[0] if following else None
        if stream.server_version is None and task is not None:
            is_given_up = True
            task.cancel()
        else:
            await stream.aclose()

    run_until_stopped(run, stop)


async def _awaited(function: Callable[[], Awaitable[None]]) -> None:
    await function()
