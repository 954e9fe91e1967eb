"""Arrow columns -> JSON text, and the columns of a row -> one JSON object, for all rows of a batch at once.

The values are those of ``replica.render.json_lines``, with one difference: a JSON column is the document as SELECT
shows it. For speed, a column's values are made without their quotation marks; if no value is NULL, the marks are
joined to the member's name, once for the column. Strings are only searched for the special characters that occur in
the column. The envelope around these objects is in ``envelope``.
"""

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from protocol.records import record, replace

from ..arrow.strings import STRING
from ..render.json_lines import plain, time_text

_NULL: Final = "null"
_NOTHING: Final = pa.scalar("")
_QUOTES: Final = ('"', '"')
_NOT_FINITE: Final = MappingProxyType({"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'})
# From seven decimal places on, Arrow writes small decimals with an exponent.
_MAX_PLAIN_SCALE: Final = 6
_ESCAPES: Final[Mapping[int, str]] = MappingProxyType(
    {byte: json.dumps(chr(byte))[1:-1] for byte in (*range(0x20), ord('"'))}
)


@record(frozen=True, slots=True)
class Member:
    """A column's values without quotation marks (null for NULL), and the text before and after each value."""

    values: pa.Array
    before: str = ""
    after: str = ""

    def take(self, rows: pa.Array) -> "Member":
        """The member for some of the rows."""
        return replace(self, values=self.values.take(rows))


def json_objects(names: Sequence[str], members: Sequence[Member | None], size: int) -> pa.Array:
    """JSON objects of these members; None leaves a member out."""
    parts: list[pa.Array | pa.Scalar] = []
    text = "{"
    for name, member in zip(names, members, strict=True):
        if member is None:
            continue
        text += f"{json.dumps(name, ensure_ascii=False)}:"
        values = member.values
        if values.null_count and member.before:
            values = pc.binary_join_element_wise(member.before, values, member.after, _NOTHING)
            parts += [pa.scalar(text), values]
            text = ","
        else:
            parts += [pa.scalar(text + member.before), values]
            text = member.after + ","
    if not parts:
        return pa.repeat(pa.scalar("{}"), size)
    parts += [pa.scalar(text.removesuffix(",") + "}"), _NOTHING]
    return pc.binary_join_element_wise(*parts, null_handling="replace", null_replacement=_NULL)


def json_member(array: pa.Array, *, is_document: bool = False) -> Member:
    """A column as JSON values. ``is_document``: the strings are JSON documents already."""
    if is_document:
        return Member(array)
    convert, around = _CONVERTERS.get(array.type.id, (None, None))
    return Member(array.cast(STRING) if convert is None else convert(array), *around or ())


def with_texts(member: Member, texts: pa.Array) -> Member:
    """The member with texts in place of its nulls; its type must be one whose JSON values are strings."""
    return replace(member, values=pc.coalesce(member.values, _escaped(texts)))


def _escaped(array: pa.Array) -> pa.Array:
    data = array.buffers()[2]
    if data is None:
        return array
    # This searches the whole buffer, even if the array is a slice: a false alarm only costs time.
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
    """Decimals as text, with all digits of their scale."""
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
    """Moments as ISO 8601 text: Arrow's text with a T and the zone. No moment is null or after the year 9999.

    All texts have one length.
    """
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
    """All values in one call: each is padded to a multiple of three bytes, then its last characters become ``=``."""
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
    """A converter that takes one value at a time, for rare types and slow ones."""

    def convert(array: pa.Array) -> pa.Array:
        return pa.array([None if value is None else make(value) for value in array.to_pylist()], STRING)

    return convert


_EPOCH: Final = pa.scalar(0, pa.timestamp("us"))
_FILLINGS: Final = pa.array([b"", b"\0", b"\0\0"])
# Arrow type -> the function that makes the texts, and the marks around each. Other types are cast by Arrow.
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
