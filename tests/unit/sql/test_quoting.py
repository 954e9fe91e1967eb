"""Identifiers, literals and LIKE patterns. That servers read literals as meant is tested on servers."""

from __future__ import annotations

import re

import pytest

from replica.sql.quoting import hex_literal, identifier, like_expression, quoted, text_literal


def test_quote_marks_are_doubled() -> None:
    assert identifier("a`b") == "`a``b`"
    assert quoted("it's \\", "'") == "'it''s \\'"


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
    ],
)
def test_like_patterns(pattern: str, text: str, fits: bool) -> None:
    assert (re.fullmatch(like_expression(pattern), text) is not None) is fits
