"""Transactions of real sources as units: every kind of them, what is collected, reconnects, and little memory."""

from __future__ import annotations

import asyncio
import contextlib
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pymysql
import pytest

from protocol.errors import RolledBackToSavepointError, StatementFormatError, TransactionOutcomeError
from protocol.gtid import parse_gtid_set
from replica import Change
from replica.sql.xa import Xid
from tests.support.servers import Server

from .support.streams import SECONDS, end_of_log, executed
from .support.transaction_streams import (
    THREE,
    Seen,
    compressing,
    insert,
    on_mariadb,
    on_three,
    on_xa,
    run,
    seen_since,
    short,
    stream_from,
)

# Every kind


@on_three
async def test_rows_and_ddl(server: Server, schema: str) -> None:
    create, index = "CREATE TABLE t (id INT PRIMARY KEY)", "ALTER TABLE t ADD INDEX x (id)"
    start = end_of_log(server)
    run(
        server,
        schema,
        create,
        "INSERT INTO t VALUES (1), (2)",
        "BEGIN",
        "INSERT INTO t VALUES (3)",
        "UPDATE t SET id = 4 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "COMMIT",
        "BEGIN",
        "INSERT INTO t VALUES (5)",
        "ROLLBACK",
        index,
        "TRUNCATE TABLE t",
    )
    changes = [*insert(3), ("update", "t", 1, 4), ("delete", "t", 2)]
    assert await seen_since(server, schema, start) == [
        Seen("commit", [], [create]),
        Seen("commit", insert(1, 2), []),
        Seen("commit", changes, []),
        Seen("commit", [], [index]),
        Seen("commit", [], ["TRUNCATE TABLE t"]),
    ]


