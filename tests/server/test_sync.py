"""Streams without asyncio on real servers: rows, transactions and stored checkpoints."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pymysql
import pytest

import replica.sync
from protocol.errors import ConfigurationError
from replica import (
    FileCheckpointStore,
    RowsEvent,
    SnapshotCompleteEvent,
    SnapshotRowsEvent,
    WriteRowsEvent,
)
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, PASSWORD, end_of_log, user_of


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_a_stored_checkpoint_goes_on(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    start = end_of_log(server)
    for number in range(10):
        server.query(f"INSERT INTO {schema}.t VALUES ({number})")
    store = FileCheckpointStore(tmp_path / "ckpt")
    seen: list[int] = []
    for most in (5, 10):
        with replica.sync.connect(
            server.dsn(), start=start, tables=f"{schema}.*", checkpoints=store, checkpoint_interval=0
        ) as stream:
            for tx in stream.transactions():
                if len(seen) == most:
                    break
                seen += [change.after["a"] for change in tx.collect() if change.op == "insert"]
                if len(seen) == 10:
                    break
    assert seen == list(range(10))


def test_a_connection_that_is_killed(server: Server, schema: str) -> None:
    """Five times, in the middle of rows: none is lost, none comes twice."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    start, seen = end_of_log(server), list[int]()
    with user_of(server) as user:
        dsn = server.dsn(user, PASSWORD)
        with replica.sync.connect(dsn, start=start, tables=f"{schema}.*", heartbeat=1) as stream:
            for number in range(50):
                server.query(f"INSERT INTO {schema}.t VALUES ({2 * number}), ({2 * number + 1})")
            for event in stream:
                if isinstance(event, WriteRowsEvent):
                    seen += [change.after["a"] for change in event.changes() if change.op == "insert"]
                    if len(seen) % 20 == 10:
                        kill_dumps(server, user)
                        # What has arrived is handed out first, so the loss shows at the next rows.
                        server.query(f"INSERT INTO {schema}.t VALUES ({1000 + len(seen)})")
                if sum(number < 1000 for number in seen) == 100 and stream.status.reconnects:
                    break
    assert [number for number in seen if number < 1000] == list(range(100))
    assert len(set(seen)) == len(seen)


def kill_dumps(server: Server, user: str) -> None:
    """End the connections of a user that send the log."""
    rows = server.query(
        f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}' AND COMMAND LIKE 'Binlog Dump%'"
    )
    for (number,) in rows:
        with contextlib.suppress(pymysql.MySQLError):
            server.query(f"KILL {number}")


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_up_to_now(server: Server, schema: str) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2), (3)")
    with replica.sync.connect(server.dsn(), start=start, stop="now", tables=f"{schema}.*") as stream:
        rows = [row for event in stream if isinstance(event, RowsEvent) for row in event.changes()]
    assert [change.after for change in rows] == [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_a_copy_while_the_stream_runs(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2)")
    found = list[int]()
    with replica.sync.connect(server.dsn(), tables=f"{schema}.*", heartbeat=1) as stream:
        with pytest.raises(ConfigurationError, match="left out"):
            stream.snapshot("mysql.user")
        stream.snapshot(f"{schema}.t")
        server.query(f"INSERT INTO {schema}.t VALUES (3)")
        for event in stream:
            if isinstance(event, RowsEvent | SnapshotRowsEvent):
                found += [change.after["a"] for change in event.changes() if change.op in ("insert", "read")]
            elif isinstance(event, SnapshotCompleteEvent):
                break
    assert sorted(set(found)) == [1, 2, 3]
