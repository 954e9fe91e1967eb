"""Names of relayed files, from servers at their defaults, whose log has none: by the store beside the files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any, TypeGuard

import pytest

import replica
from replica import BinlogPosition, RowsEvent
from replica.relay import BinlogRelay
from replica.server import BinlogServer
from tests.support.servers import Server

from .support.streams import PASSWORD, SECONDS, begin_log, end_of_log, user_of

SERVERS = ["mysql:9.7", "mysql:5.6", "mariadb:11.8"]
FIRST = [
    "CREATE TABLE t (id INT UNSIGNED PRIMARY KEY, a VARCHAR(9) CHARACTER SET latin1, "
    "b VARCHAR(9) CHARACTER SET latin1, e ENUM('x', 'y'))",
    "INSERT INTO t VALUES (4000000000, 'a', 'b', 'x')",
]
# Columns of one type change their names, places and labels: their number and their types stay.
LATER = [
    "INSERT INTO t VALUES (4000000001, 'a', 'b', 'x')",
    "ALTER TABLE t CHANGE a c VARCHAR(9) CHARACTER SET latin1, MODIFY e ENUM('y', 'x')",
    "INSERT INTO t VALUES (4000000002, 'c', 'b', 'x')",
    "ALTER TABLE t MODIFY b VARCHAR(9) CHARACTER SET latin1 AFTER id",
    "INSERT INTO t VALUES (4000000003, 'b', 'c', 'x')",
    "ALTER TABLE t DROP b, ADD d VARCHAR(9) CHARACTER SET latin1 FIRST",
    "INSERT INTO t VALUES ('d', 4000000004, 'c', 'x')",
    "RENAME TABLE t TO u",
    "INSERT INTO u VALUES ('d', 4000000005, 'c', 'x')",
    "DROP TABLE u",
]
ROWS: list[dict[str, Any]] = [
    {"id": 4000000000, "a": "a", "b": "b", "e": "x"},
    {"id": 4000000001, "a": "a", "b": "b", "e": "x"},
    {"id": 4000000002, "c": "c", "b": "b", "e": "x"},
    {"id": 4000000003, "b": "b", "c": "c", "e": "x"},
    {"d": "d", "id": 4000000004, "c": "c", "e": "x"},
    {"d": "d", "id": 4000000005, "c": "c", "e": "x"},
]


async def run_once(server: Server, user: str, folder: Path, start: str = "earliest") -> None:
    async with asyncio.timeout(SECONDS):
        await BinlogRelay(server.dsn(user, PASSWORD), folder, once=True, start=start).run()


def run_all(server: Server, schema: str, statements: list[str]) -> None:
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def index_of(folder: Path) -> Path:
    [index] = folder.glob("*.index")
    return index


def is_of(event: object, schema: str) -> TypeGuard[RowsEvent]:
    return isinstance(event, RowsEvent) and event.table.schema == schema


def rows_of(event: object, schema: str) -> list[dict[str, Any]]:
    if not is_of(event, schema):
        return []
    assert event.table.names_from == "history"
    return [change.after or {} for change in event.changes()]


def rows_in(files: Path, schema: str, store: Path | None = None) -> list[dict[str, Any]]:
    with replica.open_binlog(files, schema=store) as log:
        return [row for event in log for row in rows_of(event, schema)]


def names_of(files: Path, schema: str) -> list[str | None]:
    """Where the names of each rows event come from."""
    with replica.open_binlog(files) as log:
        return [event.table.names_from for event in log if is_of(event, schema)]


async def streamed(folder: Path, schema: str) -> list[dict[str, Any]]:
    """The rows that a stream gets from a server of the files."""
    async with BinlogServer(folder, user="repl", password=PASSWORD) as served:
        options = {"host": "127.0.0.1", "port": served.port, "user": "repl", "password": PASSWORD}
        async with (
            asyncio.timeout(SECONDS),
            replica.connect(None, start="earliest", stop="now", **options) as stream,  # type: ignore[arg-type]
        ):
            return [row async for event in stream for row in rows_of(event, schema)]


@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_names_of_relayed_files(server: Server, schema: str, tmp_path: Path) -> None:
    """The relay is there before the DDL, stands still while it runs, and goes on when the table is gone."""
    folder = tmp_path / "relay"
    begin_log(server)
    with user_of(server) as user:
        run_all(server, schema, FIRST)
        await run_once(server, user, folder)
        store = folder / "relay.schemas"
        assert store.stat().st_mode & 0o777 == 0o600
        run_all(server, schema, LATER[:4])
        server.query("FLUSH BINARY LOGS")
        run_all(server, schema, LATER[4:])
        await run_once(server, user, folder)
    index = index_of(folder)
    assert rows_in(index, schema) == ROWS
    # The last file alone, as its older ones may be gone.
    files = sorted(path for path in folder.glob("*.0*"))
    assert rows_in(files[-1], schema) == ROWS[3:]
    shutil.copy(files[-1], tmp_path)
    assert rows_in(tmp_path / files[-1].name, schema, store) == ROWS[3:]
    assert await streamed(folder, schema) == ROWS
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "replica", "decode", str(index), "--changes", stdout=asyncio.subprocess.PIPE
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0
    for row in ROWS:
        assert str(row["id"]) in output
    assert "@2" not in output
    os.unlink(store)
    assert names_of(index, schema) == [None] * len(ROWS)


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_a_store_that_is_lost(server: Server, schema: str, tmp_path: Path) -> None:
    """The relay reads the tables anew; the log has the CREATE TABLE, so older rows have their names, too."""
    begin_log(server)
    with user_of(server) as user:
        run_all(server, schema, FIRST)
        await run_once(server, user, tmp_path)
        run_all(server, schema, LATER[:7])
        os.unlink(tmp_path / "relay.schemas")
        await run_once(server, user, tmp_path)
        run_all(server, schema, LATER[7:])
        await run_once(server, user, tmp_path)
    assert rows_in(index_of(tmp_path), schema) == ROWS


@pytest.mark.parametrize("server", ["mariadb:11.8"], indirect=True)
async def test_tables_that_the_user_does_not_see(
    server: Server, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Their columns are @1, @2... until the user may see them and the relay connects again: it says so."""

    def told() -> list[str]:
        return [one.getMessage() for one in caplog.records if getattr(one, "event", "") == "names-unknown"]

    run_all(server, schema, FIRST)
    server.query("FLUSH BINARY LOGS")
    start = str(BinlogPosition(end_of_log(server).file, 4))
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        run_all(server, schema, LATER[:3])
        await run_once(server, user, tmp_path, start)
        assert names_of(index_of(tmp_path), schema) == [None] * 2
        [text] = told()
        assert "GRANT SELECT" in text
        server.query(f"GRANT SELECT ON {schema}.* TO '{user}'@'%'")
        await run_once(server, user, tmp_path, start)
        run_all(server, schema, LATER[3:])
        await run_once(server, user, tmp_path, start)
        assert len(told()) == 1
    with replica.open_binlog(index_of(tmp_path)) as log:
        found = [change.after or {} for event in log if is_of(event, schema) for change in event.changes()]
    assert found[2:] == ROWS[3:]
    for row, wanted in zip(found, ROWS[1:3], strict=False):
        # What the ALTER changed is not known: the rest is right.
        assert {name: value for name, value in row.items() if name[0] != "@"}.items() <= wanted.items()


