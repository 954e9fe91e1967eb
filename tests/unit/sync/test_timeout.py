"""``stream.timeout()``: a wait ends, and iterating again goes on where it stopped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator

import pytest

import replica.sync
from replica import Checkpoint, RowsEvent
from replica.demo import DemoSource
from replica.transactions.transaction import SyncTransactions
from tests.support.grouped_events import ids, transaction


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


KINDS: dict[str, Callable[[replica.sync.SyncStream], Iterator[object]]] = {
    "events": iter,
    "transactions": lambda stream: iter(stream.transactions()),
    "batches": lambda stream: stream.batches(max_rows=20, max_seconds=None),
    "arrow": lambda stream: stream.arrow("shop.orders", max_rows=20, max_seconds=None),
}


def taken(source: DemoSource, kind: str, **options: object) -> list[str]:
    stream = replica.sync.connect(source.dsn, start="earliest", **options)  # type: ignore[arg-type]
    found: list[str] = []
    with stream:
        items = KINDS[kind](stream)
        while True:
            try:
                # Shorter than what is at hand takes: most calls are broken off somewhere.
                with stream.timeout(0 if len(found) % 2 else 0.001):
                    item = next(items)
            except StopIteration:
                return found
            except TimeoutError:
                continue
            found.append(str(getattr(item, "changes", item)))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost(source: DemoSource, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replica.sync.loop_driver._AT_HAND", 0)
    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        expected = [str(getattr(item, "changes", item)) for item in KINDS[kind](stream)]
    if kind == "transactions":
        assert len(taken(source, kind, stop="now")) == len(expected)
    else:
        assert taken(source, kind, stop="now") == expected


@pytest.mark.parametrize("is_beside_a_loop", [False, True])
def test_at_the_end_of_the_log(source: DemoSource, is_beside_a_loop: bool) -> None:
    """It ends a loop, too; inner limits count, and outer ones. Without one, the stream goes on."""

    async def beside_a_loop() -> None:
        follow()

    def follow() -> None:
        with replica.sync.connect(source.dsn, start="earliest") as stream:
            seen = 0
            while seen < 1283:
                with stream.timeout(None):
                    next(stream)
                seen += 1
            with contextlib.suppress(TimeoutError), stream.timeout(0.1):
                seen += sum(1 for _ in stream)
                raise AssertionError
            with pytest.raises(TimeoutError), stream.timeout(0.1), stream.timeout(60):
                next(stream.transactions())
            stream.acknowledge()
            assert stream.status.state == "streaming"
            assert seen == 1283

    if is_beside_a_loop:
        asyncio.run(beside_a_loop())
    else:
        follow()


def test_a_busy_loop_ends(source: DemoSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other tasks would get a turn, as in ``asyncio.timeout``: at each batch here."""

    def slowly(event: object) -> None:
        time.sleep(0.001)

    monkeypatch.setattr("replica.stream.delivery._TURN_BYTES", 1)
    monkeypatch.setattr("replica.stream.delivery.LARGE_BULK_SIZE", 1 << 11)
    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        next(stream)
        with pytest.raises(TimeoutError), stream.timeout(0):
            deque(map(slowly, stream))
        assert stream.status.events < 1283
        assert any(isinstance(event, RowsEvent) for event in stream)


def test_one_iterator_of_changes_goes_on() -> None:
    """It was at its end after an exception, and the rest of the transaction was passed over."""
    events = transaction(1, *range(20))
    numbers = itertools.count()

    def next_event() -> object:
        if next(numbers) % 2:
            raise TimeoutError
        return events.pop(0) if events else None

    found = []
    transactions = SyncTransactions(next_event, Checkpoint)  # type: ignore[arg-type]
    while True:
        try:
            tx = next(transactions)
            break
        except TimeoutError:
            continue
    changes = iter(tx)
    while True:
        try:
            found.append(next(changes))
        except TimeoutError:
            continue
        except StopIteration:
            break
    assert ids(found) == list(range(20))
