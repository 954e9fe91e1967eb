"""A stream that is moved to a server whose log has table names in lower case."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from protocol.errors import SourceChangedError
from tests.faults.proxy import FaultProxy
from tests.server.support.faulty_streams import stream_through
from tests.server.support.streams import SECONDS, take_rows
from tests.support.servers import Server


def on_both(servers: tuple[Server, Server], number: int, sql: str) -> None:
    """One transaction, which has the same GTID on both servers."""
    for server in servers:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET gtid_domain_id = 0, server_id = 77, gtid_seq_no = {number}")
            cursor.execute(sql)


@pytest.mark.parametrize("tables", [["Shop.T"], ["Shop.T", "shop.t"]])
async def test_a_filter_that_matches_nothing_on_the_new_server(
    extra_server: Callable[..., Server], tables: list[str]
) -> None:
    """Rows were missing without an error."""
    first = extra_server("mariadb:11.8")
    second = extra_server("mariadb:11.8", "--lower-case-table-names=1")
    servers = first, second
    for server in servers:
        server.query(server.reset_log)
    on_both(servers, 1, "CREATE DATABASE Shop")
    on_both(servers, 2, "CREATE TABLE Shop.T (id INT PRIMARY KEY)")
    async with FaultProxy(first.port) as proxy, asyncio.timeout(SECONDS):
        async with stream_through(proxy, first, start="now", tables=tables) as stream:
            on_both(servers, 3, "INSERT INTO Shop.T VALUES (1)")
            transaction = await anext(stream.transactions())
            assert [change.after async for change in transaction] == [{"id": 1}]
            proxy.retarget(second.port)
            proxy.cut_now()
            on_both(servers, 4, "INSERT INTO Shop.T VALUES (2)")
            if len(tables) == 2:
                assert await take_rows(stream, 1) == [(2,)]
                return
            with pytest.raises(SourceChangedError, match=r"lower_case_table_names=1: Shop\.T matches no"):
                await take_rows(stream, 1)
        with pytest.raises(SourceChangedError, match="lower_case_table_names=1"):
            async with stream_through(proxy, first, start=transaction.checkpoint, tables=tables):
                pass
