"""``mysql-replica decode``: formats, inputs, options, exit codes, and one line per error."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from protocol.errors import ConfigurationError
from replica.cli import COMMANDS, error_text, main, make_parser
from replica.cli import decode as decode_command
from replica.cli.console import Console, Progress, progress_text
from replica.files.schema_file import SCHEMA_QUERY
from replica.statistics.figures import size_text
from tests.support.log_builder import LogBuilder, numbered_log, write_logs

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of five transactions that insert the INTs 1 to 5. It has no column names."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log(5).data)
    return path


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"s.t": [{"name": "n", "type": "int", "primary": True}]}))
    return path


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Exit code, output and messages of ``mysql-replica decode``."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["decode", *map(str, arguments)])
        output, errors = capsysbinary.readouterr()
        return code, output.decode(), errors.decode()

    return run


# --------------------------------------------------------------------------------------------------- formats


def test_text_is_the_default(run: Run, log: Path) -> None:
    code, text, errors = run(log)
    assert (code, errors) == (0, "")
    assert text == run(log, "--format", "text")[1]
    assert "### INSERT INTO `s`.`t`\n### SET\n###   @1=1 /* INT meta=0 nullable=1 is_null=0 */\n" in text
    assert "# Position" not in text
    assert "# Position  Timestamp" in run(log, "--hexdump")[1]


def test_json(run: Run, log: Path) -> None:
    code, text, errors = run(log, "--format=json")
    objects = [json.loads(line) for line in text.splitlines()]
    assert (code, errors) == (0, "")
    assert [line["after"] for line in objects if "op" in line] == [{"@1": number} for number in range(1, 6)]
    assert objects[0]["event"] == "FormatDescriptionEvent"
    assert list(yaml.safe_load_all(run(log, "--format=yaml")[1])) == objects


def test_sql(run: Run, log: Path, schema: Path) -> None:
    code, redo, errors = run(log, "--format=sql", "--schema", schema)
    assert (code, errors) == (0, "")
    assert [line for line in redo.splitlines() if line.startswith("(")] == [
        f"({number});" for number in range(1, 6)
    ]
    code, undo, errors = run(log, "--flashback", "--schema", schema, "--disable-log-bin")
    assert (code, errors) == (0, "")
    assert [line for line in undo.splitlines() if line.startswith("DELETE")] == [
        f"DELETE FROM `s`.`t` WHERE `n` = {number} LIMIT 1;" for number in range(5, 0, -1)
    ]
    assert "sql_log_bin=0" in undo
    assert "sql_log_bin" not in redo


def test_events(run: Run, log: Path) -> None:
    code, text, errors = run(log, "--events")
    head, first, second, *_ = text.splitlines()
    assert (code, errors) == (0, "")
    assert head == "Log_name\tPos\tEvent_type\tServer_id\tEnd_log_pos\tInfo"
    assert first == "binlog.000001\t4\tFormat_desc\t1\t125\tServer ver: 9.7.4, Binlog ver: 4"
    assert second.startswith("binlog.000001\t125\tGtid\t1\t173\tSET @@SESSION.GTID_NEXT= '3e11fa47-")


# ---------------------------------------------------------------------------------------------------- inputs


def rows(text: str) -> list[int]:
    objects = [json.loads(line) for line in text.splitlines()]
    return [line["after"]["@1"] for line in objects if "op" in line]


def test_several_files_and_index_files(run: Run, tmp_path: Path) -> None:
    paths = write_logs(tmp_path)
    assert rows(run("-f", "json", *paths)[1]) == [1, 2, 3, 4, 5, 6]
    assert rows(run("-f", "json", paths[2], paths[0])[1]) == [5, 6, 1, 2]
    (tmp_path / "bin.index").write_text("".join(f"./{path.name}\n" for path in paths))
    assert rows(run("-f", "json", tmp_path / "bin.index")[1]) == [1, 2, 3, 4, 5, 6]


def test_standard_input(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(log.read_bytes())))
    assert rows(run("-f", "json", "-")[1]) == [1, 2, 3, 4, 5]


def test_output_file(run: Run, log: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    assert run(log, "-f", "json", "-o", path) == (0, "", "")
    assert rows(path.read_text()) == [1, 2, 3, 4, 5]
    assert rows(run(log, "-f", "json", "-o", "-")[1]) == [1, 2, 3, 4, 5]
    code, _, errors = run(log, "-o", tmp_path / "none" / "x")
    assert code == 2
    assert errors == f"mysql-replica: error: --output: {tmp_path}/none/x: No such file or directory\n"
    code, _, errors = run(log, "-o", tmp_path / "." / log.name)
    assert (code, "is also an input file" in errors) == (2, True)
    assert log.read_bytes() == numbered_log(5).data


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--start", "2024-05-01T12:03:00Z"], [3, 4, 5]),
        (["--start", "2024-05-01T12:02:00Z", "--stop", "2024-05-01T12:04:00Z"], [2, 3]),
        (["--start", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3"], [4, 5]),
        (["--stop", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-2"], [1, 2]),
        (["--stop", "130"], [1]),
        (["--stop", "binlog.000001:130"], [1]),
        (["--tables", "s.*,x.y"], [1, 2, 3, 4, 5]),
        (["--tables", "x.*", "--tables", "s.t"], [1, 2, 3, 4, 5]),
        (["--tables", "x.*"], []),
        (["--exclude-tables", "s.t"], []),
    ],
)
def test_a_part_of_the_log(run: Run, log: Path, options: list[str], expected: list[int]) -> None:
    assert rows(run(log, "-f", "json", *options)[1]) == expected


def test_start_by_offset(run: Run, tmp_path: Path) -> None:
    builder = numbered_log(3)
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)
    offset = builder.offsets[1 + 5]  # after the format description and one transaction
    assert rows(run(path, "-f", "json", "--start", offset)[1]) == [2, 3]


def test_statements_are_comments_with_a_filter(run: Run, tmp_path: Path, schema: Path) -> None:
    builder = LogBuilder()
    builder.statement("DROP TABLE other")
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)
    assert "\nDROP TABLE other;" in run(path, "-f", "sql")[1]
    filtered = run(path, "-f", "sql", "--tables", "s.t")[1]
    assert "\n-- left out, because its tables are not known: DROP TABLE other\n" in filtered


# -------------------------------------------------------------------------------------- damage and its counts


def damaged(path: Path) -> Path:
    builder = numbered_log(5)
    builder.data[builder.offsets[9] + 25] ^= 0xFF  # in the second transaction's rows event
    path.write_bytes(builder.data)
    return path


def test_damage_is_an_error(run: Run, tmp_path: Path) -> None:
    code, text, errors = run("-f", "json", damaged(tmp_path / "binlog.000001"))
    assert code == 1
    assert rows(text) == [1]
    assert errors.count("\n") == 1
    assert errors.startswith(
        "mysql-replica: error: the checksum does not match the event (binlog.000001, at "
    )


def test_force_goes_on_and_counts(run: Run, tmp_path: Path) -> None:
    code, text, errors = run("-f", "json", "--force", damaged(tmp_path / "binlog.000001"))
    assert code == 0
    assert rows(text) == [1, 3, 4, 5]
    warning, count = errors.splitlines()
    assert warning.startswith("mysql-replica: warning: the checksum does not match")
    assert count.startswith("mysql-replica: damaged events were skipped: 1 event, 40 bytes")


def test_checksums_can_be_left_unread(run: Run, tmp_path: Path) -> None:
    builder = numbered_log(1)
    builder.data[-1] ^= 0xFF
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)
    assert run(path)[0] == 1
    assert run(path, "--no-verify-checksum")[0] == 0


def test_a_torn_end(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log(2).data[:-5])
    code, text, errors = run(path, "-f", "json")
    assert (code, rows(text)) == (0, [1, 2])
    assert errors == "mysql-replica: binlog.000001: incomplete event at the end: 26 bytes\n"
    assert run(path, "--torn", "raise")[0] == 1


def test_what_sql_cannot_say_is_counted(run: Run, tmp_path: Path, schema: Path) -> None:
    builder = numbered_log(1)
    builder.statement("TRUNCATE TABLE t")
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)
    code, text, errors = run(path, "--flashback", "--schema", schema)
    assert (code, text) == (1, "")
    assert "TRUNCATE TABLE t" in errors
    code, text, errors = run(path, "--flashback", "--schema", schema, "--force")
    assert code == 0
    assert "-- left out: " in text
    assert errors == "mysql-replica: left out, because SQL cannot express them: 1 event\n"


def test_missing_names_are_an_error(run: Run, log: Path) -> None:
    code, _, errors = run(log, "--format", "sql")
    assert code == 1
    assert "binlog_row_metadata=FULL" in errors
    assert "--schema" in errors


# ---------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("command", [["decode"], ["stats"], ["serve", "--no-password"]])
def test_a_dsn_is_no_file(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The error does not repeat the password."""
    assert main([*command, "MySQL://repl:secret@127.0.0.1"]) == 2
    assert (
        capsys.readouterr().err
        == "mysql-replica: error: MySQL://... is not a file: give the path of a binlog file\n"
    )


