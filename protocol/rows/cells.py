"""The one table that says how a column's value stands in a row image: ``ColumnType`` -> ``Cell``.

A cell is what generated code needs to read one value: how many bytes, how to find its end, and an expression
that turns them into the Python value. It reads nothing itself; ``rowcode`` does, and so does the columnar reader.
Layout: MySQL's ``sql/log_event.cc`` (log_event_print_value) and ``Field::pack`` of each type.
"""

import codecs
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..charset import Charset, charset_by_name
from ..constants import ColumnType
from ..errors import DecodeError
from ..inflate import uncompress_column
from ..records import record
from ..values.inline import (
    Inline,
    Memo,
    Shared,
    bits,
    dates,
    datetime2,
    decimal,
    medium_integer,
    time2,
    timestamp,
    timestamp2,
)
from ..values.readers import (
    datetime2_reader,
    decimal_reader,
    decimal_size,
    enum_label,
    fraction_size,
    read_datetime,
    read_time,
    read_timestamp,
    read_vector,
    set_labels,
    time2_reader,
    timestamp2_reader,
)
from .column import ABSENT, BLOB_TYPES, INTEGER_TYPES, Column

if TYPE_CHECKING:
    from ..values.jsonb import JsonValue

# Values are of every type that a column can have; the table in the design names them. They leave through
# row tuples, which are typed as tuples of object.
Function = Callable[..., object]


@record(frozen=True, slots=True, eq=False)
class Cell:
    """How to read one value.

    A *number* has a ``struct`` code, or one for a few bytes; ``expression`` is over ``{v}``, what it unpacks.
    A *fixed* cell has a ``size``; ``expression`` is over ``data`` and ``{p}``, its position.
    A *variable* cell has ``length_bytes``, the size of the length before it; ``expression`` is over ``{v}``,
    the value's bytes. ``{f}`` stands for ``function``: what the expression calls or looks into.
    ``inline`` is a faster way to the same value of a fixed cell. ``quick`` does as ``expression``, but raises
    ``UnicodeDecodeError`` where that has more to do. Two cells are equal only when they are the same object.
    """

    expression: str = "{v}"
    function: object = None
    code: str = ""
    size: int = 0
    length_bytes: int = 0
    quick: str = ""
    inline: Inline | None = None


# Combinations of labels that are kept per SET.
_SETS_KEPT = 1024

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
        expression = f"from_bytes(data[{{p}}:{{p}} + 3], 'little'{signed})"
        return Cell(expression, size=3, inline=medium_integer(bool(column.unsigned)))
    code, size = _INTEGER_CODES[column.type]
    return Cell(code=code.upper() if column.unsigned else code, size=size)


def _fixed(function: Function, size: int, inline: Inline | None = None) -> Cell:
    return Cell("{f}(data, {p})", function, size=size, inline=inline)


def _length_bytes(column: Column) -> int:
    return 2 if column.metadata > 255 else 1


def _charset(column: Column) -> Charset | None:
    return None if column.charset is None else charset_by_name(column.charset)


# Without an error handler: 20 ns less, 45 where the codec need not be named either.
_QUICK_TEXT: Mapping[str | None, str] = {"utf-8": "{v}.decode()", "ascii": "{v}.decode('ascii')"}


def _text(column: Column, length_bytes: int) -> Cell:
    """A character string by its character set; bytes where there is none that Python could decode."""
    charset = _charset(column)
    if charset is None or charset.decode is None:
        return Cell(length_bytes=length_bytes)
    if charset.codec in _QUICK_TEXT:
        expression = f"{{v}}.decode('{charset.codec}', 'surrogateescape')"
        return Cell(expression, length_bytes=length_bytes, quick=_QUICK_TEXT[charset.codec])
    if charset.max_bytes == 1:
        return _byte_text(charset.decode(bytes(range(256))), length_bytes)
    return Cell("{f}({v})", charset.decode, length_bytes=length_bytes)


def _byte_text(characters: str, length_bytes: int) -> Cell:
    """A set of 256 ``characters``. Text in ASCII alone takes 35 ns instead of 110 in the set's reader, other text
    15 ns more than without the question.
    """
    expression = "{f}[0](text, None, {f}[1])[0]"
    if characters[:128] == bytes(range(128)).decode("ascii"):
        expression = f"(text.decode() if (text := {{v}}).isascii() else {expression})"
    else:
        expression = expression.replace("text", "{v}")
    return Cell(expression, (codecs.charmap_decode, characters), length_bytes=length_bytes)


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


def _little_endian(size: int) -> Cell:
    """An unsigned number."""
    code = _UNSIGNED_CODES.get(size)
    if code is None:
        return Cell(f"from_bytes(data[{{p}}:{{p}} + {size}], 'little')", size=size)
    return Cell(code=code, size=size)


def _enum(column: Column) -> Cell:
    """15 ns; by a call of ``enum_label`` it is 100."""
    cell, labels = _little_endian(column.metadata), column.labels
    if not labels:
        return cell
    wrong = partial(enum_label, labels=labels)
    if not cell.code:
        return replace(cell, expression=f"{{f}}({cell.expression})", function=wrong)
    expression = f"({{f}}[0][{{v}}] if {{v}} <= {len(labels)} else {{f}}[1]({{v}}))"
    return replace(cell, expression=expression, function=(("", *labels), wrong))


