"""Frames: split, join, count; whole, byte by byte and cut anywhere."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import MAX_FRAME_PAYLOAD
from protocol.conversation.packets import (
    BULK_SIZE,
    MAX_LOGIN_PAYLOAD,
    MAX_PAYLOAD,
    FrameStream,
    PayloadInPieces,
)
from protocol.errors import ProtocolError
from tests.support.feeding import all_cuts


def frame(payload: bytes, sequence: int) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def read_all(stream: FrameStream) -> list[bytes]:
    payloads = []
    while (payload := stream.read()) is not None:
        payloads.append(payload)
    return payloads


def test_a_frame_is_length_number_payload() -> None:
    stream = FrameStream()
    assert stream.encode(b"abc") == b"\x03\0\0\0abc"
    assert stream.encode(b"") == b"\0\0\0\x01"
    assert stream.sequence == 2


def test_both_directions_share_the_counter() -> None:
    stream = FrameStream()
    stream.receive(frame(b"greeting", 0))
    assert stream.read() == b"greeting"
    assert stream.encode(b"login")[3] == 1
    stream.receive(frame(b"ok", 2))
    assert stream.read() == b"ok"


def test_the_counter_wraps() -> None:
    stream = FrameStream()
    stream.receive(b"".join(frame(b"x", index & 0xFF) for index in range(600)))
    assert len(read_all(stream)) == 600
    writer = FrameStream()
    writer.sequence = 255
    assert [writer.encode(b"")[3], writer.encode(b"")[3]] == [255, 0]


@pytest.mark.parametrize("bulk", [False, True])
def test_any_cut_gives_the_same_payloads(bulk: bool) -> None:
    payloads = [b"\0" + bytes([index]) * (index * 7 % 40) for index in range(30)]
    wire = b"".join(frame(payload, index) for index, payload in enumerate(payloads))
    for pieces in all_cuts(wire, seed=20):
        stream = FrameStream()
        got = []
        for piece in pieces:
            stream.receive(piece)
            got += [b"\0" + rest for rest in stream.read_prefixed(b"\0")] if bulk else read_all(stream)
        assert got == payloads
        assert stream.buffered == 0


@given(st.lists(st.binary(max_size=50), max_size=40), st.data())
def test_bulk_and_single_reads_agree(payloads: list[bytes], data: st.DataObject) -> None:
    wire = b"".join(frame(payload, index & 0xFF) for index, payload in enumerate(payloads))
    cut = data.draw(st.integers(0, len(wire)))
    prefix = data.draw(st.sampled_from([b"\0", b"\0\xef\0", b"\0\0\0\0"]))
    stream = FrameStream()
    got = []
    for piece in (wire[:cut], wire[cut:]):
        stream.receive(piece)
        while True:
            prefixed = stream.read_prefixed(prefix)
            got += [prefix + rest for rest in prefixed]
            other = stream.read()
            if other is None:
                break
            assert not other.startswith(prefix)
            got.append(other)
    assert got == payloads


def test_bulk_reading_stops_before_another_payload() -> None:
    stream = FrameStream()
    stream.receive(frame(b"\0one", 0) + frame(b"\0two", 1) + frame(b"\xfferror", 2) + frame(b"\0three", 3))
    assert stream.read_prefixed(b"\0") == [b"one", b"two"]
    assert stream.read_prefixed(b"\0") == []
    assert stream.buffered == len(b"\xfferror") + len(frame(b"\0three", 3))
    assert stream.read() == b"\xfferror"
    assert stream.read_prefixed(b"\0") == [b"three"]


def test_bulk_reading_stops_after_the_bytes_asked_for() -> None:
    stream = FrameStream()
    stream.receive(b"".join(frame(b"\0" + bytes(999), number) for number in range(100)))
    for payloads, size in (
        (stream.read_prefixed(b"\0", 1 << 14), 1 << 14),
        (stream.read_prefixed(b"\0"), BULK_SIZE),
    ):
        assert size <= 1000 * len(payloads) <= size + 2000


@pytest.mark.parametrize("position", [0, 1, 5])
@pytest.mark.parametrize("bulk", [False, True])
def test_a_gap_in_the_numbers_is_an_error(position: int, bulk: bool) -> None:
    numbers = list(range(8))
    numbers[position] += 1
    stream = FrameStream()
    stream.receive(b"".join(frame(b"\0payload", number) for number in numbers))

    def read_to_the_gap() -> None:
        for _ in range(8):
            assert (stream.read_prefixed(b"\0") if bulk else stream.read()) is not None

    with pytest.raises(ProtocolError, match=f"frame number {position + 1} came where {position} was due"):
        read_to_the_gap()


@pytest.mark.parametrize("bulk", [False, True])
def test_a_restart_is_allowed_once(bulk: bool) -> None:
    def read(stream: FrameStream) -> bytes | None:
        return stream.read_prefixed(b"\0")[0] if bulk else stream.read()

    for number in (1, 6):
        stream = FrameStream()
        stream.sequence = 6
        stream.allow_restart(1)
        stream.receive(frame(b"\0x", number))
        assert read(stream) is not None
        stream.receive(frame(b"\0x", number + 1))
        assert read(stream) is not None
        stream.receive(frame(b"\0x", 1))
        with pytest.raises(ProtocolError, match="frame number 1"):
            read(stream)


def test_the_limit_is_enforced_before_the_payload_arrives() -> None:
    stream = FrameStream()
    stream.receive(frame(b"", 0)[:0] + (MAX_LOGIN_PAYLOAD + 1).to_bytes(3, "little") + b"\0")
    with pytest.raises(ProtocolError, match="are allowed"):
        stream.read()
    stream = FrameStream(max_payload=10)
    stream.receive(frame(b"\0" * 10, 0) + frame(b"\0" * 11, 1))
    with pytest.raises(ProtocolError, match="11 bytes or more; 10 are allowed"):
        stream.read_prefixed(b"\0")
    many_frames = FrameStream(max_payload=MAX_FRAME_PAYLOAD + 100)
    many_frames.receive(frame(bytes(MAX_FRAME_PAYLOAD), 0) + (101).to_bytes(3, "little") + b"\x01")
    with pytest.raises(ProtocolError, match="are allowed"):
        many_frames.read()


@pytest.mark.parametrize("extra", [-2, -1, 0, 1, MAX_FRAME_PAYLOAD])
def test_large_payloads_are_split_and_joined(extra: int) -> None:
    payload = b"\0" + bytes(range(256)) * (MAX_FRAME_PAYLOAD // 256) + b"\x07" * (255 + extra - 1)
    assert len(payload) == MAX_FRAME_PAYLOAD + extra
    wire = FrameStream().encode(payload)
    frames = 1 if extra < 0 else 2 if extra < MAX_FRAME_PAYLOAD else 3
    assert len(wire) == len(payload) + 4 * frames
    if extra == 0:
        assert wire.endswith(b"\0\0\0\x01")
    for bulk in (False, True):
        stream = FrameStream(MAX_PAYLOAD)
        for start in range(0, len(wire), 1 << 20):
            stream.receive(wire[start : start + (1 << 20)])
        if bulk:
            assert stream.read_prefixed(b"\0") == [payload[1:]]
        else:
            assert stream.read() == payload
        assert stream.buffered == 0
        assert stream.sequence == frames


def test_a_large_payload_takes_little_more_than_its_size() -> None:
    """Not a second copy of it."""
    size = 120 << 20
    wire = FrameStream().encode(b"\0" + bytes(size))
    stream = FrameStream(MAX_PAYLOAD)
    tracemalloc.start()
    try:
        events = []
        for start in range(0, len(wire), 1 << 16):
            stream.receive(wire[start : start + (1 << 16)])
            events += stream.read_prefixed(b"\0")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(event) for event in events] == [size]
    assert peak < 1.4 * size


def test_a_large_payload_is_asked_for_in_two_ways() -> None:
    """Its first frame is there when payloads with a prefix are read, and its end when any are."""
    payload = b"\0\1" + bytes(MAX_FRAME_PAYLOAD)
    for first, second in ((b"\0", b""), (b"\0", b"\0"), (b"\0", b"\0\1"), (b"\0\1", b"\0"), (b"x", b"\0")):
        stream = FrameStream(MAX_PAYLOAD)
        wire = FrameStream().encode(payload)
        stream.receive(wire[:-2])
        assert stream.read_prefixed(first) == []
        stream.receive(wire[-2:])
        if second:
            assert stream.read_prefixed(second) == [payload.removeprefix(second)]
        else:
            assert stream.read() == payload
        assert stream.buffered == 0


@pytest.mark.parametrize("size", [1, 255, MAX_FRAME_PAYLOAD - 1, MAX_FRAME_PAYLOAD, MAX_FRAME_PAYLOAD + 1])
def test_a_payload_in_pieces_has_the_same_frames(size: int) -> None:
    payload = bytes(size)
    frames = FrameStream()
    frames.sequence = 254
    pieces = PayloadInPieces(size, 254)
    sent = []
    for start in range(0, size, 7_000_001):
        assert not pieces.is_complete
        sent += pieces.encode(payload[start : start + 7_000_001])
    assert pieces.is_complete
    assert b"".join(sent) == frames.encode(payload)
    assert pieces.sequence == frames.sequence
    with pytest.raises(ValueError, match="1 bytes, but 0 are left"):
        pieces.encode(b"x")