def test_a_missing_file(run: Run, tmp_path: Path) -> None:
    assert run(tmp_path / "none") == (
        2,
        "",
        f"mysql-replica: error: {tmp_path}/none: No such file or directory\n",
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--flashback", "--format", "json"],
        ["--flashback", "--events"],
        ["--disable-log-bin"],
        ["--hexdump", "--format", "sql"],
        ["--hexdump", "--events"],
        ["--events", "--format", "json"],
        ["--key-file-secret", "x"],
        ["--key", "00", "--keyring", "x"],
        ["--key", "zz"],
        ["--tables", "nodot"],
        ["--start", "nowhere"],
        ["--stop", "binlog.000001:"],
        ["--schema", "/nonexistent"],
        ["--keyring", "/nonexistent"],
        ["--key-file", "/nonexistent"],
        ["--key-file", "x", "--key-file-secret", "FILE:/nonexistent"],
    ],
    ids=" ".join,
)
def test_options_that_cannot_be(run: Run, log: Path, options: list[str]) -> None:
    code, text, errors = run(log, *options)
    assert (code, text) == (2, "")
    assert errors.startswith("mysql-replica: error: ")
    assert errors.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["decode"], ["nothing"], ["decode", "x", "--format", "xml"]])
def test_arguments_that_cannot_be_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: mysql-replica" in capsys.readouterr().err


