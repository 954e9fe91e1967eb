"""Complete transactions of a stream: collecting, statements, savepoints, failovers, and damage."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from protocol.binlog.events import (
    CreateFileEvent,
    DeleteRowsEvent,
    Event,
    ExecuteLoadQueryEvent,
    GtidEvent,
    IncidentEvent,
    PreGaRowsEvent,
    QueryEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from protocol.binlog.row_changes import Change
from protocol.errors import (
    LostEventsError,
    RolledBackToSavepointError,
    StatementFormatError,
    TransactionOutcomeError,
    UnsupportedEventError,
)
from protocol.gtid import Gtid, GtidSet
from replica.transactions.units import TransactionGrouper, Unit
from tests.support.grouped_events import (
    AT,
    BEGIN,
    FILE,
    FORMS,
    HEADER,
    NEXT_FILE,
    TABLE_MAP,
    UUID,
    XID,
    ListStream,
    changes_of,
    description,
    gtid,
    ids,
    mariadb_gtid,
    query,
    restarted,
    rows,
    transaction,
)

# Collecting all changes


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form[1] != "prepared"])
async def test_collect_gives_committed_ones_whole(name: str) -> None:
    events, outcome, changes, *_ = FORMS[name]
    tx = await anext(ListStream(events).transactions())
    assert ids(await tx.collect()) == (changes if outcome == "commit" else [])
    # A second call returns the same changes.
    assert ids(await tx.collect()) == (changes if outcome == "commit" else [])
    assert tx.checkpoint.position == len(events) * 100


@pytest.mark.parametrize("name", ["XA prepared", "MariaDB XA prepared"])
async def test_collecting_what_is_only_prepared(name: str) -> None:
    stream = ListStream(FORMS[name][0], FORMS["XA COMMIT"][0])
    transactions = stream.transactions()
    tx = await anext(transactions)
    with pytest.raises(TransactionOutcomeError, match="prepared"):
        await tx.collect()
    assert ids(await tx.collect(prepared=True)) == [1]
    later = await anext(transactions)
    assert (later.xid, later.outcome, await later.collect()) == (tx.xid, "commit", [])


async def test_nothing_that_is_prepared_is_nothing() -> None:
    tx = await anext(ListStream(FORMS["START ALTER"][0]).transactions())
    assert await tx.collect() == []


async def test_collecting_comes_before_iterating() -> None:
    for begin in ("changes", "events"):
        tx = await anext(ListStream(transaction(1, 10, 11)).transactions())
        await anext(tx if begin == "changes" else tx.events())
        with pytest.raises(RuntimeError, match="has already begun"):
            await tx.collect()


async def test_a_stream_that_ends_in_a_transaction() -> None:
    for events in (transaction(1, 10)[:-1], transaction(1, 10)[:2]):
        transactions = ListStream(events).transactions()
        tx = await anext(transactions)
        with pytest.raises(TransactionOutcomeError, match=f"{UUID}:1 has not been read to its end"):
            await tx.collect()
        assert tx.outcome is None
        with pytest.raises(RuntimeError):
            _ = tx.checkpoint
        with pytest.raises(StopAsyncIteration):
            await anext(transactions)


# Statements


def insert(sql: str = "/* x */ insert into t values (1)") -> QueryEvent:
    return query(sql)


LOAD = ExecuteLoadQueryEvent(*AT, 1, 0, 0, "", "LOAD DATA ...", b"", 1, 0, 0, 0)
OLD_LOAD = CreateFileEvent(*AT, 1, 0, 0, "s", "t", (), (), 0, "f", 1, b"")


@pytest.mark.parametrize(
    "event", [insert(), insert("SELECT `s`.`f`()"), LOAD, OLD_LOAD], ids=lambda event: type(event).__name__
)
async def test_row_changes_as_statements(event: Event) -> None:
    events = [gtid(1), BEGIN, TABLE_MAP, rows(10), event, rows(11), XID]
    transactions = ListStream(events, events, events, events, transaction(2, 20)).transactions()
    tx = await anext(transactions)
    assert ids([await anext(tx)]) == [10]
    with pytest.raises(StatementFormatError, match=f"{FILE}:4: .*binlog_format=ROW"):
        await anext(tx)
    # Iteration continues after the error.
    assert await changes_of(tx) == [11]
    tx = await anext(transactions)
    for _ in range(2):
        with pytest.raises(StatementFormatError):
            await tx.collect()
    # Iterating events instead of changes raises nothing.
    await anext(transactions)
    tx = await anext(transactions)
    assert [event async for event in tx.events()] == events
    assert await changes_of(await anext(transactions)) == [20]


@pytest.mark.parametrize("sql", ["CREATE TABLE t SELECT 1", "INSERT INTO t VALUES (1)", "DELETE FROM t"])
async def test_a_statement_that_stands_alone(sql: str) -> None:
    transactions = ListStream([gtid(1), query(sql)], transaction(2, 20)).transactions()
    tx = await anext(transactions)
    assert tx.ddl == ()
    with pytest.raises(StatementFormatError):
        await anext(tx)
    assert await changes_of(await anext(transactions)) == [20]


async def test_a_whole_delete_within_a_transaction_is_a_statement() -> None:
    tx = await anext(ListStream([gtid(1), BEGIN, query("DELETE FROM `s`.`t`"), XID]).transactions())
    with pytest.raises(StatementFormatError):
        await tx.collect()
    assert tx.ddl == ()


async def test_rows_that_cannot_be_read() -> None:
    header = HEADER._replace(type=20)
    tx = await anext(ListStream([BEGIN, PreGaRowsEvent(header, FILE, 4, 7, 0, b""), XID]).transactions())
    with pytest.raises(UnsupportedEventError, match="event type 20"):
        await tx.collect()


# Savepoints: MariaDB logs them if a transaction has also written to tables that cannot be rolled back


def savepoint(name: str) -> QueryEvent:
    return query(f"SAVEPOINT `{name}`")


def rollback_to(name: str) -> QueryEvent:
    return query(f"ROLLBACK TO `{name}`")


async def test_changes_that_do_not_stand_any_more() -> None:
    events = [mariadb_gtid(1), rows(11), savepoint("a"), rows(12, 13), rollback_to("A"), rows(14), XID]
    transactions = ListStream(events, events).transactions()
    tx = await anext(transactions)
    seen = [await anext(tx) for _ in range(3)]
    with pytest.raises(RolledBackToSavepointError, match="only the first 1 of its 3 changes") as caught:
        await anext(tx)
    assert caught.value.changes_kept == 1
    del seen[caught.value.changes_kept :]
    assert ids(seen) + await changes_of(tx) == [11, 14]
    assert ids(await (await anext(transactions)).collect()) == [11, 14]


async def test_a_rollback_to_a_savepoint_without_changes_is_nothing() -> None:
    events = [gtid(1), BEGIN, rows(1), savepoint("a"), rollback_to("a"), rows(2), XID]
    assert await changes_of(await anext(ListStream(events).transactions())) == [1, 2]


async def test_a_savepoint_from_before_the_start() -> None:
    tx = await anext(ListStream([TABLE_MAP, rows(1), rollback_to("a"), rows(2), XID]).transactions())
    assert ids(await tx.collect()) == [2]


class Counted(dict[str, int]):
    """Savepoints that count how many of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.looks += 1
            yield name

    def __reversed__(self) -> Iterator[str]:
        for name in super().__reversed__():
            self.looks += 1
            yield name


