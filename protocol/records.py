"""``@record``: dataclasses with slots that generate their methods when the first of these is called.

Every data class of ``protocol`` and ``replica`` is a record; the few that are not are named, with the reason, in
tests/unit/project/test_layering.py. A program uses few of the classes that it imports, and generating the methods of
one takes 0.6 ms or more: on Python 3.11 ``import replica`` takes 51 ms with records and 121 ms with dataclasses (69
classes; the fastest of 25 runs each). ``dataclasses`` itself takes 6 ms to import, and is imported here by those who
need what is not made here: ``repr`` and ``fields``.

Of most classes that are used only ``__init__`` is called, and that a few times. The first instances have their fields
set here without one, in some 3 us; then it is written, which takes 50 to 200. ``__eq__`` and ``__hash__`` are made
here without the compiler; the standard library generates all methods in 390 us for a frozen class. A live stream
makes instances of 71 classes, and needs 16 of these methods.

``@record(slots=True)`` means ``@dataclass(slots=True)``: ``fields``, ``replace``, ``copy``, ``match`` and ``pickle``
see no difference. The ``field`` and the ``replace`` of this module are those of records. In one thing a record can do
more: a field may be a property of a base class (``Event.header``). Type checkers see ``dataclass`` itself.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, get_origin

__all__ = ["field", "record", "replace"]

_MISSING: Final = object()


class _Field(NamedTuple):
    """The arguments of ``dataclasses.field``; ``field`` makes it."""

    default: Any = _MISSING
    default_factory: Any = _MISSING
    init: bool = True
    repr: bool = True
    hash: bool | None = None
    compare: bool = True


if TYPE_CHECKING:
    from dataclasses import dataclass as record
    from dataclasses import field, replace
else:

    def record(*, slots, frozen=False, eq=True, kw_only=False):
        """Class decorator; the options are those of ``dataclass``. ``slots`` is always true."""
        options = {"frozen": frozen, "eq": eq, "kw_only": kw_only}
        return lambda written: _with_slots(written, options)

    field = _Field

    def replace(instance, /, **changes):
        """A copy of a record with these changes, as ``dataclasses.replace`` makes it."""
        for name, parameter in _parameters(type(instance)).items():
            if name not in changes and parameter.field.init:
                changes[name] = getattr(instance, name)
        return type(instance)(**changes)


# What dataclass() looks at, besides the fields and their defaults.
_PATTERN = ("__annotations__", "__doc__", "__module__", "__qualname__", "__post_init__")
# Python 3.14 keeps a function in a class that makes its annotations when somebody reads them (PEP 649).
_OF_THE_CLASS_WRITTEN = ("__dict__", "__weakref__", "__annotate_func__", "__annotations_cache__")
_FIELDS = "__dataclass_fields__"
_PARAMETERS = "__dataclass_params__"
_WITHOUT_DEFAULT: Final = _Field()
# To write and compile an ``__init__`` takes as long as to set the fields of some thirty instances without one.
_INSTANCES_BEFORE_WRITING: Final = 8


class _Parameter(NamedTuple):
    """A field as a parameter of ``__init__``; ``field`` describes it."""

    field: _Field
    is_keyword: bool
    annotation: Any


class _Description(NamedTuple):
    """The material for the methods of a record: the class's ``__record__``.

    ``methods`` are to be generated, and ``pattern`` is the body of the class that ``dataclass`` generates them for,
    with a default for each of the fields ``names``. Nothing is worked out here that few programs need: the garbage
    collector goes through the objects of each class.
    """

    names: tuple[str, ...]
    methods: tuple[str, ...]
    options: Mapping[str, bool]
    pattern: Mapping[str, Any]


class _Factory:
    """The default of a parameter whose field has a factory, as ``inspect.signature`` shows it."""

    def __repr__(self) -> str:
        return "<factory>"


class _StandIn:
    """A descriptor in the place of a method: to read it makes the method. Two threads may do so at once."""

    __slots__ = ("_make", "_name", "_owner")

    def __init__(self, make: Callable[[Any], None]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type) -> Any:
        return self._made().__get__(instance, owner)

    def _made(self) -> Any:
        self._make(self._owner)
        return vars(self._owner)[self._name]


class _Init(_StandIn):
    """The descriptor in the place of ``__init__``: it sets the fields of the first instances itself."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        super().__init__(_write_init)
        self._left = _INSTANCES_BEFORE_WRITING

    def __get__(self, instance: object, owner: type) -> Any:
        # ``inspect.signature`` of Python 3.13 binds the method to the class.
        if instance is None or self._left <= 0 or isinstance(instance, type):
            return super().__get__(instance, owner)
        self._left -= 1
        return partial(self._set_fields, instance)

    def _set_fields(self, instance: Any, /, *given: Any, **named: Any) -> None:
        values = _values(_parameters(self._owner), given, named)
        if values is None:
            # The written method raises the error.
            self._made()(instance, *given, **named)
            return
        description: _Description = vars(self._owner)["__record__"]
        put = object.__setattr__ if description.options["frozen"] else setattr
        for name, value in values.items():
            put(instance, name, value)
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


