"""Compiled row readers: a golden function, errors, and the rule that no text from the log gets into the code."""

from __future__ import annotations

import linecache
import struct
import traceback
from datetime import datetime, timedelta
from decimal import Clamped, Context, Decimal, Inexact, Subnormal, getcontext, localcontext
from typing import Any

import pytest

from protocol.constants import ColumnType
from protocol.errors import DecodeError, TruncatedError
from protocol.rows import compiler
from protocol.rows.cells import CellTable
from protocol.rows.column import ABSENT, Column
from protocol.rows.compiler import Image, RowCompiler
from protocol.values.jsonb import decode_json
from tests.support.json_documents import document

INT = Column("id", ColumnType.LONG, 0, False, unsigned=False)
VARCHAR = Column("name", ColumnType.VARCHAR, 40, False, charset="utf8mb4")
SMALL = Column("count", ColumnType.SHORT, 0, True, unsigned=True)
MEDIUM_BLOB = Column("body", ColumnType.MEDIUM_BLOB, 3, False, charset="binary")
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
        frozenset(index for index, column in enumerate(columns) if not column.nullable),
    )


def careful(reader: Any) -> Any:
    """The careful reader to which ``reader`` falls back."""
    return reader.__globals__["careful"]()


def was_trusting(reader: Any) -> bool:
    """Whether ``reader`` has never fallen back to its careful reader."""
    misses: int = reader.__globals__["careful"].cache_info().misses
    return not misses


def source_of(reader: Any) -> str:
    return "".join(linecache.getlines(reader.__code__.co_filename, reader.__globals__))


def test_the_source_is_shown_in_tracebacks() -> None:
    reader: Any = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    with pytest.raises(TypeError) as damage:
        careful(reader)(None, 0, 1)
    lines = traceback.format_exception(damage.value)
    assert any("nulls = from_bytes(data[position:position + 1], 'little')" in line for line in lines)
    assert not [name for name in linecache.cache if name == reader.__code__.co_filename]


def row(name: bytes = NAME) -> bytes:
    return b"\0" + struct.pack("<iB", -7, len(name)) + name + struct.pack("<d", 2.5)


def test_golden_function_is_the_one_in_the_docstring() -> None:
    source = source_of(RowCompiler().reader(image(INT, VARCHAR, DOUBLE)))
    documented = [line.removeprefix("    ") for line in (compiler.__doc__ or "").splitlines()]
    start = documented.index("def read_rows(data, position, end):")
    end = documented.index("    return rows")
    assert source.splitlines() == documented[start : end + 1]


def test_rows_with_and_without_nulls() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    data = row() + b"\4" + row()[1:10] + row(b"")
    assert reader(data, 0, len(data)) == [(-7, "zoë", 2.5), (-7, "zoë", None), (-7, "", 2.5)]
    assert was_trusting(reader)


def test_columns_that_are_not_null_may_be_null_all_the_same() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    data = row() + b"\x06" + struct.pack("<i", 8) + row(b"")
    assert reader(data, 0, len(data)) == [(-7, "zoë", 2.5), (8, None, None), (-7, "", 2.5)]
    # The data ends here; an unpack of all adjacent columns would need more bytes.
    assert reader(b"\7", 0, 1) == [(None, None, None)]


@pytest.mark.parametrize("length_bytes", [1, 2, 4])
def test_documents_are_read_where_they_stand(length_bytes: int) -> None:
    """Documents of one layout, alone and behind other values; a log may give any size of their length."""
    documents = [document({"id": f"{number:04}", "on": number % 2 == 0}) for number in range(60)]
    column = Column("document", ColumnType.JSON, length_bytes, True)

    def stored(data: bytes) -> bytes:
        return len(data).to_bytes(length_bytes, "little") + data

    def rows(reader: Any, parts: list[bytes]) -> Any:
        data = b"".join(parts)
        # Bytes behind the rows, as a checksum.
        return reader(data + b"\1\2\3\4", 0, len(data))

    values = [decode_json(data) for data in documents]
    alone = RowCompiler().reader(image(column))
    parts = [b"\0" + stored(data) for data in documents]
    assert rows(alone, [*parts, b"\1", *parts]) == [(value,) for value in [*values, None, *values]]
    behind = RowCompiler().reader(image(INT, column, column))
    parts = [b"\0" + struct.pack("<i", 7) + 2 * stored(data) for data in documents]
    assert rows(behind, parts) == [(7, value, value) for value in values]
    assert was_trusting(alone)
    assert was_trusting(behind)
    for reader, some in (alone, [b"\0" + stored(documents[0])]), (behind, parts):
        with pytest.raises(DecodeError):
            rows(reader, [*some[:-1], some[-1][:-2]])


