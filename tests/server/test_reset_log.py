"""A source's log that was reset between two runs, so that its GTIDs are given anew: streams and Spark's intake.

A GTID set alone does not tell: the consumer would go on with the transactions behind those that it has by name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import replica as library
from protocol.errors import ServerError, SourceChangedError
from replica.config.options import Options
from replica.spool.live_log import LiveLog
from replica.spool.offsets import Offset
from tests.faults import container
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import take_rows
from tests.support.servers import Server

WAIT = 30
GTIDS = ("--gtid-mode=ON", "--enforce-gtid-consistency=ON")
NO_GTIDS = ("--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


def reset(server: Server) -> None:
    server.query(server.reset_log)


def fill(server: Server, first: int, count: int, text: str = "x") -> None:
    for number in range(first, first + count):
        server.query(f"INSERT INTO w.t VALUES ({number}, '{text}')")


def reset_server(server: Server) -> None:
    """An empty table, and a log that begins with it."""
    server.query("DROP DATABASE IF EXISTS w")
    reset(server)
    server.query("CREATE DATABASE w")
    server.query("CREATE TABLE w.t (id INT PRIMARY KEY, v VARCHAR(99))")


def live(server: Server, folder: Path) -> LiveLog:
    return LiveLog(Options.build(server.dsn(), {"heartbeat": 1, "tls": "disabled"}), str(folder))


def read_to_end(server: Server, folder: Path, start: Offset | None = None) -> Offset:
    log = live(server, folder)
    try:
        log.follow(start or log.find("earliest"), is_new=start is None)
        log.wait_until(log.end(), WAIT)
        offset = log.take(None, None, WAIT)
        log.commit(offset)
    finally:
        log.close()
    return offset


async def ids_behind(server: Server, store: library.FileCheckpointStore) -> list[int]:
    found: list[Any] = []
    async with library.connect(
        server.dsn(), tls="disabled", start="earliest", stop="now", checkpoints=store
    ) as stream:
        async for event in stream:
            if isinstance(event, library.WriteRowsEvent):
                found += [row[0] for row in event.rows]
    return found


@pytest.mark.parametrize("name", ["mysql:9.7", "mariadb:11.8", "mariadb:10.11", "mysql:5.6"])
async def test_a_stream_from_its_checkpoint(
    name: str, extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    arguments = {"mysql:9.7": GTIDS, "mysql:5.6": (*GTIDS, "--log-slave-updates")}
    server = extra_server(name, *arguments.get(name, ()))
    store = library.FileCheckpointStore(tmp_path / "checkpoint")
    reset_server(server)
    fill(server, 0, 5)

    ids = partial(ids_behind, server, store)
    assert await ids() == [0, 1, 2, 3, 4]
    # Going on is right, also in the next file, and after the first one was purged.
    fill(server, 5, 1)
    server.query("FLUSH LOGS")
    assert await ids() == [5]
    fill(server, 6, 1)
    assert await ids() == [6]
    # The place is in no file any more.
    reset_server(server)
    fill(server, 10, 30)
    with pytest.raises(SourceChangedError, match=r"is not the one that was read up to .*copy the data again"):
        await ids()
    # The place is within an event.
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint.schemas").unlink()
    assert len(await ids()) == 30
    reset_server(server)
    fill(server, 10, 50, "longer")
    with pytest.raises(SourceChangedError, match="is not the one"):
        await ids()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mysql:9.7", GTIDS),
        ("mysql:9.7", NO_GTIDS),
        ("mariadb:11.8", ()),
        ("mariadb:10.11", ()),
        ("mysql:5.6", (*GTIDS, "--log-slave-updates")),
        ("mysql:5.6", ()),
    ],
)
async def test_the_new_log_has_a_transaction_at_the_place(
    name: str, arguments: tuple[str, ...], supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Events of the same sizes. The place fits both logs, and so does the GTID set: the file's age tells."""
    server = supervised_server(name, *arguments)
    store = library.FileCheckpointStore(tmp_path / "checkpoint")
    reset_server(server)
    fill(server, 0, 5)
    assert await ids_behind(server, store) == [0, 1, 2, 3, 4]
    before = store.load()
    assert before is not None
    assert before.file_begun
    # Going on is right, also from what an older release has stored.
    fill(server, 5, 1)
    assert await ids_behind(server, store) == [5]
    fill(server, 6, 1)
    store.save(replace(before, file_begun=None))
    assert await ids_behind(server, store) == [5, 6]
    store.save(before)
    container.restart(server, "TERM")
    fill(server, 7, 1)
    assert await ids_behind(server, store) == [5, 6, 7]
    for count, rotates in ((30, False), (30, True), (5, True)):
        # The file with the place is the newest one of the new log, or is not; or the place is at its end, and the
        # dump begins with the next file.
        store.save(before)
        reset_server(server)
        fill(server, 10, count)
        if rotates:
            server.query("FLUSH LOGS")
        fill(server, 50, 1)
        with pytest.raises(
            SourceChangedError, match=r"is not the one that was read up to .*copy the data again"
        ):
            await ids_behind(server, store)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mysql:9.7", GTIDS),
        ("mariadb:11.8", ()),
        ("mariadb:10.11", ()),
        ("mysql:5.6", (*GTIDS, "--log-slave-updates")),
    ],
)
async def test_under_a_running_stream(
    name: str, arguments: tuple[str, ...], extra_server: Callable[..., Server]
) -> None:
    """The dump ends, or is silent, and the next one would leave out the transactions with known GTIDs."""
    server = extra_server(name, *arguments)
    reset_server(server)
    fill(server, 0, 5)
    seen: list[int] = []

    async def consume() -> None:
        async with library.connect(server.dsn(), tls="disabled", start="now", heartbeat=1) as stream:
            async for event in stream:
                if isinstance(event, library.WriteRowsEvent):
                    seen.extend(number for number, *_ in event.rows if isinstance(number, int))

    async with asyncio.timeout(WAIT):
        consuming = asyncio.create_task(consume())
        while not seen:
            # The stream begins at some time.
            await asyncio.to_thread(fill, server, 5 + len(server.query("SELECT id FROM w.t")), 1)
            await asyncio.sleep(0.2)
        known = len(seen)
        # The time in a format description has seconds.
        await asyncio.sleep(1.1)
        await asyncio.to_thread(reset, server)
        await asyncio.to_thread(fill, server, 100, 30)
        # MySQL 5.6 has nothing to send from the file that is gone, and says so with heartbeats.
        await asyncio.to_thread(container.kill_dumps, server)
        # MySQL 9.7 tells the dump that it cannot read the log.
        with pytest.raises((SourceChangedError, ServerError), match=r"is not the one that was read|1236"):
            await consuming
    assert len(seen) <= known + 1
    assert max(seen) < 100


