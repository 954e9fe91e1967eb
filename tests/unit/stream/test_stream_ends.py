"""Streams that are closed or cancelled, against a scripted source on loopback: no task and no connection is left."""

from __future__ import annotations

import asyncio

import pytest

import replica
from protocol.binlog.events import Event
from protocol.errors import ConnectionLostError
from replica import RowsEvent, WriteRowsEvent
from replica.stream.lasting_work import LastingWork
from tests.support.scripted_log import Log, kinds, mysql, transaction, unseen, values
from tests.support.socket_source import ALL_COLUMNS, SocketSource, serving, until

STAGES = ["login", "SELECT UNIX_TIMESTAMP", "SHOW GLOBAL", "SET @master_heartbeat", "SET @slave_uuid"]


async def test_aclose_from_another_task_ends_the_loop() -> None:
    async with serving(mysql(transaction(Log(), 1))) as source:
        stream = replica.connect(source.dsn, start="earliest")

        async def consume() -> list[Event]:
            return [event async for event in stream]

        async with stream:
            consuming = asyncio.create_task(consume())
            while not consuming.done():
                await asyncio.sleep(0.01)
                if stream.position is not None and stream.position.position > 150:  # behind the rows
                    await stream.aclose()
        assert values(await consuming) == [1]
        assert [event async for event in stream] == []
        await stream.aclose()
        await source.until_closed()


async def test_a_stream_that_has_ended_copies_no_table() -> None:
    """The call returned, and the table never came."""
    async with serving(mysql(transaction(Log(), 1))) as source:
        for stop in ("now", None):
            stream = replica.connect(source.dsn, start="earliest", stop=stop)
            async with stream:
                if stop is not None:
                    _ = [event async for event in stream]
                    with pytest.raises(
                        RuntimeError, match=r"snapshot\(\): w.t is not copied.* stream has ended"
                    ):
                        await stream.snapshot("w.t")
            with pytest.raises(RuntimeError, match="connect a new stream"):
                await stream.snapshot("w.t")


async def test_what_a_cancelled_call_has_begun_does_not_stand_for_other_work() -> None:
    work, done = LastingWork(), list[str]()
    gate = asyncio.Event()

    async def do(name: str) -> None:
        await gate.wait()
        done.append(name)
        if name.startswith("bad"):
            raise ConnectionLostError(name)

    async def cancelled(subject: object, name: str) -> None:
        calling = asyncio.create_task(work.see_through(subject, lambda: do(name)))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.wait((calling,))

    one, other = object(), object()
    # The work ends while nobody awaits it, or while the next call does.
    for is_over in (True, False):
        gate.clear()
        await cancelled(one, "bad: first")
        if is_over:
            gate.set()
            await until(lambda: done)
        else:
            asyncio.get_running_loop().call_later(0.01, gate.set)
        await work.see_through(other, lambda: do("second"))
        assert done == ["bad: first", "second"]
        done.clear()
    # The same work is not done twice, and its error comes.
    await cancelled(one, "bad: third")
    await until(lambda: done)
    with pytest.raises(ConnectionLostError, match="third"):
        await work.see_through(one, lambda: do("fourth"))
    assert done == ["bad: third"]
    await work.see_through(one, lambda: do("fifth"))
    assert done == ["bad: third", "fifth"]


async def test_a_cancelled_iteration_goes_on_where_it_was() -> None:
    source = mysql(transaction(Log(), 1, 2, 3), pause=0.03)
    seen: list[Event] = []
    cancelled = 0
    async with serving(source), replica.connect(source.dsn, start="earliest") as stream:
        while len(seen) < 5:
            try:
                async with asyncio.timeout(0.005):
                    seen.append(await anext(stream))
            except TimeoutError:
                cancelled += 1
    assert cancelled > 0
    assert kinds(seen) == ["FormatDescription", "Query", "TableMap", "WriteRows", "Xid"]
    assert values(seen) == [1, 2, 3]


