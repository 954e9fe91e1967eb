"""What no reconnect can mend ends a stream that was well under way: each in its typed error, within ten seconds."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import replica
from replica import BinlogStream, FileCheckpointStore
from replica.config.options import Options
from tests.faults import container
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import FILE_POSITION, GTID, start_of, stream_through
from tests.support.servers import Server

from .support.streams import (
    MYSQL,
    MYSQL97_AND_MARIADB118,
    PASSWORD,
    end_of_log,
    kill_sessions,
    take_rows,
    user_of,
)

LIMIT = 10


async def end_of(stream: BinlogStream) -> replica.ReplicaError:
    """What ends a stream, within ten seconds and for good."""
    try:
        async with asyncio.timeout(LIMIT):
            async for _ in stream:
                pass
    except replica.ReplicaError as error:
        with pytest.raises(type(error)):
            await anext(stream)
        assert stream.status.state == "closed"
        return error
    raise AssertionError("the stream has ended without an error")


def one_row(server: Server, schema: str, number: int) -> None:
    server.query(f"CREATE TABLE IF NOT EXISTS {schema}.t (a INT PRIMARY KEY)")
    server.query(f"INSERT INTO {schema}.t VALUES ({number})")


async def test_a_twin(server: Server, schema: str) -> None:
    """The older one ends; it must not come back and throw the newer one out."""
    one_row(server, schema, 1)
    options = Options.build(server.dsn(), {"server_id": 4_000_000_003, "tls": "disabled", "heartbeat": 0.5})
    older, newer = BinlogStream(options), BinlogStream(replace(options))
    async with older, newer:
        error = await end_of(older)
        assert type(error) is replica.DuplicateReplicaError
        one_row(server, schema, 2)
        async with asyncio.timeout(LIMIT):
            assert await take_rows(newer, 1) == [(2,)]
        assert newer.status.reconnects == 0


@pytest.mark.parametrize("mode", [FILE_POSITION, GTID])
@pytest.mark.parametrize("server", ["mysql:9.7", "mysql:5.6", "mariadb:11.8"], indirect=True)
async def test_purged_while_nobody_was_there(server: Server, schema: str, mode: str) -> None:
    one_row(server, schema, 1)
    async with (
        FaultProxy(server.port) as proxy,
        stream_through(proxy, server, start=start_of(server, mode)) as stream,
    ):
        one_row(server, schema, 2)
        async with asyncio.timeout(LIMIT):
            assert await take_rows(stream, 1) == [(2,)]
        proxy.black_hole()
        proxy.cut_now()
        one_row(server, schema, 3)
        await asyncio.to_thread(purge_all, server)
        proxy.serve()
        error = await end_of(stream)
    expected = replica.BinlogNotFoundError if mode == FILE_POSITION else replica.TransactionsUnavailableError
    assert type(error) is expected, repr(error)


def purge_all(server: Server) -> None:
    """Only a new and empty file is left. A dump that was cut may hold an old one for a moment."""
    server.query("FLUSH BINARY LOGS")
    deadline = time.monotonic() + LIMIT
    while len(server.query("SHOW BINARY LOGS")) > 1:
        assert time.monotonic() < deadline
        server.query(f"PURGE BINARY LOGS TO '{end_of_log(server).file}'")
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["kill", "cut"])
async def test_privileges_that_were_revoked(server: Server, schema: str, how: str) -> None:
    one_row(server, schema, 1)
    with user_of(server) as user:
        async with FaultProxy(server.port) as proxy:
            options: dict[str, Any] = {
                "tls": "disabled",
                "heartbeat": 0.5,
                "port": proxy.port,
                "start": end_of_log(server),
            }
            async with replica.connect(server.dsn(user, PASSWORD), **options) as stream:
                one_row(server, schema, 2)
                async with asyncio.timeout(LIMIT):
                    assert await take_rows(stream, 1) == [(2,)]
                server.query(f"REVOKE REPLICATION SLAVE ON *.* FROM '{user}'@'%'")
                if how == "cut":
                    proxy.cut_now()
                else:
                    kill_sessions(server, user)
                error = await end_of(stream)
    assert type(error) is replica.PrivilegeError, repr(error)


async def test_an_account_that_was_dropped(server: Server, schema: str) -> None:
    one_row(server, schema, 1)
    with user_of(server) as user:
        async with replica.connect(server.dsn(user, PASSWORD), tls="disabled") as stream:
            server.query(f"ALTER USER '{user}'@'%' IDENTIFIED BY 'another'" if server.version > (5, 7) else
                         f"SET PASSWORD FOR '{user}'@'%' = PASSWORD('another')")  # fmt: skip
            kill_sessions(server, user)
            error = await end_of(stream)
    assert type(error) is replica.AuthenticationError, repr(error)


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_disk_that_is_full(server: Server, schema: str, tmp_path: Path) -> None:
    """The error names the file; what it held before is still there."""
    path = tmp_path / "checkpoint"
    start = end_of_log(server)
    for number in range(3):
        one_row(server, schema, number)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.full_disk", server.dsn(), str(start), str(path),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(LIMIT):
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().startswith(f"CheckpointError the checkpoint file {path} cannot be written")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "checkpoint.schemas"]
    checkpoint = FileCheckpointStore(path).load()
    assert checkpoint is not None
    assert checkpoint.file == start.file


@pytest.mark.parametrize("name", MYSQL)
async def test_another_server_uuid_where_only_a_position_is_known(
    name: str, supervised_server: Callable[..., Server]
) -> None:
    server = supervised_server(name, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    [(before,)] = server.query("SELECT @@server_uuid")
    with server.fresh_schema() as schema:
        one_row(server, schema, 1)
        async with replica.connect(
            server.dsn(), tls="disabled", heartbeat=0.5, start=end_of_log(server)
        ) as stream:
            one_row(server, schema, 2)
            async with asyncio.timeout(LIMIT):
                assert await take_rows(stream, 1) == [(2,)]
            server.exec("rm", "/var/lib/mysql/auto.cnf")
            await asyncio.to_thread(container.restart, server)
            error = await end_of(stream)
        [(after,)] = server.query("SELECT @@server_uuid")
    assert type(error) is replica.SourceChangedError, repr(error)
    assert before != after
    assert before in str(error)
    assert after in str(error)


async def test_a_log_that_is_damaged(extra_server: Callable[..., Server]) -> None:
    """Damage of the network goes away, that of the log is an error that says where."""
    server = extra_server("mysql:9.7", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
    with server.fresh_schema() as schema:
        one_row(server, schema, 1)
        start = end_of_log(server)
        one_row(server, schema, 2)
        one_row(server, schema, 3)
        path = f"/var/lib/mysql/{start.file}"
        # In the last event, which ends the transaction: the rows before it are delivered.
        damage = f"printf X | dd of={path} bs=1 seek={end_of_log(server).position - 6} conv=notrunc"
        server.exec("bash", "-c", damage)
        async with FaultProxy(server.port) as proxy, stream_through(proxy, server, start=start) as stream:
            async with asyncio.timeout(LIMIT):
                assert await take_rows(stream, 2) == [(2,), (3,)]
            error = await end_of(stream)
            assert stream.status.reconnects == 2
    assert type(error) is replica.ChecksumError, repr(error)
    assert error.file == start.file


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_log_that_was_reset(name: str, extra_server: Callable[..., Server]) -> None:
    """What was delivered, the source has no more: the same files hold something else."""
    server = extra_server(name)
    with server.fresh_schema() as schema:
        one_row(server, schema, 1)
        async with FaultProxy(server.port) as proxy, stream_through(proxy, server) as stream:
            for number in range(2, 9):
                one_row(server, schema, number)
            async with asyncio.timeout(LIMIT):
                assert await take_rows(stream, 7) == [(n,) for n in range(2, 9)]
            proxy.black_hole()
            proxy.cut_now()
            server.query(server.reset_log)
            one_row(server, schema, 100)
            proxy.serve()
            error = await end_of(stream)
    # MariaDB is asked about the place first, as it may have given the GTIDs anew.
    expected = "SourceChangedError" if server.family == "mariadb" else "TransactionsUnavailableError"
    assert type(error).__name__ == expected, repr(error)


@pytest.mark.parametrize("is_cut", [False, True])
async def test_gtid_mode_turned_off(extra_server: Callable[..., Server], is_cut: bool) -> None:
    """The error says where to go on, and that works."""
    server = extra_server("mysql:9.7")
    with server.fresh_schema() as schema:
        one_row(server, schema, 1)
        async with FaultProxy(server.port) as proxy, stream_through(proxy, server) as stream:
            one_row(server, schema, 2)
            async with asyncio.timeout(LIMIT):
                assert await take_rows(stream, 1) == [(2,)]
            # Before this row: its transaction has not ended.
            checkpoint = stream.checkpoint
            assert checkpoint is not None
            if is_cut:
                proxy.black_hole()
                proxy.cut_now()
            for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE"):
                server.query(f"SET GLOBAL gtid_mode = {mode}")
            one_row(server, schema, 3)
            if is_cut:
                proxy.serve()
            error = await end_of(stream)
        expected = replica.SourceConfigurationError if is_cut else replica.PositionError
        assert type(error) is expected, repr(error)
        assert "position" in str(error)
        start = replica.BinlogPosition(checkpoint.file, checkpoint.position)
        for place in (checkpoint, start):
            async with replica.connect(server.dsn(), start=place) as stream:
                assert await take_rows(stream, 2) == [(2,), (3,)]
