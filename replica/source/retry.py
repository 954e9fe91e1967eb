"""The memory of a reconnect loop: earlier failures, whether to try again, and when.

A stream, a relay or Spark's intake has one ``Retry`` for its whole life. The user's ``ReconnectPolicy`` decides. This
module opens no connection.
"""

import asyncio
import contextlib
import logging
from typing import Final

from protocol.errors import ReplicaError

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.reconnect import FailureCount, ReconnectPolicy

# The failures of half a minute, with the pauses of the default policy.
_LASTING: Final = 8


class Retry:
    """Decides after each lost connection whether to try again. ``closing`` ends every wait."""

    def __init__(self, options: Options, closing: asyncio.Event, logger: logging.Logger) -> None:
        self._policy: ReconnectPolicy = options.reconnect
        self._address = options.address
        self._closing = closing
        self._logger = logger
        self._failures = FailureCount()
        self._at = 0.0

    def forget(self) -> None:
        """Forget earlier failures: the connection has brought something new."""
        self._failures.forget()

    def lost(self, error: ReplicaError) -> None:
        """Note a failed connection. Raises what the policy raises: the error itself, if trying again is of no use."""
        failure = self._failures.add(error)
        delay = self._policy.delay(failure)
        self._at = asyncio.get_running_loop().time() + delay
        log = self._logger.warning if _is_told(failure.attempt) else self._logger.info
        facts = log_facts(
            "connection-lost", source=self._address, error=error, attempt=failure.attempt, delay=delay
        )
        log("%s -- trying again in %.1f s", error, delay, extra=facts)

    async def wait(self) -> None:
        """Wait until the next try; returns at once when ``closing`` is set. A cancelled wait may be repeated."""
        left = self._at - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._closing.wait()


def _is_told(attempt: int) -> bool:
    """Whether a failure is a warning: the first one, and then one each time that the outage lasts twice as long."""
    return attempt == 0 or (attempt >= _LASTING and attempt.bit_count() == 1)
