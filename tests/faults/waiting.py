"""Waiting for what nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_POLL_SECONDS = 0.01


async def ended(process: asyncio.subprocess.Process) -> None:
    """Wait until a process ends, which has to be without an error; whatever happens here, it does not go on."""
    try:
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Return when a condition holds; TimeoutError when it does not within so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
