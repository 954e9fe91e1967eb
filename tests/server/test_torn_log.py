"""A source that was killed while it wrote an event: the file of its log ends within the event."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import replica
from protocol.constants import EventType
from replica import BinlogPosition, BinlogStream
from replica.config.options import Options
from replica.relay import BinlogRelay
from replica.spool.live_log import LiveLog
from tests.faults import container
from tests.faults.waiting import until
from tests.server.support.streams import SECONDS, end_of_log, stream_of
from tests.support.servers import Server

_FOLDER = "/var/lib/mysql"
# Fast reconnects; the source is down for seconds.
_POLICY = replica.ReconnectPolicy(initial=0.05, maximum=0.2)


def torn_transaction(log: bytes) -> bytes:
    """The last transaction of a log again, behind its end, but for the end of its last event."""
    events: list[bytes] = []
    position = 4
    while position < len(log):
        size = int.from_bytes(log[position + 9 : position + 13], "little")
        events.append(log[position : position + size])
        position += size
    begin = max(number for number, event in enumerate(events) if event[4] == EventType.MARIADB_GTID)
    moved = bytearray()
    for event in events[begin:]:
        end = struct.pack("<I", len(log) + len(moved) + len(event))
        body = event[:13] + end + event[17:-4]
        moved += body + struct.pack("<I", zlib.crc32(body))
    return bytes(moved[:-8])


def crash(server: Server, size: int | None = None) -> str:
    """Kill the server, and let the newest file of its log end within an event. Returns the file.

    ``size``: so many bytes of the transaction are there; else all but some of its last event.
    """
    file = str(server.query("SHOW MASTER STATUS")[0][0])
    container.kill(server, stays_down=True)
    torn = torn_transaction(server.exec("cat", f"{_FOLDER}/{file}"))
    text = base64.b64encode(torn[:size]).decode()
    server.exec("bash", "-c", f"echo {text} | base64 -d >> {_FOLDER}/{file}")
    container.start(server)
    return file


def insert(server: Server, schema: str, *numbers: int) -> None:
    for number in numbers:
        server.query(f"INSERT INTO {schema}.t VALUES ({number})")


async def committed(stream: BinlogStream, last: int) -> list[int]:
    """The rows of committed transactions up to this one."""
    found: list[int] = []
    async for tx in stream.transactions():
        changes = [change async for change in tx]
        if tx.outcome == "commit":
            found += [
                value for change in changes if change.after is not None for value in change.after.values()
            ]
        if last in found:
            break
    return found


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("mariadb:11.8", "file"),
        ("mariadb:11.8", "GTIDs"),
        ("mariadb:11.8", "middle"),
        ("mariadb:10.11", "file"),
    ],
)
async def test_the_stream_goes_on_with_the_next_file(
    supervised_server: Callable[..., Server], name: str, begins: str
) -> None:
    """MariaDB does not cut the event off, and each dump by position ended there with error 1236."""
    server = supervised_server(name)
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        server.query("FLUSH BINARY LOGS")
        insert(server, schema, 1)
        file, position = server.query("SHOW MASTER STATUS")[0][:2]
        starts: dict[str, Any] = {
            "file": BinlogPosition(str(file), 4),
            "GTIDs": replica.MariadbGtidSet(str(server.query("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])),
            "middle": BinlogPosition(str(file), int(position)),
        }
        first = 1 if begins == "file" else 2
        options: dict[str, Any] = {"tables": f"{schema}.t", "start": starts[begins], "reconnect": _POLICY}
        async with asyncio.timeout(SECONDS), stream_of(server, **options) as stream:
            insert(server, schema, 2, 3)
            assert await committed(stream, 3) == list(range(first, 4))
            torn = await asyncio.to_thread(crash, server)
            insert(server, schema, 4, 5)
            assert await committed(stream, 5) == [4, 5]
            await stream.acknowledge()
            assert stream.checkpoint is not None
            assert stream.checkpoint.file > torn
            # By GTIDs it is passed over, by position it was seen.
            assert stream.status.reconnects >= 1 + (begins != "GTIDs")


@pytest.mark.parametrize("size", [3, 25])
@pytest.mark.parametrize("is_running", [True, False])
async def test_the_first_event_of_a_transaction_is_torn(
    supervised_server: Callable[..., Server], tmp_path: Path, size: int, is_running: bool
) -> None:
    """Events cannot be shown there, as within an event: a stream by GTIDs took the log for another one."""
    server = supervised_server("mariadb:11.8")
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        store = replica.FileCheckpointStore(tmp_path / "checkpoint")
        options: dict[str, Any] = {"start": "now", "checkpoints": store, "reconnect": _POLICY}
        async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.t", **options) as stream:
            insert(server, schema, 1)
            assert await committed(stream, 1) == [1]
            await stream.acknowledge()
            if is_running:
                await asyncio.to_thread(crash, server, size)
                insert(server, schema, 2)
                assert await committed(stream, 2) == [2]
        if not is_running:
            await asyncio.to_thread(crash, server, size)
            insert(server, schema, 2)
            async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.t", **options) as stream:
                assert await committed(stream, 2) == [2]


def rows_in(folder: Path) -> list[int]:
    found: list[int] = []
    with replica.open_binlog(sorted(map(str, folder.glob("binlog.0*")))) as log:
        for tx in log.transactions():
            changes = list(tx)
            if tx.outcome == "commit":
                found += [int(change.after["id"]) for change in changes if change.after is not None]
    return found


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_relay_goes_on_with_the_next_file(
    supervised_server: Callable[..., Server], tmp_path: Path, is_running: bool
) -> None:
    """It ended with error 1236, whether it ran when the source was killed, or began to copy the file later."""
    server = supervised_server("mariadb:11.8")
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        insert(server, schema, 1)
        end = end_of_log(server)
        relay = BinlogRelay(server.dsn(), tmp_path, reconnect=_POLICY)
        running = asyncio.create_task(relay.run()) if is_running else None
        if is_running:
            await until(lambda: relay.position == end)
        torn = await asyncio.to_thread(crash, server)
        insert(server, schema, 2, 3)
        if running is not None:
            await until(lambda: running.done() or (relay.position is not None and relay.position.file > torn))
            await relay.aclose()
            await running
        async with asyncio.timeout(SECONDS):
            await BinlogRelay(server.dsn(), tmp_path, reconnect=_POLICY, once=True).run()
        assert rows_in(tmp_path) == [1, 2, 3]


def test_sparks_intake_goes_on_with_the_next_file(
    supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = supervised_server("mariadb:11.8")
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        options = Options.build(server.dsn(), {"heartbeat": 1, "reconnect": _POLICY})
        with closing(LiveLog(options, str(tmp_path))) as log:
            start = log.find("latest")
            log.follow(start)
            insert(server, schema, 1)
            log.wait_until(log.end(), SECONDS)
            crash(server)
            insert(server, schema, 2, 3)
            end = log.end()
            log.wait_until(end, SECONDS)
            assert log.has_reached(end)


@pytest.mark.parametrize("name", ["mariadb:11.8", "mariadb:10.11"])
@pytest.mark.parametrize("begins", ["file", "earliest"])
async def test_a_stream_begins_before_the_torn_event(
    supervised_server: Callable[..., Server], name: str, begins: str
) -> None:
    """Names are found by reading the log's DDL from there, over the torn event."""
    server = supervised_server(name)
    with server.fresh_schema() as schema:
        server.query("FLUSH BINARY LOGS")
        file = str(server.query("SHOW MASTER STATUS")[0][0])
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        insert(server, schema, 1)
        torn = await asyncio.to_thread(crash, server)
        assert torn == file
        server.query(f"ALTER TABLE {schema}.t ADD b INT DEFAULT 7 FIRST")
        server.query(f"INSERT INTO {schema}.t VALUES (7, 2)")
        start = BinlogPosition(file, 4) if begins == "file" else begins
        found: list[Any] = []
        options: dict[str, Any] = {"tables": f"{schema}.t", "start": start, "reconnect": _POLICY}
        async with asyncio.timeout(SECONDS), stream_of(server, **options, stop="now") as stream:
            async for tx in stream.transactions():
                rows = [change.after async for change in tx]
                found += rows if tx.outcome == "commit" else []
        assert found == [{"id": 1}, {"b": 7, "id": 2}]


