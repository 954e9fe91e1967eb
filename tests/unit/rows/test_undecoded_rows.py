"""Rows that are found in their frames without being read: one by one, and many of one size at once."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.conversation.packets import FrameStream
from protocol.rows import undecoded_rows
from protocol.rows.undecoded_rows import UndecodedRows
from tests.support.examples import times

# Runs of equal rows: their size, which differs in each byte of a frame's length or in one, and how many they are.
PAYLOADS = st.lists(
    st.tuples(st.sampled_from([0, 1, 5, 251, 252, 300, 508, 70_000]), st.integers(1, 40)), max_size=12
)


def frames_of(payloads: list[bytes], first: int) -> bytes:
    stream = FrameStream()
    stream.sequence = first
    return b"".join(map(stream.encode, payloads))


@times(2)
@given(PAYLOADS, st.integers(0, 255), st.integers(0, 1 << 64))
def test_runs_of_rows_are_found_as_single_rows_are(
    runs: list[tuple[int, int]], first: int, seed: int
) -> None:
    """Whatever is damaged in the middle of a run, what stands before it is found, and nothing else."""
    rng = random.Random(seed)
    payloads = [b"\0" + rng.randbytes(size) for size, count in runs for _ in range(count)]
    data = bytearray(frames_of(payloads, first))
    places = [0]
    for payload in payloads:
        places.append(places[-1] + 4 + len(payload))
    whole = len(payloads)
    if payloads and rng.random() < 0.8:
        # The first byte of a row, the number of a frame, or its end.
        whole = rng.randrange(len(payloads))
        kind = rng.randrange(3)
        if kind == 2:
            del data[rng.randrange(places[whole], places[whole + 1]) :]
        else:
            data[places[whole] + 3 + kind] ^= 1 << rng.randrange(8)
    rows, items = UndecodedRows(), [-1]
    position, sequence, last = rows.walk(items, bytes(data), 0, 1, first << 24, 1 << 20)
    assert rows.sizes == items[1:] == [behind - place for place, behind in pairwise(places[: whole + 1])]
    assert b"".join(rows.parts) == data[: places[whole]]
    assert (position, last) == (places[whole], places[max(whole - 1, 0)])
    assert sequence == (first + whole & 255) << 24


def test_a_row_that_is_larger_than_allowed() -> None:
    data = frames_of([bytes(1000)] * 100, 0)
    for largest, count in ((1000, 100), (999, 0)):
        assert len(undecoded(data, largest)) == count


def undecoded(data: bytes, largest: int = 1 << 20) -> UndecodedRows:
    rows = UndecodedRows()
    rows.walk([], data, 0, len(data), 0, largest)
    return rows


@pytest.mark.parametrize(("sizes", "most"), [([50], 1), ([50, 51], 1000)])
def test_rows_of_one_size_are_found_together(
    sizes: list[int], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by the headers that are read: one for many."""
    unpack, headers = undecoded_rows._unpack_head, []

    def counted(data: bytes, position: int) -> tuple[int, int]:
        found: tuple[int, int] = unpack(data, position)
        headers.append(position)
        return found

    monkeypatch.setattr(undecoded_rows, "_unpack_head", counted)
    rows = undecoded(frames_of([bytes(size) for size in sizes] * (1000 // len(sizes)), 0))
    assert len(rows) == 1000
    assert len(headers) <= most + 10
