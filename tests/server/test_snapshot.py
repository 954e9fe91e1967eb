"""Tables are copied under writers: what the consumer keeps equals SELECT at the end, and each before image before."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import Any

import pymysql
import pytest

import replica
from replica import SnapshotCompleteEvent, SnapshotRowsEvent
from tests.server.support.copied_tables import Kept, Writers, make_table
from tests.server.support.streams import (
    MYSQL97_AND_MARIADB118,
    SECONDS,
    end_of_log,
    executed,
    stream_of,
)
from tests.server.support.xa_sessions import two_xa
from tests.support.servers import Server

ROWS = 6000
# Where each life of a consumer begins with what the log file has so far.
FEWER_ROWS = 2000


async def consume(stream: replica.BinlogStream, kept: Kept, writers: Writers) -> None:
    """Apply everything until the copy is complete. The writers follow the place where it stands."""
    async with asyncio.timeout(SECONDS):
        async for tx in stream.transactions():
            for change in await kept.take(tx):
                if change.op == "read":
                    writers.front = change.after["id"]
            status = stream.status.snapshot
            if status is not None and status.complete:
                break


async def follow_to_end(server: Server, checkpoint: replica.Checkpoint, kept: Kept, **options: Any) -> None:
    async with asyncio.timeout(SECONDS), stream_of(server, start=checkpoint, stop="now", **options) as stream:
        async for tx in stream.transactions():
            await kept.take(tx)


@pytest.fixture(autouse=True)
def own_log(server: Server) -> None:
    """Without MySQL's GTIDs a copy begins at the start of the current file: other tests wrote statements there."""
    server.query("FLUSH BINARY LOGS")


async def test_copy_under_writers(server: Server, schema: str, seed: int) -> None:
    await copy_under_writers(server, schema, seed)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_copy_with_locked_rows(server: Server, schema: str, seed: int) -> None:
    await copy_under_writers(server, schema, seed, snapshot_locking="rows")


async def copy_under_writers(server: Server, schema: str, seed: int, **options: Any) -> None:
    make_table(server, schema, "t", ROWS)
    kept = Kept({"t": ("id",)})
    options = {"tables": f"{schema}.t", **options}
    with Writers(server, f"{schema}.t", 2 * ROWS).run(4, seed) as writers:
        async with stream_of(server, start="snapshot", snapshot_chunk_rows=200, **options) as stream:
            await consume(stream, kept, writers)
            status = stream.status.snapshot
            await stream.acknowledge()
            checkpoint = stream.checkpoint
    assert checkpoint is not None
    assert status is not None
    await follow_to_end(server, checkpoint, kept, **options)
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []
    assert status.chunks_corrected * 10 >= status.chunks, status


async def test_killed_and_cut_again_and_again(seed: int, server: Server, schema: str) -> None:
    """The consumer loses all that came after its last checkpoint; its connections are cut, too."""
    make_table(server, schema, "t", FEWER_ROWS)
    options: dict[str, Any] = {"tables": f"{schema}.t", "snapshot_chunk_rows": 50}
    kept, start, lives = Kept({"t": ("id",)}), "snapshot", 0
    checkpoint: replica.Checkpoint | None = None
    rng = random.Random(seed)
    with Writers(server, f"{schema}.t", 2 * FEWER_ROWS).run(2, seed) as writers:
        while not await _live(server, checkpoint or start, kept, writers, rng, options) and lives < 60:
            lives += 1
            assert kept.checkpoint is not None
            checkpoint = replica.Checkpoint.from_dict(json.loads(json.dumps(kept.checkpoint.to_dict())))
            assert len(json.dumps(checkpoint.to_dict())) < 4096
    assert kept.checkpoint is not None
    await follow_to_end(server, kept.checkpoint, kept, tables=f"{schema}.t")
    assert lives >= 5
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []


async def _live(
    server: Server,
    start: Any,
    kept: Kept,
    writers: Writers,
    rng: random.Random,
    options: dict[str, Any],
) -> bool:
    """Consume until a random moment, or the end of the copy; whether it came to that."""
    left = rng.randint(3, 60)
    async with asyncio.timeout(SECONDS), stream_of(server, start=start, **options) as stream:
        async for tx in stream.transactions():
            for change in await kept.take(tx):
                if change.op == "read":
                    writers.front = change.after["id"]
            kept.checkpoint = tx.checkpoint
            status = stream.status.snapshot
            if status is not None and status.complete:
                return True
            left -= 1
            if left == 5:
                _cut_connections(server)
            if left == 0:
                break
    return False


