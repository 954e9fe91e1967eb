"""JSON columns of MySQL as the text that SELECT gives, value by value; MariaDB's are text in the log already."""

import re
from decimal import Decimal
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Final, cast

import pyarrow as pa

from protocol.binlog.cells import apply_json_diff
from protocol.binlog.column import Column
from protocol.binlog.jsonb import JsonValue, decode_json
from protocol.binlog.jsonb_text import render_json
from protocol.errors import UnsupportedEventError

from .arrays import ArrowColumn, Losses
from .places import Places
from .text import STRING, string_array

# The type of doubles, somewhere in a document that has any.
_DOUBLE: Final = b"\x0b"
# Inside of a container, doubles that Python may write otherwise than the server; in a string it is a false alarm.
_OTHER_DOUBLE: Final = re.compile(r"[\[ ]-?(?:[0-9][.0-9]*e|[0-9]{16}|NaN|Infinity)")
_CONTAINERS: Final = ("{", "[")
# Before a string that is to be a number. No document has it: invalid bytes of strings are U+DC80 and above.
_UNQUOTED: Final = "\ud800"
_QUOTED: Final = re.compile(f'"{_UNQUOTED}([^"]*)"')


def document(column: Column) -> ArrowColumn:
    """JSON. A partial update whose before image is not logged raises ``UnsupportedEventError``."""
    return ArrowColumn(STRING, _texts)


def _texts(places: Places, losses: Losses) -> pa.Array:
    values = places.values()
    if places.diffs is not None:
        return string_array(_updated(places, values), losses)
    return string_array([None if value is None else json_text(value) for value in values], losses)


def _string_or_marked(value: object) -> str:
    """What has no type in JSON: dates and bytes are strings, a decimal is unquoted afterwards."""
    if isinstance(value, Decimal):
        return f"{_UNQUOTED}{value:f}"
    return render_json(cast("JsonValue", value), bare=True)


# The standard library's encoder spaces and escapes as the server does, and takes a fifth of render_json's time; made
# once, as JSONEncoder.encode() does not, it takes a fourth of that. Other Pythons than CPython have none.
_encode: Final = c_make_encoder and c_make_encoder(
    None, _string_or_marked, encode_basestring, None, ": ", ", ", False, False, True
)


def json_text(data: bytes) -> str:
    """The text that SELECT gives for a document."""
    value = decode_json(data)
    if _encode is None:
        return render_json(value)
    text: str = "".join(_encode(value, 0))
    if _DOUBLE in data and (_OTHER_DOUBLE.search(text) or not text.startswith(_CONTAINERS)):
        return render_json(value)
    return _QUOTED.sub(r"\1", text) if _UNQUOTED in text else text


def _updated(places: Places, values: list[bytes | None]) -> list[str | None]:
    """The documents after partial updates; ``places.diffs`` says which values are diffs."""
    assert places.diffs is not None
    befores = [None] * len(values) if places.before is None else places.before.values()
    texts: list[str | None] = []
    for value, before, is_diff in zip(values, befores, places.diffs.tolist(), strict=True):
        if value is None:
            texts.append(None)
        elif not is_diff:
            texts.append(json_text(value))
        elif before is None:
            raise UnsupportedEventError(
                "a JSON diff without the document that it changes (binlog_row_image=MINIMAL): read the rows as"
                " tuples, or leave the column out with columns="
            )
        else:
            texts.append(render_json(cast("JsonValue", apply_json_diff(decode_json(before), value))))
    return texts
