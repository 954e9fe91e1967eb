"""The words of a SQL statement, one after another: as much of a reader as ``ddl`` needs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*M?!\d*|\*/)
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<text>[xXbBnN]?'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<word>\d+(?:\.\d+)?(?![\w$])|[\w$]+)
    |(?P<mark>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
)


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: name, text, word or mark. ``value`` without quotes; words in capitals are in ``upper``."""

    kind: str
    value: str

    @property
    def upper(self) -> str:
        """A word in capitals, or a mark; empty for names and texts in quotes."""
        return self.value.upper() if self.kind == "word" else self.value if self.kind == "mark" else ""


END: Final = Token("end", "")


@dataclass(slots=True)
class SqlReader:
    """``schema`` is what names without one belong to; ``folds``: names of schemas and tables are in small letters.

    ``explicit_timestamps``: what explicit_defaults_for_timestamp was for the statement.
    """

    sql: str
    schema: str
    folds: bool = False
    explicit_timestamps: bool = True
    tokens: list[Token] = field(init=False)
    place: int = 0

    def __post_init__(self) -> None:
        self.tokens = list(_tokens(self.sql))

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one behind it; ``END`` behind the last."""
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else END

    def next(self) -> Token:
        """The next token, which is passed over."""
        token = self.peek()
        self.place += 1
        return token

    def skip(self, *words: str) -> bool:
        """Pass over these words, if they come next."""
        if all(self.peek(index).upper == word for index, word in enumerate(words)):
            self.place += len(words)
            return True
        return False

    def table(self) -> str:
        """A table's name, with its schema."""
        name = self.next().value
        return self.folded(f"{name}.{self.next().value}" if self.skip(".") else f"{self.schema}.{name}")

    def folded(self, name: str) -> str:
        """The name of a schema or a table as rows have it."""
        return name.lower() if self.folds else name

    def item(self) -> "SqlReader":
        """What comes up to the next comma outside of brackets, or the end of the list; the comma is passed over."""
        begin, depth = self.place, 0
        while (token := self.peek()) is not END:
            if token.upper == "(":
                depth += 1
            elif token.upper == ")":
                if depth == 0:
                    break
                depth -= 1
            elif token.upper == "," and depth == 0:
                break
            self.place += 1
        item = SqlReader("", self.schema, self.folds, self.explicit_timestamps)
        item.tokens = self.tokens[begin : self.place]
        self.skip(",")
        return item

    def pass_brackets(self) -> None:
        """To behind the bracket that closes the one that has been passed."""
        depth = 1
        while depth and (token := self.next()) is not END:
            depth += {"(": 1, ")": -1}.get(token.upper, 0)

    def items(self) -> "Iterator[SqlReader]":
        """All items of a list."""
        while self.peek() is not END and self.peek().upper != ")":
            yield self.item()


def _tokens(sql: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(sql):
        kind, text = found.lastgroup, found[0]
        if kind == "space":
            continue
        if kind == "name":
            yield Token("name", text[1:-1].replace("``", "`"))
        elif kind == "text":
            yield Token("text", text if text[0] not in "'\"" else _unquoted(text))
        else:
            yield Token(kind or "mark", text)


def _unquoted(text: str) -> str:
    quote = text[0]
    return re.sub(
        r"\\(.)|" + quote * 2,
        lambda found: quote if found[1] is None else _ESCAPES.get(found[1], found[1]),
        text[1:-1],
        flags=re.DOTALL,
    )
