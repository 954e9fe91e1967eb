"""Column values as SQL: literals that store exactly the logged value, and conditions that find it again.

Takes values decoded with ``sql_cells``: strings as bytes, ENUM and SET as numbers, documents as ``JsonDocument``, all
others as the documented Python values. The SQL is right for a session in UTC, with ``SET NAMES utf8mb4`` and without
NO_BACKSLASH_ESCAPES. Tables and statements are not known here.

    strings      'abc', _utf8mb4'é'; _sjis 0x82A0 if converting from utf8mb4 might not give the same bytes
    binary       0x00FF; also VECTOR, UUID and INET, and GEOMETRY in the server's own form (SRID and WKB) as mysqldump
                 writes it, so that the order of axes does not matter
    FLOAT        the exact binary32 as a DOUBLE literal, which stores and compares exactly
    ENUM, SET    labels; the number if labels are not known, or if converting them might change them
    JSON         text; JSON_ARRAY and JSON_OBJECT with typed members if a document holds types that JSON text lacks,
                 or doubles that servers do not read exactly from it

In a document, BLOB, BIT and GEOMETRY members become VARBINARY, and TIMESTAMPs DATETIME: no SQL can write the
originals.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from math import isfinite
from types import MappingProxyType
from typing import Any, Final

from protocol.charset import Charset, charset_by_name
from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.records import record, replace
from protocol.rows.cells import VALUE_CELLS, Cell, CellTable
from protocol.rows.column import BLOB_TYPES, Column
from protocol.values.jsonb import JsonValue, decode_json
from protocol.values.jsonb_text import render_json
from protocol.wire import is_characters, utf8_bytes

from ..sql.quoting import ESCAPES, binary_literal, identifier, text_literal
from .json_lines import time_text
from .json_values import JsonChanges, JsonDocument, document_cells

Literal = Callable[[Any], str]

# ------------------------------------------------------------------------------------------------------ cells


def _raw_text(column: Column) -> Cell:
    """The cell of a string as its bytes; BINARY(n) is padded, a compressed column uncompressed."""
    bare = column if column.charset == "binary" else replace(column, charset=None)
    return VALUE_CELLS[column.type](bare)


def _number(column: Column) -> Cell:
    return VALUE_CELLS[column.type](replace(column, labels=None))


_TEXT_TYPES: Final = (
    *(ColumnType.STRING, ColumnType.VARCHAR, ColumnType.VAR_STRING, *BLOB_TYPES),
    *(ColumnType.MARIADB_VARCHAR_COMPRESSED, ColumnType.MARIADB_BLOB_COMPRESSED),
)
_BINARY_TYPES: Final = (ColumnType.GEOMETRY, ColumnType.VECTOR)


def sql_cells() -> CellTable:
    """The cells whose values this module writes, for ``open_binlog(cells=...)``."""
    return document_cells(
        {
            **dict.fromkeys(_TEXT_TYPES, _raw_text),
            ColumnType.ENUM: _number,
            ColumnType.SET: _number,
            ColumnType.VECTOR: lambda column: Cell(length_bytes=column.metadata),
        }
    )


# --------------------------------------------------------------------------------------------------- literals

_UTF8: Final = frozenset({"ascii", "utf8mb3", "utf8mb4"})
_UNICODE: Final = _UTF8 | {"ucs2", "utf16", "utf16le", "utf32"}
# In East Asian character sets these ASCII bytes mean themselves; national variants replace the others.
_SHARED_BY_ALL: Final = re.compile(rb"[\x00-\x5b\x5d-\x7d]*")
# Bytes that are characters for Python alone: of those characters all servers store '?', or refuse them.
_PYTHON_ALONE: Final[Mapping[str, re.Pattern[bytes]]] = MappingProxyType(
    {
        "cp1256": re.compile(rb"[\x8a\x8f\x98\x9a\x9f\xaa\xc0\xff]"),
        "greek": re.compile(rb"[\xa4\xa5\xaa]"),
        "swe7": re.compile(rb"\x7f"),
    }
)


@cache
def _is_reversible(name: str) -> bool:
    """Whether each character of the set has a single byte sequence, so that servers convert it back unchanged."""
    charset = charset_by_name(name)
    if charset is None or charset.decode is None or name in _UNICODE:
        return name in _UNICODE
    return charset.max_bytes == 1 and len(set(charset.decode(bytes(range(256))))) == 256


@cache
def _is_ascii_kept(name: str) -> bool:
    """Whether the bytes below 128 are ASCII in this set and convert back; false for swe7 and armscii8."""
    charset = charset_by_name(name)
    if charset is None or charset.decode is None or not _is_reversible(name):
        return False
    return charset.decode(bytes(range(128))) == bytes(range(128)).decode("ascii")


def _readable(data: bytes, charset: Charset) -> str | None:
    """The text of a string, if its literal in utf8mb4 is stored as exactly these bytes; otherwise None."""
    if charset.decode is None:
        return None
    text = charset.decode(data)
    if _is_reversible(charset.name):
        lacking = _PYTHON_ALONE.get(charset.name)
        return text if is_characters(text) and not (lacking and lacking.search(data)) else None
    is_shared = charset.max_bytes > 1 and _SHARED_BY_ALL.fullmatch(data)
    return text if is_shared and text == data.decode("ascii") else None


def _string_literal(charset: Charset) -> Literal:
    name = charset.name
    # Fast path: most strings are ASCII.
    is_ascii = _is_ascii_kept(name)

    def literal(data: bytes) -> str:
        if not data or (is_ascii and data.isascii()):
            return f"'{data.decode('ascii').translate(ESCAPES)}'"
        text = _readable(data, charset)
        return f"_{name} 0x{data.hex().upper()}" if text is None else text_literal(text)

    return literal


def _float_literal(value: float) -> str:
    if not isfinite(value):
        raise DecodeError(f"{value} cannot be stored in a column")
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _datetime_literal(value: datetime) -> str:
    return f"'{value.replace(tzinfo=None).isoformat(' ')}'"


_BY_VALUE: Final[Mapping[type, Literal]] = MappingProxyType(
    {
        int: str,
        float: _float_literal,
        Decimal: lambda value: f"{value:f}",
        date: lambda value: f"'{value.isoformat()}'",
        datetime: _datetime_literal,
        timedelta: lambda value: f"'{time_text(value)}'",
        str: text_literal,  # a zero or partial date
        bytes: binary_literal,
    }
)


def value_literal(value: object) -> str:
    """The literal of a value other than a string, by its Python type."""
    return _BY_VALUE[type(value)](value)


# ------------------------------------------------------------------------------------------------- ENUM and SET


def _labels(column: Column) -> tuple[str, ...]:
    """The labels, if a server reads each label back as itself; otherwise none."""
    charset = None if column.charset is None else charset_by_name(column.charset)
    labels = column.labels or ()
    if any(not is_characters(label) for label in labels):
        return ()
    if charset is not None and not _is_reversible(charset.name) and not all(map(str.isascii, labels)):
        return ()
    return labels


def _enum_literal(column: Column) -> Literal:
    """Literals of an ENUM. The number 0 is the invalid value, which prints as '' but is not the label ''."""
    literals = ["0", *map(text_literal, _labels(column))]
    return lambda value: literals[value] if value < len(literals) else str(value)


def _set_literal(column: Column) -> Literal:
    labels = _labels(column)

    def literal(value: int) -> str:
        if value >> len(labels):
            return str(value)
        return text_literal(",".join([label for index, label in enumerate(labels) if value >> index & 1]))

    return literal


# -------------------------------------------------------------------------------------------------------- JSON

_JSON_TYPED: Final[Mapping[type, Literal]] = MappingProxyType(
    {
        Decimal: lambda value: f"CAST({value:f} AS DECIMAL(65,{max(0, -value.as_tuple().exponent)}))",
        date: lambda value: f"CAST('{value.isoformat()}' AS DATE)",
        datetime: lambda value: f"CAST({_datetime_literal(value)} AS DATETIME(6))",
        timedelta: lambda value: f"CAST({_json_time_literal(value)} AS TIME(6))",
    }
)
_LONGEST_TIME: Final = timedelta(hours=839)


def _json_time_literal(value: timedelta) -> str:
    """The TIME that a document then holds.

    Servers up to MySQL 8.4 put the days of a TIME where a document has its hours above 31: of 838:59:59, which is
    34 days and 22 hours, their documents have 630:59:59 (5.7.42, 8.0.46, 8.4.10; 9.7.4 stores it as it is).
    """
    literal = f"'{time_text(value)}'"
    days = abs(value).days
    for_older = value + timedelta(hours=8 * days if value > timedelta() else -8 * days)
    if not days or abs(for_older) >= _LONGEST_TIME:
        return literal
    return f"ELT(1 /*!90700 + 1 */, '{time_text(for_older)}', {literal})"


def _json_literal(document: JsonDocument) -> str:
    value = document.value
    if _is_json_text(value):
        return _json_text_literal(value)
    expression = _json_member(value)
    return expression if isinstance(value, dict | list) else f"CAST({expression} AS JSON)"


def _json_text_literal(value: JsonValue) -> str:
    text = render_json(value)
    # Invalid UTF-8 is passed on, and the server will refuse it.
    return text_literal(text) if is_characters(text) else f"_utf8mb4 0x{utf8_bytes(text).hex().upper()}"


def _is_json_text(value: JsonValue) -> bool:
    """Whether servers read the value back unchanged from its JSON text."""
    return _is_made_of(value, _is_read_back)


def _is_read_back(value: JsonValue) -> bool:
    """For a value without members: MySQL 5.7 to 8.4 read 110 of 1,000 doubles of 17 digits as another one."""
    if isinstance(value, float):
        return not value or (1e-5 < abs(value) < 1e15 and float(f"{value:.15g}") == value)
    return _has_json_type(value)


def _has_json_type(value: JsonValue) -> bool:
    return value is None or isinstance(value, str | int | float)


def _is_made_of(value: JsonValue, is_one: Callable[[JsonValue], bool]) -> bool:
    """Whether ``is_one`` holds for the value or, if it is an array or object, for all values inside."""
    members = list(value.values()) if isinstance(value, dict) else value
    return all(_is_made_of(one, is_one) for one in members) if isinstance(members, list) else is_one(members)


def _json_member(value: JsonValue) -> str:
    """An expression for a value inside JSON_ARRAY, JSON_OBJECT or JSON_SET."""
    if isinstance(value, dict | list) and _is_json_text(value):
        return f"CAST({_json_text_literal(value)} AS JSON)"
    if isinstance(value, list):
        return f"JSON_ARRAY({', '.join(map(_json_member, value))})"
    if isinstance(value, dict):
        pairs = [f"{text_literal(name)}, {_json_member(member)}" for name, member in value.items()]
        return f"JSON_OBJECT({', '.join(pairs)})"
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        # Without _binary MySQL 5.7 takes it for a BIT.
        return f"_binary X'{value.hex().upper()}'"
    typed = _JSON_TYPED.get(type(value))
    return value_literal(value) if typed is None else typed(value)


def json_changes_expression(column: str, changes: JsonChanges) -> str:
    """A partial update as nested calls on the column's quoted name, with the functions that ``json_diff.cc`` uses."""
    expression = column
    for diff in changes.diffs:
        path = text_literal(diff.path)
        if diff.operation == "remove":
            expression = f"JSON_REMOVE({expression}, {path})"
            continue
        name = "JSON_REPLACE"
        if diff.operation == "insert":
            name = "JSON_ARRAY_INSERT" if diff.path.endswith("]") else "JSON_INSERT"
        value = decode_json(diff.value)
        expression = f"{name}({expression}, {path}, {_json_member(value)})"
    return expression


