"""The README and CONTRIBUTING.md as far as they can be checked without a server: length, files, options, targets."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys

import pytest

import replica
from replica.cli import COMMANDS
from tests.support.places import ROOT

README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
BOTH = README + CONTRIBUTING


def test_it_is_short_and_shows_code_early() -> None:
    assert README.count("\n") <= 200
    assert README[: README.index("```python")].count("\n") < 40


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:tests|docker|replica|protocol)/[\w./]*)`", BOTH)))
)
def test_what_it_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`(?:replica\.)?([A-Z]\w+[a-z])(?:\(.*?\))?`", README)))
)
def test_names_are_public(name: str) -> None:
    assert name in replica.__all__ or name in ("Decimal", "None")


@pytest.mark.parametrize("option", sorted(set(re.findall(r"`(\w+)=", README))))
def test_options_are_those_of_connect(option: str) -> None:
    assert option in inspect.signature(replica.connect).parameters


def test_every_command_is_there() -> None:
    table = README[README.index("## The command line") : README.index("## The promises")]
    cells = "".join(line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z]+)[ `]", cells)) == {command.name for command in COMMANDS}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make\s([\w-]+)", BOTH))))
def test_make_targets_are_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_tree_names_every_folder() -> None:
    [tree] = re.findall(r"```\n(replica/ .*?)\n\n", README, re.DOTALL)
    root, named = "", set()
    for line in tree.splitlines():
        root = line[:11].strip() or root
        named |= {root + name for name in line[11:44].split()}
    packages = {
        path.parent.relative_to(ROOT)
        for top in ("replica", "protocol")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert named == {str(path) for path in packages if len(path.parts) > 1}


def test_the_demo_prints_what_it_shows() -> None:
    [block] = re.findall(r"```\n(2026-.*?)```", README, re.DOTALL)
    environment = {"PATH": os.environ["PATH"], "COLUMNS": "118"}
    command = [sys.executable, "-m", "replica", "demo"]
    output = subprocess.run(command, capture_output=True, check=True, env=environment, cwd=ROOT, timeout=60)
    printed = output.stdout.decode().splitlines()
    assert [line for line in block.splitlines() if line not in printed and line != "..."] == []
