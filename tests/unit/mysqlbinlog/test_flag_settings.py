"""The settings that FLAGS2 stands for, in logs of versions of MariaDB that no server of the tests has."""

from __future__ import annotations

import struct

import pytest

from replica.mysqlbinlog.query import Session
from tests.support.rendered_events import query


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("10.5.1", []),
        ("10.5.2", ["sql_if_exists"]),
        ("10.5.16", ["sql_if_exists"]),
        ("10.5.17", ["sql_if_exists", "explicit_defaults_for_timestamp"]),
        ("10.6.8", ["sql_if_exists"]),
        ("10.6.9", ["sql_if_exists", "explicit_defaults_for_timestamp"]),
        ("10.7.4", ["sql_if_exists"]),
        ("10.7.5", ["sql_if_exists", "explicit_defaults_for_timestamp"]),
        ("10.8.3", ["sql_if_exists"]),
        ("10.9.1", ["sql_if_exists"]),
        ("10.9.2", ["sql_if_exists", "explicit_defaults_for_timestamp"]),
        ("10.10.0", ["sql_if_exists", "explicit_defaults_for_timestamp"]),
    ],
)
def test_settings_of_a_version(version: str, expected: list[str]) -> None:
    """``mariadb-binlog`` 11.8 printed these for a log whose first event names the version."""
    session = Session("mariadb")
    session.follow(f"{version}-MariaDB-log")
    event = query("BEGIN")
    event.status_variables = struct.pack("<BI", 0, 0)
    usual = ["foreign_key_checks=1", "sql_auto_is_null=0", "unique_checks=1", "autocommit=1"]
    usual.append("check_constraint_checks=1")
    named = [*usual, *(f"{name}=0" for name in [*expected, "system_versioning_insert_history"])]
    text = b"".join(session.statements(event)).decode()
    assert "SET " + ", ".join(f"@@session.{setting}" for setting in named) + "/*!*/;" in text.splitlines()
