"""What all column converters share: numpy arrays -> Arrow arrays, and the count of values that Arrow cannot hold."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.errors import UnsupportedEventError
from protocol.records import record

from .buffer import Flags
from .places import Places

_Integer = TypeVar("_Integer", bound=np.integer)


class TooLargeError(UnsupportedEventError):
    """A column of a batch has more than 2 GiB of values; a batch of fewer rows may fit."""

    def __init__(self) -> None:
        super().__init__(
            "a column has more than 2 GiB of values in one batch, more than an Arrow array of its type can hold"
        )


# The offsets of Arrow's strings and lists have 32 bits.
MAX_BYTES = (1 << 31) - 1

#: The memory pool for what Arrow's functions make of a batch. glibc keeps freed blocks for the next batch, as
#: ``keep_freed_blocks`` asks it to. Arrow's own pool takes huge pages from the kernel and gives parts of them back: a
#: log of JSON documents took 35 MB more with it, and up to half of its processor time went into clearing pages.
POOL: Final = pa.system_memory_pool()


@record(slots=True)
class Losses:
    """The number of values that Arrow cannot hold as they are.

    ``dates`` counts zero, partial and impossible dates, which become null. ``texts`` counts strings with bytes that
    are invalid in their character set; each such byte becomes U+FFFD.
    """

    dates: int = 0
    texts: int = 0

    def add(self, other: "Losses") -> None:
        """Add the counts of ``other``."""
        self.dates += other.dates
        self.texts += other.texts


@record(frozen=True, slots=True)
class ArrowColumn:
    """The Arrow type of a column, and the converter that makes its array from the places of the values."""

    type: pa.DataType
    convert: Callable[[Places, Losses], pa.Array]


def valid_bits(valid: Flags | None) -> pa.Buffer | None:
    """The validity bitmap of an Arrow array; None if all values are valid."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed_array(arrow_type: pa.DataType, values: npt.NDArray[Any], valid: Flags | None) -> pa.Array:
    """An array of values of fixed width. ``values`` has Arrow's form; a second dimension has the words of a value."""
    return pa.Array.from_buffers(arrow_type, len(values), [valid_bits(valid), pa.py_buffer(values)])


def numbers_array(numbers: npt.NDArray[np.int64], valid: Flags | None = None) -> pa.Array:
    """Row numbers for Arrow's ``take``. Not made by ``pa.array``, which imports numpy.ma: 20 ms."""
    return fixed_array(pa.int64(), numbers, valid)


def different(numbers: npt.NDArray[_Integer]) -> npt.NDArray[_Integer]:
    """The different numbers, ascending. Not by ``np.unique``, which imports numpy.ma: 12 ms."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))] if len(ordered) else ordered


def object_array(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
    """An array of Python strings or bytes. Raises ``TooLargeError`` above 2 GiB, where pyarrow splits them."""
    array = pa.array(values, arrow_type)
    if isinstance(array, pa.ChunkedArray):
        raise TooLargeError
    return array


def offset_buffer(lengths: npt.NDArray[np.integer]) -> pa.Buffer:
    """The offsets of an array whose values have these lengths. Raises ``TooLargeError`` above 2 GiB."""
    if lengths.sum(dtype=np.int64) > MAX_BYTES:
        raise TooLargeError
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, dtype=np.int32, out=offsets[1:])
    return pa.py_buffer(offsets)
