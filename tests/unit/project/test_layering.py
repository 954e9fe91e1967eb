"""The rules of the house, read from the source: the order of the folders, which way imports run, names, lengths.

``FOLDERS`` is the one place where the order of the folders is written down. A new folder is put into it; a new module
needs no entry.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.places import ROOT

#: From the top down. A module imports from its own folder and from folders below it. Folders of one line do not
#: import each other.
FOLDERS: tuple[tuple[str, ...], ...] = (
    ("replica.sync",),
    ("replica",),
    ("replica.cli",),
    ("replica.spark.jobs",),
    ("replica.spark",),
    ("replica.demo", "replica.relay", "replica.doctor", "replica.export"),
    ("replica.stream",),
    ("replica.snapshot",),
    ("replica.spool",),
    ("replica.server",),
    ("replica.render",),
    ("replica.files",),
    ("replica.schemas",),
    ("replica.source",),
    ("replica.statistics",),
    ("replica.mysqlbinlog",),
    ("replica.arrow",),
    ("replica.transactions",),
    ("replica.config",),
    ("replica.sql", "replica.workers"),
    ("protocol.conversation", "protocol.binlog"),
    ("protocol.rows",),
    ("protocol.values",),
    ("protocol",),
)
HEIGHTS = {folder: -floor for floor, folders in enumerate(FOLDERS) for folder in folders}

#: What the library knows of the log, it knows from bytes: these never import the client/server protocol.
KNOW_NO_CONVERSATION = ("protocol.binlog", "protocol.rows", "protocol.values")
NOT_IN_PROTOCOL = {"asyncio", "socket", "ssl", "pyspark", "replica"}
RUNTIME_DEPENDENCIES = {"cryptography"}
#: Import name of an extra's package -> the folders that can only be imported with the extra installed.
EXTRAS: dict[str, tuple[str, ...]] = {
    "backports": (),
    "compression": (),  # the backport's successor, in the standard library from Python 3.14 on
    "yaml": (),
    "numpy": ("replica.arrow", "replica.spool", "replica.spark"),
    "pyarrow": ("replica.arrow", "replica.spool", "replica.spark"),
    "pyspark": ("replica.spark",),
    "deltalake": ("replica.spark",),
}
#: Base names that several product modules have on purpose, and why.
SHARED_NAMES: dict[str, str] = {"__init__": "what a package opens with"}
#: Data classes that are no ``@record``, and why.
NO_RECORDS: dict[str, str] = {
    "replica.config.reconnect.ReconnectPolicy": "users make subclasses of it that have attributes: no slots",
    "replica.spark.jobs.partitioned_files.WrittenFiles": "its base, WriterCommitMessage of PySpark, has no slots",
    "replica.spark.jobs.merge_tasks._Message": "its base, WriterCommitMessage of PySpark, has no slots",
}
MAX_LINES = 500
TEST_MODULE_IMPORT = re.compile(
    r"\bfrom[ ][\w.]*\btest_\w+[ ]import\b | \bfrom[ ][\w.]+[ ]import[ ]test_\w+ | \bimport[ ][\w.]*\btest_\w+",
    re.VERBOSE,
)
#: At most so many modules lie directly in these folders: everything else has a room.
MAX_ROOT_MODULES = {"replica": 3, "protocol": 12}


@dataclass(frozen=True)
class Module:
    name: str
    source: str
    is_package: bool = False

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def folder(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]


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


@functools.cache
def imports(module: Module) -> tuple[Import, ...]:
    """What a module imports, by absolute name; ``from x import y`` is x.y where that is a module."""
    return tuple(
        Import(target, when_loaded)
        for node, when_loaded in _import_statements(module.tree, when_loaded=True)
        for target in dict.fromkeys(_targets(module, node))
    )


def _import_statements(
    node: ast.AST, *, when_loaded: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, when_loaded
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _import_statements(child, when_loaded=when_loaded and not _runs_later(child))


def _runs_later(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _targets(module: Module, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = module.name.split(".")
        above = parts[: len(parts) + module.is_package - node.level]
        base = ".".join([*above, base]).rstrip(".")
    names = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in MODULES else base for name in names]


def _folder(name: str) -> str:
    """The folder of an imported module or package of ours; '' where nothing of ours has that name."""
    return MODULES[name].folder if name in MODULES else ""


def wrong_imports(module: Module) -> list[str]:
    """One line for each import that a rule forbids."""
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
        return _direction_complaint(module.folder, _folder(imported.target))
    if top in EXTRAS:
        allowed = not imported.when_loaded or any(_within(module.name, home) for home in EXTRAS[top])
        return None if allowed else "an extra is imported in the function that needs it"
    if top not in sys.stdlib_module_names and top not in RUNTIME_DEPENDENCIES:
        return "neither ours, nor of the standard library, nor a dependency"
    return None


def _direction_complaint(folder: str, target: str) -> str | None:
    if target not in HEIGHTS:
        return "no module of ours has that name, or its folder is not listed"
    if folder in KNOW_NO_CONVERSATION and target == "protocol.conversation":
        return "what reads the binary log knows no conversation"
    if folder == target or HEIGHTS[target] < HEIGHTS[folder]:
        return None
    return "imports run downward"


def cycles(modules: Iterable[Module]) -> list[str]:
    """The names of modules that import themselves by way of others, one line for each circle."""
    below = {module.name: {imported.target for imported in imports(module)} for module in modules}
    done: set[str] = set()
    found: list[str] = []

    def visit(name: str, way: list[str]) -> None:
        if name in way:
            found.append(" -> ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for target in sorted(below[name] & below.keys()):
                visit(target, [*way, name])
            done.add(name)

    for name in below:
        visit(name, [])
    return found


def repeated_names(modules: Iterable[Module]) -> list[str]:
    names = Counter("__init__" if module.is_package else module.name.rpartition(".")[2] for module in modules)
    return sorted(name for name, times in names.items() if times > 1 and name not in SHARED_NAMES)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_every_folder_is_listed() -> None:
    assert {module.folder for module in MODULES.values()} == HEIGHTS.keys()


def test_imports_run_one_way() -> None:
    assert [line for module in MODULES.values() for line in wrong_imports(module)] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycles(MODULES.values()) == []


def test_a_base_name_belongs_to_one_module() -> None:
    assert repeated_names(MODULES.values()) == []


def test_the_roots_hold_little() -> None:
    for root, limit in MAX_ROOT_MODULES.items():
        assert len(list((ROOT / root).glob("*.py"))) <= limit


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol.wire", "import asyncio"),
        ("protocol.wire", "from socket import socket"),
        ("protocol.wire", "def f():\n    import ssl"),
        ("protocol.wire", "from pyspark.sql import Row"),
        ("protocol.wire", "import replica"),
        ("protocol.wire", "from .conversation.messages import Ok"),
        ("protocol.wire", "if TYPE_CHECKING:\n    from .conversation.messages import Ok"),
        ("protocol.wire", "from .nowhere import Ok"),
        ("protocol.conversation.login", "from ..binlog.event import Event"),
        ("protocol.binlog.decoder", "from ..conversation.messages import Ok"),
        ("protocol.binlog.decoder", "from ..conversation import messages"),
        ("protocol.rows.table", "from protocol.conversation import messages"),
        ("protocol.values.readers", "def f():\n    from ..conversation.messages import Ok"),
        ("protocol.values.readers", "from ..rows.table import Table"),
        ("protocol.binlog.decoder", "from replica.config.options import Options"),
        ("replica.source.session", "from ..stream import BinlogStream"),
        ("replica.source.session", "from .. import BinlogStream"),
        ("replica.source.session", "import pyspark"),
        ("replica.source.session", "try:\n    import yaml\nexcept ImportError:\n    pass"),
        ("replica.source.session", "import requests"),
        ("replica.source.session", "def f():\n    import requests"),
        ("replica.spark.options", "from .jobs.mirror import main"),
        ("replica.render.sql_lines", "from ..server.answers import Answers"),
        ("replica.render.sql_lines", "import pyarrow"),
        ("replica.arrow.schema", "from ..files.binlog_file import BinlogFile"),
        ("replica.doctor.checks", "from ..relay.folder import Folder"),
        ("replica.server.answers", "from ..cli import main"),
    ],
)
def test_a_wrong_import_is_seen(name: str, source: str) -> None:
    assert len(wrong_imports(Module(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("protocol.conversation.login", "import hashlib\nfrom cryptography.hazmat.primitives import hashes"),
        ("protocol.gtid", "from .wire import Reader\nfrom . import errors"),
        ("protocol.binlog.decoder", "from ..wire import Reader\nfrom ..rows.table import Table"),
        ("protocol.binlog.decoder", "def f():\n    from backports import zstd"),
        ("replica.source.session", "import asyncio, ssl\nfrom protocol.conversation.messages import Ok"),
        ("replica.cli.main", "from ..render.sql_lines import lines\nfrom .paint import Paint"),
        ("replica.spark.data_source", "import pyspark"),
    ],
)
def test_a_right_import_is_let_through(name: str, source: str) -> None:
    assert wrong_imports(Module(name, source)) == []


def test_a_cycle_is_seen() -> None:
    planted = [
        Module("protocol.wire", "from .gtid import Gtid"),
        Module("protocol.gtid", "from .wire import Reader"),
    ]
    assert cycles(planted) == ["protocol.wire -> protocol.gtid -> protocol.wire"]


def test_a_cycle_through_a_package_is_seen() -> None:
    planted = [
        Module("replica.stream", "from .delivery import Delivery", is_package=True),
        Module("replica.stream.delivery", "from . import BinlogStream"),
    ]
    assert len(cycles(planted)) == 1


def test_a_base_name_in_two_folders_is_seen() -> None:
    planted = [Module("replica.spark.options", ""), Module("replica.config.options", "")]
    assert repeated_names(planted) == ["options"]


def test_modules_are_short_and_say_what_they_are() -> None:
    for path in sorted(
        path for top in ("protocol", "replica", "tests") for path in (ROOT / top).rglob("*.py")
    ):
        source = path.read_text()
        assert source.count("\n") <= MAX_LINES, path
        empty = path.is_relative_to(ROOT / "tests") and not source.strip()
        assert empty or source.startswith('"""'), path


