"""Streams without asyncio on real servers: rows, transactions and stored checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

import replica.sync
from replica import FileCheckpointStore, RowsEvent
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, end_of_log


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


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
def test_up_to_now(server: Server, schema: str) -> None:
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2), (3)")
    with replica.sync.connect(server.dsn(), start=start, stop="now", tables=f"{schema}.*") as stream:
        rows = [row for event in stream if isinstance(event, RowsEvent) for row in event.changes()]
    assert [change.after for change in rows] == [{"a": 1}, {"a": 2}, {"a": 3}]
