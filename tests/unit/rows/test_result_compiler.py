"""Rows of the binary protocol: what was written is read, in every mix of columns; damage is an error."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import ColumnType
from protocol.errors import DecodeError, ProtocolError
from protocol.rows.column import ABSENT, Column
from protocol.rows.result_cells import result_cells, usual_form
from protocol.rows.result_compiler import (
    ROW_DAMAGE,
    ResultColumn,
    ResultReader,
    compile_result_reader,
    select_order,
)
from tests.support.examples import times
from tests.support.result_rows import RESULT_KINDS, ResultKind, row, string


def result_columns(columns: list[Column]) -> list[ResultColumn]:
    cells = result_cells()
    return [ResultColumn(cells.cell(column), column.nullable, usual_form(column)) for column in columns]


def reader_of(columns: list[Column]) -> ResultReader:
    return compile_result_reader(result_columns(columns), range(len(columns)))


def random_table(
    rng: random.Random, kinds: list[int]
) -> tuple[list[Column], list[bytes], list[tuple[object, ...]]]:
    """Columns, rows and their values, in the order in which they are best selected."""
    chosen: list[ResultKind] = [RESULT_KINDS[kind] for kind in kinds]
    columns = [replace(kind.column, nullable=rng.random() < 0.5) for kind in chosen]
    order = select_order(result_columns(columns)) if rng.random() < 0.8 else list(range(len(columns)))
    chosen, columns = [chosen[index] for index in order], [columns[index] for index in order]
    payloads, rows = [], []
    for _ in range(rng.randrange(1, 6)):
        values: list[object] = []
        parts: list[bytes | None] = []
        for kind, column in zip(chosen, columns, strict=True):
            value, data = (None, None) if column.nullable and rng.random() < 0.3 else kind.make(rng)
            values.append(value)
            parts.append(data)
        payloads.append(row(parts))
        rows.append(tuple(values))
    return columns, payloads, rows


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
        try:
            read([bytes(flipped)])
        except (*ROW_DAMAGE, DecodeError, ProtocolError):
            pass


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
