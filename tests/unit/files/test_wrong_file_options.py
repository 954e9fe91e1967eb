"""Wrong values of ``open_binlog``'s arguments: a typed error names the argument, before any event is read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

import replica.sync
from protocol.errors import ConfigurationError
from replica import KeyFile, open_binlog
from tests.support.log_builder import numbered_log

WRONG = [5, 1.5, [5], int, {"a": 5}, {5: "a"}]


@pytest.mark.parametrize("name", ["schema", "keyring", "key_file", "cells"])
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_of_another_type(name: str, value: object) -> None:
    """It was an AttributeError at the first table, or nothing until an encrypted file came."""
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        open_binlog(io.BytesIO(numbered_log(1).data), **options)


@pytest.mark.parametrize("value", ["", "\0", KeyFile(""), KeyFile("x", b"secret")], ids=repr)  # type: ignore[arg-type]
def test_keys_of_no_file(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^key_file: "):
        open_binlog("x", key_file=value)


def test_keys_are_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_binlog("x", keyring={"key": "c2VjcmV0"})  # type: ignore[dict-item]
    assert "c2VjcmV0" not in str(caught.value)


def test_a_path_of_bytes() -> None:
    """It said that 120 is neither a path nor a file object."""
    with pytest.raises(ConfigurationError, match=r"^b'x' is neither a path"):
        open_binlog(b"x")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["tls_ca", "tls_cert", "server_public_key_path"])
def test_a_path_that_is_no_text_of_a_file(name: str) -> None:
    """It was a UnicodeEncodeError."""
    options: dict[str, Any] = {name: "\ud800"}
    with pytest.raises(ConfigurationError, match=f"^{name}: "):
        replica.connect("mysql://repl@host", **options)


@pytest.mark.parametrize("value", ["5", b"5", True, float("nan"), [5], Path("x")], ids=repr)
def test_a_time_limit(value: Any) -> None:
    """It was a TypeError that named no argument, and a number that is none was no limit."""
    with pytest.raises(ConfigurationError, match=r"^timeout\(\): a number of seconds, or None"):
        replica.sync.connect("mysql://repl@host").timeout(value)
