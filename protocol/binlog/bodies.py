"""A parse function per event type, and the dict of them. Rows events and table maps have rooms of their own.

Each takes the event's three common fields and a ``Reader`` over its body, without the checksum. Bodies tolerate
fields that later servers append, as the servers themselves do; a body that is too short is an error.
Layouts: MySQL's ``libs/mysql/binlog/event/*.h``, MariaDB's ``sql/log_event.h``.
"""

import uuid
from collections.abc import Callable

from ..constants import EventType
from ..errors import DecodeError
from ..gtid import Gtid, GtidSet, MariadbGtid
from ..wire import Reader
from .events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    BinlogCheckpointEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    HeartbeatEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    RowsQueryEvent,
    StopEvent,
    XidEvent,
)

BodyParser = Callable[[EventHeader, str, int, Reader], Event]

_LOGICAL_CLOCK = 2
_LATER_BIT_7_BYTES = 1 << 55
_LATER_BIT_4_BYTES = 1 << 31
_FILE_NAME_LIMIT = 512


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _file_name(data: bytes) -> str:
    if not data or len(data) > _FILE_NAME_LIMIT or b"\0" in data:
        raise DecodeError(f"a binlog file name of {len(data)} bytes that is none")
    return _utf8(data)


def _rotate(header: EventHeader, file: str, position: int, body: Reader) -> RotateEvent:
    next_position = body.uint(8)
    return RotateEvent(header, file, position, _file_name(body.rest()), next_position)


def _stop(header: EventHeader, file: str, position: int, body: Reader) -> StopEvent:
    return StopEvent(header, file, position)


def _query(header: EventHeader, file: str, position: int, body: Reader) -> QueryEvent:
    thread_id = body.uint(4)
    exec_time = body.uint(4)
    schema_length = body.u8()
    error_code = body.uint(2)
    status_variables = body.take(body.uint(2))
    schema = _utf8(body.take(schema_length))
    if body.u8():
        raise DecodeError("the default schema of a statement does not end in a zero byte")
    sql = _utf8(body.rest())
    return QueryEvent(header, file, position, thread_id, exec_time, error_code, schema, sql, status_variables)


def _xid(header: EventHeader, file: str, position: int, body: Reader) -> XidEvent:
    return XidEvent(header, file, position, body.uint(8))


def _gtid(header: EventHeader, file: str, position: int, body: Reader) -> AnonymousGtidEvent:
    """GTID and ANONYMOUS_GTID: what the type 42 event replaces from 8.3 on for tagged GTIDs."""
    flags = body.u8()
    source_id = uuid.UUID(bytes=body.take(16))
    sequence = body.sint(8)
    clock: tuple[int | None, int | None] = (None, None)
    details: _GtidDetails = (None, None, None, None, None, None)
    if body.remaining and body.u8() == _LOGICAL_CLOCK:
        clock = (body.sint(8), body.sint(8))
        details = _gtid_details(body)
    if header.type == EventType.ANONYMOUS_GTID:
        return AnonymousGtidEvent(header, file, position, flags, *clock, *details)
    gtid = Gtid(source_id, sequence)
    return GtidEvent(header, file, position, flags, *clock, *details, gtid=gtid)


_GtidDetails = tuple[int | None, int | None, int | None, int | None, int | None, int | None]


def _gtid_details(body: Reader) -> _GtidDetails:
    """Commit timestamps (WL#7319), length (WL#10549), server versions (WL#11441), commit group ticket (8.0.29)."""
    immediate_time = original_time = length = immediate_version = original_version = ticket = None
    if body.remaining >= 7:
        immediate_time, original_time = _pair(body, 7, _LATER_BIT_7_BYTES)
    if body.remaining:
        length = body.lenenc_int()
    if body.remaining >= 4:
        immediate_version, original_version = _pair(body, 4, _LATER_BIT_4_BYTES)
    if body.remaining >= 8:
        ticket = body.uint(8)
    return immediate_time, original_time, length, immediate_version, original_version, ticket


def _pair(body: Reader, size: int, later_bit: int) -> tuple[int, int]:
    """The immediate source's value and the original one's, which follows only where it differs."""
    immediate = body.uint(size)
    if immediate & later_bit:
        return immediate & ~later_bit, body.uint(size)
    return immediate, immediate


def _previous_gtids(header: EventHeader, file: str, position: int, body: Reader) -> PreviousGtidsEvent:
    return PreviousGtidsEvent(header, file, position, GtidSet.decode(body.rest()))


def _heartbeat(header: EventHeader, file: str, position: int, body: Reader) -> HeartbeatEvent:
    return HeartbeatEvent(header, file, position, _utf8(body.rest()), header.next_position)


def _heartbeat_v2(header: EventHeader, file: str, position: int, body: Reader) -> HeartbeatEvent:
    """Fields of (type, length, value), each a length-encoded integer; 0 ends them (WL#13901)."""
    name, source_position = "", 0
    while body.remaining:
        field = body.lenenc_int()
        if field == 0:
            break
        value = body.lenenc_bytes()
        if field == 1:
            name = _utf8(value)
        elif field == 2:
            source_position = Reader(value).lenenc_int()
    return HeartbeatEvent(header, file, position, name, source_position)


