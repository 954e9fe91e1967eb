"""``stream.transactions()`` over a socket: cut at any byte, moved to other servers, with checkpoints and a store."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest

import replica
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump
from protocol.conversation.messages import Err
from protocol.errors import CheckpointError, ConfigurationError, TransactionOutcomeError
from protocol.gtid import GtidSet
from replica import BinlogPosition, BinlogStream, Change, Checkpoint, FileCheckpointStore, WriteRowsEvent
from tests.support.resumed_streams import (
    OTHER_CONTENT,
    OTHER_UUID,
    QUICK,
    TRANSACTIONS,
    everything,
    fail_over,
    from_position,
    gtid_log,
    gtid_source,
    plain_log,
    size_of,
    split_transaction,
    transactions_of,
)
from tests.support.scripted_log import Log, gtid, kinds, mysql
from tests.support.socket_source import SocketSource, serving

SECONDS = 20
FLAT = [[number for rows in transaction for number in rows] for transaction in TRANSACTIONS]


def numbers(changes: list[Change]) -> list[object]:
    return [change.after["id"] for change in changes if change.after]


def stream_of(source: SocketSource, start: object = "earliest", **given: Any) -> BinlogStream:
    return replica.connect(source.dsn, start=start, reconnect=QUICK, **given)  # type: ignore[arg-type]


async def rows_of(source: SocketSource, count: int, start: object = "earliest") -> list[list[object]]:
    """Read this many transactions, row by row."""
    found = []
    async with asyncio.timeout(SECONDS), stream_of(source, start) as stream:
        async for tx in stream.transactions():
            found.append(numbers([change async for change in tx]))
            assert (tx.outcome, tx.is_restart) == ("commit", False)
            if len(found) == count:
                break
    return found


async def test_by_position_whatever_the_byte(thorough: bool) -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log))
    async with serving(source):
        for cut in range(0, size_of(source, BinlogDump("", 4, 1, 0)), 23 if thorough else 61):
            source.cuts = [cut]
            assert await rows_of(source, 3) == FLAT, cut


@pytest.mark.parametrize("other", [TRANSACTIONS, [[[1, 2, 3]], [[4], [5, 6, 7], [8, 9]], [[10]]]])
async def test_by_gtid_whatever_the_byte_and_the_server(other: list[list[list[int]]], thorough: bool) -> None:
    log, other_log = gtid_log(*TRANSACTIONS), gtid_log(*other)
    for cut in range(0, size_of(gtid_source(log), everything()), 23 if thorough else 61):
        source = gtid_source(log)
        source.cuts = [cut]
        source.on_cut = lambda source=source: fail_over(source, other_log)  # type: ignore[misc]
        async with serving(source):
            assert await rows_of(source, 3, GtidSet("")) == FLAT, cut


def cut_in_the_second(log: Log, other: Log) -> SocketSource:
    """A source that fails over after the rows 2 and 3 of the second transaction."""
    source = gtid_source(log)
    source.cuts = [size_of(source, everything()) - 110]
    source.on_cut = lambda: fail_over(source, other)
    return source


@pytest.mark.parametrize("content", ["other rows", "fewer rows"])
async def test_a_transaction_that_begins_again(content: str) -> None:
    other = OTHER_CONTENT[content]
    source = cut_in_the_second(gtid_log([[1]], [[2, 3], [4], [5]]), other)
    [*_, last] = [event for event in transactions_of(other) if isinstance(event, WriteRowsEvent)]
    expected = [row[0] for row in last.rows]
    seen = []
    async with asyncio.timeout(SECONDS), serving(source), stream_of(source, GtidSet("")) as stream:
        async for tx in stream.transactions():
            changes = [change async for change in tx]
            seen.append((str(tx.gtid)[-2:], numbers(changes), tx.is_restart, tx.outcome))
            if tx.outcome == "restarted":
                with pytest.raises(TransactionOutcomeError):
                    _ = tx.checkpoint
            if tx.is_restart:
                break
        assert tx.checkpoint.server_uuid == OTHER_UUID
        assert stream.status.restarts == 1
    # The second entry has the rows read before the cut; their number depends on the cut.
    assert seen[0] == (":1", [1], False, "commit")
    assert seen[1][0] == ":2"
    assert seen[1][2:] == (False, "restarted")
    assert seen[1][1] == [2, 3, 4, 5][: len(seen[1][1])] != []
    assert seen[2:] == [(":2", expected, True, "commit")]


@pytest.mark.parametrize("content", ["other rows", "fewer rows"])
async def test_collecting_does_not_show_it(content: str) -> None:
    other = OTHER_CONTENT[content]
    source = cut_in_the_second(gtid_log([[1]], [[2, 3], [4], [5]]), other)
    expected = [
        row[0] for event in transactions_of(other) if isinstance(event, WriteRowsEvent) for row in event.rows
    ]
    async with asyncio.timeout(SECONDS), serving(source), stream_of(source, GtidSet("")) as stream:
        transactions = stream.transactions()
        found = [numbers(await (await anext(transactions)).collect()) for _ in range(2)]
        assert stream.status.restarts == 1
    assert [number for part in found for number in part] == expected


async def test_a_transaction_that_is_gone() -> None:
    other = split_transaction(gtid(gtid_log([[1]]), 3), [9])
    source = cut_in_the_second(gtid_log([[1]], [[2, 3], [4], [5]]), other)
    async with asyncio.timeout(SECONDS), serving(source), stream_of(source, GtidSet("")) as stream:
        transactions = stream.transactions()
        assert numbers(await (await anext(transactions)).collect()) == [1]
        lost = await anext(transactions)
        with pytest.raises(TransactionOutcomeError):
            await lost.collect()
        tx = await anext(transactions)
        assert (numbers(await tx.collect()), str(tx.gtid)[-2:], tx.is_restart) == ([9], ":3", False)


# Checkpoints


async def test_each_checkpoint_is_where_to_go_on() -> None:
    for source, start in ((gtid_source(gtid_log(*TRANSACTIONS)), GtidSet("")), (positions(), "earliest")):
        found: list[tuple[Checkpoint | None, Checkpoint]] = []
        async with asyncio.timeout(SECONDS), serving(source):
            async with stream_of(source, start) as stream:
                async for tx in stream.transactions():
                    await tx.collect()
                    # The stream's own checkpoint moves when the user comes back.
                    found.append((stream.checkpoint, tx.checkpoint))
                    if len(found) == 3:
                        break
                await stream.acknowledge()
                assert stream.checkpoint == tx.checkpoint
            before, behind = zip(*found, strict=True)
            assert list(before[1:]) == list(behind[:-1])
            for number, checkpoint in enumerate(behind[:-1], 1):
                assert await rows_of(source, 3 - number, checkpoint) == FLAT[number:]


def positions() -> SocketSource:
    log = plain_log()
    return mysql(log, events_for=from_position(log))


async def test_a_store_gets_what_is_done(tmp_path: Any) -> None:
    store = FileCheckpointStore(tmp_path / "ckpt")
    source = positions()
    async with asyncio.timeout(SECONDS), serving(source):
        for number in range(3):
            async with stream_of(source, checkpoints=store, checkpoint_interval=0) as stream:
                tx = await anext(stream.transactions())
                assert numbers(await tx.collect()) == FLAT[number]
                # The transaction is not done yet.
                assert store.load() != tx.checkpoint
                await stream.acknowledge()
                assert store.load() == tx.checkpoint


async def test_one_file_is_one_stream_s(tmp_path: Any) -> None:
    """A stream that another process holds the file of does not open; within a process the newest one saves."""
    store = FileCheckpointStore(tmp_path / "ckpt")
    source = positions()
    async with asyncio.timeout(SECONDS), serving(source):
        unable = stream_of(source, checkpoints=store)
        source.refuses_login = Err(1045, "no", "28000")
        with pytest.raises(replica.AuthenticationError):
            await unable.__aenter__()
        source.refuses_login = None
        left = stream_of(source, checkpoints=store, checkpoint_interval=0)
        await left.__aenter__()
        await anext(left)
        async with stream_of(source, checkpoints=store, checkpoint_interval=0) as stream:
            tx = await anext(stream.transactions())
            await tx.collect()
            await stream.acknowledge()
            with pytest.raises(CheckpointError, match="ckpt is in use by another stream of this process"):
                async for _ in left:
                    pass
            await left.aclose()
            assert store.load() == tx.checkpoint
        kept = store.load()
        for _ in range(2):
            async with stream_of(source, checkpoints=store) as stream:
                await anext(stream)
    assert kept is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt", "ckpt.schemas"]


# Events and transactions of one stream in turns


async def test_iterating_the_stream_in_between() -> None:
    source = positions()
    async with asyncio.timeout(SECONDS), serving(source), stream_of(source) as stream:
        transactions = stream.transactions()
        assert stream.transactions() is transactions
        tx = await anext(transactions)
        assert numbers([await anext(tx)]) == [1]
        events = [await anext(stream) for _ in range(4)]
        assert kinds(events) == ["WriteRows", "Xid", "Query", "TableMap"]
        assert (tx.outcome, numbers([change async for change in tx])) == ("commit", [])
        second = await anext(transactions)
        assert numbers([change async for change in second]) == [4, 5, 6, 7, 8, 9]
        assert second.checkpoint == Checkpoint(
            events[0].file,
            position_after(source, 2),
            None,
            "11111111-2222-3333-4444-555555555555",
            97,
            file_begun=1,
        )


def position_after(source: SocketSource, number: int) -> int:
    """The place where transaction ``number`` ends."""
    assert source.events_for is not None
    raws = source.events_for(BinlogDump("", 4, 1, 0))[1:]
    ends = [4 + sum(map(len, raws[: index + 1])) for index, raw in enumerate(raws) if raw[4] == 16]
    return ends[number - 1]


async def test_an_incident_is_yielded_when_iterating_events() -> None:
    log = split_transaction(Log(), [1])
    log.event(EventType.INCIDENT, struct.pack("<H", 1) + b"\x04lost")
    source = mysql(split_transaction(log, [2]))
    async with asyncio.timeout(SECONDS), serving(source), stream_of(source) as stream:
        transactions = stream.transactions()
        await anext(transactions)
        events = [await anext(stream) for _ in range(5)]
        assert kinds(events) == ["TableMap", "WriteRows", "Xid", "Incident", "Query"]
        tx = await anext(transactions)
        assert numbers([change async for change in tx]) == [2]


async def test_from_within_a_transaction() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log))
    async with asyncio.timeout(SECONDS), serving(source):
        async with stream_of(source) as stream:
            events = [await anext(stream) for _ in range(5)]
        start = BinlogPosition(events[-1].file, events[2].position)
        assert kinds(events[2:3]) == ["TableMap"]
        assert await rows_of(source, 3, start) == FLAT


async def test_all_events_are_needed() -> None:
    source = positions()
    async with serving(source), stream_of(source, events=WriteRowsEvent) as stream:
        with pytest.raises(ConfigurationError, match="needs all events"):
            stream.transactions()
