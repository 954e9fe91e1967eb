"""Columns as JSON, and the columns of a row as one JSON object: text for all rows of a batch at once.

The values are those of ``replica.render.json_lines``, with one difference: a JSON column is the document as SELECT
shows it. A column's values are made bare; what all of them stand in, as quotation marks, becomes part of the member's
name where no value is NULL. Only those strings that need it are searched for what must be escaped.
"""

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replica.render.json_lines import plain, time_text

STRING: Final = pa.string()
_NULL: Final = "null"
_NOTHING: Final = pa.scalar("")
_QUOTES: Final = ('"', '"')
_NOT_FINITE: Final = MappingProxyType({"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'})
# Arrow writes a decimal this small with an exponent.
_MAX_PLAIN_SCALE: Final = 6
_ESCAPES: Final[Mapping[int, str]] = MappingProxyType(
    {byte: json.dumps(chr(byte))[1:-1] for byte in (*range(0x20), ord('"'))}
)


@dataclass(frozen=True, slots=True)
class Member:
    """A column's bare values, null for NULL, and what stands before and behind each that is not."""

    values: pa.Array
    before: str = ""
    behind: str = ""

    def take(self, rows: pa.Array) -> "Member":
        """Those of some rows."""
        return replace(self, values=self.values.take(rows))


def json_objects(names: Sequence[str], members: Sequence[Member | None], size: int) -> pa.Array:
    """Objects of these members; None is one left out."""
    parts: list[pa.Array | pa.Scalar] = []
    text = "{"
    for name, member in zip(names, members, strict=True):
        if member is None:
            continue
        text += f"{json.dumps(name, ensure_ascii=False)}:"
        values = member.values
        if values.null_count and member.before:
            values = pc.binary_join_element_wise(member.before, values, member.behind, _NOTHING)
            parts += [pa.scalar(text), values]
            text = ","
        else:
            parts += [pa.scalar(text + member.before), values]
            text = member.behind + ","
    if not parts:
        return pa.repeat(pa.scalar("{}"), size)
    parts += [pa.scalar(text.removesuffix(",") + "}"), _NOTHING]
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=_NULL)


def json_member(array: pa.Array, *, is_document: bool = False) -> Member:
    """A column as JSON. ``is_document``: the strings are JSON already."""
    if is_document:
        return Member(array)
    convert, around = _CONVERTERS.get(array.type.id, (None, None))
    return Member(array.cast(STRING) if convert is None else convert(array), *around or ())


def with_texts(member: Member, texts: pa.Array) -> Member:
    """The member with texts in place of NULLs; one of a type whose values are texts, too."""
    return replace(member, values=pc.coalesce(member.values, _escaped(texts)))


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


def _strings(array: pa.Array) -> pa.Array:
    return array.cast(STRING)


def _datetimes(array: pa.Array) -> pa.Array:
    zone = b"" if array.type.tz is None else b"+00:00"
    plain = pc.fill_null(array.cast(pa.timestamp("us")), _EPOCH)
    has_fraction = plain.cast(pa.int64()).to_numpy() % 1_000_000 != 0
    if has_fraction.all():
        texts = _in_iso_form(plain, zone)
    else:
        texts = _in_iso_form(plain.cast(pa.timestamp("s"), safe=False), zone)
        if has_fraction.any():
            texts = pc.if_else(pa.array(has_fraction), _in_iso_form(plain, zone), texts)
    return texts if not array.null_count else pc.if_else(array.is_valid(), texts, pa.scalar(None, STRING))


def _in_iso_form(moments: pa.Array, zone: bytes) -> pa.Array:
    """All of one length, as Arrow writes them, but with a T and the zone. None is null, nor beyond the year 9999."""
    count = len(moments)
    texts = moments.cast(STRING)
    width = len(texts[0].as_py()) if count else 0
    rows = np.empty((count, width + len(zone)), np.uint8)
    if count:
        rows[:, :width] = np.frombuffer(texts.buffers()[2], np.uint8, count * width).reshape(count, width)
        rows[:, 10] = ord("T")
        rows[:, width:] = np.frombuffer(zone, np.uint8)
    return _text_array(np.arange(count + 1, dtype=np.int64) * rows.shape[1], rows)


def _base64(array: pa.Array) -> pa.Array:
    """All at once: each value filled up to a multiple of three bytes, whose last characters are then put right."""
    filled = pc.fill_null(array, b"")
    missing = -pc.binary_length(filled).to_numpy() % 3
    padded = pc.binary_join_element_wise(filled, _FILLINGS.take(pa.array(missing)), pa.scalar(b""))
    offsets = np.frombuffer(padded.buffers()[1], np.int32, len(array) + 1).astype(np.int64)
    data = padded.buffers()[2]
    encoded = bytearray(
        binascii.b2a_base64(memoryview(data)[: int(offsets[-1])] if data else b"", newline=False)
    )
    characters = np.frombuffer(encoded, np.uint8)
    offsets = offsets // 3 * 4
    ends = offsets[1:]
    characters[ends[missing > 0] - 1] = ord("=")
    characters[ends[missing > 1] - 2] = ord("=")
    texts = _text_array(offsets, characters)
    return texts if not array.null_count else pc.if_else(array.is_valid(), texts, pa.scalar(None, STRING))


def _text_array(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> pa.Array:
    if int(offsets[-1]) >= 1 << 31:
        raise OverflowError("more than 2 GiB of text in one batch")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(STRING, len(offsets) - 1, buffers)


def _each(make: Callable[[Any], str]) -> Callable[[pa.Array], pa.Array]:
    """For types that are rare, or costly in any case: one value at a time."""

    def convert(array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else make(value) for value in array.to_pylist()], STRING)

    return convert


_EPOCH: Final = pa.scalar(0, pa.timestamp("us"))
_FILLINGS: Final = pa.array([b"", b"\0", b"\0\0"])
# What makes a column's values, and what each of them stands in. Other types are written as Arrow does.
_CONVERTERS: Final[Mapping[int, tuple[Callable[[pa.Array], pa.Array], tuple[str, str]]]] = MappingProxyType(
    {
        pa.float32().id: (_floats, ("", "")),
        pa.float64().id: (_floats, ("", "")),
        pa.decimal128(1, 0).id: (decimal_texts, _QUOTES),
        pa.decimal256(1, 0).id: (decimal_texts, _QUOTES),
        pa.date32().id: (_strings, _QUOTES),
        pa.timestamp("us").id: (_datetimes, _QUOTES),
        pa.duration("us").id: (_each(time_text), _QUOTES),
        pa.string().id: (_escaped, _QUOTES),
        pa.binary().id: (_base64, ('{"base64": "', '"}')),
        pa.list_(pa.float32()).id: (_each(lambda value: json.dumps(plain(value))), ("", "")),
    }
)
