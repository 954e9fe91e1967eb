"""Builds the sdist and the wheel into dist/, checks what is in them, and says what is left to do by hand.

`make release` runs it. What it builds is what git knows: files that are not added are not in the archives.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

from tests.support.places import ROOT

DIST = ROOT / "dist"
PACKAGES = ("protocol", "replica")
# Files of the repository that no archive needs.
_LEFT_OUT = {".gitignore"}
_BUILD = """
import sys
from setuptools import build_meta
target = sys.argv[1]  # setuptools changes it
print(build_meta.build_sdist(target))
print(build_meta.build_wheel(target))
"""
_BY_HAND = """
Left to do by hand:
  1. `make check`, `make test-long`, `make test-pythons` and `make bench` on this commit.
  2. CHANGELOG.md: the version's date instead of "unreleased"; pyproject.toml: the version.
     If one of them was not there yet: commit, and `make release` again, since the archives hold both.
  3. git tag -s v{version}; push the tag.
  4. twine check dist/*; twine upload dist/*
  5. README.md: "Install" names the published package.
"""


class ReleaseError(Exception):
    """An archive lacks a file, or has one too many."""


def tracked_files() -> list[str]:
    """The files of the repository, as far as they are in the folder."""
    output = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in output.splitlines() if (ROOT / name).is_file()]


def build(target: Path, python: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel from a copy of the repository's files; ``python`` has setuptools 77 or later."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in tracked_files():
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy)
        done = subprocess.run(
            [python, "-c", _BUILD, target], cwd=folder, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise ReleaseError(done.stdout + done.stderr)
    found = done.stdout.split()
    [sdist] = [target / name for name in found if name.endswith(".tar.gz")]
    [wheel] = [target / name for name in found if name.endswith(".whl")]
    return sdist, wheel


def check_wheel(path: Path) -> None:
    """Raise ``ReleaseError`` unless the wheel has the packages' files, and nothing else."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
    _compare("wheel", names, {name for name in tracked_files() if name.startswith(PACKAGES)})
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        if name not in metadata:
            raise ReleaseError(f"the wheel has no {name}")


def check_sdist(path: Path) -> None:
    """Raise ``ReleaseError`` unless the sdist has all files of the repository: tests, benchmarks and images too."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    _compare("sdist", names - made, set(tracked_files()) - _LEFT_OUT)


def _compare(what: str, found: set[str], expected: set[str]) -> None:
    problems = [f"it lacks {name}" for name in sorted(expected - found)]
    problems += [f"it should not have {name}" for name in sorted(found - expected)]
    if problems:
        raise ReleaseError(f"the {what}: " + ", ".join(problems))


def builder(folder: Path) -> Path:
    """The Python of a new virtual environment that can build."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", "setuptools>=77"], check=True)
    return folder / "bin" / "python"


def main() -> int:
    """Build and check; the exit code is 1 if an archive is not as it should be."""
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        try:
            sdist, wheel = build(DIST, builder(Path(folder)))
            check_sdist(sdist)
            check_wheel(wheel)
        except ReleaseError as error:
            print(error, file=sys.stderr)
            return 1
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for path in (sdist, wheel):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e3:.0f} kB")
    print(_BY_HAND.format(version=version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
