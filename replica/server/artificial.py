"""Makes the events that a source sends but no file holds: artificial rotates, heartbeats and GTID lists.

It also adapts the format description for sending. The bytes equal those recorded from MySQL 9.7 and MariaDB 11.8,
whose ``rpl_binlog_sender.cc`` and ``sql_repl.cc`` make these events.
"""

import struct
from collections.abc import Iterable
from typing import Final
from zlib import crc32

from protocol.constants import (
    CHECKSUM_SIZE,
    EVENT_END_OFFSET,
    EVENT_FLAGS_OFFSET,
    EVENT_HEADER_SIZE,
    POSITION_MASK,
    EventFlag,
    EventType,
)
from protocol.gtid import MariadbGtid
from protocol.wire import encode_lenenc_bytes, encode_lenenc_int, utf8_bytes

_HEADER: Final = struct.Struct("<IBIIIH")
# After the binlog version (2 bytes) and the server version (50 bytes).
_CREATED_OFFSET: Final = EVENT_HEADER_SIZE + 2 + 50

# Fields of HEARTBEAT_V2 (control_events.h: OTW_HB_*); the last one ends the list.
_HEARTBEAT_FILE: Final = b"\x01"
_HEARTBEAT_POSITION: Final = b"\x02"
_HEARTBEAT_END: Final = b"\x00"


def _event(
    event_type: int, server_id: int, body: bytes, position: int, flags: int, *, has_checksum: bool
) -> bytes:
    size = EVENT_HEADER_SIZE + len(body) + CHECKSUM_SIZE * has_checksum
    # The timestamp 0 tells replicas that the event is not part of the log.
    raw = _HEADER.pack(0, event_type, server_id, size, position, flags) + body
    return raw + crc32(raw).to_bytes(CHECKSUM_SIZE, "little") if has_checksum else raw


def rotate(server_id: int, file: str, position: int, *, has_checksum: bool) -> bytes:
    """An artificial ROTATE: the next events are those of this file, from this position on."""
    body = struct.pack("<Q", position) + utf8_bytes(file)
    return _event(EventType.ROTATE, server_id, body, 0, EventFlag.ARTIFICIAL, has_checksum=has_checksum)


def heartbeat(server_id: int, file: str, position: int, *, has_checksum: bool) -> bytes:
    """A HEARTBEAT: the log has nothing new after this position.

    Positions beyond 32 bits go into the body, as on MariaDB.
    """
    body = utf8_bytes(file)
    if position > POSITION_MASK:
        body, position = struct.pack("<Q", position) + body, 0
    return _event(EventType.HEARTBEAT, server_id, body, position, 0, has_checksum=has_checksum)


def heartbeat_v2(server_id: int, file: str, position: int, *, has_checksum: bool) -> bytes:
    """A HEARTBEAT_V2, for replicas that ask for the form with 64-bit positions (WL#14190)."""
    body = b"".join(
        [
            _HEARTBEAT_FILE,
            encode_lenenc_bytes(utf8_bytes(file)),
            _HEARTBEAT_POSITION,
            encode_lenenc_bytes(encode_lenenc_int(position)),
            _HEARTBEAT_END,
        ]
    )
    place = position & POSITION_MASK
    return _event(EventType.HEARTBEAT_V2, server_id, body, place, 0, has_checksum=has_checksum)


def gtid_list(server_id: int, gtids: Iterable[MariadbGtid], position: int, *, has_checksum: bool) -> bytes:
    """MariaDB's artificial GTID_LIST: the replica's transactions were skipped, the log goes on at this position."""
    entries = [struct.pack("<IIQ", gtid.domain_id, gtid.server_id, gtid.sequence) for gtid in gtids]
    body = len(entries).to_bytes(4, "little") + b"".join(entries)
    return _event(
        EventType.MARIADB_GTID_LIST,
        server_id,
        body,
        position & POSITION_MASK,
        EventFlag.ARTIFICIAL,
        has_checksum=has_checksum,
    )


def format_description(raw: bytes, *, keep_position: bool, keep_created: bool, has_checksums: bool) -> bytes:
    """A file's format description as it is sent: never with the flag of a file that is still open.

    ``keep_position`` is False if the dump starts after this event: with position 0 it does not move the replica's
    position back. ``keep_created`` is False if the replica has read past this event before: the creation time would
    make it drop temporary tables that it still needs. Where events have no checksums, servers leave the checksum of
    this event as it was.
    """
    sent = bytearray(raw)
    sent[EVENT_FLAGS_OFFSET] &= ~EventFlag.BINLOG_IN_USE & 0xFF
    if not keep_position:
        sent[EVENT_END_OFFSET : EVENT_END_OFFSET + 4] = bytes(4)
    if not keep_created:
        sent[_CREATED_OFFSET : _CREATED_OFFSET + 4] = bytes(4)
    if has_checksums:
        sent[-CHECKSUM_SIZE:] = crc32(sent[:-CHECKSUM_SIZE]).to_bytes(CHECKSUM_SIZE, "little")
    return bytes(sent)
