"""``BODY_PARSERS``: the parse function of each event type that needs no decoder state.

``fast_parsers`` reads the types that make up most of a log; the decoder itself reads rows events, table maps and
format descriptions. Each function takes the event's three common fields and a ``Reader`` over its body, without the
checksum. Fields that later servers append are ignored, as servers do; a body that is too short is an error.
"""

from collections.abc import Callable

from ..constants import EventType
from ..errors import DecodeError
from ..position import FILE_NAME_LIMIT, split_file_name
from ..wire import Reader, utf8_text
from . import mariadb_bodies, statement_bodies, transaction_bodies
from .events import Event, EventHeader, FormatDescriptionEvent, HeartbeatEvent, RotateEvent, StopEvent

BodyParser = Callable[[EventHeader, str, int, Reader], Event]

_BINLOG_VERSION = 4


def _rotate(header: EventHeader, file: str, position: int, body: Reader) -> RotateEvent:
    next_position, name = body.uint(8), body.rest()
    if not name or len(name) > FILE_NAME_LIMIT or b"\0" in name:
        raise DecodeError(
            f"the next binlog file's name has {len(name)} bytes; "
            f"1 to {FILE_NAME_LIMIT} bytes without zeros are allowed"
        )
    text = utf8_text(name)
    if not split_file_name(text)[1]:
        raise DecodeError(
            f"a ROTATE leads to an invalid binlog file name: {text!r} does not end with a number"
        )
    return RotateEvent(header, file, position, text, next_position)


def _stop(header: EventHeader, file: str, position: int, body: Reader) -> StopEvent:
    return StopEvent(header, file, position)


def _heartbeat(header: EventHeader, file: str, position: int, body: Reader) -> HeartbeatEvent:
    return HeartbeatEvent(
        header, file, position, utf8_text(body.rest()[:FILE_NAME_LIMIT]), header.next_position
    )


# Fields of HEARTBEAT_V2 (control_events.h: OTW_HB_*).
_HEARTBEAT_END, _HEARTBEAT_FILE, _HEARTBEAT_POSITION = range(3)


def _heartbeat_v2(header: EventHeader, file: str, position: int, body: Reader) -> HeartbeatEvent:
    """Fields of type, length and value; numbers are length-encoded, so that positions above 4 GiB fit (WL#14190)."""
    event = HeartbeatEvent(header, file, position, "", 0)
    while body.remaining and (field := body.lenenc_int()) != _HEARTBEAT_END:
        value = body.lenenc_bytes()
        if field == _HEARTBEAT_FILE:
            event.source_file = utf8_text(value[:FILE_NAME_LIMIT])
        elif field == _HEARTBEAT_POSITION:
            event.source_position = Reader(value).lenenc_int()
    return event


def table_id_size(post_header_sizes: bytes) -> int:
    """Size of table ids: 4 bytes if TABLE_MAP's post-header has 6 (servers before 5.1.4), else 6."""
    index = EventType.TABLE_MAP - 1
    return 4 if len(post_header_sizes) > index and post_header_sizes[index] == 6 else 6


def parse_format_description(
    header: EventHeader, file: str, position: int, body: Reader, algorithm: int | None
) -> FormatDescriptionEvent:
    """FORMAT_DESCRIPTION. ``algorithm`` is the checksum algorithm; ``body`` ends before that byte."""
    binlog_version = body.uint(2)
    if binlog_version != _BINLOG_VERSION:
        raise DecodeError(f"the binlog version is {binlog_version}; only 4 (MySQL 5.0 and later) can be read")
    server_version = utf8_text(body.take(50).split(b"\0", 1)[0])
    created, header_size = body.uint(4), body.u8()
    if header_size < 19:
        raise DecodeError(
            f"the format description announces event headers of {header_size} bytes, less than 19"
        )
    return FormatDescriptionEvent(
        header, file, position, binlog_version, server_version, created, header_size, body.rest(), algorithm
    )


BODY_PARSERS: dict[int, BodyParser] = {
    EventType.STOP: _stop,
    EventType.ROTATE: _rotate,
    EventType.INTVAR: statement_bodies.intvar,
    EventType.LOAD: statement_bodies.load,
    EventType.CREATE_FILE: statement_bodies.create_file,
    EventType.APPEND_BLOCK: statement_bodies.append_block,
    EventType.EXEC_LOAD: statement_bodies.execute_load,
    EventType.DELETE_FILE: statement_bodies.delete_file,
    EventType.NEW_LOAD: statement_bodies.load,
    EventType.RAND: statement_bodies.rand,
    EventType.USER_VAR: statement_bodies.user_var,
    EventType.BEGIN_LOAD_QUERY: statement_bodies.begin_load_query,
    EventType.EXECUTE_LOAD_QUERY: statement_bodies.execute_load_query,
    EventType.INCIDENT: statement_bodies.incident,
    EventType.HEARTBEAT: _heartbeat,
    EventType.PREVIOUS_GTIDS: transaction_bodies.previous_gtids,
    EventType.TRANSACTION_CONTEXT: transaction_bodies.transaction_context,
    EventType.VIEW_CHANGE: transaction_bodies.view_change,
    EventType.XA_PREPARE: transaction_bodies.xa_prepare,
    EventType.TRANSACTION_PAYLOAD: transaction_bodies.transaction_payload,
    EventType.HEARTBEAT_V2: _heartbeat_v2,
    EventType.GTID_TAGGED: transaction_bodies.gtid_tagged,
    EventType.MARIADB_BINLOG_CHECKPOINT: mariadb_bodies.binlog_checkpoint,
    EventType.MARIADB_GTID_LIST: mariadb_bodies.gtid_list,
    EventType.MARIADB_START_ENCRYPTION: mariadb_bodies.start_encryption,
}
