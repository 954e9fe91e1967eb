"""The compiled row readers: a golden function, their errors, and what their text may hold."""

from __future__ import annotations

import linecache
import struct
import traceback
from typing import Any

import pytest

from protocol.binlog import rowcode
from protocol.binlog.cells import CellTable
from protocol.binlog.column import ABSENT, Column
from protocol.binlog.rowcode import Image, RowCompiler
from protocol.constants import ColumnType
from protocol.errors import DecodeError, TruncatedError

INT = Column("id", ColumnType.LONG, 0, False, unsigned=False)
VARCHAR = Column("name", ColumnType.VARCHAR, 40, True, charset="utf8mb4")
DOUBLE = Column("price", ColumnType.DOUBLE, 8, True, unsigned=False)
HOSTILE = Column("x\n    raise SystemExit\n", ColumnType.LONG, 0, True, unsigned=True, labels=("'\n", '"'))
NAME = "zoë".encode()


def image(
    *columns: Column, present: tuple[int, ...] | None = None, wanted: tuple[int, ...] | None = None
) -> Image:
    cells = CellTable()
    every = tuple(range(len(columns)))
    return Image(
        tuple(map(cells.cell, columns)),
        every if present is None else present,
        every if wanted is None else wanted,
    )


def source_of(reader: Any) -> str:
    return "".join(linecache.getlines(reader.__code__.co_filename))


def row(name: bytes = NAME) -> bytes:
    return b"\0" + struct.pack("<iB", -7, len(name)) + name + struct.pack("<d", 2.5)


def test_golden_function_is_the_one_in_the_docstring() -> None:
    source = source_of(RowCompiler().reader(image(INT, VARCHAR, DOUBLE)))
    documented = [line.removeprefix("    ") for line in (rowcode.__doc__ or "").splitlines()]
    start = documented.index("def read_rows(data, position, end):")
    end = documented.index("    return rows")
    assert source.splitlines() == documented[start : end + 1]


def test_rows_with_and_without_nulls() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    data = row() + b"\x06" + struct.pack("<i", 8) + row(b"")
    assert reader(data, 0, len(data)) == [(-7, "zoë", 2.5), (8, None, None), (-7, "", 2.5)]


def test_update_rows_are_pairs() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE), image(INT, VARCHAR, DOUBLE, present=(1,)))
    data = row() + b"\0" + b"\x02ab"
    assert reader(data, 0, len(data)) == [((-7, "zoë", 2.5), (ABSENT, "ab", ABSENT))]


def test_unwanted_columns_are_passed_over() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE, wanted=(2,)))
    data = row() + b"\x04" + struct.pack("<iB", 1, 2) + b"ab"
    assert reader(data, 0, len(data)) == [(2.5,), (None,)]
    assert "decode" not in source_of(reader)


def test_spare_bits_of_the_null_bitmap_do_not_count() -> None:
    reader = RowCompiler().reader(image(INT))
    assert reader(b"\xfe\1\0\0\0", 0, 5) == [(1,)]


def test_a_row_without_columns() -> None:
    reader = RowCompiler().reader(image(INT, DOUBLE, present=()))
    assert reader(b"", 0, 0) == [(ABSENT, ABSENT)]
    with pytest.raises(DecodeError):
        reader(b"\0", 0, 1)


def test_every_truncation_is_an_error() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    data = row()
    for end in range(1, len(data)):
        with pytest.raises((TruncatedError, IndexError, struct.error)):
            reader(data[:end], 0, end)
        # What stands behind the rows (the checksum) is no part of them.
        with pytest.raises(TruncatedError):
            reader(data, 0, end)


def test_names_and_labels_are_no_part_of_the_source() -> None:
    source = source_of(RowCompiler().reader(image(HOSTILE, HOSTILE)))
    assert "SystemExit" not in source
    assert "'" not in source


def test_tables_of_one_shape_share_their_code() -> None:
    compiler, cells = RowCompiler(), CellTable()
    shapes = [
        Image(tuple(map(cells.cell, columns)), (0, 1), (0, 1))
        for columns in ((INT, VARCHAR), (Column("other", ColumnType.LONG, 0, True, unsigned=False), VARCHAR))
    ]
    assert compiler.reader(shapes[0]) is compiler.reader(shapes[1])


def test_a_traceback_shows_the_generated_line() -> None:
    reader = RowCompiler().reader(image(DOUBLE))
    with pytest.raises(struct.error) as caught:
        reader(b"\0\1", 0, 2)
    assert "unpack_0(data, position)" in "".join(traceback.format_exception(caught.value))


def test_absent_is_one_falsy_object() -> None:
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(ABSENT)) is ABSENT
    assert copy.deepcopy(ABSENT) is ABSENT
    assert repr(ABSENT) == "ABSENT"
    assert not ABSENT
