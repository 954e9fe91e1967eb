"""The dump on real servers: both commands, how the source lists us, checksums, heartbeats, rotation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import replica
from replica import BinlogPosition, RotateEvent
from tests.faults.waiting import until
from tests.support.servers import Server

from .support.streams import MARIADB, MYSQL, SECONDS, end_of_log, executed, stream_of, take_rows, user_of


def dump_threads(server: Server, user: str) -> list[str]:
    """The dumps of a user of this test alone: a source notices late that the replica of another test has gone."""
    rows = server.query("SHOW PROCESSLIST")
    return [command for _, name, _, _, command, *_ in rows if name == user and "Binlog" in command]


def fill(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES (1), (2)")


async def test_by_position(server: Server, schema: str) -> None:
    start = end_of_log(server)
    fill(server, schema)
    with user_of(server) as user:
        async with stream_of(server, user, start=start, tables=f"{schema}.*") as stream:
            assert await take_rows(stream, 2) == [(1,), (2,)]
            # The dump that was read for statements may take a moment to end.
            await until(lambda: dump_threads(server, user) == ["Binlog Dump"])
            server.query(f"INSERT INTO {schema}.t VALUES (3)")
            assert await take_rows(stream, 1) == [(3,)]


@pytest.mark.parametrize("server", MYSQL, indirect=True)
async def test_by_gtid(server: Server, schema: str) -> None:
    start = executed(server)
    fill(server, schema)
    with user_of(server) as user:
        async with stream_of(server, user, start=start, tables=f"{schema}.*") as stream:
            assert await take_rows(stream, 2) == [(1,), (2,)]
            await until(lambda: dump_threads(server, user) == ["Binlog Dump GTID"])
            server.query(f"INSERT INTO {schema}.t VALUES (3)")
            assert await take_rows(stream, 1) == [(3,)]


@pytest.mark.parametrize("server", MARIADB, indirect=True)
async def test_by_mariadb_gtid(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    start = executed(server)
    for number in (1, 2):
        server.query(f"INSERT INTO {schema}.t VALUES ({number})")
    async with stream_of(server, start=start, tables=f"{schema}.*") as stream:
        assert await take_rows(stream, 2) == [(1,), (2,)]
        server.query(f"INSERT INTO {schema}.t VALUES (3)")
        assert await take_rows(stream, 1) == [(3,)]
        assert stream.checkpoint is not None
        assert stream.checkpoint.gtid_set is not None


async def test_gtids_lead_to_the_same_rows_as_positions(server: Server, schema: str) -> None:
    """From each transaction's checkpoint on, either way: nothing lost, nothing twice."""
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    for number in range(5):
        server.query(f"INSERT INTO {schema}.t VALUES ({2 * number}), ({2 * number + 1})")
    by_gtid = executed(server)
    checkpoints = []
    rows: list[Any] = []
    async with stream_of(server, start=start, stop=end_of_log(server), tables=f"{schema}.*") as stream:
        async for event in stream:
            if isinstance(event, replica.WriteRowsEvent):
                rows += event.rows
                checkpoints.append((stream.checkpoint, len(rows) - 2))
    assert rows == [(number,) for number in range(10)]
    for checkpoint, seen in checkpoints:
        assert checkpoint is not None
        ways = [BinlogPosition(checkpoint.file, checkpoint.position), checkpoint]
        for way in ways:
            async with stream_of(server, start=way, tables=f"{schema}.*") as stream:
                assert await take_rows(stream, 10 - seen) == rows[seen:]
    assert by_gtid


async def test_the_source_lists_us(server: Server) -> None:
    host, port, server_id = "reporting.example", 4711, 4_000_000_001
    async with stream_of(server, server_id=server_id, report_host=host, report_port=port) as stream:
        newer = server.family == "mysql" and server.version > (8, 0, 22)
        rows = server.query("SHOW REPLICAS" if newer else "SHOW SLAVE HOSTS")
        [mine] = [row for row in rows if row[0] == server_id]
        assert mine[:4] == (server_id, host, port, server.server_id)
        if server.family == "mysql":
            assert mine[4] == stream._options.replica_uuid


