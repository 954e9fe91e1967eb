"""The fast JSON decoder equals the plain one: in its loops, in compiled readers, and where it falls back."""

from __future__ import annotations

import gc
import random
import struct
import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.values.jsonb import MAX_DEPTH, decode_json
from protocol.values.jsonb_fast import SIGHTS_BEFORE_COMPILING, JsonDecoder
from protocol.values.jsonb_layouts import Layouts
from protocol.values.jsonb_shapes import Shape
from tests.support.json_documents import (
    DOUBLE,
    INT32,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    Encoded,
    check_same,
    document,
    random_form,
    random_value,
    temporal,
    variable_length,
)

HOLES = (b"", b"", b"\0", b"hole")


def shapes() -> list[Shape]:
    """The shapes that all decoders together remember."""
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, Shape)]


def calls(decoder: JsonDecoder, data: bytes) -> list[str]:
    """The names of the Python functions that are called to decode a document without a layout."""
    names: list[str] = []

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name not in ("miss", "by_shape"):
            names.append(frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        decoder.decode(data)
    except DecodeError:
        pass
    finally:
        sys.setprofile(None)
    return names


def learned(values: list[Any], sights: int = 3, hole: bytes = b"") -> JsonDecoder:
    decoder = JsonDecoder(sights)
    for value in values:
        decoder.decode(document(value, hole=hole))
    return decoder


# --------------------------------------------------------------------------------- equal to the plain one


def test_documents_of_one_form(seed: int) -> None:
    rng = random.Random(seed)
    decoders = [JsonDecoder(sights_before_compiling=3) for _ in range(60)]
    for decoder in decoders:
        form = random_form(rng)
        hole, large = rng.choice(HOLES), rng.random() < 0.2
        for _ in range(30):
            check_same(decoder, document(random_value(rng, form), large, hole))
    compiled = sum(shape.reader is not None for shape in shapes())
    print(f"{compiled} compiled readers")
    assert compiled > 30


def test_documents_of_many_forms_in_turn(seed: int) -> None:
    rng = random.Random(seed)
    forms = [random_form(rng) for _ in range(12)]
    decoder = JsonDecoder(sights_before_compiling=2)
    for _ in range(500):
        check_same(decoder, document(random_value(rng, rng.choice(forms)), hole=rng.choice(HOLES)))


def test_every_truncation_and_every_changed_byte(seed: int, thorough: bool) -> None:
    """Damaged documents of shapes that are compiled, and of shapes that the loops read."""
    rng = random.Random(seed)
    cases = 0
    while cases < (20_000 if thorough else 4000):
        form = random_form(rng)
        values = [random_value(rng, form) for _ in range(8)]
        data = document(rng.choice(values))
        if data[0] > SMALL_ARRAY or len(data) > 1000:
            continue
        decoder = learned(values, sights=rng.choice((2, 1000)))
        for end in range(len(data)):
            check_same(decoder, data[:end])
        for at in range(len(data)):
            for bits in (1, 0x80, 0xFF, rng.randrange(1, 256)):
                check_same(decoder, data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :])
        check_same(decoder, data)
        cases += 5 * len(data)


