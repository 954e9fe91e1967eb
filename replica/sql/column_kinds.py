"""Column types as DDL spells them: the implied default of a NOT NULL column, and which DEFAULT is stored as written.

A kind is a type in capitals with its brackets: ``DATETIME(6)``, ``ENUM('a','b')``. No connection, no decoding of
rows.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

_NUMBERS: Final = frozenset(
    {
        "TINYINT",
        "SMALLINT",
        "MEDIUMINT",
        "INT",
        "INTEGER",
        "BIGINT",
        "DECIMAL",
        "NUMERIC",
        "FLOAT",
        "DOUBLE",
        "REAL",
    }
    | {"BOOL", "BOOLEAN", "DEC", "FIXED", "BIT"}
)
_TEXTS: Final = frozenset({"CHAR", "VARCHAR", "TEXT", "TINYTEXT", "MEDIUMTEXT", "LONGTEXT", "VARBINARY"})
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
YEAR_FORM: Final = r"^\d{4}$"


def implied_default(kind: str) -> str | None:
    """The value of old rows in a new NOT NULL column without DEFAULT: zero or the empty text; None if unknown."""
    base, _ = kind_parts(kind)
    return "0" if base in _NUMBERS else "" if base in _TEXTS else None


def stores_default_as_written(kind: str, default: str) -> bool:
    """Whether rows get the text of a DEFAULT as it is: the server does not round, cut or reformat it."""
    base, size = kind_parts(kind)
    stores = _STORES_AS_WRITTEN.get(base)
    return stores is None or stores(default, size)


def kind_parts(kind: str) -> tuple[str, str]:
    """``("DATETIME", "6")`` for ``DATETIME(6)``; the second part is empty if the kind has no brackets."""
    base, _, rest = kind.partition("(")
    return base, rest.removesuffix(")")


def kind_length(size: str) -> int:
    """The length in the brackets; 1 without brackets (CHAR, BINARY)."""
    return int(size) if size.isdecimal() else 1


def kind_labels(size: str) -> Sequence[str]:
    """The labels of an ENUM or SET, without the trailing spaces that servers drop."""
    return [label.replace("''", "'").rstrip(" ") for label in _LABEL.findall(size)]


def time_form(size: str) -> str:
    """A regular expression for the texts that a TIME column with ``size`` fractional digits stores unchanged."""
    return rf"^-?\d{{2,3}}:[0-5]\d:[0-5]\d(\.\d{{0,{int(size or 0)}}}0*)?$"


def in_definition_order(value: str, size: str) -> bool:
    """Whether the text of a SET value names each label once and in the order of the definition."""
    return value == ",".join(label for label in kind_labels(size) if label in value.split(","))


_STORES_AS_WRITTEN: Final[Mapping[str, Callable[[str, str], bool]]] = MappingProxyType(
    {
        "VARCHAR": lambda text, size: len(text) <= kind_length(size),
        "CHAR": lambda text, size: len(text) <= kind_length(size) and not text.endswith(" "),
        "BINARY": lambda text, size: False,
        "TIME": lambda text, size: re.search(time_form(size), text) is not None,
        "YEAR": lambda text, size: re.search(YEAR_FORM, text) is not None,
        "ENUM": lambda text, size: text in (*kind_labels(size), ""),
        "SET": in_definition_order,
    }
)
