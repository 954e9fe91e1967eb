"""The README's samples run as they are printed, and its SQL makes a user who can do what it says."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from pymysql.cursors import Cursor

import replica
from tests.support.places import ROOT
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS

README = ROOT / "README.md"


def wait_for_replica(cursor: Cursor) -> None:
    deadline = time.monotonic() + 30
    while not cursor.execute("SHOW REPLICAS"):
        assert time.monotonic() < deadline, "the sample did not register"
        time.sleep(0.05)


def test_first_sample(mysql97: Server, tmp_path: Path) -> None:
    text = README.read_text()
    sample = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert sample is not None
    assert text[: sample.end()].count("\n") < 40
    script = tmp_path / "sample.py"
    script.write_text(sample[1])
    with mysql97.connect() as connection, connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS shop")
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.orders (id INT PRIMARY KEY, status VARCHAR(20))")
        process = subprocess.Popen(
            [sys.executable, str(script), mysql97.dsn()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=README.parent,
        )
        try:
            assert process.stdout is not None
            # Where "now" is has been settled before the sample registers as a replica.
            wait_for_replica(cursor)
            cursor.execute("INSERT INTO shop.orders VALUES (1, 'new')")
            cursor.execute("UPDATE shop.orders SET status = 'paid'")
            cursor.execute("DELETE FROM shop.orders")
            connection.commit()
            lines = [process.stdout.readline().rstrip() for _ in range(3)]
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=SECONDS) == ("", "")
            assert process.returncode == 0
        finally:
            process.kill()
            process.communicate()
            cursor.execute("DROP DATABASE shop")
    new, paid = "{'id': 1, 'status': 'new'}", "{'id': 1, 'status': 'paid'}"
    assert lines == [
        f"insert shop.orders None {new}",
        f"update shop.orders {new} {paid}",
        f"delete shop.orders {paid} None",
    ]


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_second_sample(
    server: Server, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins with what the tables hold, and goes on where its checkpoint says, as the user of the README's SQL."""
    text = README.read_text()
    sample = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[1].replace("shop.*", f"{schema}.*")
    body = textwrap.indent(sample.replace("...", "seen.append(change)"), "    ")
    names: dict[str, Any] = {"replica": replica}
    exec(f"async def run(dsn, seen):\n{body}", names)
    monkeypatch.chdir(tmp_path)
    [statements] = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    statements = statements.replace("repl@", f"repl_{schema}@").replace("shop.*", f"{schema}.*")
    if server.family == "mariadb":
        statements = statements.replace("REPLICATION CLIENT", "BINLOG MONITOR")
    server.query(f"CREATE TABLE {schema}.orders (id INT PRIMARY KEY, status VARCHAR(20))")
    server.query(f"INSERT INTO {schema}.orders VALUES (1, 'new'), (2, 'paid')")
    # Without GTIDs changes from the current log file come first: there are none.
    server.query("FLUSH BINARY LOGS")
    try:
        for statement in statements.splitlines():
            server.query(statement.partition(";")[0])
        dsn = server.dsn(f"repl_{schema}", "secret") + "?stop=now"
        for wanted in ([("read", "new"), ("read", "paid")], [("insert", "sent")], [("insert", "back")]):
            seen: list[replica.Change] = []
            if wanted[0][0] == "insert":
                server.query(
                    f"INSERT INTO {schema}.orders SELECT MAX(id) + 1, '{wanted[0][1]}' FROM {schema}.orders"
                )
            async with asyncio.timeout(SECONDS):
                await names["run"](dsn, seen)
            assert [(change.op, change.after and change.after["status"]) for change in seen] == wanted
    finally:
        server.query(f"DROP USER repl_{schema}@'%'")
