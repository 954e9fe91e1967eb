"""An address behind which several servers answer in turn: a session that has to reach one of them."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from itertools import cycle

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.errors import ConnectionLostError
from protocol.records import replace
from replica.config.options import Options
from replica.snapshot.range_reader import open_behind
from replica.source.open_dump import Broken, open_again
from replica.source.second_connection import SecondConnection
from replica.source.server_facts import ask
from replica.source.session import Session
from replica.spool.offsets import Offset
from replica.transactions.boundary import Progress
from replica.transactions.replay import Delivered
from tests.support.socket_source import MYSQL_VARIABLES, SocketSource, serving

Variables = dict[str, str]
OTHER = MYSQL_VARIABLES | {"server_uuid": "00000000-0000-0000-0000-000000000002"}
GALERA = {"server_id": "1", "port": "3306", "wsrep_on": "ON"}


def in_turn(*servers: Variables) -> SocketSource:
    """Each question about variables is answered by the next server."""
    turns = cycle(servers)
    return SocketSource(answers={"SHOW GLOBAL VARIABLES": lambda: list(next(turns).items())})


async def bound(source: SocketSource) -> Options:
    """Options as they are once a server has answered."""
    session = await Session.open(Options.build(source.dsn, {}))
    await ask(session)
    await session.aclose()
    return session.options


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MYSQL_VARIABLES, OTHER),
        (GALERA | {"hostname": "a"}, GALERA | {"hostname": "b"}),
        (GALERA | {"hostname": "a"}, GALERA | {"hostname": "a", "port": "3307"}),
        ({"server_id": "1"}, {"server_id": "2"}),
    ],
)
async def test_connections_are_opened_until_they_reach_the_server(
    first: Variables, second: Variables, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(in_turn(first, second)) as source:
        options = await bound(source)
        for _ in range(3):
            session = await Session.open(options)
            await session.aclose()
        await source.until_closed()
    assert len(source.conversations) == 7
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_server_that_is_not_reached_is_an_error() -> None:
    async with serving(in_turn(MYSQL_VARIABLES, *[OTHER] * 20)) as source:
        options = await bound(source)
        with pytest.raises(
            ConnectionLostError, match=f"server {OTHER['server_uuid']} answers at .* sends the log"
        ):
            await Session.open(options)
        await source.until_closed()


@pytest.fixture
async def two_addresses(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Options]:
    """Options for a name with two addresses, the first one that of ``OTHER``."""
    other = SocketSource(variables=OTHER)
    async with serving(SocketSource()) as source:
        listener = await asyncio.start_server(other.serve, "127.0.0.2", source.port)

        def resolve(*_: object) -> list[tuple[object, ...]]:
            hosts = ("127.0.0.2", "127.0.0.1")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, source.port)) for host in hosts]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        yield Options.build(source.dsn.replace("127.0.0.1", "db.example"), {})
        listener.close()
        await other.until_closed()


async def test_a_name_with_the_address_of_another_server_first(two_addresses: Options) -> None:
    """The server at the first address was asked each time, and the other one never."""
    options, uuid = two_addresses, MYSQL_VARIABLES["server_uuid"]
    session = await Session.open(replace(options, server=uuid))
    await session.aclose()
    identity = uuid, int(MYSQL_VARIABLES["server_id"])
    session, found = await open_behind(options, Offset("binlog.000001", 4, None, *identity))
    assert found.server_uuid == uuid
    await session.aclose()
    broken = Broken(
        Progress("binlog.000001", 4, None, has_gtids=False),
        False,
        identity,
        None,
        Delivered(),
        EventDecoder(),
    )
    dump, _ = await open_again(options, broken)
    assert dump.source.server_uuid == uuid
    await dump.session.aclose()


async def test_a_server_that_does_not_tell_its_name() -> None:
    """What it worked on was asked over another connection, which asked for the name first: and so on, for ever."""
    async with serving(SocketSource()) as source:
        options = replace(await bound(source), connect_timeout=0.1)
        source.silent_for = "SHOW GLOBAL VARIABLES"
        with pytest.raises(ConnectionLostError, match="did not answer within"):
            async with asyncio.timeout(10):
                await Session.open(options)
        await source.until_closed()
    assert len(source.conversations) == 2


async def test_a_server_that_knows_no_uuid_and_no_host_name() -> None:
    async with serving(in_turn({"server_id": "1"})) as source:
        await (await Session.open(await bound(source))).aclose()
        await source.until_closed()
    assert len(source.conversations) == 2


async def test_a_second_connection_moves_to_the_server_that_took_over() -> None:
    """It went on to ask the one before it, if that was still there."""
    async with serving(in_turn(MYSQL_VARIABLES)) as source:
        connection = SecondConnection(await bound(source))
        await connection.query("SELECT 1")
        source.variables = OTHER
        del source.answers["SHOW GLOBAL VARIABLES"]
        connection.move(await bound(source))
        await connection.query("SELECT 1")
        await connection.aclose()
        await source.until_closed()
    assert len(source.conversations) == 4
