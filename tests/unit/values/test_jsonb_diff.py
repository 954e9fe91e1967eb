"""Partial JSON updates: diffs that MySQL 9.7 logged, their effect on documents, and diffs that do not fit."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError, TruncatedError
from protocol.values import jsonb_diff
from protocol.values.jsonb import MAX_DEPTH, JsonValue
from protocol.values.jsonb_diff import JsonDiff, Operation, apply_json_diffs, read_json_diffs

ONE = b"\x05\x01\x00"
TWO = b"\x05\x02\x00"


@pytest.mark.parametrize(
    ("data", "diffs"),
    [
        ("00 03 242e61 03 0c0179", [JsonDiff("replace", "$.a", b"\x0c\x01y")]),
        ("00 09 242e625b6c6173745d 03 050a00", [JsonDiff("replace", "$.b[last]", b"\x05\n\0")]),
        (
            "02 05 242e6e6577 02 06 242e625b305d",
            [JsonDiff("remove", "$.new", b""), JsonDiff("remove", "$.b[0]", b"")],
        ),
        ("01 06 242ec3a9c3a8 03 050500", [JsonDiff("insert", "$.éè", b"\x05\x05\0")]),
        ("", []),
    ],
)
def test_logged_diffs(data: str, diffs: list[JsonDiff]) -> None:
    assert read_json_diffs(bytes.fromhex(data)) == diffs


def test_long_values() -> None:
    value = b"\x0c\xac\x02" + b"x" * 300
    assert read_json_diffs(b"\x01\x03$.a\xfc" + len(value).to_bytes(2, "little") + value) == [
        JsonDiff("insert", "$.a", value)
    ]


@pytest.mark.parametrize(
    "data", ["00", "0003242e", "0003242e61", "0003242e6103 0c01", "01fb", "0003242e61fd0000"]
)
def test_truncated_diffs(data: str) -> None:
    with pytest.raises(TruncatedError):
        read_json_diffs(bytes.fromhex(data))


def test_unknown_operation() -> None:
    with pytest.raises(DecodeError, match="operation 3"):
        read_json_diffs(b"\x03\x03$.a")


@pytest.mark.parametrize(
    ("document", "operation", "path", "after"),
    [
        ({"a": 5, "b": 6}, "replace", "$.a", {"a": 1, "b": 6}),
        ({"a": 5}, "insert", "$.b", {"a": 5, "b": 1}),
        ({"a": 5, "b": 6}, "remove", "$.a", {"b": 6}),
        ([5, 6, 7], "replace", "$[1]", [5, 1, 7]),
        ([5, 6, 7], "remove", "$[0]", [6, 7]),
        ([5, 6, 7], "insert", "$[1]", [5, 1, 6, 7]),
        ([5, 6, 7], "insert", "$[9]", [5, 6, 7, 1]),
        ([5, 6, 7], "replace", "$[last]", [5, 6, 1]),
        ([5, 6, 7], "replace", "$[last-2]", [1, 6, 7]),
        ([5, 6, 7], "insert", "$[last-3]", [1, 5, 6, 7]),
        ([5, 6, 7], "insert", "$[last-9]", [1, 5, 6, 7]),
        ([], "insert", "$[last]", [1]),
        ({"a": [{"b": [5]}]}, "replace", "$.a[0].b[0]", {"a": [{"b": [1]}]}),
        ({"c d": {"é": 5}}, "replace", '$."c d".é', {"c d": {"é": 1}}),
        ({'q"x': 5}, "replace", '$."q\\"x"', {'q"x': 1}),
        ({"a\n]": 5}, "replace", '$."a\\n]"', {"a\n]": 1}),
        ({"": 5}, "replace", '$.""', {"": 1}),
        ({"$a1_": 5}, "replace", "$.$a1_", {"$a1_": 1}),
        ({"a": 5}, "replace", "$", 1),
    ],
)
def test_changes(document: JsonValue, operation: Operation, path: str, after: JsonValue) -> None:
    before = copy.deepcopy(document)
    value = b"" if operation == "remove" else ONE
    assert apply_json_diffs(document, [JsonDiff(operation, path, value)]) == after
    assert document == before


def test_each_change_sees_those_before_it() -> None:
    diffs = [
        JsonDiff("insert", "$.a", b"\x02\x00\x00\x04\x00"),
        JsonDiff("insert", "$.a[0]", ONE),
        JsonDiff("insert", "$.a[0]", TWO),
        JsonDiff("remove", "$.b", b""),
    ]
    assert apply_json_diffs({"b": None}, diffs) == {"a": [2, 1]}
    assert apply_json_diffs({"b": None}, []) == {"b": None}


def test_new_members_stand_where_the_server_sorts_them() -> None:
    """Members have the server's order (short names first, then by bytes), so the text equals SELECT's."""
    diffs = [JsonDiff("insert", path, ONE) for path in ("$.c", "$.é", "$.aa", "$.o.y")]
    changed = apply_json_diffs({"b": 5, "o": {"z": 6}, "dd": 7}, diffs)
    assert isinstance(changed, dict)
    assert list(changed) == ["b", "c", "o", "aa", "dd", "é"]
    inner = changed["o"]
    assert isinstance(inner, dict)
    assert inner == {"y": 1, "z": 6}
    assert list(inner) == ["y", "z"]


@pytest.mark.parametrize(
    ("document", "operation", "path"),
    [
        ({"a": 5}, "replace", "$.b"),
        ({"a": 5}, "insert", "$.a"),
        ({"a": 5}, "remove", "$.b"),
        ({"a": 5}, "replace", "$[0]"),
        ({"a": 5}, "replace", "$.a.b"),
        ({"a": 5}, "replace", "$.a[0]"),
        ([5], "replace", "$[1]"),
        ([5], "remove", "$[1]"),
        ([5], "remove", "$[last-1]"),
        ([5], "replace", "$[last-1].a"),
        ([5], "replace", "$.a"),
        (5, "insert", "$"),
        (5, "remove", "$"),
        ({"a": 5}, "replace", ""),
        ({"a": 5}, "replace", "a"),
        ({"a": 5}, "replace", "$a"),
        ({"a": 5}, "replace", "$."),
        ({"a": 5}, "replace", "$.a["),
        ({"a": 5}, "replace", "$.a[]"),
        ({"a": 5}, "replace", "$.a[last-]"),
        ({"a": 5}, "replace", "$.a[last1]"),
        ({"a": 5}, "replace", "$.a[99999999999]"),
        ({"a": 5}, "replace", '$."a'),
        ({"a": 5}, "replace", '$."\\x"'),
    ],
)
def test_what_does_not_fit_is_an_error(document: JsonValue, operation: Operation, path: str) -> None:
    with pytest.raises(DecodeError):
        apply_json_diffs(document, [JsonDiff(operation, path, b"" if operation == "remove" else ONE)])


def test_a_damaged_value_is_an_error() -> None:
    with pytest.raises(DecodeError):
        apply_json_diffs({}, [JsonDiff("insert", "$.a", b"\x0c\x05")])


def test_changes_cannot_make_a_document_too_deep() -> None:
    nest = JsonDiff("insert", "$[0]", b"\x02\x00\x00\x04\x00")
    diffs = [JsonDiff("insert", "$" + "[0]" * (level + 1), nest.value) for level in range(MAX_DEPTH - 1)]
    document = apply_json_diffs([], diffs)
    with pytest.raises(DecodeError, match="deeper"):
        apply_json_diffs(document, [JsonDiff("insert", "$" + "[0]" * MAX_DEPTH, nest.value)])


paths = st.from_regex(
    r'\$(\.[a-c]|\."[a-c\\"]*"|\[[0-9]\]|\[last(-[0-3])?\]){0,4}', fullmatch=True
) | st.text(max_size=8)
operations = st.sampled_from(("replace", "insert", "remove"))


@given(
    st.recursive(
        st.integers(0, 9),
        lambda c: st.lists(c, max_size=3) | st.dictionaries(st.sampled_from("abc"), c, max_size=3),
        max_leaves=8,
    ),
    st.lists(
        st.builds(JsonDiff, operations, paths, st.sampled_from((ONE, TWO, b"\x02\x00\x00\x04\x00", b"?")))
    ),
)
def test_only_decode_errors_escape_from_changes(document: JsonValue, diffs: list[JsonDiff]) -> None:
    try:
        apply_json_diffs(document, diffs)
    except DecodeError:
        return


@given(st.binary())
def test_only_decode_errors_escape_from_bytes(data: bytes) -> None:
    try:
        read_json_diffs(data)
    except DecodeError:
        return


INDEX = (
    st.integers(0, 12).map(str) | st.integers(0, 12).map(lambda number: f"last-{number}") | st.just("last")
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["replace", "insert", "remove"]), INDEX, st.sampled_from(["", "[0]"]))
)


@given(changes=CHANGES, size=st.integers(0, 12))
def test_large_arrays_are_changed_as_small_ones(changes: list[tuple[Operation, str, str]], size: int) -> None:
    """Their elements are in blocks: each change at the front of an array moved all elements behind it."""
    document: JsonValue = [[number, -number] for number in range(size)]
    diffs = []
    for number, (operation, index, inner) in enumerate(changes):
        value = b"" if operation == "remove" else b"\x05" + number.to_bytes(2, "little")
        diffs.append(JsonDiff(operation, f"$[{index}]{inner}", value))
    found = []
    for block in (jsonb_diff.BLOCK, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jsonb_diff, "BLOCK", block)
            try:
                found.append(apply_json_diffs(document, diffs))
            except DecodeError as error:
                found.append(str(error))
    assert found[0] == found[1]


def test_how_many_elements_a_change_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonb_diff, "BLOCK", 8)
    found = jsonb_diff._Blocks(list(range(1000)))
    for number in range(2000):
        found.insert(number * 7 % 500, number)
        assert max(map(len, found.blocks)) <= 17
    for number in range(2990):
        found.remove(number % 3 % len(found))
        assert max(map(len, found.blocks)) <= 17
    assert len(found) == 10
