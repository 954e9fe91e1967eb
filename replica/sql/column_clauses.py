"""Column definitions of CREATE TABLE and ALTER TABLE, read from tokens.

Sources: the grammars of MySQL 5.6 to 9.7 (sql_yacc.yy: ``field_def``, ``type``, ``column_attribute``) and MariaDB
11.8 (``field_type_all``, ``attribute``). A clause that is not here raises ``UnreadableError``.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal

from protocol.records import field, record, replace

from .ddl_statements import (
    DEFAULT,
    CharsetClause,
    ColumnClause,
    DefaultClause,
    Generated,
    KeyClause,
    KeyPart,
    TypeClause,
)
from .dialect import Dialect
from .token_reader import TokenReader
from .type_clauses import read_type
from .words import END

_NO_CHARSET: Final = CharsetClause()
_EXPONENT: Final = re.compile(r"\d*[eE]\d*")

#: Words that end a column's definition in ALTER TABLE.
_AFTER_COLUMN: Final = frozenset({"FIRST", "AFTER", "PARTITION", "REMOVE", ",", ")", ";", ""})


@record(slots=True)
class _Column:
    """A column's definition as far as it has been read."""

    name: str
    type: TypeClause
    nullable: bool | None = None
    default: DefaultClause | None = None
    generated: Generated = ""
    auto_increment: bool = False
    invisible: bool = False
    compressed: bool = False
    row_period: Literal["", "start", "end"] = ""
    versioning: bool | None = None
    charset: CharsetClause = _NO_CHARSET
    keys: list[KeyClause] = field(default_factory=list)
    constraint: str = ""

    def add_key(self, kind: Literal["primary", "unique", "foreign"]) -> None:
        """A key that is said twice is one key."""
        if all(key.kind != kind for key in self.keys):
            self.keys.append(KeyClause(kind, self.constraint, (KeyPart(self.name),)))

    def finished_keys(self, dialect: Dialect) -> list[KeyClause]:
        """MariaDB makes one key of PRIMARY KEY and UNIQUE, MySQL makes two."""
        is_primary = dialect.is_mariadb and any(key.kind == "primary" for key in self.keys)
        return [key for key in self.keys if not (is_primary and key.kind == "unique")]

    def finished(self) -> ColumnClause:
        kind = self.type
        if self.charset:
            charset = self.charset.charset or kind.charset.charset
            kind = replace(kind, charset=CharsetClause(charset, self.charset.collation))
        return ColumnClause(
            self.name,
            kind,
            self.nullable,
            self.default,
            self.generated,
            self.auto_increment,
            self.invisible,
            self.compressed,
            self.row_period,
            self.versioning,
        )


def read_column(reader: TokenReader) -> tuple[ColumnClause, list[KeyClause]]:
    """A column's definition, and the keys that it defines besides: PRIMARY KEY, UNIQUE, REFERENCES."""
    column = _Column(reader.column_name(), TypeClause(""))
    if reader.skip("SERIAL"):
        column.type = TypeClause("bigint", unsigned=True)
        _serial(column)
    else:
        column.type = read_type(reader)
    while (upper := reader.peek().upper) not in _AFTER_COLUMN:
        reader.next()
        read = _ATTRIBUTES.get(upper)
        if read is not None:
            read(reader, column)
        elif reader.comes("="):
            _pass_value(reader)
        else:
            raise reader.unreadable(f"unknown attribute {upper} of column {column.name}")
    if reader.peek().kind not in ("word", "mark", "end"):
        raise reader.unreadable(f"unknown attribute of column {column.name}")
    return column.finished(), column.finished_keys(reader.dialect)


# Attributes.


def _serial(column: _Column) -> None:
    column.nullable = False
    column.auto_increment = True
    column.add_key("unique")


def _read_not(reader: TokenReader, column: _Column) -> None:
    if reader.skip("NULL"):
        column.nullable = False
    elif not reader.one_of("SECONDARY", "ENFORCED"):
        raise reader.unreadable("unknown attribute NOT")


def _read_null(reader: TokenReader, column: _Column) -> None:
    column.nullable = True


def _read_default(reader: TokenReader, column: _Column) -> None:
    column.default = read_default(reader)


def _read_auto_increment(reader: TokenReader, column: _Column) -> None:
    column.auto_increment = True
    column.nullable = False


def _read_primary(reader: TokenReader, column: _Column) -> None:
    reader.expect("KEY")
    _read_key(reader, column)


def _read_key(reader: TokenReader, column: _Column) -> None:
    column.add_key("primary")
    column.nullable = False