def _set(column: Column) -> Cell:
    """The joined labels: 40 ns to look them up, 530 to join them."""
    cell, labels = _little_endian(column.metadata), column.labels
    if not labels:
        return cell
    joined = Shared(_joined_labels, (labels,))
    return replace(cell, expression=f"{{f}}[{cell.expression}]", function=joined)


def _joined_labels(labels: tuple[str, ...]) -> Memo[int, str]:
    return Memo(partial(set_labels, labels=labels), _SETS_KEPT)


def _bit(column: Column) -> Cell:
    size = (column.metadata + 7) >> 3
    if size == 1:
        return Cell(code="B", size=1)
    return Cell(f"from_bytes(data[{{p}}:{{p}} + {size}], 'big')", size=size, inline=bits(size))


def _decimal(column: Column) -> Cell:
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
    reader, size = decimal_reader(precision, scale), decimal_size(precision, scale)
    return _fixed(reader, size, decimal(precision, scale))


def _unreadable(column: Column) -> Cell:
    """Old DECIMAL among them: its table map does not say how long a value is (log_event_print_value)."""
    raise DecodeError(f"rows with a column of type {column.type.name} cannot be read")


def _fractional(
    reader: Callable[[int], Function], whole_size: int, inline: Callable[[int], Inline]
) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        fsp = column.metadata
        return _fixed(reader(fsp), whole_size + fraction_size(fsp), inline(fsp))

    return cell


def _json(column: Column) -> Cell:
    """A decoder of its own for each table of cells: what it remembers goes with the stream."""
    # A tenth of `import replica`, and many logs hold no JSON.
    from ..values.jsonb_fast import JsonDecoder

    return Cell("{f}({v})", JsonDecoder().decode, length_bytes=column.metadata)


def apply_json_diff(before: object, data: bytes) -> object:
    """The JSON document after a partial update; a list of ``JsonDiff`` if the before image lacks the column."""
    from ..values.jsonb_diff import apply_json_diffs, read_json_diffs

    diffs = read_json_diffs(data)
    return diffs if before is ABSENT else apply_json_diffs(cast("JsonValue", before), diffs)


def _date(column: Column) -> Cell:
    return Cell("{f}[{v}]", Shared(dates), code="3s", size=3)


def _year(column: Column) -> Cell:
    """0, or years since 1900."""
    return Cell("{f}[{v}]", (0, *range(1901, 2156)), code="B", size=1)


CellMakers = Mapping[ColumnType, Callable[[Column], Cell]]

VALUE_CELLS: CellMakers = {
    **dict.fromkeys(INTEGER_TYPES, _integer),
    ColumnType.FLOAT: lambda column: Cell(code="f", size=4),
    ColumnType.DOUBLE: lambda column: Cell(code="d", size=8),
    ColumnType.NEWDECIMAL: _decimal,
    ColumnType.BIT: _bit,
    ColumnType.YEAR: _year,
    ColumnType.DATE: _date,
    ColumnType.NEWDATE: _date,
    ColumnType.TIME: lambda column: _fixed(read_time, 3),
    ColumnType.DATETIME: lambda column: _fixed(read_datetime, 8),
    ColumnType.TIMESTAMP: lambda column: _fixed(read_timestamp, 4, timestamp()),
    ColumnType.TIME2: _fractional(time2_reader, 3, time2),
    ColumnType.DATETIME2: _fractional(datetime2_reader, 5, datetime2),
    ColumnType.TIMESTAMP2: _fractional(timestamp2_reader, 4, timestamp2),
    ColumnType.STRING: _string,
    ColumnType.VARCHAR: _varchar,
    ColumnType.VAR_STRING: _varchar,
    **dict.fromkeys(BLOB_TYPES, _blob),
    ColumnType.MARIADB_VARCHAR_COMPRESSED: lambda column: _compressed(column, _length_bytes(column)),
    ColumnType.MARIADB_BLOB_COMPRESSED: lambda column: _compressed(column, column.metadata),
    ColumnType.ENUM: _enum,
    ColumnType.SET: _set,
    ColumnType.JSON: _json,
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
        self._shared: dict[Shared, object] = {}

    def cell(self, column: Column) -> Cell:
        """The cell of ``column``. Raises ``DecodeError`` for a type that has no place in a row."""
        key = (column.type, column.metadata, column.unsigned, column.charset, column.labels)
        cell = self._cells.get(key)
        if cell is None:
            if not column.metadata and column.type in _WITH_METADATA:
                raise DecodeError(f"a {column.type.name} column whose table map lacks its metadata")
            cell = self._with_shared(self._makers.get(column.type, _unreadable)(column))
            self._cells[key] = cell
        return cell

    def _with_shared(self, cell: Cell) -> Cell:
        """The cell with the constants that it shares with others in place of what makes them."""
        inline = cell.inline
        if inline is not None:
            inline = replace(inline, constants=tuple(map(self._made, inline.constants)))
        return replace(cell, function=self._made(cell.function), inline=inline)

    def _made(self, constant: object) -> object:
        if not isinstance(constant, Shared):
            return constant
        if constant not in self._shared:
            self._shared[constant] = constant.make(*constant.arguments)
        return self._shared[constant]
