"""The table of value layouts in a binary result row: ``ColumnType`` of the log -> ``Cell``.

A result row has other layouts than a row image, and the same values: what a SELECT reads equals what the log would
give. Text, bytes, ENUM and SET follow the rules of ``cells``; dates and times have their parts one by one here, and
DECIMAL is text. A JSON document is the server's text: its numbers with a point are ``float``, or ``Decimal`` where a
float would round them, its dates ``str``, and its bytes ``str`` such as "base64:type15:AQI=", although the document
may hold a DECIMAL, a date or bytes. Layout: MySQL's ``page_protocol_binary_resultset``.

ENUM and SET columns have to be selected as numbers of eight bytes.
"""

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import isinf
from typing import Any, Final

from ..constants import ColumnType
from ..errors import DecodeError
from ..records import record, replace
from ..values.inline import Memo, Shared
from ..values.jsonb_text import render_json
from ..values.readers import (
    MAX_TIME_HOURS,
    DatetimeValue,
    DateValue,
    clock_text,
    date_text,
    fraction_text,
    read_vector,
)
from .cells import VALUE_CELLS, Cell, CellMakers, CellTable, Function
from .column import BLOB_TYPES, Column

# Days that are remembered: 180 years.
_DAYS_KEPT: Final = 1 << 16
_LABEL_BYTES: Final = 8
_FLOAT_DIGITS: Final = 15
# Of a DECIMAL.
_MOST_DIGITS: Final = 65
_LONGEST_SHOWN: Final = 40
_HARMLESS_SCALE: Final = 4

_unpack_date = struct.Struct("<HBB").unpack
_unpack_moment = struct.Struct("<HBBBBB").unpack
_unpack_fine_moment = struct.Struct("<HBBBBBI").unpack
_unpack_time = struct.Struct("<BIBBB").unpack
_unpack_fine_time = struct.Struct("<BIBBBI").unpack


def _date(data: bytes) -> DateValue:
    """DATE: nothing for a zero date, or year, month and day."""
    year, month, day = _unpack_date(data) if data else (0, 0, 0)
    try:
        return datetime(year, month, day).date()
    except ValueError:
        return date_text(year, month, day)


def _parts(data: bytes) -> tuple[int, int, int, int, int, int, int]:
    """Year, month, day, hour, minute, second, microsecond; zeros at the end are left out by the server."""
    size = len(data)
    if size == 7:
        year, month, day, hour, minute, second = _unpack_moment(data)
        return year, month, day, hour, minute, second, 0
    if size == 11:
        parts: tuple[int, int, int, int, int, int, int] = _unpack_fine_moment(data)
        return parts
    if size not in (0, 4):
        raise DecodeError(f"a date with time has {size} bytes")
    year, month, day = _unpack_date(data) if data else (0, 0, 0)
    return year, month, day, 0, 0, 0, 0


def _moment_text(data: bytes, fsp: int) -> str:
    year, month, day, *clock = _parts(data)
    hour, minute, second, microsecond = clock
    return f"{date_text(year, month, day)} {clock_text(hour, minute, second, microsecond, fsp)}"


def _datetime_reader(fsp: int) -> Callable[[bytes], DatetimeValue]:
    def read(data: bytes) -> DatetimeValue:
        try:
            return datetime(*_parts(data))
        except ValueError:
            return _moment_text(data, fsp)

    return read


def _timestamp_reader(fsp: int) -> Callable[[bytes], DatetimeValue]:
    zero = f"0000-00-00 00:00:00{fraction_text(0, fsp)}"

    def read(data: bytes) -> DatetimeValue:
        return datetime(*_parts(data), UTC) if data else zero

    return read


def _time(data: bytes) -> timedelta:
    """TIME: sign, days, hours, minutes, seconds, microseconds; zeros at the end are left out by the server."""
    if not data:
        return timedelta(0)
    if len(data) == 8:
        is_negative, days, hours, minute, second = _unpack_time(data)
        microsecond = 0
    else:
        is_negative, days, hours, minute, second, microsecond = _unpack_fine_time(data)
    hours += 24 * days
    if hours > MAX_TIME_HOURS or minute > 59 or second > 59 or microsecond > 999_999:
        raise DecodeError(f"{hours}:{minute}:{second} and {microsecond} us cannot be a TIME")
    value = timedelta(0, hours * 3600 + minute * 60 + second, microsecond)
    return -value if is_negative else value


