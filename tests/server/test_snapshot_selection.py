"""A stream that copied its tables goes on with other ``tables=``: new ones are copied, others leave the copy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import replica
from replica import Checkpoint
from tests.server.support.copied_tables import Kept, make_table
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, executed, stream_of
from tests.support.servers import Server


async def follow(server: Server, store: Path, kept: Kept, tables: list[str]) -> int:
    """Take what has come up to now; the number of rows that were read."""
    kept.reads = 0
    stream = stream_of(
        server, tables=tables, start="snapshot", stop="now", checkpoints=replica.FileCheckpointStore(store)
    )
    async with asyncio.timeout(SECONDS), stream:
        async for tx in stream.transactions():
            await kept.take(tx)
    return kept.reads


async def test_tables_that_are_selected_later_are_copied(server: Server, schema: str, tmp_path: Path) -> None:
    make_table(server, schema, "t", 100)
    make_table(server, schema, "u", 10)
    kept, store = Kept({"t": ("id",), "u": ("id",)}), tmp_path / "checkpoint"
    one, both = [f"{schema}.t"], [f"{schema}.t", f"{schema}.u"]
    assert await follow(server, store, kept, one) == 100
    server.query(f"INSERT INTO {schema}.u VALUES (99, 1, 'x')")
    assert await follow(server, store, kept, both) == 11
    assert await follow(server, store, kept, both) == 0
    for name in "tu":
        assert kept.differences(server, schema, name) == []

    # A row that goes while its table is not selected goes at the copy that comes with it again.
    server.query(f"DELETE FROM {schema}.t WHERE id < 50")
    server.query(f"DELETE FROM {schema}.u WHERE id = 99")
    assert await follow(server, store, kept, one) == 0
    assert kept.differences(server, schema, "u") != []
    assert await follow(server, store, kept, both) == 10
    for name in "tu":
        assert kept.differences(server, schema, name) == []
    assert kept.violations == []


@pytest.mark.parametrize(
    ("changed", "later", "reads"),
    [("o", "t", 0), ("tu", "tu", 10 + 102 + 12)],
    ids=["another table", "a table that comes in"],
)
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_xa_that_is_prepared_between_two_lives(
    server: Server, schema: str, tmp_path: Path, changed: str, later: Sequence[str], reads: int
) -> None:
    """Of tables that are not selected it is no matter. If one is selected before its end, its rows come by a copy."""
    make_table(server, schema, "t", 100)
    for name in "uo":
        make_table(server, schema, name, 10)
    kept, store = Kept(dict.fromkeys("tu", ("id",))), tmp_path / "checkpoint"
    assert await follow(server, store, kept, [f"{schema}.t"]) == 100
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"XA START '{schema}'")
        for name in changed:
            cursor.execute(f"INSERT INTO {schema}.{name} VALUES (990, 1, 'x'), (991, 1, 'x')")
        for sql in ("END", "PREPARE"):
            cursor.execute(f"XA {sql} '{schema}'")
        assert await follow(server, store, kept, [f"{schema}.t"]) == 0
        tables = [f"{schema}.{name}" for name in later]
        came = await follow(server, store, kept, tables)
        cursor.execute(f"XA COMMIT '{schema}'")
    came += await follow(server, store, kept, tables)
    assert [kept.differences(server, schema, name) for name in later] == [[]] * len(later)
    assert kept.violations == []
    assert came == reads


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_xa_that_was_prepared_before_a_table_is_selected_and_ordered(
    server: Server, schema: str, is_ordered: bool
) -> None:
    """The filter kept the rows of the ordered table from the consumer, and its copy does not show them yet."""
    for name in "tu":
        make_table(server, schema, name, 10)
    kept = Kept(dict.fromkeys("tu", ("id",)))

    async def follow_on(
        start: object, names: str, order: str = "", commit: Callable[[], object] | None = None
    ) -> Checkpoint:
        """Follow to the end of the log, or to the XA COMMIT that comes when an ordered table is complete."""
        # A stream without anything to follow ends before its order.
        server.query(f"UPDATE {schema}.t SET a = a + 1 WHERE id = 2")
        selected, stop = [f"{schema}.{name}" for name in names], None if commit else "now"
        copied = 0
        async with (
            asyncio.timeout(SECONDS),
            stream_of(server, tables=selected, start=start, stop=stop) as stream,
        ):
            if order:
                await stream.snapshot(f"{schema}.{order}")
            async for tx in stream.transactions():
                await kept.take(tx)
                checkpoint, copied = tx.checkpoint, copied + (tx.outcome == "snapshot" and tx.voided is None)
                if commit is not None and tx.xid is not None and tx.outcome == "commit":
                    break
                # The rows and the end.
                if commit is not None and copied == 2:
                    commit()
                    copied += 1
        return checkpoint

    checkpoint = await follow_on(executed(server) if is_ordered else "snapshot", "t", "t" * is_ordered)
    with server.connect() as session, session.cursor() as cursor:
        cursor.execute(f"XA START '{schema}'")
        for name in "tu":
            cursor.execute(f"INSERT INTO {schema}.{name} VALUES (990, 1, 'x')")
        for sql in ("END", "PREPARE"):
            cursor.execute(f"XA {sql} '{schema}'")
        checkpoint = await follow_on(checkpoint, "t")
        checkpoint = await follow_on(checkpoint, "tu", "u", lambda: cursor.execute(f"XA COMMIT '{schema}'"))
    await follow_on(checkpoint, "tu")
    assert [kept.differences(server, schema, name) for name in "tu"] == [[], []]
    assert kept.violations == []


async def test_a_selection_that_grows_in_the_midst_of_a_copy_of_many(
    server: Server, schema: str, tmp_path: Path
) -> None:
    """A checkpoint names the first and the last of many tables: a new one between them has not been copied."""
    names = [f"t{number:02d}" for number in range(40)]
    for name in [*names, "t05_new"]:
        make_table(server, schema, name, 2)
    kept, store = Kept(dict.fromkeys([*names, "t05_new"], ("id",))), tmp_path / "checkpoint"
    few = [f"{schema}.t??"]
    stream = stream_of(
        server,
        tables=few,
        start="snapshot",
        checkpoints=replica.FileCheckpointStore(store),
        checkpoint_interval=0,
    )
    async with asyncio.timeout(SECONDS), stream:
        complete = 0
        async for tx in stream.transactions():
            await kept.take(tx)
            status = stream.status.snapshot
            assert status is not None
            complete = status.tables_complete
            if complete >= 20:
                break
    assert complete < 40
    await follow(server, store, kept, [*few, f"{schema}.*_new"])
    for name in kept.keys:
        assert kept.differences(server, schema, name) == []


async def test_a_copy_in_flight_ends_without_a_table_that_left(
    server: Server, schema: str, tmp_path: Path
) -> None:
    for name in "tu":
        make_table(server, schema, name, 100)
    kept, store = Kept({"t": ("id",), "u": ("id",)}), tmp_path / "checkpoint"
    stream = stream_of(
        server,
        tables=f"{schema}.*",
        start="snapshot",
        snapshot_chunk_rows=10,
        checkpoints=replica.FileCheckpointStore(store),
        checkpoint_interval=0,
    )
    async with asyncio.timeout(SECONDS), stream:
        async for tx in stream.transactions():
            await kept.take(tx)
            if tx.outcome == "snapshot":
                break
    await follow(server, store, kept, [f"{schema}.t"])
    assert kept.differences(server, schema, "t") == []
    assert len(kept.rows.get("u", ())) < 100
