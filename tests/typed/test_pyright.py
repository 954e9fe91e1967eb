"""pyright, where it is installed, passes the programs and finds each planted mistake; `make check` runs mypy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

FOLDER = Path(__file__).parent
PYRIGHT = Path(sys.executable).with_name("pyright")


@pytest.mark.thorough
@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed")
def test_pyright(tmp_path: Path) -> None:
    mistakes = FOLDER / "planted_mistakes.py"
    # Without the comments for mypy, which pyright would heed.
    planted = tmp_path / mistakes.name
    planted.write_text(mistakes.read_text().replace("# type: ignore", "# mistake"))
    settings = {"extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    shutil.copy(FOLDER / "user_programs.py", tmp_path)
    done = subprocess.run(
        [PYRIGHT, "--outputjson", "-p", tmp_path], capture_output=True, text=True, check=False
    )
    errors = [one for one in json.loads(done.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}
    lines = planted.read_text().splitlines()
    # A decorated handler's mistake is at its decorator.
    assert found == {(planted.name, number) for number, line in enumerate(lines, 1) if "# mistake" in line}
