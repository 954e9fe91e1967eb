"""A stream without asyncio between two batches whose bytes are at hand: no turn of the event loop, nothing lost."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import replica.sync
from replica.demo import DemoSource
from replica.stream import delivery
from replica.stream.batch import Account
from replica.sync.loop_driver import LoopDriver

#: The batches of the demo's log are made as small as those of documents of a large log.
BATCH = 1 << 11


class InterruptError(Exception):
    """What a handler of a signal raises."""


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LARGE_BULK_SIZE", BATCH)
    monkeypatch.setattr(delivery, "BULK_SIZE", BATCH)


@pytest.fixture
def expected(source: DemoSource) -> list[str]:
    async def read() -> list[str]:
        async with replica.connect(source.dsn, start="earliest", stop="now") as stream:
            return [repr(event) async for event in stream]

    return asyncio.run(read())


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    calls: list[object] = []
    called = getattr(owner, name)

    def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return called(self, *arguments, **options)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_they_need_no_turn_of_the_event_loop(
    source: DemoSource, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, batches = (
        counted(monkeypatch, LoopDriver, "run"),
        counted(monkeypatch, Account, "hand_out"),
    )
    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        found = [repr(event) for event in stream]
    assert found == expected
    assert len(batches) > 50
    assert len(runs) < len(batches) / 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1], ids=lambda number: number.name)
def test_an_exception_of_a_signal_handler_loses_nothing(
    source: DemoSource, expected: list[str], monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    decode, count = delivery.Delivery._decode, itertools.count()

    def interrupted(self: delivery.Delivery) -> Any:
        request = decode(self)
        if next(count) % 3 == 0:
            signal.raise_signal(number)
        return request

    def refuse(number: int, frame: FrameType | None) -> None:
        raise InterruptError

    before = signal.getsignal(number)
    if number is not signal.SIGINT:
        signal.signal(number, refuse)
    found: list[str] = []
    interrupts = 0
    try:
        with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
            monkeypatch.setattr(delivery.Delivery, "_decode", interrupted)
            while True:
                try:
                    found += map(repr, [next(stream)])
                except (InterruptError, KeyboardInterrupt):
                    interrupts += 1
                except StopIteration:
                    break
    finally:
        signal.signal(number, before)
    assert interrupts > 10
    assert found == expected


def test_two_threads_that_ask_for_the_next_batch_lose_none(
    source: DemoSource, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one thread may iterate: another one that waited for it dropped the batch that the first had begun."""
    stream = replica.sync.connect(source.dsn, start="earliest", stop="now")
    call = stream._driver.call

    def ask_twice(work: Callable[[], bool]) -> bool:
        call(work)
        return call(work)

    monkeypatch.setattr(stream._driver, "call", ask_twice)
    with stream:
        assert [repr(event) for event in stream] == expected


@pytest.mark.parametrize("kind", ["events", "batches"])
def test_two_threads_that_wait_for_the_next_item_lose_none(
    source: DemoSource, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The second one's item took the place of the first one's, and one of the threads got an AssertionError."""
    fetch = LoopDriver._fetch

    async def fetch_twice(self: LoopDriver, awaited: Any) -> None:
        await fetch(self, awaited)
        await fetch(self, awaited)

    def read() -> list[str]:
        with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
            items: Iterator[Any] = (
                stream if kind == "events" else stream.batches(max_rows=20, max_seconds=None)
            )
            return [repr(getattr(item, "changes", item)) for item in items]

    expected = read()
    monkeypatch.setattr(LoopDriver, "_fetch", fetch_twice)
    assert read() == expected
