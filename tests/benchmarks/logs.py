"""The logs of the benchmarks: written once by a real server, kept in `.cache/bench`, then served by another.

A log is one binlog file as the server wrote it. A server that is to serve logs gets copies of the files in place of
its own, and the tables that they speak of, since some replicas ask for them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.workloads import SCHEMA, Share, Workload
from tests.support.places import ROOT
from tests.support.servers import Server, ServerPool

IMAGE = "mysql:9.7"
# Names, labels and keys in the log: one of the peers has column names only from there.
SERVER_ARGUMENTS = (
    *("--binlog-row-metadata=FULL", "--max-binlog-size=1G", "--innodb-doublewrite=OFF"),
    # A log in the cache may be old.
    "--binlog-expire-logs-seconds=0",
    # What the rows say of instants is to be the same everywhere.
    "--default-time-zone=+00:00",
)
CACHE = ROOT / ".cache" / "bench"
_DATA = "/var/lib/mysql"
_FIRST_NUMBER = 101


@dataclass(frozen=True)
class Log:
    """A log in the cache. ``binlog`` is the name under which the server has it."""

    workload: Workload
    path: Path
    row_changes: int
    binlog: str

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def size(self) -> int:
        return self.path.stat().st_size


def cached_logs(pool: ServerPool, workloads: Sequence[Workload], share: Share) -> list[Log]:
    """The workloads' logs with one ``share``th of their rows; what is missing is written by a server of its own."""
    CACHE.mkdir(parents=True, exist_ok=True)
    logs = [
        Log(
            workload,
            CACHE / f"{_kept_as(workload, share)}-{_digest(workload)}.binlog",
            workload.row_changes(share),
            f"binlog.{_FIRST_NUMBER + index:06d}",
        )
        for index, workload in enumerate(workloads)
    ]
    missing = [log for log in logs if not log.path.exists()]
    if missing:
        server = pool.start(IMAGE, *SERVER_ARGUMENTS)
        try:
            create_tables(server, (log.workload for log in missing))
            for log in missing:
                _write_log(server, log, share)
        finally:
            pool.stop(server.container)
    return logs


def serving_server(pool: ServerPool, logs: Sequence[Log]) -> Server:
    """A server whose binary logs are these, under their names, and an empty last one of its own."""
    server = pool.start(IMAGE, *SERVER_ARGUMENTS)
    create_tables(server, (log.workload for log in logs))
    owner = server.exec("stat", "--format=%u %g", _DATA).split()
    container = server.container.get_wrapped_container()
    container.stop()
    index = "".join(f"./{log.binlog}\n" for log in logs).encode()
    put_files(server, _DATA, {log.binlog: log.path.read_bytes() for log in logs}, owner)
    put_files(server, _DATA, {"binlog.index": index}, owner)
    container.start()
    server.wait_until_ready()
    return server


def put_files(
    server: Server, folder: str, files: dict[str, bytes], owner: Sequence[bytes] = (b"0", b"0")
) -> None:
    """Copy files into a server's container."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            entry.uid, entry.gid = (int(number) for number in owner)
            tar.addfile(entry, io.BytesIO(data))
    if not server.container.get_wrapped_container().put_archive(folder, archive.getvalue()):
        raise RuntimeError(f"no files could be put into {server.name}:{folder}")


def create_tables(server: Server, workloads: Iterable[Workload]) -> None:
    """The workloads' tables and the numbers to fill them from, unlogged."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute(f"CREATE DATABASE {SCHEMA}")
        cursor.execute(f"CREATE TABLE {SCHEMA}.numbers (n INT PRIMARY KEY)")
        cursor.executemany(f"INSERT INTO {SCHEMA}.numbers VALUES (%s)", [(n,) for n in range(10_000)])
        for workload in workloads:
            for table in workload.tables:
                cursor.execute(table)


def _kept_as(workload: Workload, share: Share) -> str:
    return f"{workload.name}-{str(share).replace('/', 'of')}"


def _digest(workload: Workload) -> str:
    """Changes when the log would."""
    return hashlib.sha256(repr((IMAGE, SERVER_ARGUMENTS, workload)).encode()).hexdigest()[:12]


def _write_log(server: Server, log: Log, share: Share) -> None:
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOG STATUS")
        status = cursor.fetchone()
        assert status is not None
        for fill in log.workload.fills:
            for statement in fill.statements(share):
                cursor.execute(statement)
        cursor.execute("FLUSH BINARY LOGS")
    for stale in CACHE.glob(f"{_kept_as(log.workload, share)}-*.binlog"):
        stale.unlink()
    # Renamed when it is whole: a run that is killed leaves no half a log.
    partial = log.path.with_suffix(".partial")
    partial.write_bytes(_get_file(server, f"{_DATA}/{status[0]}"))
    partial.rename(log.path)


def _get_file(server: Server, path: str) -> bytes:
    chunks, _ = server.container.get_wrapped_container().get_archive(path)
    with (
        contextlib.closing(io.BytesIO(b"".join(chunks))) as archive,
        tarfile.open(fileobj=archive, mode="r") as tar,
    ):
        file = tar.extractfile(Path(path).name)
        assert file is not None
        return file.read()
