"""Reads JSON documents whose bytes are laid out as those of an earlier document, by two calls of ``struct``.

Documents of one shape often have values of the same sizes, too: ids, codes, hashes, times, numbers. Then all bytes
but those of the values are equal: types, offsets, keys, lengths of strings, and values that never change. One
``unpack`` takes these bytes out of a document, and a comparison with those of the earlier document proves that the
values are at the same places. A second ``unpack`` takes out the values, and one generated expression makes the
document of them. For {"id": 7, "name": "oak", "version": "1.0", "tags": [true]}:

    def read(data, at, end):
        try:
            if between(data, at) == expected:
                account.hits += 1
                [p0, p1, p2] = values(data, at)
                return {k0: p0, k1: p1.decode(), k2: k3, k4: [LITERALS[p2]]}
        except UNUSUAL:
            return plain(data[at:end])
        return other(data, at, end)

A document of 40 values and 550 bytes takes 1.8 us in this way, and 4.7 us by the reader of its shape. Documents with
free text have another layout each: ``Layouts`` gives up a shape if few of its documents recur. It makes a layout,
which takes 150 us, when a size has come ``_SIGHTS`` times, and more of them only as the earlier ones save time.

The 1.8 us are near the least: 1.2 of them make the objects of the document from their parts. Without its date and its
decimal ``marshal`` takes 3.9 us to load the same document, ``json`` 4.7 and ``pickle`` 5.4. To read all documents of
a rows event in one pass of ``iter_unpack`` takes as long as one after the other.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, Final

from ..constants import ColumnType
from ..errors import DecodeError
from ..records import field, record
from .inline import Inline, SharedConstants, decimal, json_datetime
from .jsonb import (
    INT16,
    LITERAL,
    LITERALS,
    NUMBER_CODES,
    NUMBERS,
    OPAQUE,
    SMALL,
    STRING,
    TEMPORAL_SIZE,
    TEMPORALS,
    UINT16,
    JsonValue,
    decode_json,
)
from .jsonb_shapes import Shape, UnusualError
from .jsonb_walk import UNLIKE, DocumentWalk, UnlikeError
from .readers import decimal_reader

#: (data, at, end) -> the document in ``data[at:end]``.
ReadAt = Callable[[bytes, int, int], JsonValue]
# (data, depth) -> the container at the start of ``data``.
Read = Callable[[bytes, int], JsonValue]
# (type, data, at) -> the function that reads the container at ``at``, whose contents recur; None for others.
Recurring = Callable[[int, bytes, int], Read | None]

#: Errors of the fast readers, after which the plain decoder reads the document.
UNUSUAL: Final = (UnusualError, DecodeError, IndexError, ValueError, struct.error)

# How many documents of one size have to come before a layout is made of the last one; more if the shape is compiled,
# because then a layout saves less. Bytes of values that are equal in all of them become part of the layout.
_SIGHTS: Final = 8
_SIGHTS_OF_COMPILED: Final = 16
# How many documents of a shape, and how many of their bytes, have to come before the shape is noted: keys that are
# ids are new in each document, and making a layout of a small document takes as long as the loops take for a hundred
# of them. If many shapes are noted already, only compiled shapes replace others.
_FEW_SIGHTS: Final = 4
_FEW_BYTES: Final = 4096
# Bytes of documents that are kept to find values that never change; further documents are only counted.
_SIGHTS_BYTES: Final = 1 << 19
# A layout takes some 10 KB, and that of a document of 8 KB three times as much.
_KEPT: Final = 256
_SHAPES_KEPT: Final = 256
_KEPT_OF_A_SIZE: Final = 4
# Layouts of a shape that may be made before the first hit, and hits that pay for one more.
_ALLOWANCE: Final = 4
_HITS_PER_LAYOUT: Final = 64
# The layouts of a shape are given up after so many misses, unless there were so many hits for each miss.
_PATIENCE: Final = 1024
_HITS_PER_MISS: Final = 3
_SIZES_KEPT: Final = 1024
_CONTENTS_KEPT: Final = 64

# Numbers that are stored in the entries of their container, and their formats.
_INLINED: Final = {INT16: "h", UINT16: "H"}
_DATETIMES: Final = frozenset({ColumnType.DATETIME, ColumnType.TIMESTAMP})
_GAP_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_ANY: Final = bytes(map(bool, range(256)))
_from_bytes = int.from_bytes
_pack_parts = struct.Struct(f"<{json_datetime().code}").pack


@record(slots=True, eq=False)
class _Account:
    """What the layouts of one shape have saved, and cost; ``sights`` has its documents without a layout by size.

    ``sizes`` are the sizes of which it has had layouts.
    """

    hits: int = 0
    misses: int = 0
    spent: int = 0
    sights: dict[int, list[bytes]] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)


@record(frozen=True, slots=True, eq=False)
class _Layout:
    """The reader of documents of one layout, and the document of which it was made.

    ``differing`` has a bit that is set in each byte that is part of a value.
    """

    read: FunctionType
    account: _Account
    data: bytes
    differing: int


class Layouts:
    """The layouts of documents by their sizes: ``by_size`` has their readers."""

    def __init__(self, by_size: dict[int, ReadAt], recurring: Recurring, other: ReadAt) -> None:
        """``recurring`` finds readers of inner containers that recur, ``other`` reads documents without a layout."""
        self.by_size = by_size
        #: Shapes whose documents have no layouts: few of them recur.
        self.refused: set[Shape] = set()
        #: The layouts of documents of one size, in the order in which they are tried.
        self.layouts: dict[int, list[_Layout]] = {}
        self._recurring = recurring
        self._other = other
        self._accounts: dict[Shape, _Account] = {}
        self._readers: dict[object, FunctionType] = {}
        self._constants = SharedConstants()
        self._sights_bytes = 0
        by_size.clear()

    def miss(self, data: bytes, shape: Shape) -> None:
        """Note a valid document of this shape that no layout fits."""
        account = self._accounts.get(shape)
        if account is None:
            is_full = len(self._accounts) >= _SHAPES_KEPT
            if shape.reader is None and (is_full or not _is_frequent(data, len(shape.sights))):
                return
            if is_full:
                oldest = next(iter(self._accounts))
                self._drop(self._accounts.pop(oldest))
            account = self._accounts[shape] = _Account()
        account.misses += 1
        sights = account.sights.setdefault(len(data), [])
        if self._sights_bytes + len(data) <= _SIGHTS_BYTES:
            self._sights_bytes += len(data)
            sights.append(data)
        else:
            sights.append(b"")
        needed = _SIGHTS if shape.reader is None else _SIGHTS_OF_COMPILED
        if len(sights) >= needed and account.spent < _ALLOWANCE + account.hits // _HITS_PER_LAYOUT:
            self._add(data, account)
            self._forget(account, len(data))
        if len(account.sights) > _SIZES_KEPT:
            self._forget(account, *account.sights)
        if account.misses >= _PATIENCE:
            self._judge(account, shape)

    def _forget(self, account: _Account, *sizes: int) -> None:
        for size in sizes:
            self._sights_bytes -= sum(map(len, account.sights.pop(size)))

    def _judge(self, account: _Account, shape: Shape) -> None:
        """Begin counting again if layouts fit most documents; else give layouts up for this shape."""
        if account.hits < _HITS_PER_MISS * account.misses:
            self.refused.add(shape)
            self._drop(self._accounts.pop(shape))
        account.hits = account.misses = account.spent = 0
        self._forget(account, *account.sights)

    def _drop(self, account: _Account) -> None:
        self._forget(account, *account.sights)
        for size in account.sizes:
            known = self.layouts.get(size, [])
            self._put(size, [layout for layout in known if layout.account is not account])

    def _put(self, size: int, layouts: list[_Layout]) -> None:
        """Have these layouts of documents of one size."""
        other = self._other
        for layout in reversed(layouts):
            layout.read.__globals__["other"] = other
            other = layout.read
        if layouts:
            self.layouts[size], self.by_size[size] = layouts, other
        else:
            self.layouts.pop(size, None)
            self.by_size.pop(size, None)

    def _add(self, data: bytes, account: _Account) -> None:
        account.spent += 1
        size = len(data)
        known = self.layouts.get(size, [])
        differing = _differing(data, account.sights[size], known)
        try:
            plan = _Plan(data, differing, self._recurring, self._constants)
        except UNLIKE:
            return
        reader = self._readers.get(plan.key)
        if reader is None:
            # To compile it takes as long as to make a layout.
            account.spent += 1
            if len(self._readers) >= _KEPT:
                self._readers.clear()
            reader = self._readers[plan.key] = plan.reader()
        if sum(map(len, self.layouts.values())) >= _KEPT:
            self._put(next(iter(self.layouts)), [])
            known = self.layouts.get(size, [])
        # A copy of the code, because its caches of globals are for one function.
        read = FunctionType(
            reader.__code__.replace(), reader.__globals__ | plan.objects() | {"account": account}
        )
        # A value of an earlier layout has changed since.
        left = [layout for layout in known if not plan.fits(layout.data)]
        account.sizes.add(size)
        self._put(size, [_Layout(read, account, data, differing), *left][:_KEPT_OF_A_SIZE])


def _is_frequent(data: bytes, sights: int) -> bool:
    return sights >= _FEW_SIGHTS and sights * len(data) >= _FEW_BYTES


def _unusual(*_: object) -> JsonValue:
    raise UnusualError


def _parts_reader(kind: int) -> Callable[..., JsonValue]:
    """A reader of a temporal value from the numbers of its bytes."""
    read = TEMPORALS[kind]
    return lambda *parts: read(_pack_parts(*parts), 0)


@record(slots=True, eq=False)
class _Names:
    """The objects that the generated text refers to, by their names; ``key`` tells equal ones."""

    objects: dict[str, object] = field(
        default_factory=lambda: {"LITERALS": LITERALS, "UNUSUAL": UNUSUAL, "plain": decode_json}
    )
    key: list[object] = field(default_factory=list)

    def name(self, prefix: str, thing: object, key: object) -> str:
        name = f"{prefix}{len(self.objects)}"
        self.objects[name] = thing
        self.key.append(key)
        return name


@record(frozen=True, slots=True, eq=False)
class _Piece:
    """The format of a value's bytes, and the names of the numbers in it."""

    code: str
    names: str
    is_big_endian: bool = False


