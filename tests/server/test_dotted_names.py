"""A schema whose name has a dot: its tables are selected exactly by names in backticks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

import replica
from tests.support.servers import Server


@pytest.fixture
def dotted(server: Server, schema: str) -> Iterator[tuple[str, str]]:
    """`` `x.y`.t ``, and beside it the table that ``x.y.t`` names."""
    other = f"{schema}.y"
    server.query(f"CREATE DATABASE `{other}`")
    try:
        for table in (f"`{other}`.t", f"{schema}.`y.t`"):
            server.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(9), secret INT)")
        yield other, schema
    finally:
        with contextlib.suppress(pymysql.err.Error):
            server.query(f"DROP DATABASE `{other}`")


async def test_tables_of_a_schema_with_a_dot(server: Server, dotted: tuple[str, str]) -> None:
    """No pattern selected only them, and their copy asked for columns that are not in columns=."""
    other, schema = dotted
    for table, value in ((f"`{other}`.t", "in x.y"), (f"{schema}.`y.t`", "in x")):
        server.query(f"INSERT INTO {table} VALUES (1, '{value}', 5), (2, 'b', 6)")
    found = {}
    for pattern in (f"`{other}`.t", f"{schema}.y.t", f"`{schema}`.`y.t`"):
        options: dict[str, Any] = {"snapshot_where": {pattern: "id = 1"}, "columns": {pattern: ["id", "v"]}}
        async with replica.connect(
            server.dsn(), start="snapshot", stop="now", tables=pattern, **options
        ) as stream:
            events = [event async for event in stream if isinstance(event, replica.SnapshotRowsEvent)]
        found[pattern] = [change.after for event in events for change in event.changes()]
    assert found == {
        f"`{other}`.t": [{"id": 1, "v": "in x.y"}],
        f"{schema}.y.t": [{"id": 1, "v": "in x"}],
        f"`{schema}`.`y.t`": [{"id": 1, "v": "in x"}],
    }