def test_a_second_image_that_is_null_ends_no_row() -> None:
    """The after image is only a NULL bitmap, the last byte of the row; without it the row is cut short."""
    reader = RowCompiler().reader(image(INT), image(INT))
    data = b"\0\1\0\0\0" + b"\1"
    assert reader(data, 0, len(data)) == [((1,), (None,))]
    with pytest.raises(TruncatedError):
        reader(data, 0, len(data) - 1)


def test_invalid_text_survives() -> None:
    reader = RowCompiler().reader(image(INT, VARCHAR, DOUBLE))
    data = row() + row(b"\xff\xc3") + row()
    assert [name for _, name, _ in reader(data, 0, len(data))] == ["zoë", "\udcff\udcc3", "zoë"]


def test_a_bitmap_and_a_length_of_three_bytes_each() -> None:
    """Integers of three bytes are unpacked in two parts."""
    columns = (MEDIUM_BLOB, *[INT] * 15, DOUBLE)
    reader = RowCompiler().reader(image(*columns))
    body = b"x" * 70_000
    numbers = struct.pack("<15i", *range(15))
    present = b"\0\0\0" + len(body).to_bytes(3, "little") + body + numbers + struct.pack("<d", 0.5)
    absent = b"\0\0\1" + b"\2\0\0ab" + numbers
    rows = reader(present + absent, 0, len(present + absent))
    assert rows == [(body, *range(15), 0.5), (b"ab", *range(15), None)]
    assert was_trusting(reader)


@pytest.mark.parametrize("width", [1, 2, 5, 12, 30, 31, 70])
def test_every_place_of_a_null_among_neighbours(width: int) -> None:
    columns = [(SMALL, DOUBLE, SMALL, INT)[index % 4] for index in range(width)]
    reader = RowCompiler().reader(image(*columns))
    numbers = [
        struct.pack("<d", 0.5) if column is DOUBLE else b"\7\0" if column is SMALL else b"\7\0\0\0"
        for column in columns
    ]
    values = [0.5 if column is DOUBLE else 7 for column in columns]
    data, expected = b"", []
    for first in range(width):
        for last in range(first, min(first + 6, width)):
            nulls = [first <= index <= last and columns[index].nullable for index in range(width)]
            data += sum(null << index for index, null in enumerate(nulls)).to_bytes(
                (width + 7) // 8, "little"
            )
            data += b"".join(number for number, null in zip(numbers, nulls, strict=True) if not null)
            expected.append(tuple(None if null else value for value, null in zip(values, nulls, strict=True)))
    assert reader(data, 0, len(data)) == expected
    assert was_trusting(reader)
    assert careful(reader)(data, 0, len(data)) == expected
    wanted = tuple(index for index in range(width) if index % 7 in (0, 4, 5))
    fewer = RowCompiler().reader(image(*columns, wanted=wanted))
    assert fewer(data, 0, len(data)) == [tuple(row[index] for index in wanted) for row in expected]
    assert was_trusting(fewer)


# Frequent patterns of NULL bits


def row_of_numbers(nulls: int) -> bytes:
    """Twelve columns; the first one is NOT NULL."""
    numbers = [struct.pack("<i", 7), *[b"\7\0"] * 11]
    return nulls.to_bytes(2, "little") + b"".join(n for bit, n in enumerate(numbers) if not nulls >> bit & 1)


def values_of_numbers(nulls: int) -> tuple[int | None, ...]:
    return tuple(None if nulls >> bit & 1 else 7 for bit in range(12))


def test_frequent_patterns_get_code_of_their_own() -> None:
    columns = (INT, *[SMALL] * 11)
    reader = RowCompiler().reader(image(*columns))
    data = row_of_numbers(0x018)
    assert reader(data, 0, len(data)) == [values_of_numbers(0x018)]
    before = source_of(reader)
    assert "odd_a = nulls" in before
    for number in range(60):
        nulls = (0x0A0, 0xF02, 0x500)[number % 3]
        # Bits after the last column are part of the pattern; each event's last row is counted.
        data = row_of_numbers(0x018) + row_of_numbers(nulls | 0xF000)
        assert reader(data, 0, len(data)) == [values_of_numbers(0x018), values_of_numbers(nulls)]
    source = source_of(reader)
    for nulls in (0xF0A0, 0xFF02, 0xF500):
        assert f"if nulls == {nulls}:" in source
    data = b"".join(map(row_of_numbers, (0xF0A0, 0x0A0, 0x018, 0, 0xFF02, 0xFFE, 0xFF02)))
    assert reader(data, 0, len(data)) == [
        values_of_numbers(nulls) for nulls in (0x0A0, 0x0A0, 0x018, 0, 0xF02, 0xFFE, 0xF02)
    ]
    assert was_trusting(reader)


