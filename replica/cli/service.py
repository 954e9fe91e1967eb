"""What subcommands that run until somebody stops them share: an event loop, and signals that end it in order."""

import asyncio
import signal
from collections.abc import Awaitable, Callable


def run_until_stopped(run: Callable[[], Awaitable[None]], stop: Callable[[], Awaitable[None]]) -> None:
    """Run in an event loop of its own. Ctrl-C and SIGTERM call ``stop``, whereupon ``run`` is to return."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []

        def begin_to_stop() -> None:
            # A second signal finds it under way.
            if not stopping:
                stopping.append(loop.create_task(_awaited(stop)))

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, begin_to_stop)
        try:
            await run()
            await asyncio.gather(*stopping)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    asyncio.run(main())


async def _awaited(function: Callable[[], Awaitable[None]]) -> None:
    await function()
