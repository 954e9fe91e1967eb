"""The texts of many JSON documents whose bytes are laid out alike: one comparison of all bytes finds their values.

Documents with values of the same sizes differ in the bytes of these values alone. One document is walked through;
others of its size are compared with it, without the bytes of the values. Where nothing else differs, each value is at
the same place in all of them:

    {"id": 7, "name": "oak"}    ->    `{"id": ` + the number at 17 + `, "name": "` + 3 bytes from 20 on + `"}`

Layouts with the same names, order and types are a plan; documents of one plan are put together at once, by a table of
places for each layout. A document of 40 values and 550 bytes takes 1.4 us here, and 1.9 in ``document_batches``,
which reads all documents that have no layout.
"""

from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.errors import DecodeError
from protocol.records import field, record
from protocol.values.jsonb import (
    DOUBLE,
    INT16,
    INT64,
    LITERAL,
    NUMBERS,
    OPAQUE,
    STRING,
    TEMPORAL_SIZE,
    UINT16,
    UINT64,
)
from protocol.values.jsonb_walk import UNLIKE, DocumentWalk, UnlikeError

from .arrays import different
from .buffer import Flags, Positions, RowBuffer, Unsigned
from .json_numbers import (
    STORED_NUMBERS,
    TEMPORAL_KINDS,
    decimal_texts,
    double_texts,
    integer_texts,
    temporal_texts,
    writes_decimal,
)
from .json_strings import WORDS, Texts, escaped, string_texts, word_texts
from .text_parts import Parts, joined

# With fewer documents, one by one takes less time.
FEWEST_DOCUMENTS: Final = 48
# With fewer documents of one size, none is compared with the layouts.
_FEWEST_ALIKE: Final = 4
# Layouts made before any document has fitted, and fitting documents that allow one more: making one takes 200 us.
_ALLOWANCE: Final = 8
_HITS_PER_LAYOUT: Final = 256
# After so many documents layouts are given up, unless at least this share of the documents had one.
_PATIENCE: Final = 8192
_LEAST_SHARE: Final = 0.5
_KEPT: Final = 256
_KEPT_OF_A_SIZE: Final = 4
_MOST_BYTES: Final = 1 << 13
# Bytes of documents compared at once, which stay in the processor's cache.
_COMPARED_BYTES: Final = 1 << 18
_INLINED: Final = {INT16: np.int16, UINT16: np.uint16}
_DTYPES: Final = {**STORED_NUMBERS, **_INLINED, DOUBLE: np.float64}
_INTEGERS: Final = frozenset(_DTYPES) - {UINT64, DOUBLE}

# A literal text, or the number of a value.
_Part = bytes | int


class _UnlikeValuesError(Exception):
    """Documents of a plan have values that only another reader can read."""


@record(slots=True, eq=False)
class _Plan:
    """The parts of documents of some layouts; ``kinds`` has type and head of each value.

    All whole numbers that fit a signed 64-bit number have the type INT64. ``offsets``, ``lengths`` and ``types``
    hold, by the number of the layout, the offset, length and type of each value in its documents.
    """

    parts: tuple[_Part, ...]
    kinds: tuple[tuple[int, bytes], ...]
    offsets: list[list[int]] = field(default_factory=list)
    lengths: list[list[int]] = field(default_factory=list)
    types: list[list[int]] = field(default_factory=list)


