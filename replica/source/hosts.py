"""Tries several hosts in order until one works, each time a connection is made.

The caller passes the function that uses a host. This module decides after which errors the next host is tried, and
which error is raised when all hosts have failed.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from protocol.errors import ConfigurationError, ConnectionLostError, ReplicaError, ServerError

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.reconnect import is_passing_refusal

_LOGGER: Final = logging.getLogger(__name__)

_Result = TypeVar("_Result")


async def first_host(options: Options, use: Callable[[Options], Awaitable[_Result]]) -> _Result:
    """Call ``use`` with the options of each host in turn; return the first result that is not an error.

    Any error passes to the next host, except ``ConfigurationError``. If all hosts fail, the error names them all: a
    ``ConnectionLostError`` if one of the failures is temporary, otherwise an error of the first failure's type. With
    a single host its own error is raised.
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
                facts = log_facts("host-skipped", source=address, error=reason, next_source=one.address)
                _LOGGER.warning(
                    "%s cannot be used: %s -- continuing with %s", address, reason, one.address, extra=facts
                )
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
