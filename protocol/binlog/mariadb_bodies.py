"""Parsers of the event bodies that only MariaDB writes, except rows events.

Layouts: MariaDB's ``sql/log_event.h`` and ``log_event.cc`` (Gtid_log_event, Gtid_list_log_event, ...).
"""

from typing import Final

from ..constants import MariadbGtidExtraFlag, MariadbGtidFlag
from ..errors import DecodeError
from ..gtid import MariadbGtid
from ..inflate import uncompress_event_part
from ..wire import Reader, utf8_bytes, utf8_text
from .events import (
    BinlogCheckpointEvent,
    EventHeader,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    QueryEvent,
    StartEncryptionEvent,
)
from .statement_bodies import query

_XA: Final = MariadbGtidFlag.PREPARED_XA | MariadbGtidFlag.COMPLETED_XA
_ALTER_END: Final = MariadbGtidExtraFlag.COMMIT_ALTER | MariadbGtidExtraFlag.ROLLBACK_ALTER


def gtid(header: EventHeader, file: str, position: int, body: Reader) -> MariadbGtidEvent:
    """MARIADB_GTID (``Gtid_log_event``): optional parts follow the 13 fixed bytes, in the order of their flags.

    The body is padded with zero bytes to 19 (GTID_HEADER_LEN), which read as no extra flags.
    """
    sequence, domain_id, flags = body.uint(8), body.uint(4), body.u8()
    gtid = MariadbGtid(domain_id, header.server_id, sequence)
    event = MariadbGtidEvent(header, file, position, gtid, flags)
    if flags & MariadbGtidFlag.GROUP_COMMIT_ID:
        event.commit_id = body.uint(8)
    if flags & _XA:
        event.xid = _xa_id(body)
    if body.remaining:
        _read_extra(event, body)
    return event


def _xa_id(body: Reader) -> tuple[int, bytes, bytes]:
    format_id = body.uint(4)
    gtrid_length, bqual_length = body.u8(), body.u8()
    return format_id, body.take(gtrid_length), body.take(bqual_length)


def _read_extra(event: MariadbGtidEvent, body: Reader) -> None:
    event.extra_flags = body.u8()
    if event.extra_flags & MariadbGtidExtraFlag.MULTI_ENGINE:
        event.extra_engines = body.u8()
    if event.extra_flags & _ALTER_END:
        event.alter_sequence = body.uint(8)
    if event.extra_flags & MariadbGtidExtraFlag.THREAD_ID and body.remaining >= 4:
        event.thread_id = body.uint(4)


def gtid_list(header: EventHeader, file: str, position: int, body: Reader) -> MariadbGtidListEvent:
    """Count in the low 28 bits, flags above; entries of domain, server and sequence."""
    word = body.uint(4)
    count = word & 0x0FFFFFFF
    if count * 16 > body.remaining:
        raise DecodeError(f"a GTID list announces {count} entries in {body.remaining} bytes")
    gtids = tuple(MariadbGtid(body.uint(4), body.uint(4), body.uint(8)) for _ in range(count))
    return MariadbGtidListEvent(header, file, position, gtids, word >> 28)


def binlog_checkpoint(header: EventHeader, file: str, position: int, body: Reader) -> BinlogCheckpointEvent:
    return BinlogCheckpointEvent(header, file, position, utf8_text(body.take(body.uint(4))))


def start_encryption(header: EventHeader, file: str, position: int, body: Reader) -> StartEncryptionEvent:
    """START_ENCRYPTION."""
    return StartEncryptionEvent(header, file, position, body.u8(), body.uint(4), body.take(12))


def query_compressed(
    header: EventHeader, file: str, position: int, body: Reader, max_event_bytes: int
) -> QueryEvent:
    """QUERY_COMPRESSED: a QUERY whose statement is compressed (log_bin_compress)."""
    event = query(header, file, position, body)
    compressed = utf8_bytes(event.sql)
    event.sql = utf8_text(uncompress_event_part(compressed, max_event_bytes))
    return event
