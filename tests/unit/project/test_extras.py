"""Extras are optional: without any of them every module outside of their folders imports, and users get clear errors.

Each test runs in a new process whose import system refuses the packages of all extras.
"""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

import protocol
import replica
from protocol.constants import EventType
from tests.support.log_builder import LogBuilder
from tests.support.places import ROOT

#: ``compression`` has ``zstd`` from Python 3.14 on, in place of the backport.
REFUSED = ("pyspark", "py4j", "pyarrow", "numpy", "deltalake", "yaml", "backports", "compression")
#: Folders whose modules may import an extra's packages when they are imported.
FOLDERS_OF_EXTRAS = ("replica.arrow", "replica.spark", "replica.spool")
#: Modules within these folders that the command line imports for ``mysql-replica spark --help``.
MODULES_OF_COMMANDS = (
    *("replica.spark", "replica.spool", "replica.spark.jobs"),
    *("replica.spark.jobs.job_arguments", "replica.spark.jobs.spark_session", "replica.spark.jobs.table_job"),
    *("replica.spark.jobs.changelog", "replica.spark.jobs.mirror", "replica.spark.jobs.history"),
    "replica.spark.jobs.pipeline",
)

REFUSING = """
import sys
REFUSED = %r

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

# A .pth file of the environment may have imported some of them already.
for name in [name for name in sys.modules if name.partition(".")[0] in REFUSED]:
    del sys.modules[name]
sys.meta_path.insert(0, Refuse())
"""
IMPORTING = """
import importlib
for name in %r:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error}")
"""


def without_extras(script: str, refused: Sequence[str] = REFUSED) -> subprocess.CompletedProcess[str]:
    whole = REFUSING % (tuple(refused),) + script
    return subprocess.run(
        [sys.executable, "-c", whole], cwd=ROOT, capture_output=True, check=False, text=True
    )


def modules_below(package: ModuleType) -> list[str]:
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None)
    return [module.name for module in found]


def plain_modules() -> list[str]:
    """The product modules outside of the folders of extras, and those in them that commands import."""
    names = ["protocol", *modules_below(protocol), "replica", *modules_below(replica)]
    return [
        name
        for name in names
        if name in MODULES_OF_COMMANDS
        or (
            not name.endswith("__main__")
            and not any(name == home or name.startswith(f"{home}.") for home in FOLDERS_OF_EXTRAS)
        )
    ]


def test_modules_import_without_the_extras() -> None:
    names = plain_modules()
    assert len(names) > 100
    assert set(names) >= {"replica.files.binlog_file", "replica.stream", "replica.cli", *MODULES_OF_COMMANDS}
    done = without_extras(IMPORTING % (names,))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize("package", ["replica.arrow", "replica.spool"])
def test_only_spark_needs_pyspark(package: str) -> None:
    names = modules_below(importlib.import_module(package))
    assert len(names) > 5
    done = without_extras(IMPORTING % (names,), ("pyspark", "py4j", "deltalake", "yaml", "backports"))
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.parametrize(
    ("script", "extra"),
    [
        ("import replica.spark; replica.spark.register(None)", "spark"),
        ("from replica.spark import BinlogDataSource", "spark"),
        ("import replica; replica.open_binlog(PATH).arrow('s.t')", "arrow"),
        ("import replica.arrow", "arrow"),
        ("import replica; list(replica.open_binlog(PATH))", "zstd"),
        ("from protocol.conversation.compressed_packets import create_codec; create_codec('zstd')", "zstd"),
        ("from replica.spark.jobs import changelog; changelog.load(None, {'path': PATH}, TARGET)", "spark"),
        ("from replica.spark.jobs import mirror; mirror.load(None, {'path': PATH}, TARGET)", "delta"),
        ("from replica.spark.jobs import history; history.start(None, {'user': 'u'}, TARGET)", "delta"),
        ("from replica.spark.jobs.spark_session import require_spark; require_spark()", "spark"),
        ("from replica.spark.jobs.spark_session import require_delta; require_delta()", "delta"),
    ],
)
def test_an_entry_point_names_its_extra(tmp_path: Path, script: str, extra: str) -> None:
    done = without_extras(f"""
PATH, TARGET = {str(compressed_log(tmp_path))!r}, {str(tmp_path / "target")!r}
from protocol.errors import MissingExtraError
try:
    {script}
except MissingExtraError as error:
    print(error.extra, error)
""")
    assert done.stdout.startswith(f"{extra} "), done.stderr
    assert f"needs the extra [{extra}]: pip install 'mysql-replica[{extra}]'" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["decode", "--format", "yaml", "PATH"], "yaml"),
        (["decode", "PATH"], "zstd"),
        (["spark", "changelog", "PATH", "TARGET"], "spark"),
        (["spark", "changelog", "PATH", "TARGET", "--format", "delta"], "delta"),
        (["spark", "mirror", "PATH", "--target", "TARGET"], "spark"),
        (["spark", "history", "PATH", "--target", "TARGET"], "spark"),
        (["spark", "progress", "TARGET"], "delta"),
    ],
)
def test_a_command_names_its_extra_in_one_line(tmp_path: Path, arguments: list[str], extra: str) -> None:
    places = {"PATH": str(compressed_log(tmp_path)), "TARGET": str(tmp_path / "target")}
    words = [places.get(word, word) for word in arguments]
    done = without_extras(f"from replica.cli import main; raise SystemExit(main({words!r}))")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("mysql-replica: error: ")
    assert done.stderr.endswith(f"needs the extra [{extra}]: pip install 'mysql-replica[{extra}]'\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("words", [["--help"], ["spark", "--help"], ["spark", "mirror", "--help"]])
def test_help_needs_no_extra(words: list[str]) -> None:
    done = without_extras(f"from replica.cli import main; raise SystemExit(main({words!r}))")
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: mysql-replica" in done.stdout


def compressed_log(folder: Path) -> Path:
    """A binlog file with a transaction that says it is compressed with zstd; without zstd nobody can look."""
    log = LogBuilder()
    # The fields compression type 0 (zstd) and payload size, then the end of the fields.
    log.add(EventType.TRANSACTION_PAYLOAD, b"\2\1\0" + b"\1\1\4" + b"\0" + b"zstd")
    path = folder / "binlog.000001"
    path.write_bytes(log.data)
    return path
