"""RecordBatches say what row tuples say: random tables, rows, NULLs and images, in few events and in many."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import RowsEvent
from protocol.constants import EventType
from replica.arrow import BatchBuilder, RawRowCompiler
from tests import binlog_encoder as encoder
from tests.arrow_rows import differences, row_changes, tuples_of
from tests.random_logs import KINDS, random_form, random_rows, random_table


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


def compare(raw: list[bytes], *, both: bool = False, batch_rows: int = 1000) -> int:
    """The number of rows."""
    changes = list(row_changes(tuples_of(raw)))
    decoder = EventDecoder(row_compiler=RawRowCompiler())
    builder = None
    batches = []
    for one in raw:
        event = decoder.decode(one)
        if isinstance(event, RowsEvent):
            if builder is None:
                images = "both" if both else "after"
                builder = BatchBuilder(event.table, images=images, batch_rows=batch_rows)
            if builder.append(event):
                batches += builder.flush()
    assert builder is not None
    batches += builder.flush()
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == builder.schema
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
@settings(max_examples=200, deadline=None)
def test_columns_equal_tuples(raw: list[bytes], both: bool, batch_rows: int) -> None:
    compare(raw, both=both, batch_rows=batch_rows)


@pytest.mark.parametrize("kind", KINDS)
def test_each_type_alone_and_between_others(kind: str) -> None:
    """Alone the rows of fixed types lie equally far apart; with others they have to be followed."""
    rows = 0
    for seed in range(15):
        for kinds in ([kind], [kind, "LONG"], ["TINY", "VARCHAR", kind, "TINY", "VARCHAR", "ENUM"]):
            rows += compare(random_events(seed, kinds, 30, 4), both=bool(seed % 2))
    assert rows
