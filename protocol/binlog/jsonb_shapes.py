"""From the shape of a JSON object or array to one compiled function that reads all others of that shape.

Documents of a column are alike: the same keys, mostly the same types. The work of finding out what an object looks
like is done once, here; what is left per object is straight-line code. The function for {"id": 7, "name": "oak"} is

    def read(data, depth):
        try:
            count, limit, entries, t0, o0, t1, o1, text = unpack(data)
        except StructError:
            return other(data, depth)
        if count != 2 or entries != ENTRIES or text != TEXT or limit > len(data):
            return other(data, depth)
        if t1 == 12:
            n = data[o1]
            first = o1 + 1
            if n > 127:
                n += (data[first] << 7) - 128
                first += 1 if n < 16384 else 65536
            stop = first + n
            if stop > limit:
                v1, limit = value(data, t1, o1, limit, 24, depth)
            else:
                v1 = data[first:stop].decode()
                limit = o1
        else:
            v1, limit = value(data, t1, o1, limit, 24, depth)
        if t0 == 5:
            v0 = o0 if o0 < 32768 else o0 - 65536
        ...
        if limit < 24:
            raise Unusual
        return {key_0: v0, key_1: v1}

Values are read from the last to the first: each has to end where the next one begins, or before, so that none is
read twice. A container of another shape is left to ``other``, a value of another type than those seen to ``value``.
Containers get bytes of their own: a copy is made faster than positions are added to where each begins.

Generated text holds only integers and identifiers made here; keys are objects in the function's globals. It is not
registered in linecache: whatever a reader raises ends in the plain decoder's error.
"""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


class UnusualError(Exception):
    """A document is not laid out as servers lay it out; the plain decoder says what it is, or what is wrong."""


@record(slots=True, eq=False)
class Shape:
    """What objects of one kind have in common: all about their keys. Arrays have none, but a length.

    ``text`` is the keys one after the other; it begins ``text_start`` bytes from the object's start. ``sights`` are
    the types of the values, a byte each, of the containers that were met.
    """

    keys: tuple[str, ...] | None
    key_entries: bytes
    text_start: int
    text: bytes
    sights: list[bytes] = field(default_factory=list)
    reader: ContainerReader | None = None

    @property
    def values_start(self) -> int:
        """Where the first value can stand."""
        return self.text_start + len(self.text)


@record(frozen=True, slots=True)
class OpaqueForm:
    """Opaque values that begin with the bytes of ``head`` take ``size`` bytes; ``read`` is for what is behind it."""

    head: bytes
    size: int
    read: Callable[[bytes, int], JsonValue]


@record(frozen=True, slots=True)
class Tools:
    """What compiled readers call: ``containers`` for one of any shape, ``value`` for any value.

    ``inner`` has, by a value's index, its type and what is tried first: a reader of containers, or an opaque form.
    """

    containers: Mapping[int, ContainerReader]
    value: Callable[..., tuple[JsonValue, int]]
    opaque: Callable[[bytes, int, int], JsonValue]
    inner: Mapping[int, tuple[int, ContainerReader | OpaqueForm]]


_ANY_VALUE: Final = "v{i}, limit = value(data, t{i}, o{i}, limit, {floor}, depth)"

# Type -> what else has to hold beside the type, and the statements that read the value ``i``.
_Branch = tuple[str, tuple[str, ...]]
_BRANCHES: Mapping[int, _Branch] = MappingProxyType(
    {
        LITERAL: ("", ("v{i} = LITERALS[o{i}]",)),
        INT16: ("", ("v{i} = o{i} if o{i} < 32768 else o{i} - 65536",)),
        UINT16: ("", ("v{i} = o{i}",)),
        STRING: (
            "",
            (
                "n = data[o{i}]",
                "first = o{i} + 1",
                # Lengths of more than two bytes are made to reach over any end, and so left to the other.
                "if n > 127:",
                "    n += (data[first] << 7) - 128",
                "    first += 1 if n < 16384 else 65536",
                "stop = first + n",
                "if stop > limit:",
                f"    {_ANY_VALUE}",
                "else:",
                "    v{i} = data[first:stop].decode()",
                "    limit = o{i}",
            ),
        ),
        OPAQUE: (" and o{i} >= {floor}", ("v{i} = opaque(data, o{i}, limit)", "limit = o{i}")),
        **{
            kind: (
                f" and o{{i}} + {NUMBERS[kind][0]} <= limit",
                (f"(v{{i}},) = unpack_{kind}(data, o{{i}})", "limit = o{i}"),
            )
            for kind in (INT32, UINT32, INT64, UINT64, DOUBLE)
        },
        **{
            kind: (
                " and o{i} >= {floor}",
                (f"v{{i}} = container_{kind}_{{i}}(data[o{{i}}:limit], depth + 1)", "limit = o{i}"),
            )
            for kind in (SMALL_OBJECT, SMALL_ARRAY)
        },
    }
)
_KNOWN_OPAQUE: Final[_Branch] = (
    " and data[o{i}:o{i} + {head_size}] == head_{i} and o{i} + {size} <= limit",
    ("v{i} = opaque_{i}(data, o{i} + {head_size})", "limit = o{i}"),
)

