"""Rows of the binary protocol: what was written is read, in every mix of columns; damage is an error."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import ColumnType
from protocol.conversation.packets import FrameStream
from protocol.errors import DecodeError, ProtocolError
from protocol.rows.column import ABSENT, Column
from protocol.rows.result_compiler import (
    ROW_DAMAGE,
    ResultReader,
    Row,
    compile_result_reader,
    compile_row_walker,
)
from tests.support.examples import times
from tests.support.result_rows import RESULT_KINDS, random_table, result_columns, row, string


def reader_of(columns: list[Column]) -> ResultReader:
    return compile_result_reader(result_columns(columns), range(len(columns)))


KINDS = st.lists(st.integers(0, len(RESULT_KINDS) - 1), min_size=1, max_size=20)


@times(2)
@given(KINDS, st.integers(0, 1 << 64))
def test_what_was_written_is_read(kinds: list[int], seed: int) -> None:
    columns, payloads, rows = random_table(random.Random(seed), kinds)
    read = reader_of(columns)(payloads)
    assert read == rows
    assert [[type(value) for value in row] for row in read] == [
        [type(value) for value in row] for row in rows
    ]


def framed(payloads: list[bytes]) -> bytes:
    frames = FrameStream()
    return b"".join(frames.encode(b"\0" + payload) for payload in payloads)


def walked(frames: FrameStream, columns: list[Column]) -> tuple[list[Row], int, bytes]:
    """All rows that have come, as a chunk reads them."""
    walk = compile_row_walker(result_columns(columns), range(len(columns)))
    rows: list[Row] = []
    size, last = 0, b""
    while True:
        found, its_size, its_last = frames.read_walked(b"\0", walk, reader_of(columns))
        if not found:
            return rows, size, last
        rows, size, last = rows + found, size + its_size, its_last


@times(2)
@given(KINDS, st.integers(0, 1 << 64))
def test_rows_are_read_out_of_their_frames(kinds: list[int], seed: int) -> None:
    """The bytes come in pieces, and something else comes behind the rows."""
    rng = random.Random(seed)
    columns, payloads, rows = random_table(rng, kinds)
    frames = FrameStream()
    read: list[Row] = []
    data = framed(payloads) + bytes([5, 0, 0, len(payloads) & 0xFF]) + b"\xfe\0\0\2\0"
    size, last = 0, b""
    while data:
        cut = rng.randint(1, len(data)) if rng.random() < 0.9 else 1
        frames.receive(data[:cut])
        data = data[cut:]
        found, its_size, its_last = walked(frames, columns)
        read += found
        size, last = size + its_size, its_last or last
    assert read == rows
    assert (size, last) == (sum(map(len, payloads)), payloads[-1])
    assert frames.read() == b"\xfe\0\0\2\0"


@times(2)
@given(KINDS, st.integers(0, 1 << 64))
def test_damaged_rows_in_frames_raise_known_errors(kinds: list[int], seed: int) -> None:
    """Whatever the reader of payloads raises or reads is raised or read here."""
    rng = random.Random(seed)
    columns, payloads, _ = random_table(rng, kinds)
    number = rng.randrange(len(payloads))
    damaged = bytearray(payloads[number])
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    payloads[number] = bytes(damaged[: rng.randint(1, len(damaged))] if rng.random() < 0.3 else damaged)
    frames = FrameStream()
    frames.receive(framed(payloads))
    try:
        wanted = reader_of(columns)(payloads)
    except (*ROW_DAMAGE, DecodeError, ProtocolError) as error:
        with pytest.raises(type(error)):
            walked(frames, columns)
    else:
        assert repr(walked(frames, columns)[0]) == repr(wanted)


@times(2)
@given(KINDS, st.integers(0, 1 << 64))
def test_damaged_rows_raise_known_errors(kinds: list[int], seed: int) -> None:
    rng = random.Random(seed)
    columns, payloads, _ = random_table(rng, kinds)
    read = reader_of(columns)
    for payload in payloads:
        cut = payload[: rng.randrange(len(payload))] if len(payload) > 1 else b""
        with pytest.raises((*ROW_DAMAGE, DecodeError, ProtocolError)):
            read([cut])
        with pytest.raises((*ROW_DAMAGE, DecodeError, ProtocolError)):
            read([payload + b"\0"])
        flipped = bytearray(payload)
        flipped[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(*ROW_DAMAGE, DecodeError, ProtocolError):
            read([bytes(flipped)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", 1.5),
        ("0.30000000000000004", 0.30000000000000004),
        ("-1.7976931348623157e308", -1.7976931348623157e308),
        ("1.500000000000000000", 1.5),
        ("12345678901234567890.125", Decimal("12345678901234567890.125")),
        ("[0.1234567890123456789]", [Decimal("0.1234567890123456789")]),
    ],
)
def test_a_number_in_a_document_is_not_rounded(text: str, value: object) -> None:
    """A double's text gives the same double again; where it would not, the document holds a DECIMAL."""
    [[read]] = reader_of([Column("c", ColumnType.JSON, 4, True)])([row([string(text.encode())])])
    assert repr(read) == repr(value)


def test_a_document_that_is_nested_too_deeply() -> None:
    read = reader_of([Column("c", ColumnType.JSON, 4, True)])
    with pytest.raises(DecodeError, match="nested too deeply"):
        read([row([string(b"[" * 200_000)])])


def test_null_in_a_not_null_column_is_none() -> None:
    """A server gives it for a generated column, and in the row of no match."""
    columns = [
        replace(RESULT_KINDS[0].column, nullable=False),
        replace(RESULT_KINDS[16].column, nullable=False),
    ]
    assert reader_of(columns)([row([None, string(b"a")]), row([b"\1", None])]) == [(None, "a"), (1, None)]


def test_items_in_another_order_and_a_column_that_is_not_selected() -> None:
    columns = [RESULT_KINDS[0].column, RESULT_KINDS[16].column]
    read = compile_result_reader(result_columns(columns), [1, None, 0])
    assert read([row([b"\7", string(b"x")])]) == [("x", ABSENT, 7)]


def test_names_never_reach_the_text() -> None:
    column = Column("):\n    import os\n#", ColumnType.VARCHAR, 40, True, charset="utf8mb4")
    assert reader_of([column])([row([string(b"a")])]) == [("a",)]


def test_a_length_that_no_server_sends() -> None:
    with pytest.raises(KeyError):
        reader_of([RESULT_KINDS[16].column])([b"\0\xfb"])
