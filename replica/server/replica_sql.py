"""The little SQL that replicas speak: SET of user variables, SELECT of a few expressions.

What the names in it stand for is told by ``Values``; which statements there are, ``answers`` says.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from protocol.conversation.messages import Err

from ..sql.words import END, Token, WordReader, tokens

_SYNTAX_ERROR: Final = 1064
_TOO_LONG: Final = 1153
# Replicas and tools send a few hundred characters; all other clients wait while a statement is cut into words.
_LONGEST: Final = 1 << 16
# Functions within functions; nobody sends any.
_MOST_NESTED: Final = 10

# What stands in expressions.
_MARKS: Final = frozenset({":=", *"(),=;*.-+<>!?/%&|"})


class SqlError(Exception):
    """A statement is answered with an ERR packet."""

    def __init__(self, code: int, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.err = Err(code, sqlstate, message)


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
    """The tokens of a statement, without a final semicolon."""
    if len(sql) > _LONGEST:
        raise SqlError(_TOO_LONG, "08S01", f"a statement of more than {_LONGEST} characters")
    found = list(tokens(sql))
    for token in found:
        if token.kind == "unclosed" or (token.kind == "mark" and token.text not in _MARKS):
            raise syntax_error(sql[token.start :])
    while found and found[-1].text == ";":
        found.pop()
    return found


class Expressions(WordReader):
    """Reads expressions from tokens, one after another."""

    def __init__(self, sql: str, tokens: Sequence[Token], values: Values) -> None:
        super().__init__(tokens)
        self._sql = sql
        self._values = values
        self._depth = 0

    @property
    def at_end(self) -> bool:
        """Whether all tokens have been read."""
        return self.peek() is END

    def take(self, *words: str) -> Token:
        """The next token, which is one of these, if any are given."""
        token = self.next()
        if token is END or (words and token.upper not in words):
            raise syntax_error(self._sql if token is END else self._sql[token.start :])
        return token

    async def titled(self) -> tuple[str, str | None]:
        """An expression: the text by which its column goes, and its value."""
        start = self.peek().start
        value = await self.value()
        title = self._sql[start : self.tokens[self.place - 1].end]
        return (self.take().value if self.skip("AS") else title), value

    async def value(self) -> str | None:
        """The value of an expression."""
        token = self.take()
        match token.kind:
            case "text" | "hex" | "number":
                return token.value
            case "system":
                return await self._values.system(token.value.rpartition(".")[2].lower())
            case "variable":
                return self._values.variable(token.value.lower())
            case "word":
                return await self._word(token)
        raise syntax_error(self._sql[token.start :])

    async def _word(self, token: Token) -> str | None:
        name = token.upper
        if name == "NULL":
            return None
        # A character set before a literal: _utf8mb4 X'61'.
        if name.startswith("_") and self.peek().kind in ("text", "hex"):
            return self.take().value
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
