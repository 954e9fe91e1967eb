"""Binary JSON documents for tests: an encoder of our own, and what all ways to decode one say."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.values.jsonb import JsonOpaque, JsonValue, decode_json
from protocol.values.jsonb_fast import JsonDecoder

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = range(5)
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = range(5, 13)
OPAQUE = 15
TIMESTAMP, DATE, TIME, DATETIME = 7, 10, 11, 12
NEWDECIMAL, BLOB = 246, 252

_INTEGERS = (
    (INT16, "<h", -(2**15), 2**15),
    (UINT16, "<H", 0, 2**16),
    (INT32, "<i", -(2**31), 2**31),
    (UINT32, "<I", 0, 2**32),
    (INT64, "<q", -(2**63), 2**63),
    (UINT64, "<Q", 0, 2**64),
)


class Encoded(NamedTuple):
    """Type and bytes of a value, to stand in a document as it is."""

    kind: int
    data: bytes


# ------------------------------------------------------------------------------------------ the encoder


def variable_length(size: int) -> bytes:
    data = bytearray()
    while size >= 0x80:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*data, size])


def opaque(column_type: int, data: bytes) -> Encoded:
    return Encoded(OPAQUE, bytes([column_type]) + variable_length(len(data)) + data)


def packed(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, micros: int = 0
) -> int:
    clock = hour << 12 | minute << 6 | second
    return ((year * 13 + month) << 5 | day) << 41 | clock << 24 | micros


def temporal(column_type: int, value: int) -> Encoded:
    return opaque(column_type, value.to_bytes(8, "little", signed=True))


def decimal_10_2(hundredths: int) -> Encoded:
    whole, cents = divmod(abs(hundredths), 100)
    digits = bytes([*whole.to_bytes(4, "big"), cents])
    if hundredths < 0:
        digits = bytes(255 - byte for byte in digits)
    return opaque(NEWDECIMAL, bytes([10, 2, digits[0] ^ 0x80]) + digits[1:])


def encode_scalar(value: Any) -> Encoded:
    """A value that holds no others."""
    if isinstance(value, Encoded):
        return value
    if value is None or value is True or value is False:
        return Encoded(LITERAL, bytes([{None: 0, True: 1, False: 2}[value]]))
    if isinstance(value, int):
        kind, code = next((kind, code) for kind, code, low, high in _INTEGERS if low <= value < high)
        return Encoded(kind, struct.pack(code, value))
    if isinstance(value, float):
        return Encoded(DOUBLE, struct.pack("<d", value))
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return Encoded(STRING, variable_length(len(data)) + data)
    return opaque(BLOB, value)


def encode_container(value: dict[str, Any] | list[Any], large: bool, hole: bytes) -> bytes:
    offset, entry = ("I", 5) if large else ("H", 3)
    head = 8 if large else 4
    inline = {LITERAL, INT16, UINT16} | ({INT32, UINT32} if large else set())
    keys = [key.encode("utf-8", "surrogateescape") for key in value] if isinstance(value, dict) else []
    values = list(value.values()) if isinstance(value, dict) else value
    first = head + len(keys) * (6 if large else 4) + len(values) * entry
    key_entries = value_entries = b""
    # As JSON_REMOVE leaves it: the keys stay where they were when entries go.
    content = hole
    for key in keys:
        key_entries += struct.pack(f"<{offset}H", first + len(content), len(key))
        content += key
    for item in values:
        kind, data = encode(item, large, hole)
        if kind in inline:
            # Small whole numbers in large containers have the sign in all four bytes.
            sign = b"\xff" if kind == INT16 and data[-1] & 0x80 else b"\0"
            value_entries += bytes([kind]) + data.ljust(entry - 1, sign)
        else:
            content += hole
            value_entries += struct.pack(f"<B{offset}", kind, first + len(content))
            content += data
    content += hole
    return (
        struct.pack(f"<2{offset}", len(values), first + len(content)) + key_entries + value_entries + content
    )


def encode(value: Any, large: bool = False, hole: bytes = b"") -> Encoded:
    if isinstance(value, dict):
        return Encoded(LARGE_OBJECT if large else SMALL_OBJECT, encode_container(value, large, hole))
    if isinstance(value, list):
        return Encoded(LARGE_ARRAY if large else SMALL_ARRAY, encode_container(value, large, hole))
    return encode_scalar(value)


def document(value: Any, large: bool = False, hole: bytes = b"") -> bytes:
    """``hole`` stands in all places where updates in place may leave bytes that are not used."""
    kind, data = encode(value, large, hole)
    return bytes([kind]) + data


# ------------------------------------------------------------------------------------ random documents

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=200),
    st.binary(max_size=200),
)
documents = st.recursive(
    scalars,
    lambda children: (
        st.lists(children, max_size=6) | st.dictionaries(st.text(max_size=8), children, max_size=6)
    ),
    max_leaves=20,
)


def random_form(rng: random.Random, depth: int = 0) -> Any:
    """The form of documents that are alike: names of scalars, and dicts, lists and choices of forms.

    That of a whole document is a dict or a list.
    """
    kind = rng.randrange(0 if depth else 6, 10 if depth < 3 else 6)
    if kind < 5:
        return rng.choice(_SCALARS)
    if kind == 5:
        return (random_form(rng, 3), random_form(rng, 3))
    if kind < 8:
        keys = [f"{rng.choice('aé_')}{'x' * rng.randrange(4)}{index}" for index in range(rng.randrange(6))]
        return {key: random_form(rng, depth + 1) for key in keys}
    if kind == 8:
        return [random_form(rng, depth + 1) for _ in range(rng.randrange(5))]
    return [random_form(rng, 3)] * rng.choice((1, 3, 17, 40))


_SCALARS = ("literal", "small", "whole", "double", "short", "text", "decimal", "datetime", "time", "blob")


def random_value(rng: random.Random, form: Any) -> Any:
    """A document of the form. Few of its parts, if any, are of another form."""
    if rng.random() < 0.01:
        return random_value(rng, random_form(rng, 2))
    if isinstance(form, tuple):
        return random_value(rng, rng.choice(form))
    if isinstance(form, dict):
        return {key: random_value(rng, member) for key, member in form.items() if rng.random() > 0.01}
    if isinstance(form, list):
        return [random_value(rng, element) for element in form if rng.random() > 0.01]
    return _random_scalar(rng, form)


def _random_scalar(rng: random.Random, name: str) -> Any:
    match name:
        case "literal":
            return rng.choice((None, True, False))
        case "small":
            return rng.randrange(-100, 100)
        case "whole":
            return rng.choice((-1, 1)) * rng.randrange(1 << rng.randrange(1, 64))
        case "double":
            return rng.uniform(-1e9, 1e9)
        case "short":
            return "".join(rng.choices("abcé€😀", k=rng.randrange(12)))
        case "text":
            return "".join(rng.choices("abcé", k=rng.choice((0, 63, 64, 100, 130, 300))))
        case "decimal":
            return decimal_10_2(rng.randrange(-(10**9), 10**9))
        case "datetime":
            date = (rng.randrange(10_000), rng.randrange(13), rng.randrange(32))
            clock = (rng.randrange(24), rng.randrange(60), rng.randrange(60), rng.choice((0, 5, 999_999)))
            return temporal(rng.choice((TIMESTAMP, DATE, DATETIME)), packed(*date, *clock))
        case "time":
            return temporal(TIME, rng.choice((-1, 1)) * packed(0, 0, 0, rng.randrange(24), 59, 1, 5))
    return rng.randbytes(rng.choice((0, 5, 127, 128)))


# ------------------------------------------------------------------------------------------- comparing


def same(left: Any, right: Any) -> bool:
    """Equal, with equal types and keys in equal order all the way down; NaN equals itself."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, JsonOpaque):
        return bool(left == right and left.column_type == right.column_type)
    return bool(left == right)


def check_same(decoder: JsonDecoder, data: bytes) -> None:
    """The decoder says what the plain one says, or both raise the same."""
    _check_same(lambda: decoder.decode(data), data)


def check_same_in_row(decoder: JsonDecoder, row: bytes, at: int, end: int) -> None:
    """The same for a document among the bytes of a row, which may end before the document does."""
    read = decoder.by_size.get(end - at, decoder.by_shape)
    _check_same(lambda: read(row, at, end), row[at:end])


def _check_same(decode: Callable[[], JsonValue], data: bytes) -> None:
    try:
        plain = decode_json(data)
    except DecodeError as error:
        with pytest.raises(DecodeError) as caught:
            decode()
        same_error = (type(caught.value), str(caught.value)) == (type(error), str(error))
        assert same_error, data.hex()
    else:
        assert same(decode(), plain), data.hex()


def decoded(data: bytes) -> JsonValue:
    """What the plain decoder returns or raises, after loops and compiled readers were seen to agree."""
    decoder = JsonDecoder(sights_before_compiling=1)
    for _ in range(3):
        check_same(decoder, data)
    return decode_json(data)
