"""GTIDs that no server writes are refused where they are read: a later reconnect would have to encode them."""

from __future__ import annotations

import struct

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import GtidEvent
from protocol.constants import EventType
from protocol.errors import ConfigurationError, DecodeError
from protocol.gtid import GtidSet
from tests.support.raw_events import format_description, raw_event

SOURCE = bytes(range(16))
LAST = (1 << 63) - 2


def tagged(tag: bytes, sequence: int = 5) -> bytes:
    """GTID_TAGGED: version 1, its size, the last mandatory field; flags, source id, sequence and tag."""
    number = b"\xff" + struct.pack("<Q", sequence << 1)
    fields = b"\0\0" + b"\2" + bytes(octet << 1 for octet in SOURCE) + b"\4" + number
    fields += b"\6" + bytes([len(tag) << 1]) + tag
    return raw_event(EventType.GTID_TAGGED, b"\2\0\0" + fields)


def plain(sequence: int, rest: bytes = b"") -> bytes:
    return raw_event(EventType.GTID, struct.pack("<B16sq", 1, SOURCE, sequence) + rest)


def decoded(raw: bytes) -> GtidEvent:
    decoder = EventDecoder()
    decoder.decode(format_description("9.7.4", 0))
    event = decoder.decode(raw)
    assert isinstance(event, GtidEvent)
    return event


@pytest.mark.parametrize("tag", [b"a", b"_tag_1", b"x" * 32, b""])
def test_tags_that_servers_write(tag: bytes) -> None:
    gtids = GtidSet([decoded(tagged(tag)).gtid])
    assert GtidSet.decode(gtids.encode()) == GtidSet(str(gtids)) == gtids


@pytest.mark.parametrize(
    "tag", ["é".encode(), b"x" * 100, b"1", b"A", b"a:1-9,", b" ", b"a\n", b"\xff", b"\0"]
)
def test_other_tags(tag: bytes) -> None:
    """A set with some of them could not be encoded (UnicodeEncodeError), with others it was another set as text."""
    with pytest.raises(DecodeError, match="not a GTID tag"):
        decoded(tagged(tag))


# As current servers write it, which is read on a fast path: the clock, the time, length and version.
USUAL = b"\2" + struct.pack("<qq7sBI", 1, 2, bytes(7), 100, 90700)


@pytest.mark.parametrize("rest", [b"", USUAL])
def test_sequence_numbers(rest: bytes) -> None:
    for sequence in (1, LAST):
        gtids = GtidSet([decoded(plain(sequence, rest)).gtid])
        assert GtidSet.decode(gtids.encode()) == gtids
    for sequence in (0, -1, -(1 << 63)):
        with pytest.raises(DecodeError, match="impossible sequence number"):
            decoded(plain(sequence, rest))
    with pytest.raises(DecodeError, match="impossible sequence number"):
        decoded(tagged(b"a", LAST + 1))
    # Without a tag the number behind the last valid one is refused where it gets into a set.
    with pytest.raises(ConfigurationError, match="not an interval"):
        GtidSet([decoded(plain(LAST + 1, rest)).gtid])
