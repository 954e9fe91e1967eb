"""What happens in the middle of a batch: a DDL statement, a table without names, a lost connection, an error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.binlog.events import Event, TableMapEvent
from protocol.errors import ConnectionLostError
from protocol.position import BinlogPosition, Checkpoint
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.stream.batch import Account, Batch
from tests.support.raw_events import query
from tests.support.resumed_streams import QUICK, from_position
from tests.support.scripted_log import INT_COLUMN, Log, kinds, mysql, transaction, unseen, values
from tests.support.socket_source import ALL_COLUMNS, FILE, SocketSource, serving, until

SECONDS = 20
#: Each event of a log travels behind so many bytes.
FRAME = 5


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The kinds of the events of each batch that streams hand out."""
    seen: list[list[str]] = []
    hand_out = Account.hand_out

    def noting(self: Account, batch: Batch) -> Iterator[Event]:
        seen.append(kinds(list(batch.events)))
        return hand_out(self, batch)

    monkeypatch.setattr(Account, "hand_out", noting)
    return seen


async def has_all(stream: replica.BinlogStream, size: int) -> None:
    """Return when so many bytes of the log have arrived, none of which was taken."""
    delivery = stream._deliveries.current
    assert delivery is not None
    receiver = delivery.dump.session._transport._receiver

    def arrived() -> bool:
        # On a busy machine it comes in small chunks, and the socket is not read while many of them wait.
        receiver.go_on()
        return receiver._size >= size

    await until(arrived)


def size_of(log: Log) -> int:
    return sum(len(raw) + FRAME for raw in log.raw)


async def take(stream: replica.BinlogStream, rows: int) -> list[Event]:
    """The next events, up to one with which there are so many rows."""
    events: list[Event] = []
    async with asyncio.timeout(SECONDS):
        while len(values(events)) < rows:
            events.append(await anext(stream))
    return events


# A DDL statement


def altered() -> tuple[SocketSource, Log]:
    log = transaction(Log(), 1).add(query("ALTER TABLE s.t RENAME COLUMN id TO number"))
    transaction(log, 2)
    return SocketSource(log.raw, columns=[(*INT_COLUMN[:-1], "")]), log


async def test_a_statement_does_not_end_a_batch(batches: list[list[str]]) -> None:
    """What it changes comes behind it, later rows have other columns, and nothing is asked."""
    source, log = altered()
    async with serving(source), replica.connect(source.dsn, start="earliest") as stream:
        await has_all(stream, size_of(log))
        asked = len(source.statements)
        events = await take(stream, 2)
        assert len(source.statements) == asked
    rows = [event for event in events if isinstance(event, replica.WriteRowsEvent)]
    assert [event.table.column_names for event in rows] == [("id",), ("number",)]
    one = ["Query", "TableMap", "WriteRows", "Xid"]
    assert batches == [["FormatDescription"], [*one, "Query", "SchemaChange", *one]]


async def test_a_statement_is_done_with_what_it_changes() -> None:
    """After a kill between the two, the statement comes again, and the change with it."""
    source, log = altered()
    before = transaction(Log(), 1).position
    async with serving(source), replica.connect(source.dsn, start="earliest") as stream:
        await has_all(stream, size_of(log))
        while not isinstance(await anext(stream), replica.SchemaChangeEvent):
            pass
        assert stream.position == BinlogPosition(FILE, before)
        await anext(stream)
        assert stream.position is not None
        assert stream.position.position > before


class StuckStore:
    """A schema store in memory, which does not answer while it ``is_stuck``."""

    def __init__(self) -> None:
        self.is_stuck = self.waits = False
        self.lines: list[str] = []

    def load(self) -> None:
        return None

    async def save(self, lines: Sequence[str]) -> None:
        await self._answer()
        self.lines = list(lines)

    async def append(self, lines: Sequence[str]) -> None:
        await self._answer()
        self.lines += lines

    async def _answer(self) -> None:
        if self.is_stuck:
            self.waits = True
            await asyncio.Event().wait()


async def test_the_schema_store_has_a_statement_before_the_user_does(tmp_path: Path) -> None:
    source, log = altered()
    path = tmp_path / "schemas"
    store = replica.FileSchemaStore(path)
    async with serving(source), replica.connect(source.dsn, start="earliest", schemas=store) as stream:
        await has_all(stream, size_of(log))
        await anext(stream)
        assert b"number" not in path.read_bytes()
        assert kinds([await anext(stream)]) == ["Query"]
        assert b"number" in path.read_bytes()


