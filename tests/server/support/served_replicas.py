"""What stands around BinlogServer in its tests: recorded sources, real replicas, the servers' own tools."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from replica import BinlogPosition, XidEvent, open_binlog
from replica.server import BinlogServer
from tests.faults.waiting import until
from tests.server.support.served_logs import (
    PASSWORD,
    USER,
    Recorded,
    catch_up,
    checksum_of,
    follow,
    gateway,
    serve,
    unfollow,
)
from tests.support.servers import Server, ServerPool, ServerUnavailableError

MYSQL, MARIADB = "mysql:9.7", "mariadb:11.8"


def start_server(pool: ServerPool, name: str) -> Server:
    try:
        return pool.start(name)
    except ServerUnavailableError as error:
        pytest.skip(str(error))


def on(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("recorded", [name], indirect=True)


def tool(server: Server, host: str, port: int, user: str, password: str, *options: str) -> list[str]:
    """The command line that lets the server's own tool read a log over the network."""
    program = "mysqlbinlog" if server.family == "mysql" else "mariadb-binlog"
    return [
        program,
        "--read-from-remote-server",
        f"-h{host}",
        f"-P{port}",
        f"-u{user}",
        f"-p{password}",
        *options,
    ]


def of_the_source(server: Server, *options: str) -> list[str]:
    return tool(server, "127.0.0.1", 3306, "root", server.root_password, *options)


def of_ours(server: Server, ours: BinlogServer, *options: str) -> list[str]:
    return tool(server, gateway(server), ours.port, USER, PASSWORD, *options)


def shell(*command: str) -> str:
    return " ".join(f"'{word}'" for word in command)


CONNECTIONS = {
    ("mysql", True): "SOURCE_SSL = 1",
    ("mysql", False): "SOURCE_SSL = 0, GET_SOURCE_PUBLIC_KEY = 1",
    ("mariadb", True): "MASTER_SSL = 1",
    ("mariadb", False): "MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0",
}


async def acknowledges_everything(recorded: Recorded, follower: Server, options: str) -> None:
    async with serve(recorded.folder, follower, semi_sync=True) as ours:
        try:
            await asyncio.to_thread(
                follow, follower, ours, by_gtid=True, file=recorded.files[0], options=options
            )
            await asyncio.to_thread(catch_up, follower, recorded.executed)
            [connected] = ours.replicas
            end = _end_of_transactions(recorded.folder / recorded.files[-1])
            await until(lambda: connected.acknowledged == end)
            assert await asyncio.to_thread(checksum_of, follower) == recorded.checksum
        finally:
            await asyncio.to_thread(unfollow, follower)


def _end_of_transactions(path: Path) -> BinlogPosition:
    """Where the last one ends; MariaDB may note a checkpoint behind it, which nobody is asked to acknowledge."""
    with open_binlog(path, events=XidEvent) as log:
        *_, last = log
    return BinlogPosition(path.name, last.header.next_position)
