"""Positions: text and order. Checkpoints: to JSON and back, and values that are refused."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import ConfigurationError, DecodeError
from protocol.position import BinlogPosition, Checkpoint, file_number, split_file_name

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FULL = Checkpoint("binlog.000003", 154, f"{UUID}:1-5", UUID, 97)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("binlog.000003:154", BinlogPosition("binlog.000003", 154)),
        (" host:3306.000001:4 ", BinlogPosition("host:3306.000001", 4)),
        ("b:0", BinlogPosition("b", 0)),
    ],
)
def test_position_text(text: str, position: BinlogPosition) -> None:
    assert BinlogPosition.parse(text) == position
    assert str(position) == text.strip()
    assert BinlogPosition.parse(str(position)) == position


@pytest.mark.parametrize("text", ["", "b", "b:", ":4", "b:-4", "b:4x", "b:٤", f"b:{'4' * 5000}"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ConfigurationError):
        BinlogPosition.parse(text)


@pytest.mark.parametrize(("file", "position"), [("", 4), ("b.000001", -1)])
def test_a_position_has_a_file_and_an_offset(file: str, position: int) -> None:
    with pytest.raises(ConfigurationError):
        BinlogPosition(file, position)


PLACES = st.tuples(st.sampled_from([1, 2, 999999, 1000000]), st.integers(0, 3))


@given(PLACES, PLACES)
def test_positions_are_ordered_by_the_files_number(one: tuple[int, int], two: tuple[int, int]) -> None:
    left, right = (BinlogPosition(f"bin.log.{number:06}", offset) for number, offset in (one, two))
    assert (left < right) == (one < two)
    assert (left <= right) == (one <= two)
    assert (left > right) == (one > two)
    assert (left >= right) == (one >= two)
    assert (left == right) == (one == two)


def test_offsets_of_one_file_are_ordered_whatever_its_name() -> None:
    assert BinlogPosition("relay", 4) < BinlogPosition("relay", 5)


@pytest.mark.parametrize("file", ["other.000001", "binlog", "binlog.x", f"binlog.{'1' * 5000}", "binlog.²"])
def test_positions_of_different_logs_have_no_order(file: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be ordered: .* log_bin was renamed"):
        assert BinlogPosition("binlog.000001", 4) < BinlogPosition(file, 4)


@pytest.mark.parametrize(
    ("name", "base", "digits"),
    [
        ("binlog.000042", "binlog", "000042"),
        ("a.b.7", "a.b", "7"),
        ("binlog", "binlog", ""),
        ("7", "7", ""),
        ("b.000001x", "b.000001x", ""),
    ],
)
def test_the_number_in_a_files_name(name: str, base: str, digits: str) -> None:
    assert split_file_name(name) == (base, digits)
    assert file_number(name) == int(digits or 0)


def test_a_position_is_not_less_than_something_else() -> None:
    with pytest.raises(TypeError):
        assert BinlogPosition("binlog.000001", 4) < "binlog.000002:4"  # type: ignore[operator]


@pytest.mark.parametrize("checkpoint", [FULL, Checkpoint("b.000001", 4), Checkpoint("b.1", 4, "0-1-100")])
def test_checkpoints_go_through_json(checkpoint: Checkpoint) -> None:
    assert Checkpoint.from_dict(json.loads(json.dumps(checkpoint.to_dict()))) == checkpoint


def test_a_checkpoints_keys() -> None:
    assert FULL.to_dict() == {
        "file": "binlog.000003",
        "position": 154,
        "gtid_set": f"{UUID}:1-5",
        "server_uuid": UUID,
        "server_id": 97,
        "version": 1,
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("file", None),
        ("file", 3),
        ("position", None),
        ("position", "154"),
        ("position", -1),
        ("position", True),
        ("position", 1.5),
        ("gtid_set", 5),
        ("gtid_set", "nonsense"),
        ("server_uuid", 5),
        ("server_id", "97"),
        ("version", 2),
        ("version", None),
        ("surplus", 1),
    ],
)
def test_wrong_values_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"checkpoint|GTID"):
        Checkpoint.from_dict(FULL.to_dict() | {key: value})


@pytest.mark.parametrize("key", list(FULL.to_dict()))
def test_a_missing_value_is_refused(key: str) -> None:
    data = FULL.to_dict()
    del data[key]
    with pytest.raises(ConfigurationError):
        Checkpoint.from_dict(data)


def test_a_file_of_one_long_word() -> None:
    """Its whole text was in the message, and each log."""
    word = "x" * (1 << 20)
    values = {"file": "binlog.000001", "position": 4, "gtid_set": None, "server_uuid": None, "server_id": 1}
    for name in ("position", "version", word):
        with pytest.raises(ConfigurationError) as raised:
            Checkpoint.from_dict({"version": 1} | values | {name: word})
        assert len(str(raised.value)) == 8192
    error = DecodeError(f"{word} is no value", "binlog.000001", 4)
    assert str(error).endswith("x is no value (binlog.000001, at 4)")
    assert str(error).startswith("xxx")
    assert len(str(pickle.loads(pickle.dumps(error)))) == 8192
