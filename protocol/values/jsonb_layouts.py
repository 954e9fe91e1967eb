"""Reads JSON documents whose bytes are laid out as those of an earlier document, by two calls of ``struct``.

Documents of one shape often have values of the same sizes, too: ids, codes, hashes, times, numbers. Then all bytes
but those of the values are equal: types, offsets, keys, lengths of strings. One ``unpack`` takes these bytes out of a
document, and a comparison with those of the earlier document proves that the values are at the same places. A second
``unpack`` takes out the values, and one generated expression makes the document of them. For {"id": 7, "name": "oak",
"tags": [true]}:

    def build(values):
        [p0, p1, p2] = values
        return {k0: p0, k1: p1.decode(), k2: [LITERALS[p2]]}

A document of 40 values and 550 bytes takes 2.6 us in this way, and 4.7 us by the reader of its shape. Documents with
free text have another layout each: ``Layouts`` gives up a shape if few of its documents recur. It makes a layout,
which takes 90 us, when a size has come ``_SIGHTS`` times, and more of them only as the earlier ones save time.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any, Final

from ..records import record
from .jsonb import (
    INT16,
    LITERAL,
    LITERALS,
    NUMBER_CODES,
    NUMBERS,
    SMALL,
    TEMPORAL_SIZE,
    TEMPORALS,
    UINT16,
    JsonValue,
)
from .jsonb_walk import UNLIKE, DocumentWalk, UnlikeError
from .readers import decimal_reader

Build = Callable[[tuple[Any, ...]], JsonValue]
Unpack = Callable[[bytes], tuple[Any, ...]]
# Takes the bytes between the values, their contents, takes the values, makes the document, whose ``hits`` count.
Layout = tuple[Unpack, tuple[Any, ...], Unpack, Build, "_Account"]
# (data, depth) -> the container at the start of ``data``.
Read = Callable[[bytes, int], JsonValue]
# (type, data, at) -> the function that reads the container at ``at``, whose contents recur; None for others.
Recurring = Callable[[int, bytes, int], Read | None]

# Documents of one size before a layout is made of the last one.
_SIGHTS: Final = 16
# A layout takes some 6 KB.
_KEPT: Final = 256
_SHAPES_KEPT: Final = 256
_KEPT_OF_A_SIZE: Final = 4
# Layouts of a shape that may be made before the first hit, and hits that pay for one more.
_ALLOWANCE: Final = 8
_HITS_PER_LAYOUT: Final = 64
# Misses before the layouts are given up, unless there were so many hits for each.
_PATIENCE: Final = 1024
_HITS_PER_MISS: Final = 3
_SIZES_KEPT: Final = 1024
_CONTENTS_KEPT: Final = 64

# Numbers that are stored in the entries of their container, and their formats.
_INLINED: Final = {INT16: "h", UINT16: "H"}


@record(slots=True, eq=False)
class _Account:
    """What the layouts of one shape have saved, and cost; ``sizes`` counts its documents without a layout by size."""

    hits: int = 0
    misses: int = 0
    spent: int = 0
    sizes: dict[int, int] = field(default_factory=dict)


class Layouts:
    """The layouts of documents by their sizes; ``recurring`` finds readers of inner containers that recur."""

    def __init__(self, recurring: Recurring, others: Iterable[Read]) -> None:
        """``others`` are readers of documents of any shape: of these no layouts are made."""
        self.by_size: dict[int, list[Layout]] = {}
        #: Readers of shapes whose documents have no layouts: few of them recur.
        self.refused = set(others)
        self._recurring = recurring
        self._accounts: dict[Read, _Account] = {}
        self._builders: dict[object, Build] = {}

    def miss(self, data: bytes, read: Read) -> None:
        """Note a valid document that no layout fits; ``read`` is the reader of its shape."""
        account = self._accounts.get(read)
        if account is None:
            if len(self._accounts) >= _SHAPES_KEPT:
                oldest = next(iter(self._accounts))
                self._drop(self._accounts.pop(oldest))
            account = self._accounts[read] = _Account()
        account.misses += 1
        sights = account.sizes.get(len(data), 0) + 1
        account.sizes[len(data)] = sights
        if sights >= _SIGHTS and account.spent < _ALLOWANCE + account.hits // _HITS_PER_LAYOUT:
            account.sizes[len(data)] = 0
            self._add(data, account)
        if len(account.sizes) > _SIZES_KEPT:
            account.sizes.clear()
        if account.misses >= _PATIENCE:
            self._judge(account, read)

    def _judge(self, account: _Account, read: Read) -> None:
        """Begin a new account if layouts fit most documents, else give them up: a document costs what it did then."""
        if account.hits < _HITS_PER_MISS * account.misses:
            self.refused.add(read)
            self._drop(self._accounts.pop(read))
        account.hits = account.misses = account.spent = 0
        account.sizes.clear()

    def _drop(self, account: _Account) -> None:
        for size, layouts in list(self.by_size.items()):
            layouts[:] = [layout for layout in layouts if layout[-1] is not account]
            if not layouts:
                del self.by_size[size]

    def _add(self, data: bytes, account: _Account) -> None:
        account.spent += 1
        try:
            plan = _Plan(data, self._recurring)
        except UNLIKE:
            return
        build = self._builders.get(plan.key)
        if build is None:
            # To compile it takes as long as to make a layout.
            account.spent += 1
            if len(self._builders) >= _KEPT:
                self._builders.clear()
            build = self._builders[plan.key] = plan.builder()
        if sum(map(len, self.by_size.values())) >= _KEPT:
            self.by_size.pop(next(iter(self.by_size)))
        layouts = self.by_size.setdefault(len(data), [])
        layouts.insert(0, (*plan.layout(), build, account))
        del layouts[_KEPT_OF_A_SIZE:]


@record(slots=True, eq=False)
class _Names:
    """The objects that the generated text refers to, by their names; ``key`` tells equal ones."""

    objects: dict[str, object] = field(default_factory=lambda: {"LITERALS": LITERALS})
    key: list[object] = field(default_factory=list)

    def name(self, prefix: str, thing: object, key: object) -> str:
        name = f"{prefix}{len(self.objects)}"
        self.objects[name] = thing
        self.key.append(key)
        return name


class _Plan(DocumentWalk[str]):
    """Where the values of a document are, and the expression that makes the document of them.

    Raises one of ``UNLIKE`` for a document that is not made of small containers, or has values in unusual places.
    """

    def __init__(self, data: bytes, recurring: Recurring) -> None:
        self._recurring = recurring
        # The formats of the values.
        self._codes: list[str] = []
        self._names = _Names()
        super().__init__(data)
        self._ordered = sorted((start, size, number) for number, (start, size) in enumerate(self._values))
        names = "".join(f"p{number}, " for _, _, number in self._ordered)
        self._text = f"def build(values):\n    [{names}] = values\n    return {self._walked}\n"
        #: Plans with equal keys have equal builders.
        self.key = (self._text, tuple(self._names.key))

    def builder(self) -> Build:
        """Compile the function that makes the document of its values."""
        # The text holds no word of a document.
        exec(compile(self._text, "<json layout>", "exec"), self._names.objects)
        build: Build = self._names.objects["build"]  # type: ignore[assignment]
        return build

    def layout(self) -> tuple[Unpack, tuple[Any, ...], Unpack]:
        """Takes the bytes between the values; those of this document; takes the values."""
        between, values = ["<"], ["<"]
        end = 0
        for start, size, number in [*self._ordered, (len(self._data), 0, 0)]:
            gap = start - end
            if gap:
                between.append({1: "B", 2: "H"}.get(gap, f"{gap}s"))
                values.append(f"{gap}x")
            if size:
                between.append(f"{size}x")
                values.append(self._codes[number])
            end = start + size
        unpack = struct.Struct("".join(between)).unpack
        return unpack, unpack(self._data), struct.Struct("".join(values)).unpack

    def _name(self, start: int, size: int, code: str) -> str:
        """Note a value's bytes, and return the name that they get in the generated text."""
        self._codes.append(code)
        return f"p{self._piece(start, size)}"

    def _object(self, keys: Sequence[str], values: Sequence[str]) -> str:
        named = [self._names.name("k", key, key) for key in keys]
        return f"{{{', '.join(f'{key}: {value}' for key, value in zip(named, values, strict=True))}}}"

    def _array(self, values: Sequence[str]) -> str:
        return f"[{', '.join(values)}]"

    def _number(self, kind: int, at: int) -> str:
        if kind == LITERAL:
            return f"LITERALS[{self._name(at, 1, 'B')}]"
        return self._name(
            at, 2 if kind in _INLINED else NUMBERS[kind][0], _INLINED.get(kind) or NUMBER_CODES[kind]
        )

    def _string(self, at: int, size: int) -> str:
        return f"{self._name(at, size, f'{size}s')}.decode()" if size else "''"

    def _decimal(self, at: int, head: bytes) -> str:
        _, size, precision, scale = head
        name = self._names.name("f", decimal_reader(precision, scale), head)
        return f"{name}({self._name(at, size - 2, f'{size - 2}s')}, 0)"

    def _temporal(self, at: int, kind: int) -> str:
        name = self._names.name("f", TEMPORALS[kind], kind)
        return f"{name}({self._name(at, TEMPORAL_SIZE, f'{TEMPORAL_SIZE}s')}, 0)"

    def _inner(self, kind: int, at: int, limit: int, depth: int) -> str:
        read = self._recurring(kind, self._data, at)
        if read is None:
            return super()._inner(kind, at, limit, depth)
        size = SMALL.read_head(self._data, at)[1]
        if at + size > limit:
            raise UnlikeError
        known = self._names.name("f", _Recurring(read, depth + 1).value, read)
        return f"{known}({self._name(at, size, f'{size}s')})"


class _Recurring:
    """Containers of immutable values that are equal in most documents: read once, then copied."""

    def __init__(self, read: Read, depth: int) -> None:
        self._read = read
        self._depth = depth
        self._known: dict[bytes, Any] = {}

    def value(self, content: bytes) -> JsonValue:
        """A copy of the container in these bytes."""
        known: Any = self._known.get(content)
        if known is None:
            known = self._read(content, self._depth)
            if len(self._known) < _CONTENTS_KEPT:
                self._known[content] = known
        copy: JsonValue = known.copy()
        return copy
