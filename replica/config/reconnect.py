"""The reconnect policy: whether a stream tries again after a failure, and after how many seconds.

One method of an object that the user may replace decides. It sees failures and opens no connection. The module
``replay`` makes the stream go on with the next row.
"""

from dataclasses import dataclass
from typing import Final

from protocol.errors import (
    ChecksumError,
    ConfigurationError,
    ConnectionLostError,
    DecodeError,
    PositionInsideEventError,
    ProtocolError,
    ReplicaError,
    ServerError,
    TransactionsUnavailableError,
)
from protocol.records import record

# Error codes of a server that is too busy or shuts down, or whose administrator ended the connection
# (errmsg-utf8.txt):
# ER_CON_COUNT_ERROR, ER_SERVER_SHUTDOWN, ER_NEW_ABORTING_CONNECTION, ER_NET_READ_ERROR and _INTERRUPTED,
# ER_NET_ERROR_ON_WRITE, ER_NET_WRITE_INTERRUPTED, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED,
# ER_QUERY_INTERRUPTED, ER_CONNECTION_KILLED (MariaDB), ER_SESSION_WAS_KILLED, ER_CLIENT_INTERACTION_TIMEOUT,
# ER_SERVER_OFFLINE_MODE, ER_SERVER_STARTUP_IN_PROGRESS.
_PASSING_CODES: Final = frozenset(
    {1040, 1053, 1184, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1927, 3169, 4031, 3032, 3707}
)
# The codes among these for limits of one account, which may be permanent.
_ACCOUNT_CODES: Final = frozenset({1203, 1226})
# Errors that damage by the network causes. A damaged first event looks like a position inside of an event.
_DAMAGE: Final = (DecodeError, ProtocolError, PositionInsideEventError)
# MariaDB ends a dump with this error when a domain begins in its log of which the replica has more. Whether it lags
# behind as a replica is asked at the next connection.
_BEGUN_DOMAIN: Final = "which is not in the master's binlog"
# The network may damage the same event twice, above all the first events of each connection. The same damage three
# times, or damage many times, means that the log itself is damaged.
_DAMAGED_AT_ONE_PLACE: Final = 2
_DAMAGED_IN_A_ROW: Final = 10


@record(frozen=True, slots=True)
class Failure:
    """The ``error`` that ended a connection, or prevented a new connection.

    ``attempt`` counts failures from 0 on since the last new event. ``is_repeated``: earlier connections have already
    found the same damage at the same place twice, or damage at many places, so the network is not the cause; or the
    source has refused to send transactions before.
    """

    error: ReplicaError
    attempt: int
    is_repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class ReconnectPolicy:
    """Retry after temporary failures, with growing pauses; raise all other failures.

    The pause before try number n is random between half of ``initial * 2**n`` seconds and all of it, and at most
    ``maximum`` seconds. Temporary are network failures, a server that is busy or shuts down, and damaged bytes (each
    damage twice). They are retried ``attempts`` times in a row (None: for ever). For another policy, subclass this
    and override ``delay``.
    """

    initial: float = 0.1
    maximum: float = 30.0
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not all(isinstance(one, int | float) and one >= 0 for one in (self.initial, self.maximum)):
            raise ConfigurationError(
                f"ReconnectPolicy: initial and maximum are seconds, not {self.initial!r} and {self.maximum!r}"
            )
        if self.attempts is not None and not (isinstance(self.attempts, int) and self.attempts >= 0):
            raise ConfigurationError(f"ReconnectPolicy: attempts is a number or None, not {self.attempts!r}")

    def delay(self, failure: Failure) -> float:
        """Seconds to wait before the next try; raises ``failure.error`` to give up."""
        is_over = self.attempts is not None and failure.attempt >= self.attempts
        if is_over or not self.is_passing(failure):
            raise failure.error
        longest = min(self.maximum, self.initial * 2.0 ** min(failure.attempt, 64))
        # It takes 1 ms to import, and most connections are never lost.
        import random

        return longest * random.uniform(0.5, 1.0)

    def is_passing(self, failure: Failure) -> bool:
        """Whether trying again can help."""
        error = failure.error
        if isinstance(error, _DAMAGE):
            return not failure.is_repeated
        if isinstance(error, TransactionsUnavailableError):
            return _BEGUN_DOMAIN in error.message and not failure.is_repeated
        if type(error) is ServerError:
            return error.code in _PASSING_CODES
        return isinstance(error, ConnectionLostError)


def is_passing_refusal(error: ServerError) -> bool:
    """Whether the server refused for a temporary reason of its own, and not because of a limit of the account."""
    return type(error) is ServerError and error.code in _PASSING_CODES - _ACCOUNT_CODES


def is_account_limit(error: ServerError) -> bool:
    """Whether the server refused because of a limit of the account: of connections, or of what it may do an hour."""
    return error.code in _ACCOUNT_CODES


class NoReconnect(ReconnectPolicy):
    """Never retry: raise the first failure."""

    def delay(self, failure: Failure) -> float:
        raise failure.error


class FailureCount:
    """Counts the failures of one stream since its last new event, and recognises repeated damage."""

    def __init__(self) -> None:
        self._attempt = 0
        self._is_refused = False
        self._damage: list[tuple[object, ...]] = []

    def forget(self) -> None:
        """Forget all failures: a new event has come."""
        self._attempt = 0
        self._is_refused = False
        self._damage.clear()

    def add(self, error: ReplicaError) -> Failure:
        """Count a failure, and return it for the policy."""
        is_repeated = False
        if isinstance(error, _DAMAGE):
            # A damaged log has the same bytes each time; what the network damages at one place differs.
            place = (type(error), str(error), error.damage if isinstance(error, ChecksumError) else None)
            earlier = self._damage.count(place)
            is_repeated = earlier >= _DAMAGED_AT_ONE_PLACE or len(self._damage) >= _DAMAGED_IN_A_ROW
            self._damage.append(place)
        elif isinstance(error, TransactionsUnavailableError):
            is_repeated, self._is_refused = self._is_refused, True
        failure = Failure(error, self._attempt, is_repeated)
        self._attempt += 1
        return failure
