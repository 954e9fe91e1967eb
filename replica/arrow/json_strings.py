"""Strings and literals of JSON documents as Arrow strings: with escapes, and as the words that they are."""

from json.encoder import encode_basestring
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.records import record

from .arrays import different, numbers_array
from .binary import taken, text_array
from .buffer import Positions, RowBuffer
from .text_parts import bytes_of, edges_of, replaced

WORDS: Final = (b"null", b"true", b"false")
_WORDS: Final = text_array([word.decode() for word in WORDS])
_QUOTE, _BACKSLASH, _SPACE = ord('"'), ord("\\"), ord(" ")


@record(frozen=True, slots=True, eq=False)
class Texts:
    """The texts of the documents ``rows``. UTF-8 is not checked."""

    rows: Positions
    texts: pa.Array


def word_texts(chosen: npt.NDArray[np.integer]) -> pa.Array | bytes:
    """The literals with these numbers."""
    if (chosen == chosen[0]).all():
        return WORDS[int(chosen[0])]
    return _WORDS.take(numbers_array(chosen.astype(np.int64)))


def string_texts(buffer: RowBuffer, start: Positions, end: Positions) -> pa.Array:
    """The strings between these places of the buffer with JSON's escapes; invalid UTF-8 stays as it is."""
    found = taken(buffer.data, start, end).view(pa.string())
    data = bytes_of(found)
    is_special = data < _SPACE
    is_special |= data == _QUOTE
    is_special |= data == _BACKSLASH
    if not is_special.any():
        return found
    rows = different(np.searchsorted(edges_of(found)[1:], np.flatnonzero(is_special), "right"))
    places = zip(start[rows].tolist(), end[rows].tolist(), strict=True)
    return replaced(found, rows, [escaped(buffer.data[at:stop]) for at, stop in places])


def escaped(data: bytes) -> bytes:
    """A string's bytes as they are written in quotes; invalid UTF-8 stays as it is."""
    return encode_basestring(data.decode("utf-8", "surrogateescape"))[1:-1].encode("utf-8", "surrogateescape")
