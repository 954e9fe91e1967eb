"""Commits a numbered workload with one PyMySQL connection, and goes on where it was when the server has died.

What was committed the server itself says: every transaction writes its last number into one row of a table. Runs in a
thread of its own (`asyncio.to_thread(writer.run)`).
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pymysql

from tests.support.servers import Server

from .workload import PROGRESS, TABLES, Run, Transaction, Workload, row_of

_RECONNECT_SECONDS = 60
_LIMIT_POLL_SECONDS = 0.01
_DEAD = (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError)


class Writer:
    """`committed` is the number of the last change known to be committed; `reconnects` counts connections lost.

    `pause` seconds are slept after each transaction, and once the change `limit` is committed the writer waits; both
    may be changed while it runs.
    """

    def __init__(self, server: Server, schema: str, workload: Workload, pause: float = 0) -> None:
        self.server = server
        self.committed = 0
        self.reconnects = 0
        self.workload = workload
        self.pause = pause
        self.limit = workload.changes
        self._schema = schema
        self._stopped = threading.Event()
        self._ends = {0: 0} | {done.end: i + 1 for i, done in enumerate(workload.transactions)}

    def create_tables(self) -> None:
        for table, columns in TABLES.items():
            numbers = "n INT NOT NULL PRIMARY KEY, touched INT NOT NULL"
            self.server.query(f"CREATE TABLE {self._schema}.{table} ({numbers}, {columns}) ENGINE=InnoDB")
        self.server.query(f"CREATE TABLE {self._schema}.{PROGRESS} (id INT PRIMARY KEY, n INT) ENGINE=InnoDB")
        self.server.query(f"INSERT INTO {self._schema}.{PROGRESS} VALUES (1, 0)")

    def stop(self) -> None:
        """Make `run()` return before its next transaction."""
        self._stopped.set()

    def run(self) -> None:
        """Write the whole workload."""
        connection: pymysql.Connection[Any] | None = None
        transactions = self.workload.transactions
        done = 0
        while done < len(transactions) and not self._stopped.is_set():
            try:
                if connection is None:
                    connection = self._connect()
                    done = self._ends[self._read_progress(connection)]
                    continue
                if self.committed >= self.limit:
                    self._stopped.wait(_LIMIT_POLL_SECONDS)
                    continue
                self._write(connection, transactions[done])
            except _DEAD:
                self.reconnects += 1
                connection = None
                continue
            done += 1
            self.committed = transactions[done - 1].end
            self._stopped.wait(self.pause)
        if connection is not None:
            connection.close()

    def assert_all_is_there(self) -> None:
        """The server holds exactly what the workload leaves behind."""
        for table, rows in self.workload.final_rows().items():
            assert self.server.query(f"SELECT n, touched FROM {self._schema}.{table} ORDER BY n") == rows, (
                table
            )

    def _connect(self) -> pymysql.Connection[Any]:
        deadline = time.monotonic() + _RECONNECT_SECONDS
        while True:
            try:
                return self.server.connect(autocommit=False, database=self._schema)
            except _DEAD:
                if time.monotonic() > deadline or self._stopped.is_set():
                    raise
                time.sleep(0.05)

    def _read_progress(self, connection: pymysql.Connection[Any]) -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT n FROM {PROGRESS}")
            row = cursor.fetchone()
        connection.rollback()
        assert row is not None
        return int(row[0])

    def _write(self, connection: pymysql.Connection[Any], transaction: Transaction) -> None:
        with connection.cursor() as cursor:
            if transaction.rotates:
                cursor.execute("FLUSH BINARY LOGS")
                # DDL between transactions. A table might be half there when MySQL 5.6 is killed just now.
                cursor.execute("CREATE OR REPLACE VIEW passing AS SELECT 1")
                cursor.execute("DROP VIEW IF EXISTS passing")
            if transaction.is_repeated:
                for run in transaction.runs[: len(transaction.runs) // 2 + 1]:
                    cursor.execute(_statement(run))
                connection.rollback()
            for run in transaction.runs:
                if transaction.is_repeated:
                    # The savepoint is logged; what was rolled back to it is not, and comes again.
                    cursor.execute("SAVEPOINT before_run")
                    cursor.execute(_statement(run))
                    cursor.execute("ROLLBACK TO SAVEPOINT before_run")
                cursor.execute(_statement(run))
            cursor.execute(f"UPDATE {PROGRESS} SET n = {transaction.end}")
        connection.commit()


def _statement(run: Run) -> str:
    if run.operation == "insert":
        rows = (f"({', '.join(map(_literal, row_of(run.table, n, 0)))})" for n in run.rows)
        return f"INSERT INTO {run.table} VALUES {', '.join(rows)}"
    span = f"WHERE n BETWEEN {run.rows[0]} AND {run.rows[-1]} ORDER BY n"
    if run.operation == "update":
        return f"UPDATE {run.table} SET touched = {run.number} {span}"
    return f"DELETE FROM {run.table} {span}"


def _literal(value: int | str | None) -> str:
    # The workload's texts need no escaping.
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)
