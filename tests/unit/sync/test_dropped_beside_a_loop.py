"""Streams of notebooks that nobody has closed: their helper threads end, and their sockets are closed."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import warnings
from collections.abc import Callable

import pytest

import replica.sync
from replica.demo import DemoSource
from replica.sync import helper_thread
from tests.faults.waiting import until


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "replica-sync"]


def test_they_leave_nothing() -> None:
    async def notebook(dsn: str) -> None:
        # What earlier tests have left would be closed below.
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        streams = [replica.sync.connect(dsn, start="earliest").__enter__() for _ in range(3)]
        for stream in streams:
            next(stream)
        threads = _threads()
        assert len(threads) == 3
        del stream, streams
        gc.collect()
        for thread in threads:
            thread.join(30)
        assert not _threads()
        gc.collect()
        # The source, in this process, too, closes its ends when it notices.
        await until(lambda: len(os.listdir("/proc/self/fd")) == before)

    with DemoSource(tls=False) as source, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(notebook(source.dsn))


@pytest.mark.parametrize("where", ["no loop", "opened beside a loop", "dropped beside a loop"])
def test_tasks_that_were_reading_a_copy_end(
    where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ended in a closed loop: "Task was destroyed but it is pending", and tracebacks of RuntimeError."""
    caught: list[object] = []
    ends: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", caught.append)

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            asyncio.get_running_loop().call_soon(ends.append, "done")

    async def begin(stream: replica.sync.SyncStream) -> None:
        stream._stream._tasks = [asyncio.create_task(wait_for_ever())]  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    def leave(dsn: str) -> None:
        stream = replica.sync.connect(dsn, start="earliest").__enter__()
        next(stream.transactions())
        stream._driver.run(lambda: begin(stream))

    def is_named(warned: list[warnings.WarningMessage]) -> bool:
        return any("unclosed <BinlogStream of" in str(one.message) for one in warned)

    async def drop(leave: Callable[[], object]) -> None:
        leave()
        gc.collect()
        await until(lambda: bool(ends))

    with DemoSource(tls=False) as source, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        gc.disable()
        try:
            if where != "opened beside a loop":
                leave(source.dsn)
            if where == "no loop":
                gc.collect()
            else:
                asyncio.run(drop(lambda: leave(source.dsn) if where == "opened beside a loop" else None))
        finally:
            gc.enable()
        for thread in _threads():
            thread.join(30)
        # The thread that ended the tasks may not have let go of the stream yet.
        asyncio.run(until(lambda: gc.collect() >= 0 and is_named(warned)))
    assert (ends, caught, caplog.messages, _threads()) == (["done"], [], [], [])


def test_a_stream_that_its_owner_listens_to_is_dropped_with_it() -> None:
    """They hold one another."""

    class Owner:
        def __init__(self, dsn: str) -> None:
            self.stream = replica.sync.connect(dsn, start="earliest", on_status=self.look).__enter__()

        def look(self, status: object) -> None:
            """Nothing is to be done."""

    with DemoSource(tls=False) as source, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
        next(Owner(source.dsn).stream)
        gc.collect()
    assert any("unclosed <BinlogStream of" in str(one.message) for one in warned)


def test_a_stream_in_a_greenlet_beside_another_one_leaves_no_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error came twice, and behind it that the loop, which nobody had closed, has no descriptor (gevent)."""

    async def greenlet() -> None:
        with replica.sync.connect("mysql://repl:secret@127.0.0.1:1"):
            pass

    monkeypatch.setattr(helper_thread, "is_loop_running", lambda: True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(RuntimeError, match="threads are greenlets here") as caught:
            asyncio.run(greenlet())
        assert caught.value.__context__ is None
        del caught
        gc.collect()
    assert not [one for one in warned if "event loop" in str(one.message)]
    assert not _threads()


def test_its_batches_hold_it() -> None:
    with DemoSource(tls=False) as source:
        batches = replica.sync.connect(source.dsn, start="earliest", stop="now").__enter__().batches()
        gc.collect()
        assert sum(len(batch.changes) for batch in batches) == 405
        batches._stream.close()
