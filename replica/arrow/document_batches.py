"""The texts of many JSON documents at once: binary JSON -> the text that SELECT gives, without objects of Python.

Documents of a column are alike. All containers at one place of the documents are read together: their heads are
compared with the first one's, then each value is read for all of them in one step (offsets, lengths, numbers), from
the last to the first, so that each has to end where the next one begins. The result is parts of texts:

    {"id": 7, "name": "oak"}    ->    `{"id": ` + 7 + `, "name": "` + oak + `"}`

where the literals are the same for all documents, and the others are columns of strings. ``text_parts`` puts the
parts together. Values of several types at one place, and containers of several shapes, are put together on their own
and become one part.

``document_layouts`` comes first: it reads documents faster where many are laid out alike.

This module reads only the layout that servers write. It refuses documents with another layout, with rare types, with
containers that few others resemble, or with damage: ``documents`` renders these one by one.
"""

from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.constants import ColumnType
from protocol.errors import DecodeError
from protocol.records import record
from protocol.values.jsonb import (
    DOUBLE,
    INT16,
    INT32,
    INT64,
    LITERAL,
    OPAQUE,
    SMALL,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    TEMPORAL_SIZE,
    UINT16,
    UINT32,
    UINT64,
    json_decimal_size,
)
from protocol.values.jsonb_fast import object_keys
from protocol.values.jsonb_shapes import UnusualError

from .arrays import different
from .buffer import Bytes, Flags, Positions, RowBuffer
from .document_layouts import FEWEST_DOCUMENTS, DocumentLayouts, group_texts
from .json_numbers import (
    INLINED_NUMBERS,
    STORED_NUMBERS,
    decimal_texts,
    double_texts,
    integer_texts,
    temporal_texts,
)
from .json_strings import WORDS, Texts, string_texts, word_texts
from .text_parts import Parts, joined, merged, put_in_rows

# With fewer containers of one shape, rendering documents one by one takes less time.
_FEWEST_ALIKE: Final = 16
# Shapes of containers at one place; more are refused.
_MOST_SHAPES: Final = 24
_MAX_LEVELS: Final = 8
_MAX_ELEMENTS: Final = 64
# Bytes of a container's head, which is compared as one piece of the buffer.
_MAX_HEAD: Final = 1000
_MAX_TRIES: Final = 4
_DECIMAL_HEAD: Final = 4
_TEMPORAL_HEAD: Final = 2

# Type -> the family of types read together: all whole numbers that fit a signed 64-bit number are one family.
_FAMILIES: Final = np.arange(256, dtype=np.uint8)
_FAMILIES[[INT16, UINT16, INT32, UINT32, INT64]] = INT64


# Reads the values of one kind.
_Read = Callable[[int, "_Values"], tuple[Parts, Positions]]


class _RefusedError(Exception):
    """These documents have to be rendered one by one."""

    def __init__(self, rows: Positions) -> None:
        self.rows = rows


@record(slots=True, eq=False)
class _Values:
    """Values at one place of some containers: their types and entries.

    ``start`` is the place of each container, ``floor`` where its values may begin, ``limit`` where the value has to
    end, ``row`` the number of its document.
    """

    kinds: Bytes
    stored: Positions
    start: Positions
    floor: Positions
    limit: Positions
    row: Positions

    def some(self, chosen: Positions) -> "_Values":
        """The values with these indexes."""
        return _Values(
            self.kinds[chosen],
            self.stored[chosen],
            self.start[chosen],
            self.floor[chosen],
            self.limit[chosen],
            self.row[chosen],
        )


class DocumentBatches:
    """Reads batches of documents; remembers their layouts."""

    def __init__(self) -> None:
        self._layouts = DocumentLayouts()

    def texts(self, buffer: RowBuffer, starts: Positions, ends: Positions) -> list[Texts]:
        """The texts of the documents between these places, except those that must be rendered one by one."""
        kinds = buffer.numbers(np.uint8)[starts]
        is_read = (kinds == SMALL_OBJECT) | (kinds == SMALL_ARRAY)
        groups = self._layouts.groups(buffer, starts, ends)
        found = list(group_texts(buffer, groups, starts))
        for texts in found:
            is_read[texts.rows] = False
        for _ in range(_MAX_TRIES):
            rows = np.flatnonzero(is_read)
            if len(rows) < FEWEST_DOCUMENTS:
                break
            chosen = rows, kinds[rows], starts[rows] + 1, ends[rows]
            try:
                return found + list(_Reader(buffer).documents(*chosen))
            except _RefusedError as refused:
                is_read[refused.rows] = False
            except DecodeError:
                break
        return found


