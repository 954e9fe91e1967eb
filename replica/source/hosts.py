"""Several hosts of which one is wanted: tried in order, each time that a connection is made.

What is done with a host is the caller's; here it is decided which failures let the next one have its turn, and what
is told when none is left.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from protocol.errors import ConfigurationError, ConnectionLostError, ReplicaError, ServerError

from ..config.options import Options
from ..config.reconnect import is_passing_refusal

_LOGGER: Final = logging.getLogger(__name__)

_Result = TypeVar("_Result")


async def first_host(options: Options, use: Callable[[Options], Awaitable[_Result]]) -> _Result:
    """What ``use`` returns for the first host that it does not fail with; it gets options of one host.

    A host is passed over whatever its reason, but for mistakes in the options (``ConfigurationError``). When all have
    failed: ``ConnectionLostError`` if that of one of them may pass, otherwise an error of the first one's type; it
    names them all. With one host, its own error.
    """
    hosts = options.each_host()
    if len(hosts) == 1:
        return await use(options)
    failures: list[tuple[str, ReplicaError]] = []
    for one in hosts:
        try:
            result = await use(one)
        except ConfigurationError:
            raise
        except ReplicaError as error:
            failures.append((one.address, error))
        else:
            for address, reason in failures:
                _LOGGER.warning("%s is passed over: %s -- going on with %s", address, reason, one.address)
            return result
    raise _none_left(failures)


def _may_pass(error: ReplicaError) -> bool:
    return isinstance(error, ConnectionLostError) or (
        isinstance(error, ServerError) and is_passing_refusal(error)
    )


def _none_left(failures: list[tuple[str, ReplicaError]]) -> ReplicaError:
    text = "none of the hosts can be used: " + "; ".join(f"{address}: {error}" for address, error in failures)
    first = failures[0][1]
    if any(_may_pass(error) for _, error in failures):
        return ConnectionLostError(text)
    if isinstance(first, ServerError):
        return type(first)(first.code, first.sqlstate, text)
    return type(first)(text)
