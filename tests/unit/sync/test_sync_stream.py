"""The stream without asyncio: the same events as the asynchronous one, ended from everywhere, used everywhere."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import replica.sync
from protocol.errors import ConfigurationError, ConnectionLostError
from replica import Checkpoint, FileCheckpointStore, QueryEvent, RowsEvent, StreamStatus, WriteRowsEvent
from replica.demo import DemoSource
from replica.sync.loop_driver import LoopDriver

SECONDS = 60
#: Of the demo's log, up to the end of its last transaction.
EVENTS, ROWS = 1283, 405


@pytest.fixture(scope="module")
def source() -> Iterator[DemoSource]:
    with DemoSource(tls=False) as source:
        yield source


def connect(source: DemoSource, **options: object) -> replica.sync.SyncStream:
    return replica.sync.connect(source.dsn, **{"start": "earliest", "stop": "now"} | options)  # type: ignore[arg-type]


async def asynchronously(source: DemoSource) -> tuple[list[str], Checkpoint | None]:
    async with replica.connect(source.dsn, start="earliest", stop="now") as stream:
        return [repr(event) async for event in stream], stream.checkpoint


def test_events_are_those_of_the_asynchronous_stream(source: DemoSource) -> None:
    expected, checkpoint = asyncio.run(asynchronously(source))
    with connect(source) as stream:
        assert [repr(event) for event in stream] == expected
        assert list(stream) == []
        assert (stream.checkpoint, stream.server_version) == (checkpoint, "9.7.4")
        assert stream.position is not None
    assert stream.status.state == "closed"
    assert (stream.status.events, stream.status.rows) == (EVENTS, ROWS)
    stream.close()
    assert list(stream) == []


def test_the_arguments_are_those_of_connect() -> None:
    expected = inspect.signature(replica.connect).replace(return_annotation="SyncStream")
    assert inspect.signature(replica.sync.connect) == expected
    with pytest.raises(ConfigurationError, match="server_id"):
        replica.sync.connect("mysql://repl@127.0.0.1", server_id=0)


def test_the_names_are_those_of_the_asynchronous_stream() -> None:
    others, own = (
        {name for name in dir(kind) if name[0] != "_"}
        for kind in (replica.BinlogStream, replica.sync.SyncStream)
    )
    assert own - {"close", "timeout"} == others - {"aclose"}  # asyncio has a timeout of its own


def test_leaving_the_loop_and_going_on(source: DemoSource) -> None:
    seen = []
    with connect(source) as stream:
        while True:
            for event in stream:
                seen.append(event.position)
                if len(seen) % 100 == 0:
                    break
            else:
                break
    assert len(seen) == EVENTS
    assert sorted(seen) == seen


def test_transactions(source: DemoSource) -> None:
    async def expected() -> list[tuple[object, ...]]:
        async with replica.connect(source.dsn, start="earliest", stop="now") as stream:
            return [
                (tx.gtid, await tx.collect(), tx.outcome, tx.checkpoint) async for tx in stream.transactions()
            ]

    with connect(source) as stream:
        found = [(tx.gtid, tx.collect(), tx.outcome, tx.checkpoint) for tx in stream.transactions()]
    assert len(found) > 200
    assert found == asyncio.run(expected())


def test_transactions_after_events_of_the_same_stream(source: DemoSource) -> None:
    with connect(source) as stream:
        transactions = stream.transactions()
        first = next(transactions)
        for event in stream:
            if isinstance(event, WriteRowsEvent):
                seen = len(event.rows)
                break
        assert first.gtid is not None
        rest = sum(len(list(tx)) for tx in transactions)
    assert rest == ROWS - seen


def test_transactions_need_all_events(source: DemoSource) -> None:
    with (
        connect(source, events=QueryEvent) as stream,
        pytest.raises(ConfigurationError, match="leave out events="),
    ):
        stream.transactions()


def test_handlers(source: DemoSource) -> None:
    stream = connect(source)
    counts = {"rows": 0, "orders": 0, "awaited": 0}

    @stream.on(RowsEvent)
    def count(event: RowsEvent) -> None:
        counts["rows"] += sum(1 for _ in event.changes())

    @stream.on(WriteRowsEvent, table="shop.orders")
    def count_orders(event: WriteRowsEvent) -> None:
        counts["orders"] += len(event.rows)

    @stream.on(QueryEvent)
    async def awaited(event: QueryEvent) -> None:
        await asyncio.sleep(0)
        counts["awaited"] += 1

    stream.run()
    assert counts["rows"] == ROWS
    assert counts["orders"] == 79
    assert counts["awaited"] > 200
    assert stream.status.state == "closed"


def test_an_exception_of_a_handler_ends_the_stream(source: DemoSource) -> None:
    stream = connect(source)

    @stream.on(WriteRowsEvent)
    def fail(event: WriteRowsEvent) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        stream.run()
    assert stream.status.state == "closed"
    with pytest.raises(RuntimeError, match="runs once"):
        stream.run()


def test_checkpoints(source: DemoSource, tmp_path: Path) -> None:
    """Whoever leaves after some transactions goes on behind them; the last one, not asked on, comes again."""
    store = FileCheckpointStore(tmp_path / "ckpt")
    seen = []
    for most in (50, 1000):
        with connect(source, checkpoints=store, checkpoint_interval=0) as stream:
            for number, tx in enumerate(stream.transactions()):
                if number == most:
                    break
                tx.collect()
                seen.append(tx.gtid)
    assert len(set(seen)) == len(seen) == 224
    with connect(source, checkpoints=store) as stream:
        assert list(stream) == []
        stream.acknowledge()


def test_status_is_shown(source: DemoSource) -> None:
    shown: list[StreamStatus] = []
    with connect(source, on_status=shown.append, status_interval=0.01) as stream:
        assert sum(1 for _ in stream) == EVENTS
    assert [shown[0].state, shown[-1].state] == ["connecting", "closed"]


def test_close_from_another_thread_ends_the_wait(source: DemoSource) -> None:
    with connect(source, stop=None) as stream:
        for event in stream:
            if event.position > 130_000:
                break
        closer = threading.Timer(0.3, stream.close)
        closer.start()
        # Without an end it would wait for ever.
        rest = list(stream)
        closer.join()
        assert len(rest) < 20
    assert stream.status.state == "closed"


def test_another_thread_may_iterate(source: DemoSource) -> None:
    with connect(source) as stream:
        events = [next(stream) for _ in range(100)]
        thread = threading.Thread(target=lambda: events.extend(stream))
        thread.start()
        thread.join(SECONDS)
    assert len(events) == EVENTS


def test_results_are_not_rendered() -> None:
    """``signal.signal`` would: it looks for the handler of Ctrl-C in an enum, and that knows the task."""
    rendered: list[object] = []

    class Loud:
        def __repr__(self) -> str:
            rendered.append(self)
            return ""

    async def result() -> Loud:
        return Loud()

    driver = LoopDriver()
    assert [type(driver.run(result)) for _ in range(3)] == [Loud] * 3
    driver.close()
    assert rendered == []


async def test_inside_of_a_running_event_loop(source: DemoSource) -> None:
    """As in a notebook: the loop of the caller stands still meanwhile, as with any blocking call."""
    with connect(source) as stream:
        assert sum(1 for _ in stream) == EVENTS
    with pytest.raises(ConnectionLostError), replica.sync.connect("mysql://repl@127.0.0.1:1"):
        raise AssertionError
    assert await asyncio.sleep(0, "the loop goes on") == "the loop goes on"


def test_errors(source: DemoSource) -> None:
    with pytest.raises(ConnectionLostError), replica.sync.connect("mysql://repl@127.0.0.1:1"):
        raise AssertionError
    stream = connect(source)
    stream.close()
    with pytest.raises(RuntimeError, match="is closed"):
        stream.acknowledge()


_PROGRAM = """
import signal, sys, threading
import replica.sync
# A shell's background jobs ignore it, and so do the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
stream = replica.sync.connect(sys.argv[1], start="earliest")
signal.signal(signal.SIGTERM, lambda *_: stream.close())
count = 0
{prologue}
with stream:
    for event in stream:
        count += 1
        if count == 1284:
            print("all", flush=True)