async def test_by_default_the_source_sees_this_machines_name_and_our_port(mysql97: Server) -> None:
    async with stream_of(mysql97) as stream:
        [row] = [row for row in mysql97.query("SHOW REPLICAS") if row[0] == stream._options.server_id]
    assert row[1] == stream._options.report_host != ""
    assert row[2] > 1024


async def test_the_checksum_algorithm_may_change_in_mid_stream(server: Server, schema: str) -> None:
    expected = []
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    try:
        async with stream_of(server, tables=f"{schema}.*") as stream:
            algorithms = []
            for number, algorithm in enumerate(["NONE", "CRC32", "NONE", "NONE", "CRC32"]):
                server.query(f"SET GLOBAL binlog_checksum = {algorithm}")
                server.query(f"INSERT INTO {schema}.t VALUES ({number})")
                expected.append((number,))
                algorithms.append(algorithm == "CRC32")
                rows = await take_rows(stream, 1)
                assert rows == expected[-1:]
                assert stream._deliveries.current is not None
                assert stream._deliveries.current._decoder.checksum_enabled == (algorithm == "CRC32")
        server.query("SET GLOBAL binlog_checksum = NONE")
        async with stream_of(server, tables=f"{schema}.*") as stream:
            server.query(f"INSERT INTO {schema}.t VALUES (100)")
            assert await take_rows(stream, 1) == [(100,)]
    finally:
        server.query("SET GLOBAL binlog_checksum = CRC32")


async def test_a_first_file_without_checksums(extra_server: Callable[..., Server]) -> None:
    """MySQL takes the time of creation out of its format description, and leaves the checksum: it was taken for
    damaged, and a stream by GTIDs could not begin before the next file.
    """
    server = extra_server("mysql:9.7", "--binlog-checksum=NONE")
    server.query("CREATE DATABASE d")
    server.query("CREATE TABLE d.t (a INT PRIMARY KEY)")
    async with stream_of(server, tables="d.*") as stream:
        server.query("INSERT INTO d.t VALUES (1)")
        assert await take_rows(stream, 1) == [(1,)]


async def test_heartbeats_keep_an_idle_stream_alive(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    async with stream_of(server, tables=f"{schema}.*", events=replica.RowsEvent, heartbeat=0.5) as stream:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):  # twice the silence that would be the end
                await anext(stream)
        server.query(f"INSERT INTO {schema}.t VALUES (1)")
        assert await take_rows(stream, 1) == [(1,)]


async def test_a_rotation_in_mid_stream(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    async with stream_of(server, tables=f"{schema}.*") as stream:
        for number in (1, 2, 3):
            server.query(f"INSERT INTO {schema}.t VALUES ({number})")
            server.query("FLUSH BINARY LOGS")
        rows: list[Any] = []
        rotates: list[Any] = []
        async with asyncio.timeout(SECONDS):
            while len(rotates) < 3:
                event = await anext(stream)
                if isinstance(event, RotateEvent):
                    rotates.append(event)
                elif isinstance(event, replica.WriteRowsEvent):
                    rows += event.rows
        assert rows == [(1,), (2,), (3,)]
        await anext(stream)
        assert stream.position == BinlogPosition(rotates[-1].next_file, rotates[-1].next_position)


async def test_positions_are_those_of_the_server(server: Server, schema: str) -> None:
    start = end_of_log(server)
    fill(server, schema)
    server.query(f"UPDATE {schema}.t SET a = a + 10")
    end = end_of_log(server)
    rows = server.query(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.position}")
    async with stream_of(server, start=start, stop=end) as stream:
        seen = [(event.file, event.position) async for event in stream]
    assert seen == [(row[0], row[1]) for row in rows]
