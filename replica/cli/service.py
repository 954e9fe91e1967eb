"""What subcommands that run until somebody stops them share: an event loop, and signals that end it in order."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Final

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


async def _awaited(function: Callable[[], Awaitable[None]]) -> None:
    await function()
