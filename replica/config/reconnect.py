"""When a stream tries again after a failure, and after how long: one function decides, in an object of the user's.

It sees failures and opens no connection. That what is delivered goes on at the next row is ``resume``'s part.
"""

import random
from dataclasses import dataclass
from typing import Final

from protocol.errors import (
    ConnectionLostError,
    DecodeError,
    PositionInsideEventError,
    ProtocolError,
    ReplicaError,
    ServerError,
)
from protocol.records import record

# What a server says when it is too busy, shuts down, or an administrator has ended the connection (errmsg-utf8.txt):
# ER_CON_COUNT_ERROR, ER_SERVER_SHUTDOWN, ER_NEW_ABORTING_CONNECTION, ER_NET_READ_ERROR and _INTERRUPTED,
# ER_NET_ERROR_ON_WRITE, ER_NET_WRITE_INTERRUPTED, ER_TOO_MANY_USER_CONNECTIONS, ER_USER_LIMIT_REACHED,
# ER_QUERY_INTERRUPTED, ER_CONNECTION_KILLED (MariaDB), ER_SESSION_WAS_KILLED, ER_CLIENT_INTERACTION_TIMEOUT,
# ER_SERVER_OFFLINE_MODE, ER_SERVER_STARTUP_IN_PROGRESS.
_PASSING_CODES: Final = frozenset(
    {1040, 1053, 1184, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1927, 3169, 4031, 3032, 3707}
)
# Of these, the limits of one account: they may be there for good.
_ACCOUNT_CODES: Final = frozenset({1203, 1226})
# What bytes that the network has damaged look like; in the first event, as if the position were none of an event.
_DAMAGE: Final = (DecodeError, ProtocolError, PositionInsideEventError)
# The network may hit the same event twice, above all the first ones of each connection; three times the log is to
# blame, and so it is where damage comes at ever new places.
_DAMAGED_AT_ONE_PLACE: Final = 2
_DAMAGED_IN_A_ROW: Final = 10


@record(frozen=True, slots=True)
class Failure:
    """What has ended a connection, or kept a new one from being made: ``error``.

    ``attempt`` counts failures from 0 on since the stream last got ahead. ``is_repeated``: earlier connections have
    already found the same damage at the same place twice, or damage at many places, so that it is not of the network.
    """

    error: ReplicaError
    attempt: int
    is_repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class ReconnectPolicy:
    """Retry what may pass, with pauses that grow; raise the rest.

    The pause before try number n is drawn between half of ``initial * 2**n`` and all of it, and at most
    ``maximum`` seconds. Failures of the network, a server that is busy or shuts down, and damaged bytes (twice for
    each place) are tried again, ``attempts`` times in a row (None: for ever). Subclass it and override ``delay``
    for anything else.
    """

    initial: float = 0.1
    maximum: float = 30.0
    attempts: int | None = None

    def delay(self, failure: Failure) -> float:
        """Seconds to wait before the next try; raises ``failure.error`` to give up."""
        is_over = self.attempts is not None and failure.attempt >= self.attempts
        if is_over or not self.is_passing(failure):
            raise failure.error
        longest = min(self.maximum, self.initial * 2.0 ** min(failure.attempt, 64))
        return longest * random.uniform(0.5, 1.0)

    def is_passing(self, failure: Failure) -> bool:
        """Whether trying again can help."""
        error = failure.error
        if isinstance(error, _DAMAGE):
            return not failure.is_repeated
        if type(error) is ServerError:
            return error.code in _PASSING_CODES
        return isinstance(error, ConnectionLostError)


def is_passing_refusal(error: ServerError) -> bool:
    """Whether the server, and not what it thinks of the account, is why a question is not answered just now."""
    return type(error) is ServerError and error.code in _PASSING_CODES - _ACCOUNT_CODES


class NoReconnect(ReconnectPolicy):
    """The first failure is raised."""

    def delay(self, failure: Failure) -> float:
        raise failure.error


class FailureCount:
    """Counts the failures of one stream since it last got ahead, and recognises damage that comes again."""

    def __init__(self) -> None:
        self._attempt = 0
        self._damage: list[tuple[object, ...]] = []

    def forget(self) -> None:
        """The stream has got ahead: an event has come that had not come before."""
        self._attempt = 0
        self._damage.clear()

    def add(self, error: ReplicaError) -> Failure:
        """The next failure, as the policy gets it."""
        is_repeated = False
        if isinstance(error, _DAMAGE):
            place = (type(error), str(error))
            earlier = self._damage.count(place)
            is_repeated = earlier >= _DAMAGED_AT_ONE_PLACE or len(self._damage) >= _DAMAGED_IN_A_ROW
            self._damage.append(place)
        failure = Failure(error, self._attempt, is_repeated)
        self._attempt += 1
        return failure
