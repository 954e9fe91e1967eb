"""Waiting for what nobody announces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_POLL_SECONDS = 0.01


async def until(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    """Return when a condition holds; TimeoutError when it does not within so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)
