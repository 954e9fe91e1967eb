"""Every public name says what it is: classes, their members and fields, and functions their parameters."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re

import pytest

import replica

CLASSES = [name for name in replica.__all__ if inspect.isclass(getattr(replica, name))]
FUNCTIONS = [name for name in replica.__all__ if inspect.isroutine(getattr(replica, name))]


def own_docstring(of: object) -> str:
    """Not that of a base class."""
    return getattr(of, "__doc__", None) or ""


def members(kind: type) -> dict[str, object]:
    """Public methods and properties that the class itself defines."""
    found: dict[str, object] = {}
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            found[name] = function
    return found


def fields(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    return list(getattr(kind, "_fields", ()))


def test_public_names_have_docstrings() -> None:
    names = [name for name in replica.__all__ if name != "ABSENT"]
    assert [name for name in names if len(own_docstring(getattr(replica, name))) <= 20] == []


def test_public_members_have_docstrings() -> None:
    assert [
        f"{name}.{member}"
        for name in CLASSES
        for member, value in members(getattr(replica, name)).items()
        if not own_docstring(value)
    ] == []


def test_each_field_is_named_in_a_docstring() -> None:
    """That of the class or of a base class of ours."""
    assert [f"{name}.{field}" for name in CLASSES for field in unnamed_fields(getattr(replica, name))] == []


def unnamed_fields(kind: type) -> list[str]:
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in ("protocol", "replica")]
    text = " ".join(map(own_docstring, bases))
    return [field for field in fields(kind) if not re.search(rf"``{field}\b", text)]


def test_the_attributes_of_errors_are_named() -> None:
    errors = [kind for name in CLASSES if issubclass(kind := getattr(replica, name), Exception)]
    assert [f"{error.__name__}.{one}" for error in errors for one in unnamed_attributes(error)] == []


def unnamed_attributes(error: type[Exception]) -> list[str]:
    if "__init__" not in vars(error):
        return []
    parameters = list(inspect.signature(error.__init__).parameters)[1:]
    attributes = [one for one in parameters if one in inspect.getsource(error) and one != "message"]
    return [one for one in attributes if f"``{one}``" not in own_docstring(error)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_parameter_is_explained(name: str) -> None:
    """At the begin of a line of its own, alone or with others, or in the text; and what is raised is said."""
    function = getattr(replica, name)
    text = own_docstring(function)
    named = set(re.findall(r"``(\w+)", text))
    for line in re.findall(r"^ {4}((?:\w+, )*\w+): ", inspect.cleandoc(text), re.MULTILINE):
        named.update(line.split(", "))
    assert [one for one in inspect.signature(function).parameters if one not in named] == []
    # A status is never wrong.
    assert "Raises ``ConfigurationError``" in text or name == "open_metrics"


@pytest.mark.parametrize("name", ["server", "relay", "demo", "doctor", "arrow", "spark"])
def test_the_packages_names_too(name: str) -> None:
    package = importlib.import_module(f"replica.{name}")
    assert own_docstring(package)
    described = [one for one in vars(package).values() if inspect.isclass(one) or inspect.isroutine(one)]
    # A functools.partial is a routine from Python 3.14 on, and has no name.
    public = [one for one in described if getattr(one, "__name__", None) in package.__all__]
    assert public
    for one in public:
        assert own_docstring(one)
        if inspect.isclass(one):
            assert [member for member in members(one) if not inspect.getdoc(getattr(one, member))] == []