async def test_mysqls_heartbeats_may_stand_within_a_known_transaction(
    extra_server: Callable[..., Server],
) -> None:
    """The checkpoint of a stream that ended then is right: its GTID set has the transaction."""
    server = extra_server("mysql:9.7", *GTIDS)
    reset_server(server)
    fill(server, 0, 3)
    async with library.connect(server.dsn(), tls="disabled", start="now") as stream:
        known = stream.checkpoint
    assert known is not None
    fill(server, 3, 1)
    events = server.query("SHOW BINLOG EVENTS")
    places = [row[1] for row in events if row[2] in ("Query", "Table_map", "Write_rows", "Xid")]
    assert len(places) > 12
    for place in places:
        start = replace(known, file=events[0][0], position=place)
        found: list[Any] = []
        async with library.connect(server.dsn(), tls="disabled", start=start, stop="now") as stream:
            async for event in stream:
                if isinstance(event, library.WriteRowsEvent):
                    found += event.rows
        assert found == [(3, "x")]


@pytest.mark.parametrize("name", ["mysql:9.7", "mariadb:11.8"])
def test_spark_goes_on(name: str, extra_server: Callable[..., Server], tmp_path: Path) -> None:
    server = extra_server(name, *(GTIDS if name == "mysql:9.7" else ()))
    reset_server(server)
    fill(server, 10, 5)
    offset = read_to_end(server, tmp_path / "spool")
    for again in range(2):
        # With and without what the spool has of the last event.
        fill(server, 15 + again, 1)
        after = read_to_end(server, tmp_path / ("spool" if again else "other"), offset)
        assert after.key > offset.key
    # Events of the same sizes: the spool has the event before the offset, and the source another one there.
    reset_server(server)
    fill(server, 20, 30)
    with pytest.raises(SourceChangedError, match="another event than before stands at"):
        read_to_end(server, tmp_path / "spool", replace(after, file_begun=None))
    # The place is in no file any more.
    reset_server(server)
    server.query("FLUSH BINARY LOGS")
    fill(server, 0, 5)
    offset = read_to_end(server, tmp_path / "third")
    reset_server(server)
    fill(server, 10, 30)
    for folder in ("third", "fourth"):
        with pytest.raises(SourceChangedError, match="is not the one that was read up to"):
            read_to_end(server, tmp_path / folder, offset)