@pytest.mark.parametrize("stage", STAGES)
async def test_cancelling_while_connecting_leaves_nothing(stage: str) -> None:
    async with serving(SocketSource(silent_for=stage)) as source:
        opening = asyncio.create_task(replica.connect(source.dsn, start="earliest").__aenter__())
        await until(lambda: source.writers if stage == "login" else source.has_been_asked(stage))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await source.until_closed()
        assert asyncio.all_tasks() == {asyncio.current_task()} | _server_tasks()


def _server_tasks() -> set[asyncio.Task[object]]:
    """Tasks of asyncio's server for connections that are about to end."""
    return {task for task in asyncio.all_tasks() if "serve" in repr(task.get_coro())}


async def test_cancelling_while_reading_leaves_nothing() -> None:
    async with serving(mysql(Log())) as source:

        async def consume() -> None:
            async with replica.connect(source.dsn, start="earliest") as stream:
                async for _ in stream:
                    pass

        consuming = asyncio.create_task(consume())
        await until(lambda: source.dumps)
        await asyncio.sleep(0.02)
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming
        await source.until_closed()


async def test_a_cancelled_look_up_is_repeated() -> None:
    source = unseen(transaction(Log(), 1))
    async with serving(source), replica.connect(source.dsn, start="earliest", connect_timeout=0.3) as stream:
        source.silent_for = ALL_COLUMNS
        seen = [await anext(stream), await anext(stream)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await anext(stream)
        source.silent_for = ""
        source.answers.clear()
        seen += [await anext(stream), await anext(stream)]
    assert kinds(seen) == ["FormatDescription", "Query", "TableMap", "WriteRows"]
    rows = seen[-1]
    assert isinstance(rows, WriteRowsEvent)
    assert rows.table.column_names == ("id",)


async def test_closing_during_a_look_up_leaves_nothing() -> None:
    source = unseen(transaction(Log(), 1))
    async with serving(source):
        stream = replica.connect(source.dsn, start="earliest", events=RowsEvent)

        async def consume() -> list[Event]:
            return [event async for event in stream]

        async with stream:
            source.silent_for = ALL_COLUMNS
            asked = len(source.statements)
            consuming = asyncio.create_task(consume())
            await until(lambda: any(sql.startswith(ALL_COLUMNS) for sql in source.statements[asked:]))
            await stream.aclose()
            assert await consuming == []
        await source.until_closed()


@pytest.mark.parametrize("statements", range(1, 9))
async def test_aclose_while_the_stream_connects_ends_the_loop(statements: int) -> None:
    """Before the log was asked for, the loop ended with a RuntimeError: Ctrl-C in a slow start was "a defect"."""
    source = mysql(transaction(Log(), 1), delay=0.02)
    async with serving(source):
        stream = replica.connect(source.dsn, start="earliest")

        async def close() -> None:
            await until(lambda: len(source.statements) >= statements)
            await stream.aclose()

        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(close())
            async with stream:
                async for _ in stream:
                    pass
        assert stream.status.state == "closed"


def test_another_event_loop_is_refused() -> None:
    """The bytes of the connection would be waited for in vain: as below a second asyncio.run()."""
    log = transaction(Log(), 1)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        source = mysql(log)
        serve = serving(source)
        first.run_until_complete(serve.__aenter__())
        stream = replica.connect(source.dsn, start="earliest")
        first.run_until_complete(stream.__aenter__())
        for work in (stream.__anext__, stream.aclose):
            with pytest.raises(RuntimeError, match="the stream was opened in another event loop"):
                second.run_until_complete(asyncio.wait_for(work(), 5))
        assert type(first.run_until_complete(stream.__anext__())).__name__ == "FormatDescriptionEvent"
        first.run_until_complete(stream.aclose())
        first.run_until_complete(serve.__aexit__(None, None, None))
    finally:
        first.close()
        second.close()
