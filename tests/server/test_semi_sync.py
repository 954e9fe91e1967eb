"""Semi-synchronous replication with real sources: their commits wait for us, and for all that they should."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import replica
from replica import BinlogPosition, BinlogStream, Checkpoint, RowsEvent, XidEvent
from tests.faults.container import kill_dumps
from tests.server.support.semi_sync_sources import TIMEOUT_SECONDS, Source, waiting_source
from tests.support.servers import Server

from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log, stream_of, to_the_end

HELD_SECONDS = 0.5


@pytest.fixture
def source(server: Server, schema: str) -> Iterator[Source]:
    with waiting_source(server, schema) as source:
        yield source


class Consumer:
    """Iterates a stream, and stops in front of what it has got while it is held."""

    def __init__(self, stream: BinlogStream) -> None:
        self.stream = stream
        self.rows: list[int] = []
        self.transactions = 0
        self._goes_on = asyncio.Event()
        self._goes_on.set()

    async def run(self) -> None:
        async for event in self.stream:
            if isinstance(event, RowsEvent):
                self.rows += [row[0] for row in event.rows]  # type: ignore[attr-defined]
            if isinstance(event, XidEvent):
                self.transactions += 1
            await self._goes_on.wait()

    def hold(self) -> None:
        self._goes_on.clear()

    def release(self) -> None:
        self._goes_on.set()


@contextlib.asynccontextmanager
async def consuming(source: Source, **options: Any) -> AsyncIterator[Consumer]:
    stream = stream_of(source.server, tables=f"{source.schema}.*", semi_sync=True, **options)
    async with stream:
        consumer = Consumer(stream)
        task = asyncio.create_task(consumer.run())
        try:
            await source.until(lambda: source.status("clients") == 1)
            yield consumer
            assert not task.done(), task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_commit_waits_for_the_consumer(source: Source) -> None:
    async with consuming(source) as consumer:
        await asyncio.to_thread(source.insert, 1)
        confirmed = source.status("yes_tx")
        for number in (2, 3, 4):
            consumer.hold()
            commit = await source.inserting(number)
            await asyncio.sleep(HELD_SECONDS)
            assert not commit.done()
            consumer.release()
            assert HELD_SECONDS <= await commit < TIMEOUT_SECONDS
        assert source.status("yes_tx") - confirmed == 3
        assert source.missed == 0
        assert source.status("clients") == 1
        assert source.status("status") == 1
    assert consumer.rows == [1, 2, 3, 4]


@contextlib.contextmanager
def wait_point(source: Source, value: str) -> Iterator[None]:
    """AFTER_SYNC: commits wait when the log has them, and reads do not show them yet."""
    [(before,)] = source.server.query(f"SELECT @@GLOBAL.rpl_semi_sync_{source.word}_wait_point")
    source.set("wait_point", value)
    try:
        yield
    finally:
        source.set("wait_point", before)


@contextlib.asynccontextmanager
async def beside_a_consumer(source: Source) -> AsyncIterator[tuple[Consumer, BinlogStream]]:
    """A consumer for which commits wait, after one row, and a stream for which they do not."""
    with wait_point(source, "AFTER_SYNC"):
        async with (
            asyncio.timeout(SECONDS),
            consuming(source) as consumer,
            stream_of(source.server, tables=f"{source.schema}.*") as stream,
        ):
            await asyncio.to_thread(source.insert, 1)
            yield consumer, stream


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_copy_on_a_running_stream_waits_for_commits_that_wait(source: Source) -> None:
    """The log has brought their rows, and a read does not show them: they were missing in the copy."""
    kept: set[object] = set()
    async with beside_a_consumer(source) as (consumer, stream):
        consumer.hold()
        commit = await source.inserting(2)
        async for event in stream:
            if isinstance(event, replica.SnapshotRowsEvent | replica.WriteRowsEvent):
                kept |= {row[0] for row in event.rows}
            if isinstance(event, XidEvent) and kept == {1, 2}:
                # The copy begins anew, or now.
                kept.clear()
                await stream.snapshot(f"{source.schema}.t")
                asyncio.get_running_loop().call_later(HELD_SECONDS, consumer.release)
            if isinstance(event, replica.SnapshotCompleteEvent):
                break
        await commit
    assert kept == {1, 2}


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_copy_that_is_ordered_within_a_transaction_begins_behind_it(source: Source) -> None:
    """Changes of its first part were not known to the copy, which gave the row as it was before."""
    table, other = f"{source.schema}.t", f"{source.schema}.other"
    kept: dict[object, object] = {}

    def commit() -> None:
        with source.server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET b = 'new'")
            for number in range(30):
                cursor.execute(f"INSERT INTO {other} VALUES ({number}, REPEAT('x', 100000))")
            connection.commit()

    async with beside_a_consumer(source) as (consumer, stream):
        create = f"CREATE TABLE {other} (id INT PRIMARY KEY, v LONGTEXT)"
        await asyncio.to_thread(source.server.query, create)
        consumer.hold()
        committing = asyncio.create_task(asyncio.to_thread(commit))
        async for event in stream:
            if isinstance(event, replica.SnapshotRowsEvent):
                kept |= dict(event.rows)  # type: ignore[arg-type]
            if isinstance(event, replica.UpdateRowsEvent):
                kept |= dict(after for _, after in event.rows)  # type: ignore[misc, arg-type]
                await stream.snapshot(table)
            if isinstance(event, replica.SnapshotCompleteEvent):
                break
            if isinstance(event, replica.XidEvent) and kept:
                asyncio.get_running_loop().call_later(HELD_SECONDS, consumer.release)
        consumer.release()
        await committing
    assert kept == {1: "new"}


class _SlowStore(replica.FileCheckpointStore):
    """Saves into its file when it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.asked = 0

    async def save(self, checkpoint: Checkpoint) -> None:  # type: ignore[override]
        self.asked += 1
        await self.goes_on.wait()
        super().save(checkpoint)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_stream_that_stops_leaves_no_commit_waiting(source: Source) -> None:
    end = end_of_log(source.server)
    stop = BinlogPosition(end.file, end.position + 1)
    async with (
        asyncio.timeout(SECONDS),
        stream_of(source.server, semi_sync=True, start=end, stop=stop) as stream,
    ):
        commit = await source.inserting(1)
        assert [event async for event in stream]
        assert await commit < TIMEOUT_SECONDS / 2
    assert source.missed == 0


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_commit_waits_for_the_store(source: Source, tmp_path: Path) -> None:
    store = _SlowStore(tmp_path / "checkpoint")
    async with consuming(source, checkpoints=store, checkpoint_interval=3600) as consumer:
        await asyncio.to_thread(source.insert, 1)
        store.goes_on.clear()
        before = store.load()
        asked = store.asked
        commit = await source.inserting(2)
        await source.until(lambda: store.asked > asked)
        # The consumer is done with it, and the store is not.
        assert consumer.rows == [1, 2]
        await asyncio.sleep(HELD_SECONDS)
        assert not commit.done()
        assert store.load() == before
        store.goes_on.set()
        assert HELD_SECONDS <= await commit < TIMEOUT_SECONDS
        saved = store.load()
        assert saved is not None
        assert saved != before
    assert source.missed == 0
    assert (
        await to_the_end(stream_of(source.server, start=saved, stop="now", tables=f"{source.schema}.*")) == []
    )


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_source_that_has_given_up_waiting_is_caught_up_with(source: Source) -> None:
    """Then the source asks after every event, also inside of transactions."""
    async with consuming(source) as consumer:
        await asyncio.to_thread(source.insert, 1)
        source.set("timeout", 300)
        consumer.hold()
        await asyncio.to_thread(source.insert, 2)
        assert source.status("status") == 0
        for number in range(3, 20):
            await asyncio.to_thread(source.insert, number, number * 1000)
        source.set("timeout", TIMEOUT_SECONDS * 1000)
        consumer.release()
        await source.until(lambda: source.status("status") == 1)
        confirmed, missed = source.status("yes_tx"), source.missed
        assert missed >= 1
        await asyncio.to_thread(source.insert, 20)
        assert (source.status("yes_tx"), source.missed) == (confirmed + 1, missed)
        assert consumer.rows == list(range(1, 21))


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_what_was_committed_in_a_lapse_is_not_lost(source: Source, tmp_path: Path) -> None:
    """After its timeout the source commits without the consumer, which dies; the next one gets everything."""
    lapse = 0.3
    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    start = end_of_log(source.server)
    async with consuming(source, checkpoints=store, checkpoint_interval=3600, start=start) as consumer:
        await asyncio.to_thread(source.insert, 1)
        acknowledged, confirmed = store.load(), source.status("yes_tx")
        assert source.missed == 0
        source.set("timeout", int(lapse * 1000))
        consumer.hold()
        # The first commit waits until the timeout, the next ones do not wait at all.
        assert lapse <= await asyncio.to_thread(source.insert, 2) < TIMEOUT_SECONDS
        assert source.status("status") == 0
        for number in (3, 4):
            await asyncio.to_thread(source.insert, number)
        assert source.missed == 3
        assert source.status("yes_tx") == confirmed
        # The consumer is held at the beginning of the second transaction.
        assert consumer.rows == [1]
        assert store.load() == acknowledged
    source.set("timeout", TIMEOUT_SECONDS * 1000)
    await asyncio.to_thread(kill_dumps, source.server)
    await source.until(lambda: source.status("clients") == 0)
    # The end of the stream has saved what was done. A consumer that was killed goes on at what was acknowledged.
    async with consuming(source, start=acknowledged) as consumer:
        await source.until(lambda: source.status("status") == 1)
        await asyncio.to_thread(source.insert, 5)
        assert consumer.rows == [2, 3, 4, 5]
    assert source.missed == 3
    assert source.status("yes_tx") == confirmed + 1


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_large_and_compressed_events(source: Source) -> None:
    """More than 16 MB in one event: the header of semi-sync stands in its first packet only."""
    server, schema = source.server, source.schema
    compression = "binlog_transaction_compression" if server.family == "mysql" else "GLOBAL log_bin_compress"
    async with consuming(source) as consumer:
        for number, size in enumerate(((1 << 24) - 100, 1 << 24, 40_000_000), 1):
            assert await asyncio.to_thread(source.insert, number, size) < TIMEOUT_SECONDS

        def write_compressed() -> None:
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SET {compression} = ON")
                try:
                    cursor.execute(f"INSERT INTO {schema}.t VALUES (4, REPEAT('y', 100000))")
                    cursor.execute(f"UPDATE {schema}.t SET b = 'z' WHERE a = 4")
                finally:
                    cursor.execute(f"SET {compression} = OFF")

        await asyncio.to_thread(write_compressed)
        await asyncio.to_thread(server.query, f"CREATE TABLE {schema}.u (a INT)")
        assert consumer.rows[:4] == [1, 2, 3, 4]
        assert source.missed == 0


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_what_is_passed_over_holds_nobody_up(source: Source) -> None:
    async with consuming(source, events=RowsEvent, exclude_tables=f"{source.schema}.t") as consumer:
        confirmed = source.status("yes_tx")
        for number in range(5):
            await asyncio.to_thread(source.insert, number)
        assert consumer.rows == []
        assert source.missed == 0
        assert source.status("yes_tx") == confirmed + 5