class _Reader:
    """Reads documents of one buffer."""

    def __init__(self, buffer: RowBuffer) -> None:
        self._buffer = buffer

    def documents(self, rows: Positions, kinds: Bytes, starts: Positions, ends: Positions) -> Iterator[Texts]:
        """The texts of documents, by their shapes."""
        for kind in (SMALL_OBJECT, SMALL_ARRAY):
            chosen = np.flatnonzero(kinds == kind)
            for group in self._alike(kind, starts[chosen], ends[chosen], rows[chosen]):
                alike = chosen[group]
                parts = self._container(kind, starts[alike], ends[alike], rows[alike], 1)
                yield Texts(rows[alike], joined(parts, len(alike)))

    # ------------------------------------------------------------------------------------------ containers

    def _alike(self, kind: int, start: Positions, limit: Positions, row: Positions) -> Iterator[Positions]:
        """The indexes of containers of one shape, for each shape. Refuses documents that few others resemble."""
        _require(start + SMALL.head_size <= limit, row)
        size = self._buffer.numbers(np.uint16, 2)[start]
        _require(start + size <= limit, row)
        counts = self._buffer.numbers(np.uint16)[start]
        left = np.arange(len(start))
        refused: list[Positions] = []
        for _ in range(_MOST_SHAPES):
            if not len(left):
                break
            count = int(counts[left[0]])
            is_same = counts[left] == count
            if kind == SMALL_OBJECT and count:
                same = np.flatnonzero(is_same)
                is_same[same] = self._has_keys(start[left[same]], row[left[same]], count)
            group = left[is_same]
            left = left[~is_same]
            if len(group) < _FEWEST_ALIKE:
                refused.append(row[group])
            else:
                yield group
        if len(left) or refused:
            raise _RefusedError(np.concatenate([row[left], *refused]))

    def _has_keys(self, start: Positions, row: Positions, count: int) -> Flags:
        """Which objects have the keys of the first; all have ``count`` keys."""
        _, head = self._keys(int(start[0]), row, count)
        values_at = SMALL.head_size + SMALL.key_size * count
        content = values_at + SMALL.value_size * count
        pieces = self._buffer.pieces(head, start)
        is_other = pieces != pieces[0]
        entries, text = is_other[:, SMALL.head_size : values_at], is_other[:, content:]
        if not entries.any() and not text.any():
            return np.ones(len(start), np.bool_)
        same: Flags = ~(entries.any(axis=1) | text.any(axis=1))
        return same

    def _keys(self, place: int, row: Positions, count: int) -> tuple[list[bytes], int]:
        """The keys of an object as they are written, and where its values begin."""
        size = int(self._buffer.numbers(np.uint16, 2)[place])
        data = self._buffer.data[place : place + size]
        try:
            if SMALL.head_size + (SMALL.key_size + SMALL.value_size) * count > size:
                raise UnusualError
            keys, _, end = object_keys(SMALL, data, 0, count, size)
            if end > _MAX_HEAD:
                raise UnusualError
            return [encode_basestring(key).encode() for key in keys], end
        except (UnusualError, ValueError, IndexError):
            raise _RefusedError(row[:1]) from None

    def _container(self, kind: int, start: Positions, limit: Positions, row: Positions, level: int) -> Parts:
        """The texts of containers of one shape."""
        numbers = self._buffer.numbers
        count = int(numbers(np.uint16)[start[0]])
        if level > _MAX_LEVELS or count > _MAX_ELEMENTS:
            raise _RefusedError(row)
        values_at = SMALL.head_size
        names = [b""] * count
        floor = values_at + SMALL.value_size * count
        if kind == SMALL_OBJECT and count:
            keys, floor = self._keys(int(start[0]), row, count)
            names = [key + b": " for key in keys]
            values_at += SMALL.key_size * count
        end = start + numbers(np.uint16, 2)[start]
        floors = start + floor
        _require(floors <= end, row)
        if not count:
            return [b"{}" if kind == SMALL_OBJECT else b"[]"]
        values = _Values(np.empty(0, np.uint8), start, start, floors, end, row)
        parts: list[pa.Array | bytes] = [b"}" if kind == SMALL_OBJECT else b"]"]
        for index in reversed(range(count)):
            entry = values_at + SMALL.value_size * index
            values.kinds = numbers(np.uint8, entry)[start]
            values.stored = numbers(np.uint16, entry + 1)[start].astype(np.int64)
            found, values.limit = self._any(values, level)
            parts += reversed(found)
            parts.append((b", " if index else b"") + names[index])
        parts.append(b"{" if kind == SMALL_OBJECT else b"[")
        return merged(parts[::-1])

    # ---------------------------------------------------------------------------------------------- values

    def _any(self, values: _Values, level: int) -> tuple[Parts, Positions]:
        """The texts of values, and the places where the values before them must end."""
        families = _FAMILIES[values.kinds]
        first = families[0]
        if (families == first).all():
            return self._family(int(first), values, level)
        return self._several(families, lambda family, some: self._family(family, some, level), values)

    def _several(
        self, kinds: npt.NDArray[np.integer], read: _Read, values: _Values
    ) -> tuple[Parts, Positions]:
        """Values of several kinds as one part: ``read`` reads the values of one kind."""
        limit = values.limit.copy()
        found = different(kinds).tolist()
        if len(found) > _MOST_SHAPES:
            raise _RefusedError(values.row)
        texts = []
        for kind in found:
            chosen = np.flatnonzero(kinds == kind)
            parts, limit[chosen] = read(kind, values.some(chosen))
            texts.append((chosen, joined(parts, len(chosen))))
        return [put_in_rows(texts)], limit

    def _family(self, family: int, values: _Values, level: int) -> tuple[Parts, Positions]:
        if family == INT64:
            return self._integers(values)
        if family == STRING:
            return self._strings(values)
        if family == LITERAL:
            _require(values.stored < len(WORDS), values.row)
            return [word_texts(values.stored)], values.limit
        if family in (SMALL_OBJECT, SMALL_ARRAY):
            return self._containers(family, values, level)
        if family == DOUBLE:
            at = self._outside(values, 8)
            numbers = self._buffer.numbers(np.float64)[at]
            return [double_texts(numbers)], at
        if family == UINT64:
            at = self._outside(values, 8)
            return [integer_texts(self._buffer.numbers(np.uint64)[at])], at
        if family == OPAQUE:
            return self._opaque(values)
        raise _RefusedError(values.row)

    def _outside(self, values: _Values, size: int) -> Positions:
        """The places of values of at least ``size`` bytes that are stored behind the entries."""
        at = values.start + values.stored
        _require((at >= values.floor) & (at + size <= values.limit), values.row)
        return at

    def _integers(self, values: _Values) -> tuple[Parts, Positions]:
        limit = values.limit
        first = int(values.kinds[0])
        if (values.kinds == first).all():
            numbers, limit = self._integers_of(first, values)
        else:
            numbers, limit = np.empty(len(values.kinds), np.int64), limit.copy()
            for kind in different(values.kinds).tolist():
                chosen = np.flatnonzero(values.kinds == kind)
                numbers[chosen], limit[chosen] = self._integers_of(kind, values.some(chosen))
        return [integer_texts(numbers)], limit

    def _integers_of(self, kind: int, values: _Values) -> tuple[Positions, Positions]:
        """Whole numbers of one type."""
        if kind in INLINED_NUMBERS:
            stored = values.stored
            return (stored ^ 0x8000) - 0x8000 if kind == INT16 else stored, values.limit
        dtype = STORED_NUMBERS[kind]
        at = self._outside(values, np.dtype(dtype).itemsize)
        return self._buffer.numbers(dtype)[at].astype(np.int64), at

    def _strings(self, values: _Values) -> tuple[Parts, Positions]:
        byte = self._buffer.numbers(np.uint8)
        at = self._outside(values, 1)
        length = byte[at].astype(np.int64)
        first = at + 1
        if length.max() > 127:
            # A bit of each byte says that one more follows. Longer strings than 16 KB are refused.
            is_long = length > 127
            second = byte[first].astype(np.int64)
            _require(~is_long | (second < 128), values.row)
            length = np.where(is_long, (length & 127) | second << 7, length)
            first += is_long
        stop = first + length
        _require(stop <= values.limit, values.row)
        return [b'"', string_texts(self._buffer, first, stop), b'"'], at

    def _containers(self, kind: int, values: _Values, level: int) -> tuple[Parts, Positions]:
        at = self._outside(values, SMALL.head_size)
        groups = list(self._alike(kind, at, values.limit, values.row))
        if len(groups) == 1:
            return self._container(kind, at, values.limit, values.row, level + 1), at
        texts = []
        for group in groups:
            parts = self._container(kind, at[group], values.limit[group], values.row[group], level + 1)
            texts.append((group, joined(parts, len(group))))
        return [put_in_rows(texts)], at

    # ---------------------------------------------------------------------------------------------- opaque

    def _opaque(self, values: _Values) -> tuple[Parts, Positions]:
        """Decimals and dates of one type, precision and scale; or of several."""
        at = self._outside(values, _DECIMAL_HEAD)
        heads = self._buffer.numbers(np.uint32)[at].astype(np.int64)
        is_decimal = heads & 0xFF == ColumnType.NEWDECIMAL
        heads = np.where(is_decimal, heads, heads & 0xFFFF)
        if (heads == heads[0]).all():
            return self._opaque_of(int(heads[0]), values)
        return self._several(heads, self._opaque_of, values)

    def _opaque_of(self, head: int, values: _Values) -> tuple[Parts, Positions]:
        kind, size, precision, scale = head.to_bytes(4, "little")
        at = values.start + values.stored
        _require(at + _TEMPORAL_HEAD + size <= values.limit, values.row)
        if kind == ColumnType.NEWDECIMAL:
            texts = None
            if size == json_decimal_size(precision, scale):
                texts = decimal_texts(self._buffer, at + _DECIMAL_HEAD, precision, scale)
            if texts is None:
                raise _RefusedError(values.row)
            return [texts], at
        found = temporal_texts(kind, self._buffer, at + _TEMPORAL_HEAD) if size == TEMPORAL_SIZE else None
        if found is None:
            raise _RefusedError(values.row)
        texts, is_right = found
        _require(is_right, values.row)
        return [b'"', texts, b'"'], at


def _require(is_right: Flags, row: Positions) -> None:
    """Refuse the documents whose flag in ``is_right`` is False."""
    if not is_right.all():
        raise _RefusedError(row[~is_right])
