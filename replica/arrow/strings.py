"""The converters for character strings: each column's character set -> Arrow's UTF-8.

UTF-8 is only checked. A character set of one byte a character is converted for all values at once, other sets value
by value. A byte for which ``protocol.charset`` has no character (there a surrogate) becomes U+FFFD, and values with
such bytes are counted.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Final

import numpy as np
import pyarrow as pa

from protocol.charset import Charset, Decode, charset_by_name
from protocol.inflate import uncompress_column
from protocol.records import record
from protocol.rows.column import Column

from .arrays import MAX_BYTES, POOL, ArrowColumn, Losses, TooLargeError, different, object_array
from .binary import Gathered, gather, variable_array
from .buffer import Bytes, Flags
from .places import Places

STRING = pa.string()
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_REPLACEMENT: Final = "\ufffd"
_ASCII: Final = bytes(range(0x80))


def valid_text(text: str) -> str:
    """The text with U+FFFD in place of surrogates, which UTF-8 cannot hold."""
    return _SURROGATES.sub(_REPLACEMENT, text)


def text(column: Column) -> ArrowColumn:
    """CHAR, VARCHAR and TEXT with a known character set; without one ``schema`` makes the column binary."""
    charset = known_charset(column)
    assert charset is not None
    assert charset.decode is not None
    if charset.codec == "utf-8":
        return ArrowColumn(STRING, partial(_utf8, charset.decode))
    if charset.max_bytes == 1:
        return ArrowColumn(STRING, partial(_one_byte, charset.decode))
    if charset.decode(_ASCII) == _ASCII.decode("ascii"):
        return ArrowColumn(STRING, partial(_like_ascii, charset.decode))
    return ArrowColumn(STRING, partial(_each, charset.decode))


def known_charset(column: Column) -> Charset | None:
    """The column's character set if Python can decode it; None for binary or unknown ones."""
    charset = None if column.charset is None else charset_by_name(column.charset)
    return None if charset is None or charset.decode is None else charset


def compressed(column: Column) -> ArrowColumn:
    """A MariaDB ``COMPRESSED`` column: uncompressed, then text or binary as its character set says."""
    charset = known_charset(column)
    if charset is None or charset.decode is None:
        return ArrowColumn(pa.binary(), _uncompressed)
    return ArrowColumn(STRING, partial(_uncompressed_text, charset.decode))


def _uncompressed_text(decode: Decode, places: Places, losses: Losses) -> pa.Array:
    return string_array((None if value is None else decode(value) for value in _inflated(places)), losses)


def _uncompressed(places: Places, losses: Losses) -> pa.Array:
    return object_array(list(_inflated(places)), pa.binary())


def _inflated(places: Places) -> Iterator[bytes | None]:
    """The uncompressed values. Raises ``TooLargeError`` as soon as they are more than an array can hold: a megabyte
    of a log may be a gigabyte of zeros.
    """
    total = 0
    for stored in places.values():
        value = None if stored is None else uncompress_column(stored)
        total += len(value or b"")
        if total > MAX_BYTES:
            raise TooLargeError
        yield value


def string_array(values: Iterable[str | None], losses: Losses) -> pa.Array:
    """An array of Python strings. Surrogates become U+FFFD, and values with surrogates are counted."""
    values = list(values)
    try:
        return object_array(values, STRING)
    except UnicodeEncodeError:
        pass
    for row, value in enumerate(values):
        if value is not None and _SURROGATES.search(value):
            values[row] = valid_text(value)
            losses.texts += 1
    return object_array(values, STRING)


def _each(decode: Decode, places: Places, losses: Losses) -> pa.Array:
    return string_array((None if value is None else decode(value) for value in places.values()), losses)


def _utf8(decode: Decode, places: Places, losses: Losses) -> pa.Array:
    try:
        return gather(places).array(pa.binary()).cast(STRING, memory_pool=POOL)
    except pa.ArrowInvalid:
        return _each(decode, places, losses)


def _is_ascii(data: Bytes) -> bool:
    return not len(data) or int(data.max()) < 0x80


def _like_ascii(decode: Decode, places: Places, losses: Losses) -> pa.Array:
    """Text in a multi-byte character set that contains ASCII."""
    gathered = gather(places)
    return gathered.array(STRING) if _is_ascii(_bytes(gathered)) else _each(decode, places, losses)


def _bytes(gathered: Gathered) -> Bytes:
    return np.frombuffer(gathered.data, np.uint8, int(gathered.lengths.sum()))


@record(frozen=True, slots=True)
class _ByteTable:
    """A character set of one byte a character. ``sizes``: each byte's size in UTF-8; ``is_lost``: no character."""

    holds_ascii: bool
    sizes: Bytes
    is_lost: Flags


@cache
def _byte_table(decode: Decode) -> _ByteTable:
    characters = [decode(bytes((byte,))) for byte in range(256)]
    sizes = np.array([len(valid_text(character).encode()) for character in characters], np.uint8)
    is_lost = np.array([bool(_SURROGATES.search(character)) for character in characters], np.bool_)
    return _ByteTable(decode(_ASCII) == _ASCII.decode("ascii"), sizes, is_lost)


def _one_byte(decode: Decode, places: Places, losses: Losses) -> pa.Array:
    """Decode all values at once. Character i is byte i, so byte offsets are character offsets."""
    gathered = gather(places)
    data, table = _bytes(gathered), _byte_table(decode)
    if table.holds_ascii and _is_ascii(data):
        return gathered.array(STRING)
    # A value's size in UTF-8 is the sum of its characters' sizes, at most three bytes each.
    ends = np.zeros(len(data) + 1, np.int32 if 3 * len(data) <= MAX_BYTES else np.int64)
    np.cumsum(table.sizes[data], out=ends[1:])
    edges = np.zeros(len(places) + 1, np.int64)
    np.cumsum(gathered.lengths, out=edges[1:])
    sizes = ends[edges].astype(np.int64)
    lost = table.is_lost[data]
    whole = decode(data.tobytes())
    if lost.any():
        losses.texts += len(different(np.searchsorted(edges, np.flatnonzero(lost), "right")))
        whole = valid_text(whole)
    return variable_array(STRING, sizes[1:] - sizes[:-1], pa.py_buffer(whole.encode()), gathered.valid)
