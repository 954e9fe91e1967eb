"""The built archives: what is in them, and that pip installs each of them where nothing else is."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import venv
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.tools.release import ReleaseError, build, builder, check_sdist, check_wheel

_PYTHONS = ("python3.12", "python3.13", "python3.14")
_PROGRAM = """
import replica
from replica.demo import recorded_log
with recorded_log() as path, replica.open_binlog(path) as log:
    print(sum(len(event.rows) for event in log if isinstance(event, replica.RowsEvent)))
"""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    folder = tmp_path_factory.mktemp("release")
    return build(folder / "dist", builder(folder / "builder"))


def run(*command: str | Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_installed(python: Path, archive: Path, folder: Path) -> None:
    """Install the archive with what it needs, and use it."""
    run(python, "-m", "pip", "install", "--quiet", archive, folder=folder)
    assert run(python, "-c", _PROGRAM, folder=folder) == "405\n"
    command = python.with_name("mysql-replica")
    assert run(command, "--version", folder=folder).startswith("mysql-replica 0.")
    found = run(python, "-m", "pip", "list", "--format=freeze", folder=folder).splitlines()
    names = {line.partition("==")[0] for line in found}
    assert names <= {"mysql-replica", "cryptography", "cffi", "pycparser", "pip", "setuptools", "wheel"}
    has_tests = "import importlib.util as u; print(u.find_spec('tests'))"
    assert run(python, "-c", has_tests, folder=folder) == "None\n"


def test_contents(archives: tuple[Path, Path]) -> None:
    sdist, wheel = archives
    check_sdist(sdist)
    check_wheel(wheel)


@pytest.mark.parametrize(
    "kind", [pytest.param(0, marks=pytest.mark.long, id="sdist"), pytest.param(1, id="wheel")]
)
def test_it_installs_into_a_clean_environment(archives: tuple[Path, Path], kind: int, tmp_path: Path) -> None:
    venv.create(tmp_path / "clean", with_pip=True)
    check_installed(tmp_path / "clean" / "bin" / "python", archives[kind], tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", _PYTHONS)
def test_it_installs_on_other_pythons(archives: tuple[Path, Path], name: str, tmp_path: Path) -> None:
    program = shutil.which(name)
    if program is None or subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} is not installed")
    run(program, "-m", "venv", tmp_path / "clean", folder=tmp_path)
    check_installed(tmp_path / "clean" / "bin" / "python", archives[1], tmp_path)


def test_a_file_that_is_missing_or_too_much_is_noticed(archives: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(archives[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    (folder / "tests" / "conftest.py").unlink()
    (folder / "secret.txt").touch()
    broken = tmp_path / "broken.tar.gz"
    with tarfile.open(broken, "w:gz") as archive:
        archive.add(folder, folder.name)
    with pytest.raises(ReleaseError, match=r"lacks tests/conftest.py, it should not have secret.txt"):
        check_sdist(broken)


def test_the_readme_says_how_to_install_from_a_checkout() -> None:
    assert "`pip install .`" in (ROOT / "README.md").read_text()
