"""``stream.batches()``: whole transactions, within the limits, and a checkpoint that waits until a batch is done."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import replica
import replica.sync
from protocol.errors import ConfigurationError, ConnectionLostError
from protocol.gtid import GtidSet
from replica import BinlogStream, ChangeBatch, Checkpoint
from replica.demo import DemoSource
from tests.support.checkpoints import MemoryStore
from tests.support.resumed_streams import (
    OTHER_CONTENT,
    QUICK,
    everything,
    fail_over,
    gtid_log,
    gtid_source,
    size_of,
    split_transaction,
)
from tests.support.scripted_log import Log, gtid
from tests.support.socket_source import SocketSource, serving

SECONDS = 20
EMPTY = GtidSet("")
LOG = [[[1, 2]], [[3], [4]], [[5]], [[6, 7, 8, 9, 10, 11]], [[12]]]


def numbers(batch: ChangeBatch) -> list[object]:
    return [change.after["id"] for change in batch.changes if change.after]


@asynccontextmanager
async def opened(
    source: SocketSource, start: object = GtidSet(""), **given: Any
) -> AsyncIterator[BinlogStream]:
    options: dict[str, Any] = {"start": start, "reconnect": QUICK} | given
    async with (
        asyncio.timeout(SECONDS),
        serving(source),
        replica.connect(source.dsn, **options) as stream,
    ):
        yield stream


async def batches_of(
    source: SocketSource, rows: int, start: object = GtidSet(""), **limits: Any
) -> list[tuple[list[object], Checkpoint]]:
    """The batches until so many rows have come."""
    found: list[tuple[list[object], Checkpoint]] = []
    async with opened(source, start) as stream:
        async for batch in stream.batches(**limits):
            found.append((numbers(batch), batch.checkpoint))
            if sum(len(part) for part, _ in found) >= rows:
                break
    return found


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, [[1, 2], [3, 4], [5], [6, 7, 8, 9, 10, 11], [12]]),
        (4, [[1, 2, 3, 4], [5], [6, 7, 8, 9, 10, 11], [12]]),
        (6, [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12]]),
        (100, [list(range(1, 13))]),
    ],
)
async def test_transactions_are_whole_and_limits_are_kept(most: int, expected: list[list[int]]) -> None:
    found = await batches_of(gtid_source(gtid_log(*LOG)), 12, max_rows=most, max_seconds=0.3)
    assert [part for part, _ in found] == expected
    for number, (_, checkpoint) in enumerate(found[:-1], 1):
        rest = await batches_of(
            gtid_source(gtid_log(*LOG)),
            sum(map(len, expected[number:])),
            Checkpoint.from_dict(checkpoint.to_dict()),
            max_rows=most,
            max_seconds=0.3,
        )
        assert [part for part, _ in rest] == expected[number:]


@pytest.mark.parametrize("most", [1, 4, 6, 100])
async def test_the_checkpoint_waits_for_the_batch(most: int) -> None:
    """At every moment the store has the end of a batch that is done, and no later place."""
    store = MemoryStore()
    done: list[str | None] = [""]
    async with opened(gtid_source(gtid_log(*LOG)), checkpoints=store, checkpoint_interval=0) as stream:
        rows = 0
        async for batch in stream.batches(max_rows=most, max_seconds=0.2):
            assert stream.checkpoint is not None
            assert store.checkpoint is not None
            assert stream.checkpoint.gtid_set == store.checkpoint.gtid_set == done[-1]
            assert (stream.checkpoint.position == batch.checkpoint.position) is False
            done.append(batch.checkpoint.gtid_set)
            rows += len(batch.changes)
            if rows == 12:
                break
    assert store.checkpoint is not None
    assert store.checkpoint.gtid_set == done[-2]


async def test_acknowledged_batches_are_done() -> None:
    store = MemoryStore()
    async with opened(gtid_source(gtid_log(*LOG)), checkpoints=store) as stream:
        batches = stream.batches(max_rows=3, max_seconds=0.2)
        first = await anext(batches)
        assert numbers(first) == [1, 2]
        await stream.acknowledge()
        assert store.checkpoint == stream.checkpoint == first.checkpoint
        second = await anext(batches)
        assert numbers(second) == [3, 4, 5]
        assert stream.checkpoint == first.checkpoint
    assert store.checkpoint == first.checkpoint


async def test_transactions_without_changes_move_the_checkpoint() -> None:
    store = MemoryStore()
    log = gtid_log(*LOG)
    split_transaction(gtid(log, 6), [13], name="other")
    async with opened(gtid_source(log), tables="*.other", checkpoints=store, checkpoint_interval=0) as stream:
        batch = await anext(stream.batches(max_seconds=0.1))
        assert numbers(batch) == [13]
        assert stream.checkpoint is not None
        assert str(stream.checkpoint.gtid_set).endswith(":1-5")


@pytest.mark.parametrize("content", ["other rows", "fewer rows", "gone"])
async def test_failover_in_the_middle_of_a_transaction(content: str) -> None:
    """What was collected of a transaction that begins again is dropped; a batch has each row once."""
    gone = split_transaction(gtid(gtid_log([[1]]), 3), [9])
    other: Log = gone if content == "gone" else OTHER_CONTENT[content]
    source = gtid_source(gtid_log([[1]], [[2, 3], [4], [5]]))
    source.cuts = [size_of(source, everything()) - 110]
    source.on_cut = lambda: fail_over(source, other)
    expected = [1, 9] if content == "gone" else None
    async with opened(source) as stream:
        found: list[object] = []
        async for batch in stream.batches(max_seconds=0.3):
            found += numbers(batch)
            if len(found) > 1:
                break
        assert stream.status.restarts == 1
    assert found[0] == 1
    assert len(found) == len(set(found))
    assert expected in (None, found)


async def test_what_was_read_before_a_failure_comes_first() -> None:
    source = gtid_source(gtid_log(*LOG))
    source.cuts = [size_of(source, everything()) - 20]
    async with opened(source, reconnect=False) as stream:
        batches = stream.batches(max_seconds=None)
        assert numbers(await anext(batches)) == list(range(1, 12))
        with pytest.raises(ConnectionLostError):
            await anext(batches)


async def test_a_cancelled_call_loses_nothing() -> None:
    async with opened(gtid_source(gtid_log(*LOG))) as stream:
        batches = stream.batches(max_rows=100, max_seconds=None)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(batches), 0.05)
        closing = asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(stream.aclose()))
        assert numbers(await anext(batches)) == list(range(1, 13))
        with pytest.raises(StopAsyncIteration):
            await anext(batches)
        assert closing.when()


async def test_short_calls_get_the_batch_that_is_due() -> None:
    """Calls shorter than ``max_seconds``: each began the time anew, and the batch waited for more rows."""
    async with opened(gtid_source(gtid_log(*LOG))) as stream:
        batches = stream.batches(max_rows=100, max_seconds=0.3)
        batch: ChangeBatch | None = None
        while batch is None:
            with contextlib.suppress(TimeoutError):
                batch = await asyncio.wait_for(anext(batches), 0.1)
        assert numbers(batch) == list(range(1, 13))


@pytest.mark.parametrize(
    ("limits", "text"),
    [({"max_rows": 0}, "max_rows"), ({"max_rows": True}, "max_rows"), ({"max_seconds": 0}, "max_seconds")],
)
async def test_limits_that_cannot_be_used(limits: dict[str, Any], text: str) -> None:
    stream = replica.connect("mysql://repl@127.0.0.1")
    with pytest.raises(ConfigurationError, match=text):
        stream.batches(**limits)
    # Nothing has been begun.
    assert stream.transactions() is not None


async def test_batches_or_transactions() -> None:
    def iterate(stream: BinlogStream) -> object:
        return stream.__aiter__()

    others: list[Callable[[BinlogStream], object]] = [BinlogStream.transactions, iterate]
    for other in others:
        stream = replica.connect("mysql://repl@127.0.0.1")
        stream.batches()
        with pytest.raises(RuntimeError, match="batches"):
            other(stream)
    stream = replica.connect("mysql://repl@127.0.0.1")
    stream.transactions()
    with pytest.raises(RuntimeError, match="not both"):
        stream.batches()
    with pytest.raises(ConfigurationError, match="leave out events="):
        replica.connect("mysql://repl@127.0.0.1", events=replica.QueryEvent).batches()


def test_without_asyncio_and_with_statements() -> None:
    """The batches of the demo's log are its transactions in order; a statement is a batch of its own."""
    with DemoSource(tls=False) as source:
        options: dict[str, Any] = {"start": "earliest", "stop": "now"}
        with replica.sync.connect(source.dsn, **options) as stream:
            transactions = [(tx.collect(), tx.ddl, tx.checkpoint) for tx in stream.transactions()]
        with replica.sync.connect(source.dsn, **options) as stream:
            batches = list(stream.batches(max_rows=50))
            with pytest.raises(RuntimeError, match="batches"):
                iter(stream)
        assert list(stream.batches()) == []
    assert [change for batch in batches for change in batch.changes] == [
        change for changes, _, _ in transactions for change in changes
    ]
    assert [batch.ddl for batch in batches if batch.ddl] == [ddl for _, ddl, _ in transactions if ddl]
    places = [checkpoint for changes, ddl, checkpoint in transactions if changes or ddl]
    assert {batch.checkpoint.position for batch in batches[:-1]} <= {place.position for place in places}
    assert max(len(batch.changes) for batch in batches) > 30
    assert all(not (batch.ddl and batch.changes) for batch in batches)