@record(frozen=True, slots=True, eq=False)
class _Layout:
    """``expected`` has a document's words, masked with ``mask``; ``number`` is the layout's number in its plan."""

    mask: Unsigned
    expected: Unsigned
    plan: _Plan
    number: int

    def fits(self, buffer: RowBuffer, starts: Positions) -> Flags:
        """Which documents have this layout."""
        size = self.mask.nbytes
        fitting = np.empty(len(starts), np.bool_)
        step = max(_COMPARED_BYTES // size, 1)
        for begin in range(0, len(starts), step):
            words = buffer.pieces(size, starts[begin : begin + step]).view(np.uint64)
            words &= self.mask
            is_other = words != self.expected
            np.logical_not(is_other.any(axis=1), out=fitting[begin : begin + step])
        return fitting


# Documents of one plan: their indexes, and the numbers of their layouts.
Group = tuple[_Plan, Positions, Positions]


class DocumentLayouts:
    """The layouts of a column's documents."""

    def __init__(self) -> None:
        self._is_over = False
        self._by_size: dict[int, list[_Layout]] = {}
        self._plans: dict[object, _Plan] = {}
        self._made = self._seen = self._hits = 0

    def groups(self, buffer: RowBuffer, starts: Positions, ends: Positions) -> list[Group]:
        """The documents between these places that have a layout, by their plans."""
        if self._is_over:
            return []
        groups = self._groups(buffer, starts, ends)
        self._judge(len(starts), sum(len(rows) for _, rows, _ in groups))
        return groups

    def _judge(self, seen: int, hits: int) -> None:
        self._seen += seen
        self._hits += hits
        if self._seen >= _PATIENCE:
            self._is_over = self._hits < _LEAST_SHARE * self._seen
            self._made = self._seen = self._hits = 0

    def _groups(self, buffer: RowBuffer, starts: Positions, ends: Positions) -> list[Group]:
        sizes = ends - starts
        counts = np.bincount(sizes[(sizes > 0) & (sizes < _MOST_BYTES)])
        found: dict[int, tuple[_Plan, list[Positions], list[Positions]]] = {}
        for size in np.flatnonzero(counts >= _FEWEST_ALIKE).tolist():
            if counts[size] < FEWEST_DOCUMENTS and size not in self._by_size:
                continue
            for layout, rows in self._alike(buffer, starts, np.flatnonzero(sizes == size), size):
                _, all_rows, numbers = found.setdefault(id(layout.plan), (layout.plan, [], []))
                all_rows.append(rows)
                numbers.append(np.full(len(rows), layout.number))
        groups = [_in_order(*group) for group in found.values()]
        return [group for group in groups if len(group[1]) >= FEWEST_DOCUMENTS]

    def _alike(
        self, buffer: RowBuffer, starts: Positions, rows: Positions, size: int
    ) -> list[tuple[_Layout, Positions]]:
        """Documents of one size by their layouts. The first document that fits no layout may become a new one."""
        found = []
        known = self._by_size.get(size, [])
        tried = 0
        while len(rows) >= _FEWEST_ALIKE and tried < _KEPT_OF_A_SIZE:
            if tried == len(known) and len(rows) < FEWEST_DOCUMENTS:
                break
            if tried == len(known):
                start = int(starts[rows[0]])
                layout = self._new(buffer.data[start : start + size])
                if layout is None:
                    break
                known = self._by_size.setdefault(size, [])
                known.append(layout)
            is_like = known[tried].fits(buffer, starts[rows])
            if is_like.any():
                found.append((known[tried], rows[is_like]))
                rows = rows[~is_like]
            tried += 1
        return found

    def _new(self, data: bytes) -> _Layout | None:
        if self._made >= _ALLOWANCE + self._hits // _HITS_PER_LAYOUT:
            return None
        self._made += 1
        try:
            walk = _Walk(data)
        except UNLIKE:
            return None
        if sum(map(len, self._by_size.values())) >= _KEPT:
            self._by_size.clear()
            self._plans.clear()
        key = walk.parts, walk.kinds
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _Plan(*key)
        plan.offsets.append([start for start, _ in walk.places])
        plan.lengths.append([length for _, length in walk.places])
        plan.types.append(walk.types)
        mask = walk.mask()
        padded = np.frombuffer(data.ljust(mask.nbytes, b"\0"), np.uint64)
        return _Layout(mask, padded & mask, plan, len(plan.offsets) - 1)


def _in_order(plan: _Plan, rows: Sequence[Positions], numbers: Sequence[Positions]) -> Group:
    all_rows, all_numbers = np.concatenate(rows), np.concatenate(numbers)
    order = np.argsort(all_rows)
    return plan, all_rows[order], all_numbers[order]


def group_texts(buffer: RowBuffer, groups: Sequence[Group], starts: Positions) -> Iterator[Texts]:
    """The texts of the documents of these groups, except groups with values that only another reader can read."""
    for plan, rows, numbers in groups:
        try:
            parts = _Values(buffer, plan, starts[rows], numbers).parts()
        except (_UnlikeValuesError, DecodeError):
            continue
        yield Texts(rows, joined(parts, len(rows)))


class _Walk(DocumentWalk[list[_Part]]):
    """Finds the parts of a document: ``parts`` and ``kinds`` of a plan, ``places`` and ``types`` of its values."""

    def __init__(self, data: bytes) -> None:
        self._kinds: list[tuple[int, bytes]] = []
        self.types: list[int] = []
        super().__init__(data)
        self.parts = tuple(self._walked)
        self.kinds = tuple(self._kinds)
        self.places = self._values

    def mask(self) -> Unsigned:
        """Ones for the bytes between the values, as words."""
        mask = np.zeros(-(-len(self._data) // 8) * 8, np.uint8)
        for start, size in self._fixed:
            mask[start : start + size] = 0xFF
        return mask.view(np.uint64)

    def _known(self, at: int, size: int, kind: int, head: bytes = b"") -> int:
        self._kinds.append((INT64 if kind in _INTEGERS else kind, head))
        self.types.append(kind)
        return self._piece(at, size)

    def _object(self, keys: Sequence[str], values: Sequence[list[_Part]]) -> list[_Part]:
        parts: list[_Part] = [b"{"]
        for number, (key, value) in enumerate(zip(keys, values, strict=True)):
            parts += [(b", " if number else b"") + encode_basestring(key).encode() + b": ", *value]
        return [*parts, b"}"]

    def _array(self, values: Sequence[list[_Part]]) -> list[_Part]:
        parts: list[_Part] = [b"["]
        for number, value in enumerate(values):
            parts += [b", ", *value] if number else value
        return [*parts, b"]"]

    def _number(self, kind: int, at: int) -> list[_Part]:
        return [self._known(at, NUMBERS[kind][0] if kind in NUMBERS else 2, kind)]

    def _string(self, at: int, size: int) -> list[_Part]:
        return [b'"', self._known(at, size, STRING), b'"']

    def _decimal(self, at: int, head: bytes) -> list[_Part]:
        if not writes_decimal(head[2], head[3]):
            raise UnlikeError
        return [self._known(at, head[1] - 2, OPAQUE, head)]

    def _temporal(self, at: int, kind: int) -> list[_Part]:
        if kind not in TEMPORAL_KINDS:
            raise UnlikeError
        return [b'"', self._known(at, TEMPORAL_SIZE, OPAQUE, bytes([kind])), b'"']


class _Values:
    """The values of documents of one plan. Raises ``_UnlikeValuesError`` and ``DecodeError``."""

    def __init__(self, buffer: RowBuffer, plan: _Plan, starts: Positions, numbers: Positions) -> None:
        self._buffer = buffer
        self._plan = plan
        self._count = len(starts)
        used = different(numbers)
        self._layout = np.searchsorted(used, numbers)
        # By value, then by document.
        offsets, lengths, self._types = (
            np.array([by_layout[number] for number in used.tolist()]).T
            for by_layout in (plan.offsets, plan.lengths, plan.types)
        )
        if len(used) > 1:
            offsets, lengths = offsets[:, self._layout], lengths[:, self._layout]
        self._start, self._length = offsets + starts, lengths

    def parts(self) -> Parts:
        """The parts of the documents' texts."""
        texts = {
            **self._numbers(INT64, np.int64, integer_texts),
            **self._numbers(UINT64, np.uint64, integer_texts),
            **self._numbers(DOUBLE, np.float64, double_texts),
            **self._strings(),
        }
        for number, (kind, head) in enumerate(self._plan.kinds):
            start = self._start[number]
            if kind == LITERAL:
                texts[number] = self._words(start)
            elif kind == OPAQUE and len(head) > 1:
                texts[number] = self._decimals(start, head)
            elif kind == OPAQUE:
                texts[number] = self._temporals(start, head[0])
        return [part if isinstance(part, bytes) else texts[part] for part in self._plan.parts]

    def _chosen(self, family: int) -> list[int]:
        return [number for number, (kind, _) in enumerate(self._plan.kinds) if kind == family]

    def _numbers(
        self, family: int, dtype: type[np.generic], write: Callable[[Any], pa.Array]
    ) -> dict[int, pa.Array | bytes]:
        """The texts of all numbers of a type, made at once."""
        chosen = self._chosen(family)
        if not chosen:
            return {}
        numbers = np.empty((len(chosen), self._count), dtype)
        for row, number in zip(numbers, chosen, strict=True):
            self._read(number, row)
        return self._by_number(chosen, write(numbers.ravel()))

    def _by_number(self, chosen: Sequence[int], texts: pa.Array) -> dict[int, pa.Array | bytes]:
        return {number: texts.slice(place * self._count, self._count) for place, number in enumerate(chosen)}

    def _read(self, number: int, found: npt.NDArray[Any]) -> None:
        """Read the numbers at one place of the documents; some layouts may have them in fewer bytes."""
        types = self._types[number]
        for kind in set(types.tolist()):
            numbers: npt.NDArray[Any] = self._buffer.numbers(_DTYPES[kind])
            if (types == kind).all():
                found[:] = numbers[self._start[number]]
            else:
                rows = np.flatnonzero((types == kind)[self._layout])
                found[rows] = numbers[self._start[number, rows]]

    def _strings(self) -> dict[int, pa.Array | bytes]:
        """All strings. Those that differ between documents are taken at once."""
        texts: dict[int, pa.Array | bytes] = {}
        differing = []
        for number in self._chosen(STRING):
            text = self._common(number)
            if text is None:
                differing.append(number)
            else:
                texts[number] = escaped(text)
        if not differing:
            return texts
        start = self._start[differing]
        length = np.broadcast_to(self._length[differing], start.shape)
        found = string_texts(self._buffer, start.ravel(), (start + length).ravel())
        return texts | self._by_number(differing, found)

    def _common(self, number: int) -> bytes | None:
        """The string that all documents have here, such as a kind; None if they differ.

        Comparing it takes 7 ns a document; copying it and putting it between two other parts takes 24.
        """
        start, size = self._start[number], int(self._length[number, 0])
        if (self._length[number] != size).any():
            return None
        some = {
            self._buffer.data[place : place + size] for place in start[:: max(self._count // 4, 1)].tolist()
        }
        if len(some) > 1:
            return None
        [text] = some
        is_common = not size or (self._buffer.pieces(size, start) == np.frombuffer(text, np.uint8)).all()
        return text if is_common else None

    def _words(self, start: Positions) -> pa.Array | bytes:
        chosen = self._buffer.numbers(np.uint16)[start]
        if chosen.max() >= len(WORDS):
            raise _UnlikeValuesError
        return word_texts(chosen)

    def _decimals(self, start: Positions, head: bytes) -> pa.Array:
        texts = decimal_texts(self._buffer, start, head[2], head[3])
        if texts is None:
            raise _UnlikeValuesError
        return texts

    def _temporals(self, start: Positions, kind: int) -> pa.Array:
        found = temporal_texts(kind, self._buffer, start)
        if found is None:
            raise _UnlikeValuesError
        texts, is_right = found
        if not is_right.all():
            raise _UnlikeValuesError
        return texts
