"""Types of columns as statements name them, as far as values depend on them that the log does not show."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# Of a type with no default that a row could be without: what NOT NULL rows get when a column is added.
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
_WITH_FRACTIONS: Final = frozenset({"DATETIME", "TIMESTAMP", "TIME"})
# They give values a form of their own, and Arrow has the same type for the text that was there before.
_WITH_FORM: Final = frozenset({"TIME", "YEAR", "JSON", "BINARY"})
_WITH_LABELS: Final = frozenset({"ENUM", "SET"})
# What of a default such a type leaves as it is.
_KEPT_DEFAULTS: Final[Mapping[str, re.Pattern[str]]] = MappingProxyType(
    {
        "TIME": re.compile(r"-?\d{2,3}:\d\d:\d\d"),
        "YEAR": re.compile(r"\d{4}"),
        "BINARY": re.compile(r"(?!)"),
    }
)


def implied_default(base: str) -> str | None:
    """What a NOT NULL column without a default has in old rows: the type's own nothing; None: not known."""
    return "0" if base in _NUMBERS else "" if base in _TEXTS else None


def holds_default(base: str, default: str) -> bool:
    """Whether a default that is written so is the value that rows get."""
    kept = _KEPT_DEFAULTS.get(base)
    return kept is None or kept.fullmatch(default) is not None


def keeps_values(kind: str, new: str) -> bool:
    """Whether a column of another type has the values that it had, where Arrow has the same type for both.

    Texts that become too long are not asked for: servers refuse that, unless they are told to be less strict.
    """
    (base, size), (new_base, new_size) = _parts(kind), _parts(new)
    if {base, new_base} <= _WITH_FRACTIONS and int(new_size or 0) < int(size or 0):
        return False
    if new_base == base:
        return base != "BINARY" or size == new_size
    if new_base in _WITH_LABELS:
        return base not in _NUMBERS
    return new_base not in _WITH_FORM


def _parts(kind: str) -> tuple[str, str]:
    base, _, rest = kind.partition("(")
    return base, rest.rstrip(")")
