"""Evaluates the little SQL that replicas send: SET of user variables, SELECT of a few expressions.

``Values`` gives the values of names. The table of statements is in ``answers``.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from protocol.conversation.messages import Err

from ..sql.words import END, Token, WordReader, tokens

_SYNTAX_ERROR: Final = 1064
_TOO_LONG: Final = 1153
# Replicas and tools send a few hundred characters. Tokenizing a statement blocks all other clients.
_LONGEST: Final = 1 << 16
# Limit for nested function calls; replicas and tools send none.
_MOST_NESTED: Final = 10

# Operators and punctuation of expressions.
_MARKS: Final = frozenset({":=", *"(),=;*.-+<>!?/%&|"})


# The digits of the largest 64-bit number: no id, position or variable is larger.
_MOST_DIGITS: Final = 20


class SqlError(Exception):
    """The statement is answered with this ERR packet."""

    def __init__(self, code: int, sqlstate: str, message: str) -> None:
        super().__init__(message)
        self.err = Err(code, sqlstate, message)


class Values(Protocol):
    """The values of names in expressions; None is NULL. Raises ``SqlError`` for unknown names."""

    async def system(self, name: str) -> str | None:
        """``@@name``, whatever its scope."""

    def variable(self, name: str) -> str | None:
        """``@name``."""

    async def call(self, name: str, arguments: Sequence[str | None]) -> str | None:
        """``name(arguments)``; the name is in capitals."""


def read_number(text: str) -> int | None:
    """The number in a text of decimal digits; None for any other text, and for more than 20 digits."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def syntax_error(near: str) -> SqlError:
    """A syntax error: SQL that this server does not understand, though a real one may."""
    return SqlError(
        _SYNTAX_ERROR,
        "42000",
        f"this server only serves binary logs, and understands only the SQL of replicas; not: '{near[:80]}'",
    )


def tokenize(sql: str) -> list[Token]:
    """The tokens of a statement, without a final semicolon. Raises ``SqlError``."""
    if len(sql) > _LONGEST:
        raise SqlError(_TOO_LONG, "08S01", f"the statement is longer than {_LONGEST} characters")
    found = list(tokens(sql))
    for token in found:
        if token.kind == "unclosed" or (token.kind == "mark" and token.text not in _MARKS):
            raise syntax_error(sql[token.start :])
    while found and found[-1].text == ";":
        found.pop()
    return found


class Expressions(WordReader):
    """Evaluates expressions from a list of tokens, one after another."""

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
        """Take the next token. Raises ``SqlError`` at the end, or if ``words`` are given and the token is another."""
        token = self.next()
        if token is END or (words and token.upper not in words):
            raise syntax_error(self._sql if token is END else self._sql[token.start :])
        return token

    async def titled(self) -> tuple[str, str | None]:
        """Evaluate an expression: the name of its column, and its value."""
        start = self.peek().start
        value = await self.value()
        title = self._sql[start : self.tokens[self.place - 1].end]
        return (self.take().value if self.skip("AS") else title), value

    async def value(self) -> str | None:
        """Evaluate an expression: its value, None for NULL."""
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