@given(
    st.integers(0, 2**64), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_several_changed_bytes(seed: int, changes: list[tuple[int, int]]) -> None:
    rng = random.Random(seed)
    form = random_form(rng)
    values = [random_value(rng, form) for _ in range(3)]
    data = bytearray(document(values[0]))
    for at, byte in changes:
        data[at % len(data)] = byte
    check_same(learned(values, sights=1), bytes(data))


def test_values_that_stand_in_another_order() -> None:
    """No server writes values in this layout; each is still read once."""
    strings = [variable_length(3) + b"oak", variable_length(3) + b"ash"]
    head = struct.pack("<HHBHBH", 2, 18, STRING, 14, STRING, 10)
    data = bytes([SMALL_ARRAY]) + head + b"".join(strings)
    decoder = learned([["oak", "ash"]] * 3)
    assert decoder.decode(data) == decode_json(data) == ["ash", "oak"]


@pytest.mark.parametrize(
    "others",
    [["ab", "c"], ["a", "bc"], ["a", "bd"], ["a"], ["a", "bc", ""], ["abc", ""], ["a", "bc", "d"], []],
)
def test_keys_that_are_nearly_those_of_the_document_before(others: list[str]) -> None:
    known = {"a": 1, "bc": 2}
    value = dict.fromkeys(others, 3)
    wrappings: list[Callable[[Any], Any]] = [
        lambda inner: inner,
        lambda inner: {"k": inner},
        lambda inner: [inner] * 20,
    ]
    for wrapped in wrappings:
        decoder = learned([wrapped(known)] * 4)
        assert decoder.decode(document(wrapped(value))) == wrapped(value)
        assert decoder.decode(document(wrapped(known))) == wrapped(known)


@pytest.mark.parametrize(
    "keys", [['")\nimport os', "\n    raise SystemExit"], ["{i}", "{floor}"], ["", "é\0'"]]
)
def test_keys_are_no_code(keys: list[str]) -> None:
    value = {key: dict.fromkeys(keys, 1) for key in keys}
    decoder = learned([value] * 3)
    assert decoder.decode(document(value)) == value


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
@pytest.mark.parametrize("count", [1, 2, 20])
def test_depth(depth: int, count: int) -> None:
    """Objects of one shape on each level; the last one is an element of a short or a long array."""
    value: Any = [{"a": 1}] * count
    for _ in range(depth - 2):
        value = {"k": value}
    decoder = learned([{"k": {"k": [{"a": 1}] * count}}] * 3)
    for _ in range(5):
        check_same(decoder, document(value))


@pytest.mark.parametrize("size", [0, 127, 128, 255, 256, 16_383, 16_384, 40_000])
def test_lengths_of_strings(size: int) -> None:
    """Lengths of one, two and three bytes; every byte of them is set to every value."""
    decoder = learned([{"a": "oak", "b": "ash"}] * 4)
    data = document({"a": "x" * size, "b": "y"})
    assert decoder.decode(data) == {"a": "x" * size, "b": "y"}
    at = data.index(variable_length(size) + b"x" * size + b"\1y")
    for index in range(at, at + 4):
        for byte in range(256):
            check_same(decoder, data[:index] + bytes([byte]) + data[index + 1 :])


def test_keys_that_reach_over_the_end_of_their_object() -> None:
    """The key's last byte belongs to the bytes after the object, or is missing."""
    for behind in (b"", b"x"):
        inner = document({"key": None})[1:]
        shorter = struct.pack("<HH", 1, len(inner) - 1) + inner[4:]
        check_same(JsonDecoder(), document([Encoded(SMALL_OBJECT, shorter)], hole=behind))


@pytest.mark.parametrize("kind", [DOUBLE, INT32])
def test_numbers_that_stand_among_the_entries(kind: int) -> None:
    count = 40
    entries = b"".join(struct.pack("<BH", kind, 4 + 8 * index) for index in range(count))
    data = bytes([SMALL_ARRAY]) + struct.pack("<HH", count, 4 + 8 * count) + entries
    check_same(JsonDecoder(), data.ljust(1 + 4 + 8 * count, b"x"))


@pytest.mark.parametrize("numbers", [[0.5] * 40, [70_000] * 40])
def test_numbers_that_reach_over_the_end_of_their_array(numbers: list[float]) -> None:
    inner = document(numbers)[1:]
    shorter = struct.pack("<HH", len(numbers), len(inner) - 1) + inner[4:]
    check_same(JsonDecoder(), document([Encoded(SMALL_ARRAY, shorter)]))


@pytest.mark.parametrize("inner", [SMALL_OBJECT, SMALL_ARRAY])
def test_a_container_inside_of_itself_is_read_once(inner: int) -> None:
    """The container is read once, not a hundred times, which is the depth that documents may have."""
    data = bytes([SMALL_ARRAY]) + struct.pack("<HHBH", 1, 7, inner, 0)
    for decoder in (JsonDecoder(), learned([[[]], [{}]] * 4)):
        check_same(decoder, data)
        assert len(calls(decoder, data)) < 20


# ------------------------------------------------------------------------------------- what is learned


@pytest.fixture
def no_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are read by their shapes alone."""

    def miss(layouts: Layouts, data: bytes, shape: Shape) -> None:
        pass

    monkeypatch.setattr(Layouts, "miss", miss)


@pytest.mark.usefixtures("no_layouts")
def test_a_shape_met_often_is_read_without_a_call_per_value() -> None:
    value = {"id": 70_000, "name": "oak", "ok": True, "size": {"x": 1.5, "y": None}, "tags": ["a", "b"]}
    decoder = JsonDecoder()
    for _ in range(SIGHTS_BEFORE_COMPILING):
        decoder.decode(document(value))
    # The first document after that uses the readers compiled in the meantime.
    decoder.decode(document(value))
    assert calls(decoder, document(value)) == ["decode", "read"]
    # Recurring contents are looked up; others are read.
    other = {"id": 3, "name": "ash", "ok": None, "size": {"x": -1.5, "y": True}, "tags": ["c", ""]}
    assert calls(decoder, document(other)) == ["decode", "read", "read", "read"]
    assert decoder.decode(document(other)) == other
    assert calls(decoder, document(other)) == ["decode", "read"]


@pytest.mark.usefixtures("no_layouts")
def test_inner_containers_are_read_by_the_outer_ones_reader() -> None:
    values = [
        {
            "id": n,
            "size": {"x": n / 3, "tags": [str(n), "é" * n, n * n, {"deep": n}]},
            "list": [{"a": n}, {"a": -n}],
        }
        for n in range(60)
    ]
    decoder = learned(values, sights=10)
    decoder.decode(document(values[0]))
    for value in values:
        assert calls(decoder, document(value)) == ["decode", "read"]
        check_same(decoder, document(value))


@pytest.mark.usefixtures("no_layouts")
def test_what_recurs_is_new_each_time() -> None:
    value = {"tags": ["a", "b"], "size": {"x": 1, "y": 2}}
    decoder = learned([value] * 30, sights=10)
    first, second = (decoder.decode(document(value)) for _ in range(2))
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first == second == value
    assert first["tags"] is not second["tags"]
    first["tags"].append("c")  # type: ignore[union-attr]
    first["size"].clear()  # type: ignore[union-attr]
    assert decoder.decode(document(value)) == second == value


@pytest.mark.usefixtures("no_layouts")
def test_documents_some_of_whose_parts_recur(seed: int) -> None:
    """Few contents before compiling and more than are kept afterwards; also large ones, and containers instead."""
    rng = random.Random(seed)
    decoder = JsonDecoder(sights_before_compiling=20)
    for number in range(3000):
        choices = 2 if number < 100 else 200
        tags: Any = [
            str(rng.randrange(choices)),
            "x" * (rng.randrange(2) if number < 100 else rng.randrange(900)),
        ]
        inner = {"a": rng.randrange(choices), "b": None}
        value = {"n": number, "tags": tags, "inner": [inner, inner]}
        if number > 100 and not rng.randrange(20):
            value = {"n": number, "tags": rng.choice(([], inner, [1, 2], "text")), "inner": [tags, inner]}
        check_same(decoder, document(value, hole=rng.choice(HOLES)))


@pytest.mark.usefixtures("no_layouts")
def test_a_value_of_another_type_is_no_other_shape() -> None:
    decoder = learned([{"id": 1, "name": "oak"}] * 4)
    assert calls(decoder, document({"id": 1, "name": 1.5})) == ["decode", "read", "_value", "_outside"]
    assert calls(decoder, document({"id": 1, "name": None})) == ["decode", "read", "_value"]
    # A whole number may grow into a larger type.
    assert calls(decoder, document({"id": 70_000, "name": "oak"})) == ["decode", "read"]


def test_zero_dates_are_read_by_compiled_readers_too() -> None:
    decoder = learned([{"at": temporal(12, 0)}] * 4)
    assert "value" not in calls(decoder, document({"at": temporal(12, 0)}))


# -------------------------------------------------------------------------------------------- memory


def test_what_is_remembered_is_bounded() -> None:
    before = len(shapes())
    decoder = JsonDecoder()
    for number in range(3000):
        assert decoder.decode(document({f"k{number}": [number, {}]})) == {f"k{number}": [number, {}]}
        decoder.decode(document([None if number >> bit & 1 else 1.5 for bit in range(12)]))
        decoder.decode(document({"x" * 30_000: 1, str(number): 2}))
        decoder.decode(document({f"{number}-{index}": 1 for index in range(100)}))
    assert len(shapes()) - before <= 512


def test_compiled_readers_are_bounded() -> None:
    before = len(shapes())
    decoder = JsonDecoder(sights_before_compiling=1)
    for number in range(1500):
        for _ in range(2):
            assert decoder.decode(document({f"k{number}": number})) == {f"k{number}": number}
    assert 0 < len(shapes()) - before <= 1024


@pytest.mark.usefixtures("no_layouts")
def test_frequent_shapes_survive_many_that_are_met_once() -> None:
    value = {"id": 1, "name": "oak"}
    decoder = learned([value] * 4)
    for number in range(1000):
        decoder.decode(document({f"k{number}": 1}))
    decoder.decode(document(value))
    assert calls(decoder, document(value)) == ["decode", "read"]


def test_all_goes_with_the_decoder() -> None:
    before = len(shapes())
    decoder = learned([{"id": 1, "inner": {"tags": ["a"]}}] * 4)
    assert len(shapes()) == before + 3
    gone = weakref.ref(decoder)
    del decoder
    assert len(shapes()) == before
    assert gone() is None
