"""Converters for columns of bytes: BINARY, BLOB, GEOMETRY, VECTOR; and the bytes of strings, for ``strings``.

Arrow itself gathers the values. A binary array over the whole buffer, whose every other value is the gap between two
wanted values, costs nothing to make. Taking its odd values copies each wanted value in C++: 20 ns a value, where
slicing in Python takes 200.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import DecodeError
from protocol.records import record
from protocol.rows.column import Column

from .arrays import MAX_BYTES, POOL, ArrowColumn, Losses, numbers_array, offset_buffer, valid_bits
from .buffer import Flags, Positions
from .places import Places

_FLOAT_SIZE = 4
_NOTHING: Final = pa.py_buffer(b"")
_ODD: Final = numbers_array(np.arange(1, 1 << 16, 2))


@record(frozen=True, slots=True)
class Gathered:
    """The bytes of values without gaps: ``data``, and the ``lengths`` of the values in it; NULLs are empty."""

    lengths: Positions
    data: pa.Buffer
    valid: Flags | None

    def array(self, arrow_type: pa.DataType) -> pa.Array:
        """The values as an array of this binary or string type. UTF-8 is not checked."""
        return variable_array(arrow_type, self.lengths, self.data, self.valid)


def variable_array(
    arrow_type: pa.DataType, lengths: npt.NDArray[np.integer], data: pa.Buffer, valid: Flags | None
) -> pa.Array:
    """An array of values of these lengths, which lie in ``data`` without gaps."""
    buffers = [valid_bits(valid), offset_buffer(lengths), data]
    return pa.Array.from_buffers(arrow_type, len(lengths), buffers)


def text_array(texts: Sequence[str]) -> pa.Array:
    """An array of texts without surrogates. Not made by ``pa.array``, which imports pandas if it is there: 0.2 s."""
    return bytes_array(pa.string(), [text.encode() for text in texts])


def bytes_array(arrow_type: pa.DataType, values: Sequence[bytes]) -> pa.Array:
    """An array of this binary or string type. UTF-8 is not checked."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return variable_array(arrow_type, lengths, pa.py_buffer(b"".join(values)), None)


def gather(places: Places) -> Gathered:
    """Gather the bytes of variable-length values, whose places must be in the order of the buffer."""
    start, length = places.positions, places.length
    assert length is not None
    valid = places.valid
    wanted = length if valid is None else length * valid
    if valid is not None:
        start, length = start[valid], length[valid]
    if int(length.sum()) > MAX_BYTES:
        offset_buffer(length)
    return Gathered(wanted, taken(places.buffer.data, start, start + length).buffers()[2] or _NOTHING, valid)


def taken(data: bytes, start: Positions, end: Positions) -> pa.Array:
    """The bytes between these places as a binary array; a large one if the data have more than 2 GiB."""
    count = len(start)
    is_long = len(data) > MAX_BYTES
    edges = np.empty(2 * count + 2, np.int64 if is_long else np.int32)
    edges[1:-1:2], edges[2::2] = start, end
    # Arrow guesses the size of its result from the first and the last offset: a mean value's size times their number.
    edges[0], edges[-1] = 0, min(2 * int((end - start).sum()) + len(edges), len(data))
    everything = pa.Array.from_buffers(
        pa.large_binary() if is_long else pa.binary(),
        len(edges) - 1,
        [None, pa.py_buffer(edges), pa.py_buffer(data)],
    )
    return pc.take(everything, _odd_numbers(count), memory_pool=POOL)


def _odd_numbers(count: int) -> pa.Array:
    """The first odd numbers, kept: making them takes as long as copying the values at these indexes."""
    if count > len(_ODD):
        return numbers_array(np.arange(1, 2 * count, 2))
    return _ODD.slice(0, count)


def binary(column: Column) -> ArrowColumn:
    """BLOB, VARBINARY, GEOMETRY: the bytes as they are."""
    return ArrowColumn(pa.binary(), lambda places, losses: gather(places).array(pa.binary()))


def padded_binary(column: Column) -> ArrowColumn:
    """BINARY(n), padded back to n bytes: the log lacks its trailing zero bytes (``Field_string::pack``)."""
    size = column.metadata

    def convert(places: Places, losses: Losses) -> pa.Array:
        length = places.length
        assert length is not None
        is_short = length < size
        if not places.is_any(is_short):
            return gather(places).array(pa.binary())
        values = places.buffer.pieces(size, places.positions)
        short = np.flatnonzero(is_short)
        values[short] *= np.arange(size) < length[short, np.newaxis]
        lengths = np.full(len(values), size, np.int64)
        return variable_array(pa.binary(), lengths, pa.py_buffer(values), places.valid)

    return ArrowColumn(pa.binary(), convert)


def vector(column: Column) -> ArrowColumn:
    """VECTOR: a list of 4-byte floats. Raises ``DecodeError`` for a length that is no multiple of four bytes."""
    arrow_type = pa.list_(pa.float32())

    def convert(places: Places, losses: Losses) -> pa.Array:
        length = places.length
        assert length is not None
        if places.is_any(length % _FLOAT_SIZE != 0):
            raise DecodeError("the length of a VECTOR value is not made of whole floats (4 bytes each)")
        gathered = gather(places)
        count = int(gathered.lengths.sum()) // _FLOAT_SIZE
        floats = pa.Array.from_buffers(pa.float32(), count, [None, gathered.data])
        offsets = offset_buffer(gathered.lengths // _FLOAT_SIZE)
        buffers = [valid_bits(gathered.valid), offsets]
        return pa.Array.from_buffers(arrow_type, len(places), buffers, children=[floats])

    return ArrowColumn(arrow_type, convert)
