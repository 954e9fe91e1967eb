"""Transactions of a stream: each form, row by row; leaving a loop and continuing; cancelled tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest

from protocol.binlog.events import Event, IntvarEvent
from protocol.binlog.row_changes import Change
from protocol.errors import ConnectionLostError, TransactionOutcomeError
from protocol.gtid import Gtid, GtidSet
from protocol.position import Checkpoint
from tests.support.grouped_events import (
    AT,
    BEGIN,
    FILE,
    FORMS,
    NAME,
    NEXT_FILE,
    TABLE_MAP,
    UUID,
    XID,
    ListStream,
    changes_of,
    gtid,
    ids,
    mariadb_gtid,
    rows,
    transaction,
)

_T = TypeVar("_T")
# Every form


@pytest.mark.parametrize("name", FORMS)
async def test_every_form(name: str) -> None:
    events, outcome, changes, xid, ddl = FORMS[name]
    stream = ListStream(events, transaction(6, 60))
    transactions = stream.transactions()
    tx = await anext(transactions)
    assert tx.gtid == getattr(events[0], "gtid", None)
    assert await changes_of(tx) == changes
    assert (tx.outcome, tx.xid, len(tx.ddl)) == (outcome, xid, ddl)
    assert stream.given == len(events)
    assert tx.checkpoint == stream.checkpoint()
    assert tx.checkpoint.position == len(events) * 100
    assert await changes_of(await anext(transactions)) == [60]
    with pytest.raises(StopAsyncIteration):
        await anext(transactions)


async def test_all_forms_one_after_the_other_with_what_stands_between() -> None:
    between = [*NEXT_FILE, IntvarEvent(*AT, 2, 1)]
    stream = ListStream(*(part for events, *_ in FORMS.values() for part in (between, events)), between)
    seen = [(tx, await changes_of(tx)) async for tx in stream.transactions()]
    expected = [(outcome, changes, xid, ddl) for _, outcome, changes, xid, ddl in FORMS.values()]
    assert [(tx.outcome, changes, tx.xid, len(tx.ddl)) for tx, changes in seen] == expected


@pytest.mark.parametrize("name", FORMS)
async def test_its_events_are_all_of_them(name: str) -> None:
    events = FORMS[name][0]
    stream = ListStream(NEXT_FILE, events, NEXT_FILE, events, NEXT_FILE)
    found = [[id(event) async for event in tx.events()] async for tx in stream.transactions()]
    assert found == [list(map(id, events))] * 2


@pytest.mark.parametrize("name", ["DDL", "DDL without GTIDs", "XA COMMIT", "XA ROLLBACK", "MariaDB DDL"])
async def test_what_stands_alone_is_known_at_once(name: str) -> None:
    _, outcome, _, xid, ddl = FORMS[name]
    tx = await anext(ListStream(FORMS[name][0]).transactions())
    assert (tx.outcome, tx.xid, len(tx.ddl)) == (outcome, xid, ddl)
    assert tx.checkpoint.file == FILE


async def test_an_xa_transaction_has_its_name_at_once() -> None:
    for name in ("XA prepared", "MariaDB XA prepared"):
        tx = await anext(ListStream(FORMS[name][0]).transactions())
        assert (tx.outcome, tx.xid) == (None, NAME)


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (gtid(1), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (mariadb_gtid(1), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (replace(gtid(1), original_commit_timestamp=0), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (
            replace(gtid(1), original_commit_timestamp=1_795_293_185_329_073),
            datetime(2026, 11, 21, 20, 33, 5, 329073, tzinfo=UTC),
        ),
        # All seven bytes of the time are used.
        (
            replace(gtid(1), original_commit_timestamp=(1 << 55) - 1),
            datetime(3111, 9, 16, 23, 10, 18, 963967, tzinfo=UTC),
        ),
        (
            replace(gtid(1), original_commit_timestamp=(1 << 64) - 1),
            datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        ),
    ],
)
async def test_commit_time(begin: Event, expected: datetime) -> None:
    tx = await anext(ListStream([begin, BEGIN, XID]).transactions())
    assert tx.commit_time == expected
    assert tx.commit_time.tzinfo is UTC


async def test_its_repr_says_which_and_how() -> None:
    tx = await anext(ListStream(transaction(5, 1)).transactions())
    assert repr(tx) == f"<Transaction {UUID}:5: open>"
    await tx.collect()
    assert repr(tx) == f"<Transaction {UUID}:5: commit>"


# Leaving and continuing


async def test_events_are_read_only_when_they_are_asked_for() -> None:
    """A huge transaction does not need much memory."""
    stream = ListStream(
        [gtid(5), BEGIN], ([TABLE_MAP, rows(1, 2)][number % 2] for number in range(2000)), [XID]
    )
    tx = await anext(stream.transactions())
    assert stream.given == 2
    for number in range(1, 2001):
        await anext(tx)
        assert stream.given == 2 + (number + 1) // 2 * 2
    assert await changes_of(tx) == []


async def test_leaving_and_iterating_again_goes_on() -> None:
    stream = ListStream(transaction(1, 10, 11), [gtid(2), BEGIN, rows(20, 21, 22), XID], transaction(3, 30))
    transactions = stream.transactions()
    seen = []
    async for tx in transactions:
        async for change in tx:
            seen += ids([change])
            break
        async for change in tx:
            seen += ids([change])
            break
        break
    async for tx in transactions:
        seen += await changes_of(tx)
    assert seen == [10, 11, 20, 21, 22, 30]


async def test_moving_on_drains_what_was_not_read() -> None:
    transactions = ListStream(transaction(1, 10, 11), transaction(2, 20), transaction(3, 30)).transactions()
    first = await anext(transactions)
    assert ids([await anext(first)]) == [10]
    second = await anext(transactions)
    assert second.gtid == Gtid(UUID, 2)
    # The first transaction is over; its events are gone.
    assert first.outcome == "commit"
    assert await changes_of(first) == []
    third = await anext(transactions)
    assert await changes_of(third) == [30]
    for left in (first, second):
        with pytest.raises(RuntimeError, match="before the next transaction"):
            _ = left.checkpoint
    with pytest.raises(TransactionOutcomeError, match="not been read"):
        await second.collect()


async def test_events_and_changes_share_one_place() -> None:
    stream = ListStream([gtid(1), BEGIN, TABLE_MAP, rows(1, 2), rows(3, 4), rows(5), XID])
    tx = await anext(stream.transactions())
    assert ids([await anext(tx)]) == [1]
    event = await anext(tx.events())
    assert getattr(event, "rows", None) == [(3,), (4,)]
    assert await changes_of(tx) == [5]


async def test_a_checkpoint_is_known_at_the_end() -> None:
    stream = ListStream(transaction(1, 10, 11), NEXT_FILE, transaction(2, 20), gtid_set=GtidSet())
    transactions = stream.transactions()
    first = await anext(transactions)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="at its end"):
            _ = first.checkpoint
        await anext(first)
    assert await changes_of(first) == []
    expected = Checkpoint(FILE, 700, f"{UUID}:1")
    assert first.checkpoint == expected
    second = await anext(transactions)
    # The checkpoint was read in time.
    assert first.checkpoint == expected
    await second.collect()
    assert second.checkpoint == Checkpoint(FILE, 1500, f"{UUID}:1-2")


async def test_what_comes_between_does_not_spoil_a_checkpoint() -> None:
    stream = ListStream(transaction(1, 10), NEXT_FILE, [ConnectionLostError("cut")], gtid_set=GtidSet())
    transactions = stream.transactions()
    tx = await anext(transactions)
    await tx.collect()
    with pytest.raises(ConnectionLostError):
        await anext(transactions)
    assert tx.checkpoint.gtid_set == f"{UUID}:1"


async def test_events_that_went_past() -> None:
    """In between, the user iterates the stream itself."""
    stream = ListStream(transaction(1, 10, 11, 12), transaction(2, 20), transaction(3, 30))
    transactions = stream.transactions()
    tx = await anext(transactions)
    assert ids([await anext(tx)]) == [10]
    for _ in range(2):
        transactions.follow(await anext(stream))
    assert await changes_of(tx) == [12]
    for _ in range(3):
        transactions.follow(await anext(stream))
    second = await anext(transactions)
    assert (second.gtid, await changes_of(second)) == (Gtid(UUID, 2), [20])
    assert await changes_of(await anext(transactions)) == [30]


async def test_an_error_of_the_stream_loses_nothing() -> None:
    cut = ConnectionLostError("cut")
    events: list[Event | Exception] = [gtid(1), cut, BEGIN, rows(1, 2), cut, rows(3), cut, XID, cut]
    transactions = ListStream(events, transaction(2, 4)).transactions()
    with pytest.raises(ConnectionLostError):
        await anext(transactions)
    tx = await anext(transactions)
    assert ids([await anext(tx), await anext(tx)]) == [1, 2]
    with pytest.raises(ConnectionLostError):
        await anext(tx)
    assert ids([await anext(tx)]) == [3]
    with pytest.raises(ConnectionLostError):
        await anext(tx)
    assert (await changes_of(tx), tx.outcome) == ([], "commit")
    with pytest.raises(ConnectionLostError):
        await anext(transactions)
    assert await changes_of(await anext(transactions)) == [4]


class Interrupted:
    """Runs coroutines, and cancels some of them where they wait."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.count = 0

    def run(self, make: Coroutine[Any, Any, _T]) -> _T | None:
        """The coroutine's result; None if it was cancelled."""
        try:
            while True:
                make.send(None)
                if self._random.random() < 0.3:
                    self.count += 1
                    make.throw(asyncio.CancelledError())
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            return None


def test_a_cancelled_wait_loses_nothing(seed: int) -> None:
    interrupted, choice = Interrupted(seed), random.Random(seed)
    sizes = [choice.randrange(4) for _ in range(200)]
    stream = ListStream(*(transaction(number, *range(size)) for number, size in enumerate(sizes, 1)))
    transactions = stream.transactions()
    seen = []
    for _ in sizes:
        while (tx := interrupted.run(transactions.__anext__())) is None:
            pass
        changes: list[Change] | None = None
        if choice.random() < 0.5:
            while changes is None:
                changes = interrupted.run(tx.collect())
        else:
            changes = []
            while tx.outcome is None:
                try:
                    change = interrupted.run(tx.__anext__())
                except StopAsyncIteration:
                    break
                changes += [change] if change is not None else []
        seen.append(ids(changes))
    assert seen == [list(range(size)) for size in sizes]
    assert interrupted.count > 100
