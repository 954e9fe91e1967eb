"""Rows of a SELECT as Arrow columns: what the tuples of the same rows say; damage is an error."""

from __future__ import annotations

import contextlib
import json
import platform
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import ColumnType
from protocol.conversation.packets import FrameStream
from protocol.errors import ProtocolError
from protocol.rows.column import Column
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows
from replica.arrow.result_rows import ResultBatches
from tests.support.arrow_rows import arrow_value, same
from tests.support.examples import times
from tests.support.places import ROOT
from tests.support.result_rows import RESULT_KINDS, random_table, result_columns

KINDS = st.lists(st.integers(0, len(RESULT_KINDS) - 1), min_size=1, max_size=12)


def batches_of(columns: list[Column]) -> ResultBatches:
    table = Table("s", "t", tuple(columns))
    return ResultBatches(table, range(len(columns)), columns, result_columns(columns))


def undecoded(payloads: Sequence[bytes]) -> UndecodedRows:
    rows = UndecodedRows()
    rows.add(payloads)
    return rows


def received(payloads: Sequence[bytes], rng: random.Random) -> UndecodedRows:
    """Rows as they come: in frames, cut anywhere, with something else behind them."""
    source, frames = FrameStream(), FrameStream()
    data = b"".join(source.encode(b"\0" + payload) for payload in payloads) + source.encode(b"\xfe\0\0\2\0")
    rows = UndecodedRows()
    size, last = 0, b""
    while data:
        cut = rng.randint(1, len(data)) if rng.random() < 0.9 else 1
        frames.receive(data[:cut])
        data = data[cut:]
        while (found := frames.read_walked(b"\0", rows.walk, rows.add))[0]:
            size, last = size + found[1], found[2]
    assert frames.read() == b"\xfe\0\0\2\0"
    assert (size, last) == (sum(map(len, payloads)), payloads[-1])
    return rows


@times(2)
@given(KINDS, st.integers(0, 1 << 64))
def test_columns_equal_tuples(kinds: list[int], seed: int) -> None:
    rng = random.Random(seed)
    columns, payloads, rows = random_table(rng, kinds)
    batch = batches_of(columns).batch(received(payloads, rng))
    assert batch.num_rows == len(rows)
    for index, column in enumerate(columns):
        found = batch.column(index).to_pylist()
        for value, row in zip(found, rows, strict=True):
            if column.type is ColumnType.JSON:
                assert same(None if value is None else json.loads(value), row[index])
            else:
                assert same(value, arrow_value(column, row[index])), column


@times(1)
@given(KINDS, st.integers(0, 1 << 64))
def test_damaged_rows_are_protocol_errors(kinds: list[int], seed: int) -> None:
    rng = random.Random(seed)
    columns, payloads, _ = random_table(rng, kinds)
    with pytest.raises(ProtocolError):
        batches_of(columns).batch(undecoded([*payloads, payloads[0] + b"\0"]))
    flipped = bytearray(payloads[0])
    flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    with contextlib.suppress(ProtocolError):
        batches_of(columns).batch(undecoded([bytes(flipped), *payloads]))


def test_no_rows() -> None:
    columns = [RESULT_KINDS[0].column]
    batch = batches_of(columns).batch(UndecodedRows())
    assert (batch.num_rows, batch.schema.names) == (0, ["c"])


_READ_BATCHES = """
import resource
from protocol.binlog.freed_blocks import keep_freed_blocks
from protocol.constants import ColumnType
from protocol.conversation.packets import FrameStream
from protocol.rows.column import Column
from protocol.rows.table import Table
from protocol.rows.undecoded_rows import UndecodedRows
from replica.arrow.result_rows import ResultBatches
from tests.support.result_rows import result_columns, row, string

SIZE = 1 << 18
columns = [Column(f"c{n}", ColumnType.VARCHAR, 200, True, charset="utf8mb4") for n in range(3)]
payload = row([string(bytes(90))] * 3)
source = FrameStream()
data = b"".join(source.encode(bytes(1) + payload) for _ in range(256 * 64))

def read(batches):
    rows, frames = UndecodedRows(), FrameStream()
    for start in range(0, len(data), SIZE):
        frames.receive(data[start : start + SIZE])
        while frames.read_walked(bytes(1), rows.walk, rows.add)[0]:
            pass
    assert batches.batch(rows).num_rows == 256 * 64

keep_freed_blocks()  # as a connection does
batches = ResultBatches(Table("s", "t", tuple(columns)), range(3), columns, result_columns(columns))
for _ in range(2):
    read(batches)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    read(batches)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries keep freed blocks, or do not"
)
def test_batches_take_no_new_pages() -> None:
    """Five batches of 4.5 MB: 13,000 page faults, where each took its memory from the kernel anew."""
    done = subprocess.run(
        [sys.executable, "-c", _READ_BATCHES], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert int(done.stdout) < 2000
