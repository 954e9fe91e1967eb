"""The search for XA transactions that are prepared where a copy begins."""

from __future__ import annotations

import struct

from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.gtid import GtidSet
from replica.config.options import Options
from replica.source.hosts import first_host
from replica.source.log_scan import LogScan
from replica.source.prepared_xa import undecided_xa
from replica.source.server_facts import ask
from replica.source.session import Session
from tests.support.raw_events import query, rotate
from tests.support.scripted_log import GTIDS_ON, Log, gtid
from tests.support.socket_source import FILE, UUID, SocketSource, serving

SECOND = FILE.replace("1", "2")


def xa_prepare(log: Log, name: bytes) -> None:
    log.event(EventType.XA_PREPARE, struct.pack("<?III", False, 1, len(name), 0) + name)


def two_files() -> list[Log]:
    """The first file prepares two transactions, and ends before the second file decides one of them."""
    first, second = Log(), Log(file=SECOND)
    xa_prepare(gtid(first, 1), b"a")
    xa_prepare(gtid(first, 2), b"b")
    first.add(rotate(SECOND))
    gtid(second, 3).add(query("XA COMMIT X'61',X'',1"))
    xa_prepare(gtid(second, 4), b"c")
    return [first, second]


async def undecided(file: str, executed: str, xa_begun: int = 1) -> GtidSet:
    logs = two_files()

    def events(dump: BinlogDump | BinlogDumpGtid) -> list[bytes]:
        return [raw for log in logs[dump.file == SECOND :] for raw in log.raw]

    answers = {"SHOW GLOBAL STATUS LIKE 'Com_xa_start'": [("Com_xa_start", str(xa_begun))]}
    source = SocketSource(answers={**answers}, variables=GTIDS_ON, events_for=events, ends_dump=True)
    async with serving(source):
        session = await first_host(Options.build(source.dsn, {}), Session.open)
        try:
            scan = LogScan(session.options, await ask(session))
            return await undecided_xa(session, scan, file, GtidSet(executed))
        finally:
            await session.aclose()


async def test_the_file_before_is_read() -> None:
    """A copy that began just behind a new file lacked the rows of the transaction, for good."""
    assert await undecided(SECOND, f"{UUID}:1-4") == GtidSet(f"{UUID}:2:4")


async def test_a_decision_behind_the_place_is_none() -> None:
    assert await undecided(SECOND, f"{UUID}:1-2") == GtidSet(f"{UUID}:1-2")


async def test_the_first_file_has_none_before() -> None:
    assert await undecided(FILE, f"{UUID}:1-2") == GtidSet(f"{UUID}:1-2")


async def test_nothing_is_read_where_there_was_no_xa() -> None:
    assert await undecided(SECOND, f"{UUID}:1-4", xa_begun=0) == GtidSet()
