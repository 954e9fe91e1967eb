"""What the converters of columns have in common: from numpy arrays to Arrow arrays, and what could not be kept."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.errors import UnsupportedEventError

from .buffer import Flags
from .places import Places


class TooLargeError(UnsupportedEventError):
    """More than 2 GiB of values in one column of a batch; fewer rows may fit."""

    def __init__(self) -> None:
        super().__init__("more than 2 GiB of values in one column, which no Arrow array of these types holds")


# Offsets of Arrow's strings and lists have 32 bits.
MAX_BYTES = (1 << 31) - 1


@dataclass(slots=True)
class Losses:
    """Values that Arrow cannot hold as they are.

    ``dates`` are zero, partial and impossible dates, which are null; ``texts`` are strings with bytes that are no
    character of their set, each of which is U+FFFD.
    """

    dates: int = 0
    texts: int = 0

    def add(self, other: "Losses") -> None:
        """Count the other ones too."""
        self.dates += other.dates
        self.texts += other.texts


@dataclass(frozen=True, slots=True)
class ArrowColumn:
    """The Arrow type of a column, and what makes an array of it from the values' places."""

    type: pa.DataType
    convert: Callable[[Places, Losses], pa.Array]


def valid_bits(valid: Flags | None) -> pa.Buffer | None:
    """The bitmap of an Arrow array of which these values are valid."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed_array(arrow_type: pa.DataType, values: npt.NDArray[Any], valid: Flags | None) -> pa.Array:
    """Values of fixed width, as Arrow wants them in ``values``; a second dimension is of one value's words."""
    return pa.Array.from_buffers(arrow_type, len(values), [valid_bits(valid), pa.py_buffer(values)])


def numbers_array(numbers: npt.NDArray[np.int64], valid: Flags | None = None) -> pa.Array:
    """What ``take`` is to take. Not by ``pa.array``, which imports numpy.ma: 20 ms."""
    return fixed_array(pa.int64(), numbers, valid)


def object_array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    """Strings or bytes of Python as an array. Raises ``TooLargeError`` beyond 2 GiB, which makes several of them."""
    array = pa.array(values, arrow_type)
    if isinstance(array, pa.ChunkedArray):
        raise TooLargeError
    return array


def offset_buffer(lengths: npt.NDArray[np.integer]) -> pa.Buffer:
    """The offsets of an array whose values have these lengths. Raises ``TooLargeError`` beyond 2 GiB."""
    if lengths.sum(dtype=np.int64) > MAX_BYTES:
        raise TooLargeError
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return pa.py_buffer(offsets)
