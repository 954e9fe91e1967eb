"""Statistics of real logs: each figure against what the server was told to do, of its files and over a connection."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import replica
from replica import LogStatistics
from tests.support.servers import Server
from tests.support.terminal import CTRL_C, on_terminal

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log

_DATA = "/var/lib/mysql"


def work(server: Server, schema: str) -> None:
    """Two tables, transactions of several sizes, one that takes three seconds, a DDL that takes none."""
    server.query(f"CREATE TABLE {schema}.a (id INT PRIMARY KEY AUTO_INCREMENT, x VARCHAR(50))")
    server.query(f"CREATE TABLE {schema}.b (id INT PRIMARY KEY, doc TEXT)")
    for _ in range(5):
        server.query(f"INSERT INTO {schema}.a (x) VALUES ('ä'), (NULL)")
    server.query(f"INSERT INTO {schema}.a (x) SELECT x FROM {schema}.a")
    server.query(f"UPDATE {schema}.a SET x = 'y' WHERE id <= 3")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"INSERT INTO {schema}.b VALUES (1, '{{}}')")
        cursor.execute("SELECT SLEEP(3)")
        cursor.execute(f"DELETE FROM {schema}.a WHERE id <= 2")
        cursor.execute("COMMIT")
    server.query(f"ALTER TABLE {schema}.b ADD COLUMN y INT")


def check(statistics: LogStatistics, schema: str) -> None:
    counts = {
        table.name: (table.inserts, table.updates, table.deletes, table.transactions)
        for table in statistics.tables
        if table.schema == schema
    }
    assert counts == {"a": (20, 3, 2, 8), "b": (1, 0, 0, 1)}
    longest = statistics.longest[0]
    assert set(longest.tables) == {f"{schema}.a", f"{schema}.b"}
    assert (longest.rows, longest.seconds in (3, 4)) == (3, True)
    assert statistics.statements["ALTER TABLE"] == 1
    assert statistics.statements["CREATE TABLE"] == 2
    assert statistics.ddl[-1].sql == f"ALTER TABLE {schema}.b ADD COLUMN y INT"
    assert (statistics.unfinished, statistics.incidents) == (0, 0)


def recorded(server: Server, schema: str) -> tuple[str, bytes]:
    """The name and content of a log file that holds the work and nothing else of this test session's."""
    server.query("FLUSH BINARY LOGS")
    file = end_of_log(server).file
    work(server, schema)
    server.query("FLUSH BINARY LOGS")
    return file, server.read_file(f"{_DATA}/{file}")


def test_a_file(server: Server, schema: str) -> None:
    _, content = recorded(server, schema)
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(content), row_values=False) as log:
        statistics.add_all(log)
    check(statistics, schema)
    # The magic bytes are of no event.
    assert statistics.bytes == len(content) - 4
    assert sum(minute.transactions for minute in statistics.minutes) == statistics.transactions
    assert statistics.servers == {server.server_id: statistics.transactions}


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_compressed_transactions(server: Server, schema: str) -> None:
    server.query("SET GLOBAL binlog_transaction_compression = ON")
    try:
        _, content = recorded(server, schema)
    finally:
        server.query("SET GLOBAL binlog_transaction_compression = OFF")
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(content), row_values=False) as log:
        statistics.add_all(log)
    check(statistics, schema)
    assert statistics.bytes == len(content) - 4


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_lag_behind_another_server(server: Server, schema: str) -> None:
    """What a replica's log says of transactions that its source committed five seconds before."""
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    server.query("FLUSH BINARY LOGS")
    file = end_of_log(server).file
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SET original_commit_timestamp = CAST((UNIX_TIMESTAMP(NOW(6)) - 5) * 1000000 AS UNSIGNED)"
        )
        cursor.execute(f"INSERT INTO {schema}.t VALUES (1)")
    server.query(f"INSERT INTO {schema}.t VALUES (2)")
    content = server.read_file(f"{_DATA}/{file}")
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(content), row_values=False) as log:
        statistics.add_all(log)
    assert statistics.lag.count == 1
    assert 5 <= statistics.lag.maximum < 5 + SECONDS


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_a_source_up_to_now(server: Server, schema: str, tmp_path: Path) -> None:
    start = end_of_log(server)
    work(server, schema)
    page = tmp_path / "report.html"
    options = ["--from", str(start), "--format=json", "--html", str(page), "--tables", f"{schema}.*"]
    done = subprocess.run(
        [sys.executable, "-m", "replica", "stats", server.dsn(), *options],
        capture_output=True,
        check=True,
        timeout=SECONDS,
    )
    found = json.loads(done.stdout)
    assert found["rows"] == {"inserts": 21, "updates": 3, "deletes": 2, "rows": 26}
    assert {table["name"] for table in found["tables"]} == {"a", "b"}
    assert f"{schema}.a" in page.read_text()


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_following_a_source(server: Server, schema: str) -> None:
    """Ctrl-C ends it; what came until then is printed, with how far behind it was."""
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    command = [sys.executable, "-m", "replica", "stats", server.dsn(), "--follow", "--format=json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    async with asyncio.timeout(SECONDS):
        assert b"Ctrl-C stops and prints" in await process.stderr.readline()
        for number in range(3):
            server.query(f"INSERT INTO {schema}.t VALUES ({number})")
            # The status is looked at once a second.
            await asyncio.sleep(1.1)
        process.send_signal(signal.SIGINT)
        output, _ = await process.communicate()
    found = json.loads(output)
    assert process.returncode == 0
    assert found["rows"]["inserts"] == 3
    assert found["seconds_behind"]["count"] >= 1
    # The server is idle but for these rows: each is here as soon as it is committed.
    assert found["seconds_behind"]["last"] == 0
    assert found["seconds_behind"]["max"] < 1


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_counting_asks_for_no_names(server: Server, schema: str) -> None:
    """Also of a user who may not see the tables: nothing is looked up, and nothing is warned of."""
    start = end_of_log(server)
    work(server, schema)
    user = f"{schema}_count"
    server.query(f"CREATE USER {user}@'%' IDENTIFIED BY 'secret'")
    server.query(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@'%'")
    dsn = server.dsn(user=user, password="secret")
    done = subprocess.run(
        [sys.executable, "-m", "replica", "stats", dsn, "--from", str(start), "--tables", f"{schema}.*"],
        capture_output=True,
        check=True,
        timeout=SECONDS,
        text=True,
    )
    assert done.stderr == ""
    assert "26: 21 inserts" in done.stdout


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_what_is_known_while_it_runs(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT)")
    with on_terminal("stats", server.dsn(), "--follow", "--tables", f"{schema}.*") as terminal:
        terminal.wait_for("Ctrl-C stops and prints the counts")
        server.query(f"INSERT INTO {schema}.t VALUES (1), (2), (3)")
        terminal.wait_for(r"transactions?, 3 rows, [\d.]+ k?B, 0 ")
        terminal.press(CTRL_C)
        assert terminal.end() == 0
    assert "row changes  3: 3 inserts" in terminal.plain