def test_spark_by_positions(extra_server: Callable[..., Server], tmp_path: Path) -> None:
    """Without GTIDs a log that lost its end is found by the last event, another server by its server_uuid."""
    server = extra_server("mysql:9.7", *NO_GTIDS)
    reset_server(server)
    fill(server, 0, 5)
    offset = read_to_end(server, tmp_path / "spool")
    assert offset.gtid_set is None
    fill(server, 5, 1)
    offset = read_to_end(server, tmp_path / "spool", offset)
    reset_server(server)
    fill(server, 10, 30)
    with pytest.raises(SourceChangedError, match="another event than before stands at"):
        read_to_end(server, tmp_path / "spool", replace(offset, file_begun=None))
    other = replace(offset, server_uuid="11111111-2222-3333-4444-555555555555")
    with pytest.raises(SourceChangedError, match="a position in the log of 11111111-"):
        read_to_end(server, tmp_path / "other", other)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("mysql:9.7", GTIDS), ("mysql:9.7", NO_GTIDS), ("mariadb:11.8", ())],
    ids=["mysql", "mysql without GTIDs", "mariadb"],
)
@pytest.mark.parametrize("rotates", [False, True], ids=["the newest file", "an older file"])
def test_spark_on_another_machine_finds_a_transaction_at_the_place(
    name: str, arguments: tuple[str, ...], rotates: bool, extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    """Events of the same sizes, and no spool that has the old ones: five rows were missing without an error."""
    server = extra_server(name, *arguments)
    reset_server(server)
    fill(server, 0, 5)
    offset = read_to_end(server, tmp_path / "spool")
    assert Offset.from_dict(offset.to_dict()).file_begun == offset.file_begun is not None
    # Going on is right, also from the offset of an older release, which has no such key.
    fill(server, 5, 1)
    older = replace(offset, file_begun=None)
    assert "file_begun" not in older.to_dict()
    for start in (offset, older):
        assert read_to_end(server, tmp_path / f"other-{start.file_begun}", start).key > offset.key
    # The time in a format description has seconds.
    time.sleep(1.1)
    reset_server(server)
    fill(server, 10, 6)
    if rotates:
        server.query("FLUSH BINARY LOGS")
    with pytest.raises(SourceChangedError, match=r"is not the one that was read up to .*copy the data again"):
        read_to_end(server, tmp_path / "third", offset)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_log_files_get_another_name(is_restarted: bool, extra_server: Callable[..., Server]) -> None:
    """As if a server's log_bin were changed: the error told of lost transactions, or of places without an order."""
    before, after = (
        extra_server("mariadb:11.8", "--server-id=77", f"--log-bin={name}") for name in ("binlog", "newlog")
    )
    for server in (before, after):
        reset_server(server)
    async with asyncio.timeout(WAIT), FaultProxy(before.port) as proxy:
        first = stream_through(proxy, before, start="now", tables="w.*")
        with pytest.raises(SourceChangedError, match=r"newlog\.000001 after binlog"):
            await _read_on(first, before, proxy, after, is_restarted=is_restarted)


async def _read_on(
    stream: library.BinlogStream, before: Server, proxy: FaultProxy, after: Server, *, is_restarted: bool
) -> None:
    async with stream:
        fill(before, 1, 1)
        assert await take_rows(stream, 1) == [(1, "x")]
        while not isinstance(await anext(stream), library.XidEvent):
            pass
        await stream.acknowledge()
        proxy.retarget(after.port)
        if is_restarted:
            async with stream_through(proxy, after, start=stream.checkpoint) as again:
                await anext(again)
        proxy.cut_now()
        await anext(stream)
