"""Whether an ALTER of a column's type changes stored values, when neither the log nor the Arrow types show it.

Column kinds are those of ``replica.sql.column_kinds``. If the Arrow type changes with the kind, ``kept_table``
converts the values or refuses; this module is for kinds of one Arrow type, such as VARCHAR(10) and VARCHAR(5).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ...sql.column_kinds import (
    YEAR_FORM,
    in_definition_order,
    kind_labels,
    kind_length,
    kind_parts,
    time_form,
)

_FIRST_YEAR, _LAST_YEAR = 1901, 2155
_INTEGER_BITS: Final = MappingProxyType(
    {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
)
_NUMBERS: Final = frozenset(("DECIMAL", "FLOAT", "DOUBLE", "BIT", "YEAR", *_INTEGER_BITS))
#: The end of a kind of numbers that the server shows with zeros in front, in ``before``.
ZEROFILL: Final = " ZEROFILL"
#: The end of the kind of a TIMESTAMP that has no NULL, in ``before``: its nulls are dates that do not exist.
NOT_NULL: Final = " NOT NULL"


def changes_values(
    kind: str,
    values: pa.Array,
    *,
    is_nullable: bool = True,
    before: str | None = None,
    is_unsigned: bool = False,
) -> bool:
    """Whether the server changed any of these values when their column got this kind; ``before`` it had another one.

    Some changes, such as shortening texts, only happen outside of strict mode. Others, such as rounding times or
    normalizing labels, always happen, without a warning.
    """
    if kind == "JSON" and before not in (None, kind):
        # The server normalizes the text of a JSON column; the new text is not known here.
        return int(values.null_count) < len(values)
    if values.null_count:
        # A null in a temporal column may also stand for a date that does not exist (0000-00-00), which NULL becomes;
        # but in a TIMESTAMP it becomes the time of the statement.
        is_now = kind.startswith("TIMESTAMP") and not (before or "").endswith(NOT_NULL)
        if not is_nullable and (is_now or not pa.types.is_temporal(values.type)):
            return True
        values = values.drop_null()
    if not len(values):
        return False
    base, size = kind_parts(kind)
    if base in _INTEGER_BITS:
        return _integer(values, _INTEGER_BITS[base], is_unsigned=is_unsigned)
    if is_unsigned and _is_number(values.type) and _any(pc.less(values, 0)):
        return True
    if before is not None and before.endswith(ZEROFILL) and base not in _NUMBERS:
        # As text, the server writes all zeros.
        return True
    if before is not None and kind_parts(before)[0] == "TIME" and base != "TIME":
        # As text, the server writes all digits of the fraction.
        return kind_parts(before)[1] not in ("", "0")
    is_changed = _CHANGES.get(base)
    return is_changed is not None and is_changed(values, size)


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _integer(values: pa.Array, bits: int, *, is_unsigned: bool) -> bool:
    """Whether an integer type cuts any of these numbers; ``kept_table`` refuses other values."""
    if not _is_number(values.type):
        return False
    low, high = (0, 1 << bits) if is_unsigned else (-1 << bits - 1, 1 << bits - 1)
    found = pc.min_max(values).as_py()
    return not low <= found["min"] <= found["max"] < high


def _bit(values: pa.Array, size: str) -> bool:
    return _integer(values, kind_length(size), is_unsigned=True)


def _rounded(values: pa.Array, size: str) -> bool:
    """Whether FLOAT(M,D) or DOUBLE(M,D) rounds or cuts any of these numbers."""
    if not size or not _is_number(values.type):
        return False
    digits, places = map(int, size.split(","))
    numbers = values.cast(pa.float64())
    kept = pc.round(numbers, places).cast(values.type, safe=False)
    return _any(pc.not_equal(kept, values)) or _any(
        pc.greater_equal(pc.abs(numbers), 10.0 ** (digits - places))
    )


def _long(most: int) -> Callable[[pa.Array, str], bool]:
    """For a TEXT or BLOB of so many bytes; TEXT(n) is of the least type that has room for n characters."""

    def is_cut(values: pa.Array, size: str) -> bool:
        return _any(pc.greater(pc.binary_length(values), int(size) if size else most))

    return lambda values, size: not _is_number(values.type) and is_cut(values, size)


def _varchar(values: pa.Array, size: str) -> bool:
    return pa.types.is_string(values.type) and _any(pc.greater(pc.utf8_length(values), kind_length(size)))


def _char(values: pa.Array, size: str) -> bool:
    return pa.types.is_string(values.type) and (_varchar(values, size) or _any(pc.ends_with(values, " ")))


def _varbinary(values: pa.Array, size: str) -> bool:
    return pa.types.is_binary(values.type) and _any(pc.greater(pc.binary_length(values), kind_length(size)))


def _binary(values: pa.Array, size: str) -> bool:
    is_bytes = pa.types.is_binary(values.type)
    return not is_bytes or _any(pc.not_equal(pc.binary_length(values), kind_length(size)))


def _moment(values: pa.Array, size: str) -> bool:
    if not pa.types.is_timestamp(values.type):
        return False
    unit = 10 ** (6 - int(size or 0))
    micros = values.cast(pa.int64())
    return _any(pc.not_equal(pc.multiply(pc.divide(micros, unit), unit), micros))


def _time(values: pa.Array, size: str) -> bool:
    is_text = pa.types.is_string(values.type)
    return not is_text or _any(pc.invert(pc.match_substring_regex(values, time_form(size))))


def _year(values: pa.Array, size: str) -> bool:
    if pa.types.is_string(values.type):
        return _any(pc.invert(pc.match_substring_regex(values, YEAR_FORM)))
    years = values.cast(pa.int64(), safe=False) if pa.types.is_integer(values.type) else None
    return years is not None and any(
        year and not _FIRST_YEAR <= year <= _LAST_YEAR for year in pc.unique(years).to_pylist()
    )


def _enum(values: pa.Array, size: str) -> bool:
    # The empty string is MySQL's value for an invalid label.
    return not pa.types.is_string(values.type) or bool(
        {*pc.unique(values).to_pylist()} - {*kind_labels(size), ""}
    )


def _set(values: pa.Array, size: str) -> bool:
    return not pa.types.is_string(values.type) or any(
        not in_definition_order(value, size) for value in pc.unique(values).to_pylist()
    )


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
        "BIT": _bit,
        "FLOAT": _rounded,
        "DOUBLE": _rounded,
        **dict.fromkeys(("TINYTEXT", "TINYBLOB"), _long(0xFF)),
        **dict.fromkeys(("TEXT", "BLOB"), _long(0xFFFF)),
        **dict.fromkeys(("MEDIUMTEXT", "MEDIUMBLOB"), _long(0xFFFFFF)),
    }
)
