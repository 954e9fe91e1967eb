"""Relays of real sources: files equal to theirs, after kills and restarts too, and served on to real replicas."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protocol.constants import EventFlag
from replica.relay import BinlogRelay
from tests.faults.container import restart
from tests.faults.waiting import ended, until
from tests.faults.workload import Workload
from tests.faults.writer import Writer
from tests.server.support.served_replicas import CONNECTIONS
from tests.support.servers import Server

from .support.served_logs import catch_up, executed_on, follow, forget, names_of_logs, serve, stored, unfollow
from .support.streams import MYSQL97_AND_MARIADB118, SECONDS, end_of_log

# A Python process needs this long until it has connected; kills come before and after it.
_LIFE_SECONDS = 1.2


def close_file(server: Server) -> str:
    """Begin a new file; the name of the one that is closed now."""
    name = end_of_log(server).file
    server.query("FLUSH BINARY LOGS")
    return name


async def closed(server: Server, names: list[str]) -> None:
    """Return when the source has noted in each of these that it is in use no more; MariaDB does so later."""
    path = "/var/lib/mysql"

    def is_closed(name: str) -> bool:
        # A busy machine may end the command before it has told all: then it is asked again.
        flags = server.exec("head", "-c", "22", f"{path}/{name}")[21:]
        return bool(flags) and not flags[0] & EventFlag.BINLOG_IN_USE

    for name in names:
        await until(partial(is_closed, name))


def differing(server: Server, folder: Path, names: list[str]) -> list[str]:
    """The files that are not those of the source, byte for byte."""
    return [
        name
        for name in names
        if hashlib.sha256((folder / name).read_bytes()).digest()
        != hashlib.sha256(stored(server, name)).digest()
    ]


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("binlog.0*"))


async def run_once(server: Server, folder: Path, **given: Any) -> None:
    async with asyncio.timeout(SECONDS):
        await BinlogRelay(server.dsn(), folder, once=True, **given).run()


async def test_files_of_every_kind(server: Server, schema: str, tmp_path: Path) -> None:
    """Rows, statements, a rolled back transaction, a large value, and a change of checksums."""
    close_file(server)
    first = end_of_log(server).file
    with server.connect(database=schema) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (a INT PRIMARY KEY, b LONGBLOB)")
        cursor.execute("INSERT INTO t VALUES (1, REPEAT('x', 5000000)), (2, NULL)")
        for statement in (
            "BEGIN",
            "INSERT INTO t VALUES (3, 'y')",
            "SAVEPOINT s",
            "INSERT INTO t VALUES (4, 'z')",
        ):
            cursor.execute(statement)
        cursor.execute("ROLLBACK TO s")
        cursor.execute("COMMIT")
        cursor.execute("SET SESSION binlog_format = STATEMENT")
        cursor.execute("UPDATE t SET b = 'statement' WHERE a = 2")
    try:
        server.query("SET GLOBAL binlog_checksum = NONE")
        server.query(f"INSERT INTO {schema}.t VALUES (5, 'without')")
        server.query("SET GLOBAL binlog_checksum = CRC32")
        server.query(f"INSERT INTO {schema}.t VALUES (6, 'with')")
    finally:
        server.query("SET GLOBAL binlog_checksum = CRC32")
    close_file(server)
    names = names_of_logs(server)
    names = names[names.index(first) :]
    assert len(names) > 3
    await closed(server, names[:-1])
    for _ in range(2):
        # MariaDB notes by itself, when a file has begun, which files a recovery would need.
        least = end_of_log(server).position
        await run_once(server, tmp_path, start=f"{first}:4")
        # The newest one says of itself that it is in use, which is not sent.
        assert differing(server, tmp_path, names[:-1]) == []
    assert least <= (tmp_path / names[-1]).stat().st_size <= end_of_log(server).position


class RelayProcesses:
    """Processes of ``mysql-replica relay``, one after another, of the same directory."""

    def __init__(self, server: Server, folder: Path, start: str) -> None:
        self._folder = folder
        self._arguments = ["relay", server.dsn(), str(folder), "--from", start, "--server-id", "4000000007"]

    async def start(self, *more: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "replica", *self._arguments, *more, stderr=asyncio.subprocess.DEVNULL
        )

    async def start_and_kill(self, seconds: float, *, at_work: bool) -> None:
        """Kill one after so many seconds; ``at_work``: of its work, however long it takes to begin with it."""
        before = bytes_in(self._folder)
        process = await self.start()
        if at_work:
            await until(lambda: bytes_in(self._folder) > before)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
        assert process.returncode is None, "it has ended by itself"
        process.kill()
        await process.wait()


@pytest.mark.parametrize("server", MYSQL97_AND_MARIADB118, indirect=True)
async def test_a_relay_is_killed(
    seed: int, server: Server, schema: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """While a source writes and begins new files: after so many kills the files are the source's."""
    kills, changes = (50, 100_000) if pytestconfig.getoption("long") else (20, 30_000)
    rng = random.Random(seed)
    close_file(server)
    first = end_of_log(server).file
    workload = Workload(seed, changes)
    # What the source writes during each relay's life, however long that is.
    ends = [done.end for done in workload.transactions]
    share = max(len(ends) // kills, 1)
    writer = Writer(server, schema, workload, pause=_LIFE_SECONDS / share)
    writer.create_tables()
    relays = RelayProcesses(server, tmp_path, f"{first}:4")
    with contextlib.ExitStack() as stack:
        stack.callback(writer.stop)
        writer.limit = 0
        writing = asyncio.create_task(asyncio.to_thread(writer.run))
        for number in range(kills):
            writer.limit = ends[: (number + 1) * share][-1]
            # The later ones are killed before and after they have connected, or have cut off a torn event.
            await relays.start_and_kill(rng.uniform(0.2, _LIFE_SECONDS), at_work=number < kills // 2)
            if number % 5 == 4:
                await asyncio.to_thread(close_file, server)
        writer.pause, writer.limit = 0, changes
        await writing
        close_file(server)
        await ended(await relays.start("--once"))
    names = names_of_logs(server)
    names = names[names.index(first) :]
    assert len(names) > kills // 5
    await closed(server, names[:-1])
    assert differing(server, tmp_path, names[:-1]) == []


@pytest.mark.parametrize("name", MYSQL97_AND_MARIADB118)
async def test_the_source_is_killed(
    name: str, supervised_server: Callable[..., Server], tmp_path: Path
) -> None:
    """A source that crashes leaves a file that is not closed, and begins another one: so does the relay."""
    server = supervised_server(name)
    server.query("CREATE DATABASE shop")
    server.query("CREATE TABLE shop.t (a INT PRIMARY KEY)")
    first = close_file(server)
    relay = BinlogRelay(server.dsn(), tmp_path, start=f"{first}:4")
    running = asyncio.create_task(relay.run())
    try:
        for number in range(3):
            server.query(f"INSERT INTO shop.t VALUES ({number})")
            await until(lambda: relay.position == end_of_log(server))
            await asyncio.to_thread(restart, server)
        server.query("INSERT INTO shop.t VALUES (10)")
        await until(lambda: relay.position == end_of_log(server))
    finally:
        await relay.aclose()
        await running
    names = names_of_logs(server)
    names = names[names.index(first) :]
    assert len(names) >= 5
    for one in names:
        mine, theirs = (tmp_path / one).read_bytes(), bytearray(stored(server, one))
        # A file that was not closed says so of itself for ever; that is not sent.
        theirs[4 + 17] &= ~EventFlag.BINLOG_IN_USE
        assert mine == theirs, one


@contextlib.asynccontextmanager
async def relaying(server: Server, folder: Path, start: str) -> AsyncIterator[BinlogRelay]:
    relay = BinlogRelay(server.dsn(), folder, start=start)
    running = asyncio.create_task(relay.run())
    try:
        await until(lambda: relay.position is not None and relay.position == end_of_log(server))
        yield relay
    finally:
        await relay.aclose()
        await running


@pytest.fixture(params=MYSQL97_AND_MARIADB118)
def chain(request: pytest.FixtureRequest, extra_server: Callable[..., Server]) -> tuple[Server, Server]:
    """A source and a replica to be, without anything in common."""
    source, replica = extra_server(request.param), extra_server(request.param)
    forget(source)
    unfollow(replica)
    return source, replica


async def test_a_real_replica_behind_a_relay(chain: tuple[Server, Server], tmp_path: Path) -> None:
    """Source, relay, BinlogServer, replica: what is committed at one end arrives at the other, file after file."""
    source, replica = chain
    source.query("CREATE DATABASE shop")
    source.query("CREATE TABLE shop.t (a INT PRIMARY KEY, b VARCHAR(100))")
    async with (
        asyncio.timeout(2 * SECONDS),
        relaying(source, tmp_path, "earliest"),
        serve(tmp_path, replica) as ours,
    ):
        file = names_of_logs(source)[0]
        options = CONNECTIONS[replica.family, True]
        await asyncio.to_thread(follow, replica, ours, by_gtid=True, file=file, options=options)
        for number in range(20):
            source.query(f"INSERT INTO shop.t VALUES ({number}, REPEAT('x', {number}))")
            if number % 7 == 6:
                close_file(source)
        await asyncio.to_thread(catch_up, replica, executed_on(source))
        assert replica.query("SELECT * FROM shop.t ORDER BY a") == source.query(
            "SELECT * FROM shop.t ORDER BY a"
        )
        await asyncio.to_thread(unfollow, replica)
