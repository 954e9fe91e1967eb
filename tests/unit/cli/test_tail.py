"""``mysql-replica tail`` on a terminal and in pipes: its output, how it ends, and where it resumes."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from protocol.binlog.events import GtidEvent, RowsEvent
from protocol.conversation.commands import BinlogDump
from protocol.errors import ConfigurationError
from replica import Checkpoint, open_binlog
from replica.cli import COMMANDS, decode, main
from replica.cli import tail as tail_command
from replica.cli.arguments import read_place
from replica.cli.console import Console
from replica.cli.paint import Paint, terminal_width
from replica.demo import DemoSource, recorded_log
from replica.demo.source import SERVED_NAME
from replica.statistics.layout import Role, Span
from tests.support.resumed_streams import from_position, plain_log, size_of
from tests.support.scripted_log import mysql
from tests.support.socket_source import serving
from tests.support.terminal import CTRL_C, SECONDS, on_terminal

PASSWORD = "secret-of-mine"


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the served log, under the name by which the source serves it."""
    path = tmp_path_factory.mktemp("log") / SERVED_NAME
    with recorded_log() as recorded:
        path.write_bytes(recorded.read_bytes())
    return path


def gtids(log: Path) -> list[str]:
    with open_binlog(log) as events:
        return [str(event.gtid) for event in events if isinstance(event, GtidEvent)]


def changes(log: Path) -> list[str]:
    """Operation and table of every row change, as tail prints them."""
    with open_binlog(log) as events:
        rows = [event for event in events if isinstance(event, RowsEvent)]
    return [f"  {change.op} {change.table}" for event in rows for change in event.changes()]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "replica", "tail", *map(str, arguments)],
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env=os.environ | environment,
    )


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "replica", "tail", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# ----------------------------------------------------------------------------------------------- the terminal


def test_a_session_on_a_terminal(source: DemoSource, log: Path) -> None:
    last = gtids(log)[-1]
    with on_terminal("tail", source.dsn, "--from", "earliest") as terminal:
        terminal.wait_for(rf"{re.escape(last)}.*\r\n  \w+ shop\.\w+")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
        resume = terminal.wait_for(r"resume with --from ([-\w:]+)")
    assert terminal.widest() <= 80
    assert "Traceback" not in terminal.plain
    assert resume[1] == f"{last.rpartition(':')[0]}:1-{len(gtids(log))}"
    for operation, colour in (("insert", 32), ("update", 33), ("delete", 31), ("sql", 35)):
        assert f"  \x1b[1;{colour}m{operation}\x1b[0m " in terminal.text
    shown = [line for line in terminal.lines() if re.match("  (insert|update|delete) ", line)]
    assert [" ".join(line.split()[:2]) for line in shown] == [change.strip() for change in changes(log)]
    assert next(line for line in terminal.lines() if re.match(r"\d{4}-\d\d-\d\d ", line)).endswith(":158")
    assert source.password not in terminal.plain


def test_it_goes_on_at_the_resume_point(source: DemoSource, log: Path) -> None:
    known = gtids(log)
    have = f"{known[0].rpartition(':')[0]}:1-{len(known) - 1}"
    with on_terminal("tail", source.dsn, "--from", have) as terminal:
        terminal.wait_for(re.escape(known[-1]))
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    assert known[-2] not in terminal.plain


def test_narrow(source: DemoSource) -> None:
    # It ends by itself: Linux may lose a line's end if Ctrl-C is pressed while a program waits to write.
    with on_terminal("tail", source.dsn, "--from", "earliest", "--stop", "now", columns=44) as terminal:
        assert terminal.end() == 0
    assert "…" in terminal.plain
    assert "delete shop.orders" in terminal.plain
    changed = [line for line in terminal.lines() if line.startswith(("20", "  "))]
    assert max(map(len, changed)) <= 44


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, pytest.param({"TERM": "dumb"}, marks=pytest.mark.thorough)]
)
def test_a_terminal_without_colours(source: DemoSource, environment: dict[str, Any]) -> None:
    with on_terminal("tail", source.dsn, "--from", "earliest", "--stop", "now", **environment) as terminal:
        assert terminal.end() == 0
    assert "insert shop.orders" in terminal.text
    assert "\x1b" not in terminal.text
    assert terminal.widest() <= 80


