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
    found = {}
    for name, value in vars(kind).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(function, property)):
            found[name] = function
    return found


def fields(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    return list(getattr(kind, "_fields", ()))


@pytest.mark.parametrize("name", [name for name in replica.__all__ if name != "ABSENT"])
def test_a_public_name_has_a_docstring(name: str) -> None:
    assert len(own_docstring(getattr(replica, name))) > 20


@pytest.mark.parametrize("name", CLASSES)
def test_public_members_have_docstrings(name: str) -> None:
    assert [
        member for member, value in members(getattr(replica, name)).items() if not own_docstring(value)
    ] == []


@pytest.mark.parametrize("name", CLASSES)
def test_each_field_is_named_in_the_docstring(name: str) -> None:
    """That of the class or of one of ours that it stands on."""
    kind = getattr(replica, name)
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in ("protocol", "replica")]
    text = " ".join(map(own_docstring, bases))
    assert [field for field in fields(kind) if not re.search(rf"``{field}\b", text)] == []


@pytest.mark.parametrize("name", [name for name in CLASSES if issubclass(getattr(replica, name), Exception)])
def test_an_errors_attributes_are_named(name: str) -> None:
    error = getattr(replica, name)
    if "__init__" in vars(error):
        parameters = list(inspect.signature(error.__init__).parameters)[1:]
        attributes = [one for one in parameters if one in inspect.getsource(error) and one != "message"]
        assert [one for one in attributes if f"``{one}``" not in own_docstring(error)] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_parameter_is_explained(name: str) -> None:
    """At the begin of a line of its own, alone or with others, or in the text; and what is raised is said."""
    function = getattr(replica, name)
    text = own_docstring(function)
    named = set(re.findall(r"``(\w+)", text))
    for line in re.findall(r"^ {8}((?:\w+, )*\w+): ", text, re.MULTILINE):
        named.update(line.split(", "))
    assert [one for one in inspect.signature(function).parameters if one not in named] == []
    assert "Raises ``ConfigurationError``" in text


@pytest.mark.parametrize("name", ["server", "relay", "demo", "doctor", "arrow", "spark"])
def test_the_packages_names_too(name: str) -> None:
    package = importlib.import_module(f"replica.{name}")
    assert own_docstring(package)
    described = [one for one in vars(package).values() if inspect.isclass(one) or inspect.isroutine(one)]
    public = [one for one in described if one.__name__ in package.__all__]
    assert public
    for one in public:
        assert own_docstring(one)
        if inspect.isclass(one):
            assert [member for member in members(one) if not inspect.getdoc(getattr(one, member))] == []