def _cut_connections(server: Server) -> None:
    for row in server.query("SHOW PROCESSLIST"):
        if row[1] == server.replica_user:
            with contextlib.suppress(pymysql.err.MySQLError):
                server.query(f"KILL {row[0]}")


async def test_a_table_is_added_while_the_stream_runs(server: Server, schema: str) -> None:
    make_table(server, schema, "t", 300)
    make_table(server, schema, "other", 10)
    kept = Kept({"t": ("id",), "other": ("id",)})
    async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.*") as stream:
        await stream.snapshot(f"{schema}.t")
        server.query(f"INSERT INTO {schema}.other VALUES (99, 1, 'x')")
        complete = False
        async for event in stream:
            if isinstance(event, replica.RowsEvent):
                for change in event.changes():
                    kept.apply(change)
            if isinstance(event, SnapshotCompleteEvent):
                assert (str(event.table), event.rows, event.is_dropped) == (f"{schema}.t", 300, False)
                complete = True
            if complete and kept.rows.get("other"):
                break
    assert kept.differences(server, schema, "t") == []
    assert list(kept.rows["other"]) == [(99,)]


async def test_a_table_that_the_stream_leaves_out_is_refused(server: Server, schema: str) -> None:
    async with stream_of(server, tables=f"{schema}.t") as stream:
        with pytest.raises(replica.ConfigurationError, match="left out by tables="):
            await stream.snapshot(f"{schema}.other")


