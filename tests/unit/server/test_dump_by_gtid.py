"""BinlogServer's dumps by GTID: a replica gets exactly the transactions it lacks, or a real source's error."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.constants import EventType
from protocol.errors import (
    BinlogNotFoundError,
    PositionInsideEventError,
    ServerError,
    SourceConfigurationError,
    TransactionsUnavailableError,
)
from protocol.gtid import GtidSet, MariadbGtid, MariadbGtidSet
from replica import WriteRowsEvent
from replica.server import BinlogServer
from tests.support.log_builder import SOURCE_ID
from tests.support.served import (
    CHECKSUM_ASKED,
    SECONDS,
    close,
    dumped,
    gtids,
    kinds,
    logged_in,
    mariadb_log,
    mariadb_transaction,
    mysql_log,
    options_for,
    read_for_ever,
    rows_in,
    serving,
    write_index,
    write_mysql_files,
)

OTHER = "ffffffff-eeee-1111-9999-000000000000"
HEARTBEAT = EventType.HEARTBEAT


async def missing(server: BinlogServer, have: GtidSet) -> list[bytes]:
    return await dumped(server, gtid_set=have)


async def test_every_set_gets_what_it_lacks(tmp_path: Path) -> None:
    write_mysql_files(tmp_path)
    sets = [GtidSet(), *(gtids(1, last) for last in range(1, 7)), gtids(2, 2), gtids(3, 5) | gtids(1, 1)]
    async with serving(tmp_path, server_uuid=str(SOURCE_ID)) as server:
        for have in sets:
            for more in (GtidSet(), GtidSet(f"{OTHER}:1-100")):
                events = await missing(server, have | more)
                lacked = gtids(1, 6) - have
                assert rows_in(events) == [
                    number for number in range(1, 7) if gtids(number, number) <= lacked
                ]
                # Files without missing transactions are not read.
                first = min((interval.first for interval in lacked.intervals()), default=5)
                assert f"bin.00000{(first - 1) // 2 + 1}".encode() in events[0]


async def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    """A heartbeat names the end of skipped transactions, before the next sent event and at the log's end."""
    log = mysql_log()
    ends = {}
    for number in (1, 2, 3, 4):
        log.transaction([number], sequence=number)
        ends[number] = len(log.data)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        events = await missing(server, gtids(1, 2) | gtids(4, 4))
        told = [int.from_bytes(raw[13:17], "little") for raw in events if raw[4] == HEARTBEAT]
        assert rows_in(events) == [3]
        assert told == [ends[2], ends[4]]
        assert kinds(events)[2:5] == [EventType.PREVIOUS_GTIDS, HEARTBEAT, EventType.GTID]
        [long] = [raw for raw in await dumped(server, gtid_set=gtids(1, 4), flags=2) if raw[4] == 41]
        assert len(log.data).to_bytes(2, "little") in long


