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


def changes_values(
    kind: str, values: pa.Array, *, is_nullable: bool = True, before: str | None = None
) -> bool:
    """Whether the server changed any of these values when their column got this kind; ``before`` it had another one.

    Some changes, such as shortening texts, only happen outside of strict mode. Others, such as rounding times or
    normalizing labels, always happen, without a warning.
    """
    if kind == "JSON" and before not in (None, kind):
        # The server normalizes the text of a JSON column; the new text is not known here.
        return int(values.null_count) < len(values)
    if values.null_count:
        # A null in a temporal column may also stand for a date that does not exist (0000-00-00).
        if not is_nullable and not pa.types.is_temporal(values.type):
            return True
        values = values.drop_null()
    base, size = kind_parts(kind)
    is_changed = _CHANGES.get(base)
    return is_changed is not None and len(values) > 0 and is_changed(values, size)


def _any(flags: pa.Array) -> bool:
    return bool(pc.any(flags).as_py())


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
    }
)
