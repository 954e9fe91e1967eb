"""The table of value layouts in a row image: ``ColumnType`` -> ``Cell``.

A cell has everything that generated code needs to read one value: the size of the value, or of its length, and an
expression that turns its bytes into the Python value. Cells read nothing themselves; ``compiler`` and the columnar
reader use them. Layout: MySQL's ``sql/log_event.cc`` (log_event_print_value) and ``Field::pack`` of each type.
"""

import codecs
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..charset import Charset, charset_by_name
from ..constants import ColumnType
from ..errors import DecodeError
from ..inflate import ColumnInflation
from ..records import record, replace
from ..values.inline import (
    Inline,
    Memo,
    SharedConstants,
    bits,
    date,
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
    read_date,
    read_datetime,
    read_time,
    read_timestamp,
    read_vector,
    set_labels,
    time2_reader,
    timestamp2_reader,
)
from .bounded_cache import BoundedCache
from .column import ABSENT, BLOB_TYPES, INTEGER_TYPES, Column, labels_size

if TYPE_CHECKING:
    from ..values.jsonb import JsonValue

# Functions that return a value: of any type that a column can have. Row tuples are typed as tuples of object.
Function = Callable[..., object]


@record(frozen=True, slots=True, eq=False)
class Cell:
    """How to read one value.

    A *number* has a ``code`` of ``struct``, which may also be a few bytes; ``expression`` uses ``{v}``, the unpacked
    value. A *fixed* cell has a ``size``; ``expression`` uses ``data`` and ``{p}``, the value's position.
    A *variable* cell has ``length_bytes``, the size of the length before the value; ``expression`` uses ``{v}``,
    the value's bytes. ``{f}`` is ``function``, which the expression calls or indexes. ``inline`` is a faster way to
    the value of a fixed cell. ``quick`` is a faster ``expression`` that raises ``UnicodeDecodeError`` for text that
    is not valid; it may use ``{n}``, the length, and the bytes of ``data`` from ``{s}`` to ``{e}``; in result rows
    ``{e}``, the end of the value in ``{d}``. Two cells are equal only if they are the same object.
    """

    expression: str = "{v}"
    function: object = None
    code: str = ""
    size: int = 0
    length_bytes: int = 0
    quick: str = ""
    inline: Inline | None = None


@record(frozen=True, slots=True)
class Inflating:
    """Stands for the function of a ``COMPRESSED`` column; the cell table makes it, because all share one limit.

    ``decode`` makes a text of the bytes; None leaves them bytes.
    """

    decode: Callable[[bytes], str] | None

    def function(self, inflation: ColumnInflation) -> Function:
        """The function of the bytes in the row."""
        decode, uncompress = self.decode, inflation.column
        return uncompress if decode is None else lambda data: decode(uncompress(data))


# Combinations of labels that are cached for each SET.
_SETS_KEPT = 1024
_SETS_BYTES = 64 << 10
# Memory for cells; sets of labels, which a schema may have thousands of, make most of it.
_CELLS_BYTES = 16 << 20
_CELL_SIZE = 1200

#: The ``struct`` code and the size of signed integers.
INTEGER_CODES: dict[ColumnType, tuple[str, int]] = {
    ColumnType.TINY: ("b", 1),
    ColumnType.SHORT: ("h", 2),
    ColumnType.LONG: ("i", 4),
    ColumnType.LONGLONG: ("q", 8),
}
_UNSIGNED_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


def _integer(column: Column) -> Cell:
    """An integer, which is signed if its sign is unknown, as in the output of the reference tool."""
    if column.type is ColumnType.INT24:
        signed = "" if column.unsigned else ", signed=True"
        expression = f"from_bytes(data[{{p}}:{{p}} + 3], 'little'{signed})"
        return Cell(expression, size=3, inline=medium_integer(bool(column.unsigned)))
    code, size = INTEGER_CODES[column.type]
    return Cell(code=code.upper() if column.unsigned else code, size=size)


def _fixed(function: Function, size: int, inline: Inline | None = None) -> Cell:
    return Cell("{f}(data, {p})", function, size=size, inline=inline)


def length_bytes(column: Column) -> int:
    """The size of the length in front of a string."""
    return 2 if column.metadata > 255 else 1


def _charset(column: Column) -> Charset | None:
    return None if column.charset is None else charset_by_name(column.charset)


# Decoding without an error handler saves 20 ns, and 45 ns where the codec need not be named either.
_QUICK_TEXT: Mapping[str | None, str] = {"utf-8": "{v}.decode()", "ascii": "{v}.decode('ascii')"}


