"""Every row comes under the names, signs and labels of its place in the log, whatever DDL is behind it.

Servers are at their defaults (MINIMAL, NO_LOG), and the user may only read. All cases of ``ddl_cases`` run one after
another. A consumer reads while they run, one that stood at the beginning reads everything late, and one is broken off
and begun anew many times (``TEST_SEED`` repeats where). The witness of each row is SELECT right behind the
statement that wrote it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.errors import SchemaMismatchError
from replica import Checkpoint, FileCheckpointStore, FileSchemaStore, SchemaChangeEvent
from replica.source import resolve_start
from tests.server.support.ddl_runs import Row, Running
from tests.server.support.streams import PASSWORD, SECONDS, begin_log, user_of
from tests.support.servers import Server
from tests.support.socket_source import until


async def read_rows(stream: replica.BinlogStream, found: list[tuple[str, Row]], most: int) -> None:
    """Add the rows that inserts and updates leave, up to the end of the transaction with so many.

    Columns that only the log has are left out, as are sequences.
    """
    async for event in stream:
        if isinstance(event, replica.XidEvent) and len(found) >= most:
            await stream.acknowledge()
            return
        if not isinstance(event, replica.RowsEvent) or "next_not_cached_value" in event.table.column_names:
            continue
        for change in event.changes():
            if change.op != "delete" and change.after is not None:
                assert event.table.names_from == "history", event.table
                hidden = ("row_start", "row_end")
                row = {name: value for name, value in change.after.items() if name not in hidden}
                found.append((str(event.table), row))


async def test_rows_come_under_the_names_of_their_place(seed: int, server: Server, tmp_path: Path) -> None:
    with user_of(server) as user, contextlib.ExitStack() as schemas:
        running = Running(server, schemas)
        dsn = server.dsn(user, PASSWORD)
        checkpoints = FileCheckpointStore(tmp_path / "all.ckpt")
        store = FileSchemaStore(tmp_path / "parts")
        given: dict[str, Any] = {"tables": running.patterns}
        async with replica.connect(dsn, checkpoints=checkpoints, **given):
            pass
        async with replica.connect(dsn, schemas=store, **given) as stream:
            place = stream.checkpoint
        live: list[tuple[str, Row]] = []
        async with replica.connect(dsn, **given) as stream, asyncio.timeout(SECONDS * 4):
            reading = asyncio.create_task(read_rows(stream, live, 1 << 30))
            await asyncio.to_thread(running.run)
            rows = running.rows
            await until(lambda: len(live) >= len(rows) or reading.done())
        await reading
        assert running.problem(live) is None
        late: list[tuple[str, Row]] = []
        async with replica.connect(dsn, checkpoints=checkpoints, stop="now", **given) as stream:
            await read_rows(stream, late, 1 << 30)
        assert running.problem(late) is None
        parts = await in_parts(random.Random(seed), dsn, place, len(rows), schemas=store, **given)
        assert running.problem(parts) is None
        assert parts == rows


async def in_parts(
    chance: random.Random, dsn: str, place: Checkpoint | None, count: int, **given: Any
) -> list[tuple[str, Row]]:
    """The rows as consumers see them that come one after another, each from the checkpoint of the one before."""
    found: list[tuple[str, Row]] = []
    while len(found) < count:
        async with replica.connect(dsn, start=place, **given) as stream, asyncio.timeout(SECONDS):
            await read_rows(stream, found, min(len(found) + chance.randint(1, 20), count))
            place = stream.checkpoint
    return found


async def test_a_change_of_a_table_is_an_event(server: Server, schema: str, tmp_path: Path) -> None:
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a VARCHAR(20))")
    store = FileSchemaStore(tmp_path / "schemas")
    async with replica.connect(server.dsn(), tables=f"{schema}.*", schemas=store) as begun:
        start = begun.checkpoint
    server.query(f"ALTER TABLE {schema}.t ADD b INT UNSIGNED AFTER id")
    server.query(f"RENAME TABLE {schema}.t TO {schema}.u")
    server.query(f"DROP TABLE {schema}.u")
    options: dict[str, Any] = {"start": start, "stop": "now", "tables": f"{schema}.*"}
    async with replica.connect(server.dsn(), schemas=store, events=SchemaChangeEvent, **options) as stream:
        changes = [event async for event in stream if isinstance(event, SchemaChangeEvent)]
    assert [(change.table, names(change.before), names(change.after)) for change in changes] == [
        (f"{schema}.t", ["id", "a"], ["id", "b", "a"]),
        (f"{schema}.t", ["id", "b", "a"], None),
        (f"{schema}.u", None, ["id", "b", "a"]),
        (f"{schema}.u", ["id", "b", "a"], None),
    ]
    assert "ADD b" in changes[0].sql
    assert (changes[1].renamed_to, changes[2].renamed_from) == (f"{schema}.u", f"{schema}.t")
    # It comes behind its statement, and the statement is done when both are.
    async with replica.connect(server.dsn(), schemas=store, **options) as stream:
        events = [event async for event in stream]
    kinds = [type(event).__name__ for event in events if "Gtid" not in type(event).__name__]
    expected = ["QueryEvent", "SchemaChangeEvent", "QueryEvent", *["SchemaChangeEvent"] * 2, "QueryEvent"]
    assert kinds[-7:] == [*expected, "SchemaChangeEvent"]


def names(shape: object) -> list[str] | None:
    return [column.name for column in shape.columns] if isinstance(shape, replica.Shape) else None


def drop_and_make(server: Server, schema: str) -> None:
    """A row of a table, which then goes, and one of another table with its name."""
    for sql in (
        f"INSERT INTO {schema}.t VALUES (1, 1)",
        f"DROP TABLE {schema}.t",
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, b VARCHAR(5))",
        f"INSERT INTO {schema}.t VALUES (2, 'x')",
    ):
        server.query(sql)


@pytest.mark.parametrize("start", ["snapshot", "position"])
async def test_names_that_an_older_file_gives(
    server: Server, schema: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that begins with the current log file has rows of a table that is dropped in it, and made before it."""
    begin_log(server)
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT)")
    for _ in range(3):
        server.query("FLUSH BINARY LOGS")
    drop_and_make(server, schema)

    async def busy(*_: object) -> None:
        """The source never has a moment without other statements, and its GTIDs are not exact."""

    async def inexact(*_: object) -> bool:
        return False

    monkeypatch.setattr(resolve_start, "quiet_end", busy)
    monkeypatch.setattr(resolve_start, "has_exact_gtids", inexact)
    file = server.query("SHOW BINARY LOGS")[-1][0]
    begin: Any = start if start == "snapshot" else replica.BinlogPosition(file, 4)
    async with replica.connect(server.dsn(), start=begin, stop="now", tables=f"{schema}.*") as stream:
        events = [event async for event in stream if isinstance(event, replica.RowsEvent)]
    changes = [change.after for event in events for change in event.changes()]
    assert {"id": 1, "a": 1} in changes
    assert changes[-1] == {"id": 2, "b": "x"}