@pytest.mark.parametrize("later", [0, 2])
@pytest.mark.parametrize("server", SERVERS, indirect=True)
async def test_a_store_that_is_older_than_the_files(
    server: Server, schema: str, tmp_path: Path, later: int
) -> None:
    """As one that was restored from a backup: the statements of the files behind it were passed over."""
    folder = tmp_path / "relay"
    begin_log(server)
    with user_of(server) as user:
        run_all(server, schema, FIRST)
        await run_once(server, user, folder)
        store = folder / "relay.schemas"
        before = store.read_bytes()
        run_all(server, schema, LATER[:4])
        for _ in range(later):
            server.query("FLUSH BINARY LOGS")
        await run_once(server, user, folder)
        store.write_bytes(before)
        # Readers of the files alone follow the statements in them.
        assert rows_in(folder, schema) == ROWS[:3]
        run_all(server, schema, LATER[4:])
        await run_once(server, user, folder)
    assert rows_in(folder, schema) == ROWS


CONVERT = "ALTER TABLE t CONVERT TO CHARACTER SET cp1251"


def rows_told(files: Path, schema: str) -> list[dict[str, Any]]:
    """The rows whose columns are known."""
    with replica.open_binlog(files, on_schema_mismatch="positional") as log:
        return [
            change.after or {}
            for event in log
            if is_of(event, schema) and "@2" not in event.table.column_names
            for change in event.changes()
        ]


async def test_columns_that_no_statement_tells(server: Server, schema: str, tmp_path: Path) -> None:
    """A relay asks for them when the log is idle. Their rows had no names until it connected again."""
    run_all(server, schema, ["CREATE TABLE t (a INT, e ENUM('ä', 'b') CHARACTER SET latin1)"])
    begin_log(server)
    with user_of(server) as user:
        relay = BinlogRelay(server.dsn(user, PASSWORD), tmp_path, start="now")
        running = asyncio.create_task(relay.run())
        async with asyncio.timeout(SECONDS):
            while relay.position is None or relay.position < end_of_log(server):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            run_all(server, schema, [CONVERT, "INSERT INTO t VALUES (1, 'b')"])
            while rows_told(tmp_path, schema) != [{"a": 1, "e": "b"}]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await relay.aclose()
        await running


async def test_columns_that_no_statement_tells_before_the_end(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """A relay that copies up to the end of the log asks there: before the next time the table may be gone."""
    run_all(server, schema, ["CREATE TABLE t (a INT, e ENUM('ä', 'b') CHARACTER SET latin1)"])
    begin_log(server)
    with user_of(server) as user:
        for statements in ([], [CONVERT], ["INSERT INTO t VALUES (1, 'b')", "DROP TABLE t"]):
            run_all(server, schema, statements)
            await run_once(server, user, tmp_path, start="now")
    assert rows_told(tmp_path, schema) == [{"a": 1, "e": "b"}]
