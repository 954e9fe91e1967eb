"""Whether transactions without GTIDs lie behind a place, asked of a scripted MySQL."""

from __future__ import annotations

import pytest

from protocol.constants import EventType
from protocol.errors import PositionError
from protocol.gtid import GtidSet
from protocol.position import FIRST_POSITION, BinlogPosition
from replica.config.options import Options
from replica.source.gtid_gaps import check_all_have_gtids
from replica.source.server_facts import ask
from replica.source.session import Session
from tests.support.raw_events import query
from tests.support.resumed_streams import from_position
from tests.support.scripted_log import GTIDS_ON, Log, gtid, mysql
from tests.support.socket_source import FILE, UUID, SocketSource, serving

NEXT = "binlog.000002"


def source_of(log: Log) -> SocketSource:
    """A source whose newest file is not the first one."""
    answers = {"SHOW BINARY LOG STATUS": [("binlog.000003", "1000", "", "", "")]}
    return mysql(log, variables=GTIDS_ON, answers=answers, ends_dump=True)


async def check(source: SocketSource, place: BinlogPosition) -> list[tuple[str, int]]:
    """The places that were read from for the check."""
    session = await Session.open(Options.build(source.dsn, {}))
    try:
        await check_all_have_gtids(place, GtidSet(f"{UUID}:1"), session, await ask(session))
    finally:
        await session.aclose()
    return [(dump.file, dump.position) for dump in source.dumps]


@pytest.mark.parametrize("is_first", [False, True])
async def test_the_log_is_read_up_to_a_transaction_that_is_not_known(is_first: bool) -> None:
    log = gtid(Log(), 1).add(query("known"))
    place = BinlogPosition(FILE, log.position)
    if is_first:
        gtid(log, 2).add(query("not known"))
    log.event(EventType.ANONYMOUS_GTID, b"\0" * 25).add(query("without a GTID"))
    source = source_of(log)
    source.events_for = from_position(log)
    async with serving(source):
        if is_first:
            assert await check(source, place) == [(FILE, place.position)]
        else:
            with pytest.raises(PositionError, match="transaction without GTID"):
                await check(source, place)


async def test_a_place_beyond_4_gb_is_at_the_end_of_its_file() -> None:
    """COM_BINLOG_DUMP has no such place: a stream by GTIDs was refused behind a transaction of that size."""
    async with serving(source_of(gtid(Log(file=NEXT), 2))) as source:
        assert await check(source, BinlogPosition(FILE, 1 << 32)) == [(NEXT, FIRST_POSITION)]
