"""A copy with the least privileges: what its connections run, how long their transactions are, what they lock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from replica import ConfigurationError, PrivilegeError, SnapshotRowsEvent
from replica.snapshot.copier import Copier
from tests.server.support.copied_tables import make_table
from tests.server.support.streams import SECONDS, stream_of, user_of
from tests.support.servers import Server

ROWS = 300
PRIVILEGES = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
#: What statements of a copy begin with: they read, or set what concerns their session alone.
READING = (
    "SELECT ",
    "SHOW ",
    "XA RECOVER",
    "SET SESSION ",
    "SET @",
    "SET NAMES ",
    BEGIN,
    "COMMIT",
    "ROLLBACK",
)


@contextlib.contextmanager
def general_log(server: Server) -> Iterator[None]:
    """All statements are logged within the block, into a table."""
    server.query("SET GLOBAL log_output = 'TABLE'")
    server.query("TRUNCATE mysql.general_log")
    server.query("SET GLOBAL general_log = 1")
    try:
        yield
    finally:
        server.query("SET GLOBAL general_log = 0")


def statements_of(server: Server, user: str) -> list[tuple[int, str, str]]:
    """Thread, kind and text of the user's statements, in their order."""
    rows = server.query(
        "SELECT thread_id, command_type, argument FROM mysql.general_log WHERE user_host LIKE %s AND command_type IN "
        "('Query', 'Prepare', 'Execute')",
        f"%{user}%",
    )
    return [
        (int(thread), str(kind), bytes(text).decode() if isinstance(text, bytes) else str(text))
        for thread, kind, text in rows
    ]


async def copied_rows(server: Server, schema: str, user: str) -> int:
    options: dict[str, Any] = {"start": "snapshot", "stop": "now", "tables": f"{schema}.*"}
    count = 0
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, user, snapshot_chunk_rows=100, **options) as stream,
    ):
        async for event in stream:
            if isinstance(event, SnapshotRowsEvent):
                count += len(event.rows)
    return count