async def test_what_cannot_be_copied_is_refused_by_name(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.m (id INT PRIMARY KEY) ENGINE=MyISAM")
    with pytest.raises(
        replica.ConfigurationError, match=rf"{schema}\.m cannot be copied exactly: its engine MyISAM"
    ):
        async with stream_of(server, start="snapshot", tables=f"{schema}.*"):
            pass
    # All at once, as a source may have many.
    for number in range(6):
        server.query(f"CREATE TABLE {schema}.n{number} (id INT) ENGINE=MEMORY")
    with pytest.raises(
        replica.ConfigurationError,
        match=rf"^{schema}\.m \(MyISAM\), {schema}\.n0 \(MEMORY\), .* and 2 more cannot be copied exactly",
    ):
        async with stream_of(server, start="snapshot", tables=f"{schema}.*"):
            pass
    with pytest.raises(replica.ConfigurationError, match="no table matches"):
        async with stream_of(server, start="snapshot", tables=f"{schema}.absent"):
            pass


async def test_a_stop_waits_for_the_end_of_the_copy(server: Server, schema: str) -> None:
    """An idle source, an empty table, a table with a unique key of two columns."""
    make_table(server, schema, "t", 500)
    server.query(f"CREATE TABLE {schema}.empty (id INT PRIMARY KEY)")
    server.query(f"CREATE TABLE {schema}.pair (x VARCHAR(9) NOT NULL, y INT NOT NULL, UNIQUE (x, y))")
    server.query(f"INSERT INTO {schema}.pair VALUES ('a', 1), ('B', 2), ('b', 1)")
    rows: dict[str, list[Any]] = {}
    complete = []
    options: dict[str, Any] = {"start": "snapshot", "stop": "now", "tables": f"{schema}.*"}
    async with asyncio.timeout(SECONDS), stream_of(server, snapshot_chunk_rows=100, **options) as stream:
        async for event in stream:
            if isinstance(event, SnapshotRowsEvent):
                rows.setdefault(event.table.name, []).extend(event.rows)
            elif isinstance(event, SnapshotCompleteEvent):
                complete.append(event.table.name)
        status = stream.status.snapshot
    assert sorted(complete) == ["empty", "pair", "t"]
    assert status is not None
    assert (status.tables, status.tables_complete, status.complete) == (3, 3, True)
    assert len(rows["t"]) == 500
    assert sorted(rows["pair"]) == [("B", 2), ("a", 1), ("b", 1)]


async def test_a_table_that_is_copied_matches_a_pattern(
    server: Server, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No event of the log names it, and one names a table of a similar name."""
    make_table(server, schema, "orders", 3)
    make_table(server, schema, "order_items", 3)
    server.query("FLUSH BINARY LOGS")
    server.query(f"DELETE FROM {schema}.order_items")
    options = {"start": "snapshot", "stop": "now", "tables": f"{schema}.orders"}
    async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
        events = [event async for event in stream]
    rows = [
        change.op for event in events if isinstance(event, replica.RowsEvent) for change in event.changes()
    ]
    assert rows == ["read"] * 3
    assert [
        record.getMessage() for record in caplog.records if "matches no table" in record.getMessage()
    ] == []


async def test_rows_that_ddl_took_away_before_a_copy(server: Server, schema: str) -> None:
    """Without MySQL's GTIDs their inserts come from the current log file, and nothing else takes them away."""
    names = ("emptied", "made_again", "swapped", "of_schema")
    for name in names[:3]:
        make_table(server, schema, name, 10)
    server.query(f"TRUNCATE {schema}.emptied")
    server.query(f"DROP TABLE {schema}.made_again")
    make_table(server, schema, "made_again", 5)
    make_table(server, schema, "other", 4)
    server.query(f"RENAME TABLE {schema}.swapped TO {schema}.old, {schema}.other TO {schema}.swapped")
    server.query(f"DROP TABLE {schema}.old")
    again = f"{schema}_again"
    for rows in (10, 3):
        server.query(f"DROP DATABASE IF EXISTS {again}")
        server.query(f"CREATE DATABASE {again}")
        make_table(server, again, "of_schema", rows)
    try:
        kept = Kept(dict.fromkeys((*names, "other", "old"), ("id",)), checks=False)
        dropped = {}
        tables = [*(f"{schema}.{name}" for name in names[:3]), f"{again}.of_schema"]
        options: dict[str, Any] = {"start": "snapshot", "stop": "now", "tables": tables}
        async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
            async for tx in stream.transactions():
                await kept.take(tx)
                async for event in tx.events():
                    if isinstance(event, SnapshotCompleteEvent):
                        dropped[event.table.name] = event.is_dropped
        assert [len(kept.rows.get(name, {})) for name in names] == [0, 5, 4, 3]
        for name in names:
            assert kept.differences(server, again if name == "of_schema" else schema, name) == []
    finally:
        server.query(f"DROP DATABASE {again}")


async def test_ddl_in_the_middle_of_a_copy(server: Server, schema: str) -> None:
    """A column is added, and another table dropped, when the first chunk has come."""
    make_table(server, schema, "t", 3000)
    make_table(server, schema, "z", 3000)
    kept = Kept({"t": ("id",), "z": ("id",)}, checks=False)
    dropped = {}
    options: dict[str, Any] = {"start": "snapshot", "stop": "now", "tables": f"{schema}.*"}
    changed = False
    async with asyncio.timeout(SECONDS), stream_of(server, snapshot_chunk_rows=100, **options) as stream:
        async for event in stream:
            if isinstance(event, SnapshotRowsEvent) and not changed:
                changed = True
                server.query(f"ALTER TABLE {schema}.t ADD COLUMN c INT NOT NULL DEFAULT 5")
                server.query(f"UPDATE {schema}.t SET c = 6 WHERE id % 3 = 0")
                server.query(f"DROP TABLE {schema}.z")
            if isinstance(event, replica.RowsEvent):
                for change in event.changes():
                    kept.apply(change)
            elif isinstance(event, SnapshotCompleteEvent):
                dropped[event.table.name] = event.is_dropped
    assert dropped == {"t": False, "z": True}
    # A row that came before the ALTER has the new column's default, which the log does not say row by row.
    for row in kept.rows["t"].values():
        row.setdefault("c", 5)
    assert kept.differences(server, schema, "t") == []


@pytest.mark.parametrize(
    ("server", "locking"), [("mysql:9.7", "none"), ("mariadb:11.8", "rows")], indirect=["server"]
)
async def test_a_table_without_a_key_comes_as_one_unit(server: Server, schema: str, locking: str) -> None:
    """Nothing of it comes before that unit; the changes after it do."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT)")
    server.query(f"INSERT INTO {schema}.nokey VALUES (1), (1), (2)")
    values: list[tuple[str, Any]] = []
    options: dict[str, Any] = {"start": "snapshot", "snapshot_locking": locking, "tables": f"{schema}.*"}
    async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
        async for event in stream:
            if isinstance(event, replica.RowsEvent):
                values += [(type(event).__name__, row[0]) for row in event.rows]  # type: ignore[attr-defined]
            if isinstance(event, SnapshotCompleteEvent):
                server.query(f"INSERT INTO {schema}.nokey VALUES (3)")
            if values[-1:] == [("WriteRowsEvent", 3)]:
                break
    assert sorted(values[:-1]) == [("SnapshotRowsEvent", value) for value in (1, 1, 2)]


async def test_xa_that_was_prepared_before_the_copy_began(server: Server, schema: str) -> None:
    """Its rows are in the log before the copy's place, and visible when the table has been read."""
    make_table(server, schema, "t", 100)
    kept, xid = Kept({"t": ("id",)}, defaults={"b": "none"}), f"'{schema}'"
    # Those of MySQL survive their session, and other tests.
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"XA START {xid}")
        cursor.execute(f"INSERT INTO {schema}.t (id, a) VALUES (1, 1)")
        cursor.execute(f"DELETE FROM {schema}.t WHERE id = 2")
        cursor.execute(f"UPDATE {schema}.t SET a = 77 WHERE id = 4")
        cursor.execute(f"XA END {xid}")
        cursor.execute(f"XA PREPARE {xid}")
        async with (
            asyncio.timeout(SECONDS),
            stream_of(server, start="snapshot", tables=f"{schema}.t") as stream,
        ):
            async for tx in stream.transactions():
                await kept.take(tx)
                if tx.outcome == "snapshot":
                    cursor.execute(f"XA COMMIT {xid}")
                    break
            await stream.acknowledge()
            checkpoint = stream.checkpoint
    assert checkpoint is not None
    await follow_to_end(server, checkpoint, kept, tables=f"{schema}.t")
    assert kept.violations == []
    assert kept.differences(server, schema, "t") == []


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_xa_with_a_tagged_gtid(server: Server, schema: str) -> None:
    """The transaction before it came again in its place, and its own rows were missing in an export."""
    if server.version < (8, 3):
        pytest.skip("it has no tags")
    make_table(server, schema, "t", 1)
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute("SET gtid_next = 'AUTOMATIC:xa'")
        for step in ("START", "", "END", "PREPARE"):
            cursor.execute(
                f"XA {step} '{schema}'" if step else f"INSERT INTO {schema}.t (id, a) VALUES (7, 7)"
            )
        async with (
            asyncio.timeout(SECONDS),
            stream_of(server, start="snapshot", tables=f"{schema}.t") as stream,
        ):
            tx = await anext(stream.transactions())
            [change] = await tx.collect(prepared=True)
        cursor.execute(f"XA COMMIT '{schema}'")
    assert (tx.outcome, change.after) == ("prepared", {"id": 7, "a": 7, "b": "none"})


@pytest.mark.parametrize("is_resumed", [False, True], ids=["at once", "resumed"])
@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize(
    ("server", "locking"),
    [("mysql:9.7", "none"), ("mysql:9.7", "rows"), ("mariadb:11.8", "rows")],
    indirect=["server"],
)
async def test_xa_that_is_prepared_before_a_table_without_a_key_is_read(
    server: Server, schema: str, locking: str, ends: str, is_resumed: bool
) -> None:
    """Its rows are in the log before the read, and hidden; its commit comes after the read, which has none of it."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT) ENGINE=InnoDB")
    server.query(f"INSERT INTO {schema}.nokey VALUES (1), (1), (2)")
    start = executed(server) if locking == "none" else end_of_log(server)
    # Reads with locks wait for the transaction.
    seen = "snapshot" if locking == "none" else "prepared"
    kept, xid, decided = Kept({"nokey": ()}), f"'{schema}'", False
    options: dict[str, Any] = {"tables": f"{schema}.*", "snapshot_locking": locking}
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"XA START {xid}")
        cursor.execute(f"INSERT INTO {schema}.nokey VALUES (1), (7)")
        cursor.execute(f"DELETE FROM {schema}.nokey WHERE a = 2")
        cursor.execute(f"XA END {xid}")
        cursor.execute(f"XA PREPARE {xid}")
        # Its stop waits for the end of the copy.
        async with asyncio.timeout(SECONDS), stream_of(server, start=start, stop="now", **options) as stream:
            await stream.snapshot(f"{schema}.nokey")
            async for tx in stream.transactions():
                await kept.take(tx)
                checkpoint = tx.checkpoint
                if tx.outcome == seen and not decided:
                    cursor.execute(f"XA {ends} {xid}")
                    decided = True
                    if is_resumed:
                        break
    assert decided
    server.query(f"INSERT INTO {schema}.nokey VALUES (9)")
    await follow_to_end(server, checkpoint, kept, **options)
    assert kept.violations == []
    assert values_of(kept) == [a for (a,) in server.query(f"SELECT a FROM {schema}.nokey ORDER BY a")]


def values_of(kept: Kept) -> list[int]:
    return sorted(row["row"]["a"] for row in kept.rows["nokey"].values() for _ in range(row["count"]))


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_xa_without_a_key_that_came_before_its_copy_begins_anew(server: Server, schema: str) -> None:
    """The first transaction was hidden, so its commit begins the copy anew. The consumer has the rows of the second:
    it applies them at a commit that comes before the new copy is read."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT, KEY (a)) ENGINE=InnoDB")
    server.query(f"INSERT INTO {schema}.nokey VALUES (1), (1), (2)")
    kept, start, names = Kept({"nokey": ()}), executed(server), list[str]()
    with two_xa(server, schema) as (first, second):
        first("START", f"INSERT INTO {schema}.nokey VALUES (7)", "END", "PREPARE")
        async with (
            asyncio.timeout(SECONDS),
            stream_of(server, start=start, stop="now", tables=f"{schema}.*") as stream,
        ):
            await stream.snapshot(f"{schema}.nokey")
            async for tx in stream.transactions():
                await kept.take(tx)
                if kept.reads and not names:
                    change = f"UPDATE {schema}.nokey SET a = 3 WHERE a = 2"
                    second("START", change, "END", "PREPARE")
                    first("COMMIT")
                    names.append("first")
                elif names == ["first"] and tx.xid is not None and tx.outcome == "commit":
                    second("COMMIT")
                    names.append("second")
    assert names == ["first", "second"]
    assert kept.violations == []
    assert values_of(kept) == [a for (a,) in server.query(f"SELECT a FROM {schema}.nokey ORDER BY a")]


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_rows_without_a_key_that_came_before_their_copy_are_void(server: Server, schema: str) -> None:
    """They were counted twice: nothing tells them from those of the copy."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT)")
    kept = Kept({"nokey": ()})
    async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.*", heartbeat=600) as stream:
        server.query(f"INSERT INTO {schema}.nokey VALUES (1), (1), (2)")
        async for tx in stream.transactions():
            await kept.take(tx)
            if tx.outcome == "commit" and kept.rows and not kept.reads:
                await stream.snapshot(f"{schema}.nokey")
            if kept.reads:
                break
        server.query(f"DELETE FROM {schema}.nokey WHERE a = 1 LIMIT 1")
        async for tx in stream.transactions():
            await kept.take(tx)
            if tx.outcome == "commit":
                break
    assert kept.violations == []
    assert sorted((entry["row"]["a"], entry["count"]) for entry in kept.rows["nokey"].values()) == [
        (1, 1),
        (2, 1),
    ]


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_a_table_without_a_key_needs_a_way_to_be_exact(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.nokey (a INT)")
    with pytest.raises(
        replica.ConfigurationError, match=rf"{schema}\.nokey: there is no key.*snapshot_locking='rows'"
    ):
        async with stream_of(server, start="snapshot", tables=f"{schema}.*"):
            pass


@pytest.mark.parametrize("server", ["mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_a_copy_tells_at_once_all_that_is_in_its_way(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.nokey (a INT)")
    server.query(f"CREATE TABLE {schema}.plain (a INT PRIMARY KEY) ENGINE=MyISAM")
    tables = [f"{schema}.*", f"{schema}.misspelt", f"{schema}.gone"]
    with pytest.raises(replica.ConfigurationError) as caught:
        async with stream_of(server, start="snapshot", tables=tables):
            pass
    for name in ("plain cannot be copied exactly", "misspelt'", "gone'", "nokey: there is no key"):
        assert name in str(caught.value)


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_a_table_without_a_key_needs_a_stream_that_knows_its_gtids(server: Server, schema: str) -> None:
    """Else its low mark is the beginning of the file, which knows of touches that lie long behind."""
    server.query(f"CREATE TABLE {schema}.nokey (a INT)")

    async def copy() -> None:
        options: dict[str, Any] = {"start": end_of_log(server), "stop": "now", "tables": f"{schema}.*"}
        async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
            await stream.snapshot(f"{schema}.nokey")
            async for _ in stream:
                pass

    with pytest.raises(replica.ConfigurationError, match="started at a file and a position set"):
        await copy()
