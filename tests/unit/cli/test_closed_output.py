"""Commands whose result goes nowhere, or that have nothing to read: they end with an error, as others do."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from replica.cli import main
from tests.support.log_builder import numbered_log

SAID = "mysql-replica: error: standard output: Bad file descriptor\n"


def run(arguments: str) -> tuple[int, str]:
    line = f"{shlex.quote(sys.executable)} -m replica {arguments}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        *((">&-", 1, SAID), (">&- 2>&-", 1, "")),
        pytest.param("2>&-", 0, "", marks=pytest.mark.thorough),
        pytest.param(">&- -o /dev/null", 0, "", marks=pytest.mark.thorough),
    ],
)
def test_a_process_without_output(tmp_path: Path, closed: str, code: int, said: str) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data)
    assert run(f"decode {shlex.quote(str(path))} {closed}") == (code, said)
    if "-o" not in closed:
        assert run(f"stats {shlex.quote(str(path))} {closed}") == (code, said)
    page = tmp_path / "page.html"
    assert run(f"stats --html {shlex.quote(str(page))} {shlex.quote(str(path))} >&-")[0] == 0
    assert page.stat().st_size


def test_a_full_disk_for_messages(tmp_path: Path) -> None:
    """The log of a cron job on a full disk: the work goes on, and ends with its own exit code."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data + b"torn")
    whole = subprocess.run([sys.executable, "-m", "replica", "decode", path], capture_output=True, check=True)
    assert b"incomplete event" in whole.stderr
    with open("/dev/full", "wb") as full:
        done = subprocess.run(whole.args, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (0, whole.stdout)
    assert run("decode nowhere 2>/dev/full") == (2, "")


@pytest.mark.parametrize("arguments", ["--help", "decode --help", "--version"])
def test_help_that_cannot_be_printed(arguments: str) -> None:
    """argparse passes over errors of its output: the exit code was 0. The version was a traceback."""
    assert run(f"{arguments} >&-") == (1, SAID)
    if Path("/dev/full").exists():
        full = "mysql-replica: error: standard output: No space left on device\n"
        assert run(f"{arguments} >/dev/full") == (1, full)


def test_messages_of_a_copy_may_go_nowhere(tmp_path: Path) -> None:
    """It goes to a folder: what is wrong with its source is told, not what is wrong with its output."""
    code, said = run(f"copy mysql://u:p@127.0.0.1:1 --to {shlex.quote(str(tmp_path / 'copy'))} >&-")
    assert code
    assert "standard output" not in said


@pytest.mark.parametrize(
    "command", ["decode -f text", "decode -f json", "decode -f sql", "stats", "stats -f json"]
)
@pytest.mark.parametrize("data", [b"", b"\xfebi", b"\xfebin"])
def test_an_empty_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: bytes,
    command: str,
) -> None:
    """As mysqlbinlog and mariadb-binlog: an error, unless the first four bytes are there."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(data)
    code = main([*command.split(), str(path)])
    assert code == (0 if len(data) == 4 else 1)
    assert ("the file is empty" in capsys.readouterr().err) == (len(data) < 4)
    with path.open() as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert main([*command.split(), "-"]) == code
