"""Character sets of columns: from CHARACTER SET and COLLATE in DDL to a name, and what a set does to sizes."""

from functools import cache
from typing import Final

from protocol.charset import charset_by_name
from protocol.charset_tables import WIDE_SETS
from protocol.wire import is_characters

from ..sql.ddl_statements import DEFAULT, CharsetClause


class UnknownShapeError(Exception):
    """A statement's effect on a shape is not known; the message says why. Never seen outside of this folder."""


class UnknownTextError(UnknownShapeError):
    """The character set or a label of one column is not known; the column is there, and others are as they are."""


#: What is raised where no shape can be made of a statement, or of what a source says of a table.
NO_SHAPE: Final = (UnknownShapeError, ValueError, LookupError, TypeError, ArithmeticError)
#: Sets in which the characters of ASCII are not its bytes.
NOT_ASCII: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32", "swe7"})
#: Sets in which a character that both have is the same bytes.
UTF8: Final = frozenset({"utf8mb3", "utf8mb4"})
ANY_CHARACTER: Final = frozenset({"utf8mb4", "utf16", "utf16le", "utf32"})
_BASIC_PLANE: Final = frozenset({"utf8mb3", "ucs2"})


def charset_of(clause: CharsetClause, default: str | None, schema_default: str | None) -> str | None:
    """The name of the set that a clause means where ``default`` is the table's or the schema's.

    ``schema_default`` is what DEFAULT stands for. None where that default is not known.
    """
    if clause.charset == DEFAULT:
        return schema_default
    if clause.charset is not None:
        return known(clause.charset)
    if clause.collation is not None and clause.collation != DEFAULT:
        return _charset_of_collation(clause.collation, default)
    return default


def known(name: str) -> str:
    """The set's own name: ``utf8mb3`` for utf8. Raises ``UnknownShapeError`` for a set that no server has."""
    charset = charset_by_name(name)
    if charset is None:
        raise UnknownShapeError(f"unknown character set {name}")
    return charset.name


def _charset_of_collation(collation: str, default: str | None) -> str | None:
    prefix = collation.partition("_")[0]
    if prefix.startswith("uca"):
        # MariaDB: uca1400_ai_ci is a collation of whatever set the column has.
        return default
    return known(prefix)


def most_bytes(name: str) -> int:
    """The most bytes that one character takes."""
    charset = charset_by_name(name)
    if charset is None:
        raise UnknownShapeError(f"unknown character set {name}")
    return charset.max_bytes


def stores(name: str, text: str) -> bool:
    """Whether a set is known to have all characters of a text, so that a label stays as it is written."""
    if not is_characters(text):
        return False
    if name in ANY_CHARACTER:
        return True
    if name in _BASIC_PLANE:
        return all(ord(character) < 0x10000 for character in text)
    charset = charset_by_name(name)
    if charset is None or charset.decode is None:
        return text.isascii()
    if charset.max_bytes == 1:
        return _characters(name).issuperset(text)
    wide = WIDE_SETS.get(name)
    codec = charset.codec if wide is None else wide.codec
    if codec is None:
        return text.isascii()
    try:
        return charset.decode(text.encode(codec)) == text
    except UnicodeEncodeError:
        return False


@cache
def _characters(name: str) -> frozenset[str]:
    """The characters of a set whose characters are single bytes. A table of texts asks for each of them."""
    charset = charset_by_name(name)
    return (
        frozenset()
        if charset is None or charset.decode is None
        else frozenset(charset.decode(bytes(range(256))))
    )
