"""Splits SQL statements into tokens, and reads one token after another. Knows no grammar.

The table of token kinds is ``_PATTERN``. Lexical rules: MySQL 9.7, sql_lex.cc, and MariaDB 11.8.

Comments are white space. The marks of a version comment, ``/*!50100``, ``/*M!100100`` and the ``*/``, are white space
too, so that its contents are read: a server logs a version comment that it did not execute as a plain comment. To
MySQL ``/*M!`` begins a plain comment, which it logs as it stands.
Nothing is searched twice: a quote or comment that is never closed runs to the end of the statement.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

from protocol.records import record
from protocol.wire import utf8_text

#: ``name``: an identifier in quotes. ``text``: a string. ``hex``, ``bits``: literals such as X'61' and b'01'.
#: ``variable``: @name. ``system``: @@name. ``number``: digits, maybe with a fraction. ``word``: a keyword or an
#: identifier without quotes. ``mark``: ``:=`` or one character. ``unclosed``: a quote that is never closed, and the
#: rest of the statement; or the end of a comment that is not open. ``end``: after the last token.
TokenKind = Literal[
    "name", "text", "hex", "bits", "variable", "system", "number", "word", "mark", "unclosed", "end"
]

_SPACE: Final = r"[\ \t\n\v\f\r]"
# Servers treat all characters beyond ASCII as letters; the no-break space is a space in some character sets.
_LETTER: Final = r"[0-9A-Za-z_$\x80-\U0010ffff]"
_SPACE_AND_WIDE: Final = r"[\ \t\n\v\f\r\xa0]"
_LETTER_NOT_WIDE: Final = r"[0-9A-Za-z_$\x80-\x9f\xa1-\U0010ffff]"
# Behind two hyphens servers take any control character for a space.
_CONTROL: Final = r"[\x00-\x1f\x7f]"
_BACKTICKS: Final = "`(?:[^`]|``)*+`"
_BRACKETS: Final = r"\[(?:[^\]]|\]\])*+\]"
_DIGITS: Final = "(?:0x[0-9A-Fa-f]+|0b[01]+)"
# Index 1 if a backslash is an escape character, else 0.
_APOSTROPHES: Final = (r"'(?:[^']|'')*+'", r"'(?:[^'\\]|\\.|'')*+'")
_QUOTES: Final = (r'"(?:[^"]|"")*+"', r'"(?:[^"\\]|\\.|"")*+"')
_PATTERN: Final = rf"""
    (?P<space>{{space}}+ | /\*(?!{{opening}}).*?(?:\*/|\Z) | --(?={_CONTROL}|{{space}}|\Z)[^\n]* | \#[^\n]*
)
  | (?P<open>/\*{{opening}}[0-9]*)
  | (?P<close>\*/)
  | (?P<word>(?![0-9]|[xXbBnN]'){{letter}}+ | (?!{_DIGITS}(?!{{letter}}))[0-9]++{{letter}}+)
  | (?P<name>{{names}})
  | (?P<hex>[xX]'[0-9A-Fa-f]*' | 0x[0-9A-Fa-f]+(?!{{letter}}))
  | (?P<bits>[bB]'[01]*' | 0b[01]+(?!{{letter}}))
  | (?P<text>[nN]?(?:{{texts}}))
  | (?P<unclosed>[`'"].*)
  | (?P<system>@@(?:\w+{{space}}*\.{{space}}*)?(?:{{letter}}+|{_BACKTICKS}))
  | (?P<variable>@(?:(?:{{letter}}|\.)+|{{names}}|{{texts}}))
  | (?P<number>[0-9]+(?:\.[0-9]+)?(?!{{letter}}))
  | (?P<mark>:=|.)
"""
# After a backslash any other character stands for itself. Before the wildcards of LIKE the backslash stays.
_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
)


@record(frozen=True, slots=True)
class Token:
    """A token at ``start`` to ``end`` in the statement. ``text`` is as written.

    ``value`` is the meaning of the token: names and texts without quotes and escapes, a ``hex`` literal decoded as
    UTF-8, variables without ``@``; for other kinds ``text``.
    """

    kind: TokenKind
    text: str
    value: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """A word in capitals, or a mark or number; empty for other kinds, because quoted names are no keywords."""
        return self.text.upper() if self.kind in ("word", "mark", "number") else ""


END: Final = Token("end", "", "", 0, 0)


def tokens(
    sql: str,
    *,
    ansi_quotes: bool = False,
    backslash_escapes: bool = True,
    mariadb_comments: bool = True,
    wide_spaces: bool = False,
    brackets: bool = False,
) -> Iterator[Token]:
    """The tokens of a statement, read lazily.

    ``ansi_quotes``: sql_mode has ANSI_QUOTES, so double quotes enclose names. ``backslash_escapes``: sql_mode does
    not have NO_BACKSLASH_ESCAPES. ``mariadb_comments``: read the contents of ``/*M! ... */``. ``wide_spaces``: the
    no-break space is white space. ``brackets``: square brackets enclose names, as in MariaDB's sql_mode MSSQL.
    """
    pattern = _pattern(ansi_quotes, backslash_escapes, mariadb_comments, wide_spaces, brackets)
    depth = 0
    for found in pattern.finditer(sql):
        kind, text = found.lastgroup, found[0]
        if kind == "open":
            depth += 1
        elif kind == "close" and depth:
            depth -= 1
        elif kind == "close":
            # The end of a comment that had another one inside: what was passed over is not all of it.
            yield Token("unclosed", text, text, found.start(), found.end())
        elif kind != "space":
            yield Token(kind, text, _value(kind, text, backslash_escapes), found.start(), found.end())  # type: ignore[arg-type]


def upper_words(sql: str, *, ansi_quotes: bool = False, backslash_escapes: bool = True) -> Iterator[str]:
    """``Token.upper`` of each token, in a quarter of the time: empty for quoted names, texts and variables."""
    for found in _pattern(ansi_quotes, backslash_escapes, True).finditer(sql):
        kind = found.lastgroup
        if kind == "word":
            yield found[0].upper()
        elif kind not in ("space", "open", "close"):
            yield found[0] if kind in ("mark", "number") else ""


@cache
def _pattern(
    ansi_quotes: bool,
    backslash_escapes: bool,
    mariadb_comments: bool,
    wide_spaces: bool = False,
    brackets: bool = False,
) -> re.Pattern[str]:
    names, texts = [_BACKTICKS], [_APOSTROPHES[backslash_escapes]]
    if brackets:
        names.append(_BRACKETS)
    if ansi_quotes:
        names.append(_QUOTES[False])
    else:
        texts.append(_QUOTES[backslash_escapes])
    opening = "M?!" if mariadb_comments else "!"
    space, letter = (_SPACE_AND_WIDE, _LETTER_NOT_WIDE) if wide_spaces else (_SPACE, _LETTER)
    parts = {"names": "|".join(names), "texts": "|".join(texts), "space": space, "letter": letter}
    pattern = _PATTERN.format(opening=opening, **parts)
    return re.compile(pattern, re.DOTALL | re.VERBOSE)


def _value(kind: str | None, text: str, backslash_escapes: bool) -> str:
    match kind:
        case "name":
            return _unquoted(text, False)
        case "text":
            return _unquoted(text.lstrip("nN"), backslash_escapes)
        case "variable":
            return _unquoted(text[1:], backslash_escapes and text[1] != "`")
        case "system":
            return re.sub(_SPACE, "", text[2:]).replace("`", "")
        case "hex":
            digits = text[2:].rstrip("'")
            return utf8_text(bytes.fromhex("0" * (len(digits) % 2) + digits))
        case _:
            return text


def _unquoted(text: str, backslash_escapes: bool) -> str:
    quote = text[0]
    if quote not in "`'\"[":
        return text
    text = text[1:-1]
    if quote == "[":
        return text.replace("]]", "]")
    if not backslash_escapes or "\\" not in text:
        return text.replace(quote * 2, quote)
    return re.sub(
        rf"\\(.)|{quote}{quote}",
        lambda found: quote if found[1] is None else _ESCAPES.get(found[1], found[1]),
        text,
        flags=re.DOTALL,
    )


class WordReader:
    """Takes tokens one after another; ``place`` is the index of the next one."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.tokens = list(tokens)
        self.place = 0

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or the one ``ahead`` tokens later; ``END`` after the last."""
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else END

    def next(self) -> Token:
        """Take the next token."""
        token = self.peek()
        self.place += 1
        return token

    def skip(self, *words: str) -> bool:
        """Take these words, given in capitals, if they come next; False if they do not."""
        if all(self.peek(index).upper == word for index, word in enumerate(words)):
            self.place += len(words)
            return True
        return False
