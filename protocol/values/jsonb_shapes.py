"""Compiles the shape of a JSON object or array into one function that reads all others of that shape.

Documents of a column are alike: the same keys, mostly the same types. The layout of an object is worked out once,
here, so that the function for each object is straight-line code. The function for {"id": 7, "name": "oak"} is

    def read(data, depth):
        try:
            n, limit, entries, t0, o0, t1, o1, text = unpack_0(data)
        except StructError:
            return other(data, depth)
        if n != 2 or entries != entries_0 or text != text_0 or limit > len(data):
            return other(data, depth)
        if t1 == 12:
            n = data[o1]
            first = o1 + 1
            if n > 127:
                n += (data[first] << 7) - 128
                first += 1 if n < 16384 else 65536
            stop = first + n
            if stop > limit:
                v1, limit = value(data, t1, o1, 0, limit, 24, depth)
            else:
                v1 = data[first:stop].decode()
                limit = o1
        else:
            v1, limit = value(data, t1, o1, 0, limit, 24, depth)
        if t0 == 5:
            v0 = o0 if o0 < 32768 else o0 - 65536
        ...
        if limit < 24:
            raise Unusual
        return {key_0: v0, key_1: v1}

Values are read from the last to the first: each has to end where the next one begins, or before, so that no byte is
read twice. The same function also reads inner objects and arrays whose shapes are compiled already, with their
offsets counted from the outer start: a call and a copy of the bytes took 130 ns each. If an inner container has only
had a few, recurring contents, its bytes are looked up and the known value is copied. Other inner containers are
copied and read by a call; a value of a type that was not seen before is read by ``value``.

Generated text holds only integers and identifiers made here; keys are objects in the function's globals. It is not
registered in linecache, because the plain decoder handles every error of a reader.
"""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ..records import field, record
from .jsonb import (
    DOUBLE,
    INT16,
    INT32,
    INT64,
    LITERAL,
    LITERALS,
    MAX_DEPTH,
    NUMBERS,
    OPAQUE,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    UINT16,
    UINT32,
    UINT64,
    JsonValue,
)

# (data, depth) -> the small object or array at the start of ``data``, which is inside ``depth - 1`` other containers.
ContainerReader = Callable[[bytes, int], JsonValue]

# The most values that one function reads, with those of inner containers.
_MAX_VALUES: Final = 128
# The most levels of inner containers in one function: each indents three times, and CPython allows a hundred.
_MAX_LEVELS: Final = 8
# Contents recur if each was seen ten times on average; up to _CONTENTS_KEPT short contents are kept.
_RECURRENCE: Final = 10
_CONTENTS_KEPT: Final = 64
_SHORT: Final = 512
_INLINED: Final = frozenset({LITERAL, INT16, UINT16})
_CONTAINERS: Final = frozenset({SMALL_OBJECT, SMALL_ARRAY})
# Whole numbers change from one of these types to the next as they grow.
_GROWING: Final = (INT16, UINT16, INT32)


class UnusualError(Exception):
    """A document's layout is not the servers' layout; the plain decoder reads it, or raises the right error."""


@record(frozen=True, slots=True)
class OpaqueForm:
    """Opaque values that begin with the bytes ``head`` take ``size`` bytes; ``read`` reads the bytes after these."""

    head: bytes
    size: int
    read: Callable[[bytes, int], JsonValue]


@record(slots=True, eq=False)
class Shape:
    """The common part of similar objects, which is their keys, or of similar arrays, which is their element types.

    ``text`` is all keys one after the other; it begins ``text_start`` bytes from the object's start. ``sights`` has
    the types of the values, a byte each, of every container that was seen. Once there is a ``reader``, ``kinds`` has
    the types of each value, the most frequent first, and ``inner`` has, by a value's index, its type and the shape
    or form that is tried first. ``contents`` has the different bytes of the containers seen, while they are few. A
    shape ``recurs`` if they stayed few and all values are immutable.
    """

    keys: tuple[str, ...] | None
    key_entries: bytes
    text_start: int
    text: bytes
    sights: list[bytes] = field(default_factory=list)
    reader: ContainerReader | None = None
    kinds: list[list[int]] = field(default_factory=list)
    inner: "Mapping[int, tuple[int, Shape | OpaqueForm]]" = field(default_factory=dict)
    contents: set[bytes] = field(default_factory=set)
    recurs: bool = False

    def sight(self, types: bytes, data: bytes, limit: int) -> None:
        """Note one more container of the shape, the first ``limit`` bytes of ``data``."""
        self.sights.append(types)
        if len(self.contents) <= _CONTENTS_KEPT:
            self.contents.add(data[: min(limit, _SHORT)])

    @property
    def values_start(self) -> int:
        """The lowest offset of a value."""
        return self.text_start + len(self.text)


