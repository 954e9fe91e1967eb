"""Names and statements of a log cannot command a terminal, or a reader of the server's log; pipes get every byte."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from protocol.errors import AuthenticationError
from replica.cli import copy_tables, main
from replica.cli.console import Console
from replica.source.session import Session
from tests.support.log_builder import LogBuilder
from tests.support.served import options_for, serving, write_mysql_files
from tests.support.terminal import on_terminal

EVIL = "\x1b]0;owned\x07\x9b31m\u202e"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    log = LogBuilder()
    log.statement(f"CREATE TABLE `{EVIL}` (a INT) -- é")
    path = tmp_path / "statement.000001"
    path.write_bytes(log.data)
    log.transaction([1], name=EVIL)
    path.with_name("bin.000001").write_bytes(log.data)
    return path.with_name("bin.000001")


@pytest.mark.parametrize(
    "arguments",
    [
        *(("-f", "text"), ("-f", "json"), ("--events",)),
        *(
            pytest.param(arguments, marks=pytest.mark.thorough)
            for arguments in (("-f", "yaml"), ("-f", "sql"), ("--hexdump",))
        ),
    ],
)
def test_a_terminal_gets_no_control_characters(log: Path, arguments: tuple[str, ...]) -> None:
    if "sql" in arguments:
        # SQL needs names of columns, which this log lacks.
        log = log.with_name("statement.000001")
    with on_terminal("decode", *arguments, str(log)) as terminal:
        assert terminal.end() == 0
        text = terminal.text.replace("\r\n", "\n")
        assert "owned" in text
        assert not set(text) & set("\x1b\x07\x9b\u202e\x00")
    piped = subprocess.run(
        [sys.executable, "-m", "replica", "decode", *arguments, str(log)], capture_output=True, check=True
    )
    if arguments in (("-f", "text"), ("-f", "sql")):
        assert EVIL.encode() in piped.stdout
        assert "é".encode() in piped.stdout


class FakeTerminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


def test_json_of_a_command_gets_no_control_characters_either(log: Path) -> None:
    """JSON escapes none of those above U+007E, such as U+009B, which begins a command as ESC [ does."""
    with on_terminal("stats", "-f", "json", str(log)) as terminal:
        assert terminal.end() == 0
        assert "owned" in terminal.text
        assert not set(terminal.text.replace("\r\n", "\n")) & set("\x1b\x07\x9b\u202e\x00")
    output = FakeTerminal()
    Console(output, io.StringIO()).write(f"{EVIL}\udcff\n")
    assert output.getvalue() == rb"\x1b]0;owned\x07\x9b31m\u202e\udcff" + b"\n"


def test_a_copys_report_has_a_line_for_each_table() -> None:
    """Names came to the terminal as they are, and with a surrogate of a damaged name the command failed."""
    output, errors = FakeTerminal(), io.StringIO()
    exporter = SimpleNamespace(dropped=[EVIL], left_out=[EVIL], finish=lambda: [(f"s.{EVIL}\n\udcff", 2)])
    copy_tables._finish(cast("Any", exporter), Namespace(to="folder"), Console(output, errors))
    assert output.getvalue() == rb"             2  s.\x1b]0;owned\x07\x9b31m\u202e\n\udcff" + b"\n"
    assert not set(errors.getvalue()) & set("\x1b\x07\x9b\u202e")


def test_a_progress_line_is_escaped() -> None:
    errors = io.StringIO()
    errors.isatty = lambda: True  # type: ignore[method-assign]
    Console(io.BytesIO(), errors).progress(None).show(EVIL)
    assert errors.getvalue() == "\r\\x1b]0;owned\\x07\\x9b31m\\u202e"


async def test_user_names_are_one_line_of_the_servers_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_mysql_files(tmp_path)
    caplog.set_level(logging.INFO)
    async with serving(tmp_path) as server:
        with pytest.raises(AuthenticationError):
            await Session.open(options_for(server, user="root'\n127.0.0.1: logged in as 'admin\x1b[0m"))
    [message] = [record.message for record in caplog.records if "Access denied" in record.message]
    assert "\\n127.0.0.1" in message
    assert "\n" not in message
    assert "\x1b" not in message


@pytest.mark.parametrize("command", [("decode",), ("decode", "--events"), ("serve", "--no-password")])
def test_a_dsn_in_place_of_a_file_is_not_shown(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--debug", "mysql://repl:geheim@db/"]) == 2
    output, errors = capsys.readouterr()
    assert "mysql://..." in errors
    assert "Traceback" in errors
    assert "geheim" not in output + errors


@pytest.mark.parametrize("option", [("-f", "sql"), ("--flashback",)])
def test_sql_names_the_mode_that_keeps_line_ends(
    tmp_path: Path, option: tuple[str, ...], capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Without --binary-mode the client turns CR LF into LF, also in names and texts."""
    log = LogBuilder()
    if option[0] == "-f":
        log.statement("CREATE TABLE `a\r\nb` (a INT)")
    (tmp_path / "bin.000001").write_bytes(log.data)
    assert main(["decode", *option, str(tmp_path / "bin.000001")]) == 0
    output = capsysbinary.readouterr().out
    assert b"mysql --binary-mode" in output.split(b"\n")[0]
    assert (b"`a\r\nb`" in output) is (option[0] == "-f")
