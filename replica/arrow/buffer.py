"""The rows of many events as one run of bytes, and numbers read from many places of it at once.

This module knows neither rows nor columns. A numpy view with a stride of one byte has at each index the number that
begins at that byte. Indexing the view with positions gathers numbers without a loop in Python: 5 ns a number, where a
matrix of byte indexes takes 18.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[np.uint64]

_Number = TypeVar("_Number", bound=np.generic)
# Zeros after the data, as reads may go past the last value: a NULL has a place but no bytes, and BINARY lacks its
# trailing zeros (a table map has room for lengths up to 1023).
_PADDING = bytes(1024)


class RowBuffer:
    """``data`` is the given parts, joined, and zeros after them; ``size`` does not count these zeros."""

    __slots__ = ("_views", "data", "size")

    def __init__(self, parts: Iterable[bytes | memoryview]) -> None:
        self.data = b"".join((*parts, _PADDING))
        self.size = len(self.data) - len(_PADDING)
        self._views: dict[tuple[type, int], npt.NDArray[Any]] = {}

    def numbers(self, dtype: type[_Number], offset: int = 0) -> npt.NDArray[_Number]:
        """A view whose item i is the little-endian number that begins at byte i + ``offset``."""
        view = self._views.get((dtype, offset))
        if view is None:
            kind = np.dtype(dtype)
            count = len(self.data) - offset - kind.itemsize + 1
            view = np.ndarray((max(count, 0),), kind, self.data, offset, strides=(1,))
            self._views[dtype, offset] = view
        return view

    def pieces(self, size: int, where: Positions) -> Bytes:
        """The ``size`` bytes at each of these places (up to 1023 bytes behind the end), as the rows of a matrix."""
        count = len(self.data) - size + 1
        view = np.ndarray((count,), np.dtype(f"V{size}"), self.data, strides=(1,))
        return view[where].view(np.uint8).reshape(-1, size)

    def strided(self, dtype: type[_Number], where: range) -> npt.NDArray[_Number]:
        """A view of the numbers at equally spaced places."""
        return np.ndarray((len(where),), np.dtype(dtype), self.data, where.start, strides=(where.step,))