async def test_a_cancelled_call_hands_out_nothing_that_the_schema_store_lacks() -> None:
    """The call after it gave rows behind the statement, and a checkpoint behind them was saved before the store."""
    source, log = altered()
    store = StuckStore()
    async with serving(source), replica.connect(source.dsn, start="earliest", schemas=store) as stream:
        await has_all(stream, size_of(log))
        await anext(stream)
        store.is_stuck = True
        waiting = asyncio.ensure_future(anext(stream))
        await until(lambda: store.waits)
        waiting.cancel()
        await asyncio.wait((waiting,))
        store.is_stuck = False
        assert "number" not in "".join(store.lines)
        assert kinds([await anext(stream)]) == ["Query"]
        assert "number" in "".join(store.lines)


# A table without names


async def test_a_table_without_names_ends_the_batch_before_it(batches: list[list[str]]) -> None:
    log = transaction(transaction(Log(), 1), 2)
    source = unseen(log)
    async with serving(source), replica.connect(source.dsn, start="earliest") as stream:
        await has_all(stream, size_of(log))
        source.answers.clear()
        source.statements.clear()
        assert kinds([await anext(stream), await anext(stream)]) == ["FormatDescription", "Query"]
        assert not source.has_been_asked(ALL_COLUMNS)
        table_map = await anext(stream)
        assert isinstance(table_map, TableMapEvent)
        assert table_map.table.column_names == ("id",)
        assert source.has_been_asked(ALL_COLUMNS)
        assert values(await take(stream, 2)) == [1, 2]
    rest = ["WriteRows", "Xid", "Query", "TableMap", "WriteRows", "Xid"]
    assert batches == [["FormatDescription"], ["Query"], ["TableMap"], rest]


# A lost connection


async def test_what_has_arrived_is_handed_out_before_the_loss_is_noticed(batches: list[list[str]]) -> None:
    log = Log()
    ends = [transaction(log, number).position for number in range(1, 7)]
    # The connection ends within the table map of the fourth transaction.
    torn = sum(len(raw) + FRAME for raw in log.raw[: 2 + 3 * 4 + 1]) + 10
    is_lost: list[bool] = []
    source = mysql(log, events_for=from_position(log), cuts=[torn], on_cut=lambda: is_lost.append(True))
    async with (
        serving(source),
        replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream,
    ):
        await has_all(stream, torn)
        events = await take(stream, 1)
        await until(lambda: is_lost)
        events += await take(stream, 2)
        events += [await anext(stream), await anext(stream)]
        assert kinds(events[-2:]) == ["Xid", "Query"]
        assert stream.status.reconnects == 0
        assert len(batches) == 2
        events += await take(stream, 3)
        assert stream.status.reconnects == 1
    assert values(events) == [1, 2, 3, 4, 5, 6]
    # The next dump begins with the transaction that was torn.
    assert [dump.position for dump in source.dumps] == [4, ends[2]]
    assert stream.status.skipped == 1


@pytest.mark.parametrize("interval", [0, 1e-9], ids=["a batch for each transaction", "in mid-batch"])
async def test_an_error_drops_the_rest_of_the_batch(interval: float) -> None:
    class Store:
        saves = 0

        def load(self) -> None:
            return None

        def save(self, checkpoint: Checkpoint) -> None:
            self.saves += 1
            if self.saves == 4:
                raise ConnectionLostError("the store is far away")

    log = Log()
    for number in range(1, 7):
        transaction(log, number)
    source: SocketSource = mysql(log, events_for=from_position(log))
    options = {"checkpoints": Store(), "checkpoint_interval": interval, "reconnect": QUICK}
    async with serving(source), replica.connect(source.dsn, start="earliest", **options) as stream:  # type: ignore[arg-type]
        await has_all(stream, size_of(log))
        events = await take(stream, 6)
        assert stream.status.reconnects == 1
        assert 4 < source.dumps[1].position < log.position
    assert values(events) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("count", [100, 200])
async def test_statements_are_looked_for_once_in_each_event(
    count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside a copy, with a checkpoint after each transaction: the rest of a batch was looked through each time."""
    looked_at = 0
    next_statement = SnapshotCopy.next_statement

    def counted(self: SnapshotCopy, events: Sequence[Event]) -> int:
        nonlocal looked_at
        looked_at += len(events)
        return next_statement(self, events)

    monkeypatch.setattr(SnapshotCopy, "next_statement", counted)
    log = Log()
    for number in range(count):
        transaction(log, number)
    store = replica.FileCheckpointStore(tmp_path / "checkpoint")
    given: dict[str, Any] = {"start": "earliest", "checkpoints": store, "checkpoint_interval": 0}
    source = SocketSource(log.raw, columns=[INT_COLUMN])
    async with serving(source), replica.connect(source.dsn, **given) as stream:
        stream._account.copy = SnapshotCopy()
        await has_all(stream, size_of(log))
        events = await take(stream, count)
    assert len(events) <= looked_at <= len(events) + 10
