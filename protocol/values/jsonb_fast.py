"""A fast decoder for many binary JSON documents: the results of ``jsonb`` in a fraction of its time.

A ``JsonDecoder`` remembers the shapes of the objects and arrays that it reads. Functions that ``jsonb_shapes``
compiles read frequent shapes, the loops here read all others. Both accept only the layout that servers write, in
which each value follows the one before it. If a document has another layout, or is damaged, the plain decoder reads
it again from the start and decides. So each byte is read twice at most, whatever the offsets say. ``jsonb_layouts``
reads documents whose values also have the places of an earlier document's.

Nanoseconds per document, CPython 3.11, best of 40:      plain    loops   compiled
    3 members                                            3,500    2,200        580
    6 members                                            5,000    3,100      1,030
    5 objects and arrays in each other, 10 values       10,900    9,600      2,290
    9 of them, 40 values, 550 bytes                     34,000   23,000      6,200
    8 elements of 6 types                                3,000    2,500        830
    20 doubles                                           7,800    7,000      2,000
    3,000 objects of 4 members in an array, per object   6,400               1,600
    8 members with keys that no other document has       4,800    2,700
"""

import struct
from collections.abc import Iterator
from typing import Final

from ..constants import ColumnType
from .jsonb import (
    INT16,
    INT32,
    LARGE,
    LARGE_ARRAY,
    LARGE_OBJECT,
    LITERAL,
    LITERALS,
    MAX_DEPTH,
    NUMBER_CODES,
    NUMBERS,
    OPAQUE,
    SMALL,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    TEMPORAL_SIZE,
    TEMPORALS,
    UINT16,
    UINT32,
    JsonValue,
    Layout,
    decode_json,
    json_decimal_size,
    read_opaque,
    variable_length,
)
from .jsonb_layouts import UNUSUAL, Layouts, ReadAt
from .jsonb_shapes import ContainerReader, OpaqueForm, Shape, Tools, UnusualError, compile_reader
from .readers import decimal_reader

# Number of objects of a shape before it is compiled: that takes 0.3 to 1.5 ms, which some 200 objects then save.
SIGHTS_BEFORE_COMPILING: Final = 200

# Shapes kept: a compiled reader takes some 10 KB, a shape that is not compiled up to 20 KB.
_COMPILED_KEPT: Final = 1024
_OTHERS_KEPT: Final = 512
# The loops read wider objects and longer arrays.
_MAX_MEMBERS: Final = 64
_MAX_ELEMENTS: Final = 32
_MAX_TEXT: Final = 1024

# Whole numbers of any size count as one type in the shape of an array.
_FAMILIES: Final = bytes(INT16 if kind in (INT16, UINT16, INT32) else kind for kind in range(256))

# An opaque DECIMAL begins with type, size, precision and scale.
_DECIMAL_HEAD: Final = 4

_INLINED_IF_LARGE: Final = frozenset({INT32, UINT32})

_unpack_head: Final = SMALL.read_head
_read_entries: Final = SMALL.read_values