class _LazyFields(_StandIn):
    """A descriptor in the place of ``__dataclass_fields__``."""

    __slots__ = ()

    def __get__(self, instance: object, owner: type) -> Any:
        return self._made()


def _with_slots(written: type, options: dict[str, bool]) -> type:
    annotations = written.__annotations__
    body = {name: value for name, value in vars(written).items() if name not in _OF_THE_CLASS_WRITTEN}
    body["__qualname__"], body["__annotations__"] = written.__qualname__, annotations
    names = tuple(name for name, kind in annotations.items() if not _is_of_class(kind))
    defaults = {name: body.pop(name, _WITHOUT_DEFAULT) for name in names}
    pattern = defaults | {name: body[name] for name in _PATTERN if name in body}
    methods = tuple(name for name in _methods(**options) if name not in body)
    inherited = {name for base in written.__mro__[1:-1] for name in vars(base)}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    positional = () if options["kw_only"] else (name for name in names if _described(defaults[name]).init)
    body["__match_args__"] = (*getattr(written, "__match_args__", ()), *positional)
    for name in methods:
        body[name] = _Init() if name == "__init__" else _StandIn(_MAKERS.get(name, _generate))
    if options["frozen"]:
        body |= _FROZEN
    body["__record__"] = _Description(names, methods, options, pattern)
    body[_FIELDS] = _LazyFields(_generate)
    return type(written)(written.__name__, written.__bases__, body)


@cache
def _parameters(made: Any) -> Mapping[str, _Parameter]:
    """The parameters of ``__init__`` for the fields of a record and its bases."""
    found: dict[str, _Parameter] = {}
    for base in reversed(made.__mro__):
        description: _Description | None = vars(base).get("__record__")
        if description is not None:
            is_keyword, annotations = description.options["kw_only"], description.pattern["__annotations__"]
            for name in description.names:
                field = _described(description.pattern[name])
                found[name] = _Parameter(field, is_keyword, annotations[name])
    return found


def _generate(made: Any) -> None:
    """Have ``dataclass`` generate all methods, and replace their stand-ins."""
    import dataclasses

    description: _Description = made.__record__
    pattern = {name: _for_dataclass(value) for name, value in description.pattern.items()}
    plain = type(made)(made.__name__, made.__bases__, pattern)
    generated = vars(dataclasses.dataclass(**description.options)(plain))
    for name in (*description.methods, _PARAMETERS, _FIELDS):
        setattr(made, name, generated[name])


def _for_dataclass(value: Any) -> Any:
    if not isinstance(value, _Field):
        return value
    import dataclasses

    given = value._asdict()
    return dataclasses.field(**{name: option for name, option in given.items() if option is not _MISSING})