@pytest.mark.parametrize(
    ("is_swapped", "later", "gone"),
    [
        (False, [], "TABLE {0}.t"),
        (True, [], "TABLE {0}.t"),
        (False, ["ALTER TABLE {0}.t MODIFY v VARCHAR(9) NOT NULL"], "TABLE {0}.t"),
        (
            False,
            ["RENAME TABLE {0}.t TO {0}.a, {0}.o TO {0}.b", "ALTER TABLE {0}.a RENAME {0}.t"],
            "TABLE {0}.t",
        ),
        (False, [], "DATABASE {0}"),
    ],
    ids=["created", "swapped in", "altered later", "renamed later", "dropped with its schema"],
)
async def test_a_table_that_is_gone_has_the_names_of_an_older_part_of_the_log(
    server: Server, schema: str, is_swapped: bool, later: list[str], gone: str
) -> None:
    """Behind rows of another table, too: they have begun the history at a place where these names were lost.

    What had the table's name up to just that place, and has another shape, does not tell them.
    """
    begin_log(server)
    server.query(f"CREATE TABLE {schema}.o (id INT PRIMARY KEY)")
    columns = "(id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1)"
    server.query(f"CREATE TABLE {schema}.{'n' if is_swapped else 't'} {columns}")
    if is_swapped:
        server.query("FLUSH BINARY LOGS")
        server.query(f"CREATE TABLE {schema}.t (w INT)")
        server.query(f"RENAME TABLE {schema}.t TO {schema}.old, {schema}.n TO {schema}.t")
    file, position, *_ = server.query(server.log_status)[0]
    for sql in (
        "INSERT INTO {0}.o VALUES (1)",
        *later,
        "INSERT INTO {0}.t VALUES (1, 'x')",
        f"DROP {gone}",
    ):
        server.query(sql.format(schema))
    start, tables = replica.BinlogPosition(file, int(position)), f"{schema}.*"
    async with replica.connect(server.dsn(), start=start, stop="now", tables=tables) as stream:
        events = [event async for event in stream if isinstance(event, replica.RowsEvent)]
    assert [change.after for event in events for change in event.changes()] == [
        {"id": 1},
        {"id": 1, "v": "x"},
    ]