def plain_data_classes(module: Module) -> list[str]:
    """The classes of a module that the standard library's ``dataclass`` decorates."""
    if "dataclass" not in module.source:
        return []
    return [
        f"{module.name}.{node.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def test_data_classes_are_records() -> None:
    """``protocol.records`` says what that saves."""
    found = [name for module in MODULES.values() for name in plain_data_classes(module)]
    assert sorted(found) == sorted(NO_RECORDS)


def test_fields_and_copies_of_records_need_no_dataclasses() -> None:
    """To import ``dataclasses`` takes as long as 40 modules of ours."""
    given = re.compile(r"from dataclasses import .*\b(field|replace)\b|dataclasses\.(field|replace)\(")
    found = [module.name for module in MODULES.values() if given.search(module.source)]
    assert found == ["protocol.records"]


def test_a_plain_data_class_is_seen() -> None:
    decorators = ("@dataclass", "@dataclasses.dataclass(slots=True)", "@record(slots=True)")
    source = "\n".join(f"{decorator}\nclass A{number}: ..." for number, decorator in enumerate(decorators))
    assert plain_data_classes(Module("protocol.wire", source)) == ["protocol.wire.A0", "protocol.wire.A1"]


def test_only_the_command_line_prints() -> None:
    # Most modules need no second look.
    for module in (module for module in MODULES.values() if "print(" in module.source):
        calls = [node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}
        assert "print" not in called or _within(module.name, "replica.cli"), module.name


def imported_test_modules(source: str) -> list[str]:
    """The imports of test modules, including those in programs that a test has as a text."""
    return [found.group() for found in TEST_MODULE_IMPORT.finditer(source)]


def test_no_test_module_is_imported_by_another_module() -> None:
    """What several test modules need is in a ``support`` package."""
    paths = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
    assert {str(path): found for path in paths if (found := imported_test_modules(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tests.unit.sql.test_ddl import CASES",
        "from .test_ddl import CASES",
        "from . import test_ddl as cases",
        "import tests.unit.sql.test_ddl",
        "program = 'from tests.unit.sql.test_ddl import CASES'",
    ],
)
def test_an_imported_test_module_is_seen(source: str) -> None:
    assert len(imported_test_modules(source)) == 1
