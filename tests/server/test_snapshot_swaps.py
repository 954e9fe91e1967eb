"""Tables that get their rows by another name: what a consumer keeps equals SELECT behind a swap, too.

A table that `tables=` does not select comes in by RENAME, EXCHANGE PARTITION and the like. The log has none of its
rows. Of a table that was itself copied, or made while the stream followed, the consumer has the rows already.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import replica
from replica import BinlogStream, Checkpoint, Transaction
from replica.config.options import Options
from replica.config.table_filter import TableFilter
from replica.export.exporter import Exporter
from replica.sql import ddl_statements as ddl
from replica.sql.dialect import Dialect
from replica.sql.statement_kind import read_event
from tests.server.support.streams import SECONDS, end_of_log, stream_of
from tests.support.exported_files import exported_rows
from tests.support.servers import Server

Rows = dict[int, Any]
_COLUMNS = "(id INT PRIMARY KEY, v INT)"
_PARTED = (
    f"{_COLUMNS} PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), "
    "PARTITION p1 VALUES LESS THAN (200))"
)

_OLD = [
    "CREATE TABLE {0}.t0 " + _COLUMNS,
    "CREATE TABLE {0}.t " + _COLUMNS,
    "INSERT INTO {0}.t VALUES (1, 1), (2, 2), (3, 3)",
]
_LOADED = ["INSERT INTO {0}.t_new VALUES (2, 20), (4, 40)"]
_NEW = ["CREATE TABLE {0}.t_new LIKE {0}.t", *_LOADED]
_AFTER = ["UPDATE {0}.t SET v = v + 1 WHERE id = 4", "INSERT INTO {0}.t VALUES (9, 9)"]
_SWAP = "RENAME TABLE {0}.t TO {0}.t_old, {0}.t_new TO {0}.t"
#: The statements before the copy, and behind it.
SWAPS: dict[str, tuple[list[str], list[str]]] = {
    "swap": ([], [*_NEW, _SWAP, *_AFTER]),
    "swap of a table that was there": (_NEW, [_SWAP, *_AFTER]),
    "two swaps": (
        [],
        [*_NEW, _SWAP, "DROP TABLE {0}.t_old", *_NEW, "INSERT INTO {0}.t_new VALUES (5, 5)", _SWAP, *_AFTER],
    ),
    "both ways": (
        _NEW,
        ["RENAME TABLE {0}.t TO {0}.x, {0}.t_new TO {0}.t, {0}.x TO {0}.t_new", *_AFTER],
    ),
    "alter": (_NEW, ["DROP TABLE {0}.t", "ALTER TABLE {0}.t_new RENAME TO {0}.t", *_AFTER]),
    "drop and rename": ([], [*_NEW, "DROP TABLE {0}.t", "RENAME TABLE {0}.t_new TO {0}.t", *_AFTER]),
    "another name": (_NEW, ["RENAME TABLE {0}.t_new TO {0}.tx", "INSERT INTO {0}.tx VALUES (9, 9)"]),
    "away and back": (
        [],
        ["RENAME TABLE {0}.t TO {0}.x", "DELETE FROM {0}.x WHERE id = 1", "RENAME TABLE {0}.x TO {0}.t"],
    ),
    "view": (
        ["CREATE VIEW {0}.v AS SELECT * FROM {0}.t"],
        ["RENAME TABLE {0}.v TO {0}.tv", "INSERT INTO {0}.t VALUES (9, 9)"],
    ),
    "view without its table": (
        ["CREATE TABLE {0}.gone " + _COLUMNS, "CREATE VIEW {0}.v AS SELECT * FROM {0}.gone"],
        ["DROP TABLE {0}.gone", "RENAME TABLE {0}.v TO {0}.tv", "INSERT INTO {0}.t VALUES (9, 9)"],
    ),
    "exchange": (
        ["CREATE TABLE {0}.tp " + _PARTED, "INSERT INTO {0}.tp VALUES (1, 1), (2, 2), (150, 3)", *_NEW],
        ["ALTER TABLE {0}.tp EXCHANGE PARTITION p0 WITH TABLE {0}.t_new", "UPDATE {0}.tp SET v = v + 1"],
    ),
}
_NO_KEY = (
    ["CREATE TABLE {0}.n (v INT)", "INSERT INTO {0}.n VALUES (1), (1), (2)"],
    ["RENAME TABLE {0}.n TO {0}.tn", "INSERT INTO {0}.tn VALUES (3)"],
)
#: Which tables a consumer selects: one, some with a pattern, all.
SELECTIONS = {"one": ["{0}.t"], "some": ["{0}.t?", "{0}.t"], "all": ["{0}.*"]}


@dataclass
class Consumer:
    """Applies changes, and those statements that it hears of: rows are by table and first column, or counted."""

    rows: dict[str, Rows] = field(default_factory=dict)
    reads: int = 0
    voided: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    is_mariadb: bool = False
    checkpoint: Checkpoint | None = None

    async def take(self, tx: Transaction) -> None:
        for event in tx.ddl:
            self._follow(read_event(event, Dialect(self.is_mariadb)))
        if tx.voided is not None:
            self.voided.append(tx.voided.name)
            self.rows.pop(tx.voided.name, None)
        async for change in tx:
            self.reads += change.op == "read"
            rows = self.rows.setdefault(change.table.name, {})
            for image, step in ((change.before, -1), (change.after, 1)):
                if image is None:
                    continue
                if "id" not in image:
                    rows[image["v"]] = rows.get(image["v"], 0) + step
                elif step > 0:
                    rows[image["id"]] = image["v"]
                elif rows.pop(image["id"], image["v"]) != image["v"]:
                    self.violations.append(f"{change.table}: {image}")
        self.checkpoint = tx.checkpoint

    def _follow(self, statement: object) -> None:
        if isinstance(statement, ddl.TruncateTable):
            self.rows.pop(statement.table.name, None)
        for table in statement.tables if isinstance(statement, ddl.DropTables) else ():
            self.rows.pop(table.name, None)
        pairs = list(statement.pairs) if isinstance(statement, ddl.RenameTables) else []
        for clause in statement.clauses if isinstance(statement, ddl.AlterTable) else ():
            if isinstance(clause, ddl.RenameTo) and isinstance(statement, ddl.AlterTable):
                pairs.append((statement.table, clause.table))
        for old, new in pairs:
            self.rows.pop(new.name, None)
            if old.name in self.rows:
                self.rows[new.name] = self.rows.pop(old.name)

    def wrong(self, server: Server, schema: str, tables: list[str]) -> list[str]:
        """Rows of selected tables that are not as SELECT shows them."""
        wants = TableFilter(tables)
        shown = server.query(f"SHOW FULL TABLES FROM {schema} WHERE Table_type = 'BASE TABLE'")
        names = [name for name, _ in shown if wants(schema, name)]
        found = []
        for name in sorted({*names, *(name for name in self.rows if wants(schema, name))}):
            held: Rows = {}
            for row in server.query(f"SELECT * FROM {schema}.{name}") if name in names else ():
                held[row[0]] = row[1] if len(row) > 1 else held.get(row[0], 0) + 1
            kept = self.rows.get(name, {})
            keys = kept.keys() | held.keys()
            found += [
                f"{name} {key}: kept {kept.get(key)}, table {held.get(key)}"
                for key in keys
                if kept.get(key) != held.get(key)
            ]
        return found


def stored(server: Server, path: Path, tables: list[str], **options: Any) -> BinlogStream:
    store = replica.FileCheckpointStore(path)
    given = {"start": "snapshot", "stop": "now", "checkpoint_interval": 0, **options}
    return stream_of(server, tables=tables, checkpoints=store, **given)


async def follow(consumer: Consumer, stream: BinlogStream) -> None:
    async with asyncio.timeout(SECONDS), stream:
        async for tx in stream.transactions():
            await consumer.take(tx)


async def equal_behind(
    server: Server, schema: str, path: Path, tables: list[str], swap: tuple[list[str], list[str]]
) -> Consumer:
    """Copies tables, runs the statements, and follows them."""
    before, behind = swap
    for sql in (*_OLD, *before):
        server.query(sql.format(schema))
    server.query("FLUSH BINARY LOGS")
    consumer = Consumer(is_mariadb=server.family == "mariadb")
    await follow(consumer, stored(server, path, tables))
    assert consumer.wrong(server, schema, tables) == []
    for sql in behind:
        server.query(sql.format(schema))
    await follow(consumer, stored(server, path, tables))
    print(f"{server.name}: voided {consumer.voided}, {consumer.reads} reads")
    assert consumer.wrong(server, schema, tables) == []
    assert consumer.violations == []
    return consumer


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("swap", SWAPS)
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8", "mysql:5.6"], indirect=True)
async def test_a_consumer_has_the_rows_of_tables_that_came_in(
    server: Server, schema: str, tmp_path: Path, swap: str, selection: str
) -> None:
    tables = [pattern.format(schema) for pattern in SELECTIONS[selection]]
    consumer = await equal_behind(server, schema, tmp_path / "place", tables, SWAPS[swap])
    if selection == "all" and swap != "exchange":
        # All rows were copied, or are in the log.
        assert consumer.voided in ([], ["tv"])


async def test_a_table_without_a_key_comes_in(mysql97: Server, tmp_path: Path) -> None:
    with mysql97.fresh_schema() as schema:
        await equal_behind(mysql97, schema, tmp_path / "place", [f"{schema}.t?"], _NO_KEY)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_a_consumer_that_is_killed_behind_each_unit(
    server: Server, schema: str, selection: str
) -> None:
    """Swaps of all kinds, followed by streams of which each ends behind one unit."""
    tables = [pattern.format(schema) for pattern in SELECTIONS[selection]]
    for sql in (*_OLD, *SWAPS["exchange"][0]):
        server.query(sql.format(schema))
    server.query("FLUSH BINARY LOGS")
    consumer = Consumer(is_mariadb=server.family == "mariadb")
    await follow(consumer, stream_of(server, tables=tables, start="snapshot", stop="now"))
    server.query(f"DROP TABLE {schema}.t_new")
    for swap in ("swap", "exchange", "drop and rename", "away and back"):
        for sql in (f"DROP TABLE IF EXISTS {schema}.t_old, {schema}.t_new", *SWAPS[swap][1]):
            if swap == "exchange" and "DROP" in sql:
                for made in _NEW:
                    server.query(made.format(schema))
            else:
                server.query(sql.format(schema))
    for _ in range(200):
        before = consumer.checkpoint
        stream = stream_of(server, tables=tables, start=before, stop="now", snapshot_chunk_rows=2)
        async with asyncio.timeout(SECONDS), stream:
            async for tx in stream.transactions():
                await consumer.take(tx)
                break
        if consumer.checkpoint is before:
            break
    else:
        raise AssertionError("it has no end")
    assert consumer.wrong(server, schema, tables) == []
    assert consumer.violations == []


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_tables_that_wait_and_are_renamed_while_the_consumer_is_down(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """Their new names come before those that are copied already, and among them."""
    tables = [f"{schema}.*"]
    for number in range(50):
        server.query(f"CREATE TABLE {schema}.t{number:02} {_COLUMNS}")
        server.query(f"INSERT INTO {schema}.t{number:02} VALUES ({number}, 1)")
    server.query("FLUSH BINARY LOGS")
    consumer = Consumer(is_mariadb=server.family == "mariadb")
    stream = stored(server, tmp_path / "place", tables, stop=None, snapshot_connections=1)
    async with asyncio.timeout(SECONDS), stream:
        async for tx in stream.transactions():
            await consumer.take(tx)
            if consumer.reads == 10:
                break
    assert consumer.reads == 10
    for old, new in (("t40", "a"), ("t41", "t035"), ("t42", "z"), ("t03", "b")):
        server.query(f"RENAME TABLE {schema}.{old} TO {schema}.{new}")
    server.query(f"ALTER TABLE {schema}.t43 RENAME TO {schema}.c")
    server.query(f"INSERT INTO {schema}.a VALUES (100, 100)")
    for kills in (2, 5, 1000):
        stream = stored(server, tmp_path / "place", tables)
        async with asyncio.timeout(SECONDS), stream:
            async for tx in stream.transactions():
                await consumer.take(tx)
                assert len((tx.checkpoint.snapshot or "").encode()) < 4096
                kills -= 1
                if not kills:
                    break
    assert consumer.wrong(server, schema, tables) == []
    assert consumer.violations == []


#: For exports: the statements while one runs.
EXPORTS = {
    "a swap": [*_NEW, _SWAP, *_AFTER],
    "another name": ["RENAME TABLE {0}.x TO {0}.t1", "INSERT INTO {0}.t1 VALUES (9, 9)"],
    "a table of before": ["RENAME TABLE {0}.x TO {0}.a", "DELETE FROM {0}.a WHERE id = 1"],
}


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("statements", EXPORTS)
@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_an_export_has_the_tables_that_came_in(
    server: Server, schema: str, tmp_path: Path, statements: str, kills: bool
) -> None:
    for sql in (*_OLD, f"CREATE TABLE {{0}}.x {_COLUMNS}", "INSERT INTO {0}.x VALUES (1, 1), (2, 2)"):
        server.query(sql.format(schema))
    values = ",".join(f"({number}, 0)" for number in range(200))
    server.query(f"CREATE TABLE {schema}.t9 {_COLUMNS}")
    server.query(f"INSERT INTO {schema}.t9 VALUES {values}")
    server.query("FLUSH BINARY LOGS")
    tables = [f"{schema}.[at]", f"{schema}.t?"]
    options = Options.build(server.dsn(), {"tables": tables, "snapshot_chunk_rows": 20})
    left = [sql.format(schema) for sql in EXPORTS[statements]]
    while True:
        exporter = Exporter(options, str(tmp_path / "copy"), "jsonl")
        try:

            def show(status: object, exporter: Exporter = exporter) -> None:
                for sql in left:
                    server.query(sql)
                if left and kills:
                    left.clear()
                    raise InterruptedError
                left.clear()

            with contextlib.suppress(InterruptedError):
                async with asyncio.timeout(SECONDS), exporter.stream:
                    await exporter.copy(show)
            if exporter.is_copied:
                list(exporter.finish())
                break
        finally:
            exporter.close()
    place = json.loads((tmp_path / "copy" / "checkpoint.json").read_text())
    consumer = Consumer(is_mariadb=server.family == "mariadb")
    wants = TableFilter(tables)
    for (name,) in server.query(f"SHOW TABLES FROM {schema}"):
        if wants(schema, name):
            rows = exported_rows(tmp_path / "copy", f"{schema}.{name}")
            consumer.rows[name] = {row["id"]: row["v"] for row in rows}
    start = Checkpoint.from_dict(place)
    await follow(consumer, stream_of(server, tables=tables, start=start, stop="now"))
    assert consumer.wrong(server, schema, tables) == []


@pytest.mark.parametrize("server", ["mysql:9.7", "mariadb:11.8"], indirect=True)
async def test_changes_that_come_together_with_a_swap(server: Server, schema: str) -> None:
    """The consumer hears of void rows before it gets them, and what is behind a stop is not lost to the copy."""
    tables = [f"{schema}.t"]
    for sql in (*_OLD, *_NEW):
        server.query(sql.format(schema))
    server.query("FLUSH BINARY LOGS")
    consumer = Consumer(is_mariadb=server.family == "mariadb")
    await follow(consumer, stream_of(server, tables=tables, start="snapshot", stop="now"))
    server.query(_SWAP.format(schema))
    stop = end_of_log(server)
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(40):
            cursor.execute(f"UPDATE {schema}.t SET v = v + 1 WHERE id IN (2, {number})")
            cursor.execute(f"INSERT INTO {schema}.t VALUES ({number + 100}, 0)")
    for until in (stop, "now"):
        await follow(consumer, stream_of(server, tables=tables, start=consumer.checkpoint, stop=until))
        assert consumer.violations == []
    assert consumer.voided == ["t"]
    assert consumer.wrong(server, schema, tables) == []
