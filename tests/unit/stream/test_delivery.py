"""Events that streams hand out, notes that they keep, and both after cancelled calls, lost connections and errors."""

from __future__ import annotations

import asyncio
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import AnnotateRowsEvent, Event, EventHeader, QueryEvent, WriteRowsEvent
from protocol.constants import EventType
from protocol.gtid import GtidSet
from replica import StreamStatus, TransactionRestarted
from replica.config.reconnect import Failure, ReconnectPolicy
from replica.transactions.replay import CannotResumeError, Delivered
from tests.support.raw_events import int_rows, int_table_map, query
from tests.support.resumed_streams import (
    QUICK,
    ROWS,
    TRANSACTIONS,
    fail_over,
    from_position,
    gtid_log,
    gtid_source,
    plain_log,
    read,
    standing,
)
from tests.support.scripted_log import (
    INT_COLUMN,
    XID,
    Log,
    heartbeat,
    kinds,
    mysql,
    transaction,
    unseen,
    values,
)
from tests.support.socket_source import ALL_COLUMNS, FILE, SocketSource, serving

SECONDS = 20


async def polled(
    stream: replica.BinlogStream, limit: float, rows: int, *passing: type[Exception]
) -> list[Event]:
    """Read events with a short timeout for each, until this many rows have come."""
    events: list[Event] = []
    async with asyncio.timeout(SECONDS):
        while len(values(events)) < rows:
            try:
                events.append(await asyncio.wait_for(anext(stream), limit))
            except (TimeoutError, *passing):  # type: ignore[misc]
                continue
    return events


async def every_event(stream: replica.BinlogStream) -> list[Event]:
    return [event async for event in stream]


# Interruptions


async def test_what_a_status_hook_raises_loses_no_event() -> None:
    states: list[str] = []

    def hook(status: StreamStatus) -> None:
        states.append(status.state)
        if status.state == "streaming":
            raise LookupError("the user's own")

    async with (
        serving(gtid_source(gtid_log(*TRANSACTIONS))) as source,
        replica.connect(source.dsn, start=GtidSet(""), on_status=hook) as stream,
    ):
        with pytest.raises(LookupError):
            await anext(stream)
        assert values(await polled(stream, 1, 10)) == ROWS
    assert states == ["connecting", "seeking", "streaming", "closed"]


async def test_a_hook_that_fails_at_the_end_leaves_the_checkpoint_saved(tmp_path: Path) -> None:
    def hook(status: StreamStatus) -> None:
        if status.state == "closed":
            raise LookupError("the user's own")

    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    async with serving(mysql(plain_log())) as source:
        stream = replica.connect(source.dsn, start="earliest", on_status=hook, checkpoints=store)

        async def consume() -> None:
            async with stream:
                assert values(await polled(stream, 1, 10)) == ROWS

        with pytest.raises(LookupError):
            await consume()
        await source.until_closed()
    assert stream.position is not None
    assert stream.position.position > 4
    assert store.load() == stream.checkpoint


async def test_a_hook_that_fails_at_the_beginning_leaves_no_connection() -> None:
    def hook(status: StreamStatus) -> None:
        if status.state == "streaming":
            raise LookupError("the user's own")

    async with serving(mysql(plain_log())) as source:
        with pytest.raises(LookupError):
            async with replica.connect(source.dsn, start="earliest", on_status=hook):
                pass
        await source.until_closed()


@pytest.mark.parametrize("error", [replica.CheckpointError, ValueError])
async def test_what_a_handler_raises_matters_more_than_the_store(error: type[Exception]) -> None:
    class Store:
        saved = 0

        def load(self) -> None:
            return None

        def save(self, checkpoint: replica.Checkpoint) -> None:
            self.saved += 1
            if self.saved > 1:
                raise error("the disk is full")

    async with serving(mysql(plain_log())) as source:
        stream = replica.connect(source.dsn, start="earliest", checkpoints=Store(), checkpoint_interval=3600)

        @stream.on(replica.XidEvent)
        def fail(event: replica.XidEvent) -> None:
            raise LookupError("the handler's own")

        with pytest.raises(LookupError):
            await stream.run()
        await source.until_closed()


async def test_what_a_policy_raises_loses_no_event() -> None:
    class Policy(ReconnectPolicy):
        def delay(self, failure: Failure) -> float:
            raise LookupError("the user's own")

    log = plain_log()
    whole = list(log.raw)
    log.raw[6] = log.raw[6][:-1]
    async with (
        serving(mysql(log, events_for=from_position(log))) as source,
        replica.connect(source.dsn, start="earliest", reconnect=Policy()) as stream,
    ):
        events = [await anext(stream) for _ in range(5)]
        with pytest.raises(LookupError):
            await anext(stream)
        log.raw[6] = whole[6]
        assert values(events + await polled(stream, 1, 10 - len(values(events)))) == ROWS


async def test_polling_with_short_limits_gets_through_a_slow_reconnect() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[300])
    source.on_cut = lambda: setattr(source, "delay", 0.02)
    async with serving(source):
        async with replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream:
            assert values(await polled(stream, 0.05, 10)) == ROWS
            assert stream.status.reconnects == 1
            assert len(source.conversations) == 2
        await source.until_closed()


async def test_polling_with_short_limits_gets_through_a_slow_look_up() -> None:
    source = unseen(transaction(Log(), 1))
    async with serving(source):
        async with replica.connect(source.dsn, start="earliest") as stream:
            source.delay = 0.1
            source.answers.clear()
            events = await polled(stream, 0.05, 1)
        assert kinds(events) == ["FormatDescription", "Query", "TableMap", "WriteRows"]
        assert sum(sql.startswith(ALL_COLUMNS) for sql in source.statements) == 2


