"""Scans of a log, against a source that says where its log ends before it sends it: MySQL with sync_binlog=1."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.binlog.events import Event, QueryEvent
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.errors import ChecksumError, ProtocolError, TruncatedError
from protocol.gtid import GtidSet
from protocol.position import FIRST_POSITION, BinlogPosition
from replica.config.options import Options
from replica.source.hosts import first_host
from replica.source.log_scan import LogScan
from replica.source.server_facts import ask
from replica.source.session import Session
from tests.support.log_builder import LogBuilder
from tests.support.raw_events import query, raw_event, rotate
from tests.support.resumed_streams import from_gtids, from_position
from tests.support.scripted_log import GTIDS_ON, Log, gtid, mysql
from tests.support.socket_source import FILE, MYSQL_VARIABLES, UUID, SocketSource, serving

Dump = BinlogDump | BinlogDumpGtid


def statements(count: int) -> Log:
    log = Log()
    for number in range(1, count + 1):
        gtid(log, number).add(query(f"statement {number}"))
    return log


def synced_by_and_by(whole: Log, events: Callable[[Log], Callable[[Dump], list[bytes]]]) -> SocketSource:
    """Each dump ends one transaction behind the one before."""
    source = mysql(whole, variables=GTIDS_ON, ends_dump=True)

    def sent(dump: Dump) -> list[bytes]:
        part = Log()
        part.raw = whole.raw[: 2 * len(source.dumps)]
        return events(part)(dump)

    source.events_for = sent
    return source


async def scanned(source: SocketSource, start: BinlogPosition | GtidSet, end: BinlogPosition) -> list[str]:
    found: list[str] = []

    def visit(event: Event, file: str, position: int) -> bool:
        if isinstance(event, QueryEvent):
            found.append(event.sql)
        return False

    options = Options.build(source.dsn, {"connect_timeout": 1})
    session = await first_host(options, Session.open)
    try:
        scan = LogScan(session.options, await ask(session))
        await scan.statements(start, visit, end)
    finally:
        await session.aclose()
    return found


@pytest.mark.parametrize(
    ("start", "events"),
    [(BinlogPosition(FILE, FIRST_POSITION), from_position), (GtidSet(""), from_gtids)],
    ids=["position", "GTIDs"],
)
async def test_a_log_that_is_not_sent_yet_is_waited_for(
    start: BinlogPosition | GtidSet, events: Callable[[Log], Callable[[Dump], list[bytes]]]
) -> None:
    log = statements(4)
    async with serving(synced_by_and_by(log, events)) as source:
        found = await scanned(source, start, BinlogPosition(FILE, log.position))
        assert found == [f"statement {number}" for number in range(1, 5)]
        assert len(source.dumps) > 3


async def test_a_log_that_never_comes_is_an_error() -> None:
    log = statements(2)
    async with serving(mysql(log, events_for=from_position(log), ends_dump=True)) as source:
        with pytest.raises(
            ProtocolError, match=f"^{FILE}:9999 cannot be reached: the source sends its log up to {FILE}:"
        ):
            await scanned(source, BinlogPosition(FILE, FIRST_POSITION), BinlogPosition(FILE, 9999))


async def test_a_dump_that_begins_at_the_end_is_over() -> None:
    log = statements(2)
    end = BinlogPosition(FILE, log.position)
    async with serving(mysql(log, events_for=from_position(log), ends_dump=True)) as source:
        assert await scanned(source, end, end) == []
        assert len(source.dumps) == 1


async def test_an_end_where_the_file_before_ended() -> None:
    """The end of its ROTATE event was taken for that place of the next file: statements were missing."""
    second = FILE.replace("1", "2")
    before, behind = Log(), Log(file=second)
    before.add(query("one")).add(rotate(second))
    behind.add(query("two")).add(query("sevenxx"))
    assert before.position == behind.position
    source = mysql(Log(), events_for=lambda dump: [*before.raw, *behind.raw], ends_dump=True)
    async with serving(source):
        found = await scanned(
            source, BinlogPosition(FILE, FIRST_POSITION), BinlogPosition(second, behind.position)
        )
    assert found == ["one", "two", "sevenxx"]


async def test_a_statement_that_was_damaged_to_another_event() -> None:
    """It was passed over."""
    log = LogBuilder()
    log.statement("CREATE TABLE t (a INT)")
    damaged = bytearray(log.event(1))
    damaged[4] ^= EventType.QUERY ^ EventType.STOP
    events = [rotate(FILE, flags=0x20, checksum=True), log.event(0), bytes(damaged)]
    checked = MYSQL_VARIABLES | {"binlog_checksum": "CRC32"}
    async with serving(SocketSource(events, ends_dump=True, variables=checked)) as source:
        with pytest.raises(ChecksumError):
            await scanned(source, BinlogPosition(FILE, FIRST_POSITION), BinlogPosition(FILE, len(log.data)))


@pytest.mark.parametrize("size", [0, 4, 5, 17, 18])
async def test_an_event_too_short_for_a_header(size: int) -> None:
    """It was an IndexError, of a stream with start="snapshot", too."""
    log = LogBuilder()
    log.statement("CREATE TABLE t (a INT)")
    short = log.event(1)[:4] + bytes([EventType.STOP]) + log.event(1)[5:]
    events = [rotate(FILE, flags=0x20, checksum=True), log.event(0), short[:size]]
    checked = MYSQL_VARIABLES | {"binlog_checksum": "CRC32"}
    async with serving(SocketSource(events, ends_dump=True, variables=checked)) as source:
        with pytest.raises(TruncatedError, match=f"^{size} bytes are not an event"):
            await scanned(source, BinlogPosition(FILE, FIRST_POSITION), BinlogPosition(FILE, len(log.data)))


@pytest.mark.parametrize("version", ["5.6.51", "5.7.44"])
async def test_a_log_whose_last_transactions_are_known_ends(version: str) -> None:
    """MySQL 5.6 sends nothing then, and later versions a heartbeat that says where they are."""
    log = statements(2)
    end = BinlogPosition(FILE, log.position)

    def sent(dump: Dump) -> list[bytes]:
        heartbeat = raw_event(EventType.HEARTBEAT, FILE.encode(), next_position=log.position)
        beginning = from_gtids(log)(dump)
        return beginning if version == "5.6.51" else [*beginning, heartbeat]

    known = GtidSet(f"{UUID}:1-2")
    known_source = mysql(log, variables=GTIDS_ON, version=version, events_for=sent, ends_dump=True)
    async with serving(known_source) as source:
        assert await scanned(source, known, end) == []
        assert len(source.dumps) == 1