def test_tracebacks_only_with_debug(run: Run, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("two\nlines\x1b[31m")

    monkeypatch.setattr(decode_command, "_render", fail)
    code, _, errors = run(log)
    assert code == 1
    assert errors == (
        "mysql-replica: error: RuntimeError: two lines\\x1b[31m (a defect of mysql-replica; --debug prints the "
        "traceback)\n"
    )
    code, _, errors = run(log, "--debug")
    assert code == 1
    assert errors.startswith("Traceback (most recent call last):\n")
    # The text may be a source's: a terminal would obey it.
    assert "\nRuntimeError: two\nlines\\x1b[31m\n" in errors
    assert errors.endswith("--debug prints the traceback)\n")


def test_texts_of_errors() -> None:
    assert (
        error_text(OSError(28, "No space left on device"))
        == "error: standard output: No space left on device"
    )
    assert error_text(OSError(28, "No space"), "/y") == "error: /y: No space"
    assert error_text(OSError(5, "Input/output error")) == "error: Input/output error"
    assert error_text(OSError(28, "No space", "/x")) == "error: /x: No space"
    assert error_text(ConfigurationError("start: no")) == "error: start: no"


def test_interruption(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(decode_command, "_render", interrupt)
    assert main(["decode", str(log)]) == 130


def program(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "replica", *map(str, arguments)]
    return subprocess.run(command, capture_output="stdout" not in options, check=False, **options)


def test_it_runs_as_a_module(log: Path) -> None:
    finished = program("decode", "-f", "json", "-", input=log.read_bytes())
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert rows(finished.stdout.decode()) == [1, 2, 3, 4, 5]
    assert program("decode", "/nonexistent").returncode == 2


def test_a_broken_pipe_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log(2000).data)
    command = f"{sys.executable} -m replica decode {path}; echo $? >&2"
    piped = subprocess.run(f"({command}) | head -n 1", shell=True, capture_output=True, check=True)
    assert piped.stdout.count(b"\n") == 1
    assert piped.stderr == b"0\n"


def test_a_full_disk_is_one_line(log: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "wb") as full:
        finished = program("decode", log, stdout=full, stderr=subprocess.PIPE)
    assert finished.returncode == 1
    assert finished.stderr == b"mysql-replica: error: standard output: No space left on device\n"
    finished = program("decode", log, "-o", "/dev/full")
    assert finished.returncode == 1
    assert finished.stderr == b"mysql-replica: error: /dev/full: No space left on device\n"


def test_help_names_every_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    listed = [words[0] for line in capsys.readouterr().out.splitlines() if (words := line.split())]
    assert {command.name for command in COMMANDS} <= set(listed)
    with pytest.raises(SystemExit):
        make_parser().parse_args(["decode", "--help"])
    text = capsys.readouterr().out
    assert SCHEMA_QUERY.format(schema="shop") in text


# -------------------------------------------------------------------------------------------------- terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_the_progress_line(clock: list[float]) -> None:
    errors = io.StringIO()
    progress = Progress(errors, 10_000_000, True)
    progress.update(1)
    clock[0] += 1
    progress.update(2_500_000)
    clock[0] += 0.1
    progress.update(2_600_000)
    clock[0] += 0.9
    progress.update(5_000_000)
    progress.clear()
    progress.clear()
    first = "2.5 MB of 10.0 MB (25%), 2.5 MB/s, 0:03 left"
    second = "5.0 MB of 10.0 MB (50%), 2.5 MB/s, 0:02 left"
    assert errors.getvalue() == f"\r{first}\r{second}\r{' ' * len(second)}\r"


def test_the_progress_line_on_a_narrow_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The progress line must not wrap, or every update would add a line."""
    monkeypatch.setattr("os.get_terminal_size", lambda descriptor: os.terminal_size((20, 5)))
    errors = io.StringIO()
    monkeypatch.setattr(errors, "fileno", lambda: 2)
    progress = Progress(errors, 10_000_000, True)
    clock[0] += 1
    progress.update(2_500_000)
    progress.clear()
    assert errors.getvalue() == f"\r2.5 MB of 10.0 MB (\r{' ' * 19}\r"


def test_a_message_erases_the_progress_line(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: True)
    console = Console(io.BytesIO(), errors)
    console.note("before it")
    progress = console.progress(None)
    progress.show("half")
    console.note("connected again")
    progress.show("done")
    progress.clear()
    messages = "mysql-replica: before it\n\rhalf\r    \rmysql-replica: connected again\n"
    assert errors.getvalue() == f"{messages}\rdone\r    \r"


def test_no_progress_where_nobody_looks(clock: list[float]) -> None:
    errors = io.StringIO()
    progress = Progress(errors, 10, False)
    clock[0] += 10
    progress.update(5)
    progress.clear()
    assert errors.getvalue() == ""


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (1_000_000, None, 2.0, "1.0 MB, 500.0 kB/s"),
        (1_000_000, 0, 2.0, "1.0 MB, 500.0 kB/s"),
        (0, 100, 0.0, "0 B of 100 B (0%), 0 B/s"),
        (10**9, 10**12, 1.0, "1.0 GB of 1.0 TB (0%), 1.0 GB/s, 16:39 left"),
        (10**6, 10**10, 1.0, "1.0 MB of 10.0 GB (0%), 1.0 MB/s, 2:46:39 left"),
        (200, 100, 1.0, "200 B of 100 B (100%), 200 B/s, 0:00 left"),
    ],
)
def test_progress_text(done: int, total: int | None, seconds: float, text: str) -> None:
    assert progress_text(done, total, seconds) == text


def test_size_text() -> None:
    sizes = [0, 999, 1000, 999_949, 999_950, 10**15, 10**19]
    assert [size_text(size) for size in sizes] == [
        *("0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.0 PB", "10000.0 PB")
    ]


def test_progress_on_a_terminal(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr("replica.cli.console._INTERVAL", 0)
    assert main(["decode", str(log)]) == 0
    size = log.stat().st_size
    assert errors.getvalue().startswith(f"\r{size_text(size)} of {size_text(size)} (100%), ")
    assert errors.getvalue().endswith(" \r")


def test_the_table_is_aligned_on_a_terminal(log: Path) -> None:
    master, slave = pty.openpty()
    finished = program("decode", "--events", log, stdout=slave, stderr=subprocess.PIPE)
    os.close(slave)
    text = os.read(master, 65536).decode()
    os.close(master)
    assert (finished.returncode, finished.stderr) == (0, b"")
    columns = {
        line.index(word)
        for line, word in zip(text.splitlines()[:2], ("Event_type", "Format_desc"), strict=True)
    }
    assert len(columns) == 1
    assert "\t" not in text


def test_a_note_is_one_line() -> None:
    errors = io.StringIO()
    Console(io.BytesIO(), errors).note("two\nlines, \udcff, größer, \x1b[31mred")
    assert errors.getvalue() == "mysql-replica: two lines, ?, größer, \\x1b[31mred\n"
