"""Reading on in a statement's tokens: names, words that must or may come, brackets to pass over."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from protocol.wire import is_characters

from .dialect import ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES, Dialect
from .words import END, Token, tokens

_BEYOND: Final = re.compile("[\U00010000-\U0010ffff]")


class UnreadableError(Exception):
    """A statement has a clause that this reader does not know; never seen outside of ``read_statement``."""


class TableName(NamedTuple):
    """A table and its schema. ``str()`` is ``schema.name``."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def folded(self) -> "TableName":
        """The name that servers with lower_case_table_names=1 or 2 compare."""
        return TableName(self.schema.lower(), self.name.lower())


class TokenReader:
    """Reads tokens one after another; tokens are made when they are first looked at.

    ``schema`` is the default schema: the schema of tables that are named without one.
    """

    def __init__(self, sql: str, schema: str, dialect: Dialect) -> None:
        self.schema = schema
        self.dialect = dialect
        self._source: Iterator[Token] = tokens(
            sql,
            ansi_quotes=dialect.has(ANSI_QUOTES),
            backslash_escapes=not dialect.has(NO_BACKSLASH_ESCAPES),
            mariadb_comments=dialect.is_mariadb,
            wide_spaces=dialect.wide_spaces,
            brackets=dialect.is_mariadb and dialect.has(MSSQL),
        )
        self._tokens: list[Token] = []
        self._place = 0

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one behind it; ``END`` behind the last."""
        wanted = self._place + ahead
        while len(self._tokens) <= wanted:
            token = next(self._source, END)
            if token is END:
                return END
            if token.kind == "unclosed":
                raise UnreadableError(f"a quote or comment that is not closed at {token.text[:40]!r}")
            self._tokens.append(token)
        return self._tokens[wanted]

    def next(self) -> Token:
        """The next token, which is passed over."""
        token = self.peek()
        if token is not END:
            self._place += 1
        return token

    @property
    def at_end(self) -> bool:
        """Whether nothing but semicolons comes."""
        while self.peek().upper == ";":
            self._place += 1
        return self.peek() is END

    @property
    def place(self) -> int:
        """The number of tokens that have been read: for ``back``."""
        return self._place

    def back(self, place: int) -> None:
        """Return to a place in the tokens."""
        self._place = place

    def comes(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(self.peek(index).upper == word for index, word in enumerate(words))

    def skip(self, *words: str) -> bool:
        """Pass over these words if they come next."""
        if not self.comes(*words):
            return False
        self._place += len(words)
        return True

    def one_of(self, *words: str) -> str:
        """Pass over the next word if it is one of these, and return it; empty if it is not."""
        upper = self.peek().upper
        if upper and upper in words:
            self._place += 1
            return upper
        return ""

    def expect(self, *words: str) -> None:
        """Pass over these words, which must come next."""
        if not self.skip(*words):
            raise self.unreadable(f"no {' '.join(words)}")

    def unreadable(self, what: str = "") -> UnreadableError:
        """An error that names the token the reader stands at."""
        token = self.peek()
        near = "the end" if token is END else repr(token.value[:40])
        return UnreadableError(f"{what} at {near}" if what else f"unknown clause at {near}")

    def name(self) -> str:
        """An identifier, in quotes or without.

        MySQL has a question mark for each character beyond U+FFFF of it; MariaDB refuses such names.
        """
        token = self.next()
        if token.kind in ("name", "word", "number") and is_characters(token.value):
            return token.value if token.value.isascii() else _BEYOND.sub("?", token.value)
        self._place -= token is not END
        raise self.unreadable("no name")

    def _name_behind_dot(self) -> str:
        """An identifier behind a dot, where 0x61 and 0b01 are no numbers."""
        token = self.peek()
        if token.kind in ("hex", "bits") and token.text.isalnum():
            self._place += 1
            return token.text
        return self.name()

    def column_name(self) -> str:
        """A column's name; a table and a schema may stand before it."""
        name = self._name_behind_dot() if self.skip(".") else self.name()
        while self.skip("."):
            name = self._name_behind_dot()
        return name

    def table_name(self) -> TableName:
        """A table's name, with its schema."""
        if self.skip("."):
            return TableName(self._folded(self.schema), self._folded(self._name_behind_dot()))
        name = self.name()
        if self.skip("."):
            return TableName(self._folded(name), self._folded(self._name_behind_dot()))
        return TableName(self._folded(self.schema), self._folded(name))

    def schema_name(self) -> str:
        """The name of a schema."""
        return self._folded(self.name())

    def word_or_text(self) -> str:
        """A name that may also stand in quotes for text, such as that of a character set."""
        token = self.next()
        if token.kind in ("name", "word", "text"):
            return token.value
        self._place -= token is not END
        raise self.unreadable("no name")

    def number(self) -> int:
        """A whole number."""
        token = self.peek()
        if token.kind != "number" or not token.text.isdecimal():
            raise self.unreadable("no number")
        self._place += 1
        return int(token.value)

    def brackets(self) -> None:
        """Pass over brackets with everything inside of them."""
        self.expect("(")
        depth = 1
        while depth:
            upper = self.peek().upper
            if self.peek() is END:
                raise self.unreadable("brackets without an end")
            self._place += 1
            depth += (upper == "(") - (upper == ")")

    def pass_rest(self) -> None:
        """Pass over everything that is left."""
        while self.next() is not END:
            pass

    def _folded(self, name: str) -> str:
        return name.lower() if self.dialect.folds_names else name
