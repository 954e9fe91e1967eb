"""BinlogServer's dumps by position: events arrive as they are in the files, with a source's artificial events."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from pathlib import Path

import pytest

import replica
from protocol.constants import DumpFlag, EventType
from protocol.errors import (
    BinlogNotFoundError,
    DuplicateReplicaError,
    PositionInsideEventError,
    PositionPastEndError,
    ServerError,
)
from replica import BinlogPosition, WriteRowsEvent
from tests.support.log_builder import LogBuilder
from tests.support.served import (
    CHECKSUM_ASKED,
    close,
    dumped,
    kinds,
    logged_in,
    mariadb_log,
    mariadb_transaction,
    mysql_log,
    options_for,
    read_for_ever,
    rows_in,
    serving,
    stored_events,
    write_index,
    write_mysql_files,
)
from tests.support.socket_source import until

ROTATE, DESCRIPTION = EventType.ROTATE, EventType.FORMAT_DESCRIPTION
HEARTBEAT, HEARTBEAT_V2 = EventType.HEARTBEAT, EventType.HEARTBEAT_V2


def artificial_rotate(raw: bytes) -> tuple[str, int]:
    assert (raw[4], raw[:4], raw[13:17], raw[17:19]) == (ROTATE, bytes(4), bytes(4), b"\x20\0")
    (position,) = struct.unpack_from("<Q", raw, 19)
    return raw[27:].decode("latin-1"), position


async def test_all_files_from_the_first_on(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        events = await dumped(server)
    assert [kind for kind in kinds(events) if kind in (ROTATE, DESCRIPTION)] == [
        ROTATE, DESCRIPTION, ROTATE, ROTATE, DESCRIPTION, ROTATE, ROTATE, DESCRIPTION
    ]  # fmt: skip
    assert [raw for raw in events if raw[17:19] != b"\x20\0"] == [
        raw for name in names for raw in stored_events(tmp_path / name)
    ]
    told = [artificial_rotate(raw) for raw in events if raw[17:19] == b"\x20\0"]
    assert [(name[:10], position) for name, position in told] == [(name, 4) for name in names]


@pytest.mark.parametrize("checksum", [True, False])
async def test_from_the_start_of_every_event(tmp_path: Path, checksum: bool) -> None:
    log = mysql_log(checksum=checksum)
    log.transaction([1])
    log.transaction([2])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    stored = stored_events(path)
    async with serving(path) as server:
        for index, position in enumerate(log.ends):
            rotated, description, *events = await dumped(server, path.name, position)
            assert artificial_rotate(rotated)[1] == position
            assert events == stored[index + 1 :]
            # The description has no position, and no creation time, which would make a replica drop temporary tables.
            assert description[13:17] == bytes(4)
            assert description[19:71] == stored[0][19:71]
            assert description[71:75] == bytes(4)
            assert (description == stored[0][:13] + bytes(4) + stored[0][17:]) == (not checksum)


async def test_a_file_that_is_still_open_is_not_sent_as_such(tmp_path: Path) -> None:
    log = mysql_log()
    data = bytearray(log.data)
    data[4 + 17] |= 1
    path = tmp_path / "bin.000001"
    path.write_bytes(data)
    async with serving(path) as server:
        _, description, _ = await dumped(server)
    assert description == log.event(0)


@pytest.mark.parametrize("asked", ["'CRC32'", "@@global.binlog_checksum", "'NONE'"])
@pytest.mark.parametrize("checksum", [True, False])
async def test_checksums_of_artificial_events(tmp_path: Path, asked: str, checksum: bool) -> None:
    """The first ROTATE has a checksum if the replica asked for it, any other if the file before it has checksums."""
    first, second = mysql_log(checksum=checksum), mysql_log(checksum=not checksum)
    (tmp_path / "bin.000001").write_bytes(close(first, "bin.000002"))
    (tmp_path / "bin.000002").write_bytes(second.data)
    async with serving(str(tmp_path / "bin.*")) as server:
        asks = f"SET @master_binlog_checksum = {asked}, @source_binlog_checksum = {asked}"
        events = await dumped(server, "", 4, asks)
    sizes = [len(raw) - 27 - len("bin.000001") for raw in events if raw[17:19] == b"\x20\0"]
    newest = not checksum
    is_first = {"'CRC32'": True, "'NONE'": False, "@@global.binlog_checksum": newest}[asked]
    assert sizes == [4 * is_first, 4 * checksum]


async def test_a_replica_that_does_not_know_checksums(tmp_path: Path) -> None:
    for checksum in (True, False):
        path = tmp_path / f"bin.00000{int(checksum)}"
        path.write_bytes(mysql_log(checksum=checksum).data)
        async with serving(path) as server:
            if checksum:
                with pytest.raises(ServerError, match="can not handle replication events with the checksum"):
                    await dumped(server, "", 4, "SELECT 1")
            else:
                assert len(await dumped(server, "", 4, "SELECT 1")) == 3


# Refusals


async def test_files_that_there_are_not(tmp_path: Path) -> None:
    write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        for name in ("bin.000009", "../bin.000001", "nowhere", "bin.index"):
            with pytest.raises(BinlogNotFoundError, match=r"1236.*Could not find first log file name"):
                await dumped(server, name)
        assert rows_in(await dumped(server, "bin.000003")) == [5, 6]


async def test_positions_that_are_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    for make, word in ((mysql_log, "> file size"), (mariadb_log, "impossible position")):
        path.write_bytes(make().data)
        size = path.stat().st_size
        async with serving(path) as server:
            assert len(await dumped(server, path.name, size)) == 2
            for position in (size + 1, size + 1000, (1 << 32) - 1):
                with pytest.raises(PositionPastEndError, match=word):
                    await dumped(server, path.name, position)
            for position in (0, 3):
                with pytest.raises(replica.PositionError):
                    await dumped(server, path.name, position)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("mariadb", [True, False])
async def test_positions_inside_of_events(
    tmp_path: Path, checksum: bool, mariadb: bool, thorough: bool
) -> None:
    """Each position is refused with one of three texts, and no wrong event is sent before."""
    log = mariadb_log(checksum=checksum) if mariadb else mysql_log(checksum=checksum)
    log.transaction([1])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    texts = set()
    async with serving(path) as server:
        for position in sorted(set(range(5, len(log.data), 1 if thorough else 5)) - set(log.ends)):
            with pytest.raises(PositionInsideEventError) as caught:
                await dumped(server, path.name, position)
            text, _, place = caught.value.message.partition(";")
            assert f"the first event 'bin.000001' at {position}" in place
            texts.add(text)
    assert texts <= {
        "bogus data in log event",
        "log event entry exceeded max_allowed_packet",
        "binlog truncated in the middle of event",
    }
    assert len(texts) == 3


async def test_damage_in_the_middle(tmp_path: Path) -> None:
    log = mysql_log()
    log.transaction([1])
    data = bytearray(log.data)
    path = tmp_path / "bin.000001"
    for size, text in ((5, "bogus"), (0xFFFFFFFF, "bogus")):
        struct.pack_into("<I", data, log.offsets[3] + 9, size)
        path.write_bytes(data)
        async with serving(path) as server:
            with pytest.raises(ServerError, match=text):
                await dumped(server)


async def test_a_file_that_ends_inside_of_an_event_and_is_not_the_last(tmp_path: Path) -> None:
    write_mysql_files(tmp_path)
    path = tmp_path / "bin.000002"
    path.write_bytes(path.read_bytes()[:-3])
    async with serving(tmp_path) as server:
        with pytest.raises(ServerError, match="truncated in the middle of event"):
            await dumped(server)
        assert rows_in(await dumped(server, "bin.000003")) == [5, 6]
    path = tmp_path / "bin.000003"
    path.write_bytes(path.read_bytes()[:-3])
    async with serving(tmp_path) as server:
        assert rows_in(await dumped(server, "bin.000003")) == [5, 6]


# Following


def append(path: Path, data: bytes) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(data)


async def stream_rows(server: replica.server.BinlogServer, rows: list[int]) -> None:
    options = {"host": "127.0.0.1", "port": server.port, "user": "repl", "password": "pässword-1"}
    async with replica.connect(**options, start="earliest", tls="disabled") as stream:  # type: ignore[arg-type]
        async for event in stream:
            if isinstance(event, WriteRowsEvent):
                rows += [row[0] for row in event.rows]  # type: ignore[misc]


def has_rows(rows: list[int], number: int) -> bool:
    return len(rows) == number


async def test_files_that_grow_byte_by_byte(tmp_path: Path) -> None:
    """A waiting client gets every event as soon as it is complete, from file to file."""
    names = write_mysql_files(tmp_path)
    whole = {name: (tmp_path / name).read_bytes() for name in names}
    for name in names[1:]:
        (tmp_path / name).unlink()
    (tmp_path / names[0]).write_bytes(whole[names[0]][:200])
    write_index(tmp_path, names[0])
    rows: list[int] = []
    async with serving(tmp_path, poll_interval=0.0001) as server:
        following = asyncio.create_task(stream_rows(server, rows))
        for index, name in enumerate(names):
            if index:
                (tmp_path / name).touch()
                write_index(tmp_path, *names[: index + 1])
            for position in range((tmp_path / name).stat().st_size, len(whole[name])):
                append(tmp_path / name, whole[name][position : position + 1])
                await asyncio.sleep(0)
            await until(partial(has_rows, rows, 2 * index + 2))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert rows == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("flags", [0, DumpFlag.HEARTBEAT_V2])
@pytest.mark.parametrize("mariadb", [False, True])
async def test_heartbeats_name_the_end(tmp_path: Path, flags: int, mariadb: bool) -> None:
    path = tmp_path / "bin.000001"
    log = mariadb_log() if mariadb else mysql_log()
    path.write_bytes(log.data)
    async with serving(path) as server:
        asks = "SET @master_heartbeat_period = 20000000, @source_heartbeat_period = 20000000"
        async with logged_in(server, asks, CHECKSUM_ASKED) as session:
            session.start_dump("", 4, 77, flags)
            events: list[bytes] = []
            while len(events) < 6:
                events += await session.read_events(10)
    is_long = bool(flags) and not mariadb
    beats = events[3:6]
    assert kinds(beats) == [HEARTBEAT_V2 if is_long else HEARTBEAT] * 3
    assert len(set(beats)) == 1
    assert beats[0][13:17] == len(log.data).to_bytes(4, "little")
    assert path.name.encode() in beats[0]


async def test_no_heartbeats_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "bin.000001"
    path.write_bytes(mysql_log().data)
    async with serving(path) as server, logged_in(server, CHECKSUM_ASKED) as session:
        session.start_dump("", 4, 77, 0)
        while not any(one.is_waiting for one in server.replicas):
            await session.wait(0.01)
        with pytest.raises(replica.SourceSilentError):
            await read_for_ever(session, 0.2)


async def test_heartbeats_never_go_back_behind_a_rotate(tmp_path: Path) -> None:
    """A ROTATE is only sent once the file that it names has its first events: before, replicas stop (13122)."""
    log, second = mysql_log(), mysql_log()
    log.transaction([1])
    end = len(log.data)
    (tmp_path / "bin.000001").write_bytes(close(log, "bin.000002"))
    write_index(tmp_path, "bin.000001")
    asks = ["SET @master_heartbeat_period = 10000000", CHECKSUM_ASKED]
    async with serving(tmp_path) as server, logged_in(server, *asks) as session:
        session.start_dump("", 4, 77, 0)
        events: list[bytes] = []
        while kinds(events)[-3:] != [HEARTBEAT] * 3:
            events += await session.read_events(10)
        assert ROTATE not in kinds(events[1:])
        assert events[-1][13:17] == end.to_bytes(4, "little")
        (tmp_path / "bin.000002").write_bytes(second.data[:20])
        write_index(tmp_path, "bin.000001", "bin.000002")
        seen = len(events) + 3
        while len(events) < seen:
            events += await session.read_events(10)
        assert ROTATE not in kinds(events[1:])
        (tmp_path / "bin.000002").write_bytes(second.data)
        while kinds(events)[-2:] != [EventType.PREVIOUS_GTIDS, HEARTBEAT]:
            events += await session.read_events(10)
    found = kinds(events)
    first = found.index(ROTATE, 1)
    assert HEARTBEAT not in found[first:-1]
    assert found[first : first + 3] == [ROTATE, ROTATE, DESCRIPTION]
    assert b"bin.000002" in events[-1]
    # A client that does not wait gets the ROTATE at once.
    async with serving(tmp_path / "bin.000001") as server:
        assert kinds(await dumped(server))[-1] == ROTATE


async def test_files_that_are_removed_meanwhile(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    third = (tmp_path / names[2]).read_bytes()
    (tmp_path / names[2]).unlink()
    second = (tmp_path / names[1]).read_bytes()
    (tmp_path / names[1]).write_bytes(second[:300])
    write_index(tmp_path, *names[:2])
    async with serving(tmp_path) as server:
        async with logged_in(server, CHECKSUM_ASKED) as session:
            session.start_dump(names[1], 4, 77, 0)
            events = await session.read_events(10)
            await until(lambda: server.replicas[0].is_waiting)
            # The file is purged while it is sent: the file after it still comes next.
            append(tmp_path / names[1], second[300:])
            (tmp_path / names[1]).unlink()
            (tmp_path / names[2]).write_bytes(third)
            write_index(tmp_path, names[2])
            while rows_in(events) != [3, 4, 5, 6]:
                events += await session.read_events(10)
        assert (await dumped(server, names[2]))[2:] == stored_events(tmp_path / names[2])[1:]
        async with logged_in(server, CHECKSUM_ASKED) as session:
            session.start_dump(names[2], 4, 77, 0)
            await session.read_events(10)
            (tmp_path / "bin.000005").write_bytes(third)
            write_index(tmp_path, "bin.000005")
            with pytest.raises(ServerError, match="could not find next log"):
                await read_for_ever(session)


# Replicas


@pytest.mark.parametrize("mariadb", [False, True])
async def test_replicas_of_the_same_identity(tmp_path: Path, mariadb: bool) -> None:
    """MySQL compares uuids, and ids if there are no uuids; MariaDB compares ids."""
    path = tmp_path / "bin.000001"
    log = mariadb_log() if mariadb else mysql_log()
    path.write_bytes(log.data)
    set_uuid = "SET @slave_uuid = '{0}', @replica_uuid = '{0}'"
    cases = [
        # uuids, ids, whether they are duplicates
        (("u1", "u1"), (5, 5), True),
        (("u1", "u2"), (5, 5), mariadb),
        (("u1", "u1"), (5, 6), not mariadb),
        (("", ""), (5, 5), True),
        (("", "u1"), (5, 5), mariadb),
        (("", ""), (5, 6), False),
    ]
    async with serving(path) as server:
        for uuids, ids, are_twins in cases:
            statements = [[set_uuid.format(uuid)] if uuid else [] for uuid in uuids]
            async with logged_in(server, CHECKSUM_ASKED, *statements[0]) as older:
                older.start_dump("", 4, ids[0], 0)
                await older.read_events(10)
                async with logged_in(server, CHECKSUM_ASKED, *statements[1]) as newer:
                    newer.start_dump("", 4, ids[1], 0)
                    assert len(await newer.read_events(10)) > 0
                    if are_twins:
                        with pytest.raises(DuplicateReplicaError, match="same server_uuid") as caught:
                            await read_for_ever(older)
                        assert caught.value.code == (4052 if mariadb else 1236)
                    assert len(server.replicas) == 2 - are_twins
            await until(lambda: not server.replicas)


async def test_what_does_not_wait_has_no_twin(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server:
        found = await asyncio.gather(*(dumped(server, names[2]) for _ in range(5)))
        assert [rows_in(events) for events in found] == [[5, 6]] * 5


async def test_a_replica_is_forgotten_when_its_dump_ends(tmp_path: Path) -> None:
    names = write_mysql_files(tmp_path)
    async with serving(tmp_path) as server, logged_in(server, CHECKSUM_ASKED) as session:
        session.start_dump(names[2], 4, 0, 0)
        while await session.read_events(10):
            pass
        await until(lambda: not server.replicas)


async def test_semi_sync_acknowledgements(tmp_path: Path) -> None:
    """The replica is asked after each transaction; packet numbers start again there."""
    log = mysql_log()
    for number in (1, 2, 3):
        log.transaction([number], sequence=number)
    log.statement("CREATE TABLE t (a INT)")
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    asks = ["SET @rpl_semi_sync_replica = 1, @rpl_semi_sync_slave = 1", CHECKSUM_ASKED]
    async with serving(path, semi_sync=True) as server, logged_in(server, *asks) as session:
        assert await session.query_value("SELECT @@global.rpl_semi_sync_source_enabled") == "1"
        session._connection.semi_sync = True
        session.start_dump("", 4, 77, 0)
        events: list[bytes] = []
        asked: list[EventType] = []
        while len(asked) < 4:
            events += await session.read_events(10)
            if session._connection.ack_requested:
                asked.append(EventType(events[-1][4]))
                position = int.from_bytes(events[-1][13:17], "little")
                session._connection.send_semi_sync_ack(path.name, position)
                session._flush()
        assert asked == [EventType.XID] * 3 + [EventType.QUERY]
        assert rows_in(events) == [1, 2, 3]
        [connected] = server.replicas
        await until(lambda: connected.acknowledged == BinlogPosition(path.name, len(log.data)))
    async with serving(path) as server, logged_in(server, *asks) as session:
        with pytest.raises(ServerError, match="Unknown system variable"):
            await session.query("SELECT @@global.rpl_semi_sync_source_enabled")
        session.start_dump("", 4, 0, 0)
        assert len(await session.read_events(10)) > 5


@pytest.mark.parametrize(("kind", "body"), [(99, bytes(30)), (EventType.QUERY, bytes(3))])
async def test_a_semi_sync_dump_has_events_that_the_server_cannot_read(
    tmp_path: Path, kind: EventType, body: bytes
) -> None:
    """It ended there without an error, and did so each time; other dumps leave them to the replica."""
    log = mysql_log()
    log.transaction([1], sequence=1)
    log.add(kind, body)
    log.transaction([2], sequence=2)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    asks = ["SET @rpl_semi_sync_replica = 1", CHECKSUM_ASKED]
    async with serving(path, semi_sync=True) as server, logged_in(server, *asks) as session:
        session.expect_semi_sync()
        session.start_dump("", 4, 0, 0)
        events: list[bytes] = []
        while batch := await session.read_events(10):
            events += batch
    assert events[2:] == stored_events(path)[1:]


async def test_annotations_for_all(tmp_path: Path) -> None:
    """If ANNOTATE_ROWS were skipped, a replica could not resume: the events after it have no positions."""
    log = mariadb_log()
    log.add(EventType.MARIADB_ANNOTATE_ROWS, b"INSERT INTO t VALUES (1)")
    mariadb_transaction(log, 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    capable = "SET @mariadb_slave_capability = 4, @master_binlog_checksum = 'CRC32'"
    async with serving(path) as server:
        for flags in (0, DumpFlag.MARIADB_ANNOTATE_ROWS):
            events = await dumped(server, "", 4, capable, flags=flags)
            assert EventType.MARIADB_ANNOTATE_ROWS in kinds(events)


async def test_large_events_arrive_whole(tmp_path: Path) -> None:
    log = mysql_log()
    log.add(EventType.ROWS_QUERY, b"\0" + b"x" * (40 << 20))
    log.transaction([1])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        assert (await dumped(server))[2:] == stored_events(path)[1:]


async def test_many_readers_at_once(tmp_path: Path) -> None:
    log = mysql_log()
    for number in range(2000):
        log.transaction([number], sequence=number + 1)
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        found = await asyncio.gather(*(dumped(server) for _ in range(10)))
    assert all(rows_in(events) == list(range(2000)) for events in found)


async def test_old_logs_without_gtid_lists(tmp_path: Path) -> None:
    log = LogBuilder(version="5.5.62", checksum=False)
    log.transaction([7])
    path = tmp_path / "bin.000001"
    path.write_bytes(log.data)
    async with serving(path) as server:
        options = options_for(server, start="earliest", stop="now")
        async with replica.BinlogStream(options) as stream:
            rows = [event.rows async for event in stream if isinstance(event, WriteRowsEvent)]
    assert rows == [[(7,)]]
