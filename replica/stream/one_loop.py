"""``OneLoop``: the event loop in which a stream was opened. Its connections are waited for there alone."""

import asyncio
import contextlib
import os
import warnings
from collections.abc import Callable


class OneLoop:
    """The loop of one stream, from ``begin`` on."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def begin(self) -> None:
        """The stream is opened in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._process = os.getpid()

    def end(self) -> None:
        """The stream could not be opened."""
        self._loop = None

    def check(self) -> None:
        """Raise in another event loop than that of the connection, where its bytes would be waited for in vain."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                "the stream was opened in another event loop: open, iterate and close it below one asyncio.run()"
            )

    def drop(self, stream: object, end: Callable[[], None]) -> None:
        """Nobody holds the open stream any more: call ``end`` in its loop, and warn, as asyncio's transports do.

        The garbage collector calls this, in any thread. A forked process leaves the stream to its parent.
        """
        loop = self._loop
        if loop is None or self._process != os.getpid():
            return
        # Before the warning, which may be an error. A loop that has ended closes nothing: its transports do.
        if loop.is_running():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(end)
        text = f"unclosed {stream!r}: a stream is closed by its `async with` (`with` in replica.sync), or aclose()"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=stream)
