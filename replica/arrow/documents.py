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

from .arrays import MAX_BYTES, ArrowColumn, Losses, TooLargeError
from .binary import gather, variable_array
from .buffer import Positions, RowBuffer
from .document_batches import DocumentBatches
from .document_layouts import FEWEST_DOCUMENTS
from .json_pool import Texts
from .places import Places
from .strings import STRING, string_array
from .text_pieces import Pieces, TextPool

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
# Documents that are put between those read together without another copy of each.
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


def _dense(places: Places) -> tuple[memoryview, Positions, Positions]:
    """Bytes that hold the documents, and where each begins and ends. A few among other bytes are moved together."""
    assert places.length is not None
    start, end = places.positions, places.positions + places.length
    if places.buffer.size <= 2 * int(places.length.sum()):
        return memoryview(places.buffer.data), start, end
    gathered = gather(places)
    end = np.cumsum(gathered.lengths)
    return memoryview(gathered.data), end - gathered.lengths, end


def _pieces(rows: Positions, ends: Positions) -> Iterator[Positions]:
    """The rows, whose places ascend, in pieces of some documents each, which stay in the processor's cache."""
    if not len(rows):
        return
    # Pieces of one size: the fixed costs of a small one behind others are those of a large one.
    begin, end = int(ends[rows[0]]), int(ends[rows[-1]]) + 1
    size = (end - begin) / max(round((end - begin) / _PIECE_BYTES), 1)
    number = (ends[rows] - begin) // size
    yield from np.split(rows, np.flatnonzero(np.diff(number)) + 1)


def is_utf8(texts: Texts) -> bool:
    """Whether all of these texts are UTF-8."""
    try:
        variable_array(pa.binary(), texts.texts.lengths, texts.texts.data, None).cast(STRING)
    except pa.ArrowInvalid:
        return False
    return True


def _put_between(group: Texts, rows: Positions, texts: Sequence[bytes]) -> tuple[bytes, Positions]:
    """The texts of a group with those of a few other rows between them, and the lengths of all."""
    lengths = np.empty(len(group.rows) + len(rows), np.int64)
    lengths[group.rows], lengths[rows] = (
        group.texts.lengths,
        np.fromiter(map(len, texts), np.int64, len(texts)),
    )
    ends = np.concatenate(([0], np.cumsum(group.texts.lengths)))
    # So many texts of the group come before each row.
    cuts = ends[rows - np.arange(len(rows))].tolist()
    data, start = memoryview(group.texts.data), 0
    parts: list[bytes | memoryview] = []
    for cut, text in zip(cuts, texts, strict=True):
        parts += [data[start:cut], text]
        start = cut
    return b"".join([*parts, data[start:]]), lengths


def document(column: Column) -> ArrowColumn:
    """JSON. Converting raises ``UnsupportedEventError`` for a partial update whose before image was not logged."""
    return ArrowColumn(STRING, _Documents().convert)


class _Documents:
    """The documents of one column. Its decoder remembers their shapes."""

    def __init__(self) -> None:
        self._decode = JsonDecoder().decode
        self._batches = DocumentBatches()
        # Documents left to render one by one before the next are read together: after a batch that had few alike.
        self._apart = 0
        self._next_apart = _APART

    def convert(self, places: Places, losses: Losses) -> pa.Array:
        if places.diffs is not None:
            return string_array(self._updated(places), losses)
        stored, starts, ends = _dense(places)
        rows = np.arange(len(places)) if places.valid is None else np.flatnonzero(places.valid)
        lengths = np.zeros(len(places), np.int64)
        parts = []
        for chosen in _pieces(rows, ends):
            begin, end = int(starts[chosen[0]]), int(ends[chosen[-1]])
            buffer = RowBuffer([stored[begin:end]])
            data, lengths[chosen] = self._texts(buffer, starts[chosen] - begin, ends[chosen] - begin, losses)
            parts.append(data)
        if int(lengths.sum()) > MAX_BYTES:
            raise TooLargeError
        return variable_array(STRING, lengths, pa.py_buffer(b"".join(parts)), places.valid)

    def _texts(
        self, buffer: RowBuffer, starts: Positions, ends: Positions, losses: Losses
    ) -> tuple[pa.Buffer | bytes, Positions]:
        """The texts of documents one behind the other, and their lengths."""
        groups = self._together(buffer, starts, ends)
        if len(groups) == 1 and len(groups[0].rows) == len(starts):
            return groups[0].texts.data, groups[0].texts.lengths
        is_left = np.ones(len(starts), np.bool_)
        for group in groups:
            is_left[group.rows] = False
        left = np.flatnonzero(is_left)
        texts = self._one_by_one(buffer, starts[left], ends[left], losses)
        if len(groups) == 1 and len(left) <= _FEW_LEFT:
            return _put_between(groups[0], left, texts)
        pool = TextPool(b"")
        first, last = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
        for group in groups:
            pieces = pool.add(group.texts.data, group.texts.lengths)
            first[group.rows], last[group.rows] = pieces.start, pieces.end
        pieces = pool.add(b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts)))
        first[left], last[left] = pieces.start, pieces.end
        joined = pool.joined([Pieces(first, last)], len(starts))
        return joined.data, joined.lengths

    def _together(self, buffer: RowBuffer, starts: Positions, ends: Positions) -> list[Texts]:
        """The documents that can be read together; none if the last ones could not, for a while."""
        if self._apart > 0 or len(starts) < FEWEST_DOCUMENTS:
            self._apart -= len(starts)
            return []
        groups = [group for group in self._batches.texts(buffer, starts, ends) if is_utf8(group)]
        if 2 * sum(len(group.rows) for group in groups) < len(starts):
            self._apart, self._next_apart = self._next_apart, min(2 * self._next_apart, _MOST_APART)
        else:
            self._next_apart = _APART
        return groups

    def _one_by_one(
        self, buffer: RowBuffer, starts: Positions, ends: Positions, losses: Losses
    ) -> list[bytes]:
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
        return found

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