def test_patterns_of_both_images() -> None:
    columns = image(INT, *[SMALL] * 11, wanted=(0, *range(2, 12)))
    reader = RowCompiler().reader(columns, columns)
    patterns = (0x0A0, 0xF02)
    for _ in range(60):
        data = b"".join(map(row_of_numbers, patterns))
        expected = tuple(values_of_numbers(nulls)[:1] + values_of_numbers(nulls)[2:] for nulls in patterns)
        assert reader(data, 0, len(data)) == [expected]
    source = source_of(reader)
    assert [f"nulls == {nulls}:" in source for nulls in patterns] == [True, True]
    with pytest.raises((DecodeError, struct.error)):
        reader(data, 0, len(data) - 1)


def test_the_first_event_shows_frequent_patterns() -> None:
    """Rows of other patterns are read one by one, until there are many of them."""
    reader = RowCompiler().reader(image(INT, *[SMALL] * 11))
    patterns = [0x0A0, 0xF02] * 8
    data = b"".join(map(row_of_numbers, patterns))
    assert reader(data, 0, len(data)) == list(map(values_of_numbers, patterns))
    source = source_of(reader)
    assert [f"nulls == {nulls}:" in source for nulls in (0x0A0, 0xF02)] == [True, True]
    assert "careful_row" in source
    patterns = [0x0A0, 0x018, 0xF02, 0x500]
    data = b"".join(map(row_of_numbers, patterns))
    for _ in range(50):
        assert "nulls == 1280:" not in source_of(reader)
        assert reader(data, 0, len(data)) == list(map(values_of_numbers, patterns))
    assert "nulls == 1280:" in source_of(reader)
    assert reader(data, 0, len(data)) == list(map(values_of_numbers, patterns))
    assert was_trusting(reader)


def test_rare_rows_of_two_images() -> None:
    columns = image(INT, *[SMALL] * 11, wanted=(0, *range(2, 12)))
    reader = RowCompiler().reader(columns, columns)
    for patterns in ([0x0A0, 0xF02] * 4, [0x018, 0xF02, 0x0A0, 0xF02, 0x0A0, 0x018, 0x0A0, 0xF02]):
        data = b"".join(map(row_of_numbers, patterns))
        images = [values_of_numbers(nulls)[:1] + values_of_numbers(nulls)[2:] for nulls in patterns]
        assert reader(data, 0, len(data)) == list(zip(images[::2], images[1::2], strict=True))
        for size in (1, 20, 21):
            with pytest.raises((DecodeError, struct.error)):
                reader(data, 0, len(data) - size)
    assert "careful_row" in source_of(reader)


def test_damage_in_the_first_event() -> None:
    columns = (INT, VARCHAR, *[SMALL] * 8)
    reader = RowCompiler().reader(image(*columns))
    row = b"\0\0" + struct.pack("<i", 7) + bytes((len(NAME),)) + NAME + b"\7\0" * 8
    for end in range(1, 2 * len(row)):
        if end != len(row):
            with pytest.raises((DecodeError, IndexError, struct.error)):
                reader((row + row)[:end], 0, end)
    assert reader(row + row, 0, 2 * len(row)) == [(7, "zoë", *[7] * 8)] * 2


def test_rows_of_many_patterns_are_no_longer_watched() -> None:
    reader = RowCompiler().reader(image(INT, *[SMALL] * 11))
    for number in range(60):
        data = row_of_numbers(number << 1)
        assert reader(data, 0, len(data)) == [values_of_numbers(number << 1)]
    source = source_of(reader)
    assert "odd_a" not in source
    assert "nulls ==" not in source


def test_few_columns_that_can_be_null_are_not_watched() -> None:
    assert "odd_a" not in source_of(RowCompiler().reader(image(*[INT] * 30, *[SMALL] * 7)))


DECIMAL = Column("amount", ColumnType.NEWDECIMAL, 10 << 8 | 2, False)
SIZE_AND_DECIMAL = struct.pack("<i", 7) + bytes.fromhex("80 00 00 05 19")


def test_numbers_of_both_byte_orders_between_each_other() -> None:
    columns = (INT, DECIMAL, INT, DECIMAL, SMALL)
    reader = RowCompiler().reader(image(*columns))
    last = b"\2\1"
    data = (b"\0" + SIZE_AND_DECIMAL * 2 + last) * 2 + b"\x10" + SIZE_AND_DECIMAL * 2
    amount = Decimal("5.25")
    row = (7, amount, 7, amount, 258)
    assert reader(data, 0, len(data)) == [row, row, (7, amount, 7, amount, None)]
    assert was_trusting(reader)


