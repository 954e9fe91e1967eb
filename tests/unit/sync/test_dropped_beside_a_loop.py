"""Streams of notebooks that nobody has closed: their helper threads end, and their sockets are closed."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings

import replica.sync
from replica.demo import DemoSource
from tests.faults.waiting import until


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "replica-sync"]


def test_they_leave_nothing() -> None:
    async def notebook(dsn: str) -> None:
        # What earlier tests have left would be closed below.
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        # Python 3.14 would collect the first ones meanwhile.
        gc.disable()
        try:
            for _ in range(3):
                stream = replica.sync.connect(dsn, start="earliest").__enter__()
                next(stream)
                del stream
            threads = _threads()
        finally:
            gc.enable()
        assert len(threads) == 3
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
