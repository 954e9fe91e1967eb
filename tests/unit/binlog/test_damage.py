"""Damaged events and files: damage is an error of the tree, or has an effect that the damaged bytes explain."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from protocol.binlog.events import Event, RowsEvent, TableMapEvent
from protocol.constants import EVENT_HEADER_SIZE, EventType
from protocol.errors import ChecksumError, DecodeError, ReplicaError
from protocol.rows.cells import CellTable
from protocol.rows.compiler import RowCompiler
from replica.files import binlog_file
from replica.files.binlog_file import open_binlog
from tests.support.damaged_events import (
    ROWS,
    Sample,
    Trial,
    changed,
    pick,
    pick_from_demo,
    resized,
    small_log,
    with_checksum,
)

CHANGES = 200
# Of a file without checksums the quick form flips one bit of so many.
QUICK_STEP = 23

# Events that may end earlier, because their last field takes the rest of the event or because older servers wrote
# fewer fields. All others are refused wherever they are cut.
MAY_BE_SHORTER = ROWS | {
    EventType.QUERY,
    EventType.ROTATE,
    EventType.LOAD,
    EventType.NEW_LOAD,
    EventType.CREATE_FILE,
    EventType.APPEND_BLOCK,
    EventType.BEGIN_LOAD_QUERY,
    EventType.EXECUTE_LOAD_QUERY,
    EventType.TABLE_MAP,
    EventType.ROWS_QUERY,
    EventType.GTID,
    EventType.ANONYMOUS_GTID,
    EventType.GTID_TAGGED,
    EventType.INCIDENT,
    EventType.IGNORABLE,
    EventType.MARIADB_ANNOTATE_ROWS,
    EventType.MARIADB_GTID,
    EventType.MARIADB_GTID_LIST,
}
# Bytes behind the header that nothing is read from.
UNUSED_BYTES: dict[int, range] = {
    EventType.ROWS_QUERY: range(1),  # the text's length, cut to a byte
    EventType.ANONYMOUS_GTID: range(1, 25),  # source id and number of a transaction that has none
    EventType.MARIADB_GTID: range(13, 19),  # filled up to the size of the longest form
    EventType.MARIADB_GTID_LIST: range(4, 6),  # an empty list, filled up to the smallest size
}
# Bitmaps that end inside of a byte, flags of which only zero or not zero counts, optional metadata of unknown types
# and parts of a compressed payload that give the same bytes.
UNUSED_BITS = ROWS | {
    EventType.TABLE_MAP,
    EventType.USER_VAR,
    EventType.PREVIOUS_GTIDS,
    EventType.GTID_TAGGED,
    EventType.TRANSACTION_PAYLOAD,
}


@pytest.fixture(scope="module")
def picked(thorough: bool) -> list[Sample]:
    samples = pick() if thorough else pick_from_demo()
    kinds = Counter(sample.type for sample in samples)
    print(f"{len(samples)} events of {len(kinds)} types: {dict(sorted(kinds.items()))}")
    assert len(kinds) >= 8
    return samples


@pytest.mark.parametrize("checksums", [False, True])
def test_truncations(picked: list[Sample], checksums: bool) -> None:
    """What is left of an event that is cut is refused, or is less than the event was."""
    outcomes: Counter[str] = Counter()
    for sample in picked:
        trial = Trial(sample, checksums)
        for size in range(EVENT_HEADER_SIZE, len(sample.raw)):
            cut = resized(sample.raw[:size])
            left = trial.run(with_checksum(cut) if checksums else cut)
            if left is not None:
                assert sample.type in MAY_BE_SHORTER, (sample.type, size)
                assert_less(trial, left)
            assert trial.run(sample.raw[:size]) is None
        outcomes += trial.outcomes
    print(f"truncations, checksums {checksums}: {dict(outcomes)}")
    assert outcomes["TruncatedError"] > len(picked)


def assert_less(trial: Trial, left: list[Event]) -> None:
    assert not trial.is_unchanged(left), trial.sample
    if trial.sample.type in ROWS:
        rows, whole = rows_of(left), rows_of(trial.events)
        assert len(rows) < len(whole)
        assert rows == whole[: len(rows)]


def rows_of(events: list[Event]) -> list[object]:
    return [row for event in events for row in getattr(event, "rows", ())]


def test_flipped_bits(picked: list[Sample]) -> None:
    """Every bit behind the header: it has an effect, but for bits that nothing is read from."""
    unused: Counter[int] = Counter()
    bits: Counter[int] = Counter()
    for sample in picked:
        trial = Trial(sample, checksums=False)
        raw = bytearray(sample.raw)
        for bit in range(8 * EVENT_HEADER_SIZE, 8 * len(raw)):
            raw[bit // 8] ^= 1 << bit % 8
            events = trial.run(bytes(raw))
            raw[bit // 8] ^= 1 << bit % 8
            bits[sample.type] += 1
            if events is None or not trial.is_unchanged(events):
                continue
            place = bit // 8 - EVENT_HEADER_SIZE
            assert sample.type in UNUSED_BITS or place in UNUSED_BYTES.get(sample.type, ()), (sample, bit)
            unused[sample.type] += sample.type in UNUSED_BITS
    print(f"of {sum(bits.values())} bits these have no effect: {dict(unused)}")
    for kind, count in unused.items():
        assert count <= 0.2 * bits[kind], kind


@pytest.mark.parametrize("checksums", [False, True])
def test_random_changes(seed: int, picked: list[Sample], checksums: bool) -> None:
    """Only errors of the tree; an event that is still read is of the class that its type says."""
    generator = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for sample in picked:
        if len(sample.raw) == EVENT_HEADER_SIZE:
            continue
        trial = Trial(sample, checksums)
        for _ in range(CHANGES):
            damaged = changed(sample.raw, generator)
            events = trial.run(with_checksum(damaged) if checksums else damaged)
            if events and trial.events and sample.type != EventType.TRANSACTION_PAYLOAD:
                assert list(map(type, events)) == list(map(type, trial.events)), damaged.hex()
        outcomes += trial.outcomes
    print(f"changes, checksums {checksums}: {dict(outcomes)}")
    assert outcomes["DecodeError"] > 0


def test_a_changed_byte_under_a_checksum_is_a_checksum_error(picked: list[Sample]) -> None:
    generator = random.Random(7)
    for sample in picked:
        trial = Trial(sample, True)
        whole = bytearray(with_checksum(sample.raw))
        if len(whole) == EVENT_HEADER_SIZE + 4:
            continue
        whole[generator.randrange(EVENT_HEADER_SIZE, len(whole))] ^= 1 << generator.randrange(8)
        for before in trial.context:
            trial.decoder.decode(before)
        with pytest.raises(ChecksumError):
            trial.decoder.decode(bytes(whole))


def test_memory_stays_within_ten_times_the_event(picked: list[Sample]) -> None:
    """The peak of the memory that decoding allocates; the limit leaves room for the objects of any event."""
    generator = random.Random(11)
    for sample in picked:
        if len(sample.raw) == EVENT_HEADER_SIZE or sample.type == EventType.TRANSACTION_PAYLOAD:
            continue
        trial = Trial(sample, False)
        for _ in range(5):
            damaged = changed(sample.raw, generator)
            trial.run(damaged)
            tracemalloc.start()
            trial.run(damaged)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 10 * len(damaged) + 64 * 1024, (sample.type, peak)


# Whole files


Read = Callable[[bytes], list[Any]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Reads a file; readers of rows are compiled once, and not anew for each of ten thousand copies of a file."""
    compiler, cells = RowCompiler(), CellTable()
    monkeypatch.setattr(binlog_file, "row_compiler", lambda row_values: compiler)

    def read(data: bytes) -> list[Any]:
        with open_binlog(io.BytesIO(data), torn="raise", cells=cells) as log:
            return list(log)

    return read


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_every_bit_of_a_file_with_checksums(read: Read, thorough: bool) -> None:
    """Each is an error. But for the flag that the source sets in a file while it writes it."""
    data = small_log(checksum=True)
    whole = read(data)
    in_use = 8 * (whole[0].position + 17)
    silent = []
    for bit in bits_of(data, whole, thorough):
        try:
            read(flipped(data, bit))
        except ReplicaError:
            continue
        silent.append(bit)
    assert silent == [in_use]