@pytest.mark.parametrize(
    "narrow",
    [
        Context(prec=1),
        Context(prec=9),
        Context(Emax=1),
        Context(prec=28),
        Context(prec=100, Emax=50, clamp=1),
        Context(Emin=0),
    ],
)
def test_the_decimal_context_is_the_caller_s(narrow: Context) -> None:
    """The context is restored after an error, too, and the rows do not depend on the caller's context."""
    reader = RowCompiler().reader(image(INT, DECIMAL))
    data = (b"\0" + SIZE_AND_DECIMAL) * 6
    traps = [Inexact, Subnormal, Clamped]
    for trap in traps:
        narrow.traps[trap] = True
    with localcontext(narrow) as context:
        for count in (1, 6):
            rows = reader(data, 0, count * 10)
            assert [(size, str(amount)) for size, amount in rows] == [(7, "5.25")] * count
            with pytest.raises((DecodeError, struct.error)):
                reader(data, 0, count * 10 - 1)
            assert getcontext() is context
            assert not any(context.flags[trap] for trap in traps)


# Rows of one size are read all at once.


def numbers(number: int, spare: int = 0) -> bytes:
    return bytes([spare]) + struct.pack("<iHd", number, number, number / 2)


def test_rows_of_one_size() -> None:
    for images, expected in (
        ([image(INT, SMALL, DOUBLE)], [(number, number, number / 2) for number in range(9)]),
        ([image(INT, SMALL, DOUBLE, wanted=(0, 2))], [(number, number / 2) for number in range(9)]),
        (
            [image(INT, SMALL, DOUBLE, INT, present=(0, 1, 2))],
            [(number, number, number / 2, ABSENT) for number in range(9)],
        ),
    ):
        reader = RowCompiler().reader(*images)
        assert "unpack_all" in source_of(reader)
        # Bits after the last column have no meaning.
        for spare in (0, 0xF8, 0x50):
            data = b"".join(numbers(number, spare) for number in range(9))
            assert reader(b"before" + data + b"behind", 6, 6 + len(data)) == expected
        assert was_trusting(reader)


def test_pairs_of_one_size() -> None:
    reader = RowCompiler().reader(image(INT, SMALL, DOUBLE), image(INT, SMALL, DOUBLE, present=(1,)))
    data = b"".join(numbers(number) + b"\0" + struct.pack("<H", number + 1) for number in range(9))
    expected = [((number, number, number / 2), (ABSENT, number + 1, ABSENT)) for number in range(9)]
    assert reader(data, 0, len(data)) == expected
    assert was_trusting(reader)


def test_rows_of_one_size_with_values_that_are_made_of_numbers() -> None:
    days = [
        Column("day", ColumnType.DATETIME2, 0, False),
        DECIMAL,
        DOUBLE,
        Column("at", ColumnType.TIME, 0, False),
    ]
    reader = RowCompiler().reader(image(INT, *days))
    assert "unpack_all" in source_of(reader)
    rows = [
        struct.pack("<Bi", 0, number)
        + (1 << 39 | 2024 * 13 + 2 << 22 | number << 17 | number).to_bytes(5, "big")
        + SIZE_AND_DECIMAL[4:]
        + struct.pack("<d", number)
        + (10000 + number).to_bytes(3, "little")
        for number in range(9)
    ]
    expected = [
        (
            number,
            datetime(2024, 2, number, 0, 0, number) if number else "2024-02-00 00:00:00",
            Decimal("5.25"),
            float(number),
            timedelta(hours=1, seconds=number),
        )
        for number in range(9)
    ]
    data = b"".join(rows)
    assert reader(data, 0, len(data)) == expected
    assert was_trusting(reader)
    assert careful(reader)(data, 0, len(data)) == expected


def test_one_null_among_rows_that_would_be_of_one_size() -> None:
    """Even if the sizes happen to add up."""
    reader = RowCompiler().reader(image(INT, SMALL, DOUBLE))
    null = b"\4" + struct.pack("<iH", 7, 7)
    for place in range(9):
        for count in (1, 15):
            rows = [numbers(number) for number in range(9)]
            rows[place:place] = [null] * count
            data = b"".join(rows)
            expected: list[object] = [(number, number, number / 2) for number in range(9)]
            expected[place:place] = [(7, 7, None)] * count
            assert reader(data, 0, len(data)) == expected
            with pytest.raises((DecodeError, struct.error, IndexError)):
                reader(data[:-1], 0, len(data) - 1)
    assert len(null) * 15 % len(numbers(0)) == 0


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
        # The bytes after the rows (the checksum) do not belong to them.
        with pytest.raises(TruncatedError):
            reader(data, 0, end)


def test_names_and_labels_are_no_part_of_the_source() -> None:
    source = source_of(RowCompiler().reader(image(HOSTILE, HOSTILE)))
    assert "SystemExit" not in source
    assert "'" not in source


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