@pytest.mark.parametrize("begins", ["file", "GTIDs"])
async def test_an_event_that_is_damaged_elsewhere_is_an_error(
    supervised_server: Callable[..., Server], begins: str
) -> None:
    """Transactions lie behind it in its file, so the next file must not follow.

    By GTIDs a BINLOG_CHECKPOINT event came again with each dump, and counted as news: there was no end of trying.
    """
    server = supervised_server("mariadb:11.8")
    with server.fresh_schema() as schema:
        server.query(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)")
        server.query("FLUSH BINARY LOGS")
        file = str(server.query("SHOW MASTER STATUS")[0][0])
        before = replica.MariadbGtidSet(str(server.query("SELECT @@GLOBAL.gtid_binlog_pos")[0][0]))
        insert(server, schema, 1)
        damaged = int(server.query("SHOW MASTER STATUS")[0][1])
        insert(server, schema, 2)
        server.query("FLUSH BINARY LOGS")
        insert(server, schema, 3)
        # The event that begins the second transaction says that it has 16 MB.
        text = f"printf '\\001' | dd of={_FOLDER}/{file} bs=1 seek={damaged + 12} conv=notrunc"
        server.exec("bash", "-c", text)
        start: Any = BinlogPosition(file, 4) if begins == "file" else before
        options: dict[str, Any] = {"start": start, "reconnect": _POLICY}
        async with asyncio.timeout(SECONDS), stream_of(server, tables=f"{schema}.t", **options) as stream:
            with pytest.raises(replica.ReplicaError):
                await committed(stream, 3)
            assert stream.checkpoint is not None
            assert (stream.checkpoint.file, stream.checkpoint.position) == (file, damaged)
