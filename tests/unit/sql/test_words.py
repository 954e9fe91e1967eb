"""Tokens of SQL statements, by sql_mode."""

from __future__ import annotations

import pytest

from replica.sql.words import END, WordReader, tokens, upper_words


def kinds(sql: str, **options: bool) -> list[tuple[str, str]]:
    return [(token.kind, token.value) for token in tokens(sql, **options)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("`a``b`.t$1", [("name", "a`b"), ("mark", "."), ("word", "t$1")]),
        ("'it''s', \"a\"\"'b\"", [("text", "it's"), ("mark", ","), ("text", "a\"'b")]),
        (r"'a\'b\\\n\%\q'", [("text", "a'b\\\n\\%q")]),
        ("N'x' n'' X'C3a9'", [("text", "x"), ("text", ""), ("hex", "é")]),
        ("0x1 b'01' 0b1", [("hex", "\1"), ("bits", "b'01'"), ("bits", "0b1")]),
        ("X'zz'", [("mark", "X"), ("text", "zz")]),
        ("@a.b @`c d` @'e\\''", [("variable", "a.b"), ("variable", "c d"), ("variable", "e'")]),
        ("@@x @@Global . y", [("system", "x"), ("system", "Global.y")]),
        ("u@'%'", [("word", "u"), ("variable", "%")]),
        ("1 1.50 1a 0x", [("number", "1"), ("number", "1.50"), ("word", "1a"), ("word", "0x")]),
        ("a:=1;", [("word", "a"), ("mark", ":="), ("number", "1"), ("mark", ";")]),
        ("ä\u00a0b c", [("word", "ä\u00a0b"), ("word", "c")]),
        ("a/* ' */b -- '\nc # '\nd", [("word", "a"), ("word", "b"), ("word", "c"), ("word", "d")]),
        ("a--b", [("word", "a"), ("mark", "-"), ("mark", "-"), ("word", "b")]),
        ("/*!50100 a */ /*M!100100 b*/ /*M c */", [("word", "a"), ("word", "b")]),
        ("a 'b\\'", [("word", "a"), ("unclosed", "'b\\'")]),
        ("`a", [("unclosed", "`a")]),
        ("a /* b", [("word", "a")]),
        ("\x01", [("mark", "\x01")]),
    ],
)  # fmt: skip
def test_tokens(sql: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(sql) == expected


def test_upper_words_are_those_of_tokens() -> None:
    sql = "create /* a */ table `b` (c int default 1, d text comment 'e') @f \"g\" -- h"
    assert list(upper_words(sql)) == [token.upper for token in tokens(sql)]


def test_ansi_quotes_are_around_names() -> None:
    assert kinds('"a""b\\" \'c\' @"d"', ansi_quotes=True) == [
        ("name", 'a"b\\'),
        ("text", "c"),
        ("variable", "d"),
    ]


def test_a_backslash_may_be_a_character() -> None:
    assert kinds("'a\\' \"b\\\"", backslash_escapes=False) == [("text", "a\\"), ("text", "b\\")]


def test_a_token_knows_its_place() -> None:
    [a, b] = tokens(" /**/ a 'b'")
    assert (a.start, a.end, b.start, b.end) == (6, 7, 8, 11)


@pytest.mark.parametrize("unit", ["(", "'", "''", "\\'", '"', "\\`", "/*!", "--", "/* ", "@`", "1.", "N'"])
def test_long_nonsense_takes_no_time(unit: str) -> None:
    """Quadratic work would take minutes here."""
    assert sum(1 for _ in tokens(unit * (200_000 // len(unit)))) <= 200_000


def test_a_reader_takes_words() -> None:
    reader = WordReader(tokens("(A `E`) X"))
    assert reader.skip("(", "A")
    assert (reader.peek().value, reader.peek(1).value, reader.peek(9)) == ("E", ")", END)
    assert (reader.next().kind, reader.skip(")", "Y"), reader.skip(")", "X"), reader.next()) == (
        "name",
        False,
        True,
        END,
    )
