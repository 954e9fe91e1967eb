"""The converter for MySQL's JSON columns: each value becomes the text that SELECT gives.

MariaDB's JSON columns are text in the log and need no converter of their own.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Final, cast

import numpy as np
import pyarrow as pa

from protocol.errors import UnsupportedEventError
from protocol.rows.column import Column
from protocol.values.jsonb import JsonValue
from protocol.values.jsonb_diff import apply_json_diffs, read_json_diffs
from protocol.values.jsonb_fast import JsonDecoder
from protocol.values.jsonb_text import render_json

from .arrays import MAX_BYTES, POOL, ArrowColumn, Losses
from .binary import bytes_array, gather, variable_array
from .buffer import Positions, RowBuffer
from .document_batches import DocumentBatches
from .document_layouts import FEWEST_DOCUMENTS
from .json_strings import Texts
from .places import Places
from .strings import STRING, string_array
from .text_parts import concatenated, edges_of, put_in_rows

# The type byte of doubles: a document with a double has it somewhere.
_DOUBLE: Final = b"\x0b"
# Doubles within an array or object whose text differs between Python and the server. A match in a string is a false
# alarm.
_OTHER_DOUBLE: Final = re.compile(r"[\[ ]-?(?:[0-9][.0-9]*e|[0-9]{16}|NaN|Infinity)")
# Documents rendered at once: more of them take more memory, but not less time.
_TOGETHER: Final = 256
# Bytes of documents read together.
_PIECE_BYTES: Final = 1 << 21
# Documents rendered one by one where reading together did not help.
_APART: Final = 10_000
_MOST_APART: Final = 1_000_000
# Up to so many documents are put between those read together, which are then not copied again one by one.
_FEW_LEFT: Final = 256
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


def _dense(places: Places) -> tuple[RowBuffer, Positions, Positions]:
    """A buffer with the documents, and where each begins and ends: a copy if other bytes outweigh the documents."""
    assert places.length is not None
    start, end = places.positions, places.positions + places.length
    if places.buffer.size <= min(2 * int(places.length.sum()), MAX_BYTES):
        return places.buffer, start, end
    gathered = gather(places)
    end = np.cumsum(gathered.lengths)
    return RowBuffer([memoryview(gathered.data)]), end - gathered.lengths, end


def _pieces(rows: Positions, ends: Positions) -> Iterator[Positions]:
    """The rows, whose places ascend, in pieces of some documents each, which stay in the processor's cache."""
    if not len(rows):
        return
    # Pieces of equal size: a small last piece would have the fixed costs of a large one.
    places = ends[rows]
    begin, end = int(places[0]), int(places[-1])
    count = max(round((end - begin) / _PIECE_BYTES), 1)
    bounds = [begin + (end - begin) * number // count for number in range(1, count)]
    yield from (piece for piece in np.split(rows, np.searchsorted(places, bounds)) if len(piece))


def _as_utf8(texts: Texts) -> Texts | None:
    """The texts; None unless all of them are UTF-8."""
    try:
        return Texts(texts.rows, texts.texts.view(pa.binary()).cast(STRING, memory_pool=POOL))
    except pa.ArrowInvalid:
        return None


def _put_between(group: Texts, rows: Positions, texts: pa.Array) -> pa.Array:
    """The texts of a group with those of a few other rows between them."""
    # The number of the group's texts before each row.
    cuts = (rows - np.arange(len(rows))).tolist()
    parts, start = [], 0
    for number, cut in enumerate(cuts):
        parts += [group.texts.slice(start, cut - start), texts.slice(number, 1)]
        start = cut
    return concatenated([*parts, group.texts.slice(start)])


def document(column: Column) -> ArrowColumn:
    """JSON. Converting raises ``UnsupportedEventError`` for a partial update whose before image was not logged."""
    return ArrowColumn(STRING, _Documents().convert)


class _Documents:
    """The documents of one column. Its decoder remembers their shapes."""

    def __init__(self) -> None:
        self._decode = JsonDecoder().decode
        self._batches = DocumentBatches()
        # After a batch with few documents alike: how many are rendered one by one before the next try together.
        self._apart = 0
        self._next_apart = _APART

    def convert(self, places: Places, losses: Losses) -> pa.Array:
        if places.diffs is not None:
            return string_array(self._updated(places), losses)
        buffer, starts, ends = _dense(places)
        rows = np.arange(len(places)) if places.valid is None else np.flatnonzero(places.valid)
        parts = [self._texts(buffer, starts[chosen], ends[chosen], losses) for chosen in _pieces(rows, ends)]
        if places.valid is None and parts:
            return concatenated(parts)
        texts = concatenated([*parts, bytes_array(STRING, [])])
        lengths = np.zeros(len(places), np.int64)
        lengths[rows] = np.diff(edges_of(texts))
        return variable_array(STRING, lengths, texts.buffers()[2], places.valid)

    def _texts(self, buffer: RowBuffer, starts: Positions, ends: Positions, losses: Losses) -> pa.Array:
        """The texts of documents."""
        groups = self._together(buffer, starts, ends)
        if len(groups) == 1 and len(groups[0].rows) == len(starts):
            return groups[0].texts
        is_left = np.ones(len(starts), np.bool_)
        for group in groups:
            is_left[group.rows] = False
        left = np.flatnonzero(is_left)
        texts = self._one_by_one(buffer, starts[left], ends[left], losses)
        if len(groups) == 1 and len(left) <= _FEW_LEFT:
            return _put_between(groups[0], left, texts)
        return put_in_rows([*((group.rows, group.texts) for group in groups), (left, texts)])

    def _together(self, buffer: RowBuffer, starts: Positions, ends: Positions) -> list[Texts]:
        """The documents that can be read together; for a while none, if few of the last ones could."""
        if self._apart > 0 or len(starts) < FEWEST_DOCUMENTS:
            self._apart -= len(starts)
            return []
        found = map(_as_utf8, self._batches.texts(buffer, starts, ends))
        groups = [group for group in found if group is not None]
        if 2 * sum(len(group.rows) for group in groups) < len(starts):
            self._apart, self._next_apart = self._next_apart, min(2 * self._next_apart, _MOST_APART)
        else:
            self._next_apart = _APART
        return groups

    def _one_by_one(self, buffer: RowBuffer, starts: Positions, ends: Positions, losses: Losses) -> pa.Array:
        """The texts of documents by way of Python's objects."""
        found: list[bytes] = []
        stored = [buffer.data[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        for start in range(0, len(stored), _TOGETHER):
            some = stored[start : start + _TOGETHER]
            texts = document_texts(some, list(map(self._decode, some)))
            try:
                found += [text.encode() for text in texts]
            except UnicodeEncodeError:
                array = string_array(texts, losses)
                found += [text.encode() for text in array.to_pylist()]
        return bytes_array(STRING, found)

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
