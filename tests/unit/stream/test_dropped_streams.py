"""Streams that nobody has closed, and nobody holds any more."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import replica.sync
from replica.demo import DemoSource
from tests.faults.waiting import until


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


def sockets() -> int:
    """How many sockets this process has."""
    links = (os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))
    return sum(os.readlink(link).startswith("socket:") for link in links if os.path.lexists(link))


async def collected(stream: list[replica.BinlogStream]) -> list[warnings.WarningMessage]:
    """Drop the stream, and give its event loop turns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream.clear()
        for _ in range(5):
            # What was just cancelled is held by the event loop for a turn.
            gc.collect()
            await asyncio.sleep(0)
    return caught


async def opened(dsn: str, *, how: str) -> list[replica.BinlogStream]:
    """A stream, in a list that alone holds it."""
    stream = await replica.connect(dsn, start="earliest").__aenter__()
    if how == "iterated":
        await anext(stream)
    elif how == "waiting":
        # Behind the last event of the log; before, what has come is held by the stream alone, and asyncio warns, too.
        while not isinstance(await anext(stream), replica.StopEvent):
            pass
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(stream)
    elif how == "closed":
        await stream.aclose()
    return [stream]


@pytest.mark.parametrize("how", ["opened", "iterated", "waiting"])
async def test_it_is_closed_with_a_warning(source: DemoSource, how: str) -> None:
    before = sockets()
    stream = await opened(source.dsn, how=how)
    assert sockets() > before
    (warning,) = await collected(stream)
    assert warning.category is ResourceWarning
    assert "unclosed <BinlogStream of 127.0.0.1:" in str(warning.message)
    # The source, in this process, too, closes its end when it notices.
    await until(lambda: sockets() == before)


@pytest.mark.parametrize("how", ["never opened", "closed"])
async def test_a_closed_one_is_dropped_in_silence(source: DemoSource, how: str) -> None:
    stream = [replica.connect(source.dsn)] if how == "never opened" else await opened(source.dsn, how=how)
    assert await collected(stream) == []


async def test_its_store_is_left_as_it_was(source: DemoSource, tmp_path: Path) -> None:
    """As after a kill: by now the store may have the place of another stream."""
    saved: list[replica.Checkpoint] = []

    class Store:
        def load(self) -> None:
            return None

        def save(self, checkpoint: replica.Checkpoint) -> None:
            saved.append(checkpoint)

    stream = await replica.connect(source.dsn, start="earliest", checkpoints=Store()).__aenter__()
    for _ in range(50):
        await anext(stream)
    count = len(saved)
    dropped = [stream]
    del stream
    await collected(dropped)
    assert len(saved) == count


PROGRAM = """
import asyncio, gc, sys
import replica

async def main():
    stream = replica.connect(sys.argv[1], start="earliest")
    await stream.__aenter__()
    await anext(stream)
    return stream

stream = asyncio.run(main())
del stream
gc.collect()
print("after")
"""


@pytest.mark.parametrize("option", ["default", "error"])
def test_the_loop_has_ended(source: DemoSource, option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", option, "-c", PROGRAM, source.dsn], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "after\n")
    assert "ResourceWarning: unclosed <BinlogStream of 127.0.0.1:" in done.stderr


async def test_a_forked_process_drops_the_stream_of_its_parent(source: DemoSource) -> None:
    stream = await opened(source.dsn, how="iterated")
    if (child := os.fork()) == 0:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stream.clear()
            gc.collect()
        os._exit(len([one for one in caught if "BinlogStream" in str(one.message)]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0  # noqa: ASYNC222 -- it ends at once
    async with asyncio.timeout(60):
        await anext(stream[0])
    await stream[0].aclose()


@pytest.mark.parametrize(
    "part", ["replica.stream.binlog_stream.StreamCopy", "replica.sync.sync_stream.LoopDriver"]
)
def test_one_that_ctrl_c_left_half_made_is_dropped_in_silence(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "Exception ignored in: <function BinlogStream.__del__", an AttributeError."""
    caught: list[object] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", caught.append)
    monkeypatch.setattr(part, interrupt)
    with contextlib.suppress(KeyboardInterrupt):
        replica.sync.connect("mysql://repl:secret@127.0.0.1")
        raise AssertionError
    gc.collect()
    assert caught == []
