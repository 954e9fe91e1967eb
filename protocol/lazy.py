"""Names of a package that are imported when somebody first asks for them, to keep the import of the package fast."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["importer"]


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package (PEP 562). ``homes`` maps each name to the module that has it."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return get
