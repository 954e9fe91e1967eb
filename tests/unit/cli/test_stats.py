"""``mysql-replica stats``: formats, the report, options that exclude one another, interruptions."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest

import replica
from protocol.constants import EventType
from replica.cli import main
from replica.statistics.collect import LogStatistics
from replica.statistics.layout import line_width
from replica.statistics.summaries import TableStatistics, TransactionStatistics
from replica.statistics.text_report import bars, statistics_lines
from tests.support.log_builder import LogBuilder, numbered_log, write_logs
from tests.support.raw_events import query
from tests.support.served import PASSWORD, USER, mysql_log, serving, write_mysql_files

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, output and messages of ``mysql-replica stats``."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["stats", *map(str, arguments)])
        output, errors = capsysbinary.readouterr()
        return code, output.decode(), errors.decode()

    return run


def test_text(run: Run, tmp_path: Path) -> None:
    code, text, errors = run(*write_logs(tmp_path))
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    assert lines[0].startswith("log          bin.999998 to bin.1000000, 3 files, ")
    assert "transactions 6, 6 of them with rows" in lines
    assert "row changes  6: 6 inserts, 0 updates, 0 deletes" in lines
    assert next(line.split() for line in lines if line.startswith("s.t ")) == [
        "s.t",
        "6",
        "0",
        "0",
        "6",
        "240",
        "B",
    ]
    assert all(len(line) <= 80 for line in lines)
    assert not any(line.endswith(" ") for line in lines)


def test_json_of_what_is_no_text(run: Run, tmp_path: Path) -> None:
    log = mysql_log()
    log.add(EventType.QUERY, query("CREATE TABLE `<>` (a INT)")[19:].replace(b"<>", b"\xe4\xff"))
    (tmp_path / "bin.000001").write_bytes(log.data)
    code, text, errors = run("--format=json", tmp_path / "bin.000001")
    assert (code, errors) == (0, "")
    assert json.loads(text)["ddl"][0]["sql"] == "CREATE TABLE `\udce4\udcff` (a INT)"


def test_json(run: Run, tmp_path: Path) -> None:
    code, text, errors = run("--format=json", *write_logs(tmp_path))
    found = json.loads(text)
    assert (code, errors) == (0, "")
    assert found["rows"] == {"inserts": 6, "updates": 0, "deletes": 0, "rows": 6}
    assert found["files"] == ["bin.999998", "bin.999999", "bin.1000000"]
    assert [minute["start"] for minute in found["minutes"]][:2] == [
        "2024-05-01T12:01:00+00:00",
        "2024-05-01T12:02:00+00:00",
    ]


def test_report(run: Run, tmp_path: Path) -> None:
    write_logs(tmp_path)
    page = tmp_path / "report.html"
    code, text, errors = run(tmp_path / "bin.999998", "--html", page)
    assert (code, errors) == (0, f"mysql-replica: report: {page}\n")
    assert "s.t" in text
    assert page.read_text().startswith("<!doctype html>")


def test_places_and_tables(run: Run, tmp_path: Path) -> None:
    builder = numbered_log(5)
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)

    def transactions(*arguments: object) -> tuple[int, int]:
        found = json.loads(run("--format=json", path, *arguments)[1])
        return found["transactions"], found["rows"]["rows"]

    assert transactions() == (5, 5)
    assert transactions("--start", builder.offsets[6]) == (4, 4)
    assert transactions("--stop", "2024-05-01T12:03:00Z") == (2, 2)
    assert transactions("--tables", "s.other") == (5, 0)
    assert transactions("--exclude-tables", "s.*") == (5, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mysql://u@h", "file"], "give either binlog files or one DSN"),
        (["file", "--follow"], "--follow needs a source"),
        (["file", "--server-id=7"], "--server-id needs a source"),
        (["mysql://u@h", "--force"], "--force needs files"),
        (["mysql://u@h", "--follow", "--stop=now"], "--follow and --stop exclude one another"),
        (["/no/such/file"], "/no/such/file: No such file or directory"),
        (["file", "--key-file-secret=x"], "--key-file-secret does not go together"),
        (["mysql://u@h?nothing=1"], "there is no option 'nothing'"),
    ],
)
def test_what_cannot_be_used(run: Run, arguments: list[str], message: str) -> None:
    code, text, errors = run(*arguments)
    assert (code, text) == (2, "")
    assert message in errors
    assert errors.count("\n") == 1


def test_a_report_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    write_logs(tmp_path)
    # The error comes before the log is read, which may take long.
    for page in (tmp_path, tmp_path / "nowhere" / "report.html"):
        code, text, errors = run(tmp_path / "bin.999998", "--html", page)
        assert (code, text, "--html" in errors) == (2, "", True)


def test_damage(run: Run, tmp_path: Path) -> None:
    builder = numbered_log(5)
    builder.data[builder.offsets[9] + 30] ^= 1
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data)
    code, text, errors = run(path)
    assert (code, text) == (1, "")
    assert "checksum" in errors
    code, text, errors = run(path, "--force")
    assert code == 0
    assert "damaged events skipped: 1 (" in errors


def test_an_open_transaction_is_told_in_one_line(run: Run, tmp_path: Path) -> None:
    builder = numbered_log(2)
    path = tmp_path / "binlog.000001"
    path.write_bytes(builder.data[: builder.offsets[-1]])
    [line] = [line for line in run(path)[1].splitlines() if line.startswith("open ")]
    assert line.endswith(": not counted")


def test_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "replica", "stats", "-"],
        input=bytes(numbered_log(3).data),
        capture_output=True,
        check=True,
    )
    assert b"transactions 3, 3 of them with rows" in done.stdout


def test_nobody_reads(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log(3).data)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        command = [sys.executable, "-m", "replica", "stats", str(path)]
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


async def test_a_source(tmp_path: Path) -> None:
    """The source is a BinlogServer in this process; ``tests/server`` tests real servers, and --follow."""
    write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        dsn = f"mysql://{USER}:{quote(PASSWORD)}@127.0.0.1:{server.port}/?tls=disabled"
        import asyncio

        command = [sys.executable, "-m", "replica", "stats", dsn, "--format=json"]
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        output, _ = await process.communicate()
    found = json.loads(output)
    assert (process.returncode, found["transactions"], found["rows"]["inserts"]) == (0, 6, 6)
    assert found["seconds_behind"] is None


@pytest.mark.parametrize("width", [40, 60, 80, 132])
@pytest.mark.parametrize("name", ["t", "t" * 64, "表" * 20, "a\x1b[31mb\nc"])
def test_lines_fit_into_the_width(width: int, name: str) -> None:
    builder = LogBuilder()
    builder.transaction([1, 2], sequence=1, name="placeholder")
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(mysql_log().data), row_values=False) as log:
        statistics.add_all(log)
    with replica.open_binlog(io.BytesIO(builder.data), row_values=False) as log:
        statistics.add_all(log)
    for table in statistics.tables:
        table.name = name
    lines = list(statistics_lines(statistics, width))
    text = "\n".join("".join(span.text for span in line) for line in lines)
    assert "\x1b" not in text
    assert max(map(line_width, lines)) <= width


@pytest.mark.parametrize(("width", "is_timed"), [(64, False), (80, False), (100, True)])
def test_the_least_useful_columns_go_first(width: int, is_timed: bool) -> None:
    """Large numbers push columns out of a narrow table; a transaction's position is always shown."""
    statistics = LogStatistics()
    begun = datetime(2026, 11, 22, tzinfo=UTC)
    large = TransactionStatistics(
        None, "binlog.000042", 1_073_741_824, begun, 7199, 12_345_678, 10**9, ("shop.order_items",)
    )
    statistics._by_rows.add(large.rows, large)
    table = TableStatistics(inserts=12_345_678, updates=98_765_432, schema="shop", name="order_items")
    statistics._tables["shop", "order_items"] = table
    lines = list(statistics_lines(statistics, width))
    assert max(map(line_width, lines)) <= width
    text = "\n".join("".join(span.text for span in line) for line in lines)
    assert "binlog.000042:1073741824" in text
    assert ("11-22 00:00:00" in text) == is_timed


def test_bars() -> None:
    bar = bars([0, 1, 50, 100], 10)
    assert [len(bar(count)) for count in (0, 1, 50, 100)] == [0, 1, 5, 10]
