"""``mysql-replica tail`` on a terminal beside real servers, and what ``make demo SERVER=...`` does with them."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from replica.cli.console import Console
from replica.cli.demo import Shown
from replica.cli.paint import Paint
from replica.statistics.layout import cell_width
from tests.support.servers import Server
from tests.support.terminal import CTRL_C, SECONDS, on_terminal
from tests.tools import demo

BOTH = pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)


@BOTH
def test_a_session_on_a_terminal(server: Server, schema: str) -> None:
    server.query(
        f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, name VARCHAR(300), total DECIMAL(8, 2), items JSON)"
    )
    with on_terminal("tail", server.dsn(), "--tables", f"{schema}.*") as terminal:
        terminal.wait_for("Ctrl-C stops")
        server.query(f"INSERT INTO {schema}.orders VALUES (1, 'Zoë 林', 1.50, '{{\"tea\": 2}}')")
        server.query(f"INSERT INTO {schema}.orders VALUES (2, REPEAT('x', 300), NULL, NULL)")
        terminal.wait_for(rf"insert {schema}\.orders  id=1  name='Zoë 林'  total=1.50")
        server.query(f"UPDATE {schema}.orders SET name = 'Zoë', total = total + 1 WHERE id = 1")
        terminal.wait_for(rf"update {schema}\.orders  id=1  name='Zoë 林' -> 'Zoë'\s+total=1.50 -> 2.50")
        server.query(f"ALTER TABLE {schema}.orders ADD COLUMN note INT")
        server.query(f"DELETE FROM {schema}.orders WHERE id = 2")
        terminal.wait_for(rf"sql +(use \w+; )?ALTER TABLE {schema}\.orders")
        terminal.wait_for(rf"delete {schema}\.orders  id=2")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
        place = terminal.wait_for(r"resume with --from (\S+)")[1].strip("'")
    # A place on a server that has seen much may be longer than a line.
    assert max(cell_width(line) for line in terminal.lines() if "resume with" not in line) <= 80
    assert f"\x1b[1;32minsert\x1b[0m \x1b[1m{schema}.orders" in terminal.text
    assert server.replica_password not in terminal.plain

    server.query(f"INSERT INTO {schema}.orders VALUES (3, 'later', NULL, NULL, 7)")
    done = subprocess.run(
        [sys.executable, "-m", "replica", "tail", server.dsn(), "--from", place, "--stop", "now"],
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["after"]["id"] for one in found if one.get("schema") == schema and "op" in one] == [3]


@pytest.mark.parametrize("form", ["json", "yaml", "text"])
def test_tables_that_are_copied_and_altered(server: Server, schema: str, form: str) -> None:
    """In a pipe: the end of a copy and a change of a table ended the command with a KeyError in JSON and YAML."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1)")
    command = [sys.executable, "-m", "replica", "tail", server.dsn(), "--tables", f"{schema}.*"]
    with subprocess.Popen(
        [*command, "--from", "snapshot", "--format", form], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        lines = iter(tail.stdout.readline, b"")
        # The row of the copy; a text has no line for the end of a copy.
        seen = list(itertools.takewhile(lambda line: not re.search(rb"\bread\b", line), lines))
        server.query(f"ALTER TABLE {schema}.t ADD COLUMN note VARCHAR(20)")
        server.query(f"RENAME TABLE {schema}.t TO {schema}.u")
        server.query(f"INSERT INTO {schema}.u VALUES (2, 'the last')")
        seen += list(itertools.takewhile(lambda line: b"the last" not in line, lines))
        tail.send_signal(signal.SIGINT)
        errors = tail.stderr.read().decode()
        assert tail.wait(SECONDS) == 0, errors
    assert "error" not in errors
    if form == "json":
        objects = [json.loads(line) for line in seen if line.startswith(b"{")]
        [end] = [one for one in objects if one.get("event") == "SnapshotCompleteEvent"]
        assert (end["schema"], end["table"], end["rows"], end["is_dropped"]) == (schema, "t", 1, False)
        changes = [one for one in objects if one.get("event") == "SchemaChangeEvent"]
        assert [(one["table"], one["renamed_to"], one["renamed_from"]) for one in changes] == [
            ("t", None, None),
            ("t", f"{schema}.u", None),
            ("u", None, f"{schema}.t"),
        ]
        assert [column["name"] for column in changes[0]["after"]["columns"]] == ["id", "note"]
        assert changes[0]["after"]["columns"][1]["type"] == "varchar(20)"
        assert changes[0]["before"]["primary_key"] == ["id"]


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_copy_that_is_stopped_is_not_resumed_at_a_place(
    server: Server, schema: str, tmp_path: Path, has_checkpoint: bool
) -> None:
    """It named a GTID set, from which on the rows that were not copied yet would never have come."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, text TEXT)")
    # More than a pipe holds: the command waits until it is read.
    server.query(
        f"INSERT INTO {schema}.t VALUES " + ", ".join(f"({id}, REPEAT('x', 2000))" for id in range(999))
    )
    path = tmp_path / "t.ckpt"
    command = [sys.executable, "-m", "replica", "tail", f"{server.dsn()}/?snapshot_chunk_rows=10"]
    command += ["--tables", f"{schema}.*", "--from", "snapshot"]
    checkpoint = ["--checkpoint", str(path)] if has_checkpoint else []

    def read(lines: int) -> tuple[list[int], str]:
        """The ids that come when the command is stopped behind so many lines, and its messages."""
        with subprocess.Popen(
            [*command, *checkpoint], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as tail:
            assert tail.stdout is not None
            assert tail.stderr is not None
            found = [tail.stdout.readline() for _ in range(lines)]
            tail.send_signal(signal.SIGINT)
            found += tail.stdout.read().splitlines()
            errors = tail.stderr.read().decode()
        objects = [json.loads(line) for line in found]
        return [one["after"]["id"] for one in objects if one.get("op") == "read"], errors

    ids, errors = read(20)
    assert 0 < len(ids) < 999
    if not has_checkpoint:
        assert errors.endswith("the copy of the tables is not complete: begin again with --from snapshot\n")
        return
    assert errors.endswith(f"is not complete: resume with the same --checkpoint {path}\n")
    more, errors = read(999 - len(ids))
    assert "--from is ignored" not in errors
    assert sorted({*ids, *more}) == list(range(999))


@BOTH
def test_sql_that_follows_a_source_is_of_its_family(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, name VARCHAR(20))")
    with on_terminal("tail", server.dsn(), "--tables", f"{schema}.*", "--format", "sql") as terminal:
        terminal.wait_for("Ctrl-C stops")
        server.query(f"INSERT INTO {schema}.t VALUES (1, 'one')")
        terminal.wait_for(rf"INSERT INTO `{schema}`\.`t` \(`id`, `name`\) VALUES\s+\(1, 'one'\);\s+COMMIT;")
        terminal.press(CTRL_C)
        assert terminal.end() == 0


@BOTH
def test_the_demo_on_a_server(server: Server) -> None:
    [(before,)] = server.query("SELECT @@GLOBAL.binlog_row_metadata")
    output = io.BytesIO()
    console = Console(output, io.StringIO())
    paint = Paint(output)
    shown = Shown(paint)
    try:
        asyncio.run(asyncio.wait_for(demo.watch(server, shown, paint, console), SECONDS))
    finally:
        server.query("DROP DATABASE IF EXISTS shop")
        server.query(f"SET GLOBAL binlog_row_metadata = {before}")
    text = output.getvalue().decode()
    assert shown.statistics.with_rows >= 10
    for operation in ("insert", "update", "delete"):
        assert re.search(rf"^  {operation} shop\.orders  id=\d", text, re.MULTILINE)
    assert "ALTER TABLE shop.orders ADD COLUMN note" in text
    assert re.search(r"\d+ row changes in \d+ transactions", text)
