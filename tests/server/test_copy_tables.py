"""``mysql-replica copy``: files have the state of one place, under writers and kills, and a stream goes on there."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import replica
from tests.faults.waiting import until
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, stream_of, user_of
from tests.server.support.streams import PASSWORD as USER_PASSWORD
from tests.support.exported_files import exported_rows
from tests.support.servers import Server
from tests.support.terminal import on_terminal

ROWS = 4000
SEED = 1
FORMATS = {"mysql:9.7": "parquet", "mysql:5.6": "jsonl", "mariadb:10.11": "csv", "mariadb:11.8": "parquet"}


def copy_command(server: Server, folder: Path, *arguments: str, user: str | None = None) -> list[str]:
    dsn = server.dsn() if user is None else server.dsn(user, USER_PASSWORD)
    options = "?snapshot_chunk_rows=100"
    return [sys.executable, "-m", "replica", "copy", dsn + "/" + options, "--to", str(folder), *arguments]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)


def stop_at_work(command: list[str], folder: Path, number: signal.Signals) -> int:
    """Send a signal to a copy when it has begun two more files; its exit code."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    before, deadline = _newest_part(folder), time.monotonic() + SECONDS
    try:
        while _newest_part(folder) < before + 2:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        return process.wait(SECONDS)
    finally:
        process.kill()
        process.communicate()


def _newest_part(folder: Path) -> int:
    names = [path.name for path in (folder / ".copy").glob("part-*")]
    return max((int(name[5:11]) for name in names), default=0)


def kept_of(folder: Path, schema: str) -> Kept:
    kept = Kept({"t": ("id",)})
    rows = exported_rows(folder, f"{schema}.t")
    kept.rows["t"] = {
        (int(row["id"]),): {"id": int(row["id"]), "a": int(row["a"]), "b": row["b"]} for row in rows
    }
    assert len(kept.rows["t"]) == len(rows), "a row came twice"
    return kept


async def follow(server: Server, folder: Path, kept: Kept, **options: Any) -> None:
    store = replica.FileCheckpointStore(folder / "checkpoint.json")
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, checkpoints=store, stop="now", **options) as stream,
    ):
        async for tx in stream.transactions():
            await kept.take(tx)


async def test_an_export_under_writers_is_the_state_of_its_place(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """It is killed, and stopped by SIGTERM. Each change that follows agrees with what the files have."""
    make_table(server, schema, "t", ROWS)
    server.query("FLUSH BINARY LOGS")
    folder = tmp_path / "export"
    command = copy_command(server, folder, "--tables", f"{schema}.*", "--format", FORMATS[server.name])
    with Writers(server, f"{schema}.t", 2 * ROWS, pause=0.002).run(2, SEED) as writers:
        for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 130)):
            several = [*command, "--file-rows", "500"]
            assert await asyncio.to_thread(stop_at_work, several, folder, number) == code
        writers.front = ROWS
        done = await asyncio.to_thread(run, [*command, "--file-rows", "2000"])
        assert done.returncode == 0, done.stderr
        at_end = writers.transactions
        await until(lambda: writers.transactions >= at_end + 50, seconds=SECONDS)
    assert "going on with the copy" in done.stderr
    assert not (folder / ".copy").exists()
    kept = kept_of(folder, schema)
    assert f"{len(kept.rows['t']):>14,}  {schema}.t\n" == done.stdout
    await follow(server, folder, kept, tables=f"{schema}.*")
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []
    again = run(command)
    assert again.returncode == 2
    assert "holds a finished export" in again.stderr


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_a_copy_of_nothing_is_refused(server: Server, tmp_path: Path) -> None:
    """It waited for ever: the stream beneath follows what is created later."""
    result = run(copy_command(server, tmp_path / "out", "--exclude-tables", "*.*"))
    assert result.returncode == 2, result.stderr
    assert "there is nothing to copy" in result.stderr


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_tail_goes_on_from_an_export(server: Server, schema: str, tmp_path: Path) -> None:
    """An empty table, awkward names and values, as the least privileged user, on a terminal of 80 columns."""
    server.query(
        f"CREATE TABLE {schema}.`a/b ü` (x VARCHAR(9) NOT NULL, y INT NOT NULL, n INT, UNIQUE (x, y))"
    )
    server.query(f"INSERT INTO {schema}.`a/b ü` VALUES ('a\\nb', 1, NULL), ('\"q\"', 2, 3), ('', 3, NULL)")
    server.query(f"CREATE TABLE {schema}.empty (id INT PRIMARY KEY, v BLOB)")
    folder = tmp_path / "export"
    with user_of(server, "SELECT, REPLICATION SLAVE, REPLICATION CLIENT") as user:
        command = copy_command(server, folder, "--tables", f"{schema}.*", "--format", "csv", user=user)
        with on_terminal(*command[3:]) as terminal:
            assert terminal.end() == 0
    text = re.sub(r".*\r(?!\n)", "", terminal.plain)
    assert re.search(rf"^ +3  {schema}\.a/b ü\r?$", text, re.MULTILINE), text
    assert "2 tables, 3 rows as of the place in" in text
    rows = exported_rows(folder, f"{schema}.a%2Fb %C3%BC")
    assert sorted(rows, key=lambda row: row["x"]) == [
        {"x": "", "y": "3", "n": ""},
        {"x": '"q"', "y": "2", "n": "3"},
        {"x": "a\nb", "y": "1", "n": ""},
    ]
    files = b"".join(path.read_bytes() for path in (folder / f"{schema}.a%2Fb %C3%BC").iterdir())
    assert b'"x","y","n"\n' in files
    assert b'\n"",3,\n' in files
    assert (folder / f"{schema}.empty" / "part-00000.csv").read_bytes() == b'"id","v"\n'
    server.query(f"INSERT INTO {schema}.empty VALUES (7, 'later')")
    tail = [sys.executable, "-m", "replica", "tail", server.dsn(), "--stop", "now", "--changes"]
    done = run([*tail, "--tables", f"{schema}.*", "--checkpoint", str(folder / "checkpoint.json")])
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if '"op": "insert"' in line and '"id": 7' in line]
    assert len(done.stdout.splitlines()) == 1