# --------------------------------------------------------------------------------------------------- conditions


@record(frozen=True, slots=True)
class ColumnSql:
    """Writes values of one column as SQL.

    ``literal`` makes the literal that stores a value. ``is_equal`` makes the condition for a key column, ``is_same``
    a condition that holds for exactly this value, whatever the collation treats as equal. None of them takes NULL.
    """

    name: str
    literal: Literal
    is_equal: Literal
    is_same: Literal

    def assignment(self, value: object) -> str:
        """``column = value``, for SET."""
        if isinstance(value, JsonChanges):
            return f"{self.name} = {json_changes_expression(self.name, value)}"
        return f"{self.name} = {self.value(value)}"

    def value(self, value: object) -> str:
        """The value's literal, for VALUES."""
        return "NULL" if value is None else self.literal(value)

    def key_condition(self, value: object) -> str:
        """The condition for a column of the primary key."""
        return f"{self.name} IS NULL" if value is None else self.is_equal(value)

    def condition(self, value: object) -> str:
        """The condition for a column of a table without a key."""
        return f"{self.name} IS NULL" if value is None else self.is_same(value)


def column_sql(column: Column) -> ColumnSql:
    """The ``ColumnSql`` of ``column``."""
    name, literal = identifier(column.name), _literal_of(column)
    compared: Literal = literal
    equal_form = same_form = "{0} = {1}"
    if column.type is ColumnType.ENUM:
        compared = str
    elif column.type is ColumnType.SET:
        # A SET compares as a signed number, but its bit operations are unsigned.
        equal_form = same_form = "{0} | 0 = {1}"
        compared = str
    elif column.type in (ColumnType.FLOAT, ColumnType.DOUBLE):
        # MySQL optimizes ``FLOAT(9,3) = 1000000`` to false without reading the row, but 999999.999 is 1000000 in
        # binary32. An expression avoids that.
        equal_form = same_form = "{0} + 0e0 = {1}"
    elif column.type in _BINARY_TYPES:
        same_form = "CAST({0} AS BINARY) = {1}"
    elif column.type is ColumnType.JSON:
        same_form = "CAST({0} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin = {1}"
        compared = _json_text_of
    elif column.type in _TEXT_TYPES and column.charset not in (None, "binary"):
        same_form = "CAST({0} AS BINARY) = {1}"
        same = literal if column.charset in _UTF8 else binary_literal
        return ColumnSql(name, literal, _form(equal_form, name, literal), _form(same_form, name, same))
    return ColumnSql(name, literal, _form(equal_form, name, compared), _form(same_form, name, compared))


def _form(form: str, name: str, write: Literal) -> Literal:
    return lambda value: form.format(name, write(value))


def _json_text_of(document: JsonDocument) -> str:
    """The document's text as the target prints it: MySQL 5.7 has 1 for 1.0, and servers round doubles differently."""
    text = _json_text_literal(document.value)
    if not _is_made_of(document.value, _has_json_type):
        return text
    same = f"JSON_EXTRACT({text}, '$')" if _is_json_text(document.value) else _json_literal(document)
    return f"CAST({same} AS CHAR CHARACTER SET utf8mb4)"


def _literal_of(column: Column) -> Literal:
    if column.type in _TEXT_TYPES:
        charset = None if column.charset is None else charset_by_name(column.charset)
        return binary_literal if charset is None or charset.decode is None else _string_literal(charset)
    make = _BY_COLUMN.get(column.type)
    return value_literal if make is None else make(column)


_BY_COLUMN: Final[Mapping[ColumnType, Callable[[Column], Literal]]] = MappingProxyType(
    {
        ColumnType.ENUM: _enum_literal,
        ColumnType.SET: _set_literal,
        ColumnType.JSON: lambda column: _json_literal,
    }
)
