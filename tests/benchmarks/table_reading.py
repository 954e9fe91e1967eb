"""Whole tables read by SELECT, side by side: this library, PyMySQL and mysqldump, in alternating rounds.

The tables are those of the bulk workload, with 4 and 19 columns. Clients in Python are processes of this machine;
mysqldump runs inside of a container, comes through the same published port, and writes to nowhere. Seconds are those
from connecting to the last row; seconds of processor are the client's own, so that a busy machine says less about
them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from statistics import median
from typing import Final

from testcontainers.core.container import DockerContainer

from tests.benchmarks.logs import create_tables
from tests.benchmarks.workloads import COMPARED, SCHEMA, Share
from tests.support.places import ROOT
from tests.support.servers import Server, ServerPool, run_in

PEER: Final = "pymysql_tuples"
DUMP: Final = "mysqldump"
CONTESTANTS: Final = ("ours_tuples", "ours_arrow", PEER, DUMP)
_SERVER_ARGUMENTS: Final = ("--skip-log-bin", "--innodb-buffer-pool-size=512M")

# Seconds, seconds of the client's processor, rows.
Run = tuple[float, float, int]


def benchmark(pool: ServerPool, share: Share, rounds: int) -> Iterator[str]:
    """The lines of a Markdown table."""
    server = pool.start("mysql:9.7", *_SERVER_ARGUMENTS)
    tables = _fill(server, share)
    programs = pool.client_programs(server.name)
    yield "| table | reader | rows/s | times PyMySQL | processor, times PyMySQL | time, times mysqldump |"
    yield "|---|---|--:|--:|--:|--:|"
    for table in tables:
        runs: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
        for number in range(rounds):
            for name in CONTESTANTS[:: -1 if number % 2 else 1]:
                run = _dump(programs, server, table) if name == DUMP else _read(server, name, table)
                runs[name].append(run)
        yield from _lines(table, runs)


def _lines(table: str, runs: dict[str, list[Run]]) -> Iterator[str]:
    seconds = {name: median(run[0] for run in of) for name, of in runs.items()}
    processor = {name: median(run[1] for run in of) for name, of in runs.items()}
    rows = runs[PEER][0][2]
    for name in CONTESTANTS:
        yield (
            f"| {table} | {name} | {rows / seconds[name]:,.0f} | {seconds[PEER] / seconds[name]:.1f} "
            f"| {processor[PEER] / processor[name]:.1f} | {seconds[name] / seconds[DUMP]:.2f} |"
        )


def _read(server: Server, name: str, table: str) -> Run:
    setting = {"host": server.host, "port": server.port, "user": "root", "password": server.root_password}
    setting |= {"schema": SCHEMA, "table": table}
    command = [sys.executable, "-m", "tests.benchmarks.table_readers", name, json.dumps(setting)]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    result = json.loads(output)
    return result["seconds"], result["cpu_seconds"], result["rows"]


def _dump(programs: DockerContainer, server: Server, table: str) -> Run:
    way = f"--host={server.host} --port={server.port} -uroot --ssl-mode=DISABLED --get-server-public-key"
    dump = f"mysqldump --single-transaction --no-tablespaces {way} {SCHEMA} {table} >/dev/null"
    script = f"export MYSQL_PWD={server.root_password} TIMEFORMAT='%R %U'; {{ time {dump}; }} 2>&1"
    seconds, processor = run_in(programs, "bash", "-c", script).decode().split()[-2:]
    return float(seconds), float(processor), 0


def _fill(server: Server, share: Share) -> list[str]:
    """The tables as their inserts leave them; their names."""
    bulk = COMPARED[0]
    create_tables(server, [bulk])
    with server.connect() as connection, connection.cursor() as cursor:
        for fill in bulk.fills:
            if fill.statement.startswith("INSERT"):
                for statement in fill.statements(share):
                    cursor.execute(statement)
    return [name.rpartition(".")[2] for name in bulk.table_names]
