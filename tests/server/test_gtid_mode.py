"""gtid_mode that is turned off and on again: no transaction that was logged without a GTID meanwhile is passed over.

A source that is asked by GTIDs begins with the newest file before which all GTIDs are known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import PositionError, SourceChangedError
from replica import BinlogStream, Checkpoint
from replica.config.options import Options
from replica.spool.live_log import LiveLog
from replica.spool.offsets import Offset
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import GTID, start_of, stream_through
from tests.server.support.streams import SECONDS, end_of_log, executed, stream_of
from tests.support.servers import Server

_OFF = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")
_ON = ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


@pytest.fixture
def source(extra_server: Callable[..., Server]) -> Server:
    server = extra_server("mysql:9.7")
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    return server


def insert(source: Server, *numbers: int) -> None:
    for number in numbers:
        source.query(f"INSERT INTO shop.t VALUES ({number})")


def turn(source: Server, modes: tuple[str, ...]) -> None:
    for mode in modes:
        source.query(f"SET GLOBAL gtid_mode = {mode}")


async def take(stream: BinlogStream, count: int) -> tuple[list[int], Checkpoint]:
    """The rows of so many transactions with rows, and the place behind them."""
    found: list[int] = []
    async with asyncio.timeout(SECONDS):
        async for transaction in stream.transactions():
            found += [change.after["id"] async for change in transaction if change.after is not None]
            if len(found) >= count:
                break
    return found, transaction.checkpoint


async def test_a_checkpoint_behind_which_gtids_were_off_for_a_while(source: Server) -> None:
    """Rows 2 and 3 were missing without an error. The remedy of the error brings them."""
    async with stream_of(source, start=start_of(source, GTID), tables="shop.t") as stream:
        insert(source, 1)
        found, checkpoint = await take(stream, 1)
        assert found == [1]
    source.query("FLUSH BINARY LOGS")
    async with stream_of(source, start=checkpoint, tables="shop.t") as stream:
        insert(source, 10)
        found, checkpoint = await take(stream, 1)
        assert found == [10]
    turn(source, _OFF)
    insert(source, 2, 3)
    turn(source, _ON)
    insert(source, 4)
    with pytest.raises(PositionError, match="gtid_mode = ON_PERMISSIVE"):
        async with stream_of(source, start=checkpoint, tables="shop.t") as stream:
            await take(stream, 1)
    source.query("SET GLOBAL gtid_mode = ON_PERMISSIVE")
    async with stream_of(source, start=checkpoint, tables="shop.t") as stream:
        found, _ = await take(stream, 3)
        assert found == [2, 3, 4]


async def test_a_connection_during_whose_loss_gtids_were_off(source: Server) -> None:
    async with FaultProxy(source.port) as proxy:
        stream = stream_through(proxy, source, start=start_of(source, GTID), tables="shop.t")
        async with stream:
            insert(source, 1)
            assert (await take(stream, 1))[0] == [1]
            proxy.black_hole()
            proxy.cut_now()
            waiting = asyncio.create_task(take(stream, 1))
            turn(source, _OFF)
            insert(source, 2, 3)
            turn(source, _ON)
            insert(source, 4)
            proxy.serve()
            with pytest.raises(PositionError, match="gtid_mode was not ON for a while"):
                await waiting


async def test_a_stream_by_position_that_is_among_transactions_without_gtids(source: Server) -> None:
    """Its checkpoint names no GTID set until a transaction with a GTID comes: row 3 was missing without an error."""
    source.query("FLUSH BINARY LOGS")
    async with stream_of(source, start=end_of_log(source), tables="shop.t") as stream:
        source.query("FLUSH BINARY LOGS")
        insert(source, 1)
        found, checkpoint = await take(stream, 1)
        assert (found, checkpoint.gtid_set) == ([1], str(start_of(source, GTID)))
        turn(source, _OFF)
        insert(source, 2)
        found, among = await take(stream, 1)
        assert (found, among.gtid_set) == ([2], None)
        source.query("FLUSH BINARY LOGS")
        insert(source, 3)
        assert (await take(stream, 1))[0] == [3]
        turn(source, _ON)
        insert(source, 4)
        found, checkpoint = await take(stream, 1)
        assert (found, checkpoint.gtid_set) == ([4], str(start_of(source, GTID)))
    with pytest.raises(PositionError):
        async with stream_of(source, start=among, tables="shop.t") as stream:
            await take(stream, 1)


def read_to_end(server: Server, folder: Path, start: Offset | None = None) -> Offset:
    """Spark's intake up to the present end of the log."""
    log = LiveLog(Options.build(server.dsn(), {"heartbeat": 1, "tls": "disabled"}), str(folder))
    try:
        log.follow(start or log.find("latest"), is_new=start is None)
        log.wait_until(log.end(), SECONDS)
        return log.take(None, None, SECONDS)
    finally:
        log.close()


async def test_an_offset_of_spark_among_transactions_without_gtids(
    source: Server, extra_server: Callable[..., Server], tmp_path: Path
) -> None:
    """It named the GTIDs before, and another server passes over what has none: row 3 was missing without an error."""
    replica = extra_server("mysql:9.7")
    replica.query("SET GLOBAL gtid_purged = CONCAT('+', %s)", executed(source))
    replica.query("CREATE DATABASE shop")
    replica.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")
    before = await asyncio.to_thread(read_to_end, source, tmp_path / "spool")
    assert before.gtid_set == executed(source)
    for server in (source, replica):
        turn(server, _OFF)
        insert(server, 2)
    among = await asyncio.to_thread(read_to_end, source, tmp_path / "spool", before)
    assert among.key > before.key
    for server in (source, replica):
        insert(server, 3)
        server.query("FLUSH BINARY LOGS")
        turn(server, _ON)
        insert(server, 4)
    with pytest.raises(SourceChangedError, match="without a GTID set to find it on another server"):
        await asyncio.to_thread(read_to_end, replica, tmp_path / "other", among)