class JsonDecoder:
    """Decodes documents, and gets faster with similar ones. For one thread at a time.

    ``sights_before_compiling`` is the number of objects or arrays of a shape before the shape is compiled.
    """

    def __init__(self, sights_before_compiling: int = SIGHTS_BEFORE_COMPILING) -> None:
        self._sights = sights_before_compiling
        # Key entries -> start and end of the keys' text, and the shapes by that text.
        self._objects: dict[bytes, tuple[int, int, dict[bytes, Shape]]] = {}
        # Types of the elements, with all whole numbers as one type -> shape.
        self._arrays: dict[bytes, Shape] = {}
        self._compiled = self._others = 0
        self._decimals: dict[bytes, OpaqueForm] = {}
        self._containers: dict[int, ContainerReader] = {
            SMALL_OBJECT: self._small_object,
            LARGE_OBJECT: lambda data, depth: self._large_object(data, 0, len(data), depth),
            SMALL_ARRAY: self._small_array,
            LARGE_ARRAY: lambda data, depth: self._large_array(data, 0, len(data), depth),
        }
        # The reader of the last object.
        self._last_object: ContainerReader = self._small_object
        # The reader of the last document of each type; the next document tries it first.
        self._roots = self._containers.copy()
        # The shape of the last document of each type; None for one that is not remembered.
        self._root_shapes: dict[int, Shape | None] = dict.fromkeys(self._containers)
        #: Readers of documents of some sizes, of ``data[at:end]``.
        self.by_size: dict[int, ReadAt] = {}
        self._layouts = self._no_layouts()

    def decode(self, data: bytes) -> JsonValue:
        """The value of a whole document; returns and raises the same as ``decode_json``."""
        size = len(data)
        return self.by_size.get(size, self.by_shape)(data, 0, size)

    def by_shape(self, data: bytes, at: int, end: int) -> JsonValue:
        """The document in ``data[at:end]``. Callers look for a reader in ``by_size`` before."""
        try:
            if at < end and (kind := data[at]) <= LARGE_ARRAY:
                value = self._roots[kind](data[at + 1 : end], 1)
                shape = self._root_shapes[kind]
                if shape is not None and shape not in self._layouts.refused:
                    self._layouts.miss(data[at:end], shape)
                return value
        except UNUSUAL:
            pass
        return decode_json(data[at:end])

    # ------------------------------------------------------------------------------------------ containers

    def _small_object(self, data: bytes, depth: int) -> JsonValue:
        count, limit = _unpack_head(data)
        values_at = 4 + 4 * count
        content = values_at + 3 * count
        if content > limit or limit > len(data) or depth > MAX_DEPTH:
            raise UnusualError
        if depth == 1:
            self._root_shapes[SMALL_OBJECT] = None
        if not count:
            return {}
        shape = None
        known = self._objects.get(data[4:values_at])
        if known is not None:
            text_start, text_end, shapes = known
            shape = shapes.get(data[text_start:text_end])
        if shape is None:
            shape = self._new_object(data, count, limit)
        elif depth == 1:
            self._root_shapes[SMALL_OBJECT] = shape
        if shape.reader is not None:
            if depth == 1:
                self._roots[SMALL_OBJECT] = shape.reader
            value = shape.reader(data, depth)
            self._last_object = shape.reader
            return value
        keys = shape.keys
        assert keys is not None
        entries = list(_read_entries(data[values_at:content]))
        values = self._elements(entries, data, 0, limit, shape.values_start, depth)
        self._sighted(shape, data, values_at, content, limit)
        return dict(zip(keys, values, strict=True))

    def _small_array(self, data: bytes, depth: int) -> JsonValue:
        count, limit = _unpack_head(data)
        content = 4 + 3 * count
        if content > limit or limit > len(data) or depth > MAX_DEPTH:
            raise UnusualError
        if depth == 1:
            self._root_shapes[SMALL_ARRAY] = None
        if not 0 < count <= _MAX_ELEMENTS:
            numbers = _numbers(SMALL, data, 0, 4, content, limit)
            if numbers is not None:
                return numbers
            return self._elements(list(_read_entries(data[4:content])), data, 0, limit, content, depth)
        types = data[4:content:3].translate(_FAMILIES)
        shape = self._arrays.get(types)
        if shape is None:
            shape = self._new_array(types)
        elif depth == 1:
            self._root_shapes[SMALL_ARRAY] = shape
        if shape.reader is not None:
            if depth == 1:
                self._roots[SMALL_ARRAY] = shape.reader
            return shape.reader(data, depth)
        values = self._elements(list(_read_entries(data[4:content])), data, 0, limit, content, depth)
        self._sighted(shape, data, 4, content, limit)
        return values

    def _large_object(self, data: bytes, start: int, end: int, depth: int) -> JsonValue:
        count, size = LARGE.read_head(data, start)
        values_at = start + LARGE.head_size + count * LARGE.key_size
        content = values_at + count * LARGE.value_size
        limit = start + size
        if content > limit or limit > end or depth > MAX_DEPTH:
            raise UnusualError
        keys, _, text_end = object_keys(LARGE, data, start, count, size)
        entries = LARGE.read_values(data[values_at:content])
        values = self._elements(list(entries), data, start, limit, start + text_end, depth, large=True)
        return dict(zip(keys, values, strict=True))

    def _large_array(self, data: bytes, start: int, end: int, depth: int) -> JsonValue:
        count, size = LARGE.read_head(data, start)
        values_at = start + LARGE.head_size
        content = values_at + count * LARGE.value_size
        limit = start + size
        if content > limit or limit > end or depth > MAX_DEPTH:
            raise UnusualError
        numbers = _numbers(LARGE, data, start, values_at, content, limit)
        if numbers is not None:
            return numbers
        entries = LARGE.read_values(data[values_at:content])
        return self._elements(list(entries), data, start, limit, content, depth, large=True)

    # ---------------------------------------------------------------------------------------------- values

    def _elements(
        self,
        entries: list[tuple[int, ...]],
        data: bytes,
        start: int,
        limit: int,
        floor: int,
        depth: int,
        large: bool = False,
    ) -> list[JsonValue]:
        """Read the values of a container from the last to the first: each has to end before the next one starts.

        ``start`` and ``limit`` are the container's start and end; ``floor`` is the lowest offset of a value.
        """
        values: list[JsonValue] = []
        append = values.append
        read_object: ContainerReader = self._small_object
        inner_depth = depth + 1
        entries.reverse()
        for kind, stored in entries:
            if kind == STRING:
                at = start + stored
                size = data[at]
                first = at + 1
                stop = first + size
                if size > 127:
                    first, size = variable_length(data, at, limit)
                    stop = first + size
                if stop > limit:
                    raise UnusualError
                append(data[first:stop].decode())
                limit = at
            elif kind == INT16:
                stored &= 0xFFFF
                append(stored if stored < 0x8000 else stored - 0x10000)
            elif kind == UINT16:
                append(stored & 0xFFFF)
            elif kind == LITERAL:
                append(LITERALS[stored])
            elif large and kind in _INLINED_IF_LARGE:
                append(LARGE.inlined[kind](stored))
            else:
                at = start + stored
                if at < floor:
                    raise UnusualError
                if kind == SMALL_OBJECT:
                    append(read_object(data[at:limit], inner_depth))
                    # The next object probably has the same shape: to try that saves 200 ns. The first object has
                    # checked the depth.
                    read_object = self._last_object
                else:
                    append(self._outside(kind, data, at, limit, depth))
                limit = at
        if limit < floor:
            raise UnusualError
        values.reverse()
        return values

    def _value(
        self, data: bytes, kind: int, stored: int, start: int, limit: int, floor: int, depth: int
    ) -> tuple[JsonValue, int]:
        """One value of a small container at ``start``, and the limit for the end of the value before it."""
        if kind == INT16:
            return (stored ^ 0x8000) - 0x8000, limit
        if kind == UINT16:
            return stored, limit
        if kind == LITERAL:
            return LITERALS[stored], limit
        at = start + stored
        if at < floor:
            raise UnusualError
        return self._outside(kind, data, at, limit, depth), at

    def _outside(self, kind: int, data: bytes, at: int, limit: int, depth: int) -> JsonValue:
        """A value at ``at``, after the container's entries."""
        if kind == STRING:
            first, size = variable_length(data, at, limit)
            if first + size > limit:
                raise UnusualError
            return data[first : first + size].decode()
        if kind == SMALL_OBJECT:
            return self._small_object(data[at:limit], depth + 1)
        if kind == SMALL_ARRAY:
            return self._small_array(data[at:limit], depth + 1)
        if kind in NUMBERS:
            size, read = NUMBERS[kind]
            if at + size > limit:
                raise UnusualError
            return read(data, at)[0]
        if kind == OPAQUE:
            return self._opaque(data, at, limit)
        # Large containers are not copied: they may have any size, and be a hundred levels deep.
        if kind == LARGE_OBJECT:
            return self._large_object(data, at, limit, depth + 1)
        if kind == LARGE_ARRAY:
            return self._large_array(data, at, limit, depth + 1)
        raise UnusualError

    def _opaque(self, data: bytes, at: int, limit: int) -> JsonValue:
        form = self._decimals.get(data[at : at + _DECIMAL_HEAD])
        if form is None:
            if data[at] != ColumnType.NEWDECIMAL:
                first, size = variable_length(data, at + 1, limit)
                if first + size > limit:
                    raise UnusualError
                return read_opaque(data[at], data, first, size)
            form = self._new_decimal(data[at : at + _DECIMAL_HEAD])
        if at + form.size > limit:
            raise UnusualError
        return form.read(data, at + _DECIMAL_HEAD)

    def _new_decimal(self, head: bytes) -> OpaqueForm:
        _, size, precision, scale = head
        if size != json_decimal_size(precision, scale):
            raise UnusualError
        form = self._decimals[head] = OpaqueForm(head, 2 + size, decimal_reader(precision, scale))
        return form

    # ---------------------------------------------------------------------------------------------- shapes

    def _new_object(self, data: bytes, count: int, limit: int) -> Shape:
        """The shape of an object; it is kept unless the object is too wide."""
        keys, text_start, text_end = object_keys(SMALL, data, 0, count, limit)
        key_entries = data[4 : 4 + 4 * count]
        text = data[text_start:text_end]
        shape = Shape(tuple(keys), key_entries, text_start, text)
        if count <= _MAX_MEMBERS and len(text) <= _MAX_TEXT:
            self._make_room()
            known = self._objects.setdefault(key_entries, (text_start, text_end, {}))
            known[2][text] = shape
        return shape

    def _new_array(self, types: bytes) -> Shape:
        self._make_room()
        shape = self._arrays[types] = Shape(None, b"", 4 + 3 * len(types), b"")
        return shape

    def _make_room(self) -> None:
        """Make room for a new shape. Shapes without a reader go first: keys that are ids are new in each document."""
        if self._compiled >= _COMPILED_KEPT:
            self._objects.clear()
            self._arrays.clear()
            self._compiled = self._others = 0
            self._roots = self._containers.copy()
            self._root_shapes = dict.fromkeys(self._containers)
            self._last_object = self._small_object
            self._layouts = self._no_layouts()
        elif self._others >= _OTHERS_KEPT:
            self._arrays = {types: shape for types, shape in self._arrays.items() if shape.reader}
            for key_entries, (text_start, text_end, shapes) in list(self._objects.items()):
                compiled = {text: shape for text, shape in shapes.items() if shape.reader}
                if compiled:
                    self._objects[key_entries] = text_start, text_end, compiled
                else:
                    del self._objects[key_entries]
            self._others = 0
        self._others += 1

    def _sighted(self, shape: Shape, data: bytes, values_at: int, content: int, limit: int) -> None:
        """Note a container that the loops have read; compile its shape after enough of them."""
        shape.sight(data[values_at:content:3], data, limit)
        if len(shape.sights) >= self._sights:
            small = {SMALL_OBJECT: self._small_object, SMALL_ARRAY: self._small_array}
            inner = dict(self._inner(data, data[values_at:content]))
            compile_reader(shape, Tools(small, self._value, self._opaque), inner)
            self._compiled += 1
            self._others -= 1

    def _inner(self, data: bytes, entries: bytes) -> Iterator[tuple[int, tuple[int, Shape | OpaqueForm]]]:
        """The known shapes of inner containers, and forms of opaque values, by their indexes in the container."""
        for index, (kind, at) in enumerate(_read_entries(entries)):
            if kind in (SMALL_OBJECT, SMALL_ARRAY):
                shape = self._shape(kind, data, at)
                if shape is not None and shape.reader is not None:
                    yield index, (kind, shape)
            elif kind == OPAQUE and data[at] == ColumnType.NEWDECIMAL:
                yield index, (kind, self._decimals[data[at : at + _DECIMAL_HEAD]])
            elif kind == OPAQUE and data[at] in TEMPORALS:
                form = OpaqueForm(data[at : at + 2], 2 + TEMPORAL_SIZE, TEMPORALS[data[at]])
                yield index, (kind, form)

    def _no_layouts(self) -> Layouts:
        """Layouts of documents; of inner containers that are compiled it is known whether they recur."""
        return Layouts(self.by_size, self._recurring, self.by_shape)

    def _recurring(self, kind: int, data: bytes, start: int) -> ContainerReader | None:
        """The function that reads a container whose contents recur; None for others."""
        shape = self._shape(kind, data, start)
        return shape.reader if shape is not None and shape.recurs else None

    def _shape(self, kind: int, data: bytes, start: int) -> Shape | None:
        count, _ = _unpack_head(data, start)
        if kind == SMALL_ARRAY:
            return self._arrays.get(data[start + 4 : start + 4 + 3 * count : 3].translate(_FAMILIES))
        known = self._objects.get(data[start + 4 : start + 4 + 4 * count])
        if known is None:
            return None
        text_start, text_end, shapes = known
        return shapes.get(data[start + text_start : start + text_end])


