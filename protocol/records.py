"""``@record``: dataclasses with slots that generate their methods when the first of these is called.

Every data class of ``protocol`` and ``replica`` is a record; the few that are not are named, with the reason, in
tests/unit/project/test_layering.py. A program uses few of the classes that it imports, and generating the methods of
one takes 0.6 ms or more: on Python 3.11 ``import replica`` takes 51 ms with records and 121 ms with dataclasses (69
classes; the fastest of 25 runs each).

Of most classes that are used only ``__init__`` is called. It is written here, which takes 50 us, and ``__eq__`` and
``__hash__`` are made here without the compiler; the standard library generates all methods in 390 us for a frozen
class. A live stream makes instances of 58 classes before its first event, which takes 23 ms less CPU so.

``@record(slots=True)`` means ``@dataclass(slots=True)``: ``fields``, ``replace``, ``copy``, ``match`` and ``pickle``
see no difference. In one thing a record can do more: a field may be a property of a base class (``Event.header``).
Type checkers see ``dataclass`` itself.
"""

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_origin

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
_PARAMETERS_OF_INIT = "__record_parameters__"


class _Parameter(NamedTuple):
    """What ``__init__`` has to know of a field: its default or its ``field()``, and whether it is keyword-only."""

    default: Any
    is_keyword: bool
    annotation: Any


class _Factory:
    """The default of a parameter whose field has a factory, as ``inspect.signature`` shows it."""

    def __repr__(self) -> str:
        return "<factory>"


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
    own = {
        name: _Parameter(default, options["kw_only"], written.__annotations__[name])
        for name, default in defaults.items()
    }

    def make_init() -> type:
        """Write ``__init__`` and replace its stand-in."""
        _write_init(made, options["frozen"])
        return made

    def make_comparison() -> type:
        """Make ``__eq__`` and ``__hash__`` in place of their stand-ins."""
        _make_comparison(made, methods)
        return made

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
    makers = {"__init__": make_init, "__eq__": make_comparison, "__hash__": make_comparison}
    body |= {name: _stand_in(name, makers.get(name, make)) for name in methods}
    body[_PARAMETERS_OF_INIT] = own
    if options["frozen"]:
        body |= {"__setattr__": _refuse, "__delattr__": _refuse}
        body |= {"__getstate__": _state, "__setstate__": _set_state}
    made = type(written)(written.__name__, written.__bases__, {**body, _FIELDS: _LazyFields(make)})
    return made


def _write_init(made: Any, is_frozen: bool) -> None:
    """Give the class the ``__init__`` that ``dataclass`` would generate, by one call of the compiler."""
    names: dict[str, Any] = {"factory_": _Factory(), "set_": object.__setattr__}
    heads: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    for name, (default, is_keyword, annotation) in _parameters(made).items():
        described = _described(default)
        head, value = _head_and_value(name, described, names)
        if described.init:
            heads[is_keyword].append(head)
            annotations[name] = annotation
        if described.init or value != name:
            lines.append(f"set_(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    keywords = ["*", *heads[True]] if heads[True] else []
    # The text holds only the names of fields.
    exec(f"def __init__({', '.join([*heads[False], *keywords])}):\n " + "\n ".join(lines or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
    init.__annotations__ = {**annotations, "return": None}
    made.__init__ = init


def _make_comparison(made: Any, methods: Iterable[str]) -> None:
    """Give the class the ``__eq__`` and ``__hash__`` that it is to have; they do what ``dataclass``'s do."""
    fields = {name: _described(parameter.default) for name, parameter in _parameters(made).items()}
    compared = _getter([name for name, one in fields.items() if one.compare])
    hashed = _getter(
        [name for name, one in fields.items() if (one.compare if one.hash is None else one.hash)]
    )

    def equals(self: object, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    for name, method in (("__eq__", equals), ("__hash__", hash_of)):
        if name in methods:
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)


def _getter(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Returns the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _parameters(made: type) -> dict[str, _Parameter]:
    """What ``__init__`` has to know of the fields of a class and its bases."""
    parameters: dict[str, _Parameter] = {}
    for base in reversed(made.__mro__):
        parameters |= vars(base).get(_PARAMETERS_OF_INIT, {})
    return parameters


def _described(default: Any) -> Any:
    return default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)


def _head_and_value(name: str, described: Any, names: dict[str, Any]) -> tuple[str, str]:
    """A field's parameter and the value that it gets; ``names`` takes its default."""
    if described.default_factory is not dataclasses.MISSING:
        make = f"make_{name}"
        names[make] = described.default_factory
        value = f"{make}() if {name} is factory_ else {name}" if described.init else f"{make}()"
        return f"{name}=factory_", value
    if described.default is not dataclasses.MISSING:
        names[f"default_{name}"] = described.default
        return f"{name}=default_{name}", name
    return name, name


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