def _read_unique(reader: TokenReader, column: _Column) -> None:
    reader.skip("KEY")
    column.add_key("unique")


def _read_serial(reader: TokenReader, column: _Column) -> None:
    reader.expect("DEFAULT", "VALUE")
    _serial(column)


def _read_generated(reader: TokenReader, column: _Column) -> None:
    reader.expect("ALWAYS", "AS")
    if reader.skip("ROW"):
        word = reader.one_of("START", "END")
        if not word:
            raise reader.unreadable("no START or END")
        column.row_period = "start" if word == "START" else "end"
        column.nullable = False
    else:
        _read_as(reader, column)


def _read_as(reader: TokenReader, column: _Column) -> None:
    reader.brackets()
    word = reader.one_of("VIRTUAL", "STORED", "PERSISTENT")
    column.generated = "stored" if word in ("STORED", "PERSISTENT") else "virtual"


def _read_charset(reader: TokenReader, column: _Column) -> None:
    column.charset = CharsetClause(_charset_name(reader), column.charset.collation)


def _read_character(reader: TokenReader, column: _Column) -> None:
    reader.expect("SET")
    _read_charset(reader, column)


def _read_collate(reader: TokenReader, column: _Column) -> None:
    column.charset = CharsetClause(column.charset.charset, read_collation(reader))


def _read_check(reader: TokenReader, column: _Column) -> None:
    reader.brackets()


def _read_references(reader: TokenReader, column: _Column) -> None:
    pass_reference(reader)
    # Older servers read the clause and make nothing of it.
    version = reader.dialect.version
    if version >= ((10, 5) if reader.dialect.is_mariadb else (9,)):
        column.add_key("foreign")


def _read_constraint(reader: TokenReader, column: _Column) -> None:
    column.constraint = ""
    if not reader.one_of("CHECK"):
        column.constraint = reader.name()
        if reader.comes("REFERENCES"):
            return
        reader.expect("CHECK")
    reader.brackets()


def _read_on(reader: TokenReader, column: _Column) -> None:
    reader.expect("UPDATE")
    reader.name()
    if reader.comes("("):
        reader.brackets()


def _read_versioning(value: bool) -> "Callable[[TokenReader, _Column], None]":
    def read(reader: TokenReader, column: _Column) -> None:
        reader.expect("SYSTEM", "VERSIONING")
        column.versioning = value

    return read


def _read_compressed(reader: TokenReader, column: _Column) -> None:
    column.compressed = True
    if reader.comes("="):
        _pass_value(reader)


def _implied_charset(charset: str) -> "Callable[[TokenReader, _Column], None]":
    def read(reader: TokenReader, column: _Column) -> None:
        column.charset = CharsetClause(charset, column.charset.collation)

    return read


def _set(name: str, value: bool) -> "Callable[[TokenReader, _Column], None]":
    return lambda reader, column: setattr(column, name, value)


def _pass_value(reader: TokenReader, column: _Column | None = None) -> None:
    """Pass over one value, with an equals sign or without."""
    reader.skip("=")
    if reader.next() is END:
        raise reader.unreadable("no value")


def _ignore(reader: TokenReader, column: _Column) -> None:
    """A word that changes nothing by itself."""


_ATTRIBUTES: Final[Mapping[str, Callable[[TokenReader, _Column], None]]] = MappingProxyType(
    {
        "NOT": _read_not,
        "NULL": _read_null,
        "DEFAULT": _read_default,
        "AUTO_INCREMENT": _read_auto_increment,
        "PRIMARY": _read_primary,
        "KEY": _read_key,
        "UNIQUE": _read_unique,
        "SERIAL": _read_serial,
        "GENERATED": _read_generated,
        "AS": _read_as,
        "CHARSET": _read_charset,
        "CHARACTER": _read_character,
        "COLLATE": _read_collate,
        "CHECK": _read_check,
        "CONSTRAINT": _read_constraint,
        "REFERENCES": _read_references,
        "ON": _read_on,
        "WITH": _read_versioning(True),
        "WITHOUT": _read_versioning(False),
        "COMPRESSED": _read_compressed,
        "ASCII": _implied_charset("latin1"),
        "UNICODE": _implied_charset("ucs2"),
        "BYTE": _implied_charset("binary"),
        # A binary collation of the same character set.
        "BINARY": _ignore,
        "ENFORCED": _ignore,
        "INVISIBLE": _set("invisible", True),
        "VISIBLE": _set("invisible", False),
        **dict.fromkeys(
            (
                "COMMENT",
                "COLUMN_FORMAT",
                "STORAGE",
                "SRID",
                "REF_SYSTEM_ID",
                "ENGINE_ATTRIBUTE",
                "SECONDARY_ENGINE_ATTRIBUTE",
            ),
            _pass_value,
        ),
    }
)


