"""Cells without a plain reader (labels, bits, years, single-byte text), tested through compiled rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.charset import charset_by_name
from protocol.charset_tables import BYTE_CODECS, PATCHED_BYTE_CODECS, UPPER_HALVES
from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.rows.cells import CellTable
from protocol.rows.column import Column
from protocol.rows.compiler import Image, RowCompiler


def reader(column: Column, cells: CellTable | None = None) -> Callable[[bytes], object]:
    """A reader of rows with this one column, not NULL, from the bytes of the value."""
    cell = (cells or CellTable()).cell(column)
    read_rows = RowCompiler().reader(Image((cell,), (0,), (0,)))

    def read(stored: bytes) -> object:
        data = b"\0" + stored
        [(value,)] = read_rows(data, 0, len(data))
        return value

    return read


def column(kind: ColumnType, metadata: int = 0, **known: object) -> Column:
    return Column("c", kind, metadata, True, **known)  # type: ignore[arg-type]


def test_years() -> None:
    read = reader(column(ColumnType.YEAR))
    assert [read(bytes([stored])) for stored in range(256)] == [0, *range(1901, 2156)]


@pytest.mark.parametrize("bits", [1, 5, 8, 9, 16, 17, 24, 25, 33, 41, 49, 57, 64])
def test_bits_are_big_endian(bits: int) -> None:
    read = reader(column(ColumnType.BIT, bits))
    size = (bits + 7) // 8
    for stored in (bytes(size), b"\xff" * size, bytes(range(1, size + 1)), bytes(size - 1) + b"\1"):
        assert read(stored) == int.from_bytes(stored, "big")


@pytest.mark.parametrize("unsigned", [False, True, None])
def test_medium_integers(unsigned: bool | None) -> None:
    read = reader(column(ColumnType.INT24, unsigned=unsigned))
    for stored in (b"\0\0\0", b"\1\2\3", b"\xff\xff\x7f", b"\0\0\x80", b"\xff\xff\xff"):
        assert read(stored) == int.from_bytes(stored, "little", signed=not unsigned)


@pytest.mark.parametrize("size", [1, 2])
def test_labels_of_an_enum(size: int) -> None:
    labels = ("red", "'\n", "{v}")
    read = reader(column(ColumnType.ENUM, size, labels=labels))
    assert [read(number.to_bytes(size, "little")) for number in range(4)] == ["", *labels]
    for wrong in (4, 256**size - 1):
        with pytest.raises(DecodeError, match=f"ENUM value {wrong} is impossible: the column has 3 labels"):
            read(wrong.to_bytes(size, "little"))
    assert reader(column(ColumnType.ENUM, size))(b"\2" + bytes(size - 1)) == 2


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_labels_of_a_set(size: int) -> None:
    labels = tuple(f"label {number}" for number in range(8 * size - 1))
    read = reader(column(ColumnType.SET, size, labels=labels))
    for number in [*range(1500), (1 << 8 * size - 1) - 1, 0]:
        value = number % (1 << 8 * size - 1)
        expected = ",".join(label for bit, label in enumerate(labels) if value >> bit & 1)
        assert read(value.to_bytes(size, "little")) == expected
    with pytest.raises(DecodeError, match=f"the column has {len(labels)} labels"):
        read((1 << 8 * size - 1).to_bytes(size, "little"))
    assert reader(column(ColumnType.SET, size))(b"\5" + bytes(size - 1)) == 5


def test_dates_come_from_their_reader() -> None:
    read = reader(column(ColumnType.DATE))
    stored = (2026 << 9 | 2 << 5 | 28).to_bytes(3, "little")
    assert str(read(stored)) == "2026-02-28"
    assert read(stored) is read(stored)
    assert read(bytes(3)) == "0000-00-00"
    for _ in range(2):
        with pytest.raises(DecodeError):
            read((2026 << 9 | 13 << 5 | 1).to_bytes(3, "little"))


ONE_BYTE_SETS = ("ascii", *sorted({*BYTE_CODECS, *PATCHED_BYTE_CODECS, *UPPER_HALVES}))


@pytest.mark.parametrize("name", ONE_BYTE_SETS)
def test_strings_of_one_byte_a_character(name: str) -> None:
    charset = charset_by_name(name)
    assert charset is not None
    assert charset.decode is not None
    read = reader(column(ColumnType.VARCHAR, 1000, charset=name))
    every = [bytes([byte]) for byte in range(256)]
    for text in (b"", b"plain ASCII", bytes(range(256)), *every, *(b"ab" + byte + b"c" for byte in every)):
        assert read(len(text).to_bytes(2, "little") + text) == charset.decode(text)


def test_cells_of_one_table_share_their_tables() -> None:
    cells = CellTable()
    three, six = (cells.cell(column(ColumnType.DATETIME2, fsp)).inline for fsp in (3, 6))
    other = CellTable().cell(column(ColumnType.DATETIME2, 6)).inline
    assert three is not None
    assert six is not None
    assert other is not None
    assert three.constants[0] is six.constants[0]
    assert other.constants[0] is not six.constants[0]
    dates = [cells.cell(column(kind)).function for kind in (ColumnType.DATE, ColumnType.NEWDATE)]
    assert dates[0] is dates[1]
