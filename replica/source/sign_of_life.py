"""Whether a source that sends something is alive: what comes in drops is waited for no longer than silence."""

import asyncio
from typing import Final

#: This many bytes of something incomplete are a sign of life, too: it may be large and the network slow.
SIGN_OF_LIFE: Final = 1 << 16


class SignOfLife:
    """Since when a connection waits for the next whole row or event. ``renew()`` when one has come."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._bytes_then = 0
        #: ``extend`` was called, and nothing whole has come since.
        self.is_extended = False

    def renew(self) -> None:
        """Something whole has come, or the source is known to be alive: a new period begins with the next wait."""
        self._since = None
        self.is_extended = False

    def left(self, silence: float, received: int) -> float:
        """Seconds left of a period of ``silence``; ``received`` are all bytes of the connection so far."""
        now = asyncio.get_running_loop().time()
        if self._since is None or received - self._bytes_then >= SIGN_OF_LIFE:
            self._since, self._bytes_then, self.is_extended = now, received, False
        return self._since + silence - now

    def extend(self, silence: float, seconds: float) -> None:
        """Let a period that is over last so much longer."""
        self._since = asyncio.get_running_loop().time() - silence + seconds
        self.is_extended = True
