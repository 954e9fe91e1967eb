"""Every kind of start and stop, against a scripted source on loopback."""

from __future__ import annotations

import asyncio
import struct
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import replica
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump
from protocol.gtid import GtidSet, MariadbGtidSet
from replica import BinlogPosition, Checkpoint
from tests.support.resumed_streams import QUICK, fail_over, from_gtids, gtid_log, gtid_source
from tests.support.scripted_log import (
    GTIDS_ON,
    Log,
    collect,
    gtid,
    heartbeat,
    mysql,
    three_transactions,
    transaction,
    values,
)
from tests.support.socket_source import FILE, UUID, SocketSource, serving


@pytest.mark.parametrize(("offset", "expected"), [(0, [1]), (-1, [1]), (1, [1, 2]), (10_000, [1, 2, 3])])
async def test_stop_at_a_position_finishes_the_transaction(offset: int, expected: list[int]) -> None:
    log = Log()
    end_of_first = three_transactions(log)(1)
    stop = BinlogPosition(FILE, end_of_first.position + offset)
    async with serving(mysql(log)) as source:
        if offset == 10_000:
            log.raw += transaction(Log(start=4, file="binlog.000002"), 4).raw
        assert values(await collect(source, stop=stop)) == expected


async def test_stop_where_the_start_is_reads_nothing() -> None:
    log = Log()
    place = three_transactions(log)(1)
    async with serving(mysql(log)) as source:
        async with replica.connect(source.dsn, start=place, stop=place) as stream:
            assert [event async for event in stream] == []
        assert source.dumps == []


async def test_stop_now_is_the_end_of_the_log_at_connect() -> None:
    log = Log()
    end = three_transactions(log)(2)
    answers: dict[str, list[Any]] = {"SHOW BINARY LOG STATUS": [(end.file, str(end.position), "", "", "")]}
    async with serving(mysql(log, answers=answers)) as source:
        assert values(await collect(source, stop="now")) == [1, 2]


async def test_stop_at_a_position_where_the_source_is_idle() -> None:
    log = Log()
    end = three_transactions(log)(3)
    heartbeat(log)
    log.raw[-1] = log.raw[-1][:13] + struct.pack("<I", end.position + 100) + log.raw[-1][17:]
    async with serving(mysql(log)) as source:
        stop = BinlogPosition(FILE, end.position + 50)
        assert values(await collect(source, stop=stop)) == [1, 2, 3]


async def test_stop_at_a_time() -> None:
    log = Log()
    end = three_transactions(log)(3)
    answers: dict[str, list[Any]] = {"SHOW BINARY LOG STATUS": [(end.file, str(end.position), "", "", "")]}
    async with serving(mysql(log, answers=answers)) as source:
        for second, expected in ((50, []), (200, [1]), (201, [1, 2]), (1000, [1, 2, 3])):
            stop = datetime.fromtimestamp(second, UTC)
            assert values(await collect(source, stop=stop)) == expected


async def test_stop_at_gtids() -> None:
    log = Log()
    log.event(EventType.PREVIOUS_GTIDS, GtidSet(f"{UUID}:1-4").encode())
    for number in (5, 6, 7):
        transaction(gtid(log, number), number)
    async with serving(mysql(log, variables=GTIDS_ON)) as source:
        assert values(await collect(source, stop=f"{UUID}:5-6")) == [5, 6]
        assert values(await collect(source, stop=GtidSet(f"{UUID}:1-5"))) == [5]
        with pytest.raises(replica.ConfigurationError, match="not a MySQL GTID set"):
            await collect(source, stop=MariadbGtidSet("0-1-5"))
    async with serving(mysql(log)) as source:
        with pytest.raises(replica.ConfigurationError, match=r"^stop: .* gtid_mode=ON"):
            await collect(source, stop=f"{UUID}:5-6")


async def test_acknowledging_at_the_end_of_what_is_wanted_ends_it() -> None:
    log = Log()
    log.event(EventType.PREVIOUS_GTIDS, GtidSet("").encode())
    for number in (1, 2, 3, 4):
        transaction(gtid(log, number), number)
    seen = []
    async with (
        serving(mysql(log, variables=GTIDS_ON)) as source,
        replica.connect(source.dsn, start="earliest", stop=f"{UUID}:1-2") as stream,
    ):
        async for event in stream:
            seen.append(event)
            await stream.acknowledge()
    assert values(seen) == [1, 2]


def failing_over(cut: int) -> SocketSource:
    """Four transactions of a server that has them in an earlier or later file of its log than the stream knows."""
    log = gtid_log([[1]], [[2]], [[3]], [[4]])
    source = gtid_source(log)
    source.answers["SELECT @@GLOBAL.gtid_executed"] = [(f"{UUID}:1-4",)]
    source.answers["SHOW BINARY LOG STATUS"] = [(FILE, str(log.position), "", "", "")]
    source.cuts = [cut]

    def elsewhere() -> None:
        fail_over(source, log)
        source.events_for = from_gtids(log, "binlog.000007")

    source.on_cut = elsewhere
    return source


@pytest.mark.parametrize("cut", [0, 200, 350, 480])
async def test_stop_now_is_no_position_on_another_server(cut: int) -> None:
    async with asyncio.timeout(10), serving(failing_over(cut)) as source:
        assert values(await collect(source, start=GtidSet(""), stop="now", reconnect=QUICK)) == [1, 2, 3, 4]