class _Plan(DocumentWalk[str]):
    """Where the values of a document are, and the function that makes the document of them.

    Values without a bit of ``differing`` are part of the layout. Raises one of ``UNLIKE`` for a document that is not
    made of small containers, or has values in unusual places.
    """

    def __init__(self, data: bytes, differing: int, recurring: Recurring, constants: SharedConstants) -> None:
        self._recurring = recurring
        self._constants = constants
        self._differing = differing.to_bytes(len(data), "little").translate(_ANY)
        self._pieces: list[_Piece] = []
        self._names = _Names()
        # Variables that keep their values from document to document.
        self._kept: list[str] = []
        super().__init__(data)
        self._ordered = sorted(
            (start, size, number, self._pieces[number]) for number, (start, size) in enumerate(self._values)
        )
        self._text = "\n".join(self._lines())
        #: Plans with equal keys have equal readers.
        self.key = (self._text, tuple(self._names.key))
        self._between = struct.Struct("".join(self._gaps())).unpack_from
        self._expected = self._between(data)

    def reader(self) -> FunctionType:
        """Compile the function that makes the document of its values; it lacks ``objects``."""
        # The text holds no word of a document.
        exec(compile(self._text, "<json layout>", "exec"), self._names.objects)
        reader: FunctionType = self._names.objects.pop("read")  # type: ignore[assignment]
        return reader

    def fits(self, data: bytes) -> bool:
        """Whether a document of the same size has this layout."""
        return self._between(data) == self._expected

    def objects(self) -> dict[str, object]:
        """Objects for generated code: getters of the bytes between values and of the values, and these bytes."""
        found: dict[str, object] = {"between": self._between, "expected": self._expected}
        for name, is_big_endian in _UNPACKS:
            codes, end = [">" if is_big_endian else "<"], 0
            for start, size, _, piece in self._ordered:
                if piece.is_big_endian == is_big_endian:
                    codes += (f"{start - end}x", piece.code)
                    end = start + size
            found[name] = struct.Struct("".join(codes)).unpack_from
        return found

    def _gaps(self) -> Iterator[str]:
        yield "<"
        end = 0
        for start, size in [*((start, size) for start, size, _, _ in self._ordered), (len(self._data), 0)]:
            gap = start - end
            if gap:
                yield _GAP_CODES.get(gap, f"{gap}s")
            yield f"{size}x"
            end = start + size

    def _lines(self) -> Iterator[str]:
        yield "def read(data, at, end):"
        if self._kept:
            yield f"    global {', '.join(self._kept)}"
        yield "    try:"
        yield "        if between(data, at) == expected:"
        yield "            account.hits += 1"
        for unpack, is_big_endian in _UNPACKS:
            pieces = [piece for _, _, _, piece in self._ordered if piece.is_big_endian == is_big_endian]
            if pieces:
                yield f"            [{', '.join(piece.names for piece in pieces)}] = {unpack}(data, at)"
        yield f"            return {self._walked}"
        yield "    except UNUSUAL:"
        yield "        return plain(data[at:end])"
        yield "    return other(data, at, end)"

    # ----------------------------------------------------------------------------- what becomes of a value

    def _object(self, keys: Sequence[str], values: Sequence[str]) -> str:
        named = [self._names.name("k", key, key) for key in keys]
        return f"{{{', '.join(f'{key}: {value}' for key, value in zip(named, values, strict=True))}}}"

    def _array(self, values: Sequence[str]) -> str:
        return f"[{', '.join(values)}]"

    def _number(self, kind: int, at: int) -> str:
        if kind == LITERAL:
            code, size = "B", 1
        else:
            code = _INLINED.get(kind) or NUMBER_CODES[kind]
            size = NUMBERS[kind][0]
        if self._is_constant(at, size):
            (number,) = struct.unpack_from(f"<{code}", self._data, at)
            return self._constant(kind, at, size, LITERALS[number] if kind == LITERAL else number)
        name = self._name(at, size, code)
        return f"LITERALS[{name}]" if kind == LITERAL else name

    def _string(self, at: int, size: int) -> str:
        if self._is_constant(at, size):
            return self._constant(STRING, at, size, self._data[at : at + size].decode())
        return f"{self._name(at, size, f'{size}s')}.decode()" if size else "''"

    def _decimal(self, at: int, head: bytes) -> str:
        _, size, precision, scale = head
        size -= 2
        if self._is_constant(at, size):
            return self._constant(OPAQUE, at, size, decimal_reader(precision, scale)(self._data, at))
        return self._inlined(at, size, decimal(precision, scale, in_any_context=True), _unusual, head)

    def _temporal(self, at: int, kind: int) -> str:
        if self._is_constant(at, TEMPORAL_SIZE):
            return self._constant(kind, at, TEMPORAL_SIZE, TEMPORALS[kind](self._data, at))
        if kind in _DATETIMES:
            return self._inlined(at, TEMPORAL_SIZE, json_datetime(), _parts_reader(kind), kind)
        name = self._names.name("f", TEMPORALS[kind], kind)
        return f"{name}({self._name(at, TEMPORAL_SIZE, f'{TEMPORAL_SIZE}s')}, 0)"

    def _inner(self, kind: int, at: int, limit: int, depth: int) -> str:
        read = self._recurring(kind, self._data, at)
        size = SMALL.read_head(self._data, at)[1]
        if read is None or self._is_constant(at, size):
            return super()._inner(kind, at, limit, depth)
        if at + size > limit:
            raise UnlikeError
        known = self._names.name("f", _Recurring(read, depth + 1).value, read)
        return f"{known}({self._name(at, size, f'{size}s')})"

    def _name(self, start: int, size: int, code: str, count: int = 1, is_big_endian: bool = False) -> str:
        """Note a value's bytes, and return the name that their first number gets in the generated text."""
        name = f"p{self._piece(start, size)}"
        names = [name, *(f"{name}_{number}" for number in range(1, count))]
        self._pieces.append(_Piece(code, ", ".join(names), is_big_endian))
        return name

    def _inlined(self, at: int, size: int, inline: Inline, function: object, key: object) -> str:
        """The expression of a value that needs no call; ``function`` reads other values of its kind."""
        name = self._name(at, size, inline.code, len(inline.code), inline.is_big_endian)
        words = {f"v{number}": f"{name}_{number}" for number in range(1, len(inline.code))}
        for number, constant in enumerate(inline.constants):
            made = self._constants.made(constant)
            words[f"c{number}"] = self._names.name("c", made, (key, number))
        for number in range(inline.kept):
            words[f"k{number}"] = kept = f"{name}_k{number}"
            self._kept.append(kept)
            self._names.objects[kept] = None
        known = self._names.name("f", function, key)
        return f"({inline.expression.format(v=name, f=known, p=0, **words)})"

    # ------------------------------------------------------------------------------- values that never change

    def _is_constant(self, at: int, size: int) -> bool:
        return not self._differing.count(1, at, at + size)

    def _constant(self, kind: int, at: int, size: int, value: JsonValue) -> str:
        self._fix(at, at + size)
        return self._names.name("k", value, (kind, self._data[at : at + size]))


# The calls that take values out of a document, and whether these are big-endian.
_UNPACKS: Final = (("values", False), ("big_endian", True))


def _differing(data: bytes, others: Sequence[bytes], layouts: Sequence[_Layout]) -> int:
    """Has bits in the bytes of a document that differ in others of its size, or do so by earlier layouts."""
    others = [other for other in others if other]
    if len(others) < _SIGHTS:
        return (1 << 8 * len(data)) - 1
    own = _from_bytes(data, "little")
    differing = 0
    for other in others:
        differing |= own ^ _from_bytes(other, "little")
    for layout in layouts:
        differing |= layout.differing | own ^ _from_bytes(layout.data, "little")
    return differing


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
