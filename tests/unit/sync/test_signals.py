"""Signals at the worst moments: a handler closes the stream, or Ctrl-C comes, while a call is about to wait."""

from __future__ import annotations

import gc
import itertools
import signal
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import replica.sync
from replica.demo import DemoSource
from replica.sync.held_signals import HeldSignals
from replica.sync.loop_driver import LoopDriver
from replica.transactions.units import TransactionGrouper

SECONDS = 60


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


ITEMS: dict[str, Callable[[replica.sync.SyncStream], Iterator[object]]] = {
    "events": iter,
    "transactions": lambda stream: iter(stream.transactions()),
    "batches": lambda stream: stream.batches(max_rows=5),
}


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *((kind, step) for kind in ITEMS for step in ("next", "run", "_wait")),
        # Batches are always awaited.
        *((kind, "call") for kind in ("events", "transactions")),
    ],
)
def test_a_handler_closes_the_stream_before_it_waits(
    source: DemoSource, monkeypatch: pytest.MonkeyPatch, step: str, kind: str
) -> None:
    """The loop over the stream ends, as it does when the handler runs during the wait. It raised RuntimeError."""
    real = getattr(LoopDriver, step)
    with replica.sync.connect(source.dsn, start="earliest") as stream:
        items = ITEMS[kind](stream)
        next(items)

        def closing(*arguments: object, **options: object) -> object:
            monkeypatch.undo()
            stream.close()
            return real(*arguments, **options)

        monkeypatch.setattr(LoopDriver, step, closing)
        for _ in items:
            pass
    assert stream.status.state == "closed"


class RaisedError(Exception):
    """What a signal handler raises."""


@pytest.mark.parametrize("kind", ["events", "batches"])
def test_an_exception_behind_the_wait_loses_nothing(
    source: DemoSource, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What had been awaited was dropped: 527 exceptions at random times lost 9 rows of 7,500 in batches."""
    run, interrupts = LoopDriver.run, itertools.count()

    def interrupted(self: LoopDriver, *work: Any, **options: Any) -> Any:
        result = run(self, *work, **options)
        if next(interrupts) % 2:
            raise RaisedError
        return result

    def read() -> Iterator[str]:
        with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
            monkeypatch.setattr(LoopDriver, "run", patched)
            items = ITEMS[kind](stream)
            while True:
                try:
                    item = next(items)
                except RaisedError:
                    continue
                except StopIteration:
                    break
                yield repr(item.changes if isinstance(item, replica.ChangeBatch) else item)
            monkeypatch.setattr(LoopDriver, "run", run)

    patched: Callable[..., Any] = run
    expected = list(read())
    patched = interrupted
    assert list(read()) == expected
    assert next(interrupts) > 1


@pytest.mark.parametrize("step", ["run", "_wait", "_usable"])
def test_an_exception_before_the_wait_leaves_no_coroutine(
    source: DemoSource, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It was on stderr: "coroutine 'LoopDriver._fetch' was never awaited"."""

    def interrupted(self: LoopDriver, *arguments: object, **options: object) -> None:
        monkeypatch.undo()
        raise RaisedError

    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        batches = stream.batches()
        monkeypatch.setattr(LoopDriver, step, interrupted)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(RaisedError):
                next(batches)
            gc.collect()
        assert [str(one.message) for one in warned] == []
        assert sum(len(batch.changes) for batch in batches) == 405


def test_an_exception_while_an_event_is_added_to_its_transaction(
    source: DemoSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows behind it could be missing, and the checkpoint went on."""
    feed, numbers = TransactionGrouper.feed, itertools.count()

    def interrupted(self: TransactionGrouper, *event: Any) -> None:
        if next(numbers) == 40:
            raise RaisedError
        feed(self, *event)

    monkeypatch.setattr(TransactionGrouper, "feed", interrupted)
    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        with pytest.raises(RaisedError):
            deque(stream.transactions())
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"lacks events now: .* connect a new stream"):
                next(stream.transactions())


_AS_THE_HELPER_BEGINS = """
import asyncio, os, signal, sys
import replica.sync
from replica.sync.helper_thread import HelperThread
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio._set_running_loop(asyncio.new_event_loop())
real, count = HelperThread.submit, 0
def submit(self, *work):
    future = real(self, *work)
    if count == 1284:
        HelperThread.submit = real
        os.kill(os.getpid(), signal.SIGINT)
    return future
HelperThread.submit = submit
try:
    with replica.sync.connect(sys.argv[1], start="earliest") as stream:
        for event in stream:
            count += 1
except KeyboardInterrupt:
    print("interrupted", stream.status.state)
"""


def test_ctrl_c_as_a_helper_thread_begins_to_wait(source: DemoSource) -> None:
    """In a notebook: the helper went on waiting for events, and ``close`` for the helper."""
    command = [sys.executable, "-c", _AS_THE_HELPER_BEGINS, source.dsn]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (result.stdout, result.stderr) == ("interrupted closed\n", "")


def test_a_first_thread_that_is_none_for_signals(source: DemoSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a second interpreter, as below mod_wsgi, and in embedded ones: no stream could be opened, a ValueError."""
    found: list[int] = []

    def read() -> None:
        monkeypatch.setattr(threading, "main_thread", threading.current_thread)
        with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
            found.append(sum(1 for _ in stream))

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join(SECONDS)
    finally:
        monkeypatch.undo()
        assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
    assert found == [1283]


def test_the_second_ctrl_c_is_raised_at_once() -> None:
    """The first one waits until asyncio is left; what does not end for it is left by the second one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    held = HeldSignals(lambda: None)
    try:
        held.hold()
        signal.raise_signal(signal.SIGINT)
        assert type(held.error) is KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        held.release()
        assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
