"""Calls with short time limits: what one has begun goes on in the next, and is not begun anew each time."""

from __future__ import annotations

import asyncio
import gc

import pytest

import replica
from protocol.binlog.events import Event
from protocol.errors import ConnectionLostError
from replica.schemas.schema_keeper import SchemaKeeper
from replica.stream.bounds import Bounds
from replica.stream.stream_copy import StreamCopy
from replica.transactions.stop_point import StopPoint
from tests.support.resumed_streams import QUICK
from tests.support.scripted_log import Log, mysql, transaction, values
from tests.support.socket_source import serving, until

# Those of the log with one transaction.
EVENTS = 5


class Slow:
    """Stands for work that waits for the source: ``gate`` lets it end."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()

    async def work(self) -> None:
        self.begun += 1
        await self.gate.wait()


async def cancelled(stream: replica.BinlogStream, slow: Slow) -> None:
    """A call that is cancelled while the work goes on."""
    call = asyncio.create_task(anext(stream))
    await until(lambda: slow.begun > 0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def drop(held: list[replica.BinlogStream]) -> None:
    """Drop a stream that only the list holds. The event loop holds what was just cancelled for a turn."""
    held.clear()
    for _ in range(5):
        gc.collect()
        await asyncio.sleep(0)


async def rest(stream: replica.BinlogStream, slow: Slow) -> list[Event]:
    slow.gate.set()
    return [await anext(stream) for _ in range(EVENTS)]


async def test_a_copy_that_was_ordered_is_begun_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With calls of 10 ms it took 233 of them on a server at hand."""
    slow = Slow()

    async def begin(self: StreamCopy) -> None:
        await slow.work()
        self._account.ordered.clear()

    monkeypatch.setattr(StreamCopy, "_begin_ordered", begin)
    async with (
        serving(mysql(transaction(Log(), 1))) as source,
        replica.connect(source.dsn, start="earliest") as stream,
    ):
        await stream.snapshot("w.t")
        for _ in range(3):
            await cancelled(stream, slow)
        assert values(await rest(stream, slow)) == [1]
        assert slow.begun == 1


async def test_a_failure_that_nobody_awaited_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()

    async def begin(self: StreamCopy) -> None:
        await slow.work()
        self._account.ordered.clear()
        raise LookupError

    monkeypatch.setattr(StreamCopy, "_begin_ordered", begin)
    async with (
        serving(mysql(transaction(Log(), 1))) as source,
        replica.connect(source.dsn, start="earliest") as stream,
    ):
        await stream.snapshot("w.t")
        await cancelled(stream, slow)
        slow.gate.set()
        await until(lambda: not stream._account.ordered)
        with pytest.raises(LookupError):
            await anext(stream)
        assert values(await rest(stream, slow)) == [1]


async def test_closing_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    monkeypatch.setattr(StreamCopy, "_begin_ordered", lambda _: slow.work())
    before = asyncio.all_tasks()
    async with serving(mysql(transaction(Log(), 1))) as source:
        async with replica.connect(source.dsn, start="earliest") as stream:
            await stream.snapshot("w.t")
            await cancelled(stream, slow)
        await source.until_closed()
    assert asyncio.all_tasks() == before


async def test_dropping_the_stream_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went on, and the tables were then read for nobody."""
    slow = Slow()
    monkeypatch.setattr(StreamCopy, "_begin_ordered", lambda _: slow.work())
    before = asyncio.all_tasks()
    async with serving(mysql(transaction(Log(), 1))) as source:
        stream = await replica.connect(source.dsn, start="earliest").__aenter__()
        await stream.snapshot("w.t")
        await cancelled(stream, slow)
        held = [stream]
        del stream
        with pytest.warns(ResourceWarning, match="unclosed"):
            await drop(held)
        await source.until_closed()
    assert asyncio.all_tasks() == before


async def test_a_copy_is_not_begun_while_the_source_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It failed at the server that was lost, at once and again and again, and no other host was tried."""
    connected = []

    async def begin(self: StreamCopy) -> None:
        connected.append(stream._deliveries.current is not None)
        if len(connected) < 3:
            raise ConnectionLostError("the server is away")
        self._account.ordered.clear()

    monkeypatch.setattr(StreamCopy, "_begin_ordered", begin)
    async with (
        serving(mysql(transaction(Log(), 1))) as source,
        replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream,
    ):
        await stream.snapshot("w.t")
        assert values([await anext(stream) for _ in range(EVENTS)]) == [1]
        assert len(source.dumps) == 3
    assert connected == [True] * 3


async def test_closing_while_names_are_moved_closes_the_new_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed open: no delivery had it yet."""
    slow = Slow()
    monkeypatch.setattr(SchemaKeeper, "use", lambda *_: slow.work())
    async with serving(mysql(transaction(Log(), 1), cuts=[200])) as source:
        async with replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream:
            call = asyncio.create_task(stream.run())
            await until(lambda: slow.begun > 0)
            await stream.aclose()
            await call
        await source.until_closed()
    assert len(source.dumps) == 2


async def test_a_stop_by_time_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()

    async def settle(self: Bounds, _: object) -> None:
        await slow.work()
        self._is_passed = True

    async with (
        serving(mysql(transaction(Log(), 1))) as source,
        replica.connect(source.dsn, start="earliest") as stream,
    ):
        _ = [await anext(stream) for _ in range(EVENTS)]
        stream._bounds._stop = StopPoint(timestamp=1 << 40)
        monkeypatch.setattr(Bounds, "seconds_left", lambda *_: 0)
        monkeypatch.setattr(Bounds, "settle", settle)
        for _ in range(3):
            await cancelled(stream, slow)
        slow.gate.set()
        assert [event async for event in stream] == []
        assert slow.begun == 1
