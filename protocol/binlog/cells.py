"""The one table that says how a column's value stands in a row image: ``ColumnType`` -> ``Cell``.

A cell is what generated code needs to read one value: how many bytes, how to find its end, and an expression
that turns them into the Python value. It reads nothing itself; ``rowcode`` does, and so does the columnar reader.
Layout: MySQL's ``sql/log_event.cc`` (log_event_print_value) and ``Field::pack`` of each type.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..charset import Charset, charset_by_name
from ..constants import ColumnType
from ..errors import DecodeError
from .column import ABSENT, BLOB_TYPES, INTEGER_TYPES, Column
from .compression import uncompress_column
from .jsonb import JsonValue, decode_json
from .jsonb_diff import apply_json_diffs, read_json_diffs
from .values import (
    datetime2_reader,
    decimal_reader,
    decimal_size,
    enum_label,
    fraction_size,
    read_date,
    read_datetime,
    read_time,
    read_timestamp,
    read_vector,
    set_labels,
    time2_reader,
    timestamp2_reader,
)

# Values are of every type that a column can have; the table in the design names them. They leave through
# row tuples, which are typed as tuples of object.
Function = Callable[..., object]


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """How to read one value.

    A *number* has a ``struct`` code; ``expression`` is over ``{v}``, the unpacked number.
    A *fixed* cell has a ``size``; ``expression`` is over ``data`` and ``{p}``, its position.
    A *variable* cell has ``length_bytes``, the size of the length before it; ``expression`` is over ``{v}``,
    the value's bytes. ``{f}`` stands for ``function``. Two cells are equal only when they are the same object.
    """

    expression: str = "{v}"
    function: Function | None = None
    code: str = ""
    size: int = 0
    length_bytes: int = 0


_INTEGER_CODES: dict[ColumnType, tuple[str, int]] = {
    ColumnType.TINY: ("b", 1),
    ColumnType.SHORT: ("h", 2),
    ColumnType.LONG: ("i", 4),
    ColumnType.LONGLONG: ("q", 8),
}
_UNSIGNED_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _integer(column: Column) -> Cell:
    """Without a sign from the log or a description, integers are signed, as the reference tool prints them."""
    if column.type is ColumnType.INT24:
        signed = "" if column.unsigned else ", signed=True"
        return Cell(f"from_bytes(data[{{p}}:{{p}} + 3], 'little'{signed})", size=3)
    code, size = _INTEGER_CODES[column.type]
    return Cell(code=code.upper() if column.unsigned else code, size=size)


def _fixed(function: Function, size: int) -> Cell:
    return Cell("{f}(data, {p})", function, size=size)


def _length_bytes(column: Column) -> int:
    return 2 if column.metadata > 255 else 1


def _charset(column: Column) -> Charset | None:
    return None if column.charset is None else charset_by_name(column.charset)


def _text(column: Column, length_bytes: int) -> Cell:
    """A character string by its character set; bytes where there is none that Python could decode."""
    charset = _charset(column)
    if charset is None or charset.decode is None:
        return Cell(length_bytes=length_bytes)
    if charset.codec == "utf-8":
        return Cell("{v}.decode('utf-8', 'surrogateescape')", length_bytes=length_bytes)
    return Cell("{f}({v})", charset.decode, length_bytes=length_bytes)


def _string(column: Column) -> Cell:
    """CHAR or BINARY. BINARY loses its trailing zero bytes in the log (``Field_string::pack``)."""
    if column.charset == "binary":
        return Cell(f"{{v}}.ljust({column.metadata}, b'\\0')", length_bytes=_length_bytes(column))
    return _text(column, _length_bytes(column))


def _varchar(column: Column) -> Cell:
    return _text(column, _length_bytes(column))


def _blob(column: Column) -> Cell:
    return _text(column, column.metadata)


def _compressed(column: Column, length_bytes: int) -> Cell:
    """A MariaDB ``COMPRESSED`` column: as its type, behind the compression."""
    charset = _charset(column)
    decode = None if charset is None else charset.decode
    if decode is None:
        return Cell("{f}({v})", uncompress_column, length_bytes=length_bytes)
    return Cell("{f}({v})", lambda data: decode(uncompress_column(data)), length_bytes=length_bytes)


def _little_endian(size: int, function: Function | None = None) -> Cell:
    code = _UNSIGNED_CODES.get(size)
    wrap = "{{f}}({})" if function else "{}"
    if code is None:
        return Cell(wrap.format(f"from_bytes(data[{{p}}:{{p}} + {size}], 'little')"), function, size=size)
    return Cell(wrap.format("{v}"), function, code=code, size=size)


def _enum(column: Column) -> Cell:
    labels = column.labels
    return _little_endian(column.metadata, (lambda value: enum_label(value, labels)) if labels else None)


def _set(column: Column) -> Cell:
    labels = column.labels
    return _little_endian(column.metadata, (lambda value: set_labels(value, labels)) if labels else None)


def _bit(column: Column) -> Cell:
    size = (column.metadata + 7) >> 3
    if size == 1:
        return Cell(code="B", size=1)
    return Cell(f"from_bytes(data[{{p}}:{{p}} + {size}], 'big')", size=size)


def _decimal(column: Column) -> Cell:
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
    return _fixed(decimal_reader(precision, scale), decimal_size(precision, scale))


def _unreadable(column: Column) -> Cell:
    """Old DECIMAL among them: its table map does not say how long a value is (log_event_print_value)."""
    raise DecodeError(f"rows with a column of type {column.type.name} cannot be read")


def _fractional(reader: Callable[[int], Function], whole_size: int) -> Callable[[Column], Cell]:
    return lambda column: _fixed(reader(column.metadata), whole_size + fraction_size(column.metadata))


def _constant(cell: Cell) -> Callable[[Column], Cell]:
    return lambda column: cell


def apply_json_diff(before: object, data: bytes) -> object:
    """The JSON value after a partial update; only the diffs where the before image does not hold the column."""
    diffs = read_json_diffs(data)
    return diffs if before is ABSENT else apply_json_diffs(cast("JsonValue", before), diffs)


CellMakers = Mapping[ColumnType, Callable[[Column], Cell]]

VALUE_CELLS: CellMakers = {
    **dict.fromkeys(INTEGER_TYPES, _integer),
    ColumnType.FLOAT: _constant(Cell(code="f", size=4)),
    ColumnType.DOUBLE: _constant(Cell(code="d", size=8)),
    ColumnType.NEWDECIMAL: _decimal,
    ColumnType.BIT: _bit,
    ColumnType.YEAR: _constant(Cell("({v} and {v} + 1900)", code="B", size=1)),
    ColumnType.DATE: _constant(_fixed(read_date, 3)),
    ColumnType.NEWDATE: _constant(_fixed(read_date, 3)),
    ColumnType.TIME: _constant(_fixed(read_time, 3)),
    ColumnType.DATETIME: _constant(_fixed(read_datetime, 8)),
    ColumnType.TIMESTAMP: _constant(_fixed(read_timestamp, 4)),
    ColumnType.TIME2: _fractional(time2_reader, 3),
    ColumnType.DATETIME2: _fractional(datetime2_reader, 5),
    ColumnType.TIMESTAMP2: _fractional(timestamp2_reader, 4),
    ColumnType.STRING: _string,
    ColumnType.VARCHAR: _varchar,
    ColumnType.VAR_STRING: _varchar,
    **dict.fromkeys(BLOB_TYPES, _blob),
    ColumnType.MARIADB_VARCHAR_COMPRESSED: lambda column: _compressed(column, _length_bytes(column)),
    ColumnType.MARIADB_BLOB_COMPRESSED: lambda column: _compressed(column, column.metadata),
    ColumnType.ENUM: _enum,
    ColumnType.SET: _set,
    ColumnType.JSON: lambda column: Cell("{f}({v})", decode_json, length_bytes=column.metadata),
    ColumnType.GEOMETRY: lambda column: Cell(length_bytes=column.metadata),
    ColumnType.VECTOR: lambda column: Cell("{f}({v})", read_vector, length_bytes=column.metadata),
}


# Zero is no metadata that these can have: their table map left it out (before 5.1.18).
_WITH_METADATA = BLOB_TYPES | {
    ColumnType.JSON,
    ColumnType.GEOMETRY,
    ColumnType.VECTOR,
    ColumnType.MARIADB_BLOB_COMPRESSED,
    ColumnType.NEWDECIMAL,
    ColumnType.BIT,
    ColumnType.ENUM,
    ColumnType.SET,
}


class CellTable:
    """Cells by what decides them, each made once, so that tables of one shape share their compiled code.

    ``makers`` says what becomes of each type, and ``apply_diff`` of a JSON value and a diff to it; other readers of
    the same layout bring their own.
    """

    def __init__(self, makers: CellMakers = VALUE_CELLS, apply_diff: Function | None = None) -> None:
        self._makers = makers
        self.apply_diff = apply_diff or apply_json_diff
        self._cells: dict[tuple[Any, ...], Cell] = {}

    def cell(self, column: Column) -> Cell:
        """The cell of ``column``. Raises ``DecodeError`` for a type that has no place in a row."""
        key = (column.type, column.metadata, column.unsigned, column.charset, column.labels)
        cell = self._cells.get(key)
        if cell is None:
            if not column.metadata and column.type in _WITH_METADATA:
                raise DecodeError(f"a {column.type.name} column whose table map lacks its metadata")
            cell = self._cells[key] = self._makers.get(column.type, _unreadable)(column)
        return cell
