"""The reconnect loop's memory: which failures there were, whether to try again, and when.

One of these serves a stream, a relay or Spark's intake for its whole life. The policy is the user's
(``ReconnectPolicy``); nothing here opens a connection.
"""

import asyncio
import contextlib
import logging

from protocol.errors import ReplicaError

from ..config.reconnect import FailureCount, ReconnectPolicy


class Retry:
    """Decides about one connection after the other. ``closing`` ends every wait."""

    def __init__(self, policy: ReconnectPolicy, closing: asyncio.Event, logger: logging.Logger) -> None:
        self._policy = policy
        self._closing = closing
        self._logger = logger
        self._failures = FailureCount()
        self._at = 0.0

    def forget(self) -> None:
        """The connection has brought something new: failures before it do not count any more."""
        self._failures.forget()

    def lost(self, error: ReplicaError) -> None:
        """A connection has failed. Raises what the policy raises: the error itself, where trying again is no use."""
        failure = self._failures.add(error)
        delay = self._policy.delay(failure)
        self._at = asyncio.get_running_loop().time() + delay
        log = self._logger.info if failure.attempt else self._logger.warning
        log("%s -- trying again in %.1f s", error, delay)

    async def wait(self) -> None:
        """Until the next try; returns at once when ``closing`` is set. A cancelled wait may be repeated."""
        left = self._at - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._closing.wait()
