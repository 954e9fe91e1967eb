"""Calls in a thread of their own: also behind the end of the main thread, where executors take no work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from replica.config.daemon_thread import in_thread

_SECONDS = 60
# No server listens there; the name has to be looked up.
_CONNECT = """
import atexit, threading
import replica.sync

def connect_later():
    threading.main_thread().join()
    connect()

def connect():
    try:
        with replica.sync.connect("mysql://repl:secret@localhost:1"):
            pass
    except replica.ConnectionLostError:
        print("refused")
"""
_ENDS = {
    "in a thread that goes on": "threading.Thread(target=connect_later).start()",
    "at exit": "atexit.register(connect)",
}


@pytest.mark.parametrize("how", _ENDS)
def test_a_host_name_is_looked_up_when_the_main_thread_has_ended(how: str) -> None:
    """RuntimeError came out of ``replica.sync``: a worker thread lost its stream at the first reconnect."""
    command = [sys.executable, "-c", f"{_CONNECT}\n{_ENDS[how]}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("refused\n", "")


async def test_results_and_errors_are_those_of_the_function() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)


async def test_nobody_waits_for_a_thread_when_the_call_is_cancelled() -> None:
    goes_on = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_thread(goes_on.wait)
    goes_on.set()


async def test_without_threads_the_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await in_thread(len, "abc") == 3
