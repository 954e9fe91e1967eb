"""Sources with semi-synchronous replication turned on: their commits wait for a replica."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import replica
from tests.faults.container import kill_dumps
from tests.server.support.streams import SECONDS
from tests.support.servers import Server

# Long enough that no test reaches the timeout by accident.
TIMEOUT_SECONDS = 20


@dataclass
class Source:
    """A source that waits with each commit for one replica."""

    server: Server
    schema: str
    missed_before: int = 0

    @property
    def missed(self) -> int:
        """Commits that have not been waited for."""
        return self.status("no_tx") - self.missed_before

    @property
    def word(self) -> str:
        return self.server.semi_sync_word

    def insert(self, number: int, size: int = 1) -> float:
        """Commit a row; the seconds that it took."""
        start = time.monotonic()
        self.server.query(f"INSERT INTO {self.schema}.t VALUES ({number}, REPEAT('x', {size}))")
        return time.monotonic() - start

    async def inserting(self, number: int, size: int = 1) -> asyncio.Task[float]:
        """The commit, which has begun to wait."""
        waits = self.status("wait_sessions")
        task = asyncio.create_task(asyncio.to_thread(self.insert, number, size))
        await self.until(lambda: task.done() or self.status("wait_sessions") > waits)
        return task

    def status(self, name: str) -> int:
        [(_, value)] = self.server.query(f"SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_{self.word}_{name}'")
        return int(value) if value.isdecimal() else int(value == "ON")

    def set(self, name: str, value: int | str) -> None:
        self.server.query(f"SET GLOBAL rpl_semi_sync_{self.word}_{name} = {value}")

    async def until(self, condition: object) -> None:
        """Until something is so on the server, which is asked now and then."""
        assert callable(condition)
        async with asyncio.timeout(SECONDS):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


@contextlib.contextmanager
def waiting(server: Server) -> Iterator[None]:
    """Semi-synchronous replication is on, and off again."""
    word = server.semi_sync_word
    is_plugin = server.family == "mysql"
    if is_plugin:
        server.query(f"INSTALL PLUGIN rpl_semi_sync_{word} SONAME 'semisync_{word}.so'")
    try:
        server.query(f"SET GLOBAL rpl_semi_sync_{word}_timeout = {TIMEOUT_SECONDS * 1000}")
        server.query(f"SET GLOBAL rpl_semi_sync_{word}_enabled = ON")
        yield
    finally:
        server.query(f"SET GLOBAL rpl_semi_sync_{word}_enabled = OFF")
        kill_dumps(server)
        if is_plugin:
            _uninstall(server, f"rpl_semi_sync_{word}")


def _uninstall(server: Server, plugin: str) -> None:
    """It refuses as long as it knows of a replica."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            server.query(f"UNINSTALL PLUGIN {plugin}")
            return
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def waiting_source(server: Server, schema: str) -> Iterator[Source]:
    """A source with an empty table ``t``, whose commits wait for a replica within the block."""
    server.query(f"CREATE TABLE {schema}.t (a INT PRIMARY KEY, b LONGTEXT)")
    with waiting(server):
        source = Source(server, schema)
        source.missed_before = source.status("no_tx")
        yield source


@contextlib.contextmanager
def acknowledged_slowly(source: Server) -> Iterator[None]:
    """A replica acknowledges each transaction after 20 ms, in a thread of its own.

    Its user is another than that of the streams of a test, which may cut all connections of these.
    """
    is_there = threading.Event()
    loop = asyncio.new_event_loop()

    async def acknowledge() -> None:
        dsn = source.dsn("root", source.root_password)
        async with replica.connect(dsn, semi_sync=True, tables="none.none") as stream:
            is_there.set()
            async for event in stream:
                if isinstance(event, replica.XidEvent):
                    await asyncio.sleep(0.02)

    task = loop.create_task(acknowledge())

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert is_there.wait(SECONDS)
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()
