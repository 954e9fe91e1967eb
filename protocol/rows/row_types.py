"""Rows as objects of the user's own types: data classes, typed dicts, named tuples and pydantic models.

The value of a field is the value of the column with its name; columns without a field are left out. Values are not
converted, but for pydantic's models, which validate them. This module reads no bytes.
"""

import contextlib
import typing
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from ..errors import ConfigurationError

#: A data class, typed dict, named tuple or pydantic model.
AsType = TypeVar("AsType")
_Make = Callable[[dict[str, Any]], Any]

_TYPES_KEPT: Final = 256


def row_as(kind: type[AsType], image: Mapping[str, Any], table: object) -> AsType:
    """The row as an object of ``kind``; ``table`` is named in errors.

    Raises ``ConfigurationError`` if ``kind`` is no data class, typed dict, named tuple or pydantic model, and if the
    row lacks a column for a field without a default. A pydantic model raises its own ``ValidationError``.
    """
    fields, required, make = _shape(cast("Hashable", kind))
    if fields is None:
        return cast("AsType", make(dict(image)))
    found = {name: image[name] for name in fields if name in image}
    missing = required - found.keys()
    if missing:
        raise ConfigurationError(
            f"{kind.__name__}: {table} has no value for {', '.join(sorted(missing))}; its columns are "
            f"{', '.join(image)} -- give the field a default, or log whole rows (binlog_row_image=FULL) with column "
            "names (binlog_row_metadata=FULL)"
        )
    return cast("AsType", make(found))


@lru_cache(maxsize=_TYPES_KEPT)
def _shape(kind: Any) -> tuple[tuple[str, ...] | None, frozenset[str], _Make]:
    """The names of the fields (None: any), the names of those without a default, and what makes an object."""
    for is_kind, read in _KINDS.items():
        if is_kind(kind):
            return read(kind)
    raise ConfigurationError(
        f"{kind!r} cannot hold a row: give a dataclass, a TypedDict, a NamedTuple or a pydantic model"
    )


def _of_dataclass(kind: Any) -> tuple[tuple[str, ...], frozenset[str], _Make]:
    import dataclasses

    fields = [field for field in dataclasses.fields(kind) if field.init]
    required = frozenset(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    return tuple(field.name for field in fields), required, lambda values: kind(**values)


def _of_named_tuple(kind: Any) -> tuple[tuple[str, ...], frozenset[str], _Make]:
    return kind._fields, frozenset(kind._fields) - kind._field_defaults.keys(), lambda values: kind(**values)


def _of_typed_dict(kind: Any) -> tuple[tuple[str, ...], frozenset[str], _Make]:
    required = set(kind.__required_keys__)
    # Python does not see NotRequired in annotations that are texts (from __future__ import annotations).
    with contextlib.suppress(NameError, TypeError):
        for name, hint in typing.get_type_hints(kind, include_extras=True).items():
            if typing.get_origin(hint) is typing.NotRequired:
                required.discard(name)
    return tuple(kind.__annotations__), frozenset(required), dict


def _of_model(kind: Any) -> tuple[None, frozenset[str], _Make]:
    return None, frozenset(), kind.model_validate


_KINDS: Final[Mapping[Callable[[Any], bool], Callable[[Any], tuple[Any, frozenset[str], _Make]]]] = (
    MappingProxyType(
        {
            lambda kind: hasattr(kind, "model_validate"): _of_model,
            lambda kind: isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"): _of_dataclass,
            lambda kind: typing.is_typeddict(kind): _of_typed_dict,
            lambda kind: isinstance(kind, type) and hasattr(kind, "_field_defaults"): _of_named_tuple,
        }
    )
)
