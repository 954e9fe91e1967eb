"""Copies that begin while an XA transaction is prepared where nothing at hand tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from replica.config.options import Options
from replica.spool.start_offset import find_offset
from tests.faults import topology
from tests.server.support.streams import MYSQL97_AND_MARIADB118, SECONDS, stream_of
from tests.server.support.xa_sessions import two_xa
from tests.support.servers import Server

ARGUMENTS = {"mysql": (), "mariadb": ("--log-slave-updates",)}


def make_shop(server: Server) -> None:
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.t (id INT PRIMARY KEY)")


async def prepared_rows(server: Server) -> list[dict[str, Any] | None]:
    """The rows of the first prepared transaction that a copy brings."""
    async with (
        asyncio.timeout(SECONDS),
        stream_of(server, start="snapshot", tables="shop.t") as stream,
    ):
        async for transaction in stream.transactions():
            changes = await transaction.collect(prepared=True)
            if transaction.outcome == "prepared":
                break
    return [change.after for change in changes]


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_an_xa_transaction_that_a_replica_has_prepared(
    name: str, extra_server: Callable[..., Server]
) -> None:
    """Com_xa_prepare does not count it: an export lacked its rows, and so did the log behind the export."""
    source, other = (extra_server(name, *ARGUMENTS[name.partition(":")[0]]) for _ in range(2))
    await asyncio.to_thread(topology.follow, other, source)
    make_shop(source)
    with two_xa(source, "shop") as (do, _):
        do("START", "INSERT INTO shop.t VALUES (7)", "END", "PREPARE")
        await asyncio.to_thread(topology.catch_up, other, source)
        topology.promote(other)
        assert await prepared_rows(other) == [{"id": 7}]


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_an_xa_transaction_of_the_log_file_before(
    name: str, extra_server: Callable[..., Server]
) -> None:
    """The source has begun a file meanwhile: an export lacked its rows, and so did the log behind the export."""
    source = extra_server(name)
    make_shop(source)
    with two_xa(source, "shop") as (do, _):
        do("START", "INSERT INTO shop.t VALUES (7)", "END", "PREPARE")
        [(file, *_)] = source.query(source.log_status)
        source.query("FLUSH BINARY LOGS")
        offset = await find_offset(Options.build(source.dsn(), {}), "snapshot")
        assert await prepared_rows(source) == [{"id": 7}]
    assert offset.file == file
