"""Columns as JSON, and the columns of a row as one JSON object: text for all rows of a batch at once.

The values are those of ``replica.render.json_lines``, with one difference: a JSON column is the document as SELECT
shows it. Strings are quoted, and only those columns that need it are searched for what must be escaped.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.render.json_lines import plain, time_text

STRING: Final = pa.string()
_NULL: Final = "null"
_QUOTE: Final = pa.scalar('"')
_NOTHING: Final = pa.scalar("")
_NOT_FINITE: Final = MappingProxyType({"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'})
# Arrow writes a decimal this small with an exponent.
_MAX_PLAIN_SCALE: Final = 6
_ESCAPES: Final[Mapping[int, str]] = MappingProxyType(
    {byte: json.dumps(chr(byte))[1:-1] for byte in (*range(0x20), ord('"'))}
)


def json_objects(names: Sequence[str], values: Sequence[pa.Array | None], size: int) -> pa.Array:
    """Objects with these members; ``values`` are JSON as ``json_values`` makes it, None for members left out."""
    parts: list[pa.Array | pa.Scalar] = []
    for name, value in zip(names, values, strict=True):
        if value is not None:
            opening = "," if parts else "{"
            parts += [pa.scalar(f"{opening}{json.dumps(name, ensure_ascii=False)}:"), value]
    if not parts:
        return pa.repeat(pa.scalar("{}"), size)
    parts += [pa.scalar("}"), _NOTHING]
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=_NULL)


def json_values(array: pa.Array, *, is_document: bool = False) -> pa.Array:
    """Each value of a column as JSON text; null for nulls. ``is_document``: the strings are JSON already."""
    if is_document:
        return array
    convert = _CONVERTERS.get(array.type.id)
    return array.cast(STRING) if convert is None else convert(array)


def quoted(texts: pa.Array) -> pa.Array:
    """Texts in quotation marks."""
    return pc.binary_join_element_wise(_QUOTE, texts, _QUOTE, _NOTHING)


def strings(array: pa.Array) -> pa.Array:
    """Texts as JSON strings."""
    return quoted(_escaped(array))


def _escaped(array: pa.Array) -> pa.Array:
    data = array.buffers()[2]
    if data is None:
        return array
    # The whole buffer, whatever part of it the array is: what is found too much costs time only.
    text = np.frombuffer(data, np.uint8)
    special = np.unique(text[(text < 0x20) | (text == ord('"')) | (text == ord("\\"))]).tolist()
    if ord("\\") in special:
        array = pc.replace_substring(array, "\\", "\\\\")
    for byte in special:
        if byte in _ESCAPES:
            array = pc.replace_substring(array, chr(byte), _ESCAPES[byte])
    return array


def _floats(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.float64()).cast(STRING)
    finite = pc.is_finite(array)
    if pc.all(finite).as_py() is not False:
        return texts
    for arrow, ours in _NOT_FINITE.items():
        texts = pc.if_else(pc.equal(texts, arrow), pa.scalar(ours), texts)
    return texts


def decimal_texts(array: pa.Array) -> pa.Array:
    """Decimals with all digits of their scale."""
    if array.type.scale <= _MAX_PLAIN_SCALE:
        return array.cast(STRING)
    return pa.array([None if value is None else f"{value:f}" for value in array.to_pylist()], STRING)


def _decimals(array: pa.Array) -> pa.Array:
    return quoted(decimal_texts(array))


def _dates(array: pa.Array) -> pa.Array:
    return quoted(array.cast(STRING))


def _datetimes(array: pa.Array) -> pa.Array:
    zone = "" if array.type.tz is None else "+00:00"
    plain = array.cast(pa.timestamp("us"))
    texts = plain.cast(pa.timestamp("s"), safe=False).cast(STRING)
    fraction = pc.microsecond(plain)
    milli = pc.millisecond(plain)
    has_fraction = pc.or_(pc.greater(fraction, 0), pc.greater(milli, 0))
    if pc.any(has_fraction).as_py():
        texts = pc.if_else(has_fraction, plain.cast(STRING), texts)
    return pc.binary_join_element_wise(
        _QUOTE, pc.binary_replace_slice(texts, 10, 11, "T"), pa.scalar(zone), _QUOTE, _NOTHING
    )


def _each(make: Callable[[Any], str]) -> Callable[[pa.Array], pa.Array]:
    """For types that are rare, or costly in any case: one value at a time."""

    def convert(array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else make(value) for value in array.to_pylist()], STRING)

    return convert


_CONVERTERS: Final[Mapping[int, Callable[[pa.Array], pa.Array]]] = MappingProxyType(
    {
        pa.float32().id: _floats,
        pa.float64().id: _floats,
        pa.decimal128(1, 0).id: _decimals,
        pa.decimal256(1, 0).id: _decimals,
        pa.date32().id: _dates,
        pa.timestamp("us").id: _datetimes,
        pa.duration("us").id: _each(lambda value: f'"{time_text(value)}"'),
        pa.string().id: strings,
        pa.binary().id: _each(lambda value: f'{{"base64": "{b64encode(value).decode("ascii")}"}}'),
        pa.list_(pa.float32()).id: _each(lambda value: json.dumps(plain(value))),
    }
)
