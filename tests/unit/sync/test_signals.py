"""Signals at the worst moments: a handler closes the stream, or Ctrl-C comes, while a call is about to wait."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import replica.sync
from replica.demo import DemoSource
from replica.sync.held_signals import HeldSignals
from replica.sync.loop_driver import LoopDriver

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
