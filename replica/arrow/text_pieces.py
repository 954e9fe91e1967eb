"""Texts put together from many pieces at once, by Arrow: places in one run of bytes -> bytes one behind the other.

A ``TextPool`` holds the bytes that pieces come from: what was read, and what was made besides. This module knows
nothing of what the texts mean; ``document_batches`` writes JSON with it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.records import record

from .arrays import numbers_array
from .buffer import Bytes, Positions


@record(frozen=True, slots=True, eq=False)
class Pieces:
    """One piece for each row, from ``start`` to ``end`` of a pool. ``marks``: as ``Joined`` has them."""

    start: Positions
    end: Positions
    marks: int = 0


@record(frozen=True, slots=True, eq=False)
class Joined:
    """Texts one behind the other, and the length of each. ``marks``: the quotes and backslashes in all literals."""

    data: pa.Buffer
    lengths: Positions
    marks: int

    @property
    def needs_escapes(self) -> bool:
        """Whether pieces that are no literals have quotes, backslashes or control characters."""
        data = as_bytes(self.data)
        marks = np.count_nonzero(data == _QUOTE) + np.count_nonzero(data == _BACKSLASH)
        return bool(marks != self.marks or (data < _SPACE).any())


_QUOTE, _BACKSLASH, _SPACE = ord('"'), ord("\\"), ord(" ")

# What a text consists of: pieces that differ from row to row, and bytes that are the same in all rows.
Parts = Sequence[Pieces | bytes]


class TextPool:
    """The bytes that pieces refer to: ``data``, and what is added behind."""

    __slots__ = ("_joined", "_literals", "_parts", "_size")

    def __init__(self, data: bytes) -> None:
        self._parts: list[bytes | pa.Buffer] = [data]
        self._size = len(data)
        self._literals: dict[bytes, int] = {}
        self._joined: bytes | None = data

    def add(self, data: bytes | pa.Buffer, lengths: npt.NDArray[np.integer], marks: int = 0) -> Pieces:
        """Add pieces of these lengths, which lie in ``data`` without gaps."""
        end = np.cumsum(lengths, dtype=np.int64) + self._append(data)
        return Pieces(end - lengths, end, marks)

    def replaced(self, pieces: Pieces, rows: Positions, texts: Sequence[bytes]) -> Pieces:
        """The pieces with these texts at these rows; literals are not among them."""
        start, end = pieces.start.copy(), pieces.end.copy()
        added = self.add(b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts)))
        start[rows], end[rows] = added.start, added.end
        return Pieces(start, end)

    def add_array(self, array: pa.Array) -> Pieces:
        """Add the strings of an array without nulls that is no slice of another."""
        _, offsets, data = array.buffers()
        edges = np.frombuffer(offsets, np.int32, len(array) + 1)
        return self.add(data or b"", np.diff(edges))

    def add_arrays(self, arrays: Sequence[tuple[Positions, pa.Array]], count: int) -> Pieces:
        """Add ``count`` strings that are in several arrays, each with the indexes of its strings."""
        if len(arrays) == 1:
            return self.add_array(arrays[0][1])
        start, end = np.empty(count, np.int64), np.empty(count, np.int64)
        for rows, array in arrays:
            added = self.add_array(array)
            start[rows], end[rows] = added.start, added.end
        return Pieces(start, end)

    def literals(self, texts: Sequence[bytes], chosen: npt.NDArray[np.integer]) -> Pieces:
        """For each row the text that ``chosen`` has the number of."""
        places = [self._literal(text) for text in texts]
        start = np.array(places, np.int64)[chosen]
        return Pieces(start, start + np.array([len(text) for text in texts], np.int64)[chosen])

    def joined(self, parts: Parts, rows: int) -> Joined:
        """The texts of so many rows one behind the other."""
        parts = merged(parts)
        edges, pairs = _edges(rows, len(parts))
        lengths, marks = np.zeros(rows, np.int64), 0
        for column, part in enumerate(parts):
            if isinstance(part, Pieces):
                pairs[:, column, 0], pairs[:, column, 1] = part.start, part.end
                lengths += part.end - part.start
                marks += part.marks
            else:
                place = self._literal(part)
                pairs[:, column] = place, place + len(part)
                lengths += len(part)
                marks += rows * (part.count(b'"') + part.count(b"\\"))
        return Joined(_taken(self._data(), edges, int(lengths.sum())), lengths, marks)

    def _append(self, data: bytes | pa.Buffer) -> int:
        place = self._size
        self._parts.append(data)
        self._size += len(data)
        self._joined = None
        return place

    def _literal(self, text: bytes) -> int:
        place = self._literals.get(text)
        if place is None:
            place = self._literals[text] = self._append(text)
        return place

    def _data(self) -> bytes:
        if self._joined is None:
            self._joined = b"".join(self._parts)
            self._parts = [self._joined]
        return self._joined


def taken(data: bytes, pieces: Pieces) -> pa.Buffer:
    """The bytes of pieces of ``data`` one behind the other, in this order."""
    edges, pairs = _edges(len(pieces.start), 1)
    pairs[:, 0, 0], pairs[:, 0, 1] = pieces.start, pieces.end
    return _taken(data, edges, int((pieces.end - pieces.start).sum()))


def _edges(rows: int, parts: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The offsets of an array whose every other value is a piece, and a view of them: row, part, start and end."""
    edges = np.empty(2 * rows * parts + 2, np.int32)
    return edges, edges[1:-1].reshape(rows, parts, 2)


def _taken(data: bytes, edges: npt.NDArray[np.int32], size: int) -> pa.Buffer:
    """The bytes of pieces, ``size`` together. The values between them are never looked at."""
    # From the first and the last offset Arrow guesses the size of its result: a mean value's size by their number.
    edges[0], edges[-1] = 0, min(2 * size + len(edges), len(data))
    count = len(edges) - 1
    everything = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    found = everything.take(numbers_array(np.arange(1, count, 2)))
    return found.buffers()[2] or pa.py_buffer(b"")


def merged(parts: Parts) -> list[Pieces | bytes]:
    """The parts with neighbouring bytes as one."""
    found: list[Pieces | bytes] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def as_bytes(data: pa.Buffer) -> Bytes:
    """The bytes of a buffer, without a copy."""
    return np.frombuffer(data, np.uint8)


def to_escape(data: pa.Buffer) -> Positions:
    """The places of quotes, backslashes and control characters."""
    data = as_bytes(data)
    return np.flatnonzero((data < _SPACE) | (data == _QUOTE) | (data == _BACKSLASH))
