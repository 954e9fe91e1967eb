"""A stream whose driver moves to another machine: names of the past are in ``spoolDir``, if that is a URI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from protocol.errors import SchemaMismatchError
from replica.spark.piece_sender import schemas_copy
from replica.spark.source_options import parse_options
from tests.server.support.clusters import BUCKET
from tests.server.support.spark_readers import ALL, Json, Readers, batch
from tests.server.support.streams import begin_log, end_of_log
from tests.support.servers import Server

# At their defaults, the logs of both have no names.
pytestmark = pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)


@pytest.fixture
def table(server: Server) -> Iterator[str]:
    begin_log(server)
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(9), b VARCHAR(9))")
        yield f"{schema}.t"


@pytest.fixture(params=["disk", "s3"])
def spool(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """``spoolDir``, and what is needed to get there."""
    if request.param == "disk":
        return {"spoolDir": f"file://{tmp_path}/shared"}
    options = request.getfixturevalue("store")
    return {"spoolDir": f"s3://{BUCKET}/{tmp_path.name}", "storageOptions": json.dumps(options)}


class Query:
    """One query, whose driver runs on one machine after another; each has a disk of its own."""

    def __init__(self, server: Server, table: str, folder: Path, **more: str) -> None:
        self._server, self._folder = server, folder
        self._more = {"includeTables": table, "rowFormat": "json", **more}
        self._offset: Json | None = None

    def run(self, machine: str, *, is_killed: bool = False) -> list[dict[str, Any]]:
        """All rows that are there now, by the columns' names; not committed if the driver is killed before that."""
        with closing(Readers(self._folder / machine)) as readers:
            reader = readers(self._server, spoolCache=self._folder / machine, **self._more)
            if self._offset is None:
                self._offset = reader.latestOffset(reader.initialOffset(), ALL)
                return []
            reader.prepareForTriggerAvailableNow()
            start, rows = self._offset, []
            while (end := reader.latestOffset(start, ALL)) != start:
                rows += batch(reader, start, end)
                if not is_killed:
                    reader.commit(end)
                    self._offset = end
                start = end
        return [json.loads(row["after"]) for row in rows]


def test_columns_that_are_gone_have_their_names(
    server: Server, table: str, spool: dict[str, str], tmp_path: Path
) -> None:
    query = Query(server, table, tmp_path, **spool)
    query.run("one")
    server.query(f"INSERT INTO {table} VALUES (1, 'a1', 'b1')")
    server.query(f"ALTER TABLE {table} DROP a")
    server.query(f"INSERT INTO {table} VALUES (2, 'b2')")
    expected = [{"id": 1, "a": "a1", "b": "b1"}, {"id": 2, "b": "b2"}]
    assert query.run("two", is_killed=True) == expected
    # What that driver has received, another one has to receive again.
    assert query.run("three") == expected
    server.query(f"INSERT INTO {table} VALUES (3, 'b3')")
    server.query(f"ALTER TABLE {table} CHANGE b c VARCHAR(9), ADD d INT DEFAULT 5")
    server.query("FLUSH BINARY LOGS")
    server.query(f"INSERT INTO {table} (id, c) VALUES (4, 'c4')")
    assert query.run("four") == [{"id": 3, "b": "b3"}, {"id": 4, "c": "c4", "d": 5}]
    # The first machine knows of nothing that came later, and the log does not tell any more.
    server.query(f"PURGE BINARY LOGS TO '{end_of_log(server).file}'")
    server.query(f"INSERT INTO {table} VALUES (5, 'c5', 6)")
    server.query(f"ALTER TABLE {table} DROP c")
    assert query.run("one") == [{"id": 5, "c": "c5", "d": 6}]


def test_without_the_copy_they_are_lost(
    server: Server, table: str, spool: dict[str, str], tmp_path: Path
) -> None:
    """The test above can fail; and a query of an earlier version, which has no copy, gets one when it goes on."""
    # No log file has the CREATE TABLE.
    begin_log(server)
    query = Query(server, table, tmp_path, **spool)
    query.run("one")
    delete_copy(spool)
    server.query(f"INSERT INTO {table} VALUES (1, 'a1', 'b1')")
    server.query(f"ALTER TABLE {table} DROP a")
    with pytest.raises(SchemaMismatchError):
        query.run("two")
    delete_copy(spool)
    assert query.run("one", is_killed=True) == [{"id": 1, "a": "a1", "b": "b1"}]
    assert query.run("three") == [{"id": 1, "a": "a1", "b": "b1"}]


def delete_copy(spool: dict[str, str]) -> None:
    copy = schemas_copy(parse_options({"host": "localhost", "user": "", **spool}))
    assert copy is not None
    assert copy.read()
    copy.delete()
    assert copy.read() is None
