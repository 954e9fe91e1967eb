"""Servers whose log leaves changes out of tables that a stream follows: replication filters, binlog_do_db."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import replica
from protocol.errors import SourceChangedError
from replica import BinlogStream
from tests.faults import topology
from tests.faults.proxy import FaultProxy
from tests.server.support.doctor_findings import findings_of
from tests.server.support.faulty_streams import GTID, start_of, stream_through
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, take_rows
from tests.support.servers import Server

_ARGUMENTS = {"mysql": (), "mariadb": ("--log-slave-updates",)}
_TABLES = ("shop.orders", "shop.audit", "other.t")


def pair_of(extra_server: Callable[..., Server], name: str, *filters: str) -> tuple[Server, Server, Any]:
    """A source, its replica with these filters, and the place behind which the tables are created."""
    common = _ARGUMENTS[name.partition(":")[0]]
    source, other = extra_server(name, *common), extra_server(name, *common, *filters)
    topology.follow(other, source)
    start = start_of(source, GTID)
    for schema in ("shop", "other"):
        source.query(f"CREATE DATABASE {schema}")
    for table in _TABLES:
        source.query(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    return source, other, start


def insert(server: Server, number: int) -> None:
    for table in _TABLES:
        server.query(f"INSERT INTO {table} VALUES ({number})")


async def rows_after_move(
    source: Server, other: Server, proxy: FaultProxy, stream: BinlogStream, count: int
) -> list[tuple[object, ...]]:
    """The rows that come from the other server after a move, of two transactions per table."""
    insert(source, 1)
    await take_rows(stream, count)
    proxy.black_hole()
    proxy.cut_now()
    insert(source, 2)
    await asyncio.to_thread(topology.catch_up, other, source)
    proxy.retarget(other.port)
    proxy.serve()
    return await take_rows(stream, count)


@pytest.mark.parametrize(
    "filters", [("--replicate-ignore-table=shop.audit",), ("--binlog-do-db=other",)], ids=str
)
@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_stream_does_not_move_to_a_log_that_lacks_its_tables(
    name: str, filters: tuple[str, ...], extra_server: Callable[..., Server]
) -> None:
    """It went on there, and the rows of the filtered tables were missing without an error."""
    source, other, start = await asyncio.to_thread(pair_of, extra_server, name, *filters)
    async with asyncio.timeout(SECONDS), FaultProxy(source.port) as proxy:
        async with stream_through(proxy, source, start=start, tables="shop.*") as stream:
            with pytest.raises(SourceChangedError, match="leaves out"):
                await rows_after_move(source, other, proxy, stream, 2)
            checkpoint = stream.checkpoint
        with pytest.raises(SourceChangedError, match="leaves out"):
            async with stream_through(proxy, source, start=checkpoint, tables="shop.*"):
                pass


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_stream_does_not_move_to_a_log_that_has_its_tables_by_another_name(
    name: str, extra_server: Callable[..., Server]
) -> None:
    """Its rows were missing without an error."""
    source, other, start = await asyncio.to_thread(
        pair_of, extra_server, name, "--replicate-rewrite-db=shop->renamed"
    )
    with other.connect() as session, session.cursor() as cursor:
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("CREATE DATABASE renamed")
        for table in ("orders", "audit"):
            cursor.execute(f"CREATE TABLE renamed.{table} (id INT PRIMARY KEY)")
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=start, tables="shop.*") as stream,
    ):
        with pytest.raises(SourceChangedError, match="replicate_rewrite_db=shop->renamed"):
            await rows_after_move(source, other, proxy, stream, 2)


@pytest.mark.parametrize("may_see", [True, False])
async def test_a_replica_that_passes_over_a_domain(
    may_see: bool, extra_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of its source are missing, and nobody was told: GTID sets do not have the domain until it is used."""
    source, other, start = await asyncio.to_thread(pair_of, extra_server, "mariadb:11.8")
    other.query("STOP SLAVE")
    other.query("CHANGE MASTER TO IGNORE_DOMAIN_IDS = (7)")
    other.query("START SLAVE")
    if may_see:
        other.query(f"GRANT SLAVE MONITOR ON *.* TO '{other.replica_user}'@'%'")
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=start, tables="shop.*") as stream,
    ):
        assert await rows_after_move(source, other, proxy, stream, 2) == [(2,), (2,)]
    [told] = [one.message for one in caplog.records if getattr(one, "event", "") == "changes-unlogged"]
    assert ("replicate_ignore_domain_ids=7" if may_see else "GRANT SLAVE MONITOR") in told
    finding = (await findings_of(other, tables="shop.*"))["replication filters"]
    assert ("replicate_ignore_domain_ids=7" in finding.message) == may_see


