"""The little SQL that replicas speak, cut into words and read: SET of user variables, SELECT of a few expressions.

What the names in it stand for is told by ``Values``; which statements there are, ``answers`` says.
"""

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final, Protocol

from protocol.conversation.messages import Err
from protocol.records import record

_SYNTAX_ERROR: Final = 1064
_TOO_LONG: Final = 1153
# Replicas and tools send a few hundred characters; all other clients wait while a statement is cut into words.
_LONGEST: Final = 1 << 16
# Functions within functions; nobody sends any.
_MOST_NESTED: Final = 10

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|/\*.*?(?:\*/|\Z)|--\s[^\n]*)
    | (?P<hex>[xX]'[0-9a-fA-F]*')
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<system>@@(?:(?:global|session|local)\s*\.\s*)?\w+)
    | (?P<variable>@(?:\w|[.$])+|@`[^`]*`)
    | (?P<number>\d+(?:\.\d+)?)
    | (?P<word>[^\W\d][\w$]*|`[^`]*`)
    | (?P<mark>:=|[(),=;*.\-+<>!?/%&|])
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
# What else may stand behind a backslash stands for itself; before the wildcards of LIKE the backslash stays.
_ESCAPES: Final = MappingProxyType(
    {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}
)
_ESCAPE: Final = re.compile(r"\\(.)|''|\"\"", re.DOTALL)


class SqlError(Exception):
    """A statement is answered with an ERR packet."""

    def __init__(self, code: int, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.err = Err(code, sqlstate, message)


@record(slots=True, frozen=True)
class Token:
    """A word of a statement: ``kind`` is a group of the pattern above, ``start`` and ``end`` are its place."""

    kind: str
    text: str
    start: int
    end: int


class Values(Protocol):
    """What the names in an expression stand for; None is NULL. Unknown ones are a ``SqlError``."""

    async def system(self, name: str) -> str | None:
        """``@@name``, whatever its scope."""

    def variable(self, name: str) -> str | None:
        """``@name``."""

    async def call(self, name: str, arguments: Sequence[str | None]) -> str | None:
        """``name(arguments)``; the name is in capitals."""


def syntax_error(near: str) -> SqlError:
    """What is not understood here, though a server may understand it."""
    return SqlError(
        _SYNTAX_ERROR,
        "42000",
        f"this server serves binary logs and understands only what replicas ask; not: '{near[:80]}'",
    )


def tokenize(sql: str) -> list[Token]:
    """The words of a statement, without space, comments and a final semicolon."""
    if len(sql) > _LONGEST:
        raise SqlError(_TOO_LONG, "08S01", f"a statement of more than {_LONGEST} characters")
    tokens: list[Token] = []
    position = 0
    while position < len(sql):
        found = _TOKEN.match(sql, position)
        if found is None:
            raise syntax_error(sql[position:])
        position = found.end()
        kind = found.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, found[0], found.start(), found.end()))
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    return tokens


def literal(token: Token) -> str:
    """The value of a text or number."""
    if token.kind == "hex":
        digits = token.text[2:-1]
        return bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0")).decode(
            "utf-8", "surrogateescape"
        )
    if token.kind == "text":
        return _ESCAPE.sub(
            lambda found: _ESCAPES.get(found[1], found[1]) if found[1] else found[0][0], token.text[1:-1]
        )
    return token.text


class Expressions:
    """Reads expressions from words, one after another."""

    def __init__(self, sql: str, tokens: Sequence[Token], values: Values) -> None:
        self._sql = sql
        self._tokens = tokens
        self._values = values
        self._next = 0
        self._depth = 0

    @property
    def at_end(self) -> bool:
        """Whether all words have been read."""
        return self._next >= len(self._tokens)

    def peek(self) -> Token | None:
        """The next word."""
        return None if self.at_end else self._tokens[self._next]

    def take(self, *texts: str) -> Token:
        """The next word, which is one of these, if any are given."""
        token = self.peek()
        if token is None or (texts and token.text.upper() not in texts):
            raise syntax_error(self._sql if token is None else self._sql[token.start :])
        self._next += 1
        return token

    def skip(self, text: str) -> bool:
        """Pass over the next word if it is this one."""
        token = self.peek()
        is_there = token is not None and token.text.upper() == text
        self._next += is_there
        return is_there

    async def titled(self) -> tuple[str, str | None]:
        """An expression: the text by which its column goes, and its value."""
        start = self._tokens[self._next].start if not self.at_end else 0
        value = await self.value()
        title = self._sql[start : self._tokens[self._next - 1].end]
        if self.skip("AS"):
            title = literal(self.take()).strip("`")
        return title, value

    async def value(self) -> str | None:
        """The value of an expression."""
        token = self.take()
        match token.kind:
            case "text" | "hex" | "number":
                return literal(token)
            case "system":
                return await self._values.system(token.text[2:].rpartition(".")[2].strip().lower())
            case "variable":
                return self._values.variable(variable_name(token))
            case "word":
                return await self._word(token)
        raise syntax_error(self._sql[token.start :])

    async def _word(self, token: Token) -> str | None:
        name = token.text.upper()
        if name == "NULL":
            return None
        following = self.peek()
        # A character set before a literal: _utf8mb4 X'61'.
        if name.startswith("_") and following is not None and following.kind in ("text", "hex"):
            return literal(self.take())
        self.take("(")
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise syntax_error(self._sql[token.start :])
        arguments: list[str | None] = []
        while not self.skip(")"):
            if arguments:
                self.take(",")
            arguments.append(await self.value())
        self._depth -= 1
        return await self._values.call(name, arguments)


def variable_name(token: Token) -> str:
    """The name of a user variable; letter case does not matter."""
    return token.text[1:].strip("`").lower()
