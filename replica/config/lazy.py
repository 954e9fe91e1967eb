"""Lazy imports: a package's public names are imported at first use, so that importing the package stays fast."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["importer"]


def importer(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The ``__getattr__`` of a package (PEP 562). ``homes`` maps each name to the module that has it."""

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