@record(frozen=True, slots=True)
class Tools:
    """The functions that compiled readers call: ``containers`` reads any container, ``value`` any value."""

    containers: Mapping[int, ContainerReader]
    value: Callable[..., tuple[JsonValue, int]]
    opaque: Callable[[bytes, int, int], JsonValue]


# Type -> the statements that read the value ``i`` at ``o{i}``, an offset from the beginning of ``data``.
_STATEMENTS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        LITERAL: ("v{i} = LITERALS[o{i}]",),
        INT16: ("v{i} = o{i} if o{i} < 32768 else o{i} - 65536",),
        UINT16: ("v{i} = o{i}",),
        STRING: (
            # As servers write strings, this one ends where the next value begins.
            "n = data[o{i}]",
            "if n == limit - o{i} - 1 and n < 128:",
            "    v{i} = data[o{i} + 1:limit].decode()",
            "    limit = o{i}",
            "else:",
            "    first = o{i} + 1",
            # Lengths of more than two bytes get past any end, so that ``value`` reads these strings.
            "    if n > 127:",
            "        n += (data[first] << 7) - 128",
            "        first += 1 if n < 16384 else 65536",
            "    stop = first + n",
            "    if stop > limit:",
            "        {any_value}",
            "    else:",
            "        v{i} = data[first:stop].decode()",
            "        limit = o{i}",
        ),
        OPAQUE: (
            "if o{i} < {floor}:",
            "    raise Unusual",
            "v{i} = opaque(data, o{i}, limit)",
            "limit = o{i}",
        ),
        **{
            kind: (
                f"if o{{i}} + {NUMBERS[kind][0]} > limit:",
                "    raise Unusual",
                f"(v{{i}},) = unpack_number_{kind}(data, o{{i}})",
                "limit = o{i}",
            )
            for kind in (INT32, UINT32, INT64, UINT64, DOUBLE)
        },
        **{
            kind: (
                "if o{i} < {floor}:",
                "    raise Unusual",
                f"v{{i}} = read_{kind}(data[o{{i}}:limit], {{inner_depth}})",
                "limit = o{i}",
            )
            for kind in _CONTAINERS
        },
    }
)
_KNOWN_OPAQUE: Final = (
    "if data[o{i}:o{i} + {head_size}] == head_{i} and o{i} + {size} <= limit:",
    "    v{i} = opaque_{i}(data, o{i} + {head_size})",
    "    limit = o{i}",
    "else:",
    "    {any_value}",
)
# Both branches assign ``v{i}``; the container's own values are between ``o{i}`` and its end.
_KNOWN_CONTAINER: Final = (
    "try:",
    "    {targets} = unpack_{i}(data, o{i})",
    "except StructError:",
    "    n = -1",
    "if n == {count} and {same_keys}(end := o{i} + size) <= limit:",
    "    limit = end",
    "{values}",
    "    v{i} = {result}",
    "else:",
    "    if o{i} < {floor}:",
    "        raise Unusual",
    "    v{i} = read_{kind}(data[o{i}:limit], {inner_depth})",
    "limit = o{i}",
)
# A look-up and a copy take a fifth of the time of reading five strings.
_RECURRING_CONTAINER: Final = (
    "content = data[o{i}:limit]",
    "v{i} = contents_{i}.get(content)",
    "if v{i} is not None:",
    "    v{i} = v{i}.copy()",
    "elif o{i} < {floor}:",
    "    raise Unusual",
    "else:",
    "    v{i} = container_{i}(content, {inner_depth})",
    "    if len(contents_{i}) < {kept} and len(content) <= {short}:",
    "        contents_{i}[content] = v{i}.copy()",
    "limit = o{i}",
)


