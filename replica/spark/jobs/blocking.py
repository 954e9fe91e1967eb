"""Runs a coroutine for code that is not asynchronous, also where an event loop runs already, as in a notebook."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_aside(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of the coroutine, which runs in a new thread. Raises the coroutine's errors."""
    run: Callable[[Coroutine[Any, Any, _T]], _T] = asyncio.run
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run, work).result()
