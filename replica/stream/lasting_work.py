"""``LastingWork``: work of a stream that goes on when the call that awaits it is cancelled."""

import asyncio
from collections.abc import Callable, Coroutine

from protocol.errors import ConnectionLostError


class LastingWork:
    """One piece of work at a time.

    A user who asks for events with a short timeout would otherwise start the work anew each time, without end.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._subject: object = None

    @property
    def is_begun(self) -> bool:
        """Whether a call has begun work, and none has had its result."""
        return self._task is not None

    async def see_through(self, subject: object, work: Callable[[], Coroutine[object, object, None]]) -> None:
        """Await ``work()``, or what a cancelled call has begun for the same subject."""
        if self._subject is not subject:
            # The result is of no use any more.
            await self.wait_closed()
            self._task, self._subject = None, subject
        if self._task is None:
            self._task = asyncio.create_task(work())
        task = self._task
        await asyncio.wait((task,))
        self._task = None
        if task.cancelled():
            raise ConnectionLostError("the stream was closed while it was connecting")
        task.result()

    def cancel(self) -> None:
        """End the work, if there is any."""
        if self._task is not None:
            self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of work, without its result."""
        task = self._task
        if task is not None:
            await asyncio.wait((task,))
            # asyncio warns about an exception that nothing has retrieved.
            _ = task.cancelled() or task.exception()