@on_three
async def test_gtids_times_and_checkpoints(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    before = parse_gtid_set(executed(server))
    earliest = datetime.now(UTC)
    for number in range(5):
        run(server, schema, f"INSERT INTO t VALUES ({number})", f"ALTER TABLE t COMMENT '{number}'")
    latest = datetime.now(UTC)
    found = []
    async with asyncio.timeout(SECONDS), stream_from(server, schema, before) as stream:
        async for tx in stream.transactions():
            if server.name != "mysql:9.7":
                # Whole seconds.
                earliest = earliest.replace(microsecond=0)
            # Clocks of one machine, read by two programs.
            slack = timedelta(milliseconds=50)
            assert earliest - slack <= tx.commit_time <= latest + slack
            changes = [short(change) async for change in tx]
            assert tx.gtid is not None
            assert tx.gtid not in before  # type: ignore[operator]
            before.add(tx.gtid)  # type: ignore[arg-type]
            assert parse_gtid_set(tx.checkpoint.gtid_set or "") == before
            assert stream.checkpoint != tx.checkpoint
            found.append((changes, tx.checkpoint))
        assert stream.checkpoint == found[-1][1]
    assert before == parse_gtid_set(executed(server))
    assert [changes for changes, _ in found] == [part for number in range(5) for part in (insert(number), [])]
    for index in (0, 3, 8):
        later = await seen_since(server, schema, found[index][1])
        assert [tx.changes for tx in later] == [changes for changes, _ in found[index + 1 :]]


@on_three
async def test_tables_that_know_no_transactions(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    start = end_of_log(server)
    run(server, schema, "INSERT INTO m VALUES (1), (2)", "BEGIN", "INSERT INTO m VALUES (3)", "ROLLBACK")
    # The first two stay.
    with pytest.raises(pymysql.err.IntegrityError, match="Duplicate entry"):
        run(server, schema, "INSERT INTO m VALUES (4), (5), (1)")
    seen = await seen_since(server, schema, start)
    assert seen == [Seen("commit", insert(*ids, table="m"), []) for ids in ((1, 2), (3,), (4, 5))]


# 5.6 with GTIDs lets neither this nor XA through as others do.
@on_xa
async def test_a_table_made_of_a_query(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    start = end_of_log(server)
    run(server, schema, "CREATE TABLE copy AS SELECT * FROM t")
    [seen] = await seen_since(server, schema, start)
    assert (seen.outcome, seen.changes) == ("commit", insert(1, 2, table="copy"))
    assert [sql.split("(")[0] for sql in seen.ddl] == ["CREATE TABLE `copy` "]


XA_ENDS = [("'a','b',7", "COMMIT"), ("'c'", "ROLLBACK"), ("'a','b',7", "ROLLBACK")]


@on_xa
async def test_xa(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    for number, (xid, end) in enumerate(XA_ENDS, 1):
        run_xa(server, schema, xid, number, end)
    seen = await seen_since(server, schema, start)
    first, second = Xid(7, b"a", b"b"), Xid(1, b"c", b"")
    assert seen == [
        Seen("prepared", insert(1), [], first),
        Seen("commit", [], [], first),
        Seen("prepared", insert(2), [], second),
        Seen("rollback", [], [], second),
        Seen("prepared", insert(3), [], first),
        Seen("rollback", [], [], first),
    ]


def run_xa(server: Server, schema: str, xid: str, number: int, end: str) -> None:
    run(
        server,
        schema,
        f"XA START {xid}",
        f"INSERT INTO t VALUES ({number})",
        f"XA END {xid}",
        f"XA PREPARE {xid}",
        f"XA {end} {xid}",
    )


@on_xa
async def test_what_becomes_of_prepared_changes(server: Server, schema: str) -> None:
    """Kept under their xid until it is committed: that is what the table holds."""
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    for number, (xid, end) in enumerate(XA_ENDS, 1):
        run_xa(server, schema, xid, number, end)
    prepared: dict[Xid | None, list[Change]] = {}
    rows: list[tuple[object, ...]] = []
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        async for tx in stream.transactions():
            if tx.outcome != "prepared":
                with contextlib.suppress(TransactionOutcomeError):
                    await tx.collect()
            changes = await tx.collect(prepared=True)
            if tx.outcome == "prepared":
                prepared[tx.xid] = changes
            elif (changes := prepared.pop(tx.xid)) and tx.outcome == "commit":
                rows += [tuple((change.after or {}).values()) for change in changes]
    assert rows == list(server.query(f"SELECT * FROM {schema}.t")) == [(1,)]


@on_three
async def test_xa_in_one_phase(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    run(server, schema, "XA START 'q'", "INSERT INTO t VALUES (1)", "XA END 'q'", "XA COMMIT 'q' ONE PHASE")
    xid = Xid(1, b"q", b"") if server.family == "mysql" and server.version >= (5, 7) else None
    assert await seen_since(server, schema, start) == [Seen("commit", insert(1), [], xid)]


async def test_mysql_56_logs_xa_when_it_is_committed(mysql56: Server) -> None:
    with mysql56.fresh_schema() as schema:
        run(mysql56, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
        start = end_of_log(mysql56)
        for number, (xid, end) in enumerate(XA_ENDS, 1):
            run_xa(mysql56, schema, xid, number, end)
        assert await seen_since(mysql56, schema, start) == [Seen("commit", insert(1), [])]


@on_mariadb
async def test_groups_of_one_statement(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY) ENGINE=Aria")
    statements = [
        "ANALYZE TABLE t",
        "CREATE USER standalone@localhost",
        "DROP USER standalone@localhost",
        "FLUSH TABLES",
    ]
    start = end_of_log(server)
    run(server, schema, *statements)
    seen = []
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        async for tx in stream.transactions():
            # Known without reading it.
            assert (tx.outcome, tx.checkpoint.server_id) == ("commit", server.server_id)
            seen += [statement.sql for statement in tx.ddl]
    assert seen == statements


@on_mariadb
async def test_an_alter_in_two_phases(server: Server, schema: str) -> None:
    add, key = (
        "ALTER TABLE t ADD INDEX x (id), ALGORITHM=COPY",
        "ALTER TABLE t ADD UNIQUE (a), ALGORITHM=COPY",
    )
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    start = end_of_log(server)
    run(server, schema, "SET SESSION binlog_alter_two_phase = 1", add)
    with pytest.raises(pymysql.err.IntegrityError, match="Duplicate entry"):
        run(server, schema, "SET SESSION binlog_alter_two_phase = 1", key)
    assert await seen_since(server, schema, start) == [
        Seen("prepared", [], []),
        Seen("commit", [], [add]),
        Seen("prepared", [], []),
        Seen("rollback", [], []),
    ]


@on_xa
async def test_compressed(server: Server, schema: str) -> None:
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY, text VARCHAR(500))")
    start = end_of_log(server)
    with compressing(server):
        run(
            server,
            schema,
            "BEGIN",
            *(f"INSERT INTO t VALUES ({number}, REPEAT('x', 400))" for number in range(200)),
            "COMMIT",
            "UPDATE t SET text = 'y' WHERE id = 7",
        )
    assert end_of_log(server).position - start.position < 200 * 400
    seen = await seen_since(server, schema, start)
    text = "x" * 400
    inserted: list[tuple[object, ...]] = [("insert", "t", number, text) for number in range(200)]
    assert seen == [
        Seen("commit", inserted, []),
        Seen("commit", [("update", "t", 7, text, 7, "y")], []),
    ]


# What does not stand


@on_mariadb
async def test_changes_that_a_savepoint_takes_back(server: Server, schema: str) -> None:
    """A table without transactions makes MariaDB log what it has rolled back."""
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (id INT) ENGINE=MyISAM")
    start = end_of_log(server)
    run(
        server,
        schema,
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "SAVEPOINT a",
        "INSERT INTO t VALUES (2), (3)",
        "INSERT INTO m VALUES (2)",
        "ROLLBACK TO a",
        "INSERT INTO t VALUES (4)",
        "COMMIT",
    )
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        transactions = stream.transactions()
        assert [short(change) for change in await (await anext(transactions)).collect()] == insert(
            2, table="m"
        )
        tx = await anext(transactions)
        seen = [short(await anext(tx)) for _ in range(3)]
        with pytest.raises(RolledBackToSavepointError) as caught:
            await anext(tx)
        del seen[caught.value.changes_kept :]
        seen += [short(change) async for change in tx]
        assert (seen, tx.outcome) == (insert(1, 4), "commit")


@on_mariadb
async def test_a_logged_rollback(server: Server, schema: str) -> None:
    """A temporary table makes MariaDB log it."""
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)")
    start = end_of_log(server)
    run(
        server,
        schema,
        "BEGIN",
        "INSERT INTO t VALUES (1)",
        "CREATE TEMPORARY TABLE x (a INT)",
        "INSERT INTO t VALUES (2)",
        "ROLLBACK",
    )
    assert await seen_since(server, schema, start) == [Seen("rollback", insert(1, 2), [])]
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        assert [await tx.collect() async for tx in stream.transactions()] == [[]]


def random_statements(rng: random.Random, tables: list[str]) -> list[str]:
    """Transactions with savepoints, rolled back in part and as a whole."""
    statements = []
    for _ in range(60):
        statements.append("BEGIN")
        savepoints: list[str] = []
        for _ in range(rng.randrange(10)):
            table, number = rng.choice(tables), rng.randrange(30)
            choice = rng.random()
            if choice < 0.5:
                statements.append(f"REPLACE INTO {table} VALUES ({number}, {rng.randrange(1000)})")
            elif choice < 0.6:
                statements.append(f"DELETE FROM {table} WHERE id < {number} ORDER BY id DESC LIMIT 3")
            elif choice < 0.8 or not savepoints:
                savepoints.append(rng.choice("abc"))
                statements.append(f"SAVEPOINT {savepoints[-1]}")
            else:
                name = rng.choice(savepoints)
                del savepoints[savepoints.index(name) + 1 :]
                statements.append(f"ROLLBACK TO {name}")
        statements.append(rng.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
    return statements


def apply(rows: dict[tuple[str, object], object], changes: list[Change]) -> None:
    for change in changes:
        name = change.table.name
        if change.before is not None:
            assert rows.pop((name, change.before["id"])) == change.before["v"]
        if change.after is not None:
            assert (name, change.after["id"]) not in rows
            rows[name, change.after["id"]] = change.after["v"]


@on_three
async def test_what_is_collected_is_what_the_tables_hold(seed: int, server: Server, schema: str) -> None:
    # MySQL with GTIDs does not let both kinds into one transaction.
    engines = {"t": "InnoDB", "u": "InnoDB"} | ({"m": "MyISAM"} if server.family == "mariadb" else {})
    run(
        server,
        schema,
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT) ENGINE={engine}"
            for name, engine in engines.items()
        ),
    )
    start = end_of_log(server)
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        for statement in random_statements(random.Random(seed), list(engines)):
            # A savepoint of the same name has replaced an earlier one.
            with (
                contextlib.suppress(Exception)
                if statement.startswith("ROLLBACK TO")
                else contextlib.nullcontext()
            ):
                cursor.execute(statement)
    rows: dict[tuple[str, object], object] = {}
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        async for tx in stream.transactions():
            apply(rows, await tx.collect())
    expected = {
        (name, number): value
        for name in engines
        for number, value in server.query(f"SELECT * FROM {schema}.{name}")
    }
    assert rows == expected
    assert expected


# Statements instead of rows


@on_three
@pytest.mark.parametrize(
    "statement",
    [
        "/* by hand */ INSERT INTO t VALUES (1)",
        "LOAD DATA INFILE '/etc/group' IGNORE INTO TABLE m",
        "CREATE TABLE copy AS SELECT 1 AS a",
    ],
    ids=lambda statement: statement.split()[0].strip("/* "),
)
async def test_row_changes_as_statements(server: Server, schema: str, statement: str) -> None:
    if (server.name, statement.split()[0]) == ("mysql:5.6", "CREATE"):
        return
    run(server, schema, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE m (a TEXT)")
    start = end_of_log(server)
    run(server, schema, "SET SESSION binlog_format = STATEMENT", statement)
    run(server, schema, "INSERT INTO t VALUES (2)")
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        transactions = stream.transactions()
        tx = await anext(transactions)
        with pytest.raises(StatementFormatError, match="binlog_format=ROW"):
            [change async for change in tx]
        # Who goes on has said so.
        assert [change async for change in tx] == []
        assert (tx.outcome, tx.ddl) == ("commit", ())
        assert [short(change) async for change in await anext(transactions)] == insert(2)
    async with asyncio.timeout(SECONDS), stream_from(server, schema, start) as stream:
        with pytest.raises(StatementFormatError):
            await (await anext(stream.transactions())).collect()


@pytest.mark.long
@pytest.mark.parametrize("name", THREE)
async def test_a_memory_table_is_emptied_by_a_restart(name: str, extra_server: Any) -> None:
    """Servers log that when it is opened again; 5.6 as a DELETE."""
    other: Server = extra_server(name)
    with other.fresh_schema() as schema:
        run(other, schema, "CREATE TABLE h (a INT) ENGINE=MEMORY", "INSERT INTO h VALUES (1)")
        other.container.get_wrapped_container().restart()
        other.wait_until_ready()
        start = end_of_log(other)
        assert other.query(f"SELECT * FROM {schema}.h") == []
        [seen] = await seen_since(other, schema, start)
    assert (seen.outcome, seen.changes, len(seen.ddl)) == ("commit", [], 1)
    assert f"`{schema}`.`h`" in seen.ddl[0]