def compile_reader(shape: Shape, tools: Tools, inner: Mapping[int, tuple[int, Shape | OpaqueForm]]) -> None:
    """Compile a reader for the containers of ``shape`` from its sights, and store it in the shape.

    The reader raises ``UnusualError``, and on damaged data ``DecodeError``, ``IndexError``, ``struct.error`` or
    ``ValueError``.
    """
    shape.kinds = [_kinds(bytes(column)) for column in zip(*shape.sights, strict=True)]
    shape.inner = inner
    writer = _Writer(tools)
    code = compile("\n".join(writer.function(shape)), "<json reader>", "exec")
    exec(code, writer.namespace)  # the text holds no word of a document
    reader: ContainerReader = writer.namespace["read"]  # type: ignore[assignment]
    shape.reader = reader
    is_leaf = _CONTAINERS.isdisjoint(itertools.chain(*shape.kinds))
    shape.recurs = is_leaf and len(shape.contents) * _RECURRENCE <= len(shape.sights)
    shape.sights.clear()
    shape.contents.clear()


def _kinds(seen: bytes) -> list[int]:
    """The types seen of one value, the most frequent first; if one is in ``_GROWING``, then the rest of these."""
    kinds = [kind for kind, _ in Counter(seen).most_common()]
    if not set(kinds).isdisjoint(_GROWING):
        kinds += (kind for kind in _GROWING if kind not in kinds)
    return kinds