async def test_created_is_kept_for_who_has_not_begun(tmp_path: Path) -> None:
    log = mysql_log()
    log.data[75:79] = b"\1\2\3\4"
    log.transaction([1], sequence=1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        for have, kept in ((GtidSet(), True), (gtids(1, 1), False)):
            description = (await missing(server, have))[1]
            assert (description[71:75] == b"\1\2\3\4") == kept
            assert description[13:17] != bytes(4)


async def test_purged_and_unknown_transactions(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    write_index(tmp_path, *names[1:])
    async with serving(tmp_path, server_uuid=str(SOURCE_ID)) as server:
        assert rows_in(await missing(server, gtids(1, 2))) == [3, 4, 5, 6]
        for have in (GtidSet(), gtids(1, 1), gtids(2, 6)):
            with pytest.raises(TransactionsUnavailableError, match="purged required binary logs") as caught:
                await missing(server, have)
            assert f"missing transactions are '{gtids(1, 2) - have}'" in caught.value.message
        for have in (gtids(1, 7), gtids(1, 2) | gtids(9, 9)):
            with pytest.raises(TransactionsUnavailableError, match="has more GTIDs than the source has"):
                await missing(server, have)
        with pytest.raises(ServerError, match=r"1773.*Malformed"):
            await _dump_set(server, b"\1\0\0\0\0\0\0\0")


async def _dump_set(server: BinlogServer, data: bytes) -> None:
    async with logged_in(server, CHECKSUM_ASKED) as session:
        session.start_dump_gtid(data, 0, 0)
        await read_for_ever(session)


async def test_old_words_of_old_versions(tmp_path: Path) -> None:
    log = mysql_log(gtids(1, 5), version="5.7.44-log")
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        with pytest.raises(TransactionsUnavailableError, match="the master purged required binary logs"):
            await missing(server, gtids(1, 1))


async def test_a_log_without_gtids(tmp_path: Path) -> None:
    log = mysql_log()
    log.add(EventType.ANONYMOUS_GTID, b"\0" * 25)
    log.transaction([1])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        with pytest.raises(SourceConfigurationError, match="GTID_MODE = OFF"):
            await missing(server, GtidSet())
        async with logged_in(server) as session:
            assert await session.query_value("SELECT @@GLOBAL.GTID_MODE") == "OFF"


async def test_a_log_that_is_damaged_or_gone(tmp_path: Path) -> None:
    """Statements and dumps that need the damaged file are refused; the connection stays usable."""
    log = mysql_log()
    log.transaction([1], sequence=1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(str(tmp_path / "bin.*")) as server, logged_in(server, CHECKSUM_ASKED) as session:
        path.write_bytes(log.data[: log.offsets[3]] + bytes(100))
        for _ in range(2):
            with pytest.raises(ServerError, match=r"1105.*cannot be read"):
                await session.query("SELECT @@GLOBAL.gtid_executed")
            with pytest.raises(ServerError, match="1236"):
                await missing(server, GtidSet())
        path.unlink()
        with pytest.raises(ServerError, match=r"1105.*cannot be read"):
            await session.query("SELECT @@GLOBAL.gtid_executed")
        for ask in (GtidSet(), None):
            with pytest.raises(BinlogNotFoundError):
                await dumped(server, "bin.000001", gtid_set=ask)
        assert await session.query_value("SELECT 1") == "1"


@pytest.mark.parametrize("have", [GtidSet(), gtids(1, 1), gtids(1, 2)])
async def test_transactions_without_a_gtid_among_others(tmp_path: Path, have: GtidSet) -> None:
    """After a transaction that the replica has, an anonymous one must not be skipped as a part of it."""
    log = mysql_log()
    log.transaction([1], sequence=1)
    log.add(EventType.ANONYMOUS_GTID, bytes(25))
    log.transaction([99])
    log.transaction([2], sequence=2)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        with pytest.raises(ServerError, match=r"anonymous .* AUTO_POSITION = 1, at file \./bin.000001, pos"):
            await missing(server, have)
        assert rows_in(await dumped(server)) == [1, 99, 2]


async def test_files_that_were_deleted_by_hand(tmp_path: Path) -> None:
    """The index still names the deleted files."""
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        assert rows_in(await missing(server, GtidSet())) == [1, 2, 3, 4, 5, 6]
        (tmp_path / names[0]).unlink()
        assert rows_in(await missing(server, gtids(1, 3))) == [4, 5, 6]
        with pytest.raises(TransactionsUnavailableError):
            await missing(server, gtids(1, 1))
        async with logged_in(server) as session:
            assert await session.query_value("SELECT @@gtid_purged") == str(gtids(1, 2))
            assert [row[0] for row in await session.query("SHOW BINARY LOGS")] == names[1:]


async def test_a_set_and_a_place(tmp_path: Path) -> None:
    """If the request names a file, MySQL starts there, and skips the transactions of the set."""
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server, logged_in(server, CHECKSUM_ASKED) as session:
        session._connection.send_dump_gtid(gtids(4, 4).encode(), 0, 0, file=names[1], position=4)
        session._flush()
        events: list[bytes] = []
        while batch := await session.read_events(SECONDS):
            events += batch
    assert rows_in(events) == [3, 5, 6]


async def test_new_transactions_are_counted(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    path = tmp_path / names[2]
    async with serving(tmp_path) as server, logged_in(server) as session:
        assert await session.query_value("SELECT @@GLOBAL.gtid_executed") == str(gtids(1, 6))
        log = mysql_log(gtids(1, 4))
        for number in (5, 6, 7):
            log.transaction([number], sequence=number)
        whole = bytes(log.data)
        path.write_bytes(whole[: log.ends[-3]])
        assert await session.query_value("SELECT @@GLOBAL.gtid_executed") == str(gtids(1, 7))
        path.write_bytes(whole)
        assert rows_in(await missing(server, gtids(1, 6))) == [7]
        log = mysql_log(gtids(1, 7))
        (tmp_path / "bin.000004").write_bytes(log.data)
        write_index(tmp_path, *names, "bin.000004")
        assert await session.query_value("SELECT @@GLOBAL.gtid_executed") == str(gtids(1, 7))
        [status] = await session.query("SHOW BINARY LOG STATUS")
        assert status[:2] == ("bin.000004", str(len(log.data)))


async def test_our_own_stream_by_gtid(tmp_path: Path) -> None:
    write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        for have, expected in ((gtids(1, 3), [4, 5, 6]), (GtidSet(), [1, 2, 3, 4, 5, 6])):
            options = options_for(server, start=have, stop="now")
            async with replica.BinlogStream(options) as stream:
                rows = [
                    row[0]
                    async for event in stream
                    if isinstance(event, WriteRowsEvent)
                    for row in event.rows
                ]
            assert rows == expected
            assert stream.checkpoint is not None
            assert stream.checkpoint.gtid_set == str(gtids(1, 6))


# MariaDB


def write_mariadb_files(folder: Path) -> list[str]:
    """Three files: 0-1-1 to 0-1-2, then 0-1-3, 7-1-1 and 0-1-4 (a statement), then 0-1-5."""
    names = [f"bin.00000{number}" for number in (1, 2, 3)]
    first = mariadb_log()
    for sequence in (1, 2):
        mariadb_transaction(first, sequence)
    second = mariadb_log([MariadbGtid(0, 1, 2)])
    mariadb_transaction(second, 3)
    mariadb_transaction(second, 1, domain=7)
    mariadb_transaction(second, 4, standalone=True)
    third = mariadb_log([MariadbGtid(0, 1, 4), MariadbGtid(7, 1, 1)])
    mariadb_transaction(third, 5)
    for name, log, following in zip(names, (first, second, third), (*names[1:], ""), strict=True):
        (folder / name).write_bytes(close(log, following) if following else log.data)
    write_index(folder, *names)
    return names


async def behind(server: BinlogServer, state: str, *more: str) -> list[bytes]:
    statements = (f"SET @slave_connect_state='{state}', @mariadb_slave_capability = 4", CHECKSUM_ASKED, *more)
    return await dumped(server, "", 4, *statements, flags=2)


def transactions(events: list[bytes]) -> list[str]:
    """Domain and sequence of each GTID event."""
    found = [raw for raw in events if raw[4] == EventType.MARIADB_GTID]
    return [f"{int.from_bytes(raw[27:31], 'little')}-{int.from_bytes(raw[19:27], 'little')}" for raw in found]


ALL = ["0-1", "0-2", "0-3", "7-1", "0-4", "0-5"]


@pytest.mark.parametrize(
    ("state", "expected", "first_file"),
    [
        ("", ALL, 1),
        ("0-1-1", ALL[1:], 1),
        ("0-1-2", ALL[2:], 2),
        ("0-1-3", ALL[3:], 2),
        ("0-1-4", ["7-1", "0-5"], 2),
        ("0-1-5", ["7-1"], 2),
        ("7-1-1", ["0-1", "0-2", "0-3", "0-4", "0-5"], 1),
        ("0-1-4,7-1-1", ["0-5"], 3),
        ("0-1-5,7-1-1", [], 3),
        ("0-1-3,7-1-1", ["0-4", "0-5"], 2),
        # A transaction of another source, in a domain that this log does not have.
        ("0-1-5,7-1-1,9-9-9", [], 3),
    ],
)
async def test_every_state_gets_what_lies_behind_it(
    tmp_path: Path, state: str, expected: list[str], first_file: int
) -> None:
    write_mariadb_files(tmp_path)
    async with serving(tmp_path) as server:
        events = await behind(server, state)
        assert transactions(events) == expected
        assert f"bin.00000{first_file}".encode() in events[0]
        # Groups are complete, with their last event.
        ended = [kind for kind in kinds(events) if kind in (EventType.XID, EventType.MARIADB_GTID)]
        count = len([one for one in expected if one != "0-4"])
        assert ended.count(EventType.XID) == count
        assert sum(b"CREATE TABLE t4" in raw for raw in events) == ("0-4" in expected)
        # The position in the command is ignored.
        assert transactions(await behind(server, state)) == expected


async def test_the_place_where_a_domain_goes_on_is_told(tmp_path: Path) -> None:
    names = write_mariadb_files(tmp_path)
    first = mariadb_log()
    mariadb_transaction(first, 1)
    async with serving(tmp_path) as server:
        events = await behind(server, "0-1-1")
    [told] = [raw for raw in events if raw[4] == EventType.MARIADB_GTID_LIST and raw[17] & 0x20]
    assert told[13:17] == len(first.data).to_bytes(4, "little")
    assert told[19:23] == b"\1\0\0\0"
    assert names[0].encode() in events[0]


async def test_states_that_are_not_in_the_log(tmp_path: Path) -> None:
    names = write_mariadb_files(tmp_path)
    async with serving(tmp_path) as server:
        for state, end in (
            ("0-1-6", "which is not in the master's binlog"),
            ("0-2-3", "executing extra erroneous transactions"),
            ("0-2-6", "which is not in the master's binlog"),
        ):
            with pytest.raises(TransactionsUnavailableError, match=f"start from GTID {state}") as caught:
                await behind(server, state)
            assert caught.value.message.endswith(end)
        assert transactions(await behind(server, "0-2-6", "SET @slave_gtid_ignore_duplicates = 1")) == ["7-1"]
        with pytest.raises(ServerError, match="malformed slave request"):
            await behind(server, "nonsense")
        write_index(tmp_path, *names[1:])
        with pytest.raises(TransactionsUnavailableError, match="Could not find GTID state"):
            await behind(server, "0-1-1")
        assert transactions(await behind(server, "0-1-2")) == ALL[2:]


async def test_holes_in_strict_mode(tmp_path: Path) -> None:
    log = mariadb_log()
    for sequence in (1, 2, 5):
        mariadb_transaction(log, sequence)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        assert transactions(await behind(server, "0-1-3")) == ["0-5"]
        with pytest.raises(ServerError, match="missing the GTID 0-1-3"):
            await behind(server, "0-1-3", "SET @slave_gtid_strict_mode = 1")


async def test_a_domain_that_begins_while_a_replica_waits(tmp_path: Path) -> None:
    log = mariadb_log()
    mariadb_transaction(log, 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    statements = ("SET @slave_connect_state = '0-1-1,7-1-2', @mariadb_slave_capability = 4", CHECKSUM_ASKED)
    for sequences, arriving in (((1, 2, 3), ["7-3"]), ((3,), None)):
        path.write_bytes(log.data)
        async with serving(path) as server, logged_in(server, *statements) as session:
            session.start_dump("", 4, 77, 2)
            events = await session.read_events(SECONDS)
            more = mariadb_log()
            mariadb_transaction(more, 1)
            for sequence in sequences:
                mariadb_transaction(more, sequence, domain=7)
            path.write_bytes(more.data)
            if arriving is None:
                with pytest.raises(TransactionsUnavailableError, match="7-1-2"):
                    await read_for_ever(session)
                continue
            while not transactions(events):
                events += await session.read_events(SECONDS)
            assert transactions(events) == arriving


async def test_positions_as_states(tmp_path: Path) -> None:
    names = write_mariadb_files(tmp_path)
    log = mariadb_log()
    mariadb_transaction(log, 1)
    async with serving(tmp_path) as server, logged_in(server) as session:
        asked = {
            (names[0], 4): "",
            (names[0], 0): "",
            (names[0], log.ends[0]): "",
            (names[0], log.ends[1]): "",
            (names[0], len(log.data)): "0-1-1",
            (names[0], log.ends[2]): "0-1-1",
            ("", len(log.data)): "0-1-1",
            (names[2], 4): "0-1-4,7-1-1",
            (names[2], (tmp_path / names[2]).stat().st_size): "0-1-5,7-1-1",
            (names[0], 5): None,
            (names[0], len(log.data) + 1): None,
            (names[2], 1 << 31): None,
            ("elsewhere", 4): None,
        }
        for (file, position), expected in asked.items():
            [[found]] = await session.query(f"SELECT BINLOG_GTID_POS('{file}', {position})")
            assert found == expected, (file, position)
        assert await session.query_value("SELECT @@GLOBAL.gtid_binlog_pos") == "0-1-5,7-1-1"
        assert await session.query_value("SELECT @@gtid_binlog_state") == "0-1-5,7-1-1"


async def test_a_set_of_many_intervals_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 16 MB, the largest that a client can send, kept all other clients waiting for half a minute."""
    write_mysql_files(tmp_path)
    intervals = b"".join(struct.pack("<QQ", 3 * number + 1, 3 * number + 2) for number in range(1_000))
    many = struct.pack("<Q", 1) + SOURCE_ID.bytes + struct.pack("<Q", 1_000) + intervals
    threads = dict[str, threading.Thread]()

    def noted(name: str) -> Callable[..., Any]:
        method = getattr(GtidSet, name)

        def run(*arguments: Any) -> Any:
            if any(len(str(one)) > 1_000 for one in arguments):
                threads[name] = threading.current_thread()
            return method(*arguments)

        return run

    for name in ("decode", "__le__"):
        monkeypatch.setattr(GtidSet, name, staticmethod(noted(name)) if name == "decode" else noted(name))
    async with (
        serving(tmp_path, server_uuid=str(SOURCE_ID)) as server,
        logged_in(server, CHECKSUM_ASKED) as session,
    ):
        session.start_dump_gtid(many, 0, 0)
        with pytest.raises(ServerError, match="has more GTIDs"):
            await session.read_events(SECONDS)
    assert threads.keys() == {"decode", "__le__"}
    assert threading.main_thread() not in threads.values()


async def test_our_own_stream_of_mariadb(tmp_path: Path) -> None:
    names = write_mariadb_files(tmp_path)
    starts = ["earliest", replica.BinlogPosition(names[1], 4), MariadbGtidSet("0-1-3,7-1-1")]
    async with serving(tmp_path) as server:
        for start, expected in zip(starts, ([1, 2, 3, 1, 5], [3, 1, 5], [5]), strict=True):
            options = options_for(server, start=start, stop="now")
            async with replica.BinlogStream(options) as stream:
                rows = [
                    row[0]
                    async for event in stream
                    if isinstance(event, WriteRowsEvent)
                    for row in event.rows
                ]
            assert rows == expected
            assert stream.checkpoint is not None
            assert stream.checkpoint.gtid_set == "0-1-5,7-1-1"


async def test_a_position_inside_a_transaction_of_mariadb(tmp_path: Path) -> None:
    """``BINLOG_GTID_POS`` counts its GTID: up to ``stop="now"`` the rest of the last transaction did not come."""
    names = write_mariadb_files(tmp_path)
    with replica.open_binlog(tmp_path / names[2]) as log:
        events = list(log)
    begin = [str(getattr(event, "gtid", "")) for event in events].index("0-1-5")
    async with serving(tmp_path) as server:
        for number in range(begin, len(events)):
            place = replica.BinlogPosition(names[2], events[number].position)
            async with replica.BinlogStream(options_for(server, start=place, stop="now")) as stream:
                assert stream.checkpoint is not None
                # By its GTID another server, or the next run, would pass over the rest of it.
                assert stream.checkpoint.gtid_set == ("0-1-4,7-1-1" if number == begin else None)
                if isinstance(events[number], WriteRowsEvent):
                    with pytest.raises(PositionInsideEventError, match="have no table map"):
                        await anext(stream)
                else:
                    kinds_read = [type(event) async for event in stream]
                    assert kinds_read == [type(event) for event in events[number:]]
