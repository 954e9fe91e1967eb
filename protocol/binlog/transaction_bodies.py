"""Parsers of the events that frame MySQL's transactions: GTIDs, XA, compressed payloads, group replication.

Layouts: MySQL's ``control_events.h`` (Gtid_event, XA_prepare_event, Transaction_context_event, View_change_event)
and ``transaction_payload_event.h`` with its codec.
"""

import struct
from collections.abc import Callable

from ..constants import EventType
from ..errors import DecodeError
from ..gtid import SEQUENCE_END, Gtid, GtidSet, checked_tag, new_gtid
from ..wire import Reader, utf8_text
from .commit_time import ORIGINAL_FOLLOWS
from .events import (
    AnonymousGtidEvent,
    EventHeader,
    GtidEvent,
    PreviousGtidsEvent,
    TransactionContextEvent,
    TransactionPayloadEvent,
    ViewChangeEvent,
    XaPrepareEvent,
)
from .tagged_fields import read_message, read_signed, read_text, read_unsigned

_GTID_HEADER = struct.Struct("<B16sq")
_CLOCK = struct.Struct("<qq")
LOGICAL_CLOCK = 2
#: In the immediate source's version: the original source's follows.
ORIGINAL_VERSION_FOLLOWS = 1 << 31


def gtid(header: EventHeader, file: str, position: int, body: Reader) -> AnonymousGtidEvent:
    """GTID and ANONYMOUS_GTID. Later server versions appended fields; a field that is missing is None."""
    start = body.skip(_GTID_HEADER.size)
    flags, source_id, sequence = _GTID_HEADER.unpack_from(body.data, start)
    event: AnonymousGtidEvent
    if header.type == EventType.ANONYMOUS_GTID:
        event = AnonymousGtidEvent(header, file, position, flags)
    else:
        event = GtidEvent(header, file, position, flags, gtid=_checked_gtid(source_id, sequence))
    if body.remaining and body.u8() == LOGICAL_CLOCK:
        start = body.skip(_CLOCK.size)
        event.last_committed, event.sequence_number = _CLOCK.unpack_from(body.data, start)
        _read_details(event, body)
    return event


def _checked_gtid(source_id: bytes, sequence: int, tag: str = "") -> Gtid:
    """The GTID of an event. Raises ``DecodeError`` for a sequence number below 1."""
    if sequence < 1:
        raise DecodeError(f"a GTID has the impossible sequence number {sequence}")
    return new_gtid(source_id, sequence, tag)


def _read_details(event: AnonymousGtidEvent, body: Reader) -> None:
    """Commit timestamps (WL#7319), length (WL#10549), server versions (WL#11441), commit group ticket (8.0.29)."""
    if body.remaining >= 7:
        event.immediate_commit_timestamp, event.original_commit_timestamp = _pair(body, 7, ORIGINAL_FOLLOWS)
    if body.remaining:
        event.transaction_length = body.lenenc_int()
    if body.remaining >= 4:
        event.immediate_server_version, event.original_server_version = _pair(
            body, 4, ORIGINAL_VERSION_FOLLOWS
        )
    if body.remaining >= 8:
        event.commit_group_ticket = body.uint(8)


def _pair(body: Reader, size: int, later_bit: int) -> tuple[int, int]:
    """The immediate source's value and the original source's value, which is logged only if it differs."""
    immediate = body.uint(size)
    if immediate & later_bit:
        return immediate & ~later_bit, body.uint(size)
    return immediate, immediate


def _read_source_id(body: Reader) -> bytes:
    """Sixteen variable-length numbers: those above 127 take two bytes."""
    octets = [read_unsigned(body) for _ in range(16)]
    if max(octets) > 255:
        raise DecodeError("a GTID's source id has a number above 255")
    return bytes(octets)


# Field ids of Gtid_event::define_fields, and the attribute that each becomes.
_TAGGED_FIELDS: dict[int, tuple[str, Callable[[Reader], object]]] = {
    0: ("gtid_flags", read_unsigned),
    1: ("source_id", _read_source_id),
    2: ("sequence", read_signed),
    3: ("tag", read_text),
    4: ("last_committed", read_signed),
    5: ("sequence_number", read_signed),
    6: ("immediate_commit_timestamp", read_unsigned),
    7: ("original_commit_timestamp", read_unsigned),
    8: ("transaction_length", read_unsigned),
    9: ("immediate_server_version", read_unsigned),
    10: ("original_server_version", read_unsigned),
    11: ("commit_group_ticket", read_unsigned),
}
_TAGGED_READERS = {field_id: read for field_id, (_, read) in _TAGGED_FIELDS.items()}
_TAGGED_NEEDED = frozenset({"gtid_flags", "source_id", "sequence"})