async def test_many_savepoints() -> None:
    """Each rollback listed all savepoints: 3 MB of 25,000 savepoints and rollbacks took four seconds."""
    unit = Unit(mariadb_gtid(1))
    unit._savepoints = known = Counted()
    for number in range(1000):
        assert unit.changes_of(savepoint(str(number))) is None
    for number in range(999, -1, -1):
        for _ in range(2):
            assert unit.changes_of(rollback_to(str(number))) is None
    assert list(known) == ["0"]
    assert known.looks < 4000


async def test_names_of_savepoints_are_compared_without_their_quotes() -> None:
    """As MariaDB logs them when sql_mode or sql_quote_show_create change between the two statements."""
    names = ['`a``b"`', '"a`b"""', '`A``b"`']
    for first in names:
        for second in names:
            events = [
                mariadb_gtid(1),
                rows(1),
                query(f"SAVEPOINT {first}"),
                rows(2),
                query(f"ROLLBACK TO {second}"),
                rows(3),
                XID,
            ]
            assert ids(await (await anext(ListStream(events).transactions())).collect()) == [1, 3]
    events = [mariadb_gtid(1), rows(1), query("SAVEPOINT a"), rows(2), rollback_to("a"), rows(3), XID]
    assert ids(await (await anext(ListStream(events).transactions())).collect()) == [1, 3]


