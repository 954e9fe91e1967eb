"""Logs made event by event for ``SocketSource``, and what tests ask of the events that come out of a stream."""

from __future__ import annotations

import struct
from collections.abc import Callable

import replica
from protocol.binlog.events import Event
from protocol.constants import EventType
from replica import BinlogPosition, WriteRowsEvent

from .raw_events import format_description, int_rows, int_table_map, query, raw_event, rotate
from .socket_source import ALL_COLUMNS, FILE, MYSQL_VARIABLES, UUID, SocketSource

XID = struct.pack("<Q", 5)
# The table maps of these logs say that the column may be NULL.
INT_COLUMN = ("id", "int", "int", "YES", None, "PRI")
COLUMNS = [INT_COLUMN]
GTIDS_ON = MYSQL_VARIABLES | {"gtid_mode": "ON"}


def transaction(log: Log, *values: int, name: str = "t", timestamp: int = 1) -> Log:
    begin = query("BEGIN")
    log.event(EventType.QUERY, begin[19:], timestamp=timestamp)
    log.add(int_table_map(name=name)).add(int_rows(list(values)))
    return log.event(EventType.XID, XID)


def gtid(log: Log, sequence: int) -> Log:
    return log.event(
        EventType.GTID, b"\0" + bytes.fromhex(UUID.replace("-", "")) + struct.pack("<q", sequence)
    )


def heartbeat(log: Log) -> Log:
    position = log.position
    log.event(EventType.HEARTBEAT, FILE.encode())
    log.raw[-1] = log.raw[-1][:13] + struct.pack("<I", position) + log.raw[-1][17:]
    log.position = position
    return log


def mysql(log: Log, **given: object) -> SocketSource:
    return SocketSource(log.raw, columns=list(COLUMNS), **given)  # type: ignore[arg-type]


def unseen(log: Log) -> SocketSource:
    """A source that shows no tables, until its ``answers`` are cleared: the stream asks for each when it comes."""
    return mysql(log, answers={ALL_COLUMNS: [], "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE": []})


def values(events: list[Event]) -> list[int]:
    return [row[0] for event in events if isinstance(event, WriteRowsEvent) for row in event.rows]  # type: ignore[misc]


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__.removesuffix("Event") for event in events]


async def collect(source: SocketSource, count: int | None = None, **given: object) -> list[Event]:
    """Events from the earliest one up to the stream's end, or so many. A lost connection is an error."""
    events: list[Event] = []
    options = {"start": "earliest", "reconnect": False, **given}
    async with replica.connect(source.dsn, **options) as stream:  # type: ignore[arg-type]
        async for event in stream:
            events.append(event)
            if len(events) == count:
                break
    return events


def three_transactions(log: Log) -> Callable[[int], BinlogPosition]:
    """Three transactions at 100, 200 and 300 seconds; the end of the first is answered for 1, the start for 0."""
    ends = [4]
    for number in (1, 2, 3):
        transaction(log, number, timestamp=100 * number)
        ends.append(log.position)
    return lambda index: BinlogPosition(FILE, ends[index])


class Log:
    """Builds raw events with true end positions: ``Log().query("BEGIN").event(...).raw``."""

    def __init__(self, start: int = 4, file: str = FILE) -> None:
        self.raw = [rotate(file, start, flags=0x20)]
        self.position = start
        description = format_description(algorithm=0)
        if start == 4:
            self.position += len(description)
            description = format_description(algorithm=0, next_position=self.position)
        self.raw.append(description)

    def event(self, event_type: int, body: bytes, *, timestamp: int = 1) -> Log:
        self.position += 19 + len(body)
        self.raw.append(raw_event(event_type, body, next_position=self.position, timestamp=timestamp))
        return self

    def add(self, raw: bytes) -> Log:
        """An event made elsewhere, with its end position put right."""
        return self.event(raw[4], raw[19:], timestamp=int.from_bytes(raw[:4], "little"))