class _Writer:
    """Writes the function of one shape, and collects the objects that the function refers to."""

    def __init__(self, tools: Tools) -> None:
        self._values = 0  # number of values that have a number
        self._levels = 0
        self.namespace: dict[str, object] = {
            "StructError": struct.error,
            "Unusual": UnusualError,
            "LITERALS": LITERALS,
            "value": tools.value,
            "opaque": tools.opaque,
            **{f"unpack_number_{kind}": unpack for kind, (_, unpack) in NUMBERS.items()},
            **{f"read_{kind}": read for kind, read in tools.containers.items()},
        }

    def function(self, shape: Shape) -> list[str]:
        count = len(shape.kinds)
        targets, same_keys = self._head("r", shape, self._numbers(count), "limit")
        other = f"read_{SMALL_ARRAY if shape.keys is None else SMALL_OBJECT}(data, depth)"
        values = [f"    {line}" for line in self._container(shape, "r", 0, 0)]
        lines = [
            "def read(data, depth):",
            "    try:",
            f"        {targets} = unpack_r(data)",
            "    except StructError:",
            f"        return {other}",
            f"    if n != {count} or not ({same_keys}limit <= len(data)):",
            f"        return {other}",
        ]
        if not _CONTAINERS.isdisjoint(itertools.chain(*shape.kinds)):
            # A container without inner containers does not check the depth: its caller has checked it.
            lines += (f"    if depth > {MAX_DEPTH - 1 - self._levels}:", "        raise Unusual")
        return [*lines, *values, f"    return {self._result(shape, 'r', 0)}"]

    def _numbers(self, count: int) -> int:
        """Number ``count`` further values; returns the first number."""
        first = self._values
        self._values += count
        return first

    def _head(self, name: str, shape: Shape, first: int, size: str) -> tuple[str, str]:
        """The names that a container's head is unpacked to, and the conditions under which it has this shape."""
        values = "".join(f", t{index}, o{index}" for index in range(first, first + len(shape.kinds)))
        codes = "BH" * len(shape.kinds)
        if shape.keys is None:
            self.namespace[f"unpack_{name}"] = struct.Struct(f"<HH{codes}").unpack_from
            return f"n, {size}{values}", ""
        gap = shape.text_start - 4 - 7 * len(shape.kinds)
        form = f"<HH{len(shape.key_entries)}s{codes}{gap}x{len(shape.text)}s"
        self.namespace |= {
            f"unpack_{name}": struct.Struct(form).unpack_from,
            f"entries_{name}": shape.key_entries,
            f"text_{name}": shape.text,
            **{f"key_{name}_{index}": key for index, key in enumerate(shape.keys)},
        }
        return (
            f"n, {size}, entries{values}, text",
            f"entries == entries_{name} and text == text_{name} and ",
        )

    def _container(self, shape: Shape, name: str, first: int, level: int) -> Iterator[str]:
        """Read the values of a container that begins at ``o{name}``; the outermost one begins at 0."""
        self._levels = max(self._levels, level)
        floor = f"o{name} + {shape.values_start}" if level else str(shape.values_start)
        for index in reversed(range(len(shape.kinds))):
            yield from self._value(shape, index, first + index, f"o{name}" if level else "0", floor, level)
        yield f"if limit < {floor}:"
        yield "    raise Unusual"

    def _result(self, shape: Shape, name: str, first: int) -> str:
        values = [f"v{index}" for index in range(first, first + len(shape.kinds))]
        if shape.keys is None:
            return f"[{', '.join(values)}]"
        return f"{{{', '.join(f'key_{name}_{index}: {value}' for index, value in enumerate(values))}}}"

    def _value(
        self, shape: Shape, index: int, number: int, start: str, floor: str, level: int
    ) -> Iterator[str]:
        """Read one value, by a branch for each of the types that it was seen to have."""
        words = {
            "i": str(number),
            "floor": floor,
            "inner_depth": f"depth + {level + 1}",
        }
        depth = f"depth + {level}" if level else "depth"
        any_value = "v{i}, limit = value(data, t{i}, o{i}, {start}, limit, {floor}, {depth})"
        word = "if"
        for kind in shape.kinds[index]:
            if kind not in _STATEMENTS:
                continue
            yield f"{word} t{number} == {kind}:"
            if level and kind not in _INLINED:
                yield f"    o{number} += {start}"
            absolute = any_value.format(start="0", depth=depth, **words)
            for line in self._statements(shape, index, kind, words, level):
                yield f"    {line.format(any_value=absolute, **words)}"
            word = "elif"
        last = any_value.format(start=start, depth=depth, **words)
        yield from ["else:", f"    {last}"] if word == "elif" else [last]

    def _statements(
        self, shape: Shape, index: int, kind: int, words: dict[str, str], level: int
    ) -> Sequence[str]:
        """The statements that read a value of this type."""
        inner_kind, inner = shape.inner.get(index, (None, None))
        if kind == inner_kind and isinstance(inner, OpaqueForm):
            self.namespace |= {f"head_{words['i']}": inner.head, f"opaque_{words['i']}": inner.read}
            words |= {"head_size": str(len(inner.head)), "size": str(inner.size)}
            return _KNOWN_OPAQUE
        if kind != inner_kind or not isinstance(inner, Shape):
            return _STATEMENTS[kind]
        if inner.recurs:
            number = words["i"]
            self.namespace |= {f"contents_{number}": {}, f"container_{number}": inner.reader}
            words |= {"kept": str(_CONTENTS_KEPT), "short": str(_SHORT)}
            return _RECURRING_CONTAINER
        if level < _MAX_LEVELS and self._values + len(inner.kinds) <= _MAX_VALUES:
            return self._known_container(inner, kind, words, level)
        return _STATEMENTS[kind]

    def _known_container(self, shape: Shape, kind: int, words: dict[str, str], level: int) -> Sequence[str]:
        name = words["i"]
        first = self._numbers(len(shape.kinds))
        targets, same_keys = self._head(name, shape, first, "size")
        values = [f"    {line}" for line in self._container(shape, name, first, level + 1)]
        words |= {
            "targets": targets,
            "same_keys": same_keys,
            "count": str(len(shape.kinds)),
            "result": self._result(shape, name, first),
            "kind": str(kind),
        }
        at = _KNOWN_CONTAINER.index("{values}")
        # These lines are complete already: their braces must survive format().
        whole = [line.replace("{", "{{").replace("}", "}}") for line in values]
        return [*_KNOWN_CONTAINER[:at], *whole, *_KNOWN_CONTAINER[at + 1 :]]