@pytest.mark.parametrize("begin", [[mariadb_gtid(1)], [gtid(1), BEGIN], [BEGIN]])
async def test_an_unknown_savepoint_of_a_whole_transaction(begin: list[Event]) -> None:
    events = [*begin, rows(1), savepoint("a"), rows(2), rollback_to("b"), rows(3), XID]
    tx = await anext(ListStream(events).transactions())
    with pytest.raises(TransactionOutcomeError, match="rolled back to savepoint b, which it has not set"):
        await tx.collect()


def random_savepoints(rng: random.Random) -> tuple[list[Event], list[object]]:
    """A transaction, as a server keeps it: a list of changes, and a stack of savepoints with list lengths."""
    events: list[Event] = [gtid(1), BEGIN]
    kept: list[object] = []
    stack: list[tuple[str, int]] = []
    for number in range(rng.randrange(30)):
        action = rng.choice(["rows", "rows", "savepoint", "rollback"])
        if action == "rows":
            values = [100 * number + index for index in range(rng.randrange(4))]
            events.append(rows(*values))
            kept += values
        elif action == "savepoint":
            name = rng.choice("abcd")
            stack = [entry for entry in stack if entry[0] != name]
            stack.append((name, len(kept)))
            events.append(savepoint(rng.choice([name, name.upper()])))
        elif stack:
            index = rng.randrange(len(stack))
            name, size = stack[index]
            del kept[size:], stack[index + 1 :]
            events.append(rollback_to(name))
    return [*events, XID], kept


async def test_random_savepoints(seed: int) -> None:
    rng = random.Random(seed)
    caught = 0
    for _ in range(300):
        events, expected = random_savepoints(rng)
        transactions = ListStream(events, events).transactions()
        assert ids(await (await anext(transactions)).collect()) == expected
        tx = await anext(transactions)
        changes: list[Change] = []
        while True:
            try:
                async for change in tx:
                    changes.append(change)
            except RolledBackToSavepointError as error:
                del changes[error.changes_kept :]
                caught += 1
            else:
                break
        assert ids(changes) == expected
    assert caught > 100


# Failovers


async def test_a_transaction_that_begins_again() -> None:
    stream = ListStream(
        transaction(1, 10), transaction(2, 20, 21)[:-3], [restarted(2)], transaction(2, 20, 21)
    )
    transactions = stream.transactions()
    seen = [(tx.gtid, tx.is_restart, await changes_of(tx), tx.outcome) async for tx in transactions]
    first, second = Gtid(UUID, 1), Gtid(UUID, 2)
    assert seen == [
        (first, False, [10], "commit"),
        (second, False, [20], "restarted"),
        (second, True, [20, 21], "commit"),
    ]


async def test_what_was_cut_off_has_no_checkpoint() -> None:
    stream = ListStream(transaction(2, 20)[:-1], [restarted(2)], transaction(2, 20))
    tx = await anext(stream.transactions())
    assert await changes_of(tx) == [20]
    with pytest.raises(TransactionOutcomeError, match="cut off"):
        _ = tx.checkpoint


async def test_collecting_begins_again() -> None:
    cut = transaction(2, 20, 21)[:-2]
    stream = ListStream(
        cut, [restarted(2)], NEXT_FILE, cut, [restarted(2)], transaction(2, 20, 21), transaction(3, 30)
    )
    transactions = stream.transactions()
    tx = await anext(transactions)
    assert ids(await tx.collect()) == [20, 21]
    assert (tx.gtid, tx.is_restart, tx.outcome) == (Gtid(UUID, 2), True, "commit")
    assert tx.checkpoint == stream.checkpoint()
    assert ids(await (await anext(transactions)).collect()) == [30]


