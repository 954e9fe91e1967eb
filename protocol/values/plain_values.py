"""Values of rows as plain JSON values and back, without loss: for keys in checkpoints and rows in work files."""

from array import array
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

_AS_THEY_ARE: Final = frozenset({int, str, float, type(None)})


def plain_value(value: object) -> object:
    """A value that JSON has no form for is an object with one member, which names the type.

    ``TypeError`` for types that rows do not have, and for JSON documents that are not text.
    """
    if type(value) in _AS_THEY_ARE:
        return value
    for name, (kind, text, _) in _KINDS.items():
        if type(value) is kind:
            return {name: text(value)}
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")


def value_of_plain(plain: Any) -> Any:
    """The reverse of ``plain_value``."""
    if not isinstance(plain, dict):
        return plain
    [(name, text)] = plain.items()
    return _KINDS[name][2](text)


_KINDS: Final[Mapping[str, tuple[type, Callable[[Any], object], Callable[[Any], object]]]] = MappingProxyType(
    {
        "bytes": (bytes, bytes.hex, bytes.fromhex),
        "decimal": (Decimal, str, Decimal),
        "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
        "date": (date, date.isoformat, date.fromisoformat),
        "time": (
            timedelta,
            lambda value: [value.days, value.seconds, value.microseconds],
            lambda parts: timedelta(*parts),
        ),
        "floats": (array, array.tolist, lambda values: array("f", values)),
    }
)