# Clauses that others need, too.


def _charset_name(reader: TokenReader) -> str:
    return DEFAULT if reader.skip("DEFAULT") else reader.word_or_text().lower()


def read_collation(reader: TokenReader) -> str:
    """A collation's name, in small letters, or ``DEFAULT``."""
    return DEFAULT if reader.skip("DEFAULT") else reader.word_or_text().lower()


def read_charset_option(reader: TokenReader, charset: CharsetClause) -> CharsetClause | None:
    """One option [DEFAULT] CHARACTER SET or COLLATE of a table or a schema, added to others; None if none comes."""
    place = reader.place
    reader.skip("DEFAULT")
    if reader.skip("CHARSET") or reader.skip("CHARACTER", "SET") or reader.skip("CHAR", "SET"):
        reader.skip("=")
        return CharsetClause(_charset_name(reader), charset.collation)
    if reader.skip("COLLATE"):
        reader.skip("=")
        return CharsetClause(charset.charset, read_collation(reader))
    reader.back(place)
    return None


def read_default(reader: TokenReader) -> DefaultClause:
    """Read the default of a column, after the word DEFAULT."""
    sign = ""
    while word := reader.one_of("-", "+"):
        sign = "-" if (word == "-") != (sign == "-") else ""
    if reader.comes("("):
        reader.brackets()
        return DefaultClause(is_filled=True)
    has_point = reader.skip(".")
    token = reader.next()
    if token.kind == "text" and not reader.comes("("):
        text = token.value
        while reader.peek().kind == "text":
            text += reader.next().value
        return DefaultClause(text)
    if token.kind in ("number", "word") and token.text[0].isdecimal():
        is_plain = not _pass_number(reader, token.text) and token.kind == "number" and not has_point
        return DefaultClause(sign + token.text) if is_plain else DefaultClause(is_filled=True)
    if token.upper == "NULL":
        return DefaultClause()
    if token.upper in ("TRUE", "FALSE"):
        return DefaultClause("1" if token.upper == "TRUE" else "0")
    if token.kind in ("word", "name", "hex", "bits"):
        _pass_expression(reader, token.upper)
        return DefaultClause(is_filled=True)
    raise reader.unreadable("unknown DEFAULT in front of the token")


def _pass_number(reader: TokenReader, text: str) -> bool:
    """Pass over the rest of a number such as 1. and 1.5e-3, of which digits have been read; whether there is any."""
    has_rest = reader.skip(".")
    if has_rest and (reader.peek().kind == "number" or _EXPONENT.fullmatch(reader.peek().text)):
        text = reader.next().text
    if text[-1:] in "eE":
        reader.one_of("+", "-")
        reader.number()
    return has_rest


def _pass_expression(reader: TokenReader, first: str) -> None:
    """Pass over the rest of an expression without brackets: a call's arguments, a literal after an introducer."""
    if first == "NEXT":
        reader.expect("VALUE", "FOR")
        reader.table_name()
        return
    if first == "CASE":
        while not reader.skip("END"):
            if reader.next() is END:
                raise reader.unreadable("CASE without END")
        return
    if (first.startswith("_") or first in ("DATE", "TIME", "TIMESTAMP")) and reader.peek().kind in (
        "text",
        "hex",
        "bits",
    ):
        reader.next()
        return
    while reader.skip("."):
        reader.name()
    if reader.comes("("):
        reader.brackets()


def pass_reference(reader: TokenReader) -> None:
    """Pass over the table, columns and actions after the word REFERENCES."""
    reader.table_name()
    if reader.comes("("):
        reader.brackets()
    while True:
        if reader.skip("MATCH"):
            reader.next()
        elif reader.comes("ON", "DELETE") or (reader.comes("ON", "UPDATE") and _is_action(reader)):
            reader.next()
            reader.next()
            if reader.skip("SET") or reader.skip("NO"):
                reader.next()
            else:
                reader.next()
        else:
            return


def _is_action(reader: TokenReader) -> bool:
    """Whether ON UPDATE belongs to the reference, and not to a TIMESTAMP column."""
    return reader.peek(2).upper in ("RESTRICT", "CASCADE", "SET", "NO")
