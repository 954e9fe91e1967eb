"""``mysql-replica completion``: the three shells themselves complete the command line with its scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from replica.cli import COMMANDS, main

PROGRAM = "mysql-replica"


def script(shell: str, capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    assert main(["completion", shell]) == 0
    return capsysbinary.readouterr().out.decode()


def completed_in_bash(text: str, words: list[str], folder: Path) -> list[str]:
    """What Bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    call = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _mysql_replica; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{text}\n{call}"], capture_output=True, text=True, check=True, cwd=folder
    )
    assert done.stderr == ""
    return sorted(done.stdout.split("\n")[:-1])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ta"], ["tail"]),
        (["--v"], ["--version"]),
        (["tail", "--for"], ["--format"]),
        (["tail", "--format", ""], ["json", "sql", "text", "yaml"]),
        (["decode", "-f", "y"], ["yaml"]),
        (["decode", "b"], ["binlog.000001", "binlog.000002"]),
        (["decode", "--schema", "my"], ["my schema.json"]),
        (["tail", "--tables", "b"], [""]),
        (["tail", "mysql"], [""]),
        (["spark", "mi"], ["mirror"]),
        (["completion", ""], ["bash", "fish", "zsh"]),
    ],
)
def test_bash(
    words: list[str], expected: list[str], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("binlog.000001", "binlog.000002", "my schema.json"):
        (tmp_path / name).touch()
    assert completed_in_bash(script("bash", capsysbinary), [PROGRAM, *words], tmp_path) == expected


def test_every_command_is_offered(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    found = completed_in_bash(script("bash", capsysbinary), [PROGRAM, ""], tmp_path)
    assert set(found) == {"--help", "--version", *(command.name for command in COMMANDS)}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_its_script(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    path = tmp_path / "completion"
    path.write_text(script("zsh", capsysbinary))
    test = f"autoload -Uz compinit; compinit -D; source {path}; print -r -- ${{_comps[{PROGRAM}]}}"
    done = subprocess.run(["zsh", "-f", "-c", test], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_mysql_replica\n", "")
    assert "'*--format[output format]:value:(text json yaml sql)'" in path.read_text()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ta", ["tail"]),
        ("tail --for", ["--format"]),
        ("tail --format ", ["json", "sql", "text", "yaml"]),
        ("decode bin", ["binlog.000001"]),
        ("tail bin", []),
        ("spark mi", ["mirror"]),
    ],
)
def test_fish(
    line: str, expected: list[str], tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "binlog.000001").touch()
    path = tmp_path / "completion"
    path.write_text(script("fish", capsysbinary))
    test = f"source {path}; complete -C '{PROGRAM} {line}'"
    home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        ["fish", "-N", "-c", test], capture_output=True, text=True, check=True, cwd=tmp_path, env=home
    )
    assert sorted(one.partition("\t")[0] for one in done.stdout.splitlines()) == expected


def test_a_shell_that_is_not_known() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["completion", "csh"])
    assert caught.value.code == 2


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert re.fullmatch(r"mysql-replica \d+\.\d+\.\d+, Python 3\.\d+\.\d+\S*\n", capsys.readouterr().out)