async def test_a_table_that_is_gone_has_the_names_that_are_known(server: Server, schema: str) -> None:
    """A label that the column's character set lacks leaves this column alone without a name."""
    begin_log(server)
    file, position, *_ = server.query(server.log_status)[0]
    for sql in (
        "SET sql_mode = ''",
        "CREATE TABLE {0}.t (id INT PRIMARY KEY, e ENUM('x', 'ф') CHARACTER SET latin1, n INT)",
        "INSERT INTO {0}.t VALUES (1, 'x', 2)",
        "DROP TABLE {0}.t",
    ):
        server.query(sql.format(schema))
    start, tables = replica.BinlogPosition(file, int(position)), f"{schema}.*"
    async with replica.connect(server.dsn(), start=start, stop="now", tables=tables) as stream:
        tables_of_rows = [event.table async for event in stream if isinstance(event, replica.RowsEvent)]
    assert [(table.column_names, table.names_from) for table in tables_of_rows] == [
        (("id", "@2", "n"), "history")
    ]


async def test_names_that_were_lost_are_derived_after_a_restart(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """A store told that the names were not known, and not that an older part of the log may have them."""
    begin_log(server)
    server.query(f"CREATE TABLE {schema}.o (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
    file, position, *_ = server.query(server.log_status)[0]
    for sql in (
        "INSERT INTO {0}.o VALUES (1)",
        "RENAME TABLE {0}.t TO {0}.u",
        "ALTER TABLE {0}.u RENAME {0}.w",
        "INSERT INTO {0}.w VALUES (1, 2)",
        "DROP TABLE {0}.w",
    ):
        server.query(sql.format(schema))
    start: Any = replica.BinlogPosition(file, int(position))
    rows, tables = list[Any](), f"{schema}.*"
    schemas = FileSchemaStore(tmp_path / "schemas")
    for is_first in (True, False):
        async with replica.connect(
            server.dsn(), start=start, stop="now", tables=tables, schemas=schemas
        ) as stream:
            async for tx in stream.transactions():
                rows += [change.after async for change in tx]
                if is_first and rows:
                    start = tx.checkpoint
                    break
    assert rows == [{"id": 1}, {"id": 1, "v": 2}]


@pytest.mark.parametrize("mismatch", ["error", "positional"])
@pytest.mark.parametrize("added", [False, True], ids=["dropped", "added and dropped"])
async def test_names_that_an_older_part_of_the_log_gives_behind_rows_of_another_table(
    server: Server, schema: str, added: bool, mismatch: Any
) -> None:
    """Rows of the other table have begun the schema history at the start, where the column is not known."""
    begin_log(server)
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, v INT)")
    server.query(f"CREATE TABLE {schema}.o (id INT PRIMARY KEY)")
    file, position, *_ = server.query(server.log_status)[0]
    server.query(f"INSERT INTO {schema}.o VALUES (1)")
    if added:
        server.query(f"ALTER TABLE {schema}.t ADD COLUMN w INT DEFAULT 5")
    server.query(f"INSERT INTO {schema}.t (id, v) VALUES (1, 2)")
    server.query(f"ALTER TABLE {schema}.t DROP COLUMN v")
    server.query(f"INSERT INTO {schema}.t (id) VALUES (2)")
    start, tables = replica.BinlogPosition(file, int(position)), f"{schema}.*"
    async with replica.connect(
        server.dsn(), start=start, stop="now", tables=tables, on_schema_mismatch=mismatch
    ) as stream:
        events = [event async for event in stream if isinstance(event, replica.RowsEvent)]
    more = {"w": 5} if added else {}
    assert [change.after for event in events for change in event.changes()] == [
        {"id": 1},
        {"id": 1, "v": 2, **more},
        {"id": 2, **more},
    ]


async def test_a_copy_beside_names_that_are_lost_is_told_how_to_begin(server: Server, schema: str) -> None:
    """A copy may begin with the current log file. If that has a DROP of a table that older files made, it cannot."""
    server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, a INT)")
    begin_log(server)
    drop_and_make(server, schema)
    given: dict[str, Any] = {"tables": f"{schema}.*", "stop": "now"}
    async with replica.connect(server.dsn(), start="earliest", **given) as stream:
        with pytest.raises(SchemaMismatchError, match="FLUSH BINARY LOGS"):
            _ = [event async for event in stream]
    server.query("FLUSH BINARY LOGS")
    async with replica.connect(server.dsn(), start="snapshot", **given) as stream:
        events = [event async for event in stream if isinstance(event, replica.SnapshotRowsEvent)]
    assert [change.after for event in events for change in event.changes()] == [{"id": 2, "b": "x"}]
