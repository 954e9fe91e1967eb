"""The base class of all events: header, file and position. ``events`` has the class of each event type."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from ..records import record
from ..wire import HeaderFields


class EventHeader(NamedTuple):
    """The 19 bytes before every event (``binlog_event.h``: Log_event_header).

    ``timestamp`` is in seconds since 1970 by the source's clock, mostly the start of the statement. ``type`` is the
    number of the event type, ``server_id`` the id of the server that created the event, ``size`` the event's bytes
    with checksum, ``flags`` as in the header. ``next_position`` is the end of the event in the source's file, modulo
    2**32; 0 where the source omits it (artificial events; MariaDB 11.4 and later inside transactions).
    """

    timestamp: int
    type: int
    server_id: int
    size: int
    next_position: int
    flags: int


# NamedTuple's own _make is a Python function, and slower.
new_header: Callable[[HeaderFields], EventHeader] = functools.partial(tuple.__new__, EventHeader)


class _LazyHeader:
    """Keeps the unpacked header fields and makes the ``EventHeader`` at first use, which saves 0.12 us an event."""

    __slots__ = ("header_fields",)
    # HeaderFields until ``header`` is first read, then the EventHeader.
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

    ``header`` is the event's header, ``file`` the name of its binlog file (empty if not known) and ``position`` the
    byte offset of its start in that file. Events inside a compressed transaction have the payload event's position.
    """

    header: EventHeader
    file: str
    position: int