def _write_init(made: Any) -> None:
    """Give the class the ``__init__`` that ``dataclass`` would generate, by one call of the compiler."""
    description: _Description = made.__record__
    names: dict[str, Any] = {"factory_": _Factory(), "set_": object.__setattr__}
    heads: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    for name, (described, is_keyword, annotation) in _parameters(made).items():
        head, value = _head_and_value(name, described, names)
        if described.init:
            heads[is_keyword].append(head)
            annotations[name] = annotation
        if described.init or value != name:
            lines.append(
                f"set_(self, {name!r}, {value})"
                if description.options["frozen"]
                else f"self.{name} = {value}"
            )
    if hasattr(made, "__post_init__"):
        lines.append("self.__post_init__()")
    keywords = ["*", *heads[True]] if heads[True] else []
    # The text holds only the names of fields.
    exec(f"def __init__({', '.join([*heads[False], *keywords])}):\n " + "\n ".join(lines or ["pass"]), names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{made.__qualname__}.__init__", made.__module__
    init.__annotations__ = {**annotations, "return": None}
    made.__init__ = init


def _values(
    parameters: Mapping[str, _Parameter], given: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The values of the fields for these arguments; None if the arguments are wrong."""
    positional = [name for name, one in parameters.items() if one.field.init and not one.is_keyword]
    left = dict(zip(positional, given, strict=False))
    if len(left) < len(given) or not left.keys().isdisjoint(named):
        return None
    left |= named
    values = {}
    for name, (described, _, _) in parameters.items():
        if described.init and name in left:
            values[name] = left.pop(name)
        elif described.default_factory is not _MISSING:
            values[name] = described.default_factory()
        elif described.init and described.default is _MISSING:
            return None
        elif described.init:
            values[name] = described.default
    return None if left else values


def _make_comparison(made: Any) -> None:
    """Give the class the ``__eq__`` and ``__hash__`` that it is to have; they do what ``dataclass``'s do."""
    description: _Description = made.__record__
    fields = {name: parameter.field for name, parameter in _parameters(made).items()}
    compared = _getter([name for name, one in fields.items() if one.compare])
    hashed = _getter(
        [name for name, one in fields.items() if (one.compare if one.hash is None else one.hash)]
    )

    def equals(self: object, other: object) -> Any:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    for name, method in (("__eq__", equals), ("__hash__", hash_of)):
        if name in description.methods:
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)


_MAKERS: Final[Mapping[str, Callable[[Any], None]]] = MappingProxyType(
    {"__eq__": _make_comparison, "__hash__": _make_comparison}
)


def _getter(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Returns the tuple of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _is_of_class(kind: Any) -> bool:
    return get_origin(kind) is ClassVar


def _described(default: Any) -> _Field:
    return default if isinstance(default, _Field) else _Field(default)


def _head_and_value(name: str, described: _Field, names: dict[str, Any]) -> tuple[str, str]:
    """A field's parameter and the value that it gets; ``names`` takes its default."""
    if described.default_factory is not _MISSING:
        make = f"make_{name}"
        names[make] = described.default_factory
        value = f"{make}() if {name} is factory_ else {name}" if described.init else f"{make}()"
        return f"{name}=factory_", value
    if described.default is not _MISSING:
        names[f"default_{name}"] = described.default
        return f"{name}=default_{name}", name
    return name, name


def _methods(frozen: bool, eq: bool, kw_only: bool) -> list[str]:
    return ["__init__", "__repr__", *["__eq__"] * eq, *["__hash__"] * (eq and frozen)]


def _refuse(self: object, name: str, *value: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, name) for name in _parameters(self.__class__)]


def _set_state(self: Any, state: list[object]) -> None:
    for name, value in zip(_parameters(self.__class__), state, strict=True):
        object.__setattr__(self, name, value)


_FROZEN: Final[Mapping[str, Any]] = MappingProxyType(
    {"__setattr__": _refuse, "__delattr__": _refuse, "__getstate__": _state, "__setstate__": _set_state}
)