async def test_closing_ends_what_a_cancelled_call_has_left() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[300])
    source.on_cut = lambda: setattr(source, "silent_for", "SHOW GLOBAL")
    async with serving(source):
        async with replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(every_event(stream), 0.2)
        await source.until_closed()
    assert not [task for task in asyncio.all_tasks() if "BinlogStream" in str(task.get_coro())]


# Status


async def test_heartbeats_are_no_events_of_the_log() -> None:
    log = heartbeat(transaction(heartbeat(Log()), 1))
    async with serving(mysql(log)) as source, replica.connect(source.dsn, start="earliest") as stream:
        events = [await anext(stream) for _ in range(4)]
        assert kinds(events) == ["FormatDescription", "Query", "TableMap", "WriteRows"]
        # The source's clock says 1700000000, the events 1. The heartbeat before these events must not hide the lag.
        behind, last = stream.status.seconds_behind, stream.status.last_event
        assert behind is not None
        assert behind > 1_600_000_000
        await anext(stream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.1)
        assert stream.status.seconds_behind == 0
        source.writers[0].write(b"".join(framed(log.raw[-1], number) for number in (len(log.raw),)))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.1)
        assert stream.status.last_event == last
        assert last is not None
        assert stream.status.last_heartbeat is not None
        assert stream.status.last_heartbeat > last


def framed(raw: bytes, number: int) -> bytes:
    return (len(raw) + 1 | (number + 1 & 0xFF) << 24).to_bytes(4, "little") + b"\0" + raw


# Notes on an open transaction


def header_of(raw: bytes) -> EventHeader:
    return EventHeader._make(struct.unpack("<IBIIIH", raw[:19]))


def test_of_a_compressed_transaction_nothing_is_kept() -> None:
    delivered, decoder = Delivered(), EventDecoder()
    for event in (QueryEvent, WriteRowsEvent, WriteRowsEvent):
        raw = query("BEGIN") if event is QueryEvent else int_rows([1])
        one: Any = object.__new__(event)
        one.header = header_of(raw)
        delivered.add(one, b"", int(event is WriteRowsEvent), decoder)
    assert not delivered._kept
    with pytest.raises(CannotResumeError, match="compressed form"):
        delivered.segments(decoder)
    delivered.end()
    assert delivered.segments(decoder) == []


def test_statements_without_rows_are_not_kept_for_long() -> None:
    """This happens if all rows belong to tables that the user did not select."""
    delivered, decoder = Delivered(), EventDecoder()
    raw = bytes(1 << 20)
    for _ in range(64):
        delivered.add(AnnotateRowsEvent(EventHeader(1, 160, 1, 1 << 20, 0, 0), FILE, 4, ""), raw, 0, decoder)
    assert len(delivered._kept) < 8
    assert delivered.segments(decoder) == []
    assert len(delivered.trailing) == 64


# Start


def payload(*events: bytes) -> bytes:
    """The body of a transaction payload event with the compression type "none"."""
    content = b"".join(events)
    return b"\2\3\xfc\xff\0" + b"\1\3\xfc" + struct.pack("<H", len(content)) + b"\0" + content


async def test_tables_before_the_time_to_start_at_are_not_looked_up() -> None:
    """Also in a compressed transaction: the present columns need not fit the old rows."""
    log = Log()
    rows = [
        query("BEGIN"),
        int_table_map(),
        int_rows([1]),
        log_end := struct.pack("<IBIIIH", 1, 16, 1, 27, 0, 0) + XID,
    ]
    log.event(EventType.ANONYMOUS_GTID, bytes(25), timestamp=100)
    log.event(EventType.TRANSACTION_PAYLOAD, payload(*rows), timestamp=100)
    log.add(query("ALTER TABLE t ADD b INT"))
    altered = log.position
    log.event(EventType.ANONYMOUS_GTID, bytes(25), timestamp=500)
    new_rows = int_rows([], columns=2) + b"\0" + struct.pack("<ii", 2, 3)
    new_rows = new_rows[:9] + struct.pack("<I", len(new_rows)) + new_rows[13:]
    log.event(
        EventType.TRANSACTION_PAYLOAD,
        payload(rows[0], int_table_map(columns=2), new_rows, log_end),
        timestamp=500,
    )
    columns = [INT_COLUMN, ("b", "int", "int", "YES", None, "")]
    source = SocketSource(log.raw, columns=columns, answers={"SHOW BINARY LOGS": [(FILE, "1")]})
    source.tables_since = altered
    start = datetime.fromtimestamp(400, UTC)
    async with serving(source), replica.connect(source.dsn, start=start, reconnect=False) as stream:
        events = await polled(stream, 5, 1)
    assert isinstance(events[-1], WriteRowsEvent)
    assert (events[-1].rows, events[-1].table.column_names) == ([(2, 3)], ("id", "b"))


# Failover


@pytest.mark.parametrize("cut", range(250, 700, 41))
async def test_what_began_by_position_moves_to_another_server_by_gtid(cut: int) -> None:
    log = gtid_log(*TRANSACTIONS)
    source = gtid_source(log)
    source.events_for, source.cuts = from_position(log), [cut]
    source.on_cut = lambda: fail_over(source, log)
    async with asyncio.timeout(SECONDS), serving(source):
        events = await read(source, 10)
    assert values(standing(events)) == ROWS
    assert sum(isinstance(event, TransactionRestarted) for event in events) <= 1
