"""Runs the unit tests on each Python that the project supports: `python -m tests.tools.pythons [VERSION ...]`.

A version that is installed (`python3.12` on PATH) gets a virtual environment in .venv/pythons. 3.14 is otherwise
taken from Debian sid, in a container of the image that docker/images/build.sh makes for MySQL 9.7. Versions that
cannot be had are skipped. The last line says which ones ran; the exit code is 1 if one failed or none ran.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.support.places import ROOT

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
IMAGE, IN_IMAGE = "mysql-replica-base:sid", "3.14"
_FOLDER = ROOT / ".venv" / "pythons"
_TESTS = ("tests/unit", "--quick", "--quiet", "-p", "no:cacheprovider", "-n", "auto", "--maxprocesses", "3")
# They have no wheels of their own; those made here fit each version.
_PURE = ("pyspark",)
_IN_CONTAINER = """
tar --extract
export DEBIAN_FRONTEND=noninteractive
apt-get -o Acquire::Check-Valid-Until=false -qq update
apt-get -qq install --no-install-recommends python{version} python{version}-venv make git >/dev/null
python{version} -m venv /venv
/venv/bin/pip install --quiet --no-index --find-links /wheels /wheels/*.whl
PATH=/venv/bin:$PATH python -m pytest {tests}
"""


class CannotBeHadError(Exception):
    """There is no such Python here."""


def run(version: str) -> None:
    """Raises ``subprocess.CalledProcessError`` if the tests fail, or what they need cannot be installed."""
    if _is_installed(version):
        _run_installed(version)
    elif version == IN_IMAGE and _has_image():
        _run_in_container(version)
    else:
        raise CannotBeHadError


def _is_installed(version: str) -> bool:
    # A shim of pyenv is on PATH for versions that are not switched on.
    program = shutil.which(f"python{version}")
    return program is not None and _succeeds(program, "-c", "")


def _has_image() -> bool:
    return shutil.which("docker") is not None and _succeeds("docker", "image", "inspect", IMAGE)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _run_installed(version: str) -> None:
    environment = _FOLDER / version
    _call(f"python{version}", "-m", "venv", str(environment))
    _call(str(environment / "bin/pip"), "install", "--quiet", "--editable", ".[test]")
    _call(str(environment / "bin/pytest"), *_TESTS)


def _run_in_container(version: str) -> None:
    wheels = _FOLDER / f"wheels-{version}"
    _download(wheels, version)
    sources = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    archive = ["tar", "--create", "--null", "--files-from=-"]
    content = subprocess.run(archive, cwd=ROOT, input=sources, capture_output=True, check=True).stdout
    command = ["docker", "run", "--rm", "--interactive", "--network=host", f"--volume={wheels}:/wheels:ro"]
    script = _IN_CONTAINER.format(version=version, tests=" ".join(_TESTS))
    command += ["--workdir=/source", IMAGE, "bash", "-euc", script]
    subprocess.run(command, input=content, check=True)


def _download(wheels: Path, version: str) -> None:
    """All packages of the tests, by this machine's pip and from its index: the container needs apt only."""
    pip = str(_FOLDER / "pip" / "bin" / "pip")
    if not Path(pip).exists():
        _call(sys.executable, "-m", "venv", str(_FOLDER / "pip"))
    shutil.rmtree(wheels, ignore_errors=True)
    needed = sorted(set(_requirements("test", version)))
    made = [text for text in needed if Requirement(text).name in _PURE]
    _call(pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), ".", *made)
    target = ("--python-version", version, "--only-binary=:all:", "--find-links", str(wheels))
    _call(pip, "download", "--quiet", "--dest", str(wheels), *target, *needed)


def _requirements(extra: str, version: str) -> Iterator[str]:
    """The project's requirements and those of an extra. pip would take markers for its own Python's."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for text in [*project["dependencies"], *project["optional-dependencies"][extra]]:
        requirement = Requirement(text)
        if requirement.name == project["name"]:
            for other in requirement.extras:
                yield from _requirements(other, version)
        elif requirement.marker is None or requirement.marker.evaluate({"python_version": version}):
            yield f"{requirement.name}{requirement.specifier}"


def _call(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def main(versions: list[str]) -> int:
    outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "skipped, as not installed": []}
    for version in versions or VERSIONS:
        print(f"Python {version}", flush=True)
        try:
            run(version)
        except CannotBeHadError:
            outcomes["skipped, as not installed"].append(version)
        except subprocess.CalledProcessError as error:
            print(error)
            outcomes["failed"].append(version)
        else:
            outcomes["passed"].append(version)
    print("; ".join(f"{outcome}: {', '.join(found) or 'none'}" for outcome, found in outcomes.items()))
    return 0 if outcomes["passed"] and not outcomes["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
