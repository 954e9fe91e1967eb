"""Texts put together by Arrow: columns of strings, and bytes that are the same in all rows -> a string for each row.

This module knows nothing of what the texts mean; ``document_batches`` writes JSON with it. UTF-8 is not checked here:
the arrays have the type of strings, because Arrow's numbers become strings, too.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import MAX_BYTES, POOL, TooLargeError, numbers_array
from .binary import text_array, variable_array
from .buffer import Bytes, Positions

# What a text consists of: strings that differ from row to row, and bytes that are the same in all rows.
Parts = Sequence[pa.Array | bytes]

# A scalar taken from an array: making one from a string, pyarrow imports pandas.
_NOTHING: Final = text_array([""])[0]


def joined(parts: Parts, rows: int) -> pa.Array:
    """The texts of ``rows`` rows. The string array is not a slice, unless the only part is one.

    A part takes 7 ns a row; copying a string from the documents takes 10 more. Putting all parts into one array, from
    which Arrow takes values in the order of the texts, took 20 for each.
    """
    parts = merged(parts)
    if len(parts) == 1:
        [part] = parts
        return _repeated(part, rows) if isinstance(part, bytes) else part
    arguments = [_literal(part) if isinstance(part, bytes) else part for part in parts]
    return pc.binary_join_element_wise(*arguments, _NOTHING, memory_pool=POOL)


def _repeated(text: bytes, rows: int) -> pa.Array:
    return variable_array(pa.string(), np.full(rows, len(text)), pa.py_buffer(text * rows), None)


def _literal(text: bytes) -> pa.Scalar:
    return _repeated(text, 1)[0]


def merged(parts: Parts) -> list[pa.Array | bytes]:
    """The parts with neighbouring bytes as one."""
    found: list[pa.Array | bytes] = []
    for part in parts:
        if isinstance(part, bytes) and found and isinstance(found[-1], bytes):
            found[-1] += part
        else:
            found.append(part)
    return found


def put_in_rows(arrays: Sequence[tuple[Positions, pa.Array]]) -> pa.Array:
    """The strings of several arrays, each with the indexes of its strings, in the order of the indexes."""
    [(_, first), *others] = arrays
    if not others:
        return first
    rows = np.concatenate([rows for rows, _ in arrays])
    order = np.empty(len(rows), np.int64)
    order[rows] = np.arange(len(rows))
    whole = concatenated([array for _, array in arrays])
    return pc.take(whole, numbers_array(order), memory_pool=POOL)


def concatenated(arrays: Sequence[pa.Array]) -> pa.Array:
    """The strings of these arrays, in order; the array is not a slice. Raises ``TooLargeError`` above 2 GiB."""
    if sum(array.nbytes for array in arrays) > MAX_BYTES:
        raise TooLargeError
    return pa.concat_arrays(arrays, memory_pool=POOL)


def replaced(array: pa.Array, rows: Positions, texts: Sequence[bytes]) -> pa.Array:
    """The strings of an array that is no slice, with these texts in place of those at these ascending rows."""
    edges, data = edges_of(array), memoryview(array.buffers()[2])
    lengths = np.diff(edges)
    lengths[rows] = np.fromiter(map(len, texts), np.int64, len(texts))
    parts: list[bytes | memoryview] = []
    start = 0
    for text, cut, end in zip(texts, edges[rows].tolist(), edges[rows + 1].tolist(), strict=True):
        parts += [data[start:cut], text]
        start = end
    whole = b"".join([*parts, data[start : int(edges[-1])]])
    return variable_array(array.type, lengths, pa.py_buffer(whole), None)


def edges_of(array: pa.Array) -> Positions:
    """Where the strings of an array that is no slice begin, and where the last one ends."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1).astype(np.int64)


def bytes_of(array: pa.Array) -> Bytes:
    """The bytes of the strings of an array that is no slice, without a copy."""
    _, offsets, data = array.buffers()
    size = int(np.frombuffer(offsets, np.int32, len(array) + 1)[-1])
    return np.frombuffer(data or b"", np.uint8, size)
