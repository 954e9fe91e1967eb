"""JSON columns of MySQL as the text that SELECT gives, value by value; MariaDB's are text in the log already."""

import json
from typing import cast

import pyarrow as pa

from protocol.binlog.cells import apply_json_diff
from protocol.binlog.column import Column
from protocol.binlog.jsonb import JsonValue, decode_json
from protocol.binlog.jsonb_text import render_json
from protocol.errors import UnsupportedEventError

from .arrays import ArrowColumn, Losses
from .places import Places
from .text import STRING, string_array

# What doubles and opaque values have somewhere in their document. A document without them is text in the server's
# spelling when the standard library's encoder (in C) has written it, five times as fast as render_json.
_DOUBLE = b"\x0b"
_OPAQUE = b"\x0f"
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def document(column: Column) -> ArrowColumn:
    """JSON. A partial update whose before image is not logged raises ``UnsupportedEventError``."""
    return ArrowColumn(STRING, _texts)


def _texts(places: Places, losses: Losses) -> pa.Array:
    values = places.values()
    if places.diffs is not None:
        return string_array(_updated(places, values), losses)
    return string_array([None if value is None else _text(value) for value in values], losses)


def _text(data: bytes) -> str:
    value = decode_json(data)
    if _DOUBLE in data or _OPAQUE in data:
        return render_json(value)
    return _encode(value)


def _updated(places: Places, values: list[bytes | None]) -> list[str | None]:
    """The documents after partial updates; ``places.diffs`` says which values are diffs."""
    assert places.diffs is not None
    befores = [None] * len(values) if places.before is None else places.before.values()
    texts: list[str | None] = []
    for value, before, is_diff in zip(values, befores, places.diffs.tolist(), strict=True):
        if value is None:
            texts.append(None)
        elif not is_diff:
            texts.append(_text(value))
        elif before is None:
            raise UnsupportedEventError(
                "a JSON diff without the document that it changes (binlog_row_image=MINIMAL): read the rows as"
                " tuples, or leave the column out with columns="
            )
        else:
            texts.append(render_json(cast("JsonValue", apply_json_diff(decode_json(before), value))))
    return texts
