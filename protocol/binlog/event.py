"""What all events have: the header, and where the event stands. ``events`` has what is of one kind each."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ..records import record
from ..wire import HeaderFields


class EventHeader(NamedTuple):
    """The 19 bytes before every event (``binlog_event.h``: Log_event_header).

    ``timestamp`` is in seconds since 1970 by the source's clock, mostly when the statement began; ``type`` is the
    number of the event type, ``server_id`` that of the server where the event came into being, ``size`` in bytes with
    checksum, ``flags`` as in the header. ``next_position`` is the end of the event in the source's file, modulo
    2**32; 0 where the source leaves it out (artificial events; MariaDB 11.4 and later inside of transactions).
    """

    timestamp: int
    type: int
    server_id: int
    size: int
    next_position: int
    flags: int


# NamedTuple's own _make is a Python function.
new_header: Callable[[HeaderFields], EventHeader] = functools.partial(tuple.__new__, EventHeader)


class _LazyHeader:
    """The header as it was unpacked, until somebody looks at it: making an ``EventHeader`` takes 0.12 us an event."""

    __slots__ = ("header_fields",)
    # HeaderFields, or the EventHeader made of them.
    header_fields: Any

    @property
    def header(self) -> EventHeader:
        header = self.header_fields
        if type(header) is EventHeader:
            return header
        header = self.header_fields = new_header(header)
        return header

    @header.setter
    def header(self, header: EventHeader) -> None:
        self.header_fields = header


@record(slots=True)
class Event(_LazyHeader):
    """Base of all events.

    ``header`` is the event's header, ``file`` the name of the binlog file that it stands in (empty if not known) and
    ``position`` the byte offset of its start in that file; inside of a compressed transaction, that of the
    transaction.
    """

    header: EventHeader
    file: str
    position: int
