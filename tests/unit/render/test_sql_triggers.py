"""Statements about triggers, in SQL that repeats a log."""

from __future__ import annotations

import pytest

from replica.render.sql_triggers import without_triggers


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("DROP TRIGGER `s`.t", "DROP TRIGGER IF EXISTS `s`.t"),
        ("/* x */ drop trigger t", "/* x */ drop TRIGGER IF EXISTS t"),
        ("DROP TRIGGER if exists t", "DROP TRIGGER if exists t"),
        ("DROP TABLE `trigger`", "DROP TABLE `trigger`"),
        ("CREATE PROCEDURE p() DROP TRIGGER t", "CREATE PROCEDURE p() DROP TRIGGER t"),
    ],
)
def test_a_trigger_that_was_left_out_can_be_dropped(statement: str, written: str) -> None:
    assert without_triggers(statement) == (written, False)


@pytest.mark.parametrize("create", ["CREATE", "create or replace", "CREATE DEFINER=`root`@`%`"])
def test_each_line_of_a_trigger_is_a_comment(create: str) -> None:
    text, is_comment = without_triggers(f"{create} TRIGGER t BEGIN\n  SET @a = 1; -- x\r\nEND")
    assert is_comment
    assert text.splitlines()[1:] == [f"-- {create} TRIGGER t BEGIN", "--   SET @a = 1; -- x", "-- END"]
