"""The commit time of a transaction, as GTID events hold it: microseconds since 1970.

MySQL writes it in 7 bytes (WL#7319). Their highest bit says that a second time follows, the original source's, and is
no part of the time. Tagged GTID events have 8 bytes, in which more fits than a ``datetime`` holds.
"""

from typing import Final, TypeGuard

from .events import AnonymousGtidEvent, Event

#: In the immediate source's commit time: the original source's follows. All commit times are below.
ORIGINAL_FOLLOWS: Final = 1 << 55


def is_commit_time(microseconds: int | None) -> TypeGuard[int]:
    """Whether a GTID event's value is a time: 0 comes from servers before 8.0.1, None where there is no value."""
    return microseconds is not None and 0 < microseconds < ORIGINAL_FOLLOWS


def commit_microseconds(begin: Event) -> int:
    """The commit time on the original source of the transaction that begins with this event.

    Where no GTID event tells the time, it is the event's time stamp, in whole seconds.
    """
    if isinstance(begin, AnonymousGtidEvent) and is_commit_time(begin.original_commit_timestamp):
        return begin.original_commit_timestamp
    return begin.header.timestamp * 1_000_000
