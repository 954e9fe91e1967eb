"""Cells that decode a column to the text that mysqlbinlog and mariadb-binlog print, and the comment after it.

They have the same row layouts as the cells of ``protocol.rows.cells``, so the decoder's compiled readers work for
them, too. Values are bytes, because a string column may hold any bytes. ``rows`` writes the rest of the line.
Formats: ``log_event_print_value`` of MySQL's ``sql/log_event.cc`` and MariaDB's ``sql/log_event_client.cc``.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Literal

from protocol.constants import ColumnType
from protocol.rows.cells import INTEGER_CODES, Cell, CellMakers, CellTable, Function, length_bytes
from protocol.rows.column import BLOB_TYPES, Column
from protocol.values.jsonb import decode_json
from protocol.values.jsonb_diff import JsonDiff, read_json_diffs
from protocol.values.jsonb_text import json_text, render_json
from protocol.values.readers import decimal_reader, decimal_size, fraction_size, read_vector
from protocol.wire import utf8_bytes

Flavor = Literal["mysql", "mariadb"]

# ----------------------------------------------------------------------------------------------- strings

_MYSQL_ESCAPED = re.compile(rb"[\x00-\x1f'\\]")
_MYSQL_SPECIAL = bytes(range(0x20)) + b"'\\"
_MYSQL_ESCAPES = {bytes([byte]): b"\\x%02x" % byte for byte in range(0x20)} | {
    b"\b": rb"\b",
    b"\t": rb"\t",
    b"\n": rb"\n",
    b"\f": rb"\f",
    b"\r": rb"\r",
    b"'": rb"\'",
    b"\\": rb"\\",
}
# MariaDB's tool intends to escape quotes and backslashes, too, but checks for control characters first.
_MARIADB_ESCAPED = re.compile(rb"[\x00-\x1f]")


def _mysql_escape(match: re.Match[bytes]) -> bytes:
    return _MYSQL_ESCAPES[match[0]]


def _mariadb_escape(match: re.Match[bytes]) -> bytes:
    return b"\\x%02x" % ord(match[0])


def quote_mysql(value: bytes) -> bytes:
    """A string as mysqlbinlog prints it."""
    # Most have nothing to escape: this takes 120 ns for 28 bytes, the search for a match 200.
    if len(value.translate(None, _MYSQL_SPECIAL)) == len(value):
        return b"'%b'" % value
    return b"'%b'" % _MYSQL_ESCAPED.sub(_mysql_escape, value)


def quote_mariadb(value: bytes) -> bytes:
    """A string as mariadb-binlog prints it."""
    return b"'%b'" % _MARIADB_ESCAPED.sub(_mariadb_escape, value)


# ----------------------------------------------------------------------------------------------- numbers


def _integer(column: Column) -> Cell:
    """Signed and unsigned reading of a negative number: the tools ignore the column's sign."""
    code, size = INTEGER_CODES[column.type]
    both = f"b'%d (%d)' % ({{v}}, {{v}} + {1 << 8 * size})"
    return Cell(f"(b'%d' % {{v}} if {{v}} >= 0 else {both})", code=code, size=size)


def _medium_integer(data: bytes, position: int) -> bytes:
    value = int.from_bytes(data[position : position + 3], "little", signed=True)
    return b"%d" % value if value >= 0 else b"%d (%d)" % (value, value + (1 << 24))


# With more digits behind the point str() writes small numbers with an exponent; it takes a third of the time.
_PLAIN_SCALE = 6


def _decimal(column: Column) -> Cell:
    precision, scale = column.metadata >> 8, column.metadata & 0xFF
    read: Callable[[bytes, int], Decimal] = decimal_reader(precision, scale)
    size = decimal_size(precision, scale)
    if scale <= _PLAIN_SCALE:
        return _fixed(lambda data, position: str(read(data, position)).encode(), size)
    return _fixed(lambda data, position: f"{read(data, position):f}".encode(), size)


def _fixed(function: Function, size: int) -> Cell:
    return Cell("{f}(data, {p})", function, size=size)


