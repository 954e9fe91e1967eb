"""Rows of the binary protocol: what was written is read, in every mix of columns; damage is an error."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import ColumnType
from protocol.errors import DecodeError, ProtocolError
from protocol.rows.column import ABSENT, Column
from protocol.rows.result_compiler import (
    ROW_DAMAGE,
    ResultReader,
    compile_result_reader,
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
