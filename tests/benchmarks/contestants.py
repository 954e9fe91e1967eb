"""The programs that read the logs. Each run is a new process, timed from its start to its end.

Readers in Python are processes of this machine; `mysqlbinlog` and `mariadb-binlog` run inside of a container, timed
there, so that what Docker takes to start a command is not counted. Live logs come to all of them through the port
that the source's container publishes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from testcontainers.core.container import DockerContainer

from tests.benchmarks.logs import Log
from tests.support.places import ROOT
from tests.support.servers import Server, ServerPool, run_in

Mode = Literal["file", "live"]

MARIADB_FOLDER = "/tmp"

# What -v prints for each row change.
_ROW_CHANGE = r"^### (INSERT INTO|UPDATE|DELETE FROM) "


class ContestantError(Exception):
    """A contestant cannot read a log; the message says why."""


@dataclass(frozen=True)
class Run:
    """One run. ``seconds`` are those of the whole process, ``read_seconds`` those behind its imports.

    ``cpu_seconds`` is the processor time of the process behind its imports.
    """

    seconds: float
    read_seconds: float = 0.0
    peak_kib: int = 0
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class Contestant:
    """``check`` is called once per log before any run, and raises ``ContestantError``, as ``run`` does."""

    name: str
    mode: Mode
    run: Callable[[Log], Run]
    check: Callable[[Log], None] = field(default=lambda log: None)

    def __str__(self) -> str:
        return f"{self.name} ({self.mode})"


def python_reader(name: str, log: Log, server: Server | None = None, *, all_rows: bool = True) -> Run:
    """Run one of ``readers`` over a log; ``all_rows`` says that it is to find each row change."""
    started = time.perf_counter()
    finished = subprocess.run(
        reader_command(name, log, server), cwd=ROOT, env=_environment(), capture_output=True, text=True
    )
    seconds = time.perf_counter() - started
    if finished.returncode:
        raise ContestantError((finished.stderr.strip().splitlines() or ["no message"])[-1])
    result = json.loads(finished.stdout)
    if all_rows and result["rows"] != log.row_changes:
        raise ContestantError(f"{result['rows']:,} of {log.row_changes:,} row changes")
    return Run(seconds, result["seconds"], result["peak_kib"], result["cpu_seconds"])


def _environment() -> dict[str, str]:
    """Modules are compiled once, as those of an installed package are; ``check`` has been the first to do so."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def reader_command(name: str, log: Log, server: Server | None = None) -> list[str]:
    """The command line of a reader."""
    setting: dict[str, Any] = {"path": str(log.path), "tables": log.workload.table_names}
    if server is not None:
        setting |= {"binlog": log.binlog, "end": log.size, "host": server.host, "port": server.port}
        setting |= {"user": server.replica_user, "password": server.replica_password}
    return [sys.executable, "-m", "tests.benchmarks.readers", name, json.dumps(setting)]


def contestants(pool: ServerPool, server: Server, mariadb: Server) -> list[Contestant]:
    """All of them; ours first."""

    def reader(name: str, title: str, mode: Mode) -> Contestant:
        source = server if mode == "live" else None
        return Contestant(title, mode, lambda log: python_reader(name, log, source))

    programs = pool.client_programs(server.name)
    remote = (
        f"MYSQL_PWD={server.replica_password} mysqlbinlog -v -c --read-from-remote-server --host={server.host}"
        f" --port={server.port} --user={server.replica_user} --ssl-mode=DISABLED --get-server-public-key {{binlog}}"
    )
    return [
        reader("ours_from_file", "mysql-replica", "file"),
        reader("ours_live", "mysql-replica", "live"),
        _tool("mysqlbinlog -v", "file", server.container, "mysqlbinlog -v -c /var/lib/mysql/{binlog}"),
        _tool(
            "mysqlbinlog -v, rows only",
            "file",
            server.container,
            "mysqlbinlog -v -c --base64-output=decode-rows /var/lib/mysql/{binlog}",
        ),
        _tool("mysqlbinlog -v", "live", programs, remote),
        _tool(
            "mariadb-binlog -v",
            "file",
            mariadb.container,
            f"mariadb-binlog -v -c {MARIADB_FOLDER}/{{binlog}}",
        ),
        reader("python_mysql_replication", "python-mysql-replication", "live"),
        reader("asyncmy", "asyncmy", "live"),
    ]


def _tool(name: str, mode: Mode, container: DockerContainer, command: str) -> Contestant:
    def run(log: Log) -> Run:
        timed = f"TIMEFORMAT=%R; {{ time {command.format(binlog=log.binlog)} >/dev/null; }} 2>&1"
        return Run(float(_in_container(container, timed).split()[-1]))

    def check(log: Log) -> None:
        counting = f"set -o pipefail; {command.format(binlog=log.binlog)} | grep -cE '{_ROW_CHANGE}'"
        rows = int(_in_container(container, counting))
        if rows != log.row_changes:
            raise ContestantError(f"{rows:,} of {log.row_changes:,} row changes")

    return Contestant(name, mode, run, check)


def _in_container(container: DockerContainer, script: str) -> bytes:
    try:
        return run_in(container, "bash", "-c", script)
    except RuntimeError as error:
        raise ContestantError(str(error)) from error