def _bits(size: int, bits: int) -> Cell:
    """The lowest ``bits`` of ``size`` bytes, first byte first, so that the bytes of a SET come out in reverse."""
    mask, width = (1 << bits) - 1, f"0{bits}b"

    def text(data: bytes, position: int) -> bytes:
        stored = int.from_bytes(data[position : position + size], "big")
        return f"b'{format(stored & mask, width)}'".encode()

    return _fixed(text, size)


# --------------------------------------------------------------------------------------- dates and times


def _date(data: bytes, position: int) -> bytes:
    stored = int.from_bytes(data[position : position + 3], "little")
    return b"'%04d:%02d:%02d'" % (stored >> 9, stored >> 5 & 15, stored & 31)


def _old_datetime(form: bytes) -> Cell:
    def text(data: bytes, position: int) -> bytes:
        days, clock = divmod(int.from_bytes(data[position : position + 8], "little"), 1_000_000)
        date = (days // 10000, days // 100 % 100, days % 100)
        return form % (*date, clock // 10000, clock // 100 % 100, clock % 100)

    return _fixed(text, 8)


def _old_time(signed: bool) -> Cell:
    def text(data: bytes, position: int) -> bytes:
        stored = int.from_bytes(data[position : position + 3], "little", signed=signed)
        clock = abs(stored)
        sign = b"-" if stored < 0 else b""
        return b"'%b%02d:%02d:%02d'" % (sign, clock // 10000, clock // 100 % 100, clock % 100)

    return _fixed(text, 3)


def _fraction(digits: int) -> Callable[[int], bytes]:
    """A stored fraction as text: it is stored with an even number of digits, and shown with ``digits``."""
    if not digits:
        return lambda stored: b""
    dropped = digits % 2
    form = b".%%0%dd" % digits
    return lambda stored: form % (stored // 10 if dropped else stored)


def _timestamp2(column: Column) -> Cell:
    fraction, size = _fraction(column.metadata), fraction_size(column.metadata)

    def text(data: bytes, position: int) -> bytes:
        seconds = int.from_bytes(data[position : position + 4], "big")
        stored = int.from_bytes(data[position + 4 : position + 4 + size], "big")
        return b"%d%b" % (seconds, fraction(stored))

    return _fixed(text, 4 + size)


def _datetime2(column: Column) -> Cell:
    fraction, size = _fraction(column.metadata), fraction_size(column.metadata)

    def text(data: bytes, position: int) -> bytes:
        packed = int.from_bytes(data[position : position + 5], "big") - 0x8000000000
        stored = int.from_bytes(data[position + 5 : position + 5 + size], "big")
        year, month = divmod(packed >> 22, 13)
        date = (year, month, packed >> 17 & 31)
        clock = (packed >> 12 & 31, packed >> 6 & 63, packed & 63)
        return b"'%04d-%02d-%02d %02d:%02d:%02d%b'" % (*date, *clock, fraction(stored))

    return _fixed(text, 5 + size)


def _time2(column: Column) -> Cell:
    """A TIME. A negative value is stored as the complement of the whole number, fraction included."""
    fraction, size = _fraction(column.metadata), fraction_size(column.metadata)
    bits = 8 * size
    bias, mask = 0x800000 << bits, (1 << bits) - 1

    def text(data: bytes, position: int) -> bytes:
        stored = int.from_bytes(data[position : position + 3 + size], "big") - bias
        magnitude = abs(stored)
        clock = magnitude >> bits
        sign = b"-" if stored < 0 else b""
        parts = (clock >> 12 & 1023, clock >> 6 & 63, clock & 63)
        return b"'%b%02d:%02d:%02d%b'" % (sign, *parts, fraction(magnitude & mask))

    return _fixed(text, 3 + size)


# -------------------------------------------------------------------------------------------- JSON, VECTOR


class JsonDiffText:
    """A partial update of a JSON column. Its text needs the column's name, which the line's writer passes."""

    def __init__(self, diffs: list[JsonDiff]) -> None:
        self._diffs = diffs

    def text(self, column: bytes) -> bytes:
        """Nested function calls, as ``print_json_diff`` in MySQL's ``log_event.cc`` writes them."""
        if not self._diffs:
            return column
        names = [_diff_function(diff) for diff in self._diffs]
        changes = [name for name, after in zip(names, [*names[1:], None], strict=True) if name != after]
        opening = b"(\n###      ".join(reversed(changes))
        return b"%b(%b, %b" % (opening, column, b"".join(self._arguments(names)))

    def _arguments(self, names: list[bytes]) -> list[bytes]:
        arguments = []
        for index, (diff, name) in enumerate(zip(self._diffs, names, strict=True)):
            is_last = index + 1 == len(names)
            text = quote_mysql(utf8_bytes(diff.path))
            if diff.operation != "remove":
                text += b", " + _json_literal(diff.value)
            if is_last or names[index + 1] != name:
                text += b")"
            arguments.append(text if is_last else text + b",\n###      ")
        return arguments


def _diff_function(diff: JsonDiff) -> bytes:
    if diff.operation == "insert":
        return b"JSON_ARRAY_INSERT" if diff.path.endswith("]") else b"JSON_INSERT"
    return b"JSON_REPLACE" if diff.operation == "replace" else b"JSON_REMOVE"


def _json_literal(document: bytes) -> bytes:
    """A value as an SQL expression: numbers and literals bare, containers as CASTs."""
    value = decode_json(document)
    text = _json_bytes(document)
    if isinstance(value, dict | list):
        return b"CAST(%b AS JSON)" % quote_mysql(text)
    return text if value is None or isinstance(value, int | float | Decimal) else quote_mysql(text)


def _json_bytes(document: bytes) -> bytes:
    return utf8_bytes(json_text(document))


def _json(column: Column) -> Cell:
    """Each cell has its own decoder, which gets faster with similar documents."""
    from protocol.values.jsonb_fast import JsonDecoder

    decode = JsonDecoder().decode

    def text(document: bytes) -> bytes:
        return quote_mysql(utf8_bytes(render_json(decode(document), bare=True)))

    return Cell("{f}({v})", text, length_bytes=column.metadata)


def _json_diff(before: object, data: bytes) -> JsonDiffText:
    return JsonDiffText(read_json_diffs(data))


def _vector(data: bytes) -> bytes:
    return b"[%b]" % b",".join([b"%.5e" % number for number in read_vector(data)])


# -------------------------------------------------------------------------------------------- cell tables


def _short(quote: Function) -> Callable[[Column], Cell]:
    return lambda column: Cell("{f}({v})", quote, length_bytes=length_bytes(column))


def _long(quote: Function) -> Callable[[Column], Cell]:
    return lambda column: Cell("{f}({v})", quote, length_bytes=column.metadata)


def _constant(cell: Cell) -> Callable[[Column], Cell]:
    return lambda column: cell


_SHORT_STRINGS = (ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.STRING)


def _makers(quote: Function, datetime: bytes, signed_time: bool) -> CellMakers:
    return {
        **dict.fromkeys(INTEGER_CODES, _integer),
        ColumnType.INT24: _constant(_fixed(_medium_integer, 3)),
        ColumnType.FLOAT: _constant(Cell("b'%-20g' % {v}", code="f", size=4)),
        ColumnType.DOUBLE: _constant(Cell("b'%.20g' % {v}", code="d", size=8)),
        ColumnType.NEWDECIMAL: _decimal,
        ColumnType.BIT: lambda column: _bits((column.metadata + 7) >> 3, column.metadata),
        ColumnType.YEAR: _constant(Cell("b'%04d' % ({v} + 1900)", code="B", size=1)),
        ColumnType.DATE: _constant(_fixed(_date, 3)),
        ColumnType.NEWDATE: _constant(_fixed(_date, 3)),
        ColumnType.TIME: _constant(_old_time(signed_time)),
        ColumnType.DATETIME: _constant(_old_datetime(datetime)),
        ColumnType.TIMESTAMP: _constant(Cell("b'%d' % {v}", code="i", size=4)),
        ColumnType.TIME2: _time2,
        ColumnType.DATETIME2: _datetime2,
        ColumnType.TIMESTAMP2: _timestamp2,
        **dict.fromkeys(_SHORT_STRINGS, _short(quote)),
        **dict.fromkeys(BLOB_TYPES, _long(quote)),
        ColumnType.ENUM: lambda column: Cell(
            "b'%d' % {v}", code="B" if column.metadata == 1 else "H", size=column.metadata
        ),
        ColumnType.SET: lambda column: _bits(column.metadata, 8 * column.metadata),
        ColumnType.GEOMETRY: _long(quote),
    }


_CELLS: dict[Flavor, CellMakers] = {
    "mysql": {
        **_makers(quote_mysql, b"%04d-%02d-%02d %02d:%02d:%02d", False),
        ColumnType.JSON: _json,
        ColumnType.VECTOR: _long(_vector),
    },
    "mariadb": {
        **_makers(quote_mariadb, b"'%04d-%02d-%02d %02d:%02d:%02d'", True),
        # Compressed columns are printed as logged, compressed.
        ColumnType.MARIADB_VARCHAR_COMPRESSED: _short(quote_mariadb),
        ColumnType.MARIADB_BLOB_COMPRESSED: _long(quote_mariadb),
    },
}


class TextCells(CellTable):
    """Cells of text, for ``EventDecoder(cells=...)``. ``flavor`` may be set until the first rows are decoded."""

    def __init__(self, flavor: Flavor = "mysql") -> None:
        super().__init__(apply_diff=_json_diff)
        self.flavor: Flavor = flavor
        self._tables = {name: CellTable(makers) for name, makers in _CELLS.items()}

    def cell(self, column: Column) -> Cell:
        """The cell of ``column``. Raises ``DecodeError`` for a type that rows cannot hold."""
        return self._tables[self.flavor].cell(column)


# ------------------------------------------------------------------------------------------------ comments

_BLOB_NAMES = {
    1: "TINYBLOB/TINYTEXT",
    2: "BLOB/TEXT",
    3: "MEDIUMBLOB/MEDIUMTEXT",
    4: "LONGBLOB/LONGTEXT",
}
# Types whose name in the tools differs from that of ColumnType.
_TYPE_NAMES: dict[ColumnType, str] = {
    ColumnType.TINY: "TINYINT",
    ColumnType.SHORT: "SHORTINT",
    ColumnType.INT24: "MEDIUMINT",
    ColumnType.LONG: "INT",
    ColumnType.LONGLONG: "LONGINT",
    ColumnType.NEWDATE: "DATE",
    ColumnType.TIME2: "TIME({metadata})",
    ColumnType.DATETIME2: "DATETIME({metadata})",
    ColumnType.TIMESTAMP2: "TIMESTAMP({metadata})",
    ColumnType.NEWDECIMAL: "DECIMAL({high},{low})",
    ColumnType.BIT: "BIT({metadata})",
    ColumnType.STRING: "STRING({metadata})",
    ColumnType.VARCHAR: "VARSTRING({metadata})",
    ColumnType.VAR_STRING: "VARSTRING({metadata})",
    ColumnType.MARIADB_VARCHAR_COMPRESSED: "VARSTRING({metadata}) COMPRESSED",
    **dict.fromkeys(BLOB_TYPES, "{blob}"),
    ColumnType.MARIADB_BLOB_COMPRESSED: "{blob} COMPRESSED",
    ColumnType.ENUM: "ENUM({metadata} byte{plural})",
    ColumnType.SET: "SET({metadata} bytes)",
    ColumnType.VECTOR: "VECTOR({dimension})",
}


def type_name(column: Column) -> str:
    """The type in the comment after a value: the tools' own name, which may differ from SQL's."""
    metadata = column.metadata
    return _TYPE_NAMES.get(column.type, column.type.name).format(
        metadata=metadata,
        high=metadata >> 8,
        low=metadata & 0xFF,
        plural="" if metadata == 1 else "s",
        blob=_BLOB_NAMES.get(metadata, ""),
        dimension=column.dimension or 0,
    )


def raw_metadata(column: Column) -> int:
    """The metadata as in the table map, with the bytes that ``Column.metadata`` leaves out."""
    kind, metadata = column.type, column.metadata
    if kind in (ColumnType.ENUM, ColumnType.SET):
        return kind << 8 | metadata
    if kind is ColumnType.STRING:
        return (kind ^ (metadata & 0x300) >> 4) << 8 | metadata & 0xFF
    if kind is ColumnType.BIT:
        return metadata // 8 << 8 | metadata % 8
    return metadata