@pytest.mark.parametrize("comes_by_it", [True, False], ids=["its own", "another"])
async def test_filters_of_one_channel_of_several(
    comes_by_it: bool, extra_server: Callable[..., Server]
) -> None:
    """The channel from the server before decides."""
    source, third, other = (extra_server("mysql:9.7") for _ in range(3))
    start = start_of(source, GTID)
    third.query(third.reset_log)
    topology.follow(other, source)
    other.query("STOP REPLICA")
    account = (
        f"SOURCE_USER = '{third.replica_user}', SOURCE_PASSWORD = '{third.replica_password}', SOURCE_SSL = 1"
    )
    host = f"SOURCE_HOST = '{topology.address_of(third)}', SOURCE_AUTO_POSITION = 1"
    other.query(f"CHANGE REPLICATION SOURCE TO {host}, {account} FOR CHANNEL 'third'")
    channel = "" if comes_by_it else "third"
    other.query(
        f"CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ('shop.o%') FOR CHANNEL '{channel}'"
    )
    other.query("START REPLICA")
    source.query("CREATE DATABASE shop")
    source.query("CREATE TABLE shop.orders (id INT PRIMARY KEY)")
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, start=start, tables="shop.*") as stream,
    ):
        source.query("INSERT INTO shop.orders VALUES (1)")
        assert await take_rows(stream, 1) == [(1,)]
        proxy.black_hole()
        proxy.cut_now()
        source.query("INSERT INTO shop.orders VALUES (2)")
        await asyncio.to_thread(topology.catch_up, other, source)
        proxy.retarget(other.port)
        proxy.serve()
        if comes_by_it:
            with pytest.raises(SourceChangedError, match="replicate_wild_ignore_table=shop"):
                await take_rows(stream, 1)
        else:
            assert await take_rows(stream, 1) == [(2,)]


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_filters_of_other_tables_do_not_matter(name: str, extra_server: Callable[..., Server]) -> None:
    filters = ("--replicate-ignore-table=shop.audit", "--replicate-wild-ignore-table=other.%")
    source, other, start = await asyncio.to_thread(pair_of, extra_server, name, *filters)
    options: dict[str, Any] = {"start": start, "tables": "shop.*", "exclude_tables": "shop.audit"}
    async with (
        asyncio.timeout(SECONDS),
        FaultProxy(source.port) as proxy,
        stream_through(proxy, source, **options) as stream,
    ):
        assert await rows_after_move(source, other, proxy, stream, 1) == [(2,)]
        assert stream.status.server_id == other.server_id


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_a_stream_that_begins_there_is_told(
    name: str, extra_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody was told. Whoever follows all tables is told only, also after a move."""
    source, other, start = await asyncio.to_thread(
        pair_of, extra_server, name, "--replicate-ignore-table=shop.audit"
    )
    async with asyncio.timeout(SECONDS), FaultProxy(source.port) as proxy:
        async with stream_through(proxy, source, start=start) as stream:
            assert len(await rows_after_move(source, other, proxy, stream, 2)) == 2
        for _ in range(2):
            async with stream_through(proxy, source, start="now", tables="shop.*"):
                pass
    told = [one.message for one in caplog.records if getattr(one, "event", "") == "changes-unlogged"]
    assert len(told) == 3
    assert all("shop.audit" in one for one in told)
    finding = (await findings_of(other, tables="shop.*"))["replication filters"]
    assert (finding.state, "shop.audit" in finding.message) == ("warning", True)
    assert (await findings_of(other, tables="shop.orders"))["replication filters"].state == "ok"


async def test_a_replica_that_does_not_log_what_it_replicates(
    extra_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """A stream began there, and nobody was told that nothing of the source comes."""
    source, other = extra_server("mariadb:11.8"), extra_server("mariadb:11.8")
    topology.follow(other, source)
    async with replica.connect(other.dsn(), tls="disabled"):
        pass
    [told] = [one for one in caplog.records if getattr(one, "event", "") == "changes-unlogged"]
    assert "log_slave_updates=OFF: its log lacks what it replicates" in told.message
