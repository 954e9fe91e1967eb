"""The converter for MySQL's JSON columns: each value becomes the text that SELECT gives.

MariaDB's JSON columns are text in the log and need no converter of their own.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Final, cast

import pyarrow as pa

from protocol.errors import UnsupportedEventError
from protocol.rows.column import Column
from protocol.values.jsonb import JsonValue
from protocol.values.jsonb_diff import apply_json_diffs, read_json_diffs
from protocol.values.jsonb_fast import JsonDecoder
from protocol.values.jsonb_text import render_json

from .arrays import ArrowColumn, Losses
from .places import Places
from .strings import STRING, string_array

# The type byte of doubles: a document with a double has it somewhere.
_DOUBLE: Final = b"\x0b"
# Doubles within an array or object whose text differs between Python and the server. A match in a string is a false
# alarm.
_OTHER_DOUBLE: Final = re.compile(r"[\[ ]-?(?:[0-9][.0-9]*e|[0-9]{16}|NaN|Infinity)")
# Documents rendered at once: more of them take more memory, but not less time.
_TOGETHER: Final = 256
_CONTAINERS: Final = ("{", "[")
# Marks for a string that must become a number, and between two documents. No document has these characters: invalid
# bytes in strings become U+DC80 and above.
_UNQUOTED: Final = "\ud800"
_BETWEEN: Final = "\ud801"
_QUOTED: Final = re.compile(f'"{_UNQUOTED}([^"]*)"')


def _string_or_marked(value: object) -> str:
    """The text of a value without JSON type: dates and bytes become strings, decimals lose their quotes later."""
    if isinstance(value, Decimal):
        return f"{_UNQUOTED}{value:f}"
    return render_json(cast("JsonValue", value), bare=True)


# The standard library's encoder has the server's spaces and escapes, and takes a fifth of render_json's time; for
# many documents at once, a tenth. Only CPython has this encoder.
_encode: Final = c_make_encoder and c_make_encoder(
    None, _string_or_marked, encode_basestring, None, ": ", ", ", False, False, True
)


def document_texts(stored: Sequence[bytes], values: Sequence[JsonValue]) -> list[str]:
    """The texts that SELECT gives for documents, from their bytes (``stored``) and their decoded ``values``."""
    if _encode is None or not values:
        return [render_json(value) for value in values]
    elements: list[JsonValue] = [_BETWEEN] * (2 * len(values) - 1)
    elements[::2] = values
    whole: str = "".join(_encode(elements, 0))[1:-1]
    if _UNQUOTED in whole:
        whole = _QUOTED.sub(r"\1", whole)
    texts = whole.split(f', "{_BETWEEN}", ')
    for index, data in enumerate(stored):
        if _DOUBLE in data:
            text = texts[index]
            if _OTHER_DOUBLE.search(text) or not text.startswith(_CONTAINERS):
                texts[index] = render_json(values[index])
    return texts


def document(column: Column) -> ArrowColumn:
    """JSON. Converting raises ``UnsupportedEventError`` for a partial update whose before image was not logged."""
    return ArrowColumn(STRING, _Documents().convert)


class _Documents:
    """The documents of one column. Its decoder remembers their shapes."""

    def __init__(self) -> None:
        self._decode = JsonDecoder().decode

    def convert(self, places: Places, losses: Losses) -> pa.Array:
        if places.diffs is not None:
            return string_array(self._updated(places), losses)
        values = places.values()
        stored = [data for data in values if data is not None]
        texts: list[str] = []
        for start in range(0, len(stored), _TOGETHER):
            some = stored[start : start + _TOGETHER]
            texts += document_texts(some, list(map(self._decode, some)))
        if len(texts) == len(values):
            return string_array(texts, losses)
        following = iter(texts)
        return string_array((None if data is None else next(following) for data in values), losses)

    def _updated(self, places: Places) -> Iterator[str | None]:
        """The documents after partial updates; ``places.diffs`` says which values are diffs."""
        values = places.values()
        befores = [None] * len(values) if places.before is None else places.before.values()
        assert places.diffs is not None
        for data, before, is_diff in zip(values, befores, places.diffs.tolist(), strict=True):
            if data is None:
                yield None
            elif not is_diff:
                yield from document_texts([data], [self._decode(data)])
            elif before is None:
                raise UnsupportedEventError(
                    "the log has a JSON diff without the document that it changes (binlog_row_image=MINIMAL): read "
                    "the rows as tuples, or leave the column out with columns="
                )
            else:
                document = apply_json_diffs(self._decode(before), read_json_diffs(data))
                yield render_json(document)
