"""Consumers that are slow, break off in the middle of a batch, or cancel ``anext`` at every await."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

import replica
from protocol.binlog.events import Event, RowsEvent, XidEvent
from protocol.conversation.packets import BULK_SIZE
from protocol.gtid import GtidSet
from replica.source.transport import CHUNK_SIZE, LOG_CHUNK_SIZE
from tests.support.resumed_streams import QUICK, gtid_log, gtid_source
from tests.support.scripted_log import values
from tests.support.socket_source import UUID, SocketSource, serving

SECONDS = 60
NUMBERS = list(range(1, 7))


def source_of(numbers: list[int], **options: Any) -> SocketSource:
    """A source with one row in each transaction."""
    source = gtid_source(gtid_log(*([[number]] for number in numbers)))
    return dataclasses.replace(source, **options)


def gtids(transactions: int) -> str:
    return "" if not transactions else f"{UUID}:1" if transactions == 1 else f"{UUID}:1-{transactions}"


def assert_done(stream: replica.BinlogStream, done: list[Event]) -> None:
    """The checkpoint is exactly what is done."""
    checkpoint = stream.checkpoint
    assert checkpoint is not None
    assert checkpoint.gtid_set == gtids(sum(isinstance(event, XidEvent) for event in done))


async def cancelled(stream: replica.BinlogStream, turns: int) -> Event | None:
    """Cancel ``anext`` when it has waited for so many turns of the event loop; its event if it is faster."""
    asking = asyncio.ensure_future(anext(stream))
    for _ in range(turns + 1):
        await asyncio.sleep(0)
        if asking.done():
            return asking.result()
    asking.cancel()
    try:
        return await asking
    except asyncio.CancelledError:
        return None


async def test_time_limits_that_a_busy_loop_exceeds() -> None:
    """Each call is cancelled where it first gives other tasks a turn: none came further than the one before."""
    source = source_of(NUMBERS)
    async with (
        serving(source),
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start=GtidSet("")) as stream,
    ):
        events: list[Event] = []
        while len(values(events)) < len(NUMBERS):
            await asyncio.sleep(0.001)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    events.append(await anext(stream))
        assert values(events) == NUMBERS


@pytest.mark.parametrize("cuts", [(), (700, 900, 1000, 1200)], ids=["", "lost connections"])
async def test_cancelling_at_every_await_loses_nothing(cuts: tuple[int, ...]) -> None:
    """At each turn in which a call waits: for bytes, for a new connection, for the columns of a table."""
    turns, cancellations = 0, 1
    while cancellations:
        cancellations = 0
        source = source_of(NUMBERS, pause=0.001, cuts=list(cuts))
        async with (
            serving(source),
            asyncio.timeout(SECONDS),
            replica.connect(source.dsn, start=GtidSet(""), reconnect=QUICK) as stream,
        ):
            events: list[Event] = []
            while len(values(events)) < len(NUMBERS):
                event = await cancelled(stream, turns)
                if event is None:
                    cancellations += 1
                    assert_done(stream, events)
                    event = await anext(stream)
                assert_done(stream, events)
                events.append(event)
            assert values(events) == NUMBERS
            await stream.acknowledge()
            assert_done(stream, events)
            assert stream.status.restarts == 0
        if turns == 0:
            assert cancellations >= 3
        # Few turns are tried one by one; the many in which a call waits for the network are alike.
        turns = turns + 1 if turns < 30 else turns * 2


async def test_breaking_off_in_the_middle_of_a_batch() -> None:
    """A new stream that starts at the checkpoint brings exactly the transactions that are not done."""
    async with serving(source_of(NUMBERS)) as source:
        for taken in range(1, 5 * len(NUMBERS)):
            done: list[Event] = []
            async with asyncio.timeout(SECONDS), replica.connect(source.dsn, start=GtidSet("")) as stream:
                async for event in stream:
                    done.append(event)
                    if len(done) == taken:
                        break
            # The event in whose turn the loop broke off is not done.
            assert_done(stream, done[:-1])
            ended = sum(isinstance(event, XidEvent) for event in done[:-1])
            async with (
                asyncio.timeout(SECONDS),
                replica.connect(source.dsn, start=stream.checkpoint) as stream,
            ):
                rest: list[Event] = []
                while len(values(rest)) < len(NUMBERS) - ended:
                    rest.append(await anext(stream))
            assert values(rest) == NUMBERS[ended:]


async def test_a_slow_consumer_holds_one_chunk_of_a_log_at_most() -> None:
    rows_per_event, transactions = 4000, 500
    rows = list(range(rows_per_event))
    source = gtid_source(gtid_log(*[[rows]] * transactions))
    most = batch = size = 0
    async with (
        serving(source),
        asyncio.timeout(SECONDS),
        replica.connect(source.dsn, start=GtidSet(""), events=RowsEvent) as stream,
    ):
        for _ in range(transactions):
            event = await anext(stream)
            size, batch = size + event.header.size, max(batch, event.header.size)
            # Time for the event loop to receive whatever the socket has.
            for _ in range(5):
                await asyncio.sleep(0)
            most = max(most, held_bytes(stream))
    print(f"{most:,} of {size:,} bytes held, {batch:,} in one event")
    assert size > 4 * LOG_CHUNK_SIZE
    # A large chunk may come while a small one is decoded. A list of raw events has some more bytes than one block.
    assert LOG_CHUNK_SIZE // 2 < most <= LOG_CHUNK_SIZE + CHUNK_SIZE + 2 * BULK_SIZE + 2 * batch


def held_bytes(stream: replica.BinlogStream) -> int:
    """The bytes of the log that a stream has received and whose events are not all handed out."""
    delivery = stream._deliveries.current
    assert delivery is not None
    session = delivery.dump.session
    received = session._transport._receiver._size + session._connection._frames.buffered
    return received + sum(map(len, delivery._raws))
