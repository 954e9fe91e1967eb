"""From the shape of a JSON object or array to one compiled function that reads all others of that shape.

Documents of a column are alike: the same keys, mostly the same types. The work of finding out what an object looks
like is done once, here; what is left per object is straight-line code. The function for {"id": 7, "name": "oak"} is

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

Values are read from the last to the first: each has to end where the next one begins, or before, so that none is
read twice. Objects and arrays inside of it whose shapes are compiled already are read by the same function, with
their offsets made those of the whole: a call and bytes of their own took 130 ns each. Where all that was seen of a
container were a few contents that come again and again, its bytes are looked up, and what they stand for is copied.
Other containers get bytes of their own and are left to whoever reads them; so is a value of another type than those
seen, to ``value``.

Generated text holds only integers and identifiers made here; keys are objects in the function's globals. It is not
registered in linecache: whatever a reader raises ends in the plain decoder's error.
"""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Final

from ..records import record
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

# (data, depth) -> the small object or array that ``data`` begins with. It stands inside of depth - 1 others.
ContainerReader = Callable[[bytes, int], JsonValue]

# One function reads no more values than these, those of inner containers included.
_MAX_VALUES: Final = 128
# Nor containers deeper in each other: CPython takes code indented a hundred times, each of them takes three.
_MAX_LEVELS: Final = 8
# Contents recur that were met ten times each, on average; so many of them are kept, if they are short.
_RECURRENCE: Final = 10
_CONTENTS_KEPT: Final = 64
_SHORT: Final = 512
_INLINED: Final = frozenset({LITERAL, INT16, UINT16})
_CONTAINERS: Final = frozenset({SMALL_OBJECT, SMALL_ARRAY})
# Whole numbers grow from one type into the next.
_GROWING: Final = (INT16, UINT16, INT32)


class UnusualError(Exception):
    """A document is not laid out as servers lay it out; the plain decoder says what it is, or what is wrong."""


@record(frozen=True, slots=True)
class OpaqueForm:
    """Opaque values that begin with the bytes of ``head`` take ``size`` bytes; ``read`` is for what is behind it."""

    head: bytes
    size: int
    read: Callable[[bytes, int], JsonValue]


@record(slots=True, eq=False)
class Shape:
    """What objects of one kind have in common: all about their keys. Arrays have none, but a length.

    ``text`` is the keys one after the other; it begins ``text_start`` bytes from the object's start. ``sights`` are
    the types of the values, a byte each, of the containers that were met. Once there is a ``reader``, ``kinds`` are
    the types of each value, the most frequent first, and ``inner`` has, by a value's index, its type and the shape
    or form that is tried first. ``contents`` are the bytes that were met, as long as they are few; it ``recurs`` if
    they were, all of immutable values.
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
        """One more container of the shape was met, in the first ``limit`` bytes of ``data``."""
        self.sights.append(types)
        if len(self.contents) <= _CONTENTS_KEPT:
            self.contents.add(data[: min(limit, _SHORT)])

    @property
    def values_start(self) -> int:
        """Where the first value can stand."""
        return self.text_start + len(self.text)


@record(frozen=True, slots=True)
class Tools:
    """What compiled readers call: ``containers`` for one of any shape, ``value`` for any value."""

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
            # As servers write it, it ends where the next value begins.
            "n = data[o{i}]",
            "if n == limit - o{i} - 1 and n < 128:",
            "    v{i} = data[o{i} + 1:limit].decode()",
            "    limit = o{i}",
            "else:",
            "    first = o{i} + 1",
            # Lengths of more than two bytes are made to reach over any end, and so left to the other.
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
# What both of them have read is ``v{i}``; the container's own values stand between ``o{i}`` and its end.
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
# A look-up and a copy: a fifth of the time of five strings.
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
    """Give ``shape``, which holds as many sights as there are to learn from, a reader of such containers.

    It raises ``UnusualError``, and on damaged data ``DecodeError``, ``IndexError``, ``struct.error`` or
    ``ValueError``.
    """
    shape.kinds = [_kinds(bytes(column)) for column in zip(*shape.sights, strict=True)]
    shape.inner = inner
    writer = _Writer(tools)
    code = compile("\n".join(writer.function(shape)), "<json reader>", "exec")
    exec(code, writer.namespace)  # the text is made of our own words only
    reader: ContainerReader = writer.namespace["read"]  # type: ignore[assignment]
    shape.reader = reader
    is_leaf = _CONTAINERS.isdisjoint(itertools.chain(*shape.kinds))
    shape.recurs = is_leaf and len(shape.contents) * _RECURRENCE <= len(shape.sights)
    shape.sights.clear()
    shape.contents.clear()


def _kinds(seen: bytes) -> list[int]:
    """The types of one value, the most frequent first."""
    kinds = [kind for kind, _ in Counter(seen).most_common()]
    if not set(kinds).isdisjoint(_GROWING):
        kinds += (kind for kind in _GROWING if kind not in kinds)
    return kinds


class _Writer:
    """Writes the function of one shape, and collects what it refers to."""

    def __init__(self, tools: Tools) -> None:
        self._values = 0  # so many have a number
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
            # A container that holds no other need not look: who called it has.
            lines += (f"    if depth > {MAX_DEPTH - 1 - self._levels}:", "        raise Unusual")
        return [*lines, *values, f"    return {self._result(shape, 'r', 0)}"]

    def _numbers(self, count: int) -> int:
        """The number of the first of so many values."""
        first = self._values
        self._values += count
        return first

    def _head(self, name: str, shape: Shape, first: int, size: str) -> tuple[str, str]:
        """What a container's head is unpacked to, and the conditions of its being of the shape."""
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
        """One value of whichever of the types that it was seen to have."""
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
        """How a value of this type is read."""
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
        # These are whole already: braces of theirs are not to be filled.
        whole = [line.replace("{", "{{").replace("}", "}}") for line in values]
        return [*_KNOWN_CONTAINER[:at], *whole, *_KNOWN_CONTAINER[at + 1 :]]