print(count, stream.status.state, flush=True)
"""
_IN_A_LOOP = "import asyncio; loop = asyncio.new_event_loop(); asyncio._set_running_loop(loop)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("prologue", ["", _IN_A_LOOP], ids=["plain", "in a running loop"])
def test_signals_end_the_wait(source: DemoSource, number: signal.Signals, prologue: str) -> None:
    command = [sys.executable, "-c", _PROGRAM.format(prologue=prologue), source.dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "all\n"
            process.send_signal(number)
            output, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    if number == signal.SIGTERM:
        assert (output, process.returncode) == ("1284 closed\n", 0), errors
    else:
        # As in any program: the exception passes through the with block, which closes the stream.
        assert "\nKeyboardInterrupt\n" in errors
        assert (output, process.returncode) == ("", -signal.SIGINT)


def output_of(program: str, source: DemoSource) -> str:
    """What a program prints that takes the DSN of the source; it prints no error."""
    command = [sys.executable, "-c", program, source.dsn]
    result = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


_LATE = """
import signal, sys
import replica.sync
class Late(Exception): ...
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
with replica.sync.connect(sys.argv[1], start="earliest") as stream:
    for _ in range(1284):
        next(stream)
    # From here on the source has nothing to send.
    for _ in range(3):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            next(stream)
        except Late:
            print("late")
