"""Tables copied into Delta on Spark, side by side: `python -m tests.benchmarks.spark_copy [ROWS ROWS]`.

Ours is the first copy of `mirror`; the peer is PyMySQL in `mapInPandas` over ranges of the key, and Spark's
writer of Parquet. Both read with as many connections as there are processors. The tables are those of the bulk
workload, with 4 columns (20 million rows) and 19 columns (3 million). It is no part of the test suite.

Measured on 2 cores with the server beside, in a warm session, driver 226 to 240 MB, 2 connections. The server holds
the tables in memory: it reads no page of the disk in any of the runs.

    20 million clicks (4.0 GB)     17.4 s (1,151,000 rows/s) against 75.5 s of the peer: 4.3 times
    3 million orders (0.9 GB)      12.4 to 17.1 s (175,000 to 242,000 rows/s) against 76.8 s: 4.5 to 6.2 times

With other work beside, ours took up to 22.2 s, and the peer 117. The first copy of a session takes 10 s more. For the
clicks the machine spent 33 s of processor, against 149: the two tasks 14.4, the server 6.5, Docker's proxy 3.1, the
JVM 2.6. What bounds it is the two processors.
"""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pymysql
import pymysql.cursors

from replica.spark.jobs import mirror
from replica.spark.jobs.spark_session import Pace, await_queries, session_for
from tests.benchmarks.logs import create_tables
from tests.benchmarks.workloads import COMPARED, SCHEMA
from tests.support.servers import Server, ServerPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = {"clicks": 20_000_000, "orders": 3_000_000}
_READERS = 2
#: The peer hands so many rows to Spark at a time.
_BATCH = 10_000


def main(rows: dict[str, int]) -> None:
    """Fill the tables, and copy each of them twice by both."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with closing(ServerPool()) as pool, tempfile.TemporaryDirectory() as folder:
        server = pool.start("mysql:9.7", "--innodb-buffer-pool-size=6G")
        _fill(server, rows)
        with session_for("copies", f"local[{_READERS}]") as spark:
            for table in rows:
                for number in range(2):
                    for name in (_ours, _peer)[:: -1 if number else 1]:
                        target = Path(folder, "lake")
                        connections = _Connections(server)
                        with connections:
                            begun = time.monotonic()
                            name(spark, server, table, target)
                            seconds = time.monotonic() - begun
                        print(
                            f"{table} {name.__name__}: {seconds:.1f} s, {rows[table] / seconds:,.0f} rows/s, driver "
                            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB, {connections.most} "
                            "connections at most",
                            flush=True,
                        )
                        shutil.rmtree(target)


class _Connections:
    """Counts the connections of the two users to the source, ten times a second.

    Without those that send the log: the server sees only when it has something to send that a query has ended.
    """

    def __init__(self, server: Server) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, args=(server,))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self, server: Server) -> None:
        counted = (
            "SELECT COUNT(*) FROM performance_schema.processlist WHERE USER IN ('root', %s) AND COMMAND NOT LIKE "
            "'Binlog Dump%%'"
        )
        with server.connect() as connection, connection.cursor() as cursor:
            while not self._over.wait(0.1):
                cursor.execute(counted, (server.replica_user,))
                # One of them is this one.
                self.most = max(self.most, int((cursor.fetchone() or [1])[0]) - 1)


def _ours(spark: SparkSession, server: Server, table: str, target: Path) -> None:
    secret = target.with_name("password")
    secret.write_text(server.replica_password)
    source = {
        "host": server.host,
        "port": str(server.port),
        "user": server.replica_user,
        "passwordFile": str(secret),
        # As PyMySQL does by default.
        "tls": "disabled",
        "getServerPublicKey": "true",
        "includeTables": f"{SCHEMA}.{table}",
        "snapshotParallelism": str(_READERS),
    }
    await_queries(mirror.start(spark, source, str(target), pace=Pace(once=True)))


def _peer(spark: SparkSession, server: Server, table: str, target: Path) -> None:
    login: dict[str, Any] = {"host": server.host, "port": server.port, "database": SCHEMA}
    login |= {"user": "root", "password": server.root_password}
    largest = int(server.query(f"SELECT MAX(id) FROM {SCHEMA}.{table}")[0][0])
    with pymysql.connect(**login) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        names = [column[0] for column in cursor.description or ()]
    kinds = {
        "id": "bigint",
        "account": "bigint",
        "customer": "bigint",
        "clicked": "timestamp",
        "token": "binary",
    }
    schema = ", ".join(f"`{name}` {kinds.get(name, 'string')}" for name in names)
    count = max(_READERS, largest // 500_000)

    def read(frames: Iterator[Any]) -> Iterator[Any]:
        pandas = importlib.import_module("pandas")
        for frame in frames:
            for number in frame["id"]:
                low, high = (largest * part // count for part in (number, number + 1))
                for rows in _rows(login, table, low, high):
                    found = pandas.DataFrame(rows, columns=names)
                    for name in names:
                        if name not in kinds:
                            found[name] = found[name].astype(str)
                    yield found

    spark.range(0, count, 1, count).mapInPandas(read, schema).write.parquet(str(target))


def _rows(login: dict[str, Any], table: str, low: int, high: int) -> Iterator[list[tuple[Any, ...]]]:
    with (
        pymysql.connect(**login) as connection,
        connection.cursor(pymysql.cursors.SSCursor) as cursor,
    ):
        cursor.execute(f"SELECT * FROM {table} WHERE id > {low} AND id <= {high}")
        while rows := cursor.fetchmany(_BATCH):
            yield list(rows)


def _fill(server: Server, rows: dict[str, int]) -> None:
    bulk = COMPARED[0]
    create_tables(server, [bulk])
    with server.connect() as connection, connection.cursor() as cursor:
        for fill in bulk.fills:
            if fill.statement.startswith("INSERT"):
                for statement in fill.statements(1):
                    cursor.execute(statement)
        for table, wanted in rows.items():
            cursor.execute(f"SHOW COLUMNS FROM {SCHEMA}.{table}")
            names = ", ".join(f"`{row[0]}`" for row in cursor.fetchall() if row[0] != "id")
            cursor.execute(f"SELECT COUNT(*) FROM {SCHEMA}.{table}")
            [count] = cursor.fetchone() or (0,)
            # The log of this would take as long again.
            cursor.execute("SET SESSION sql_log_bin = 0")
            while count < wanted:
                cursor.execute(f"SELECT MAX(id) FROM {SCHEMA}.{table}")
                [largest] = cursor.fetchone() or (0,)
                count += cursor.execute(
                    f"INSERT INTO {SCHEMA}.{table} (id, {names}) SELECT id + {largest} + 1, {names} FROM "
                    f"{SCHEMA}.{table} ORDER BY id LIMIT {min(wanted - count, 500_000)}"
                )
                connection.commit()


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(dict(zip(_ROWS, given or _ROWS.values(), strict=True)))
