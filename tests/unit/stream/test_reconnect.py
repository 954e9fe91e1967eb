"""Streams that lose their connection at any byte go on with the next row, on the same and on another server."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any

import pytest

import replica
from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import Event
from protocol.conversation.commands import BinlogDump
from protocol.errors import ChecksumError, ConnectionLostError, ProtocolError, ReplicaError, ServerError
from protocol.gtid import GtidSet
from replica import BinlogPosition, ReconnectPolicy, RowsEvent, StreamStatus, TransactionRestarted
from replica.config.reconnect import Failure, FailureCount
from tests.support.resumed_streams import (
    OTHER_CONTENT,
    OTHER_UUID,
    QUICK,
    ROWS,
    TRANSACTIONS,
    everything,
    fail_over,
    from_position,
    gtid_log,
    gtid_source,
    plain_log,
    read,
    size_of,
    split_transaction,
    standing,
    transactions_of,
)
from tests.support.scripted_log import COLUMNS, Log, gtid, kinds, mysql, transaction, values
from tests.support.socket_source import FILE, MYSQL_VARIABLES, UUID, SocketSource, serving, until


async def test_by_position_whatever_the_byte(thorough: bool) -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log))
    async with serving(source):
        whole = await read(source, 10)
        size = size_of(source, BinlogDump("", 4, 1, 0))
        for cut in range(0, size, 11 if thorough else 29):
            source.cuts = [cut]
            events = await read(source, 10)
            assert kinds(events) == kinds(whole), cut
            assert values(events) == ROWS, cut


async def test_by_gtid_whatever_the_byte(thorough: bool) -> None:
    log = gtid_log(*TRANSACTIONS)
    source = gtid_source(log)
    async with serving(source):
        start = GtidSet("")
        whole = await read(source, 10, start)
        size = size_of(source, everything())
        for cut in range(0, size, 11 if thorough else 29):
            source.cuts = [cut]
            events = await read(source, 10, start)
            assert kinds(events) == kinds(whole), cut
            assert values(events) == ROWS, cut


async def test_three_cuts_in_one_transaction() -> None:
    log = gtid_log([[1], [2], [3], [4], [5]])
    source = gtid_source(log)
    async with serving(source):
        source.cuts = [420, 500, 450, 560]
        events = await read(source, 5, GtidSet(""))
    assert values(events) == [1, 2, 3, 4, 5]
    assert not source.cuts


@pytest.mark.parametrize(
    "other",
    [
        [[[1, 2, 3]], [[4, 5, 6, 7, 8, 9]], [[10]]],
        [[[1, 2], [3]], [[4], [5], [6, 7], [8], [9]], [[10]]],
        TRANSACTIONS,
    ],
)
async def test_failover_with_events_cut_otherwise(other: list[list[list[int]]], thorough: bool) -> None:
    log = gtid_log(*TRANSACTIONS)
    source = gtid_source(log)
    start = GtidSet("")
    size = size_of(source, everything())
    for cut in range(0, size, 17 if thorough else 41):
        source = gtid_source(log)
        source.cuts = [cut]
        source.on_cut = lambda source=source: fail_over(source, gtid_log(*other))  # type: ignore[misc]
        async with serving(source):
            events = await read(source, 10, start)
        assert values(events) == ROWS, cut
        assert "TransactionRestarted" not in kinds(events)
        begun = [event for event in events if kinds([event]) == ["Gtid"]]
        assert len(begun) == 3, cut


async def test_no_checkpoint_says_that_a_place_is_of_another_server() -> None:
    """Until the first event of the new server the place is one of the server before."""
    log = gtid_log(*TRANSACTIONS)
    source = gtid_source(log)
    source.cuts = [size_of(source, everything()) * 2 // 3]
    source.on_cut = lambda: fail_over(source, log)
    places: set[tuple[str | None, str]] = set()

    def look(*_: object) -> None:
        found = stream.checkpoint
        if found is not None:
            places.add((found.server_uuid, found.file))

    async with serving(source):
        stream = replica.connect(source.dsn, start=GtidSet(""), reconnect=QUICK, on_status=look)
        async with stream:
            rows: list[Event] = []
            while len(values(rows)) < len(ROWS):
                rows.append(await anext(stream))
                look()
    assert values(rows) == ROWS
    assert places == {(UUID, ""), (UUID, FILE), (OTHER_UUID, ""), (OTHER_UUID, "other.000007")}


async def test_failover_there_and_back_in_one_transaction() -> None:
    log, other = gtid_log([[1, 2], [3], [4, 5], [6]]), gtid_log([[1], [2, 3, 4], [5, 6]])
    servers = iter([(other, OTHER_UUID), (log, UUID), (other, OTHER_UUID)])
    source = gtid_source(log)
    source.cuts = [440, 450, 480]
    source.on_cut = lambda: fail_over(source, *next(servers))
    async with serving(source):
        events = await read(source, 6, GtidSet(""))
    assert values(events) == [1, 2, 3, 4, 5, 6]
    assert "TransactionRestarted" not in kinds(events)


@pytest.mark.parametrize("content", OTHER_CONTENT)
async def test_failover_to_other_content_restarts_the_transaction(
    content: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = gtid_log([[1]], [[2, 3], [4], [5]])
    other = OTHER_CONTENT[content]
    source = gtid_source(log)
    # The cut is after the rows 2 and 3.
    source.cuts = [size_of(source, everything()) - 110]
    source.on_cut = lambda: fail_over(source, other)
    expected = values(transactions_of(other))
    async with serving(source):
        events = await read(source, len(expected), GtidSet(""))
    [marker] = [event for event in events if isinstance(event, TransactionRestarted)]
    assert str(marker.gtid) == f"{UUID}:2"
    assert marker.rows == len(values(events)) - len(expected)
    assert values(standing(events)) == expected
    assert "delivered again from its beginning" in caplog.text


async def test_a_lost_transaction_is_said_to_be_void() -> None:
    log = gtid_log([[1]], [[2, 3], [4], [5]])
    source = gtid_source(log)
    source.cuts = [size_of(source, everything()) - 110]
    # The new server never got transaction 2, and goes on with transaction 3.
    other = split_transaction(gtid(gtid_log([[1]]), 3), [9])
    source.on_cut = lambda: fail_over(source, other)
    async with serving(source):
        events = await read(source, 2, GtidSet(""))
    assert values(standing(events)) == [1, 9]
    [marker] = [event for event in events if isinstance(event, TransactionRestarted)]
    assert "next transaction" in marker.reason


async def test_by_position_another_server_is_an_error() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[300])
    source.on_cut = lambda: source.variables.update(server_uuid=OTHER_UUID)
    source.variables = dict(MYSQL_VARIABLES)
    async with serving(source):
        with pytest.raises(replica.SourceChangedError, match=OTHER_UUID):
            await read(source, 10)


async def test_by_position_a_log_that_lost_its_end_restarts_the_transaction() -> None:
    log = plain_log()
    shorter = split_transaction(split_transaction(Log(), *TRANSACTIONS[0]), [77, 78, 79, 80, 81, 82, 83])
    source = mysql(log, events_for=from_position(log), cuts=[480])
    source.on_cut = lambda: setattr(source, "events_for", from_position(shorter))
    async with serving(source):
        events = await read(source, 10)
    assert values(standing(events)) == [1, 2, 3, 77, 78, 79, 80, 81, 82, 83]


async def test_the_status_of_a_stream_that_could_not_be_opened() -> None:
    """It was "connecting" for ever: a health check took a stream that had failed for one on its way."""
    shown: list[StreamStatus] = []
    stream = replica.connect("mysql://repl@127.0.0.1:1", reconnect=None, on_status=shown.append)
    with pytest.raises(replica.ReplicaError) as raised:
        await stream.run()
    assert [status.state for status in shown] == ["connecting", "closed"]
    assert shown[-1].last_error is stream.status.last_error is raised.value


async def test_status_and_its_hook() -> None:
    log = plain_log()
    shown: list[StreamStatus] = []
    source = mysql(log, events_for=from_position(log), cuts=[300])
    async with serving(source):
        stream = replica.connect(source.dsn, start="earliest", reconnect=QUICK, on_status=shown.append)
        assert stream.status.state == "new"
        async with stream:
            seen = [await anext(stream) for _ in range(16)]
        status = stream.status
    assert [status.state for status in shown] == [
        *("connecting", "streaming", "waiting", "connecting", "streaming", "closed"),
    ]
    assert (status.reconnects, status.restarts, status.events) == (1, 0, 16)
    assert status.rows == len(values(seen))
    assert isinstance(status.last_error, ConnectionLostError)
    assert status.bytes > sum(event.header.size for event in seen)
    assert status.skipped > 0
    assert status.position == stream.position
    assert status.seconds_behind is not None


async def test_reconnecting_says_so_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[200, 200, 200])
    with caplog.at_level(logging.WARNING, "replica"):
        async with serving(source):
            await read(source, 10)
    assert all("trying again in" in record.getMessage() for record in caplog.records)
    assert caplog.records


async def test_a_lasting_outage_is_told_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    """One warning at its beginning, with a pause of 0.1 s, left an outage of hours without a message."""
    log = plain_log()
    failures = 40
    source = mysql(log, events_for=from_position(log), cuts=[0] * failures)
    with caplog.at_level(logging.WARNING, "replica"):
        async with serving(source):
            await read(source, 10)
    assert not source.cuts
    told = [record.attempt for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [0, 8, 16, 32]


async def test_the_policy_decides() -> None:
    failures: list[Failure] = []

    class Twice(ReconnectPolicy):
        def delay(self, failure: Failure) -> float:
            failures.append(failure)
            if failure.attempt == 2:
                raise failure.error
            return 0

    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[0, 0, 0])
    async with serving(source):
        with pytest.raises(ConnectionLostError):
            await read(source, 10, reconnect=Twice())
    assert [failure.attempt for failure in failures] == [0, 1, 2]


def test_what_the_default_policy_retries() -> None:
    policy = ReconnectPolicy(initial=1, maximum=8)
    count = FailureCount()
    delays = [policy.delay(count.add(ConnectionLostError("gone"))) for _ in range(20)]
    assert all(0.5 <= delay <= 8 for delay in delays)
    assert max(delays[:1]) <= 1 < min(delays[3:])
    for error in (ServerError(1040, "08004", "Too many connections"), ConnectionLostError("refused")):
        assert policy.is_passing(Failure(error, 50))
    refused: list[ReplicaError] = [
        ServerError(1064, "42000", "syntax"),
        replica.PrivilegeError(1227, "42000", "denied"),
        replica.TransactionsUnavailableError(1236, "HY000", "purged"),
        replica.SourceChangedError("another server"),
        replica.SchemaMismatchError("count"),
    ]
    for refusal in refused:
        with pytest.raises(type(refusal)):
            policy.delay(Failure(refusal, 0))


def test_damage_is_tried_again_twice_for_each_place() -> None:
    policy, count = ReconnectPolicy(initial=0), FailureCount()
    policy.delay(count.add(ChecksumError("differs", "binlog.1", 4)))
    policy.delay(count.add(ConnectionLostError("gone")))
    policy.delay(count.add(ChecksumError("differs", "binlog.1", 4)))
    policy.delay(count.add(ChecksumError("differs", "binlog.1", 400)))
    with pytest.raises(ChecksumError):
        policy.delay(count.add(ChecksumError("differs", "binlog.1", 4)))
    count.forget()
    policy.delay(count.add(ChecksumError("differs", "binlog.1", 4)))
    failures = [count.add(ProtocolError(f"number {number}")) for number in range(20)]
    assert [policy.is_passing(failure) for failure in failures] == [True] * 9 + [False] * 11


def test_other_damage_at_the_same_place_is_the_networks() -> None:
    """A network has flipped three bits of one event, of 2 MB that were not through yet."""
    policy, count = ReconnectPolicy(initial=0), FailureCount()
    event = bytes(100)
    errors = []
    for place in range(8):
        decoder = BatchDecoder()
        decoder.checksum_enabled = True
        raw = bytearray(struct.pack("<IBIIIH", 0, 2, 1, 119, 0, 0) + event)
        raw[19 + place] ^= 1
        with pytest.raises(ChecksumError) as caught:
            decoder.decode_run([bytes(raw)], 0, [], [])
        errors.append(caught.value)
    assert len({str(error) for error in errors}) == 1
    for error in errors:
        policy.delay(count.add(error))
    policy.delay(count.add(errors[0]))
    with pytest.raises(ChecksumError):
        policy.delay(count.add(errors[0]))


def test_damage_after_a_long_outage_is_tried_again_too() -> None:
    policy, count = ReconnectPolicy(initial=0), FailureCount()
    for _ in range(50):
        policy.delay(count.add(ConnectionLostError("refused")))
    assert policy.delay(count.add(ChecksumError("differs", "binlog.1", 4))) == 0


def test_attempts_are_limited() -> None:
    policy = ReconnectPolicy(initial=0, attempts=2)
    count = FailureCount()
    for _ in range(2):
        policy.delay(count.add(ConnectionLostError("gone")))
    with pytest.raises(ConnectionLostError):
        policy.delay(count.add(ConnectionLostError("gone")))


async def test_filtered_rows_are_not_missed() -> None:
    log = Log()
    for number in range(6):
        transaction(log, number, name=f"t{number % 2}")
    source = SocketSource(log.raw, columns=list(COLUMNS), events_for=from_position(log))
    async with serving(source):
        for cut in range(100, size_of(source, BinlogDump("", 4, 1, 0)), 53):
            source.cuts = [cut]
            seen: list[Event] = []
            async with replica.connect(
                source.dsn, start="earliest", reconnect=QUICK, tables="s.t1", events=RowsEvent
            ) as stream:
                async for event in stream:
                    seen.append(event)
                    if len(seen) == 3:
                        break
            assert values(seen) == [1, 3, 5], cut


async def test_the_checkpoint_survives_a_reconnect() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[400])
    async with serving(source), replica.connect(source.dsn, start="earliest", reconnect=QUICK) as stream:
        async for event in stream:
            if kinds([event]) == ["Xid"]:
                break
        first = stream.position
        await stream.acknowledge()
        assert stream.position is not None
        assert first is not None
        assert stream.position > first
        assert stream.position == BinlogPosition(FILE, event.position + event.header.size)


async def test_by_position_a_log_that_was_written_anew_is_noticed() -> None:
    log, other = plain_log(), split_transaction(split_transaction(Log(), *TRANSACTIONS[0]), [4, 5, 6])
    # The rewritten log lacks the third transaction, and its second transaction differs.
    other.raw[-1] = other.raw[-1][:19] + b"\x09" + other.raw[-1][20:]
    source = mysql(other, events_for=from_position(other))
    source.cuts = [size_of(source, BinlogDump("", 4, 1, 0))]
    changed = split_transaction(split_transaction(Log(), *TRANSACTIONS[0]), [4, 5, 6])
    source.on_cut = lambda: setattr(source, "events_for", from_position(changed))
    assert len(b"".join(changed.raw)) < len(b"".join(log.raw))
    async with serving(source):
        with pytest.raises(replica.SourceChangedError, match="another event than before"):
            await read(source, 10)


async def test_aclose_ends_a_stream_that_is_connecting_again() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[300])
    source.on_cut = lambda: setattr(source, "silent_for", "SHOW GLOBAL")
    async with serving(source):
        stream = replica.connect(source.dsn, start="earliest", reconnect=QUICK)

        async def consume() -> list[Event]:
            return [event async for event in stream]

        async with stream:
            consuming = asyncio.create_task(consume())
            await until(lambda: sum("SHOW GLOBAL" in sql for sql in source.statements) == 2)
            async with asyncio.timeout(1):
                await stream.aclose()
                assert values(await consuming) == [1]
        await source.until_closed()


async def test_cancelling_while_connecting_again_goes_on_later() -> None:
    log = plain_log()
    source = mysql(log, events_for=from_position(log), cuts=[300])
    source.on_cut = lambda: setattr(source, "silent_for", "SHOW GLOBAL")
    given: dict[str, Any] = {"start": "earliest", "reconnect": QUICK, "connect_timeout": 0.5}
    async with serving(source), replica.connect(source.dsn, **given) as stream:
        seen: list[Event] = []

        async def consume() -> None:
            async for event in stream:
                seen.append(event)
                if len(values(seen)) == 10:
                    break

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consume(), 0.3)
        source.silent_for = ""
        await consume()
    assert values(seen) == ROWS