async def test_a_position_to_stop_at_is_of_one_server() -> None:
    async with asyncio.timeout(10), serving(failing_over(350)) as source:
        with pytest.raises(replica.SourceChangedError, match=f"^stop: {FILE}:9999 is a position"):
            await collect(source, start=GtidSet(""), stop=f"{FILE}:9999", reconnect=QUICK)
        await source.until_closed()


async def test_start_at_a_time_passes_over_what_began_before() -> None:
    log = Log()
    end = three_transactions(log)(3)
    answers: dict[str, list[Any]] = {"SHOW BINARY LOG STATUS": [(end.file, str(end.position), "", "", "")]}
    answers["SHOW BINARY LOGS"] = [(FILE, "1000")]
    async with serving(mysql(log, answers=answers)) as source:
        for second, expected in ((0, [1, 2, 3]), (150, [2, 3]), (200, [2, 3]), (1000, [])):
            start = datetime.fromtimestamp(second, UTC)
            async with replica.connect(source.dsn, start=start, stop="now") as stream:
                events = [event async for event in stream]
            assert values(events) == expected
            assert stream.position == end


@pytest.mark.parametrize(
    ("file", "second", "is_warned"),
    [(FILE, 50, False), ("binlog.000007", 50, True), ("binlog.000007", 100, False)],
)
async def test_a_start_at_a_time_whose_files_were_purged(
    file: str, second: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream begins with the oldest file that is left; what was purged would be missing without a word."""
    log = Log(file=file)
    begun = struct.pack("<I", 100) + log.raw[1][4:-4]
    log.raw[1] = begun + struct.pack("<I", zlib.crc32(begun))
    end = replace(three_transactions(log)(3), file=file)
    answers: dict[str, list[Any]] = {"SHOW BINARY LOG STATUS": [(end.file, str(end.position), "", "", "")]}
    answers["SHOW BINARY LOGS"] = [(file, "1000")]
    async with serving(mysql(log, answers=answers)) as source:
        start = datetime.fromtimestamp(second, UTC)
        async with replica.connect(source.dsn, start=start, stop="now") as stream:
            assert values([event async for event in stream]) == [1, 2, 3]
    found = [record for record in caplog.records if getattr(record, "event", "") == "log-purged"]
    assert bool(found) == is_warned
    assert not found or "binlog.000007 at 1970-01-01T00:01:40+00:00" in found[0].getMessage()


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (GtidSet(f"{UUID}:1-9"), replica.TransactionsUnavailableError),
        (GtidSet("ffffffff-2222-3333-4444-555555555555:1"), replica.TransactionsUnavailableError),
        (GtidSet(f"{UUID}:2-4"), replica.TransactionsUnavailableError),
        (MariadbGtidSet("0-1-5"), replica.ConfigurationError),
        (Checkpoint(FILE, 500, f"{UUID}:1-9", UUID, 97), replica.TransactionsUnavailableError),
    ],
)
async def test_gtids_that_the_source_cannot_serve(start: object, error: type[Exception]) -> None:
    gtids = {"SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-4",)]}
    gtids["SELECT @@GLOBAL.gtid_purged"] = [(f"{UUID}:1",)]
    async with serving(mysql(Log(), variables=GTIDS_ON, answers=gtids)) as source:
        with pytest.raises(error):
            async with replica.connect(source.dsn, start=start):  # type: ignore[arg-type]
                pass
        await source.until_closed()


async def test_gtids_of_a_source_without_any() -> None:
    async with serving(mysql(Log())) as source:
        with pytest.raises(replica.ConfigurationError, match="gtid_mode"):
            async with replica.connect(source.dsn, start=f"{UUID}:1-4"):
                pass


@pytest.mark.parametrize("identity", [("other-uuid", 97), (None, None)])
async def test_a_position_of_another_server(identity: tuple[str | None, int | None]) -> None:
    async with serving(mysql(Log())) as source:
        with pytest.raises(replica.SourceChangedError, match="of no use on another server"):
            async with replica.connect(source.dsn, start=Checkpoint(FILE, 500, None, *identity)):
                pass


async def test_a_position_of_mysql_where_mariadb_answers() -> None:
    """With the same server_id, which all servers have by default, its log was read as if it were MySQL's."""
    source = mysql(Log())
    source.version = "11.8.6-MariaDB"
    del source.variables["server_uuid"]
    async with serving(source):
        checkpoint = Checkpoint(FILE, 4, None, UUID, int(source.variables["server_id"]))
        with pytest.raises(
            replica.SourceChangedError, match=f"belongs to server {UUID}, but this is server 97"
        ):
            async with replica.connect(source.dsn, start=checkpoint, connect_timeout=1):
                pass


async def test_a_checkpoint_of_this_server() -> None:
    async with serving(mysql(transaction(Log(500), 1))) as source:
        async with replica.connect(source.dsn, start=Checkpoint(FILE, 500, None, UUID, 1)) as stream:
            assert stream.position == BinlogPosition(FILE, 500)
            first = await anext(stream)
            # The source repeats the format description from the start of the file; the stream does not yield it.
            assert (type(first), first.position) == (replica.QueryEvent, 500)
        assert source.dumps == [BinlogDump(FILE, 500, source.dumps[0].server_id, 0)]
