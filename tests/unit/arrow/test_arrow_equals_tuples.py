"""RecordBatches have the values of row tuples: random tables, rows, NULLs and images, in few events and in many.

For damaged rows both raise errors, or both read the same values.
"""

from __future__ import annotations

import linecache
import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import RowsEvent
from protocol.constants import EventType
from protocol.errors import DecodeError
from replica.arrow import BatchBuilder, Images, RawRowCompiler, row_starts
from replica.arrow.plan import plan_image, plan_size
from replica.arrow.rawrows import ColumnLayout, ImageLayout
from replica.arrow.row_walker import finder_size, row_finder
from tests.support import binlog_encoder as encoder
from tests.support.arrow_rows import differences, row_changes, tuples_of
from tests.support.examples import times
from tests.support.random_logs import KINDS, random_form, random_rows, random_table


def random_events(seed: int, kinds: list[str], count: int, most_rows: int) -> list[bytes]:
    """A log of ``count`` rows events on one table, of one to three forms, in any order."""
    rng = random.Random(seed)
    table = random_table(rng, kinds)
    forms = [random_form(rng, table) for _ in range(rng.choice([1, 1, 2, 3]))]
    nulls = rng.choice([0, 0, 0.05, 0.5, 1])
    version = "11.8.6-MariaDB-log" if table.mariadb else "9.7.4"
    raw = [encoder.format_description(version, checksum=True)]
    raw.append(encoder.event(EventType.TABLE_MAP, table.table_map, checksum=True))
    for _ in range(count):
        form = rng.choice(forms)
        body = random_rows(rng, table, form, rng.randint(0, most_rows), nulls=nulls)
        raw.append(encoder.event(form.event, body, checksum=True))
    return raw


def read_batches(raw: list[bytes], *, both: bool = False, batch_rows: int = 1000) -> list[pa.RecordBatch]:
    """All batches of a log with one table; checks that each is valid and has the builder's schema."""
    decoder = EventDecoder(row_compiler=RawRowCompiler())
    builder = None
    batches: list[pa.RecordBatch] = []
    for one in raw:
        event = decoder.decode(one)
        if isinstance(event, RowsEvent):
            if builder is None:
                images: Images = "both" if both else "after"
                builder = BatchBuilder(event.table, images=images, batch_rows=batch_rows)
            if builder.append(event):
                batches += builder.flush()
    assert builder is not None
    batches += builder.flush()
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == builder.schema
    return batches


def compare(raw: list[bytes], *, both: bool = False, batch_rows: int = 1000) -> int:
    """Compare both ways to read. Returns the number of rows."""
    changes = list(row_changes(tuples_of(raw)))
    batches = read_batches(raw, both=both, batch_rows=batch_rows)
    assert not differences(batches, changes, both=both)
    return len(changes)


LOGS = st.builds(
    random_events,
    st.integers(0, 1 << 64),
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=24),
    st.sampled_from([1, 2, 5, 40]),
    st.sampled_from([1, 3, 6]),
)


@given(LOGS, st.booleans(), st.sampled_from([1, 10, 1000]))
def test_columns_equal_tuples(raw: list[bytes], both: bool, batch_rows: int) -> None:
    compare(raw, both=both, batch_rows=batch_rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_type_alone_and_between_others(kind: str, thorough: bool) -> None:
    """Rows of one fixed-size type are equally spaced; with other columns they must be followed."""
    rows = 0
    for seed in range(6 if thorough else 2):
        for kinds in ([kind], [kind, "LONG"], ["TINY", "VARCHAR", kind, "TINY", "VARCHAR", "ENUM"]):
            rows += compare(random_events(seed, kinds, 30, 4), both=bool(seed % 2))
    assert rows


def damaged(raw: list[bytes], position: int, byte: int) -> list[bytes]:
    """The log with one byte of a rows event changed, after its table id, and a correct checksum."""
    index = 2 + position % (len(raw) - 2)
    event = bytearray(raw[index][:-4])
    place = 27 + position % (len(event) - 27)
    event[place] ^= byte
    return [*raw[:index], bytes(event) + zlib.crc32(event).to_bytes(4, "little"), *raw[index + 1 :]]


def rows_or_refusal(read: Callable[[], list[Any]]) -> list[Any] | None:
    """The rows, or None for a ``ReplicaError``; any other error fails the test."""
    try:
        return read()
    except DecodeError as error:
        refusal = error
    assert refusal.position is not None
    assert refusal.event_type is not None
    return None


@given(LOGS, st.integers(0, 1 << 32), st.integers(1, 255))
@times(2)
def test_damaged_rows_are_refused_or_read_alike(raw: list[bytes], position: int, byte: int) -> None:
    raw = damaged(raw, position, byte)
    changes = rows_or_refusal(lambda: list(row_changes(tuples_of(raw))))
    batches = rows_or_refusal(lambda: read_batches(raw, both=True))
    assert (changes is None) == (batches is None)
    if changes is not None and batches is not None:
        assert not differences(batches, changes, both=True)


@pytest.mark.parametrize("fewest", [1, 1 << 30], ids=["together", "one after the other"])
@pytest.mark.parametrize("width", [2, 9, 70])
def test_both_ways_to_find_rows(monkeypatch: pytest.MonkeyPatch, fewest: int, width: int) -> None:
    """Each way is used alone, for any number of events."""
    monkeypatch.setattr(row_starts, "_FEWEST_TOGETHER", fewest)
    rows = 0
    for seed in range(4):
        kinds = random.Random(seed).choices(sorted(KINDS), k=width)
        rows += compare(random_events(seed, kinds, 20, 6), both=bool(seed % 2))
    assert rows


def test_the_compiled_finder_is_shown_in_tracebacks() -> None:
    """Tracebacks show its source, which has only names made here."""
    images = tuple(
        plan_image(ImageLayout((ColumnLayout(0, 0, 4, 0), ColumnLayout(1, 1, 0, length_bytes))))
        for length_bytes in (1, 2, 3, 4)
    )
    find = row_finder(images)
    assert find is row_finder(images)
    assert any(
        "def find_rows" in line for line in linecache.getlines(find.__code__.co_filename, find.__globals__)
    )
    found: list[int] = []
    rows = b"".join(bytes(5) + len(b"ab").to_bytes(size, "little") + b"ab" for size in (1, 2, 3, 4))
    assert find(rows, 0, len(rows), found.append) == len(rows)
    assert found == [0, 8, 17, 27]


def test_plans_and_finders_take_no_more_than_is_counted() -> None:
    """A plan of 4,096 columns takes a megabyte: a cache that counted entries kept 4,096 of them."""
    of_plan, of_finder = [], []
    # Threads of other tests of this process may allocate meanwhile: the smallest figures are those of the plan alone.
    for count in (4096, 4095, 4094):
        image = ImageLayout(tuple(ColumnLayout(bit, bit, 4, bit % 2) for bit in range(count)))
        tracemalloc.start()
        try:
            plan = plan_image(image)
            of_plan.append(tracemalloc.get_traced_memory()[0])
            find = row_finder((plan,))
            of_finder.append(tracemalloc.get_traced_memory()[0] - of_plan[-1])
        finally:
            tracemalloc.stop()
    assert 0 < min(of_plan) < plan_size(image, plan)
    assert 0 < min(of_finder) < finder_size((plan,), find)
