"""Types of columns as statements name them, as far as values depend on them that the log does not show.

A kind is a type in capitals with what stands in brackets behind it: ``DATETIME(6)``, ``ENUM('a','b')``. Where Arrow
has other types for the old kind and the new one, ``kept_table`` says what becomes of values; this is about the rest.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

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
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_FIRST_YEAR, _LAST_YEAR = 1901, 2155


def implied_default(kind: str) -> str | None:
    """What a NOT NULL column without a default has in old rows: the type's own nothing; None: not known."""
    base, _ = _parts(kind)
    return "0" if base in _NUMBERS else "" if base in _TEXTS else None


def holds_default(kind: str, default: str) -> bool:
    """Whether a default that is written so is the value that rows get."""
    return not changes_values(kind, pa.array([default]))


def changes_values(kind: str, values: pa.Array, *, is_nullable: bool = True) -> bool:
    """Whether the server has other values than these in a column that is of this kind now.

    Much of that it only does out of strict mode, as to shorten texts; to round times, or to give texts their form as
    labels, it does without a word.
    """
    if values.null_count:
        # Dates that no calendar has are null, too.
        if not is_nullable and not pa.types.is_temporal(values.type):
            return True
        values = values.drop_null()
    base, size = _parts(kind)
    is_changed = _CHANGES.get(base)
    return is_changed is not None and len(values) > 0 and is_changed(values, size)


def _parts(kind: str) -> tuple[str, str]:
    base, _, rest = kind.partition("(")
    return base, rest.removesuffix(")")


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


def _length(size: str) -> int:
    return int(size) if size.isdecimal() else 1


def _varchar(values: pa.Array, size: str) -> bool:
    return pa.types.is_string(values.type) and _any(pc.greater(pc.utf8_length(values), _length(size)))


def _char(values: pa.Array, size: str) -> bool:
    return pa.types.is_string(values.type) and (_varchar(values, size) or _any(pc.ends_with(values, " ")))


def _varbinary(values: pa.Array, size: str) -> bool:
    return pa.types.is_binary(values.type) and _any(pc.greater(pc.binary_length(values), _length(size)))


def _binary(values: pa.Array, size: str) -> bool:
    is_bytes = pa.types.is_binary(values.type)
    return not is_bytes or _any(pc.not_equal(pc.binary_length(values), _length(size)))


def _moment(values: pa.Array, size: str) -> bool:
    if not pa.types.is_timestamp(values.type):
        return False
    unit = 10 ** (6 - int(size or 0))
    micros = values.cast(pa.int64())
    return _any(pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros))


def _time(values: pa.Array, size: str) -> bool:
    form = rf"^-?\d{{2,3}}:[0-5]\d:[0-5]\d(\.\d{{0,{int(size or 0)}}}0*)?$"
    return not pa.types.is_string(values.type) or _any(pc.invert(pc.match_substring_regex(values, form)))


def _year(values: pa.Array, size: str) -> bool:
    if pa.types.is_string(values.type):
        return _any(pc.invert(pc.match_substring_regex(values, r"^\d{4}$")))
    years = values.cast(pa.int64(), safe=False) if pa.types.is_integer(values.type) else None
    return years is not None and any(
        year and not _FIRST_YEAR <= year <= _LAST_YEAR for year in pc.unique(years).to_pylist()
    )


def _enum(values: pa.Array, size: str) -> bool:
    # An empty one is what is left of a label that was none.
    return not pa.types.is_string(values.type) or bool(
        {*pc.unique(values).to_pylist()} - {*_labels(size), ""}
    )


def _set(values: pa.Array, size: str) -> bool:
    labels = _labels(size)
    return not pa.types.is_string(values.type) or any(
        value != ",".join(label for label in labels if label in value.split(","))
        for value in pc.unique(values).to_pylist()
    )


def _labels(size: str) -> Sequence[str]:
    return [label.replace("''", "'").rstrip(" ") for label in _LABEL.findall(size)]


_CHANGES: Final[Mapping[str, Callable[[pa.Array, str], bool]]] = MappingProxyType(
    {
        "VARCHAR": _varchar,
        "CHAR": _char,
        "VARBINARY": _varbinary,
        "BINARY": _binary,
        "DATETIME": _moment,
        "TIMESTAMP": _moment,
        "TIME": _time,
        "YEAR": _year,
        "ENUM": _enum,
        "SET": _set,
    }
)
