"""Fast parsers for the events of nearly every transaction, straight from the raw bytes: GTIDs, statement texts, XID.

``parsers`` reads the other types through a ``Reader``. Here one unpack takes all numbers of a body, and an event
is filled slot by slot, which takes a third of the time of a constructor with keywords. A body of another form than
current servers write goes to the general parser of its type.
"""

import struct
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, Final

from ..constants import EVENT_HEADER_SIZE, EventType, MariadbGtidFlag
from ..errors import TruncatedError
from ..gtid import new_mariadb_gtid
from ..wire import NULL_LENGTH, HeaderFields, Reader, unpack_u64, utf8_text
from . import mariadb_bodies, transaction_bodies
from .commit_time import ORIGINAL_FOLLOWS
from .events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    RowsQueryEvent,
    XidEvent,
    new_header,
)
from .transaction_bodies import LOGICAL_CLOCK, ORIGINAL_VERSION_FOLLOWS

# Arguments: header fields, file name, the event's offset in the file, the raw event, and the end of its body.
FrequentParser = Callable[[HeaderFields, str, int, bytes, int], Event | None]

_new = object.__new__
_BODY: Final = EVENT_HEADER_SIZE
_XID_END: Final = _BODY + 8

# The body of GTID since 8.0.14: flags, source id, sequence, 2, logical clock, timestamp in 7 bytes, length of the
# transaction in 1 byte or as 0xFC and 2 bytes, server version. The first byte of the length is unpacked as the eighth
# byte of the timestamp. A transaction from another source has a second timestamp or version, each after the first.
_unpack_gtid = struct.Struct("<B16sqBqqQI").unpack_from
_unpack_longer_gtid = struct.Struct("<B16sqBqqQHI").unpack_from
_GTID_END: Final = _BODY + 54
_LONGER_GTID_END: Final = _BODY + 56
_ANONYMOUS: Final = int(EventType.ANONYMOUS_GTID)
_TIME_BITS: Final = 56
_TIME_MASK: Final = (1 << _TIME_BITS) - 1
_TWO_BYTES: Final = 0xFC

# The body of MARIADB_GTID: sequence, domain, flags; then the commit id, or zeros.
_unpack_mariadb_gtid = struct.Struct("<QIBB").unpack_from
_unpack_commit_id = struct.Struct("<QIBQ").unpack_from
_MARIADB_GTID_END: Final = _BODY + 19
_COMMIT_ID_END: Final = _BODY + 21
_COMMIT_ID: Final = MariadbGtidFlag.GROUP_COMMIT_ID
_XA: Final = MariadbGtidFlag.PREPARED_XA | MariadbGtidFlag.COMPLETED_XA


def xid(header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> XidEvent:
    """XID."""
    if end < _XID_END:
        raise TruncatedError(f"an XID event ends at byte {end}, before its number does")
    event = _new(XidEvent)
    event.header_fields = header
    event.file = file
    event.position = position
    (event.xid,) = unpack_u64(raw, _BODY)
    return event


def gtid(header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> AnonymousGtidEvent:
    """GTID and ANONYMOUS_GTID."""
    is_usual = False
    if end == _LONGER_GTID_END:
        flags, source, sequence, mark, last, clock, time, length, version = _unpack_longer_gtid(raw, _BODY)
        is_usual = time >> _TIME_BITS == _TWO_BYTES
    elif end == _GTID_END:
        flags, source, sequence, mark, last, clock, time, version = _unpack_gtid(raw, _BODY)
        length = time >> _TIME_BITS
        is_usual = length < NULL_LENGTH
    if (
        not is_usual
        or mark != LOGICAL_CLOCK
        or time & ORIGINAL_FOLLOWS
        or version & ORIGINAL_VERSION_FOLLOWS
        or (sequence < 1 and header[1] != _ANONYMOUS)
    ):
        return transaction_bodies.gtid(new_header(header), file, position, Reader(raw, _BODY, end))
    event: AnonymousGtidEvent
    if header[1] == _ANONYMOUS:
        event = _new(AnonymousGtidEvent)
    else:
        event = _new(GtidEvent)
        event.gtid_fields = source, sequence
    event.header_fields = header
    event.file = file
    event.position = position
    event.gtid_flags = flags
    event.last_committed = last
    event.sequence_number = clock
    event.immediate_commit_timestamp = event.original_commit_timestamp = time & _TIME_MASK
    event.transaction_length = length
    event.immediate_server_version = event.original_server_version = version
    event.commit_group_ticket = None
    return event


def mariadb_gtid(header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> MariadbGtidEvent:
    """MARIADB_GTID."""
    commit_id: int | None = None
    if end == _MARIADB_GTID_END:
        sequence, domain_id, flags, extra_flags = _unpack_mariadb_gtid(raw, _BODY)
        is_usual = not (extra_flags or flags & (_COMMIT_ID | _XA))
    elif end == _COMMIT_ID_END:
        sequence, domain_id, flags, commit_id = _unpack_commit_id(raw, _BODY)
        is_usual = flags & (_COMMIT_ID | _XA) == _COMMIT_ID
    else:
        is_usual = False
    if not is_usual:
        return mariadb_bodies.gtid(new_header(header), file, position, Reader(raw, _BODY, end))
    event = _new(MariadbGtidEvent)
    event.header_fields = header
    event.file = file
    event.position = position
    event.gtid = new_mariadb_gtid(domain_id, header[2], sequence)
    event.gtid_flags = flags
    event.commit_id = commit_id
    event.extra_flags = 0
    event.xid = event.alter_sequence = event.extra_engines = event.thread_id = None
    return event


def rows_query(header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> RowsQueryEvent:
    """ROWS_QUERY. The one-byte length before the text is cut off at 255 and ignored, as in ``Rows_query_event``."""
    if end <= _BODY:
        raise TruncatedError("a ROWS_QUERY event has no body")
    return RowsQueryEvent(new_header(header), file, position, utf8_text(raw[_BODY + 1 : end]))


def annotate_rows(header: HeaderFields, file: str, position: int, raw: bytes, end: int) -> AnnotateRowsEvent:
    """MARIADB_ANNOTATE_ROWS."""
    return AnnotateRowsEvent(new_header(header), file, position, utf8_text(raw[_BODY:end]))


FREQUENT_PARSERS: Final[Mapping[int, FrequentParser]] = MappingProxyType(
    {
        EventType.XID: xid,
        EventType.GTID: gtid,
        EventType.ANONYMOUS_GTID: gtid,
        EventType.ROWS_QUERY: rows_query,
        EventType.MARIADB_GTID: mariadb_gtid,
        EventType.MARIADB_ANNOTATE_ROWS: annotate_rows,
    }
)


def copy_with_own_caches(function: Any) -> FunctionType:
    """A copy of the function, so that CPython specializes its code (PEP 659) for one class of events.

    Saves 2.4 % of decoding one-row transactions of mixed classes (Python 3.11; 3.13: 2.8 %), 0.5 % of one class.
    """
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