def test_every_bit_of_a_file_without_checksums(read: Read, thorough: bool) -> None:
    """Each is an error, or changes its own event, and none but that: of a table map the rows that it is of, too.

    But for the type in an event's header: with another type the same bytes are another event, which may be one that
    files do not have (a heartbeat).
    """
    data = small_log(checksum=False)
    whole = read(data)
    for bit in bits_of(data, whole, thorough):
        index = max((number for number, one in enumerate(whole) if one.position <= bit // 8), default=0)
        damaged = whole[index]
        try:
            events = read(flipped(data, bit))
        except ReplicaError:
            continue
        if bit // 8 - damaged.position == 4:
            assert index
            events = [event for event in events if event.position != damaged.position]
            assert events[:index] == whole[:index]
            continue
        may_change = {index, index + 1} if isinstance(damaged, TableMapEvent) else {index}
        assert len(events) == len(whole), bit
        assert {number for number, one in enumerate(whole) if one != events[number]} <= may_change, bit


def bits_of(data: bytes, whole: list[Event], thorough: bool) -> list[int]:
    """All bits of a file; in the quick form all of the first header, and a sample of the others."""
    head = range(8 * (whole[0].position + EVENT_HEADER_SIZE))
    return [*head, *range(head.stop, 8 * len(data), 1 if thorough else QUICK_STEP)]


def test_the_small_log_has_every_kind_of_the_demo(read: Read) -> None:
    for checksum in (True, False):
        whole = read(small_log(checksum=checksum))
        assert len({type(event) for event in whole}) == 10
        assert sum(isinstance(event, RowsEvent) for event in whole) >= 3


def test_a_file_begins_with_a_format_description(read: Read) -> None:
    data = small_log(checksum=True)
    whole = read(data)
    without = data[:4] + data[whole[1].position :]
    with pytest.raises(DecodeError, match="format description") as caught:
        read(without)
    assert (caught.value.position, caught.value.event_type) == (4, EventType.PREVIOUS_GTIDS)
    with open_binlog(io.BytesIO(without), on_error="skip") as log:
        assert [type(event) for event in log] == [type(event) for event in whole[2:]]
    assert log.skipped.events == 1