@pytest.mark.parametrize("waits", ["AFTER_SYNC", "AFTER_COMMIT"])
@pytest.mark.parametrize("by_gtid", [True, False])
@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_commit_waits_for_the_next_connection(source: Source, by_gtid: bool, waits: str) -> None:
    """Also before it is committed in the source itself (AFTER_SYNC): then its GTID is not among the executed ones."""
    policy = replica.ReconnectPolicy(initial=0.01, maximum=0.1)
    start = None if by_gtid else end_of_log(source.server)
    with wait_point(source, waits):
        async with consuming(source, reconnect=policy, start=start) as consumer:
            await asyncio.to_thread(source.insert, 1)
            for number in (2, 3, 4):
                consumer.hold()
                commit = await source.inserting(number)
                await asyncio.to_thread(kill_dumps, source.server)
                await source.until(lambda: source.status("clients") == 0)
                assert not commit.done()
                consumer.release()
                assert await commit < TIMEOUT_SECONDS
            assert consumer.stream.status.reconnects == 3
            assert consumer.rows == [1, 2, 3, 4]
    assert source.missed == 0


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_commits_wait_for_a_consumer_that_is_started_again(source: Source, tmp_path: Path) -> None:
    """MariaDB's LOCK_log is taken then (AFTER_SYNC): what needs it, as SHOW BINARY LOGS, may not be asked."""
    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    [(before,)] = source.server.query(f"SELECT @@GLOBAL.rpl_semi_sync_{source.word}_wait_point")
    source.set("wait_point", "AFTER_SYNC")
    try:
        async with consuming(source, checkpoints=store) as consumer:
            await asyncio.to_thread(source.insert, 1)
            assert consumer.rows == [1]
        await asyncio.to_thread(kill_dumps, source.server)
        commits = [await source.inserting(2)]
        commits += [asyncio.create_task(asyncio.to_thread(source.insert, number)) for number in (3, 4, 5)]
        # Time for the next group of commits to come as far as it can.
        await asyncio.sleep(HELD_SECONDS)
        assert not any(commit.done() for commit in commits)
        async with consuming(source, checkpoints=store) as consumer:
            assert max(await asyncio.gather(*commits)) < TIMEOUT_SECONDS
        assert sorted(consumer.rows) == [2, 3, 4, 5]
    finally:
        source.set("wait_point", before)
    assert source.missed == 0


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_many_commits_at_a_time(source: Source, tmp_path: Path) -> None:
    """They are acknowledged together, in groups, and each of them has waited."""
    writers, commits = 8, 100

    def write(writer: int) -> None:
        with source.server.connect() as connection, connection.cursor() as cursor:
            for number in range(commits):
                cursor.execute(f"INSERT INTO {source.schema}.t VALUES ({writer * commits + number}, 'x')")

    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    async with consuming(source, checkpoints=store, checkpoint_interval=3600) as consumer:
        confirmed = source.status("yes_tx")
        start = time.monotonic()
        await asyncio.gather(*(asyncio.to_thread(write, writer) for writer in range(writers)))
        print(f"{writers * commits / (time.monotonic() - start):.0f} commits a second")
        # Of a group that waits as one, MySQL counts one.
        assert 0 < source.status("yes_tx") - confirmed <= writers * commits
        assert source.missed == 0
        saved = store.load()
        assert sorted(consumer.rows) == list(range(writers * commits))
    # Not by the checkpoint that is saved when the stream ends.
    rest = stream_of(source.server, start=saved, stop="now", tables=f"{source.schema}.*")
    assert await to_the_end(rest) == []


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_what_was_committed_is_in_the_store_of_a_killed_consumer(
    seed: int, source: Source, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """A commit that has returned needs nothing more of the consumer: it goes on behind it. The others wait for it."""
    rng = random.Random(seed)
    path = tmp_path / "checkpoint"
    tables = f"{source.schema}.*"
    returned: list[int] = []
    is_over = False

    def write() -> None:
        while not is_over:
            source.insert(len(returned))
            returned.append(len(returned))

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.server.support.semi_sync_consumer",
            source.server.dsn(),
            tables,
            str(path),
        )

    async def kill(process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    writing: asyncio.Task[None] | None = None
    try:
        for _ in range(20 if pytestconfig.getoption("long") else 4):
            process = await start()
            try:
                await source.until(lambda: source.status("clients") == 1)
                if writing is None:
                    writing = asyncio.create_task(asyncio.to_thread(write))
                goal = len(returned) + rng.randrange(1, 50)
                await source.until(lambda goal=goal: len(returned) >= goal)
                await asyncio.sleep(rng.uniform(0, 0.05))
            finally:
                await kill(process)
                # It notices by itself when it has something to send, and it waits.
                await asyncio.to_thread(kill_dumps, source.server)
            await source.until(lambda: source.status("clients") == 0)
            count = len(returned)
            behind = stream_of(
                source.server, start=replica.FileCheckpointStore(path).load(), stop="now", tables=tables
            )
            rows = [row[0] for row in await to_the_end(behind)]
            assert rows in ([], [count], [count, count + 1]), f"{count} commits have returned"
        is_over = True
        process = await start()
        try:
            async with asyncio.timeout(SECONDS):
                assert writing is not None
                await writing
        finally:
            await kill(process)
    finally:
        is_over = True
        source.set("enabled", 0)
        if writing is not None:
            await asyncio.gather(writing, return_exceptions=True)
    assert source.missed == 0
    assert len(returned) > 4
