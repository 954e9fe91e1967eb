"""Identifiers, literals and LIKE patterns. That servers read literals as meant is tested on servers."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.rows.table import table_text
from replica.config.table_names import split_text
from replica.sql.quoting import hex_literal, identifier, like_expression, quoted, text_literal


def test_quote_marks_are_doubled() -> None:
    assert identifier("a`b") == "`a``b`"
    assert quoted("it's \\", "'") == "'it''s \\'"


def test_the_text_of_a_table() -> None:
    assert table_text("w", "t") == "w.t"
    assert table_text("w", "a.t") == "w.a.t"
    assert table_text("w.a", "t") == "`w.a`.t"


@given(st.text("ab.`", min_size=1), st.text("ab.`", min_size=1))
def test_a_table_is_found_by_its_text(schema: str, table: str) -> None:
    assert split_text(table_text(schema, table)) == (schema, table)


def test_a_text_literal_has_backslash_escapes() -> None:
    assert text_literal("it's\\\n\r\0\x1a\"%") == "'it\\'s\\\\\\n\\r\\0\\Z\"%'"
    assert text_literal("ä") == "_utf8mb4'ä'"


def test_a_hexadecimal_literal_holds_any_bytes() -> None:
    assert hex_literal("") == "_utf8mb4 X''"
    assert hex_literal("a'\udcff") == "_utf8mb4 X'6127ff'"


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a%", "a", True),
        ("a%", "a\nb", True),
        ("a_", "ab", True),
        (r"a\_", "a_", True),
        (r"a\_", "ab", False),
        ("a.", "ab", False),
        ("a", "ab", False),
        ("%b%c", "abbac", True),
        ("%b%c", "abbca", False),
        ("a%%", "a", True),
        (r"%\%", "100%", True),
        (r"a%\_b%", "axx_b", True),
        ("%ab%ab%", "ab", False),
        ("%a_%a", "aaa", True),
        ("", "", True),
        ("%", "", True),
        ("a\\", "a\\", True),
    ],
)
def test_like_patterns(pattern: str, text: str, fits: bool) -> None:
    assert (re.fullmatch(like_expression(pattern), text) is not None) is fits


def test_like_patterns_with_many_wildcards() -> None:
    """40 wildcards before a letter that is not there took for ever; a second of processor time is plenty."""
    pattern = re.compile(like_expression("%a" * 40 + "%b"))
    before = time.process_time()
    assert not pattern.fullmatch("a" * 2000)
    assert pattern.fullmatch("a" * 2000 + "b")
    assert time.process_time() - before < 1


@given(pattern=st.text("ab%_", max_size=8), text=st.text("ab", max_size=8))
def test_like_patterns_equal_plain_ones(pattern: str, text: str) -> None:
    plain = pattern.replace("%", ".*").replace("_", ".")
    assert bool(re.fullmatch(like_expression(pattern), text)) is bool(re.fullmatch(plain, text))