print(stream.status.state)
"""


def test_a_signal_handler_that_raises(source: DemoSource) -> None:
    """Deadlines of task queues. What was awaited stayed in the loop, and its error was logged later."""
    assert output_of(_LATE, source) == "late\nlate\nlate\nclosed\n"


_WITHIN = _LATE.replace(
    "signal.setitimer(signal.ITIMER_REAL, 0.2)",
    "stream._driver._runner.get_loop().call_later(0.1, signal.raise_signal, signal.SIGALRM)",
)


def test_a_signal_handler_that_raises_within_asyncio(source: DemoSource) -> None:
    """Between any two instructions of a callback, say: it was logged, and the stream waited on."""
    assert output_of(_WITHIN, source) == "late\nlate\nlate\nclosed\n"


_OVERDUE = """
import signal, sys
import replica.sync
class Late(Exception): ...
def late(*_): raise Late
signal.signal(signal.SIGALRM, late)
def status(_):
    # The first one comes when the connection is there: then what is awaited is done.
    signal.raise_signal(signal.SIGALRM)
try:
    with replica.sync.connect(sys.argv[1], start="earliest", stop="now", on_status=status) as stream:
        print("open")
        seen = sum(1 for _ in stream)
except Late:
    print("late", signal.getsignal(signal.SIGALRM) is late)
"""


def test_the_programs_handlers_are_as_they_were(source: DemoSource) -> None:
    assert output_of(_OVERDUE, source).endswith("late True\n")


_FORK = """
import os, sys
import replica.sync
def child(use):
    sys.stdout.flush()
    number = os.fork()
    if not number:
        try:
            print(use())
        except RuntimeError as error:
            print(error)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(number, 0)
def opened():
    with unopened as stream:
        return sum(1 for _ in stream)
unopened = replica.sync.connect(sys.argv[1], start="earliest", stop="now")
child(opened)
with replica.sync.connect(sys.argv[1], start="earliest", stop="now", heartbeat=0) as stream:
    first = next(stream)
    child(stream.close)
    child(stream.acknowledge)
    print(1 + sum(1 for _ in stream), stream.status.reconnects)
