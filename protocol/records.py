"""``@record``: dataclasses with slots that generate their methods when the first of these is called.

Every data class of ``protocol`` and ``replica`` is a record; the few that are not are named, with the reason, in
tests/unit/project/test_layering.py. A program uses few of the classes that it imports, and generating the methods of
one takes 0.6 ms or more: on Python 3.11 ``import replica`` takes 51 ms with records and 121 ms with dataclasses (69
classes; the fastest of 25 runs each).

``@record(slots=True)`` means ``@dataclass(slots=True)``: the methods are the standard library's, and ``fields``,
``replace``, ``copy``, ``match`` and ``pickle`` see no difference. In one thing a record can do more: a field may be a
property of a base class (``Event.header``). Type checkers see ``dataclass`` itself.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, get_origin

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, slots, frozen=False, eq=True, kw_only=False):
        """Class decorator; the options are those of ``dataclass``. ``slots`` is always true."""
        options = {"frozen": frozen, "eq": eq, "kw_only": kw_only}
        return lambda written: _with_slots(written, options)


# What dataclass() looks at, besides the fields and their defaults.
_PATTERN = ("__annotations__", "__doc__", "__module__", "__qualname__", "__post_init__")
# Python 3.14 keeps a function in a class that makes its annotations when somebody reads them (PEP 649).
_OF_THE_CLASS_WRITTEN = ("__dict__", "__weakref__", "__annotate_func__", "__annotations_cache__")
_FIELDS = "__dataclass_fields__"
_PARAMETERS = "__dataclass_params__"


class _LazyFields:
    """A descriptor in the place of ``__dataclass_fields__``: to read it generates the class's methods."""

    def __init__(self, make: Callable[[], type]) -> None:
        self._make = make

    def __get__(self, instance: object, owner: type) -> Any:
        return vars(self._make())[_FIELDS]


def _with_slots(written: type, options: dict[str, bool]) -> type:
    body = {name: value for name, value in vars(written).items() if name not in _OF_THE_CLASS_WRITTEN}
    body["__qualname__"] = written.__qualname__
    body["__annotations__"] = written.__annotations__
    names = tuple(name for name, kind in written.__annotations__.items() if not _is_of_class(kind))
    defaults = {name: body.pop(name, dataclasses.field()) for name in names}
    pattern = defaults | {name: body[name] for name in _PATTERN if name in body}
    methods = [name for name in _methods(**options) if name not in body]

    def make() -> type:
        """Generate the methods and replace their stand-ins. Two threads may do so at once."""
        plain = type(written)(written.__name__, written.__bases__, dict(pattern))
        generated = vars(dataclasses.dataclass(**options)(plain))
        for name in (*methods, _PARAMETERS, _FIELDS):
            setattr(made, name, generated[name])
        return made

    inherited = {name for base in written.__mro__[1:-1] for name in vars(base)}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    positional = () if options["kw_only"] else (name for name in names if _is_in_init(defaults[name]))
    body["__match_args__"] = (*getattr(written, "__match_args__", ()), *positional)
    body |= {name: _stand_in(name, make) for name in methods}
    if options["frozen"]:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
        body |= {"__getstate__": _state, "__setstate__": _set_state}
    made = type(written)(written.__name__, written.__bases__, {**body, _FIELDS: _LazyFields(make)})
    return made


def _is_of_class(kind: Any) -> bool:
    return get_origin(kind) is ClassVar


def _methods(frozen: bool, eq: bool, kw_only: bool) -> list[str]:
    return ["__init__", "__repr__", *["__eq__"] * eq, *["__hash__"] * (eq and frozen)]


def _is_in_init(default: object) -> bool:
    return not isinstance(default, dataclasses.Field) or default.init


def _stand_in(name: str, make: Callable[[], type]) -> Callable[..., object]:
    def method(self: object, *arguments: object, **named: object) -> object:
        return getattr(make(), name)(self, *arguments, **named)

    return method


def _refuse(self: object, name: str, *value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
