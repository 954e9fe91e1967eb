"""Forked processes and threads around a stream: what they leave behind is neither a hang nor a connection."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import replica.sync
from protocol.errors import ConnectionLostError
from replica import FileCheckpointStore
from replica.demo import DemoSource

SECONDS = 60


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


def output_of(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stderr == ""
    return done.stdout


_CHILD_ENDS = """
import os, sys, threading
import replica.sync
with replica.sync.connect(sys.argv[1], start="earliest", heartbeat=0) as stream:
    for number, event in enumerate(stream, 1):
        if number == 1283:
            break
    child = os.fork()
    if not child:
        sys.exit()
    os.waitpid(child, 0)
    threading.Timer(0.2, stream.close).start()
    for event in stream:
        pass
    print("ended")
"""


def test_a_child_that_ends_leaves_the_wait_of_its_parent_alone(source: DemoSource) -> None:
    """It closed its copy of the event loop, and with it the parent's epoll lost the sockets: a hang."""
    assert output_of(_CHILD_ENDS, source.dsn) == "ended\n"


_CHILD_DROPS = """
import asyncio, os, sys
import replica.sync
async def wait_for_ever():
    try:
        await asyncio.Event().wait()
    finally:
        stream._stream._loop._loop.call_soon(int)
async def begin():
    stream._stream._tasks = [asyncio.create_task(wait_for_ever())]
    await asyncio.sleep(0)
stream = replica.sync.connect(sys.argv[1], start="earliest", stop="now").__enter__()
next(stream)
stream._driver.run(begin)
if not os.fork():
    stream = None
    sys.exit()
os.wait()
print(sum(1 for _ in stream))
stream.close()
"""


def test_a_child_leaves_no_tasks_of_its_parent(source: DemoSource) -> None:
    """Those of a copy were on stderr: "Task was destroyed but it is pending", "Event loop is closed"."""
    assert output_of(_CHILD_DROPS, source.dsn) == "1282\n"


_CHILD_ENTERS = """
import os, sys
import replica.sync
with replica.sync.connect(sys.argv[1], start="earliest", stop="now") as stream:
    next(stream)
    if not os.fork():
        try:
            with stream:
                pass
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
    print(sum(1 for _ in stream))
"""


def test_a_child_does_not_open_the_stream_of_its_parent(source: DemoSource) -> None:
    """It was "Invalid argument"."""
    message = "the stream was opened in another process: connect a new one after the fork"
    assert output_of(_CHILD_ENTERS, source.dsn) == f"{message}\n1282\n"


_CHILD_READS = """
import os, sys
import replica.sync
with replica.sync.connect(sys.argv[1], start="earliest", stop="now") as stream:
    next(stream)
    place = stream.checkpoint
    if not os.fork():
        try:
            print(next(stream))
        except RuntimeError as error:
            print(error, stream.checkpoint == place, flush=True)
        os._exit(0)
    os.wait()
    print(sum(1 for _ in stream))
"""


def test_a_child_has_no_events_of_its_parent(source: DemoSource) -> None:
    """It got the rest of a batch, which the parent got, too."""
    message = "the stream was opened in another process: connect a new one after the fork"
    assert output_of(_CHILD_READS, source.dsn) == f"{message} True\n1282\n"


_CHILD_LIVES = """
import asyncio, os, socket
from replica.config.options import Options
from replica.source.transport import Transport
async def use(port):
    transport = await Transport.connect(Options.build(f"mysql://a@127.0.0.1:{port}", {}))
    closing, kept = os.pipe()
    child = os.fork()
    if not child:
        os.close(kept)
        os.read(closing, 1)
        os._exit(0)
    await transport.aclose()
    return child, kept
with socket.create_server(("127.0.0.1", 0)) as server:
    server.settimeout(20)
    child, kept = asyncio.run(use(server.getsockname()[1]))
    with server.accept()[0] as accepted:
        accepted.settimeout(20)
        print(accepted.recv(1))
os.close(kept)
os.waitpid(child, 0)
"""


def test_a_child_that_lives_on_does_not_hold_the_connection() -> None:
    """The source went on with the dump until the child ended."""
    assert output_of(_CHILD_LIVES) == "b''\n"


_DAEMON = """
import asyncio, sys, threading
import replica.sync
seen = threading.Event()
async def main():
    with replica.sync.connect(sys.argv[1], start="earliest") as stream:
        for event in stream:
            if event.position > 130_000:
                seen.set()
threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()
seen.wait()
print("end")
"""


def test_a_daemon_thread_with_an_event_loop_lets_the_interpreter_end(source: DemoSource) -> None:
    assert output_of(_DAEMON, source.dsn) == "end\n"


_GENERATOR_IS_LEFT = """
import sys
import replica.sync
store = replica.FileCheckpointStore(sys.argv[2])

def changes():
    with replica.sync.connect(sys.argv[1], start="earliest", checkpoints=store, checkpoint_interval=60) as stream:
        for transaction in stream.transactions():
            yield from transaction

async def loop():
    return [next(generator) for _ in range(5)]

generator = changes()
if sys.argv[3] == "loop":
    import asyncio
    asyncio.run(loop())
else:
    [next(generator) for _ in range(5)]
"""


@pytest.mark.parametrize("where", ["plain", "loop"])
def test_a_generator_that_the_interpreter_ends_saves_its_checkpoint(
    source: DemoSource, tmp_path: Path, where: str
) -> None:
    """The stream was closed when ``open`` and imports were gone: "name 'open' is not defined", and nothing saved."""
    store = FileCheckpointStore(tmp_path / "shop.ckpt")
    places = [4]
    for _ in range(2):
        assert output_of(_GENERATOR_IS_LEFT, source.dsn, store.path, where) == ""
        checkpoint = store.load()
        assert checkpoint is not None
        places.append(checkpoint.position)
    assert places == sorted(set(places))


def test_the_end_of_the_block_waits_for_another_thread(source: DemoSource, tmp_path: Path) -> None:
    """It ended that thread's loop, and nobody closed the stream: its last checkpoint was not saved."""
    store = FileCheckpointStore(tmp_path / "shop.ckpt")
    stream = replica.sync.connect(
        source.dsn, start="earliest", checkpoints=store, checkpoint_interval=SECONDS
    )
    events = []
    seen = threading.Event()

    def follow() -> None:
        for event in stream:
            events.append(event)
            if len(events) == 1283:
                seen.set()

    with stream:
        thread = threading.Thread(target=follow)
        thread.start()
        assert seen.wait(SECONDS)
        while not stream._driver._is_waiting:
            pass
    assert stream.status.state == "closed"
    assert store.load() == stream.checkpoint
    thread.join(SECONDS)


def test_a_stream_that_could_not_be_opened_may_be_opened_again() -> None:
    stream = replica.sync.connect("mysql://repl:secret@127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ConnectionLostError), stream:
            raise AssertionError
        # It looked like the end of the log.
        with pytest.raises(RuntimeError, match="is opened by"):
            next(stream)


def test_an_open_stream_is_not_opened_again(source: DemoSource) -> None:
    with replica.sync.connect(source.dsn, start="earliest", stop="now") as stream:
        with pytest.raises(RuntimeError, match="opened once"), stream:
            raise AssertionError
        assert sum(1 for _ in stream) == 1283
