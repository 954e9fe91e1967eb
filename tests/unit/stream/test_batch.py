"""Batches of a stream: the work per event, and the user's progress in the middle of a batch."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import replica
from protocol.binlog.events import AnonymousGtidEvent, Event, EventHeader
from protocol.constants import EventType
from protocol.errors import DecodeError
from protocol.gtid import GtidSet
from replica.stream.batch import Account, Batch
from replica.transactions.boundary import Progress
from replica.transactions.stop_point import StopPoint
from tests.support.raw_events import query
from tests.support.scripted_log import GTIDS_ON, Log, gtid, mysql, transaction, values
from tests.support.socket_source import FILE, UUID, SocketSource, serving

SECONDS = 20
PACKAGE = str(Path(replica.__file__ or "").parent)


def many(transactions: int) -> Log:
    log = Log()
    for number in range(1, transactions + 1):
        transaction(gtid(log, number), number)
    return log


def by_gtid(log: Log) -> SocketSource:
    return mysql(log, variables=GTIDS_ON, answers={"SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-9999",)]})


async def calls_while_reading(log: Log, start: Any, rows: int) -> Counter[str]:
    """Count the calls of each function of the package, without ``__anext__``, after the first event."""
    calls: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "__anext__":
            calls[f"{Path(code.co_filename).stem}.{code.co_name}"] += 1

    async with (
        serving(by_gtid(log)) as source,
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start=start) as stream,
    ):
        await anext(stream)
        sys.setprofile(trace)
        try:
            found = 0
            while found < rows:
                found += isinstance(await anext(stream), replica.RowsEvent)
        finally:
            sys.setprofile(None)
    return calls


@pytest.mark.parametrize("start", [replica.BinlogPosition(FILE, 4), GtidSet("")], ids=["position", "gtid"])
async def test_no_call_per_event_into_progress_or_counters(start: object) -> None:
    few, lots = 200, 2000
    small = await calls_while_reading(many(few), start, few)
    large = await calls_while_reading(many(lots), start, lots)
    more = (lots - few) * 5
    per_event = {name: (large[name] - small[name]) / more for name in large}
    # In each batch, only the events after the last end of a transaction are followed one by one.
    assert {name: calls for name, calls in per_event.items() if calls > 0.05} == {}
    assert sum(per_event.values()) < 0.5


async def test_each_statement_of_a_batch_is_followed_once() -> None:
    """A table map ends a run of decoded events, as its names depend on the statements before it."""
    count = 40
    log = Log()
    for number in range(1, count + 1):
        gtid(log, number).add(query(f"CREATE TABLE s.t{number} (id INT)"))
        transaction(gtid(log, number + count), number, name=f"t{number}")
    calls = await calls_while_reading(log, GtidSet(""), count)
    # Their BEGINs are statements, too.
    assert count - 1 <= calls["schema_tracker.follow"] <= 2 * count


async def test_in_the_middle_of_a_batch_the_checkpoint_is_what_was_done() -> None:
    log = many(5)
    async with serving(by_gtid(log)) as source:
        for taken in range(1, len(log.raw)):
            async with asyncio.timeout(SECONDS), replica.connect(source.dsn, start=GtidSet("")) as stream:
                events = [await anext(stream) for _ in range(taken)]
                assert stream.status.events == taken
                assert stream.status.rows == len(values(events))
                # The user is still at work on the last event.
                assert stream.checkpoint is not None
                assert stream.checkpoint.gtid_set == transactions_in(events[:-1])
                await stream.acknowledge()
                assert stream.checkpoint.gtid_set == transactions_in(events)


def transactions_in(events: list[replica.Event]) -> str:
    ended = sum(isinstance(event, replica.XidEvent) for event in events)
    return f"{UUID}:1-{ended}" if ended > 1 else f"{UUID}:1" if ended else ""


async def test_a_slow_consumer_is_saved_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    async with (
        serving(by_gtid(many(5))) as source,
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start=GtidSet(""), checkpoints=store, checkpoint_interval=0.01) as stream,
    ):
        saved = set()
        async for event in stream:
            # A consumer that never lets the event loop run.
            time.sleep(0.02)  # noqa: ASYNC251
            saved.add(str(store.load().gtid_set))  # type: ignore[union-attr]
            if isinstance(event, replica.XidEvent) and event.header.next_position == many(5).position:
                break
    assert saved >= {f"{UUID}:1", f"{UUID}:1-2", f"{UUID}:1-3", f"{UUID}:1-4"}


async def test_what_comes_before_damage_is_handed_out_first() -> None:
    log = many(3)
    log.event(EventType.QUERY, b"\0\0\0")
    transaction(log, 4)
    seen: list[replica.Event] = []

    async def read(stream: replica.BinlogStream) -> None:
        async for event in stream:
            seen.append(event)

    async with (
        serving(by_gtid(log)) as source,
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start="earliest", reconnect=False) as stream,
    ):
        with pytest.raises(DecodeError):
            await read(stream)
        assert values(seen) == [1, 2, 3]
        assert stream.position is not None
        assert stream.position.position == seen[-1].header.next_position


async def test_a_store_that_fails_in_the_middle_of_a_batch_ends_the_stream() -> None:
    class Store:
        saves = 0

        def load(self) -> None:
            return None

        def save(self, checkpoint: replica.Checkpoint) -> None:
            self.saves += 1
            if self.saves > 2:
                raise replica.CheckpointError("the disk is full")

    store = Store()
    async with (
        serving(by_gtid(many(5))) as source,
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start=GtidSet(""), checkpoints=store, checkpoint_interval=0.01) as stream,
    ):

        async def read() -> None:
            async for _ in stream:
                time.sleep(0.02)  # noqa: ASYNC251

        for _ in range(2):
            with pytest.raises(replica.CheckpointError):
                await read()
    assert store.saves == 3


def test_a_stop_is_seen_behind_a_compressed_transaction_and_between_mariadb_gtids() -> None:
    header = replica.EventHeader(1, 16, 1, 31, 0, 0)
    inner: list[replica.Event] = [replica.XidEvent(header, FILE, 400, 1)]
    stop = StopPoint(replica.BinlogPosition(FILE, 5000))

    def copied() -> Progress:
        return Progress(FILE, 5000, replica.MariadbGtidSet("0-1-5"), has_gtids=True)

    assert stop.may_lie_within(inner, (FILE, 5000), copied)
    assert not stop.may_lie_within(inner, (FILE, 4999), copied)
    # Without strict mode a sequence may be lower than the one before.
    gtids: list[replica.Event] = [
        replica.MariadbGtidEvent(header, FILE, 4, replica.MariadbGtid(0, 1, sequence), 0)
        for sequence in (9, 5)
    ]
    by_set = StopPoint(gtid_set=replica.MariadbGtidSet("0-1-9"))
    assert by_set.may_lie_within(gtids, (FILE, 5000), copied)
    assert not by_set.may_lie_within(gtids[1:], (FILE, 5000), copied)


def committed(timestamp: int | None) -> AnonymousGtidEvent:
    header = EventHeader(1_700_000_000, 34, 1, 19, 0, 0)
    return AnonymousGtidEvent(header, "f", 4, 0, immediate_commit_timestamp=timestamp)


def test_lag_is_since_the_commit() -> None:
    account = Account((Event,))
    assert account.lag_at(1_700_000_001.0) is None
    events: list[Event] = [committed(1_700_000_000_250_000), committed(1_700_000_000_750_000)]
    handed = account.hand_out(Batch(events, [b"", b""]))
    # The batch has arrived: the user comes to its first event.
    assert account.lag_at(1_700_000_001.0) == pytest.approx(0.75)
    next(handed)
    assert account.lag_at(1_700_000_001.0) == pytest.approx(0.75)
    next(handed)
    assert account.lag_at(1_700_000_001.0) == pytest.approx(0.25)
    assert account.lag_at(1_699_999_999.0) == 0


def test_lag_without_times_of_commit_is_the_least_that_it_may_be() -> None:
    account = Account((Event,))
    account.hand_out(Batch([committed(None)], [b""]))
    assert [account.lag_at(1_700_000_000 + seconds) for seconds in (0.0, 0.9, 1.0, 2.5)] == [0, 0, 0, 1.5]
