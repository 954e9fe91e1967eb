"""All rows of a table without a key: not all are in memory, and a disk that is full is told."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, cast

import pytest

from protocol.errors import ConfigurationError
from protocol.rows.undecoded_rows import ROW_HEAD, UndecodedRows
from replica.schemas.shape import ColumnShape, Shape
from replica.snapshot import whole_tables
from replica.snapshot.chunk_reader import Chunk
from replica.snapshot.read_plan import ReadPlan
from replica.snapshot.row_keys import KeyRange
from replica.snapshot.whole_tables import KeptRows, rows_of, undecoded_of
from replica.source.session import Session
from tests.support.result_rows import row, string

PLAN = ReadPlan(
    "shop",
    "visits",
    Shape((ColumnShape("a", "varchar", (100,), nullable=False, charset="ascii"),)),
    is_mariadb=True,
)


def text(number: int) -> str:
    return f"{number:08d}" * (1 + number % 9)


class ManyRows:
    """A session that sends ``count`` rows, made as they are asked for."""

    def __init__(self, count: int) -> None:
        self._parts: Iterator[range] = (range(count)[at : at + 700] for at in range(0, count, 700))

    async def read_rows(self, silence: float) -> list[bytes]:
        return [row([string(text(number).encode())]) for number in next(self._parts, range(0))]

    async def take_rows(self, take: Any, *given: Any, **options: Any) -> Any:
        payloads = await self.read_rows(0)
        size = sum(map(len, payloads))
        frames = cast("Any", self)
        frames.read_walked = lambda mark, walk, add: (add(payloads), size, payloads[-1] if payloads else b"")
        return take(frames)


def chunk_of(count: int) -> Chunk:
    session = cast("Session", ManyRows(count))
    return Chunk(session, PLAN.select, 1.0, KeyRange(), None)


async def test_rows_come_back_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "MOST_IN_MEMORY", 10_000)
    monkeypatch.setattr(whole_tables, "_BLOCK", 50_000)
    expected = [(text(number),) for number in range(5_000)]
    rows = await rows_of(chunk_of(5_000), PLAN.select)
    assert isinstance(rows, KeptRows)
    assert (len(rows), list(rows), list(rows)) == (5_000, expected, expected)
    assert [rows[0], rows[699], rows[700], rows[4_321], rows[-1]] == [
        expected[at] for at in (0, 699, 700, 4_321, -1)
    ]
    assert (rows[690:720], rows[::-500], rows[9_000:]) == (expected[690:720], expected[::-500], [])
    assert list(reversed(rows)) == expected[::-1]
    with pytest.raises(IndexError):
        rows[5_000]


@pytest.mark.parametrize("count", [0, 1, 700, 1_401])
async def test_a_small_table_is_a_list(count: int) -> None:
    assert await rows_of(chunk_of(count), PLAN.select) == [(text(number),) for number in range(count)]


def payloads_of(rows: UndecodedRows) -> list[bytes]:
    data, ends = b"".join(rows.parts), list(accumulate(rows.sizes, initial=0))
    assert len(data) == ends[-1]
    return [data[begin + ROW_HEAD : end] for begin, end in pairwise(ends)]


@pytest.mark.parametrize("count", [0, 1, 700, 1_400, 5_000])
async def test_undecoded_rows_come_back_as_they_came(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "MOST_IN_MEMORY", 50_000)
    first, others = await undecoded_of(chunk_of(count), PLAN.table)
    expected = [row([string(text(number).encode())]) for number in range(count)]
    for _ in range(2):
        found = [payloads_of(rows) for rows in (first, *others)]
        assert [payload for rows in found for payload in rows] == expected
    # A part ends with the read that makes it large enough.
    assert max(sum(map(len, rows)) for rows in found) < 50_000 + 700 * 80
    assert len(found) > 2 or count < 5_000
    assert all(found[1:])


async def test_memory_does_not_grow_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "MOST_IN_MEMORY", 100_000)
    monkeypatch.setattr(whole_tables, "_BLOCK", 50_000)
    peaks = []
    for count in (7_000, 28_000):
        tracemalloc.start()
        try:
            rows = await rows_of(chunk_of(count), PLAN.select)
            assert sum(1 for _ in rows) == count
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 2 << 20


async def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_tables, "MOST_IN_MEMORY", 10_000)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda buffering: open("/dev/full", "wb", buffering))  # noqa: SIM115
    for read in (rows_of(chunk_of(5_000), PLAN.select), undecoded_of(chunk_of(5_000), PLAN.table)):
        with pytest.raises(ConfigurationError, match=r"^shop\.visits has no key.*No space left.*TMPDIR"):
            await read