"""


def test_a_forked_process_leaves_the_stream_of_its_parent_alone(source: DemoSource) -> None:
    """Its ``close`` took the socket out of the epoll of both: the parent waited for ever."""
    error = "the stream was opened in another process: connect a new one after the fork"
    assert output_of(_FORK, source).splitlines() == [str(EVENTS), "None", error, f"{EVENTS} 0"]


_BELOW_ASYNCIO = """
import asyncio, signal, sys
import replica.sync
signal.signal(signal.SIGINT, signal.default_int_handler)
async def main():
    with replica.sync.connect(sys.argv[1], start="earliest") as stream:
        for number, event in enumerate(stream, 1):
            if number == 1284:
                print("all", flush=True)
asyncio.run(main())
"""


def test_one_ctrl_c_ends_a_stream_below_asyncio_run(source: DemoSource) -> None:
    """asyncio.run only cancels its task at the first one."""
    command = [sys.executable, "-c", _BELOW_ASYNCIO, source.dsn]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "all\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert process.returncode == -signal.SIGINT


_CANCELLED_BETWEEN_CALLS = """
import asyncio, sys
import replica.sync
async def main():
    with replica.sync.connect(sys.argv[1], start="earliest") as stream:
        for number, event in enumerate(stream, 1):
            if number == 1284:
                asyncio.current_task().cancel()
async def outer():
    try:
        await asyncio.create_task(main())
    except asyncio.CancelledError:
        print("cancelled", replica.sync.connect(sys.argv[1]) is not None)
asyncio.run(outer())
"""


def test_a_cancel_between_two_calls_ends_the_next_one(source: DemoSource) -> None:
    """A Ctrl-C may come while the user's code runs, and then nothing is raised until the stream waits."""
    assert output_of(_CANCELLED_BETWEEN_CALLS, source) == "cancelled True\n"


async def test_what_else_runs_in_the_loop_goes_on_after_an_interrupted_call() -> None:
    """As after "interrupt the kernel" in a notebook: the tasks that read a copy of tables were cancelled, too."""
    driver = LoopDriver()
    driver.keep(lambda: None)
    others: list[asyncio.Task[bool]] = []
    began = threading.Event()

    async def begin() -> None:
        others.append(asyncio.create_task(asyncio.Event().wait()))

    async def wait_for_ever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def look() -> list[bool]:
        await asyncio.sleep(0)
        return [task.done() for task in others]

    caller = asyncio.current_task()
    assert caller is not None

    def interrupt() -> None:
        began.wait()
        caller.cancel()

    driver.run(begin)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(asyncio.CancelledError):
        driver.run(wait_for_ever)
    thread.join()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    caller.uncancel()
    assert driver.run(look) == [False]
    driver.close()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "use",
    [
        lambda stream: stream.acknowledge(),
        lambda stream: next(iter(stream)),
        lambda stream: next(iter(stream.transactions())),
        lambda stream: next(iter(stream.batches())),
        lambda stream: stream.snapshot("shop.orders"),
    ],
)
@pytest.mark.parametrize("is_beside_a_loop", [False, True])
def test_a_stream_that_was_never_opened_leaves_nothing_open(
    use: Callable[[replica.sync.SyncStream], object], is_beside_a_loop: bool
) -> None:
    """Its event loop was never closed: a ResourceWarning."""

    async def beside_a_loop() -> None:
        leave()

    def leave() -> None:
        stream = replica.sync.connect("mysql://repl@127.0.0.1:1")
        with contextlib.suppress(RuntimeError):
            use(stream)

    with pytest.MonkeyPatch.context() as patched:
        caught: list[object] = []
        patched.setattr(sys, "unraisablehook", caught.append)
        if is_beside_a_loop:
            asyncio.run(beside_a_loop())
        else:
            leave()
        gc.collect()
    assert caught == []