# Whole numbers grow from one type into the next.
_GROWING: Final = (INT16, UINT16, INT32)


def compile_reader(shape: Shape, tools: Tools) -> ContainerReader:
    """A reader of containers of ``shape``, which holds as many sights as there are to learn from.

    It raises ``UnusualError``, and on damaged data ``DecodeError``, ``IndexError``, ``struct.error`` or
    ``ValueError``.
    """
    kinds = [
        [kind for kind, _ in Counter(column).most_common()] for column in zip(*shape.sights, strict=True)
    ]
    namespace: dict[str, object] = {
        "unpack": struct.Struct(_format(shape, len(kinds))).unpack_from,
        "StructError": struct.error,
        "Unusual": UnusualError,
        "ENTRIES": shape.key_entries,
        "TEXT": shape.text,
        "LITERALS": LITERALS,
        "other": tools.containers[SMALL_ARRAY if shape.keys is None else SMALL_OBJECT],
        "value": tools.value,
        "opaque": tools.opaque,
        **{f"unpack_{kind}": unpack for kind, (_, unpack) in NUMBERS.items()},
        **{f"key_{index}": key for index, key in enumerate(shape.keys or ())},
    }
    lines = [*_head(shape, len(kinds))]
    if not tools.containers.keys().isdisjoint(itertools.chain(*kinds)):
        # A container that holds no other need not look: who called it has.
        lines += (f"    if depth >= {MAX_DEPTH}:", "        raise Unusual")
    for index in reversed(range(len(kinds))):
        branches = _branches(kinds[index], index, tools, namespace)
        lines += (f"    {line}" for line in _value(branches, index, shape.values_start))
    lines += _result(shape, len(kinds))
    code = compile("\n".join(lines), "<json reader>", "exec")
    exec(code, namespace)  # the text is made of our own words only
    reader: ContainerReader = namespace["read"]  # type: ignore[assignment]
    return reader


def _format(shape: Shape, count: int) -> str:
    """Count, size, key entries, value entries, the text of the keys."""
    values = "BH" * count
    if shape.keys is None:
        return f"<HH{values}"
    gap = shape.text_start - 4 - 7 * count
    return f"<HH{len(shape.key_entries)}s{values}{gap}x{len(shape.text)}s"


def _head(shape: Shape, count: int) -> Iterator[str]:
    values = ", ".join(f"t{index}, o{index}" for index in range(count))
    targets = f"count, limit, {values}" if shape.keys is None else f"count, limit, entries, {values}, text"
    same_keys = "" if shape.keys is None else "entries != ENTRIES or text != TEXT or "
    yield "def read(data, depth):"
    yield "    try:"
    yield f"        {targets} = unpack(data)"
    yield "    except StructError:"
    yield "        return other(data, depth)"
    yield f"    if count != {count} or {same_keys}limit > len(data):"
    yield "        return other(data, depth)"


def _result(shape: Shape, count: int) -> Iterator[str]:
    yield f"    if limit < {shape.values_start}:"
    yield "        raise Unusual"
    if shape.keys is None:
        yield f"    return [{', '.join(f'v{index}' for index in range(count))}]"
    else:
        yield f"    return {{{', '.join(f'key_{index}: v{index}' for index in range(count))}}}"


def _branches(
    kinds: Sequence[int], index: int, tools: Tools, namespace: dict[str, object]
) -> Iterator[tuple[int, _Branch]]:
    """For each type that a value was seen to have, the most frequent first, how it is read."""
    if not set(kinds).isdisjoint(_GROWING):
        kinds = [*kinds, *(kind for kind in _GROWING if kind not in kinds)]
    inner_kind, inner = tools.inner.get(index, (None, None))
    for kind in kinds:
        if kind in tools.containers:
            namespace[f"container_{kind}_{index}"] = inner if kind == inner_kind else tools.containers[kind]
        elif kind == inner_kind and isinstance(inner, OpaqueForm):
            namespace |= {f"head_{index}": inner.head, f"opaque_{index}": inner.read}
            # The sizes are put in here, the rest with all the others.
            words = {"i": "{i}", "head_size": len(inner.head), "size": inner.size}
            condition, statements = _KNOWN_OPAQUE
            yield kind, (condition.format(**words), tuple(line.format(**words) for line in statements))
        if kind in _BRANCHES:
            yield kind, _BRANCHES[kind]


def _value(branches: Iterable[tuple[int, _Branch]], index: int, floor: int) -> Iterator[str]:
    word = "if"
    for kind, (condition, statements) in branches:
        yield f"{word} t{index} == {kind}{condition.format(i=index, floor=floor)}:"
        yield from (f"    {statement.format(i=index, floor=floor)}" for statement in statements)
        word = "elif"
    any_value = _ANY_VALUE.format(i=index, floor=floor)
    if word == "if":
        yield any_value
    else:
        yield "else:"
        yield f"    {any_value}"
