"""Sources that leave out events, send them again, or say that they have sent more than they did."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

import replica
from protocol.constants import EventType
from protocol.gtid import GtidSet
from replica import BinlogPosition
from tests.support.raw_events import raw_event, rotate
from tests.support.resumed_streams import from_gtids, gtid_log, gtid_source
from tests.support.scripted_log import Log, collect, heartbeat, mysql, transaction, values
from tests.support.socket_source import FILE, UUID, SocketSource, serving

# A transaction is BEGIN, table map, rows, XID. The artificial rotate and the description come before the first.
FIRST = 2
LENGTH = 4


def three() -> Log:
    log = Log()
    for number in (1, 2, 3):
        transaction(log, number)
    return log


def without(log: Log, begin: int, count: int) -> Log:
    del log.raw[begin : begin + count]
    return log


def again(log: Log, begin: int, count: int) -> Log:
    log.raw[begin + count : begin + count] = log.raw[begin : begin + count]
    return log


LIES: dict[str, Callable[[Log], Log]] = {
    "rows are missing": lambda log: without(log, FIRST + 2, 1),
    "an end is missing": lambda log: without(log, FIRST + 3, 1),
    "a transaction is missing": lambda log: without(log, FIRST + LENGTH, LENGTH),
    "rows come again": lambda log: again(log, FIRST + 2, 1),
    "a transaction comes again": lambda log: again(log, FIRST, LENGTH),
    "all but the first transaction": lambda log: without(log, FIRST + LENGTH, len(log.raw)).event(
        EventType.STOP, b""
    ),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_dump_by_position_leaves_out_nothing(lie: str) -> None:
    """The rows before are yielded; what was missing was lost without a word, and what came again came twice."""
    log = LIES[lie](three())
    async with serving(mysql(log, ends_dump=True)) as source:
        events = []
        with pytest.raises(replica.DecodeError, match=f"events are missing, or come again.*{FILE}, at "):
            async with replica.connect(source.dsn, start="earliest", reconnect=False) as stream:
                events = [event async for event in stream]
        assert values(events) in ([], [1])


async def test_a_lossy_connection_is_made_anew() -> None:
    """Whatever is in the middle and loses an event: the next connection brings it."""
    log = three()
    lossy, sent = without(three(), FIRST + LENGTH + 2, 1).raw, [0]

    def events(_: object) -> list[bytes]:
        sent[0] += 1
        return lossy if sent[0] == 1 else log.raw

    async with serving(mysql(log, events_for=events)) as source:
        async with replica.connect(source.dsn, start="earliest", stop=None) as stream:
            found = []
            async for event in stream:
                found.append(event)
                if values(found)[-1:] == [3]:
                    break
        assert values(found) == [1, 2, 3]
        assert sent[0] == 2


def by_gtid(change: Callable[[list[bytes]], None]) -> SocketSource:
    log = gtid_log([[1]], [[2]], [[3]])
    source = gtid_source(log)
    source.ends_dump = True

    def events(dump: object) -> list[bytes]:
        sent = from_gtids(log)(dump)  # type: ignore[arg-type]
        change(sent)
        return sent

    source.events_for = events
    return source


def drop(kind: EventType, number: int) -> Callable[[list[bytes]], None]:
    def change(sent: list[bytes]) -> None:
        places = [place for place, raw in enumerate(sent) if raw[4] == kind]
        del sent[places[number]]

    return change


@pytest.mark.parametrize("kind", [EventType.TABLE_MAP, EventType.WRITE_ROWS, EventType.XID, EventType.QUERY])
async def test_a_dump_by_gtids_leaves_out_whole_transactions_alone(kind: EventType) -> None:
    async with serving(by_gtid(drop(kind, 0))) as source:
        with pytest.raises(replica.DecodeError, match="events are missing"):
            await collect(source, start=GtidSet(f"{UUID}:1"))
    async with serving(by_gtid(lambda sent: None)) as source:
        assert values(await collect(source, 12, start=GtidSet(f"{UUID}:1"))) == [2, 3]


async def test_a_transaction_that_comes_again_by_gtid() -> None:
    def again(sent: list[bytes]) -> None:
        begin, end = [place for place, raw in enumerate(sent) if raw[4] == EventType.GTID]
        sent += sent[begin:end]

    async with serving(by_gtid(again)) as source:
        with pytest.raises(replica.DecodeError, match="come again"):
            await collect(source, start=GtidSet(f"{UUID}:1"))


async def test_a_file_that_comes_again() -> None:
    log = transaction(Log(file="binlog.000002"), 1)
    log.raw += transaction(Log(), 2).raw
    async with serving(mysql(log, ends_dump=True)) as source:
        with pytest.raises(
            replica.SourceChangedError, match=r"goes back from binlog\.000002 to binlog\.000001"
        ):
            await collect(source)


@pytest.mark.parametrize("file", [FILE, "binlog.000000"])
async def test_a_file_that_was_renamed(file: str) -> None:
    """It ends with the old name of the next file; the artificial ROTATE behind it has the present name."""
    log = transaction(Log(), 1)
    log.event(EventType.ROTATE, rotate(file)[19:])
    log.raw += transaction(Log(file="binlog.000002"), 2).raw
    async with serving(mysql(log)) as source:
        assert values(await collect(source, 10)) == [1, 2]


async def test_an_artificial_rotate_to_another_place_of_the_file() -> None:
    """It moved the place: the rows between came twice, or not at all."""
    log = transaction(Log(), 1)
    log.raw.append(rotate(FILE, log.position, flags=0x20))
    async with serving(mysql(log, ends_dump=True)) as source:
        assert values(await collect(source, 4)) == [1]
    for place in (4, log.position + 500):
        log.raw[-1] = rotate(FILE, place, flags=0x20)
        async with serving(mysql(log, ends_dump=True)) as source:
            with pytest.raises(replica.DecodeError, match=f"goes on at {FILE}:{place}: events are missing"):
                await collect(source)


async def test_events_before_the_name_of_their_file() -> None:
    """The user was told that a place is none of a binlog."""
    for begin in (1, 2):
        async with serving(mysql(without(three(), 0, begin))) as source:
            with pytest.raises(replica.ProtocolError, match="before the name of their file"):
                await collect(source)


async def test_rows_with_the_flag_of_artificial_events() -> None:
    """MariaDB logs rows without a position: then nothing showed that they were passed over."""
    log = three()
    for number, raw in enumerate(log.raw[FIRST:], FIRST):
        flags = b"\x20\0" if raw[4] == EventType.WRITE_ROWS else raw[17:19]
        log.raw[number] = raw[:13] + bytes(4) + flags + raw[19:]
    async with serving(mysql(log)) as source:
        with pytest.raises(replica.DecodeError, match="made for the connection"):
            await collect(source)


async def test_a_dump_that_begins_at_another_place() -> None:
    place = three().position
    async with serving(mysql(transaction(Log(start=place), 4))) as source:
        assert values(await collect(source, 4, start=BinlogPosition(FILE, place))) == [4]
        with pytest.raises(replica.DecodeError, match=f"goes on at {FILE}:{place}: events are missing"):
            await collect(source, start=BinlogPosition(FILE, place - 100))


async def test_what_follows_a_description_may_be_left_out() -> None:
    """MariaDB's START_ENCRYPTION, for example, is nothing to a replica."""
    log = Log().event(EventType.MARIADB_START_ENCRYPTION, bytes(17))
    transaction(without(log, FIRST, 1), 1)
    async with serving(mysql(log)) as source:
        assert values(await collect(source, 4)) == [1]


async def test_a_heartbeat_moves_no_checkpoint_over_events_that_did_not_come() -> None:
    log = heartbeat(transaction(Log(), 1))
    end = log.position
    log.raw[-1] = log.raw[-1][:13] + struct.pack("<I", end + 1000) + log.raw[-1][17:]
    log.raw.append(raw_event(EventType.HEARTBEAT, b"binlog.000777", next_position=99))
    async with (
        serving(mysql(log, ends_dump=True)) as source,
        replica.connect(source.dsn, start="earliest", reconnect=False) as stream,
    ):
        with pytest.raises(replica.ConnectionLostError):
            async for _ in stream:
                pass
        assert stream.checkpoint is not None
        assert (stream.checkpoint.file, stream.checkpoint.position) == (FILE, end)