def _decimal(text: str) -> Decimal:
    """A DECIMAL. Written out, a number with an exponent may take any memory, and no server sends one."""
    value = Decimal(text)
    if not -_MOST_DIGITS <= value.adjusted() < _MOST_DIGITS or not value.is_finite():
        raise DecodeError(f"{text[:_LONGEST_SHOWN]!r} cannot be a DECIMAL")
    return value


def _number(text: str) -> float | Decimal:
    """A number with a point or an exponent.

    The server prints a double with the fewest digits that give the same double again. A text that float would round
    is that of a DECIMAL. 15 digits are never rounded.
    """
    value = float(text)
    if isinf(value):
        raise DecodeError(f"{text[:_LONGEST_SHOWN]!r} cannot be a number of a JSON document")
    if len(text) <= _FLOAT_DIGITS:
        return value
    exact = Decimal(text)
    return value if Decimal(repr(value)) == exact else exact


def _decimal_cell(column: Column) -> Cell:
    """DECIMAL. If the point is where the column's scale puts it, ``_decimal`` is not called, which saves 80 ns.

    In up to four digits behind the point there is room for an exponent of three digits only, which is harmless; with
    more digits the size of the number is tested. Values are not remembered by their text: a column of 100 values took
    130 ns less a row, one whose values do not recur 490 more.
    """
    scale = column.metadata & 0xFF
    number = "{f}[0]({v}.decode())"
    has_point = f"{{d}}[{{e}} - {scale + 1}] == {ord('.')}"
    if not scale:
        quick = "{f}[1](int({v}))"
    elif scale <= _HARMLESS_SCALE:
        quick = f"({number} if {has_point} else {{f}}[2]({{v}}.decode()))"
    else:
        is_usual = f"-{_MOST_DIGITS} <= (value := {number}).adjusted() < {_MOST_DIGITS}"
        quick = f"(value if {has_point} and {is_usual} else {{f}}[2]({{v}}.decode()))"
    functions = Decimal, Decimal.from_float, _decimal
    return Cell("{f}[2]({v}.decode())", functions, length_bytes=SHORT, quick=quick)


# A third of the time of json.loads, which first looks for an encoding and for spaces. Documents of three keys that
# are joined and parsed together take 0.33 us instead of 0.52, but then each row's tuple has to be made a second time.
_parse_json = json.JSONDecoder(parse_float=_number).scan_once  # type: ignore[attr-defined]

# Without a call of ``_read_json``, which takes 60 ns.
_QUICK_JSON: Final = (
    "(parsed[0] if (parsed := {f}[0](text := {v}.decode(), 0))[1] == len(text) else {f}[1]({v}))"
)


def _read_json(data: bytes) -> object:
    text = data.decode()
    value: object
    try:
        value, end = _parse_json(text, 0)
    except StopIteration as error:
        raise DecodeError("a JSON document is damaged") from error
    except RecursionError as error:
        raise DecodeError("a JSON document is nested too deeply") from error
    if end != len(text):
        raise DecodeError("there is more behind a JSON document")
    return value


def selected_document(value: Any) -> Any:
    """The value that a SELECT gives for a document of the log: in its text dates, times and bytes are strings."""
    if isinstance(value, dict):
        return {name: selected_document(member) for name, member in value.items()}
    if isinstance(value, list):
        return [selected_document(element) for element in value]
    if isinstance(value, Decimal | date | timedelta | bytes):
        return _parse_json(render_json(value), 0)[0]
    return value


def _json(column: Column) -> Cell:
    return Cell("{f}[1]({v})", (_parse_json, _read_json), length_bytes=_LONG, quick=_QUICK_JSON)


def _dates() -> Memo[bytes, DateValue]:
    return Memo(_date, _DAYS_KEPT)


def _day(number: int) -> DateValue:
    """DATE from its four bytes as one number, which is a faster key than bytes."""
    return _date(number.to_bytes(4, "little"))


# Values that are always shorter than 251 bytes have a length of one byte; others may need 9.
SHORT: Final = 1
_LONG: Final = 9
_MOST_SHORT: Final = 250


def _short(function: Function) -> Callable[[Column], Cell]:
    return lambda column: Cell("{f}({v})", function, length_bytes=SHORT)


