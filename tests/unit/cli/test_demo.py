"""``mysql-replica demo`` on a terminal and in pipes; the commands that it proposes work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from replica import open_binlog
from replica.cli import COMMANDS, make_parser
from replica.cli import demo as demo_command
from replica.demo import recorded_log
from replica.statistics.collect import LogStatistics
from tests.support.places import ROOT
from tests.support.terminal import CTRL_C, SECONDS, on_terminal


def counted() -> LogStatistics:
    statistics = LogStatistics()
    with recorded_log() as path, open_binlog(path) as log:
        statistics.add_all(log)
    return statistics


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "replica", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "COLUMNS"} | environment,
    )


def test_a_session_on_a_terminal() -> None:
    with on_terminal("demo") as terminal:
        assert terminal.end() == 0
    assert terminal.widest() <= 80
    for operation, colour in (("insert", 32), ("update", 33), ("delete", 31), ("sql", 35)):
        assert f"  \x1b[1;{colour}m{operation}\x1b[0m " in terminal.text
    assert re.search(r"recorded on MySQL 9\.7\.\d", terminal.plain)
    assert re.search(r"registered as replica \d+", terminal.plain)
    text = terminal.plain
    assert text.index("CREATE TABLE shop.orders") < text.index("insert shop.orders") < text.index("Next:")
    statistics = counted()
    left = re.search(r"\.\.\. and (\d+) more transactions", text)
    assert left is not None
    heads = re.findall(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", text, re.MULTILINE)
    assert int(left[1]) + len(heads) == statistics.transactions
    expected = rf"{statistics.rows.total} row changes in {statistics.transactions} transactions"
    assert re.search(expected, text)
    for table in statistics.tables:
        assert re.search(rf"{table} +{table.inserts} +{table.updates} +{table.deletes}\r\n", text)


def test_all_of_it_in_a_pipe() -> None:
    done = run("--all")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "more transactions" not in done.stdout
    statistics = counted()
    for operation in ("insert", "update", "delete"):
        shown = len(re.findall(rf"^  {operation} shop\.", done.stdout, re.MULTILINE))
        assert shown == getattr(statistics.rows, f"{operation}s")


@pytest.mark.parametrize(
    "columns", ["40", *(pytest.param(columns, marks=pytest.mark.thorough) for columns in ("60", "120"))]
)
def test_it_fits_into_other_widths(columns: str) -> None:
    with on_terminal("demo", columns=int(columns)) as terminal:
        assert terminal.end() == 0
    rows = [line for line in terminal.lines() if re.match("20|  (insert|update|delete|sql) |         ", line)]
    assert max(map(len, rows)) <= int(columns)


def test_what_is_to_be_typed_next_works() -> None:
    done = run()
    proposed = [
        shlex.split(line.strip())
        for line in done.stdout.partition("Next:")[2].splitlines()
        if line.startswith("  ") and not line.startswith("  #")
    ]
    assert len(proposed) == len(demo_command.NEXT_STEPS)
    names = {command.name for command in COMMANDS}
    for words in proposed:
        arguments = words[words.index(next(word for word in words if word in names)) :]
        make_parser().parse_args(arguments)
        # The path of the log exists.
        for word in arguments:
            assert not word.endswith(".binlog") or Path(word).exists()
    assert sum(".binlog" in word for words in proposed for word in words) == 2


def test_the_program_is_called_as_it_can_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/somewhere/replica/__main__.py"])
    assert demo_command.own_command() == f"{Path(sys.executable).name} -m replica"
    program = tmp_path / "bin" / "mysql-replica"
    program.parent.mkdir()
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.chdir(tmp_path)
    assert demo_command.own_command() == "bin/mysql-replica"
    monkeypatch.setenv("PATH", str(program.parent))
    assert demo_command.own_command() == "mysql-replica"


def test_a_source_for_other_programs() -> None:
    with on_terminal("demo", "--serve", columns=120) as server:
        dsn = server.wait_for(r"tail (mysql://\S+) --from earliest\r\n")[1]
        server.wait_for(r'replica\.connect\("mysql://')
        with on_terminal("tail", dsn, "--from", "earliest", "--stop", "now") as terminal:
            assert terminal.end() == 0
        assert "insert shop.orders" in terminal.plain
        server.press(CTRL_C)
        assert server.end() == 0
    assert "Traceback" not in server.text
    with on_terminal("tail", dsn) as terminal:
        assert terminal.end() == 1


def test_the_reader_of_the_pipe_may_close_it() -> None:
    command = f"{shlex.quote(sys.executable)} -m replica demo --all | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout.startswith("Half an hour")
    assert done.stderr == ""


def test_make_demo_needs_the_package_alone() -> None:
    """The commands of `make demo` in a fresh clone. They are not run: that would take too long for a unit test."""
    done = subprocess.run(
        ["make", "--dry-run", "VENV=.no-such-venv", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install --quiet --editable .\n" in done.stdout
    assert ".no-such-venv/bin/mysql-replica demo" in done.stdout
    assert "docker" not in done.stdout
    assert "[test]" not in done.stdout
    for name in ("demo", "pipeline"):
        server = subprocess.run(
            ["make", "--dry-run", "VENV=.no-such-venv", name, "SERVER=mysql:9.7"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "docker/images/build.sh mysql:9.7" in server.stdout
        assert f"-m tests.tools.{name} mysql:9.7" in server.stdout
