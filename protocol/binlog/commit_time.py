"""Reads the commit time of a transaction, in microseconds since 1970, from its first event.

MySQL's GTID events have 7 bytes for the time (WL#7319). Their highest bit is no part of the time: it says that the
original source's time follows. Tagged GTID events have 8 bytes, whose values can be larger than a ``datetime`` holds.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeGuard

from .events import AnonymousGtidEvent, Event

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: This bit of the immediate source's commit time says that the original source's time follows. All times are lower.
ORIGINAL_FOLLOWS: Final = 1 << 55


def is_commit_time(microseconds: int | None) -> TypeGuard[int]:
    """Whether a GTID event's value is a time. 0 comes from servers before 8.0.1; None means that none is logged."""
    return microseconds is not None and 0 < microseconds < ORIGINAL_FOLLOWS


def utc_time(microseconds: int) -> datetime:
    """Microseconds since 1970 as a time."""
    return _EPOCH + timedelta(microseconds=microseconds)


def commit_microseconds(begin: Event) -> int:
    """The original source's commit time of the transaction that begins with this event.

    If the event has no commit time, the result is its timestamp, which is in whole seconds.
    """
    if isinstance(begin, AnonymousGtidEvent) and is_commit_time(begin.original_commit_timestamp):
        return begin.original_commit_timestamp
    return begin.header.timestamp * 1_000_000
