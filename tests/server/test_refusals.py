"""What real sources refuse: each refusal is its typed error, with a message that says what to do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import replica
from replica import BinlogPosition, BinlogStream, DuplicateReplicaError, GtidSet
from replica.config.options import Options
from tests.support.servers import Server

from .support.streams import (
    MARIADB,
    MYSQL,
    MYSQL97_AND_MARIADB118,
    SECONDS,
    end_of_log,
    executed,
    stream_of,
    take_rows,
    user_of,
)


async def refusal(stream: BinlogStream) -> Exception:
    """What opening a stream, or reading its first event, raises."""
    try:
        async with asyncio.timeout(SECONDS), stream:
            await anext(stream)
    except replica.ReplicaError as error:
        return error
    raise AssertionError("nothing was refused")


def assert_told(error: Exception, kind: type[Exception], remedy: str) -> None:
    assert type(error) is kind, repr(error)
    assert remedy in str(error)


async def test_a_position_behind_the_end(server: Server) -> None:
    end = end_of_log(server)
    error = await refusal(stream_of(server, start=BinlogPosition(end.file, end.position + 1000)))
    assert_told(error, replica.PositionPastEndError, "choose a new start")


async def test_a_position_that_is_no_events_start(seed: int, server: Server, schema: str) -> None:
    """Every kind of answer counts, the false event that some offsets are answered with included."""
    start = end_of_log(server)
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGBLOB)")
    server.query(f"INSERT INTO {schema}.t VALUES (1, REPEAT('\\0', 300)), (2, REPEAT('\\1', 300))")
    end = end_of_log(server)
    async with stream_of(server, start=start, stop=end) as stream:
        starts = {event.position async for event in stream} | {end.position}
    inside = sorted(set(range(start.position, end.position)) - starts)
    for offset in random.Random(seed).sample(inside, 20):
        error = await refusal(stream_of(server, start=BinlogPosition(start.file, offset)))
        assert_told(error, replica.PositionInsideEventError, "start at the end position of an event")


async def test_no_such_file(server: Server) -> None:
    base = end_of_log(server).file.rpartition(".")[0]
    for name in (f"{base}.099999", "elsewhere.000001"):
        error = await refusal(stream_of(server, start=BinlogPosition(name, 4)))
        assert_told(error, replica.BinlogNotFoundError, "SHOW BINARY LOGS")


async def test_a_wrong_password(server: Server) -> None:
    stream = replica.connect(server.dsn(password="wrong"))
    error = await refusal(stream)
    assert_told(error, replica.AuthenticationError, "check user and password")
    assert isinstance(error, replica.ServerError)
    assert (error.code, error.sqlstate) == (1045, "28000")


async def test_an_unknown_user(server: Server) -> None:
    error = await refusal(replica.connect(server.dsn("nobody", "x")))
    assert_told(error, replica.AuthenticationError, "check user and password")


async def test_without_replication_slave(server: Server) -> None:
    with user_of(server, "SELECT, REPLICATION CLIENT") as user:
        error = await refusal(stream_of(server, user))
    assert_told(error, replica.PrivilegeError, "GRANT REPLICATION SLAVE ON *.*")


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_without_a_binary_log(name: str, extra_server: Callable[..., Server]) -> None:
    server = extra_server(name, "--skip-log-bin")
    error = await refusal(stream_of(server))
    assert_told(error, replica.SourceConfigurationError, "--log-bin")


@pytest.mark.parametrize("log_format", ["STATEMENT", "MIXED"])
async def test_a_binlog_format_other_than_row(server: Server, log_format: str) -> None:
    server.query(f"SET GLOBAL binlog_format = {log_format}")
    try:
        error = await refusal(stream_of(server))
    finally:
        server.query("SET GLOBAL binlog_format = ROW")
    assert_told(error, replica.SourceConfigurationError, "set binlog_format=ROW")
    assert log_format in str(error)


def twins(server: Server, *, same_uuid: bool) -> tuple[BinlogStream, BinlogStream]:
    options = Options.build(server.dsn(), {"server_id": 4_000_000_002})
    other = Options.build(server.dsn(), {"server_id": 4_000_000_002})
    return BinlogStream(options), BinlogStream(options if same_uuid else replace(other))


@pytest.mark.parametrize("same_uuid", [True, False])
async def test_a_twin_ends_the_older_stream(server: Server, schema: str, same_uuid: bool) -> None:
    """MySQL goes by the uuid, MariaDB by the server id."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    older, newer = twins(server, same_uuid=same_uuid)
    async with older, newer:
        server.query(f"INSERT INTO {schema}.t VALUES (1)")
        assert await take_rows(newer, 1) == [(1,)]
        if server.family == "mysql" and not same_uuid:
            assert await take_rows(older, 1) == [(1,)]
            return
        with pytest.raises(DuplicateReplicaError, match="of its own"):
            await take_rows(older, 2)


@pytest.mark.parametrize("server", MYSQL, indirect=True)
async def test_transactions_that_the_source_never_had(server: Server) -> None:
    known = GtidSet(executed(server))
    unknown = "ffffffff-eeee-1111-9999-000000000000:1-5"
    for more in (unknown, f"{server.query('SELECT @@server_uuid')[0][0]}:999999"):
        error = await refusal(stream_of(server, start=known | GtidSet(more)))
        assert_told(error, replica.TransactionsUnavailableError, "copy the data again")
        assert more in str(error)


@pytest.mark.parametrize("server", MYSQL, indirect=True)
async def test_transactions_that_the_source_has_purged(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    server.query("FLUSH BINARY LOGS")
    server.query(f"PURGE BINARY LOGS TO '{end_of_log(server).file}'")
    purged = GtidSet(server.query("SELECT @@GLOBAL.gtid_purged")[0][0])
    error = await refusal(stream_of(server, start=GtidSet()))
    assert_told(error, replica.TransactionsUnavailableError, "copy the data again")
    assert str(purged) in str(error)


@pytest.mark.parametrize("server", MARIADB, indirect=True)
async def test_mariadb_transactions_that_the_source_never_had(server: Server) -> None:
    error = await refusal(stream_of(server, start=f"0-{server.server_id}-999999999"))
    assert_told(error, replica.TransactionsUnavailableError, "copy the data again")


@pytest.mark.parametrize("server", MARIADB, indirect=True)
async def test_mariadb_transactions_that_the_source_has_purged(server: Server, schema: str) -> None:
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY)")
    old = executed(server)
    server.query(f"CREATE TABLE {schema}.u (a INT PRIMARY KEY)")
    # What crash recovery may still need is not purged before a later file is begun.
    needed = end_of_log(server).file
    async with asyncio.timeout(SECONDS):
        while server.query("SHOW BINARY LOGS")[0][0] <= needed:
            server.query("FLUSH BINARY LOGS")
            server.query(f"PURGE BINARY LOGS TO '{end_of_log(server).file}'")
            await asyncio.sleep(0.1)
    error = await refusal(stream_of(server, start=old))
    assert_told(error, replica.TransactionsUnavailableError, "copy the data again")


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_gtid_set_of_the_other_family(server: Server) -> None:
    start = "0-1-5" if server.family == "mysql" else "ffffffff-eeee-1111-9999-000000000000:1-5"
    error = await refusal(stream_of(server, start=start))
    assert_told(error, replica.ConfigurationError, "GTID set")


async def test_nobody_listens(mysql97: Server) -> None:
    error = await refusal(replica.connect("mysql://repl@127.0.0.1:1"))
    assert_told(error, replica.ConnectionLostError, "is the server running")
