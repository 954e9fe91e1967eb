"""The plain decoder of binary JSON: published vectors, round trips through a test encoder, hostile documents."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError, TruncatedError
from protocol.values.jsonb import MAX_DEPTH, JsonOpaque, JsonValue
from tests.support.json_documents import (
    BLOB,
    DATE,
    DATETIME,
    LITERAL,
    NEWDECIMAL,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    TIME,
    TIMESTAMP,
    Encoded,
    decoded,
    document,
    documents,
    opaque,
    packed,
    same,
    temporal,
    variable_length,
)
from tests.support.places import CORPUS

# The values that the vectors describe in words.
OPAQUE_VECTORS: dict[str, JsonValue] = {
    '"23:24:25.000000" (time)': timedelta(hours=23, minutes=24, seconds=25),
    '"23:24:25.120000" (time)': timedelta(hours=23, minutes=24, seconds=25, milliseconds=120),
    "123456789.1234 (decimal)": Decimal("123456789.1234"),
    "1.99 (decimal)": Decimal("1.99"),
    "0.1 (decimal)": Decimal("0.1"),
    "0.000000001 (decimal)": Decimal("0.000000001"),
    "bit 0xCAFE": b"\xca\xfe",
    "opaque 0xCAFE (type 15)": b"\xca\xfe",
}


def _vectors() -> list[tuple[int, bytes, str]]:
    """(number, document, expected) of every vector of a JSON document."""
    if not CORPUS.exists():
        return []
    vectors = json.loads((CORPUS / "value_vectors.json").read_text())
    cases = []
    for number, vector in enumerate(vectors):
        data = bytes.fromhex(vector["hex"])
        if vector["type"] == "JSON":
            # As in a row: after a length of `meta` bytes.
            size = vector["meta"]["meta"]
            assert int.from_bytes(data[:size], "little") == len(data) - size
            data = data[size:]
        elif vector["type"] != "JSON-binary":
            continue
        cases.append((number, data, vector["expected"]))
    return cases


def test_published_vectors() -> None:
    for number, data, expected in _vectors():
        if expected.startswith("ERROR"):
            with pytest.raises(DecodeError):
                decoded(data)
            continue
        value = decoded(data)
        wanted = OPAQUE_VECTORS[expected] if expected in OPAQUE_VECTORS else json.loads(expected)
        assert value == wanted, number
        assert type(value) is type(wanted) or isinstance(value, JsonOpaque), number


def typed(value: Any) -> Any:
    """The decoded form of a value: bytes become opaque."""
    if isinstance(value, dict):
        return {key: typed(member) for key, member in value.items()}
    if isinstance(value, list):
        return [typed(element) for element in value]
    return JsonOpaque(value, BLOB) if isinstance(value, bytes) else value


@given(documents, st.booleans())
def test_round_trip(value: Any, large: bool) -> None:
    assert same(typed(value), decoded(document(value, large)))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 2_100_000])
def test_string_lengths(size: int) -> None:
    assert decoded(document("x" * size)) == "x" * size
    assert decoded(document(["x" * size, "y"], large=True)) == ["x" * size, "y"]


def test_no_bytes_are_null() -> None:
    assert decoded(b"") is None


def test_invalid_utf8_survives() -> None:
    assert decoded(b"\x0c\x02\xffa") == "\udcffa"
    assert decoded(document({"\udcff": 1})) == {"\udcff": 1}


# -------------------------------------------------------------------------------------- opaque values


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (temporal(DATE, packed(2026, 1, 31)), date(2026, 1, 31)),
        (temporal(DATE, packed(2026, 0, 31)), "2026-00-31"),
        (temporal(DATE, 0), "0000-00-00"),
        (temporal(DATETIME, packed(2026, 1, 31, 23, 59, 58, 7)), datetime(2026, 1, 31, 23, 59, 58, 7)),
        (temporal(DATETIME, packed(9999, 12, 31)), datetime(9999, 12, 31)),
        (temporal(DATETIME, packed(2026, 0, 0, 1)), "2026-00-00 01:00:00.000000"),
        (temporal(TIMESTAMP, packed(1970, 1, 1, 0, 0, 1)), datetime(1970, 1, 1, 0, 0, 1)),
        (temporal(TIME, packed(0, 0, 0, 0, 0, 1, 5)), timedelta(seconds=1, microseconds=5)),
        (temporal(TIME, -packed(0, 0, 0, 0, 0, 1, 5)), timedelta(seconds=-1, microseconds=-5)),
        (temporal(TIME, -(838 << 36)), timedelta(hours=-838)),
        (opaque(NEWDECIMAL, b"\x04\x02\x75\xc8"), Decimal("-10.55")),
        (opaque(BLOB, b""), b""),
    ],
)
def test_opaque_values(data: Encoded, value: JsonValue) -> None:
    assert decoded(document(data)) == value
    assert decoded(document({"k": data, "l": [data, 1]})) == {"k": value, "l": [value, 1]}


@pytest.mark.parametrize(
    "data",
    [
        temporal(DATETIME, packed(2026, 1, 31, 24)),
        temporal(DATETIME, packed(10000, 1, 31)),
        temporal(DATETIME, -1),
        temporal(DATETIME, 2**63 - 1),
        temporal(DATE, -(2**63)),
        temporal(TIME, 2**63 - 1),
        temporal(TIME, -(2**63)),
        temporal(TIME, 839 << 36),
        opaque(TIME, b"\0" * 7),
        opaque(NEWDECIMAL, b""),
        opaque(NEWDECIMAL, b"\x04"),
        opaque(NEWDECIMAL, b"\x04\x02\x75"),
        opaque(NEWDECIMAL, b"\x04\x02\x75\xc8\x00"),
        opaque(NEWDECIMAL, b"\x02\x04\x75\xc8"),
        opaque(NEWDECIMAL, b"\x00\x00"),
    ],
)
def test_opaque_values_no_server_has(data: Encoded) -> None:
    for value in (data, [data], {"k": data}):
        with pytest.raises(DecodeError):
            decoded(document(value))


def test_opaque_bytes_know_their_type() -> None:
    value = decoded(document(opaque(16, b"\x05")))
    assert isinstance(value, JsonOpaque)
    assert (value, value.column_type) == (b"\x05", 16)
    copy = pickle.loads(pickle.dumps(value))
    assert (type(copy), copy, copy.column_type) == (JsonOpaque, b"\x05", 16)


# ------------------------------------------------------------------------------------------- hostility


def nested(depth: int) -> bytes:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return document(value)


def test_depth() -> None:
    value = decoded(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH):
        assert isinstance(value, list)
        value = value[0] if value else None
    with pytest.raises(DecodeError, match="deeper"):
        decoded(nested(MAX_DEPTH + 1))


def test_a_container_inside_of_itself() -> None:
    # The only element has the array's own offset, which is refused because it is among the entries.
    with pytest.raises(DecodeError, match="entries"):
        decoded(b"\x02\x01\x00\x07\x00\x02\x00\x00")


def test_shared_strings_are_refused() -> None:
    """100 entries share a string of 10,000 bytes: a decoder that allows it makes a hundred times the document."""
    head = 4 + 100 * 3
    string = variable_length(10_000) + b"x" * 10_000
    data = struct.pack("<HH", 100, head + len(string)) + struct.pack("<BH", STRING, head) * 100 + string
    with pytest.raises(DecodeError, match="overlap"):
        decoded(bytes([SMALL_ARRAY]) + data)


def test_shared_keys_are_refused() -> None:
    count = 100
    head = 4 + count * 7
    keys = b"".join(struct.pack("<HH", head, 10_000 + index) for index in range(count))
    values = struct.pack("<BH", LITERAL, 0) * count
    data = struct.pack("<HH", count, head + 11_000) + keys + values + b"x" * 11_000
    with pytest.raises(DecodeError, match="overlap"):
        decoded(bytes([SMALL_OBJECT]) + data)


def test_shared_containers_are_refused() -> None:
    """Each level points twice to the next: a decoder that allows it makes 2**60 values of 600 bytes."""
    levels = 60
    data = b""
    for level in reversed(range(levels)):
        inner = (levels - level - 1) * 10
        data = struct.pack("<HH", 2, 10 + inner) + struct.pack("<BH", SMALL_ARRAY, 10) * 2 + data
    data = bytes([SMALL_ARRAY]) + data + struct.pack("<HH", 0, 4)
    with pytest.raises(DecodeError):
        decoded(data)


def test_a_key_twice() -> None:
    data = bytearray(document({"ab": 1, "cd": 2}))
    data[data.index(b"cd") : data.index(b"cd") + 2] = b"ab"
    with pytest.raises(DecodeError, match="twice"):
        decoded(bytes(data))


@pytest.mark.parametrize(
    "data",
    ["00", "0c", "0c05", "0cff", "0cffffffffff00", "0cffffffffffff", "0501", "0b00", "0f", "0ffc", "04"],
)
def test_truncated_values(data: str) -> None:
    with pytest.raises(TruncatedError):
        decoded(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data", ["0403", "0d00", "0e00", "ff", "02ffff0400", "00ffff0400", "03ffffffff08000000"]
)
def test_impossible_values(data: str) -> None:
    with pytest.raises(DecodeError):
        decoded(bytes.fromhex(data))


@given(documents, st.booleans(), st.data())
def test_every_truncation_of_a_container_is_an_error(value: Any, large: bool, data: st.DataObject) -> None:
    whole = document([value], large)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(DecodeError):
        decoded(whole[:cut])


def _survives(read: Callable[[], object]) -> None:
    try:
        read()
    except DecodeError:
        return


@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    _survives(lambda: decoded(data))


@given(
    documents, st.booleans(), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_changed_bytes(value: Any, large: bool, changes: list[tuple[int, int]]) -> None:
    data = bytearray(document({"a": value, "b": [value]}, large))
    for at, byte in changes:
        data[at % len(data)] = byte
    _survives(lambda: decoded(bytes(data)))
