"""``in_thread``: calls a function that blocks in a thread of its own, as ``asyncio.to_thread`` does.

The executor of an event loop takes no work once the main thread has ended: a script whose worker thread reads a
stream lost it at the next host name that it had to look up. The interpreter also waits for the executor's threads
when it ends, and a name server that does not answer may keep such a thread for long.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

_Result = TypeVar("_Result")


async def in_thread(function: Callable[..., _Result], *arguments: object) -> _Result:
    """What the function returns, or its error. If this is cancelled, nobody waits for the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not future.done():
            set_outcome(outcome)

    def work() -> None:
        try:
            outcome = partial(settle, future.set_result, function(*arguments))
        except BaseException as error:
            outcome = partial(settle, future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(outcome)

    try:
        threading.Thread(target=work, name="replica-call", daemon=True).start()
    except RuntimeError:
        # No thread begins in functions of ``atexit`` (Python 3.12), nor where the system has no more of them.
        return function(*arguments)
    return await future
