"""``--changes``, patterns that match no table, and ``--flashback`` of some tables, on the demo's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from replica import RowsEvent, open_binlog
from replica.cli import main
from replica.demo import DemoSource, recorded_log
from tests.support.log_builder import LogBuilder

CapSys = pytest.CaptureFixture[bytes]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "shop.000001"
    with recorded_log() as recorded:
        path.write_bytes(recorded.read_bytes())
    return path


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


def operations(log: Path) -> list[str]:
    with open_binlog(log) as events:
        rows = [event for event in events if isinstance(event, RowsEvent)]
    return [f"{change.op} {change.table}" for event in rows for change in event.changes()]


def run(capsysbinary: CapSys, *arguments: object) -> tuple[str, str]:
    assert main([str(argument) for argument in arguments]) == 0
    output, notes = capsysbinary.readouterr()
    return output.decode(), notes.decode()


def text_operations(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line.startswith("  ")]
    return [" ".join(line.split()[:2]) for line in lines]


def test_decode(log: Path, capsysbinary: CapSys) -> None:
    expected = operations(log)
    output, _ = run(capsysbinary, "decode", log, "--changes")
    assert text_operations(output) == expected
    output, _ = run(capsysbinary, "decode", log, "--changes", "--format=json")
    objects = [json.loads(line) for line in output.splitlines()]
    assert [f"{one['op']} {one['schema']}.{one['table']}" for one in objects] == expected
    # The events that are left out still give the GTID.
    assert len({one["gtid"] for one in objects}) > 200
    output, _ = run(capsysbinary, "decode", log, "--changes", "--format=sql")
    assert "CREATE TABLE" not in [line.split("(")[0] for line in output.splitlines() if line[:2] != "--"]
    assert output.count("DELETE FROM") == sum(one.startswith("delete") for one in expected)


def test_yaml(log: Path, capsysbinary: CapSys) -> None:
    output, _ = run(capsysbinary, "decode", log, "--changes", "--format=yaml", "--stop=4000")
    assert {"op" in one for one in yaml.safe_load_all(output)} == {True}


@pytest.mark.parametrize("form", ["json", "yaml", "sql", "text"])
def test_changes_that_are_logged_as_statements(form: str, tmp_path: Path, capsysbinary: CapSys) -> None:
    """They were left out without a word."""
    log = LogBuilder()
    log.statement("CREATE TABLE s.t (a INT)")
    for sql in ("BEGIN", "INSERT INTO t VALUES (RAND())", "COMMIT", "BEGIN", "DELETE FROM t", "COMMIT"):
        log.statement(sql)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    _, notes = run(capsysbinary, "decode", path, "--changes", "--format", form)
    assert (
        notes.count("warning") == notes.count("logged as a statement, without the rows, at bin.000001:") == 1
    )
    path.write_bytes(log.data[: log.offsets[-6]])
    assert run(capsysbinary, "decode", path, "--changes", "--format", form)[1] == ""


@pytest.mark.parametrize("other", [["--events"], ["--flashback"], ["--hexdump"]])
def test_what_does_not_go_together(log: Path, other: list[str], capsysbinary: CapSys) -> None:
    assert main(["decode", str(log), "--changes", *other]) == 2
    assert b"does not go together" in capsysbinary.readouterr().err


@pytest.mark.parametrize("form", ["json", "text"])
def test_tail(source: DemoSource, log: Path, form: str, capsysbinary: CapSys) -> None:
    output, _ = run(
        capsysbinary, "tail", source.dsn, "--from=earliest", "--stop=now", "--changes", "--format", form
    )
    if form == "text":
        assert text_operations(output) == operations(log)
    else:
        objects = [json.loads(line) for line in output.splitlines()]
        assert [f"{one['op']} {one['schema']}.{one['table']}" for one in objects] == operations(log)


def test_a_pattern_that_matches_no_table(source: DemoSource, log: Path, capsysbinary: CapSys) -> None:
    _, notes = run(capsysbinary, "decode", log, "--tables=shop.order,shop.customers", "--format=json")
    assert notes.splitlines() == [
        "mysql-replica: warning: --tables: 'shop.order' matches no table of the log -- did you mean shop.orders?"
    ]
    _, notes = run(capsysbinary, "decode", log, "--tables=crm.*", "--format=json")
    assert notes.count("warning") == 1
    assert "did you mean" not in notes
    _, notes = run(capsysbinary, "stats", log, "--tables=Shop.Orders")
    assert "'Shop.Orders' matches no table of the log -- did you mean shop.orders?" in notes
    _, notes = run(
        capsysbinary, "tail", source.dsn, "--from=earliest", "--stop=now", "--tables=shop.order", "-fjson"
    )
    assert "'shop.order' matches no table of the log that was read -- did you mean shop.orders?" in notes


def test_flashback_of_some_tables(log: Path, capsysbinary: CapSys) -> None:
    """ALTER TABLE shop.orders and CREATE DATABASE do not hinder the undo of other tables' rows."""
    with open_binlog(log) as events:
        created = max(event.position for event in events if "CREATE TABLE" in getattr(event, "sql", ""))
    tables = ("--flashback", "--tables=shop.customers")
    output, _ = run(capsysbinary, "decode", log, *tables, "--start", created)
    assert "not undone, because it is about other tables: ALTER TABLE shop.orders" in output
    assert output.count("DELETE FROM `shop`.`customers`") == 12
    assert main(["decode", str(log), "--flashback", "--tables=shop.orders", "--start", str(created)]) == 1
    assert b"'ALTER TABLE shop.orders" in capsysbinary.readouterr().err
    assert main(["decode", str(log), *tables]) == 1
    assert b"'CREATE TABLE shop.customers" in capsysbinary.readouterr().err
