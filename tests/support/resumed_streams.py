"""Scripted logs for streams that lose their connection, and what such a stream has to yield."""

from __future__ import annotations

from collections.abc import Callable

import replica
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event
from protocol.constants import EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid
from protocol.gtid import GtidSet
from replica import ReconnectPolicy, TransactionRestarted
from tests.support.raw_events import format_description, int_rows, int_table_map, query, rotate
from tests.support.scripted_log import GTIDS_ON, XID, Log, gtid, kinds, mysql, values
from tests.support.socket_source import FILE, UUID, SocketSource

OTHER_UUID = "99999999-2222-3333-4444-555555555555"
QUICK = ReconnectPolicy(initial=0.001, maximum=0.001)


def split_transaction(log: Log, *events: list[int], name: str = "t") -> Log:
    """One transaction whose rows come in so many events."""
    log.add(query("BEGIN")).add(int_table_map(name=name))
    for number, rows in enumerate(events, 1):
        log.add(int_rows(rows, flags=int(number == len(events))))
    return log.event(EventType.XID, XID)


def gtid_log(*transactions: list[list[int]], first: int = 1) -> Log:
    """Transactions with GTIDs from ``first`` on, behind the list of those before."""
    log = Log()
    log.event(EventType.PREVIOUS_GTIDS, GtidSet(f"{UUID}:1-{first - 1}" if first > 1 else "").encode())
    for number, rows in enumerate(transactions, first):
        split_transaction(gtid(log, number), *rows)
    return log


def located(log: Log) -> list[tuple[int, bytes]]:
    """Each event of the log with its start, without the artificial rotate before them."""
    found, position = [], 4
    for raw in log.raw[1:]:
        found.append((position, raw))
        position += len(raw)
    return found


def from_position(log: Log) -> Callable[[BinlogDump | BinlogDumpGtid], list[bytes]]:
    """A source that begins where it is asked to."""

    def events(dump: BinlogDump | BinlogDumpGtid) -> list[bytes]:
        start = dump.position
        description = [] if start == 4 else [format_description(algorithm=0)]
        rest = [raw for position, raw in located(log) if position >= start]
        return [rotate(FILE, start, flags=0x20), *description, *rest]

    return events


def from_gtids(log: Log, file: str = FILE) -> Callable[[BinlogDump | BinlogDumpGtid], list[bytes]]:
    """A source that leaves out the transactions that the replica has."""

    def events(dump: BinlogDump | BinlogDumpGtid) -> list[bytes]:
        assert isinstance(dump, BinlogDumpGtid)
        known = GtidSet.decode(dump.gtid_set)
        sent, is_known = [rotate(file, 4, flags=0x20)], False
        for raw in log.raw[1:]:
            if raw[4] == EventType.GTID:
                is_known = GtidSet(f"{UUID}:{int.from_bytes(raw[36:44], 'little')}") <= known
            if not is_known:
                sent.append(raw)
        return sent

    return events


def gtid_source(log: Log) -> SocketSource:
    answers = {
        "SELECT @@GLOBAL.gtid_executed": [(f"{UUID}:1-100",)],
        "SELECT @@GLOBAL.gtid_purged": [("",)],
    }
    return mysql(log, variables=GTIDS_ON, answers=answers, events_for=from_gtids(log))


async def read(source: SocketSource, rows: int, start: object = "earliest", **given: object) -> list[Event]:
    """All events until so many rows that stand have come, and the end of their transaction."""
    events: list[Event] = []
    options = {"start": start, "reconnect": QUICK, **given}
    async with replica.connect(source.dsn, **options) as stream:  # type: ignore[arg-type]
        async for event in stream:
            events.append(event)
            if kinds([event]) == ["Xid"] and len(values(standing(events))) >= rows:
                break
    return events


def standing(events: list[Event]) -> list[Event]:
    """What is left when restarted transactions are undone."""
    left: list[Event] = []
    open_since = 0
    for event in events:
        if isinstance(event, TransactionRestarted):
            del left[open_since:]
            continue
        left.append(event)
        if kinds([event]) == ["Xid"]:
            open_since = len(left)
    return left


def size_of(source: SocketSource, dump: BinlogDump | BinlogDumpGtid) -> int:
    assert source.events_for is not None
    return sum(len(raw) + 5 for raw in source.events_for(dump))


def everything() -> BinlogDumpGtid:
    """What a replica without any transaction asks for."""
    return BinlogDumpGtid(gtid_set=GtidSet("").encode(), server_id=1)


TRANSACTIONS = [[[1], [2, 3]], [[4, 5], [6], [7, 8, 9]], [[10]]]
ROWS = list(range(1, 11))


def plain_log() -> Log:
    log = Log()
    for rows in TRANSACTIONS:
        split_transaction(log, *rows)
    return log


def fail_over(source: SocketSource, log: Log, uuid: str = OTHER_UUID) -> None:
    """From the next connection on another server answers."""
    source.variables = GTIDS_ON | {"server_uuid": uuid}
    source.events_for = from_gtids(log, "other.000007")


OTHER_CONTENT = {
    "other rows": gtid_log([[1]], [[2, 8, 4, 5]]),
    "fewer rows": gtid_log([[1]], [[2]]),
    "another transaction": gtid_log([[1]], [[7, 8]]),
}


def transactions_of(log: Log) -> list[Event]:
    decoder = EventDecoder()
    return [event for raw in log.raw[1:] if (event := decoder.decode(raw)) is not None]
