"""The house rules, read from the source: which way imports run, what a module opens with, how long it is.

The lists below are the one place where a module's height in the house is written down; a new module is put
into one of them. A module imports only what stands before it in its own list, and the lists below its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

GROUND = ("records", "errors", "constants", "charset_tables", "charset", "wire", "zstd", "gtid", "position")
CONVERSATION = (
    "packets",
    "compression",
    "ed25519",
    "auth",
    "verification",
    "messages",
    "login",
    "refusals",
    "results",
    "commands",
    "query_attributes",
    "connection",
    "acceptor",
)
BINLOG = (
    "column",
    "table",
    "description",
    "values",
    "expressions",
    "compression",
    "jsonb",
    "jsonb_shapes",
    "jsonb_decoder",
    "jsonb_text",
    "jsonb_diff",
    "cells",
    "rowpatterns",
    "rowruns",
    "rowwriter",
    "rowcode",
    "event",
    "events",
    "rows",
    "serialization",
    "statements",
    "groups",
    "mariadb",
    "status",
    "bodies",
    "frequent",
    "checksum",
    "decoder",
    "keys",
    "encryption",
    "file",
)
REPLICA = (
    "selection",
    "row_count",
    "checkpoint",
    "reconnect",
    "status",
    "tls",
    "option_file",
    "options",
    "transport",
    "hosts",
    "session",
    "source",
    "filters",
    "statements",
    "schema",
    "progress",
    "stop_point",
    "scan",
    "start",
    "stop",
    "callbacks",
    "resume",
    "grouping",
    "transactions",
    "statistics_records",
    "statistics",
    "dump",
    "semi_sync",
    "opening",
    "upkeep",
    "delivery",
    "stream",
    "log_files",
    "log_range",
    "log_events",
    "arrow",
    "file",
    "server",
    "relay",
    "demo",
    "doctor",
    "render",
    "spark",
    "cli",
    "__main__",
)

# List -> the package it lies in, its modules from low to high, the lists it stands on.
# The last module of a list is the package itself, whose public names come from all the others.
LISTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "ground": ("protocol", GROUND, ()),
    "conversation": ("protocol", (*CONVERSATION, ""), ("ground",)),
    "binlog": ("protocol.binlog", (*BINLOG, ""), ("ground",)),
    "replica": ("replica", (*REPLICA, ""), ("ground", "conversation", "binlog")),
}
PLACES = {
    f"{package}.{name}".rstrip("."): (group, height)
    for group, (package, names, _) in LISTS.items()
    for height, name in enumerate(names)
}

NOT_IN_PROTOCOL = {"asyncio", "socket", "ssl", "pyspark", "replica"}
RUNTIME_DEPENDENCIES = {"cryptography"}
# Import name of an extra's package -> the modules that only who has the extra can import at all.
EXTRAS: dict[str, tuple[str, ...]] = {
    "backports": (),
    # The backport's successor, in the standard library from Python 3.14 on.
    "compression": (),
    "yaml": (),
    "rich": ("replica.cli",),
    "numpy": ("replica.arrow", "replica.spark"),
    "pyarrow": ("replica.arrow", "replica.spark"),
    "pyspark": ("replica.spark",),
    "deltalake": ("replica.spark",),
}
MAX_LINES = 500


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False


@dataclass(frozen=True)
class Import:
    target: str
    when_loaded: bool


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _modules() -> dict[str, Module]:
    paths = [path for package in ("protocol", "replica") for path in sorted((ROOT / package).rglob("*.py"))]
    return {_name(path): Module(_name(path), path.read_text(), path.stem == "__init__") for path in paths}


MODULES = _modules()


def imports(module: Module) -> Iterator[Import]:
    """What a module imports, by absolute name; ``from x import y`` is x.y where that is a module."""
    tree = ast.parse(module.source)
    later = {id(node) for outer in ast.walk(tree) if _runs_later(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        for target in dict.fromkeys(_targets(module, node)):
            yield Import(target, id(node) not in later)


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _targets(module: Module, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        above = parts[: len(parts) + module.is_package - node.level]
        base = ".".join([*above, base]).rstrip(".")
    names = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in MODULES else base for name in names]


def place(name: str) -> tuple[str, int] | None:
    """List and height of a module of ours; a module of a package in a list stands where the package does."""
    parts = name.split(".")
    inner = PLACES.get(".".join(parts[:2])) if parts[0] == "replica" else None
    return inner or PLACES.get(name)


def wrong_imports(module: Module) -> list[str]:
    """One line for each import that a house rule forbids."""
    return [
        f"{module.name} imports {imported.target}: {complaint}"
        for imported in imports(module)
        if (complaint := _complaint(module, imported))
    ]


def _complaint(module: Module, imported: Import) -> str | None:
    top = imported.target.partition(".")[0]
    if module.name.partition(".")[0] == "protocol" and top in NOT_IN_PROTOCOL:
        return "protocol knows bytes only"
    if top in ("protocol", "replica"):
        return _direction_complaint(module.name, imported.target)
    if top in EXTRAS:
        allowed = not imported.when_loaded or any(_within(module.name, home) for home in EXTRAS[top])
        return None if allowed else "an extra is imported in the function that needs it"
    if top not in sys.stdlib_module_names and top not in RUNTIME_DEPENDENCIES:
        return "neither ours, nor of the standard library, nor a dependency"
    return None


def _direction_complaint(name: str, target: str) -> str | None:
    mine, others = place(name), place(target)
    if mine is None or others is None:
        return "one of them stands in no list"
    if mine[0] == others[0]:
        same_package = mine == others and name.split(".")[:2] == target.split(".")[:2]
        return None if others[1] < mine[1] or same_package else "imports run downward within a list"
    return None if others[0] in LISTS[mine[0]][2] else f"{mine[0]} does not stand on {others[0]}"


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


@pytest.mark.parametrize("name", MODULES)
def test_every_module_stands_in_a_list(name: str) -> None:
    assert place(name) is not None


@pytest.mark.parametrize("name", MODULES)
def test_imports_run_one_way(name: str) -> None:
    assert wrong_imports(MODULES[name]) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol.wire", "import asyncio"),
        ("protocol.wire", "from socket import socket"),
        ("protocol.wire", "def f():\n    import ssl"),
        ("protocol.wire", "from pyspark.sql import Row"),
        ("protocol.wire", "import replica"),
        ("protocol.wire", "from .gtid import Gtid"),
        ("protocol.wire", "from . import gtid"),
        ("protocol.wire", "from protocol.gtid import Gtid"),
        ("protocol.wire", "if TYPE_CHECKING:\n    from .gtid import Gtid"),
        ("protocol.wire", "from .messages import Ok"),
        ("protocol.wire", "from .nowhere import Ok"),
        ("protocol.errors", "from . import __path__"),
        ("protocol.connection", "from .binlog.values import read_decimal"),
        ("protocol.binlog.table", "from ..messages import Ok"),
        ("protocol.binlog.table", "from .. import connection"),
        ("protocol.binlog.table", "from .values import read_decimal"),
        ("protocol.binlog.decoder", "from replica.options import Options"),
        ("replica.session", "from .stream import BinlogStream"),
        ("replica.session", "from . import BinlogStream"),
        ("replica.session", "import pyspark"),
        ("replica.session", "try:\n    import yaml\nexcept ImportError:\n    pass"),
        ("replica.render.text", "import rich"),
        ("replica.render.text", "from ..cli.main import main"),
        ("replica.session", "import requests"),
        ("replica.session", "def f():\n    import requests"),
    ],
)
def test_a_wrong_import_is_seen(name: str, source: str) -> None:
    assert len(wrong_imports(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol.auth", "import hashlib\nfrom cryptography.hazmat.primitives import hashes"),
        ("protocol.gtid", "from .wire import Reader\nfrom . import errors"),
        ("protocol.binlog.decoder", "from ..wire import Reader\nfrom .values import read_decimal"),
        ("protocol.binlog.decoder", "def f():\n    from backports import zstd"),
        ("replica.session", "import asyncio, ssl\nfrom protocol.connection import Connection"),
        ("replica.cli.main", "import rich\nfrom ..render.text import lines\nfrom .options import Options"),
        ("replica.spark.source", "import pyspark"),
    ],
)
def test_a_right_import_is_let_through(name: str, source: str) -> None:
    assert wrong_imports(Module(name, source)) == []


def _python_files() -> list[str]:
    paths = [path for top in ("protocol", "replica", "tests") for path in (ROOT / top).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in paths)


@pytest.mark.parametrize("path", _python_files())
def test_a_module_is_short_and_says_what_it_is(path: str) -> None:
    source = (ROOT / path).read_text()
    assert source.count("\n") <= MAX_LINES
    empty = path.startswith("tests/") and not source.strip()
    assert empty or ast.get_docstring(ast.parse(source))


@pytest.mark.parametrize("name", [name for name in MODULES if not _within(name, "replica.cli")])
def test_only_the_command_line_prints(name: str) -> None:
    calls = [node.func for node in ast.walk(ast.parse(MODULES[name].source)) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    assert "print" not in called