class Screen(io.BytesIO):
    """Output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_every_role_has_its_ansi_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    expected = {
        "insert": "1;32",
        "update": "1;33",
        "delete": "1;31",
        "read": "1;36",
        "statement": "1;35",
        "warning": "1;31",
        "table": "1",
        "name": "36",
        "null": "2;3",
        "before": "2",
        "after": "1",
        "time": "34",
        "gtid": "34",
        "place": "2",
        "comment": "2",
        "heading": "1;36",
    }
    assert {"", *expected} == set(get_args(Role))
    screen = Screen()
    Paint(screen).write([Span("x", role) for role in get_args(Role)])
    coloured = [f"\x1b[{expected[role]}mx\x1b[0m" if role else "x" for role in get_args(Role)]
    assert screen.getvalue().decode() == "".join(coloured) + "\n"


@pytest.mark.parametrize(
    ("environment", "has_colours"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "screen", "NO_COLOR": ""}, True),  # no-color.org: an empty value does not count
        ({"TERM": "xterm", "NO_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
        ({"TERM": "unknown"}, False),
        ({}, False),
    ],
)
def test_which_terminals_have_colours(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], has_colours: bool
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for output, is_coloured in ((Screen(), has_colours), (io.BytesIO(), False)):
        Paint(output).write([Span("x", "insert")])
        assert (b"\x1b" in output.getvalue()) is is_coloured


def test_what_a_terminal_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    paint = Paint(output)
    paint.write([Span("  "), Span("insert", "insert"), Span(" \udcff")])
    assert output.getvalue() == b"  insert \\udcff\n"
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(output) is None
    monkeypatch.setenv("COLUMNS", "60")
    assert terminal_width(output) == 60


# ---------------------------------------------------------------------------------------------------- pipes


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), marks=pytest.mark.thorough),
        ("--format=json",),
        pytest.param(("--format=yaml",), marks=pytest.mark.thorough),
        ("--format=sql",),
    ],
)
def test_a_pipe_gets_what_decode_writes(
    source: DemoSource, log: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    expected = tmp_path / "expected"
    assert main(["decode", str(log), "-o", str(expected), *(arguments or ("--format=json",))]) == 0
    done = run(source.dsn, "--from", "earliest", "--stop", "now", *arguments)
    assert done.returncode == 0, done.stderr
    # stop="now" ends after the last transaction, before the last event of the file.
    written, whole = done.stdout, expected.read_bytes()
    assert whole.startswith(written)
    assert b"XidEvent" in written[-2000:] or arguments == ("--format=sql",)
    assert len(whole) - len(written) < 250
    assert b"Traceback" not in done.stderr


def test_what_is_json_is_json(source: DemoSource, log: Path) -> None:
    done = run(source.dsn, "--from", "earliest", "--stop", "now", "--tables", "shop.orders")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["table"] for line in found if "op" in line} == {"orders"}
    assert sum("op" in line for line in found) == sum(one.endswith("shop.orders") for one in changes(log))
    spoken = run(
        source.dsn, "--from", "earliest", "--stop", "now", "--format=yaml", "--exclude-tables", "*.*"
    )
    assert [one for one in yaml.safe_load_all(spoken.stdout) if "op" in one] == []


def test_text_in_a_pipe_is_not_cut(source: DemoSource, log: Path) -> None:
    done = run(source.dsn, "--from", "earliest", "--stop", "now", "--format=text")
    lines = done.stdout.decode().splitlines()
    assert [line for line in lines if line.startswith(("  insert", "  update", "  delete"))] == [
        line for line in lines if line.startswith("  ") and not line.startswith("  sql")
    ]
    assert not any("…" in line or "\x1b" in line for line in lines)
    assert any(len(line) > 150 for line in lines)


def test_sql_from_inside_of_a_file_knows_its_family(source: DemoSource, log: Path) -> None:
    known = gtids(log)
    have = f"{known[0].rpartition(':')[0]}:1-3"
    done = run(source.dsn, "--from", have, "--stop", "now", "--format=sql", "--disable-log-bin")
    assert b"CREATE TABLE shop.order_items" in done.stdout
    assert b"SET @@session.sql_log_bin=0;" in done.stdout
    assert b"INSERT INTO `shop`.`orders`" in done.stdout


def test_the_reader_of_the_pipe_may_close_it(source: DemoSource) -> None:
    with started(source.dsn, "--from", "earliest") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["event"] == "FormatDescriptionEvent"
        process.stdout.close()
        # tail notices the closed pipe at its next write: the rest of the log does not fit into a pipe.
        assert process.wait(SECONDS) == 0
        notes = process.stderr.read().decode()
    assert notes.count("\n") == 1, notes


# ------------------------------------------------------------------------------------------------- its end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_in_order(source: DemoSource, log: Path, number: signal.Signals) -> None:
    last = gtids(log)[-1]
    have = f"{last.rpartition(':')[0]}:1-{len(gtids(log)) - 1}"
    with started(source.dsn, "--from", have) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while b"XidEvent" not in (line := process.stdout.readline()):
            assert line
        # Twice: the program that started tail may pass the signal on.
        process.send_signal(number)
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        assert b"resume with --from " + last.rpartition(":")[0].encode() in process.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_source_that_says_nothing_is_not_waited_for(number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dsn = f"mysql://repl:x@127.0.0.1:{listener.getsockname()[1]}/?connect_timeout=3600"
        with started(dsn) as process:
            connection, _ = listener.accept()
            with connection:
                process.send_signal(number)
                assert process.wait(SECONDS) == 0
                assert process.stderr is not None
                assert process.stderr.read() == b""


def test_a_second_ctrl_c_ends_a_process_whose_output_nobody_reads(source: DemoSource) -> None:
    reading, writing = os.pipe()
    # A pipe of one page: tail soon waits for a reader.
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "replica", "tail", source.dsn, "--from", "earliest"]
    process = subprocess.Popen(command, stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)
    try:
        until(lambda: waiting_bytes(reading) > 2500)
        until(lambda: interrupted(process), every=1.5)
        # A shell reports both as 130; the second is a signal that came while Python was exiting.
        assert process.poll() in (130, -signal.SIGINT)
    finally:
        process.kill()
        process.wait()
        os.close(reading)


def until(condition: Callable[[], bool], every: float = 0.1) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(every)


def waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def interrupted(process: subprocess.Popen[bytes]) -> bool:
    """Send SIGINT once more; return whether the process has ended."""
    process.send_signal(signal.SIGINT)
    return process.poll() is not None


def test_a_checkpoint_file(source: DemoSource, log: Path, tmp_path: Path) -> None:
    known = gtids(log)
    half = f"{known[0].rpartition(':')[0]}:1-{len(known) // 2}"
    kept = tmp_path / "shop.ckpt"
    given = (source.dsn, "--checkpoint", kept, "--from", "earliest")
    first = run(*given, "--stop", half)
    assert first.returncode == 0, first.stderr
    assert f"the same --checkpoint {kept}" in first.stderr.decode()
    second = run(*given, "--stop", "now")
    assert f"resuming from the checkpoint in {kept}; --from is ignored" in second.stderr.decode()
    found = [json.loads(line) for line in (first.stdout + second.stdout).splitlines()]
    assert [f"  {line['op']} shop.{line['table']}" for line in found if "op" in line] == changes(log)
    assert first.stdout.count(b"XidEvent") > 50
    assert second.stdout.count(b"XidEvent") > 50


def test_what_a_checkpoint_stands_for_is_written_before_it(tmp_path: Path) -> None:
    class Output(io.BytesIO):
        def flush(self) -> None:
            if has_gone:
                raise BrokenPipeError
            flushed.append(path.exists())

    path = tmp_path / "ckpt"
    has_gone: list[bool] = []
    flushed: list[bool] = []
    store = tail_command._store(str(path), Console(Output(), io.StringIO()))
    store.save(Checkpoint("binlog.000001", 4))
    assert flushed == [False]
    has_gone.append(True)
    with pytest.raises(BrokenPipeError):
        store.save(Checkpoint("binlog.000002", 4))
    kept = store.load()
    assert kept is not None
    assert kept.file == "binlog.000001"


async def test_it_says_when_it_is_connected_again() -> None:
    log = plain_log()
    async with serving(mysql(log, events_for=from_position(log))) as broken:
        broken.cuts = [size_of(broken, BinlogDump("", 4, 1, 0)) // 2]
        command = [sys.executable, "-m", "replica", "tail", broken.dsn, "--from", "earliest", "--format=json"]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stderr is not None
        notes = [(await asyncio.wait_for(process.stderr.readline(), SECONDS)).decode() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    assert "trying again in" in notes[1]
    assert notes[2] == f"mysql-replica: connected again to 127.0.0.1:{broken.port}\n"
    assert [json.loads(line)["op"] for line in output.splitlines() if b'"op"' in line]


# ------------------------------------------------------------------------------------------------ its errors


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("--from", "yesterday"),
            2,
            "--from: 'yesterday' is not a place: now is the end of the log, and earliest its beginning -- a place is",
        ),
        (("--start", "2026-01-01T00:00:00"), 2, "--from: 2026-01-01 00:00:00 has no time zone"),
        (("--stop", "earliest"), 2, "stop: "),
        (("--tables", "orders"), 2, "tables: "),
        (("--server-id", "0"), 2, "--server-id: "),
        (("--disable-log-bin",), 2, "--format sql"),
        (("--from", "shop.000009:4"), 1, "1236"),
        (("--from", "0-1-5"), 2, "not a MySQL GTID set"),
    ],
)
def test_errors_are_one_line(
    source: DemoSource,
    arguments: tuple[str, ...],
    code: int,
    message: str,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert main(["tail", source.dsn, *arguments]) == code
    output, notes = capsysbinary.readouterr()
    errors = [line for line in notes.decode().splitlines() if "error: " in line]
    assert len(errors) == 1, notes
    assert message in errors[0]
    assert b"Traceback" not in notes
    assert b"resume" not in notes
    assert output == b""


def test_where_nobody_answers(source: DemoSource, capfd: pytest.CaptureFixture[str]) -> None:
    given = f"mysql://repl:{PASSWORD}@127.0.0.1:1"
    assert main(["tail", given]) == 1
    assert main(["tail", f"mysql://repl:{PASSWORD}@{source.address}"]) == 1
    assert main(["tail", "postgres://x"]) == 2
    assert main(["tail", given, "--debug"]) == 1
    output, errors = capfd.readouterr()
    assert errors.count("error: ") == 4
    assert errors.count("Traceback") >= 1
    assert PASSWORD not in output + errors
    with pytest.raises(SystemExit) as caught:
        main(["tail"])
    assert caught.value.code == 2


def test_a_place_names_its_option() -> None:
    with pytest.raises(ConfigurationError, match=r"^--from: each part of a GTID set"):
        read_place("--from", "nonsense:1")


def test_decode_and_tail_have_the_same_formats() -> None:
    assert set(tail_command._FORMATS) == set(decode._RENDERERS)


@pytest.mark.parametrize("command", ["tail", "doctor", "relay", "decode", "stats"])
def test_each_command_takes_the_start_by_both_names(command: str) -> None:
    """`tail`, `doctor` and `relay` knew --from only, `decode` --start only."""
    parser = ArgumentParser()
    next(one for one in COMMANDS if one.name == command).add_arguments(parser)
    places = ["mysql://h", "dir"] if command == "relay" else ["mysql://h"]
    assert parser.parse_args([*places, "--start", "earliest"]).start == "earliest"
    assert parser.parse_args([*places, "--from", "earliest"]).start == "earliest"