def _text(column: Column, length_bytes: int) -> Cell:
    """A string in its column's character set; bytes if the set is unknown or binary."""
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
    """Text in a set of 256 ``characters``. The test for ASCII reads pure ASCII in 35 ns instead of 110, and costs
    other text 15 ns more.
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
        return Cell(f"{{v}}.ljust({column.metadata}, b'\\0')", length_bytes=length_bytes(column))
    return _text(column, length_bytes(column))


def _varchar(column: Column) -> Cell:
    return _text(column, length_bytes(column))


def _blob(column: Column) -> Cell:
    return _text(column, column.metadata)


def _compressed(column: Column, length_bytes: int) -> Cell:
    """A MariaDB ``COMPRESSED`` column: decompressed, then read as its type."""
    charset = _charset(column)
    decode = None if charset is None else charset.decode
    return Cell("{f}({v})", Inflating(decode), length_bytes=length_bytes)


def _little_endian(size: int) -> Cell:
    """An unsigned little-endian number of ``size`` bytes."""
    code = _UNSIGNED_CODES.get(size)
    if code is None:
        return Cell(f"from_bytes(data[{{p}}:{{p}} + {size}], 'little')", size=size)
    return Cell(code=code, size=size)


def _enum(column: Column) -> Cell:
    """The label by a look-up: 15 ns; a call of ``enum_label`` takes 100."""
    cell, labels = _little_endian(column.metadata), column.labels
    if not labels:
        return cell
    wrong = partial(enum_label, labels=labels)
    if not cell.code:
        return replace(cell, expression=f"{{f}}({cell.expression})", function=wrong)
    expression = f"({{f}}[0][{{v}}] if {{v}} <= {len(labels)} else {{f}}[1]({{v}}))"
    return replace(cell, expression=expression, function=(("", *labels), wrong))


def _set(column: Column) -> Cell:
    """The joined labels: a look-up takes 40 ns, joining them 530."""
    cell, labels = _little_endian(column.metadata), column.labels
    if not labels:
        return cell
    longest = labels_size([column])
    joined = Memo(partial(set_labels, labels=labels), min(_SETS_KEPT, _SETS_BYTES // longest + 1))
    return replace(cell, expression=f"{{f}}[{cell.expression}]", function=joined)


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
    """Types that cannot be read. The table map of old DECIMAL lacks the value's size (log_event_print_value)."""
    raise DecodeError(f"rows with a column of type {column.type.name} cannot be read")


def _fractional(
    reader: Callable[[int], Function], whole_size: int, inline: Callable[[int], Inline]
) -> Callable[[Column], Cell]:
    def cell(column: Column) -> Cell:
        fsp = column.metadata
        return _fixed(reader(fsp), whole_size + fraction_size(fsp), inline(fsp))

    return cell


def _json(column: Column) -> Cell:
    """JSON; each cell table has its own decoder, whose caches are freed with the stream."""
    # The import takes a tenth of the time of `import replica`, and many logs hold no JSON.
    from ..values.jsonb_fast import JsonDecoder

    decoder = JsonDecoder()
    functions = decoder.decode, decoder.by_size.get, decoder.by_shape
    quick = "{f}[1]({n}, {f}[2])(data, {s}, {e})"
    return Cell("{f}[0]({v})", functions, length_bytes=column.metadata, quick=quick)


def apply_json_diff(before: object, data: bytes) -> object:
    """The JSON document after a partial update; a list of ``JsonDiff`` if the before image lacks the column."""
    from ..values.jsonb_diff import apply_json_diffs, read_json_diffs

    diffs = read_json_diffs(data)
    return diffs if before is ABSENT else apply_json_diffs(cast("JsonValue", before), diffs)


def _date(column: Column) -> Cell:
    return _fixed(read_date, 3, date())


def _year(column: Column) -> Cell:
    """YEAR: 0, or the years since 1900."""
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
    ColumnType.MARIADB_VARCHAR_COMPRESSED: lambda column: _compressed(column, length_bytes(column)),
    ColumnType.MARIADB_BLOB_COMPRESSED: lambda column: _compressed(column, column.metadata),
    ColumnType.ENUM: _enum,
    ColumnType.SET: _set,
    ColumnType.JSON: _json,
    ColumnType.GEOMETRY: lambda column: Cell(length_bytes=column.metadata),
    ColumnType.VECTOR: lambda column: Cell("{f}({v})", read_vector, length_bytes=column.metadata),
}


# For these types metadata of 0 means that the table map left the metadata out (before 5.1.18).
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
    """Makes each distinct cell once, so that tables of one shape share their compiled code.

    ``makers`` makes the cell of each type; ``apply_diff`` applies a diff to a JSON value. Other readers of the same
    layout bring their own. ``document`` makes their value of a JSON document that a SELECT has given.
    """

    def __init__(
        self,
        makers: CellMakers = VALUE_CELLS,
        apply_diff: Function | None = None,
        document: Function | None = None,
    ) -> None:
        self._makers = makers
        self.document = document
        self.apply_diff = apply_diff or apply_json_diff
        #: Decompresses the columns of all cells; ``begin`` is called for each event.
        self.inflation = ColumnInflation()
        self._cells: BoundedCache[tuple[Any, ...], Cell] = BoundedCache(_CELLS_BYTES)
        self._shared = SharedConstants()

    def cell(self, column: Column) -> Cell:
        """The cell of ``column``. Raises ``DecodeError`` for a type that cannot be read from a row."""
        key = (column.type, column.metadata, column.unsigned, column.charset, column.labels)
        cell = self._cells.get(key)
        if cell is None:
            if not column.metadata and column.type in _WITH_METADATA:
                raise DecodeError(f"the table map lacks the metadata of a {column.type.name} column")
            cell = self._with_shared(self._makers.get(column.type, _unreadable)(column))
            self._cells.keep(key, cell, _CELL_SIZE + 2 * labels_size([column]))
        return cell

    def _with_shared(self, cell: Cell) -> Cell:
        """The cell with each ``Shared`` replaced by the constant that it makes."""
        inline = cell.inline
        if inline is not None:
            inline = replace(inline, constants=tuple(map(self._made, inline.constants)))
        return replace(cell, function=self._made(cell.function), inline=inline)

    def _made(self, constant: object) -> object:
        if isinstance(constant, Inflating):
            return constant.function(self.inflation)
        return self._shared.made(constant)