def gtid_tagged(header: EventHeader, file: str, position: int, body: Reader) -> GtidEvent:
    """GTID_TAGGED (8.3): a GTID event in the format of ``tagged_fields``."""
    values = read_message(body, _TAGGED_READERS)
    named = {_TAGGED_FIELDS[field_id][0]: value for field_id, value in values.items()}
    if not named.keys() >= _TAGGED_NEEDED:
        raise DecodeError("a GTID_TAGGED event lacks its flags, source id or sequence number")
    source_id, sequence, tag = named.pop("source_id"), named.pop("sequence"), named.pop("tag", "")
    flags = named.pop("gtid_flags")
    if not (isinstance(source_id, bytes) and isinstance(sequence, int) and isinstance(tag, str)):
        raise DecodeError("a GTID_TAGGED event has fields of the wrong type")
    if sequence >= SEQUENCE_END:
        raise DecodeError(f"a GTID has the impossible sequence number {sequence}")
    gtid = _checked_gtid(source_id, sequence, checked_tag(tag))
    event = GtidEvent(header, file, position, int(str(flags)), gtid=gtid)
    for name, value in named.items():
        setattr(event, name, value)
    if event.original_commit_timestamp is None:
        event.original_commit_timestamp = event.immediate_commit_timestamp
    if event.original_server_version is None:
        event.original_server_version = event.immediate_server_version
    return event


def previous_gtids(header: EventHeader, file: str, position: int, body: Reader) -> PreviousGtidsEvent:
    """PREVIOUS_GTIDS."""
    return PreviousGtidsEvent(header, file, position, GtidSet.decode(body.rest()))


def xa_prepare(header: EventHeader, file: str, position: int, body: Reader) -> XaPrepareEvent:
    """XA_PREPARE; MariaDB has the same layout."""
    one_phase, format_id = body.u8(), body.uint(4)
    gtrid_length, bqual_length = body.uint(4), body.uint(4)
    if gtrid_length > 64 or bqual_length > 64:
        raise DecodeError(
            f"an XA xid has parts of {gtrid_length} and {bqual_length} bytes; 64 are allowed for each"
        )
    gtrid, bqual = body.take(gtrid_length), body.take(bqual_length)
    return XaPrepareEvent(header, file, position, bool(one_phase), format_id, gtrid, bqual)


# Fields of TRANSACTION_PAYLOAD's header (transaction_payload_codec.cc: OTW_PAYLOAD_*).
_PAYLOAD_END, _PAYLOAD_SIZE, _PAYLOAD_COMPRESSION, _PAYLOAD_UNCOMPRESSED_SIZE = range(4)
_UNCOMPRESSED = 255
# Later servers may add some, which are passed over. That bounds the memory for an event that lies.
_MOST_PAYLOAD_FIELDS = 64


def transaction_payload(
    header: EventHeader, file: str, position: int, body: Reader
) -> TransactionPayloadEvent:
    """TRANSACTION_PAYLOAD: fields of type, length and value, an end mark, the payload (WL#3549)."""
    fields: dict[int, int] = {}
    while (field := body.lenenc_int()) != _PAYLOAD_END:
        if field in fields or len(fields) == _MOST_PAYLOAD_FIELDS:
            raise DecodeError("a compressed transaction has a field twice, or more fields than there are")
        fields[field] = Reader(body.lenenc_bytes()).lenenc_int()
    compression = fields.get(_PAYLOAD_COMPRESSION, _UNCOMPRESSED)
    payload = body.take(fields.get(_PAYLOAD_SIZE, body.remaining))
    size = fields.get(_PAYLOAD_UNCOMPRESSED_SIZE, len(payload))
    return TransactionPayloadEvent(header, file, position, compression, size, payload)


def _byte_strings(body: Reader, count: int) -> tuple[bytes, ...]:
    return tuple(body.take(body.uint(2)) for _ in range(count))


def transaction_context(
    header: EventHeader, file: str, position: int, body: Reader
) -> TransactionContextEvent:
    """TRANSACTION_CONTEXT."""
    uuid_length, thread_id, specified = body.u8(), body.uint(4), body.u8()
    snapshot_length, write_count, read_count = body.uint(4), body.uint(4), body.uint(4)
    server_uuid, snapshot = utf8_text(body.take(uuid_length)), body.take(snapshot_length)
    write_set, read_set = _byte_strings(body, write_count), _byte_strings(body, read_count)
    return TransactionContextEvent(
        header, file, position, server_uuid, thread_id, bool(specified), snapshot, write_set, read_set
    )


def view_change(header: EventHeader, file: str, position: int, body: Reader) -> ViewChangeEvent:
    """VIEW_CHANGE."""
    view_id = utf8_text(body.take(40).rstrip(b"\0"))
    sequence_number, count = body.uint(8), body.uint(4)
    info = {}
    for _ in range(count):
        key = body.take(body.uint(2))
        info[key] = body.take(body.uint(4))
    return ViewChangeEvent(header, file, position, view_id, sequence_number, info)
