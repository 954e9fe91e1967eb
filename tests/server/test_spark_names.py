"""``mirror`` and ``history`` of servers at their defaults, whose log has no names: DDL while the job stands still."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import SchemaMismatchError
from replica.config.options import Options
from replica.relay import BinlogRelay
from replica.spark.data_source import file_pieces
from replica.spark.jobs.current_table import CurrentTable
from replica.spark.jobs.past_table import PastTable
from replica.spark.packed_items import unpack
from replica.spark.source_options import parse_options
from replica.spark.stream_connection import connection_options
from replica.spool.live_log import LiveLog
from tests.server.support.plain_runs import PlainRun, items
from tests.server.support.streams import begin_log, end_of_log
from tests.spark.support.kept_tables import check_intervals, rows_of
from tests.support.servers import Server

pytestmark = pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)

# Columns of one type change their names, places, signs and labels: the log's table maps hardly tell.
CREATE = "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(9), b VARCHAR(9), e ENUM('x', 'y'), n INT)"
FIRST = ["INSERT INTO t VALUES (4000000000, 'a0', 'b0', 'x', 0), (4000000001, 'a1', 'b1', 'y', -1)"]
LATER = [
    "UPDATE t SET b = 'b2' WHERE id = 4000000000",
    "ALTER TABLE t CHANGE a c VARCHAR(9), ADD d VARCHAR(9) AFTER id",
    "INSERT INTO t VALUES (4000000002, 'd2', 'c2', 'b2', 'y', 2)",
    "ALTER TABLE t MODIFY b VARCHAR(9) AFTER id",
    "INSERT INTO t VALUES (4000000003, 'b3', 'd3', 'c3', 'x', 3)",
    "ALTER TABLE t CHANGE b h VARCHAR(9)",
    "ALTER TABLE t CHANGE c b VARCHAR(9)",
    "UPDATE t SET b = 'B', h = 'H' WHERE id = 4000000003",
    "ALTER TABLE t DROP d, MODIFY e ENUM('x', 'y', 'z')",
    "UPDATE t SET e = 'z' WHERE id = 4000000001",
    "DELETE FROM t WHERE id = 4000000002",
    "CREATE TABLE u LIKE t",
    "INSERT INTO u SELECT * FROM t",
    "RENAME TABLE t TO old, u TO t, old TO u",
    "INSERT INTO t (id, b) VALUES (4000000009, 'b9')",
]


def run_all(server: Server, shop: str, statements: list[str]) -> None:
    with server.connect(database=shop) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def rows_in(server: Server, table: str) -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def kept(run: PlainRun, table: str, *names: str) -> list[dict[str, Any]]:
    rows = [{name: row[name] for name in names} if names else row for row in rows_of(run.path, table)]
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        run_all(server, schema, [CREATE, *FIRST])
        yield schema


def test_ddl_while_the_job_stands_still(server: Server, shop: str, tmp_path: Path) -> None:
    mirror = PlainRun(server, tmp_path / "mirror", CurrentTable, f"{shop}.*")
    history = PlainRun(server, tmp_path / "history", PastTable, f"{shop}.*")
    for run in (mirror, history):
        run.run()
    run_all(server, shop, LATER)
    for run in (mirror, history):
        run.run(max_bytes=500)
    for table in ("t", "u"):
        expected = rows_in(server, f"{shop}.{table}")
        assert len(expected) > 2
        assert kept(mirror, f"{shop}.{table}") == expected
        present = [row for row in rows_of(history.path, f"{shop}.{table}") if row["is_current"]]
        names = list(expected[0])
        assert (
            sorted(({name: row[name] for name in names} for row in present), key=lambda row: row["id"])
            == expected
        )
        check_intervals(history.path, f"{shop}.{table}", ("id",))
    # A state of before: under its names of then, as far as the columns have been renamed with them.
    past = [row for row in rows_of(history.path, f"{shop}.u") if row["id"] == 4_000_000_002]
    assert [(row["h"], row["d"], row["b"], row["e"], row["is_current"]) for row in past] == [
        ("b2", "d2", "c2", "y", False)
    ]


def test_a_driver_is_gone_before_it_has_committed(server: Server, shop: str, tmp_path: Path) -> None:
    """The log is in the spool, the tables are others by now: the next driver knows what they were."""
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    run.run()
    run_all(server, shop, LATER[:8])
    options = Options.build(server.dsn(), {"heartbeat": 1, "tables": (f"{shop}.*",)})
    start = run.offset
    assert start is not None
    with closing(LiveLog(options, str(tmp_path / "spool"))) as log:
        end = log.end()
        log.follow(start)
        log.wait_until(end)
    run_all(server, shop, LATER[8:])
    run.run()
    for table in ("t", "u"):
        assert kept(run, f"{shop}.{table}") == rows_in(server, f"{shop}.{table}")


def test_relayed_files(server: Server, shop: str, tmp_path: Path) -> None:
    """The relay has read the tables between the statements; its store has names for all files."""
    logs = str(tmp_path / "logs")
    asyncio.run(BinlogRelay(server.dsn(), logs, once=True).run())
    run_all(server, shop, LATER)
    asyncio.run(BinlogRelay(server.dsn(), logs, once=True).run())
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    options = parse_options({"path": logs, "includeTables": f"{shop}.*", "schemaMode": "packed"})
    pieces = file_pieces(options, 500)
    assert len(pieces) > 3
    run.apply(list(items(pieces, (f"{shop}.*",))))
    for table in ("t", "u"):
        assert kept(run, f"{shop}.{table}") == rows_in(server, f"{shop}.{table}")


def test_a_new_job_reads_a_log_with_ddl(server: Server, shop: str, tmp_path: Path) -> None:
    """It begins with the CREATE TABLE: what each statement made of the table is known from there."""
    run_all(server, shop, LATER)
    run = PlainRun(server, tmp_path, CurrentTable, f"{shop}.*")
    run.run()
    for table in ("t", "u"):
        assert kept(run, f"{shop}.{table}") == rows_in(server, f"{shop}.{table}")


def test_names_that_are_lost(server: Server, shop: str, tmp_path: Path) -> None:
    """A start in the past, the log file with CREATE TABLE is purged: what DDL took away is an error, or ``@2``."""
    begin_log(server)
    start = f"{end_of_log(server).file}:4"
    run_all(server, shop, LATER[:2])
    run_all(server, shop, ["ALTER TABLE t DROP b"])
    source = {"host": server.host, "port": str(server.port), "user": server.replica_user}
    source |= {"password": server.replica_password, "includeTables": f"{shop}.*", "heartbeat": "1"}

    def names(folder: str, **given: str) -> list[str]:
        options = connection_options(parse_options(source | given))
        with closing(LiveLog(options, str(tmp_path / folder))) as log:
            begin, end = log.find(start), log.end()
            log.follow(begin, is_new=True)
            pieces = log.pieces(begin, log.reach(end), 1 << 20)
        [rows] = [item.rows for item in items(pieces, (f"{shop}.*",)) if item.op == "rows"]
        assert rows is not None
        found = unpack(rows)
        assert not found.has_names
        return [str(name) for name in found.rows.schema.names[:5]]

    with pytest.raises(SchemaMismatchError, match="on_schema_mismatch"):
        names("strict")
    found = names("lenient", onSchemaMismatch="positional")
    assert "@" in "".join(found)
    known = dict(enumerate(("id", "a", "b", "e", "n")))
    assert all(name in (known[number], f"@{number + 1}") for number, name in enumerate(found))


def test_a_piece_carries_the_tables_that_it_can_need(server: Server, shop: str, tmp_path: Path) -> None:
    """However many tables the log has had, and however many come in the same batch far from the piece."""
    begin_log(server)
    tables = [f"many{number}" for number in range(60)]
    run_all(server, shop, [f"CREATE TABLE {table} (id INT PRIMARY KEY, a VARCHAR(9))" for table in tables])
    run_all(server, shop, ["CREATE TABLE wide (id INT PRIMARY KEY, a LONGTEXT)"])
    options = Options.build(server.dsn(), {"heartbeat": 1, "tables": (f"{shop}.*",)})
    with closing(LiveLog(options, str(tmp_path / "spool"))) as log:
        offset = log.find("latest")
        log.follow(offset, is_new=True)
        run_all(server, shop, [f"INSERT INTO {table} VALUES (1, 'a')" for table in tables])
        run_all(
            server, shop, [f"INSERT INTO wide VALUES ({number}, REPEAT('x', 200000))" for number in range(3)]
        )
        run_all(server, shop, ["INSERT INTO t (id, a) VALUES (1, 'a')"])
        pieces = log.pieces(offset, log.reach(log.end()), 100_000)
        found = [set(piece.shapes) for piece in pieces]
        assert {f"{shop}.{table}" for table in tables} <= found[0]
        assert found[-1] == {f"{shop}.wide", f"{shop}.t"}
        assert len(pickle.dumps(pieces[-1].shapes)) < len(pickle.dumps(pieces[0].shapes)) / 2
        rows = [item.rows for item in items(pieces, (f"{shop}.*",)) if item.op == "rows"]
        assert all(unpack(row).has_names for row in rows if row is not None)
        assert len(rows) >= len(tables) + 2