async def test_what_was_cut_off_may_be_gone() -> None:
    stream = ListStream(transaction(2, 20, 21)[:-2], [restarted(2)], transaction(3, 30))
    transactions = stream.transactions()
    tx = await anext(transactions)
    for _ in range(2):
        with pytest.raises(TransactionOutcomeError, match=f"{UUID}:2 has not been read to its end"):
            await tx.collect()
    assert tx.outcome == "restarted"
    later = await anext(transactions)
    assert (later.gtid, later.is_restart, await changes_of(later)) == (Gtid(UUID, 3), False, [30])


async def test_a_stream_that_ends_after_a_restart() -> None:
    tx = await anext(ListStream(transaction(2, 20)[:-1], [restarted(2)]).transactions())
    with pytest.raises(TransactionOutcomeError):
        await tx.collect()


async def test_draining_over_a_restart() -> None:
    stream = ListStream(transaction(2, 20)[:-1], [restarted(2)], transaction(2, 20))
    seen = [(tx.gtid, tx.is_restart) async for tx in stream.transactions()]
    assert seen == [(Gtid(UUID, 2), False), (Gtid(UUID, 2), True)]


# Damage


@pytest.mark.parametrize("cut", [[description()], [NEXT_FILE[0]], []], ids=["file", "rotate", "GTID"])
async def test_what_the_source_has_lost_in_a_crash_is_rolled_back(cut: list[Event]) -> None:
    stream = ListStream(transaction(1, 10, 11)[:-1], cut, transaction(2, 20))
    transactions = stream.transactions()
    first = await anext(transactions)
    assert await first.collect() == []
    assert first.outcome == "rollback"
    second = await anext(transactions)
    assert (second.gtid, await changes_of(second), second.outcome) == (Gtid(UUID, 2), [20], "commit")
    assert second.is_restart is False


INCIDENT = IncidentEvent(*AT, 1, "LOST_EVENTS")


@pytest.mark.parametrize(
    "events",
    [[INCIDENT], [gtid(2), INCIDENT], [*transaction(2, 20)[:-1], INCIDENT]],
    ids=["alone", "as a transaction", "within one"],
)
@pytest.mark.parametrize("is_read", [True, False])
async def test_the_source_says_that_events_are_missing(events: list[Event], is_read: bool) -> None:
    transactions = ListStream(transaction(1, 10), events, transaction(3, 30)).transactions()
    seen: list[object] = []

    async def read() -> None:
        async for tx in transactions:
            if is_read:
                async for change in tx:
                    seen.extend(ids([change]))

    with pytest.raises(LostEventsError, match=f"{FILE}:4: LOST_EVENTS"):
        await read()
    await read()
    lost = [20] if len(events) > 2 else []
    assert seen == ([10, *lost, 30] if is_read else [])


def row_count(event: Event) -> int:
    return len(event.rows) if isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent) else 0


def test_any_order_of_events_keeps_every_row(seed: int) -> None:
    """Events in random order give units, and only errors of the tree; each row is in exactly one unit."""
    rng = random.Random(seed)
    pool = [
        *(event for events, *_ in FORMS.values() for event in events if not isinstance(event, GtidEvent)),
        *NEXT_FILE,
        restarted(2),
    ]
    for _ in range(300):
        grouper = TransactionGrouper()
        given, units = 0, []
        for number in range(40):
            event = rng.choice([*pool, gtid(rng.randrange(1, 4)), rows(number)])
            given += row_count(event)
            grouper.feed(event)
            if grouper.unit is not None and grouper.unit not in units:
                units.append(grouper.unit)
        found = 0
        for unit in units:
            found += sum(map(row_count, unit.waiting))
        assert found == given
        # All units but the last have ended.
        assert all(unit.outcome for unit in units[:-1])


def test_a_grouper_follows_progress_of_its_own() -> None:
    grouper = TransactionGrouper(has_gtids=True)
    for number, event in enumerate([*NEXT_FILE, *transaction(10, 1)], 1):
        grouper.feed(event, FILE, number * 10)
    assert (grouper.progress.file, grouper.progress.position) == (FILE, 80)
    assert grouper.progress.gtid_set == GtidSet(f"{UUID}:1-10")
