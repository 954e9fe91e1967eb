"""Writes decoded JSON values as the server does, for text output that equals ``mysqlbinlog -vv`` or SELECT.

The values come from ``jsonb``. The standard library's ``json`` has neither the opaque types nor the server's
spacing and number format. The quotes and escapes that mysqlbinlog puts around a value are not added here.
"""

from base64 import b64encode
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite

from ..constants import ColumnType
from .jsonb import JsonOpaque, JsonValue, decode_json

_LINE = 76  # include/base64.h: base64 lines have at most 76 characters, inside JSON strings, too.

_ESCAPES = {character: f"\\u{character:04x}" for character in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
}


def json_text(data: bytes) -> str:
    """The text that mysqlbinlog prints for a document: SELECT's text, but a lone string or date has no quotes."""
    return render_json(decode_json(data), bare=True)


def render_json(value: JsonValue, *, bare: bool = False) -> str:
    """The text that SELECT gives for a value. ``bare`` omits the quotes and escapes of a lone string."""
    if isinstance(value, dict):
        members = [f"{_quote(key)}: {render_json(member)}" for key, member in value.items()]
        return f"{{{', '.join(members)}}}"
    if isinstance(value, list):
        return f"[{', '.join([render_json(element) for element in value])}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int):
        return str(value)
    text = _string_text(value)
    return text if bare else _quote(text)


def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _string_text(value: str | bytes | date | datetime | timedelta) -> str:
    """The text of values without a JSON literal, which become strings (``json_dom.cc``: wrapper_to_string)."""
    if isinstance(value, str):
        return value
    if isinstance(value, timedelta):
        return _time_text(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    if isinstance(value, date):
        return value.isoformat()
    column_type = value.column_type if isinstance(value, JsonOpaque) else ColumnType.VAR_STRING
    encoded = b64encode(value).decode("ascii")
    lines = [encoded[at : at + _LINE] for at in range(0, len(encoded), _LINE)]
    return f"base64:type{column_type}:" + "\n".join(lines)


def _time_text(value: timedelta) -> str:
    micros = value // timedelta(microseconds=1)
    seconds, microsecond = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{microsecond:06d}"


def float_text(value: float) -> str:
    """The shortest digits that give this double, in the format of ``my_gcvt``.

    Whole numbers of more than 15 digits, and numbers with more than 14 zeros after the point, get an exponent. Whole
    numbers without an exponent end in ".0".
    """
    if value == 0 or 1e-4 <= abs(value) < (1e15 if value.is_integer() else 1e16):
        return repr(value)
    if not isfinite(value):
        return "0"  # my_gcvt's answer; JSON cannot hold these
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    point = len(digits) + exponent
    text = "".join(map(str, digits)).rstrip("0")
    if -15 < point < 0:
        number = f"0.{'0' * -point}{text}"
    else:
        fraction = f".{text[1:]}" if text[1:] else ""
        number = f"{text[0]}{fraction}e{point - 1}"
    return f"-{number}" if sign else number
