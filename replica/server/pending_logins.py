"""The logins of a ``BinlogServer`` that are under way, and the hosts whose logins have failed.

No host can keep others from logging in: the limit counts per host, and a new connection closes the oldest one of its
own host that has not logged in. Hosts that guess passwords wait longer and longer for the greeting. This module knows
no sockets and reads no clock.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# As MySQL's plugin connection_control: after three failures each login waits. The longest wait is shorter than the
# connect timeout of clients, 10 seconds.
_FREE_FAILURES: Final = 3
_LONGEST_DELAY: Final = 4.0
_FIRST_DELAY: Final = 0.25
# Hosts whose failures are remembered; the host that failed longest ago is forgotten first.
_MOST_HOSTS: Final = 1024


class PendingLogins:
    """Connections that have not logged in yet, at most ``most_per_host`` of each host."""

    def __init__(self, most_per_host: int) -> None:
        self._most_per_host = most_per_host
        # Host -> connection id -> the function that closes the connection, oldest first.
        self._pending: dict[str, dict[int, Callable[[], object]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def add(self, host: str, connection_id: int, close: Callable[[], object]) -> None:
        """Add a new connection. If its host has too many, the oldest of them is closed with its ``close``."""
        pending = self._pending.setdefault(host, {})
        while len(pending) >= self._most_per_host:
            pending.pop(next(iter(pending)))()
        pending[connection_id] = close

    def remove(self, host: str, connection_id: int) -> None:
        """Remove a connection that has logged in or is closed; unknown ones are ignored."""
        pending = self._pending.get(host, {})
        pending.pop(connection_id, None)
        if not pending:
            self._pending.pop(host, None)

    def close_one(self) -> bool:
        """Close the oldest connection of the host that has the most; False if there is none."""
        if not self._pending:
            return False
        host = max(self._pending, key=lambda name: len(self._pending[name]))
        connection_id = next(iter(self._pending[host]))
        close = self._pending[host][connection_id]
        self.remove(host, connection_id)
        close()
        return True


class FailedLogins:
    """Counts the failed logins of each host since its last successful one."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, int] = OrderedDict()

    def failed(self, host: str) -> None:
        """A login of this host has failed."""
        self._failures[host] = self._failures.pop(host, 0) + 1
        if len(self._failures) > _MOST_HOSTS:
            self._failures.popitem(last=False)

    def succeeded(self, host: str) -> None:
        """A login of this host has succeeded: its failures are forgotten."""
        self._failures.pop(host, None)

    def delay(self, host: str) -> float:
        """Seconds that the next login of this host waits for the greeting: 0, then doubling up to 4."""
        excess = self._failures.get(host, 0) - _FREE_FAILURES
        if excess < 0:
            return 0.0
        return min(_FIRST_DELAY * 2.0 ** min(excess, 10), _LONGEST_DELAY)
