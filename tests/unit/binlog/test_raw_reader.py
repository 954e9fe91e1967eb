"""Raw events of a file: offsets, torn ends, old formats, and the search for the next event after damage."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.checksum import crc32_matches
from protocol.binlog.raw_reader import CHUNK_SIZE, RawEventReader, TornTail
from protocol.constants import BINLOG_MAGIC, EventFlag, EventType
from protocol.errors import DecodeError, TruncatedError, UnsupportedEventError
from tests.support.examples import times
from tests.support.log_builder import LogBuilder
from tests.support.raw_events import format_description, raw_event, rotate


def small_log(*, checksum: bool = True, shift: int | None = 0) -> LogBuilder:
    log = LogBuilder(checksum=checksum, shift=shift)
    for value in range(6):
        log.statement(f"CREATE TABLE t{value} (a INT)")
        log.transaction(list(range(value, value + 3)), sequence=value + 1)
    return log


def reader_of(data: bytes | bytearray, torn: TornTail = "stop") -> RawEventReader:
    return RawEventReader(io.BytesIO(data).read, file="binlog.000001", torn=torn)


def read_all(reader: RawEventReader) -> list[tuple[int, bytes]]:
    events = []
    while (raw := reader.read_event()) is not None:
        events.append((reader.event_position, raw))
    return events


def events_of(log: LogBuilder) -> list[tuple[int, bytes]]:
    return [(offset, log.event(index)) for index, offset in enumerate(log.offsets)]


def survivors(
    data: bytes | bytearray, is_right: Callable[[bytes], bool] = crc32_matches
) -> tuple[list[int], int]:
    """The offsets of the events that a reader finds when it skips damage, and the number of skipped bytes."""
    reader = reader_of(data)
    found: list[int] = []
    passed = 0
    while True:
        before = reader.position
        try:
            raw = reader.read_event()
            if raw is None:
                return found, passed
            if not is_right(raw):
                raise DecodeError("checksum")
            found.append(reader.event_position)
        except DecodeError:
            passed += reader.resynchronize()
        assert reader.position > before


@pytest.mark.parametrize("piece", [1, 7, 19, 20, 100, CHUNK_SIZE])
@pytest.mark.parametrize("checksum", [True, False])
def test_events_and_offsets_whatever_the_pieces(piece: int, checksum: bool) -> None:
    log = small_log(checksum=checksum)
    stream = io.BytesIO(log.data)
    reader = RawEventReader(lambda size: stream.read(min(size, piece)))
    assert read_all(reader) == events_of(log)
    assert reader.position == len(log.data)
    assert reader.torn_bytes == 0


def test_an_event_larger_than_a_piece() -> None:
    log = LogBuilder()
    log.statement("x" * (CHUNK_SIZE * 3 + 5))
    log.statement("y")
    assert read_all(reader_of(log.data)) == events_of(log)


@pytest.mark.parametrize("checksum", [True, False])
def test_every_truncation(checksum: bool) -> None:
    log = small_log(checksum=checksum)
    whole = events_of(log)
    for size in range(len(log.data)):
        data = bytes(log.data[:size])
        expected = [(offset, raw) for offset, raw in whole if offset + len(raw) <= size]
        reader = reader_of(data)
        assert read_all(reader) == expected
        end = max((offset + len(raw) for offset, raw in expected), default=4 if size >= 4 else 0)
        assert reader.torn_bytes == size - end
        if size in (0, 4, end):
            assert read_all(reader_of(data, "raise")) == expected
        else:
            with pytest.raises(TruncatedError) as caught:
                read_all(reader_of(data, "raise"))
            assert (caught.value.file, caught.value.position) == ("binlog.000001", end)


@pytest.mark.parametrize("zeros", [1, 4, 18, 19, 1000, CHUNK_SIZE * 2 + 3])
def test_zeros_at_the_end_are_a_torn_tail(zeros: int) -> None:
    log = small_log()
    reader = reader_of(log.data + bytes(zeros))
    assert read_all(reader) == events_of(log)
    assert reader.torn_bytes == zeros
    with pytest.raises(TruncatedError):
        read_all(reader_of(log.data + bytes(zeros), "raise"))


@pytest.mark.parametrize("zeros", [19, 1000, CHUNK_SIZE - 700, CHUNK_SIZE * 2 + 3])
def test_zeros_inside_are_damage(zeros: int) -> None:
    log = small_log()
    before = list(log.offsets)
    log.data += bytes(zeros)
    log.transaction([1])
    with pytest.raises(DecodeError) as caught:
        read_all(reader_of(log.data))
    assert caught.value.position == before[-1] + 31
    assert survivors(log.data) == (log.offsets, zeros)


def test_a_damaged_size_is_no_torn_tail() -> None:
    log = small_log()
    for index, offset in enumerate(log.offsets[1:], 1):
        for size in (1 << 20, 0xFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 5):
            data = bytearray(log.data)
            struct.pack_into("<I", data, offset + 9, size)
            with pytest.raises(DecodeError) as caught:
                read_all(reader_of(data))
            assert caught.value.position == offset
            expected = log.offsets[:index] + log.offsets[index + 1 :]
            assert survivors(data)[0] == expected


def test_the_error_is_repeated_until_one_moves_on() -> None:
    log = small_log()
    struct.pack_into("<I", log.data, log.offsets[3] + 9, 3)
    reader = reader_of(log.data)
    for _ in range(3):
        reader.read_event()
    for _ in range(2):
        with pytest.raises(DecodeError, match="an event of 3 bytes"):
            reader.read_event()
    assert reader.resynchronize() == len(log.event(3))
    assert reader.read_event() == log.event(4)


@pytest.mark.parametrize("shift", [0, 123456, None])
def test_any_damaged_byte_costs_one_event_with_checksums(shift: int | None) -> None:
    log = small_log(shift=shift)
    # Without positions the last event could also be torn, as no event follows it.
    last = len(log.offsets) - (shift is None)
    for index, offset in enumerate(log.offsets[1:last], 1):
        end = log.ends[index]
        for position in range(offset, end):
            data = bytearray(log.data)
            data[position] ^= 0x15
            found, passed = survivors(data)
            assert found == log.offsets[:index] + log.offsets[index + 1 :]
            assert passed == end - offset


@pytest.mark.parametrize("shift", [0, 123456])
def test_damaged_headers_without_checksums(shift: int) -> None:
    log = small_log(checksum=False, shift=shift)
    known = {raw for _, raw in events_of(log)}
    for index, offset in enumerate(log.offsets[1:-1], 1):
        data = bytearray(log.data)
        data[offset + 9] ^= 0x40  # the size's lowest byte
        found, passed = survivors(data, known.__contains__)
        assert found == log.offsets[:index] + log.offsets[index + 1 :]
        assert passed == log.ends[index] - offset


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("size", [1, 40, 5000, CHUNK_SIZE + 11, CHUNK_SIZE * 3])
def test_garbage_between_events(seed: int, checksum: bool, size: int) -> None:
    log = small_log(checksum=checksum)
    known = {raw for _, raw in events_of(log)}
    log.data += random.Random(seed).randbytes(size)
    log.transaction([1, 2, 3], sequence=99)
    known |= {raw for _, raw in events_of(log)[-5:]}
    found, passed = survivors(log.data, known.__contains__)
    assert found == log.offsets
    assert passed == size


@pytest.mark.parametrize("before", [1, 5, 18, 19, 20])
def test_the_next_event_begins_at_the_end_of_a_piece(before: int) -> None:
    """The bytes of its header are read in two steps."""
    log = small_log()
    size = CHUNK_SIZE * 2 - before - len(log.data)
    log.data += b"\xee" * size
    log.transaction([1])
    assert survivors(log.data) == (log.offsets, size)


def test_damage_up_to_the_end() -> None:
    log = small_log()
    garbage = b"\xee" * 5000
    assert survivors(log.data + garbage) == (log.offsets, 5000)


def test_positions_of_a_source_elsewhere() -> None:
    """A relay log: its own format description, then the events that the source sent."""
    log = LogBuilder()
    log.append(rotate("master-bin.000007", flags=EventFlag.ARTIFICIAL, checksum=True))
    log.append(format_description("5.7.20", next_position=123))
    log.shift = 4000
    log.transaction([1])
    assert read_all(reader_of(log.data)) == events_of(log)
    for size in range(log.offsets[3] + 1, len(log.data)):
        reader = reader_of(bytes(log.data[:size]))
        read_all(reader)
        assert reader.torn_bytes == size - max(end for end in (log.offsets[3], *log.ends) if end <= size)


@pytest.mark.parametrize("checksum", [True, False])
def test_a_piece_without_its_beginning(checksum: bool) -> None:
    log = small_log(checksum=checksum)
    start = log.offsets[7]
    reader = reader_of(bytes(log.data[start:]))
    assert read_all(reader) == [(offset - start, raw) for offset, raw in events_of(log)[7:]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"no binlog at all, but some text that is longer than a header",
            "begins with the bytes 6e 6f 20 62",
        ),
        (b"\xfebim", "begins with the bytes fe 62 69 6d"),
        (bytes(100), "begins with the bytes 00 00 00 00"),
        (b"\x1f\x8b\x08\x00", "begins with the bytes 1f 8b 08 00"),
    ],
)
def test_what_is_no_binlog(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        reader_of(data)


def test_old_formats_are_refused_by_name() -> None:
    body = struct.pack("<H50sI", 3, b"4.1.24-log", 0)
    with pytest.raises(UnsupportedEventError, match=r"binlog version 3 of server 4\.1\.24-log") as caught:
        reader_of(BINLOG_MAGIC + raw_event(EventType.START_V3, body))
    assert caught.value.event_type == EventType.START_V3
    # Version 1 has neither a position nor flags in its header.
    body = struct.pack("<H50sI", 1, b"3.23.58", 0)
    event = struct.pack("<IBII", 1, EventType.START_V3, 1, 13 + len(body)) + body
    with pytest.raises(UnsupportedEventError, match=r"binlog version 1 of server 3\.23\.58"):
        reader_of(BINLOG_MAGIC + event)
    for size in range(9, 80):
        with pytest.raises(UnsupportedEventError):
            reader_of((BINLOG_MAGIC + event + bytes(100))[:size])


def test_a_size_beyond_any_event_is_not_read_for() -> None:
    """The reader reads no further if a header already shows that there is no event."""
    asked = []

    def read(size: int) -> bytes:
        asked.append(size)
        return first if len(asked) == 1 else b"x" * size

    header = struct.pack("<IBIIIH", 1, EventType.QUERY, 1, 0xF0000000, 0, 0)
    first = bytes(LogBuilder().data) + header
    reader = RawEventReader(read)
    reader.read_event()
    with pytest.raises(DecodeError, match="an event of 4026531840 bytes"):
        reader.read_event()
    assert len(asked) <= 2


@times(3)
@given(
    cuts=st.lists(
        st.tuples(st.integers(0, 1 << 16), st.binary(max_size=40), st.integers(0, 60)), min_size=1, max_size=5
    ),
    checksum=st.booleans(),
)
def test_whatever_the_damage_the_reader_comes_to_the_end(
    cuts: list[tuple[int, bytes, int]], checksum: bool
) -> None:
    data = bytearray(small_log(checksum=checksum).data)
    for where, put, dropped in cuts:
        offset = where % (len(data) + 1)
        data[offset : offset + dropped] = put
    try:
        survivors(data, lambda raw: zlib.crc32(raw) % 4 != 0)
    except DecodeError:
        # The reader only gives up a file because of its first bytes.
        assert bytes(data[:4]) != BINLOG_MAGIC or data[8:9] == bytes([EventType.START_V3])