def object_keys(layout: Layout, data: bytes, start: int, count: int, size: int) -> tuple[list[str], int, int]:
    """The keys of an object, and the start and end of their text, counted from ``start``."""
    values_at = layout.head_size + count * layout.key_size
    first = end = values_at + count * layout.value_size
    keys: list[str] = []
    for offset, length in layout.read_keys(data[start + layout.head_size : start + values_at]):
        if offset < end:
            raise UnusualError
        if not keys:
            first = offset
        end = offset + length
        keys.append(data[start + offset : start + end].decode())
    if end > size or len(set(keys)) != count:
        raise UnusualError
    return keys, first, end


def _numbers(
    layout: Layout, data: bytes, start: int, values_at: int, content: int, limit: int
) -> list[JsonValue] | None:
    """The elements of an array at ``start`` if all are numbers of one type without gaps; else None."""
    entries = data[values_at:content]
    entry_size = layout.value_size
    kinds = entries[::entry_size]
    count = len(kinds)
    if not count or kinds.count(kinds[0]) != count or kinds[0] not in NUMBERS:
        return None
    kind = kinds[0]
    size, _ = NUMBERS[kind]
    code = NUMBER_CODES[kind]
    stored_size = size if kind in layout.inlined else entry_size - 1
    stored = bytearray(stored_size * count)
    for index in range(stored_size):
        stored[index::stored_size] = entries[index + 1 :: entry_size]
    if kind in layout.inlined:
        return list(struct.unpack(f"<{count}{code}", stored))
    offsets = struct.unpack(f"<{count}{'I' if stored_size == 4 else 'H'}", stored)
    first = start + offsets[0]
    if offsets != tuple(range(offsets[0], offsets[0] + count * size, size)):
        return None
    if first < content or first + count * size > limit:
        raise UnusualError
    return list(struct.unpack_from(f"<{count}{code}", data, first))