def _rows_query(header: EventHeader, file: str, position: int, body: Reader) -> RowsQueryEvent:
    """The one-byte length before the text is cut off at 255 and ignored, as in ``Rows_query_event``."""
    body.skip(1)
    return RowsQueryEvent(header, file, position, _utf8(body.rest()))


_MARIADB_GROUP_COMMIT_ID = 2
_MARIADB_XA = 64 | 128
_MARIADB_EXTRA_MULTI_ENGINE = 1
_MARIADB_EXTRA_ALTER_END = 4 | 8
_MARIADB_EXTRA_THREAD_ID = 16


def _mariadb_gtid(header: EventHeader, file: str, position: int, body: Reader) -> MariadbGtidEvent:
    """From ``Gtid_log_event``: optional parts stand behind the 13 fixed bytes, in the order of their flags.

    The body is padded with zero bytes to 19 (GTID_HEADER_LEN), which read as no extra flags.
    """
    sequence, domain_id, flags = body.uint(8), body.uint(4), body.u8()
    gtid = MariadbGtid(domain_id, header.server_id, sequence)
    event = MariadbGtidEvent(header, file, position, gtid, flags)
    if flags & _MARIADB_GROUP_COMMIT_ID:
        event.commit_id = body.uint(8)
    if flags & _MARIADB_XA:
        event.xid = _xa_id(body)
    if body.remaining:
        _mariadb_extra(event, body)
    return event


def _xa_id(body: Reader) -> tuple[int, bytes, bytes]:
    format_id = body.uint(4)
    gtrid_length, bqual_length = body.u8(), body.u8()
    return format_id, body.take(gtrid_length), body.take(bqual_length)


def _mariadb_extra(event: MariadbGtidEvent, body: Reader) -> None:
    event.extra_flags = body.u8()
    if event.extra_flags & _MARIADB_EXTRA_MULTI_ENGINE:
        event.extra_engines = body.u8()
    if event.extra_flags & _MARIADB_EXTRA_ALTER_END:
        event.alter_sequence = body.uint(8)
    if event.extra_flags & _MARIADB_EXTRA_THREAD_ID and body.remaining >= 8:
        event.thread_id = body.uint(8)


def _mariadb_gtid_list(header: EventHeader, file: str, position: int, body: Reader) -> MariadbGtidListEvent:
    """Count in the low 28 bits, flags above; entries of domain, server and sequence."""
    word = body.uint(4)
    count = word & 0x0FFFFFFF
    if count * 16 > body.remaining:
        raise DecodeError(f"a GTID list of {count} entries in {body.remaining} bytes")
    gtids = tuple(MariadbGtid(body.uint(4), body.uint(4), body.uint(8)) for _ in range(count))
    return MariadbGtidListEvent(header, file, position, gtids, word >> 28)


def _annotate_rows(header: EventHeader, file: str, position: int, body: Reader) -> AnnotateRowsEvent:
    return AnnotateRowsEvent(header, file, position, _utf8(body.rest()))


def _binlog_checkpoint(header: EventHeader, file: str, position: int, body: Reader) -> BinlogCheckpointEvent:
    return BinlogCheckpointEvent(header, file, position, _file_name(body.take(body.uint(4))))


def parse_format_description(
    header: EventHeader, file: str, position: int, body: Reader, algorithm: int | None
) -> FormatDescriptionEvent:
    """FORMAT_DESCRIPTION. ``algorithm`` is the checksum algorithm, whose byte is not part of ``body`` any more."""
    binlog_version = body.uint(2)
    if binlog_version != 4:
        raise DecodeError(f"binlog version {binlog_version}; only version 4 (MySQL 5.0 and later) is read")
    server_version = body.take(50).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    created, header_size = body.uint(4), body.u8()
    if header_size < 19:
        raise DecodeError(f"event headers of {header_size} bytes")
    return FormatDescriptionEvent(
        header, file, position, binlog_version, server_version, created, header_size, body.rest(), algorithm
    )


BODY_PARSERS: dict[int, BodyParser] = {
    EventType.QUERY: _query,
    EventType.STOP: _stop,
    EventType.ROTATE: _rotate,
    EventType.XID: _xid,
    EventType.HEARTBEAT: _heartbeat,
    EventType.HEARTBEAT_V2: _heartbeat_v2,
    EventType.ROWS_QUERY: _rows_query,
    EventType.GTID: _gtid,
    EventType.ANONYMOUS_GTID: _gtid,
    EventType.PREVIOUS_GTIDS: _previous_gtids,
    EventType.MARIADB_ANNOTATE_ROWS: _annotate_rows,
    EventType.MARIADB_BINLOG_CHECKPOINT: _binlog_checkpoint,
    EventType.MARIADB_GTID: _mariadb_gtid,
    EventType.MARIADB_GTID_LIST: _mariadb_gtid_list,
}
