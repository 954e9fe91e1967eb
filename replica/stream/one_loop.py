"""``OneLoop``: the event loop in which a stream was opened. Its connections are waited for there alone."""

import asyncio


class OneLoop:
    """The loop of one stream, from ``begin`` on."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """The stream is opened in the running loop."""
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        """The stream could not be opened."""
        self._loop = None

    def check(self) -> None:
        """Raise in another event loop than that of the connection, where its bytes would be waited for in vain."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise RuntimeError(
                "the stream was opened in another event loop: open, iterate and close it below one asyncio.run()"
            )
