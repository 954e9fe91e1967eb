"""``DocumentWalk`` goes through one JSON document and notes which bytes are values, and which say where these are.

Documents whose other bytes are equal have their values at the same places. ``jsonb_layouts`` makes Python's objects
of such documents, ``replica.arrow.document_layouts`` the texts of many at once. A walk reads small containers only,
the ones of up to 64 KB, and is not fast.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from ..constants import ColumnType
from ..errors import DecodeError
from .jsonb import (
    INT16,
    LITERAL,
    NUMBERS,
    OPAQUE,
    SMALL,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    TEMPORAL_SIZE,
    TEMPORALS,
    UINT16,
    json_decimal_size,
    variable_length,
)

# What a walk makes of a value.
Made = TypeVar("Made")

_MAX_SIZE: Final = 1 << 13
_MAX_VALUES: Final = 128
_MAX_LEVELS: Final = 16
_DECIMAL_HEAD: Final = 4
_TEMPORAL_HEAD: Final = 2
# A container's count and size, or a key's offset and length.
_unpack_pair: Final = SMALL.read_head
_unpack_entry = struct.Struct("<BH").unpack_from


class UnlikeError(Exception):
    """A document of which no layout is made."""


#: What a walk raises for documents that it does not read, damaged ones among them.
UNLIKE: Final = (UnlikeError, DecodeError, IndexError, ValueError, struct.error)


class DocumentWalk(Generic[Made]):
    """A subclass says what becomes of each value; ``_walked`` is what became of the document.

    Raises one of ``UNLIKE`` for a document that is not made of small containers, or has values in unusual places.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._count = 0
        # Start and size of each value, and of what lies between the values and says where they are.
        self._values: list[tuple[int, int]] = []
        self._fixed: list[tuple[int, int]] = []
        if not 0 < len(data) <= _MAX_SIZE or data[0] not in (SMALL_OBJECT, SMALL_ARRAY):
            raise UnlikeError
        self._fixed.append((0, 1))
        self._walked = self._container(data[0], 1, len(data), 1)
        end = 0
        for start, size in sorted(self._values + self._fixed):
            if start < end:
                raise UnlikeError
            end = start + size

    # ----------------------------------------------------------------------------- what becomes of a value

    def _object(self, keys: Sequence[str], values: Sequence[Made]) -> Made:
        raise NotImplementedError

    def _array(self, values: Sequence[Made]) -> Made:
        raise NotImplementedError

    def _number(self, kind: int, at: int) -> Made:
        """A number, or a literal's number, which has two bytes, as INT16 and UINT16 have."""
        raise NotImplementedError

    def _string(self, at: int, size: int) -> Made:
        raise NotImplementedError

    def _decimal(self, at: int, head: bytes) -> Made:
        """The digits of a DECIMAL: size, precision and scale are in ``head``."""
        raise NotImplementedError

    def _temporal(self, at: int, kind: int) -> Made:
        raise NotImplementedError

    # --------------------------------------------------------------------------------------------- the walk

    def _piece(self, start: int, size: int) -> int:
        """Note a value's bytes; their number."""
        self._values.append((start, size))
        return len(self._values) - 1

    def _fix(self, start: int, end: int) -> None:
        """These bytes are between the values."""
        self._fixed.append((start, end - start))

    def _container(self, kind: int, start: int, limit: int, depth: int) -> Made:
        data = self._data
        is_object = kind == SMALL_OBJECT
        count, size = _unpack_pair(data, start)
        values_at = start + 4 + (4 * count if is_object else 0)
        end = start + size
        if depth > _MAX_LEVELS or end > limit or values_at + 3 * count > end:
            raise UnlikeError
        self._fix(start, values_at)
        values = [self._value(start, values_at + 3 * number, end, depth) for number in range(count)]
        if not is_object:
            return self._array(values)
        keys = list(self._keys(start, count, end))
        if len(set(keys)) != count:
            raise UnlikeError
        return self._object(keys, values)

    def _keys(self, start: int, count: int, limit: int) -> Iterator[str]:
        for number in range(count):
            offset, length = _unpack_pair(self._data, start + 4 + 4 * number)
            if start + offset + length > limit:
                raise UnlikeError
            self._fix(start + offset, start + offset + length)
            yield self._data[start + offset : start + offset + length].decode()

    def _value(self, start: int, entry: int, limit: int, depth: int) -> Made:
        """One value; its entry is at ``entry``, and offsets count from ``start``."""
        data = self._data
        kind, stored = _unpack_entry(data, entry)
        self._count += 1
        if self._count > _MAX_VALUES:
            raise UnlikeError
        self._fix(entry, entry + 1)
        if kind in (LITERAL, INT16, UINT16):
            return self._number(kind, entry + 1)
        at = start + stored
        self._fix(entry + 1, entry + 3)
        if kind in NUMBERS:
            if at + NUMBERS[kind][0] > limit:
                raise UnlikeError
            return self._number(kind, at)
        if kind == STRING:
            first, size = variable_length(data, at, limit)
            if first + size > limit:
                raise UnlikeError
            self._fix(at, first)
            return self._string(first, size)
        if kind == OPAQUE:
            return self._opaque(at, limit)
        if kind in (SMALL_OBJECT, SMALL_ARRAY):
            return self._inner(kind, at, limit, depth)
        raise UnlikeError

    def _inner(self, kind: int, at: int, limit: int, depth: int) -> Made:
        """A container in another one."""
        return self._container(kind, at, limit, depth + 1)

    def _opaque(self, at: int, limit: int) -> Made:
        """A DECIMAL, date or time: what says so is between the values."""
        head = self._data[at : at + _DECIMAL_HEAD]
        if len(head) < _DECIMAL_HEAD:
            raise UnlikeError
        if head[0] == ColumnType.NEWDECIMAL:
            size, precision, scale = head[1:]
            if size != json_decimal_size(precision, scale) or at + _TEMPORAL_HEAD + size > limit:
                raise UnlikeError
            self._fix(at, at + _DECIMAL_HEAD)
            return self._decimal(at + _DECIMAL_HEAD, head)
        if (
            head[0] not in TEMPORALS
            or head[1] != TEMPORAL_SIZE
            or at + _TEMPORAL_HEAD + TEMPORAL_SIZE > limit
        ):
            raise UnlikeError
        self._fix(at, at + _TEMPORAL_HEAD)
        return self._temporal(at + _TEMPORAL_HEAD, head[0])