async def test_nothing_is_locked_or_written_and_transactions_are_short(server: Server, schema: str) -> None:
    """The general log shows each statement of the copy."""
    make_table(server, schema, "t", ROWS)
    with user_of(server, PRIVILEGES) as user:
        with general_log(server):
            assert await copied_rows(server, schema, user) == ROWS
        statements = statements_of(server, user)
    texts = [text for _, _, text in statements]
    assert [text for text in texts if not text.startswith(READING)] == []
    assert not any("FOR UPDATE" in text or "LOCK IN" in text or "GET_LOCK" in text for text in texts)
    read = 0
    for _, group in groupby(sorted(statements, key=lambda one: one[0]), key=lambda one: one[0]):
        # What each connection runs between the begin of a transaction and its end.
        begun: list[str] | None = None
        for _, kind, text in group:
            if text == BEGIN:
                assert begun is None
                begun = []
            elif text in ("COMMIT", "ROLLBACK"):
                if begun is not None:
                    # A window that became void, as by the log's rotation, is rolled back before it reads rows. The
                    # first chunk comes with the largest key.
                    rows = [sql for sql in begun if not sql.endswith(" DESC LIMIT 1")]
                    assert len(rows) == 1 or (begun == [] and text == "ROLLBACK"), begun
                    assert len(begun) <= 2, begun
                    read += len(begun)
                begun = None
            elif begun is not None and kind == "Execute":
                begun.append(text)
        assert begun is None
    # The largest key, and three chunks.
    assert read >= 4


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
async def test_a_chunk_holds_what_any_select_holds(
    server: Server, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the rows of a chunk and its COMMIT: a metadata lock for reading, and no lock of a row."""
    make_table(server, schema, "t", ROWS)
    held: list[tuple[Any, ...]] = []
    of_rows: list[tuple[Any, ...]] = []
    read_rows = Copier._rows_of

    async def rows_of(self: Copier, *arguments: Any) -> int:
        size = await read_rows(self, *arguments)
        held.extend(await asyncio.to_thread(server.query, locks))
        of_rows.extend(await asyncio.to_thread(server.query, "SELECT * FROM performance_schema.data_locks"))
        return size

    monkeypatch.setattr(Copier, "_rows_of", rows_of)
    with user_of(server, PRIVILEGES) as user:
        locks = (
            "SELECT m.OBJECT_TYPE, m.LOCK_TYPE, m.OBJECT_NAME FROM performance_schema.metadata_locks m JOIN "
            f"performance_schema.threads t ON t.THREAD_ID = m.OWNER_THREAD_ID WHERE t.PROCESSLIST_USER = '{user}'"
        )
        assert await copied_rows(server, schema, user) == ROWS
    assert ("TABLE", "SHARED_READ", "t") in held
    assert {lock for _, lock, _ in held} == {"SHARED_READ"}
    assert of_rows == []


async def test_a_user_who_may_read_some_columns_only_is_refused(server: Server, schema: str) -> None:
    """information_schema shows no others: the copy would be one of these, and pass for the table."""
    make_table(server, schema, "t", ROWS)
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        server.query(f"GRANT SELECT (id) ON {schema}.t TO '{user}'@'%'")
        # What the log says of the table is another matter: without all names it may be an error of its own.
        server.query("FLUSH BINARY LOGS")
        with pytest.raises(PrivilegeError, match=f"GRANT SELECT ON {schema}.t, name the readable columns"):
            await copied_rows(server, schema, user)


async def test_a_user_without_select_is_refused(server: Server, schema: str) -> None:
    """Of all tables, too: the copy would be empty, and complete at once."""
    make_table(server, schema, "t", 1)
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        for tables in (None, f"{schema}.*"):
            with pytest.raises(ConfigurationError, match=r"a copy cannot begin.*GRANT SELECT"):
                async with asyncio.timeout(SECONDS), stream_of(server, user, start="snapshot", tables=tables):
                    pass


@pytest.mark.parametrize("condition", ["nope = 3", "id = = 3", "id = 3) OR (1 = 1", "id = 3 -- but", ""])
async def test_a_condition_that_the_source_refuses(server: Server, schema: str, condition: str) -> None:
    """The error names the option, as the statement has more than what the user wrote."""
    make_table(server, schema, "t", 1)
    options: dict[str, Any] = {"start": "snapshot", "tables": f"{schema}.*"}
    where = {f"{schema}.t": condition}
    with pytest.raises(ConfigurationError, match=rf"^snapshot_where: {schema}\.t: the source refuses '"):
        async with stream_of(server, snapshot_where=where, **options):
            pass


async def test_a_condition_on_a_table_that_is_not_copied_is_refused(server: Server, schema: str) -> None:
    """All rows of the table that was meant would be copied."""
    make_table(server, schema, "t", 1)
    options: dict[str, Any] = {"start": "snapshot", "tables": f"{schema}.*"}
    for name in ("nosuch", "T"):
        with pytest.raises(ConfigurationError, match=f"^snapshot_where: '{schema}.{name}' is not among"):
            async with stream_of(server, snapshot_where={f"{schema}.{name}": "id < 3"}, **options):
                pass


async def test_a_user_who_cannot_ask_where_the_log_ends_is_refused(server: Server, schema: str) -> None:
    """On servers without exact GTIDs the error came with the first chunk, behind rows of the log."""
    make_table(server, schema, "t", 1)
    needed = "BINLOG MONITOR" if server.family == "mariadb" else "REPLICATION CLIENT"
    options: dict[str, Any] = {"start": "snapshot", "tables": f"{schema}.*"}
    with (
        user_of(server, "SELECT, REPLICATION SLAVE") as user,
        pytest.raises(PrivilegeError, match=f"GRANT {needed}"),
    ):
        async with asyncio.timeout(SECONDS), stream_of(server, user, **options):
            pass
