"""Runs the subcommands that go on until they are stopped: an event loop that a signal ends cleanly."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..stream.binlog_stream import BinlogStream

# Seconds after the first signal from which a second one ends the process at once: the output may be a pipe that
# nobody reads. An earlier second signal is the same Ctrl-C, passed on by the program that started this process.
_SECOND_SIGNAL_SECONDS: Final = 1.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_stopped(run: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
    """Run in a new event loop. Ctrl-C, SIGTERM and SIGHUP call ``stop``, which must make ``run`` return.

    A second signal, more than a second later, raises ``KeyboardInterrupt`` at once. ``nohup`` ignores SIGHUP, and so
    do commands under it.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []
        first: list[float] = []

        def handle(number: int, frame: FrameType | None) -> None:
            # A handler of the event loop would not run while a write blocks.
            if not first:
                first.append(time.monotonic())
                loop.call_soon_threadsafe(lambda: stopping.append(loop.create_task(_awaited(stop))))
            elif time.monotonic() - first[0] > _SECOND_SIGNAL_SECONDS:
                raise KeyboardInterrupt

        is_detached = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [number for number in _SIGNALS if not (number == signal.SIGHUP and is_detached)]
        before = [(number, signal.signal(number, handle)) for number in numbers]
        try:
            await run()
            await asyncio.gather(*stopping)
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    asyncio.run(main())


def follow_until_stopped(stream: "BinlogStream", follow: Callable[[], Awaitable[None]]) -> None:
    """Like ``run_until_stopped`` for a stream: a signal closes it, or cancels a connection attempt at once."""
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