def _long(function: Function) -> Callable[[Column], Cell]:
    return lambda column: Cell("{f}({v})", function, length_bytes=_LONG)


def _by_digits(reader: Callable[[int], Function]) -> Callable[[Column], Cell]:
    return lambda column: Cell("{f}({v})", reader(column.metadata), length_bytes=SHORT)


def _string(column: Column) -> Cell:
    """CHAR, VARCHAR and their binary forms by the rule of the log; a BINARY always has all its bytes."""
    is_short = column.metadata <= _MOST_SHORT
    if column.type is ColumnType.STRING and column.charset == "binary" and is_short:
        return Cell(code=f"x{column.metadata}s", size=1 + column.metadata)
    return replace(VALUE_CELLS[ColumnType.VARCHAR](column), length_bytes=SHORT if is_short else _LONG)


def _blob(column: Column) -> Cell:
    return replace(VALUE_CELLS[ColumnType.BLOB](column), length_bytes=_LONG)


def _labels(column: Column) -> Cell:
    return VALUE_CELLS[column.type](replace(column, metadata=_LABEL_BYTES))


RESULT_CELLS: CellMakers = {
    **{
        kind: VALUE_CELLS[kind]
        for kind in (ColumnType.TINY, ColumnType.SHORT, ColumnType.LONG, ColumnType.LONGLONG)
    },
    ColumnType.INT24: lambda column: Cell(code="I" if column.unsigned else "i", size=4),
    ColumnType.FLOAT: VALUE_CELLS[ColumnType.FLOAT],
    ColumnType.DOUBLE: VALUE_CELLS[ColumnType.DOUBLE],
    ColumnType.YEAR: lambda column: Cell(code="H", size=2),
    ColumnType.NEWDECIMAL: _decimal_cell,
    ColumnType.BIT: lambda column: Cell("from_bytes({v}, 'big')", length_bytes=SHORT),
    ColumnType.DATE: lambda column: Cell("{f}[{v}]", Shared(_dates), length_bytes=SHORT),
    ColumnType.DATETIME2: _by_digits(_datetime_reader),
    ColumnType.TIMESTAMP2: _by_digits(_timestamp_reader),
    ColumnType.TIME2: _short(_time),
    ColumnType.STRING: _string,
    ColumnType.VARCHAR: _string,
    **dict.fromkeys(BLOB_TYPES, _blob),
    ColumnType.ENUM: _labels,
    ColumnType.SET: _labels,
    ColumnType.JSON: _json,
    ColumnType.GEOMETRY: lambda column: Cell(length_bytes=_LONG),
    ColumnType.VECTOR: _long(read_vector),
}


def result_cells(document: Function | None = None) -> CellTable:
    """A table of the cells of result rows; each reader has its own, whose caches are freed with it.

    ``document`` makes the values of JSON columns from Python's.
    """
    if document is None:
        return CellTable(RESULT_CELLS)
    read = _long(lambda data: document(_read_json(data)))
    return CellTable({**RESULT_CELLS, ColumnType.JSON: read})


@record(slots=True, frozen=True)
class UsualForm:
    """A faster way to a value of variable size if it has the usual number of bytes.

    ``code`` of ``struct`` unpacks these bytes to the arguments of ``function``, followed by ``more``, or to the key
    in ``values``; without both it is the bytes themselves, from which the cell makes the value.
    """

    size: int
    code: str
    function: Function | None = None
    more: tuple[object, ...] = ()
    values: Memo[int, DateValue] | None = None


def usual_form(column: Column) -> UsualForm | None:
    """Dates and times: 100 to 300 ns less than by the cell. ``function`` raises ValueError for a partial date."""
    has_fraction = bool(column.metadata)
    if column.type is ColumnType.DATE:
        return UsualForm(4, "I", values=Memo(_day, _DAYS_KEPT))
    if column.type is ColumnType.TIME2:
        return UsualForm(12, "12s") if has_fraction else UsualForm(8, "8s")
    if column.type not in (ColumnType.DATETIME2, ColumnType.TIMESTAMP2):
        return None
    more: tuple[object, ...] = () if column.type is ColumnType.DATETIME2 else (UTC,)
    if has_fraction:
        return UsualForm(11, "HBBBBBI", datetime, more)
    return UsualForm(7, "HBBBBB", datetime, (0, *more) if more else ())
