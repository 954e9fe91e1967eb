"""Logs made by hand, a ``BinlogServer`` of them, and a client that sees every raw event."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from protocol.constants import EventType
from protocol.conversation.packets import FrameStream
from protocol.gtid import GtidSet, MariadbGtid
from replica.config.options import Options
from replica.server import BinlogServer
from replica.source.session import Session

from .log_builder import SOURCE_ID, LogBuilder
from .raw_events import rotate

USER, PASSWORD = "repl", "pässword-1"
SECONDS = 120
MARIADB = "11.8.6-MariaDB-log"
CHECKSUM_ASKED = "SET @master_binlog_checksum = 'CRC32'"


def gtids(first: int, last: int) -> GtidSet:
    """Transactions of the source of all these logs."""
    return GtidSet(f"{SOURCE_ID}:{first}-{last}")


def mysql_log(previous: GtidSet | None = None, **options: Any) -> LogBuilder:
    """A log as MySQL begins one."""
    log = LogBuilder(**options)
    log.add(EventType.PREVIOUS_GTIDS, (previous or GtidSet()).encode(), flags=0x80)
    return log


def mariadb_log(previous: Iterable[MariadbGtid] = (), **options: Any) -> LogBuilder:
    """A log as MariaDB begins one."""
    log = LogBuilder(version=MARIADB, **options)
    entries = [struct.pack("<IIQ", gtid.domain_id, gtid.server_id, gtid.sequence) for gtid in previous]
    log.add(EventType.MARIADB_GTID_LIST, len(entries).to_bytes(4, "little") + b"".join(entries))
    return log


def mariadb_transaction(log: LogBuilder, sequence: int, *, domain: int = 0, standalone: bool = False) -> None:
    """A row with that number, or a statement; the server's id in the events is 1."""
    body = struct.pack("<QIB", sequence, domain, int(standalone)) + bytes(6)
    log.add(EventType.MARIADB_GTID, body)
    if standalone:
        log.statement(f"CREATE TABLE t{sequence} (a INT)")
    else:
        log.transaction([sequence])


def close(log: LogBuilder, following: str) -> bytes:
    """The whole file, with the event that names the next one."""
    end = len(log.data) + 27 + len(following) + 4 * log.checksum
    log.append(rotate(following, next_position=end, checksum=log.checksum))
    return bytes(log.data)


def write_index(folder: Path, *names: str) -> None:
    """As servers write it, in one piece."""
    (folder / "index.tmp").write_text("".join(f"./{name}\n" for name in names))
    (folder / "index.tmp").rename(folder / "bin.index")


def write_mysql_files(folder: Path) -> list[str]:
    """Three files with transactions 1-2, 3-4 and 5-6, and their index."""
    names = [f"bin.00000{number}" for number in (1, 2, 3)]
    for index, name in enumerate(names):
        log = mysql_log(gtids(1, 2 * index) if index else None)
        for sequence in (2 * index + 1, 2 * index + 2):
            log.transaction([sequence], sequence=sequence)
        data = close(log, names[index + 1]) if index < 2 else bytes(log.data)
        (folder / name).write_bytes(data)
    write_index(folder, *names)
    return names


def stored_events(path: Path) -> list[bytes]:
    """The raw events of a file."""
    data, events, start = path.read_bytes(), [], 4
    while start < len(data):
        (size,) = struct.unpack_from("<I", data, start + 9)
        events.append(data[start : start + size])
        start += size
    return events


@contextlib.asynccontextmanager
async def serving(files: object, **options: Any) -> AsyncIterator[BinlogServer]:
    """A server of these files that looks for more of them every 5 ms; without TLS unless asked for."""
    given = {"user": USER, "password": PASSWORD, "tls": False, "poll_interval": 0.005} | options
    async with asyncio.timeout(SECONDS), BinlogServer(files, **given) as server:  # type: ignore[arg-type]
        yield server


def options_for(server: BinlogServer, **given: Any) -> Options:
    values = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD}
    return Options.build(None, values | {"tls": "disabled"} | given)


@contextlib.asynccontextmanager
async def logged_in(server: BinlogServer, *statements: str, **given: Any) -> AsyncIterator[Session]:
    """A connection over which these statements have been sent."""
    session = await Session.open(options_for(server, **given))
    try:
        for statement in statements:
            await session.query(statement)
        yield session
    finally:
        await session.aclose()


async def dumped(
    server: BinlogServer,
    file: str = "",
    position: int = 4,
    *statements: str,
    flags: int = 0,
    gtid_set: GtidSet | None = None,
) -> list[bytes]:
    """All raw events that a client gets that does not wait. Raises what the server refuses with."""
    async with logged_in(server, *(statements or (CHECKSUM_ASKED,))) as session:
        if gtid_set is None:
            session.start_dump(file, position, 0, flags)
        else:
            session.start_dump_gtid(gtid_set.encode(), 0, flags)
        events: list[bytes] = []
        while batch := await session.read_events(SECONDS):
            events += batch
        return events


async def read_for_ever(session: Session, silence: float = SECONDS) -> None:
    """Until something is raised."""
    while True:
        await session.read_events(silence)


def kinds(events: Iterable[bytes]) -> list[EventType]:
    return [EventType(raw[4]) for raw in events]


def rows_in(events: Iterable[bytes]) -> list[int]:
    """The numbers in the rows of ``LogBuilder``'s transactions."""
    found = []
    for raw in events:
        if raw[4] == EventType.WRITE_ROWS:
            # Table id, flags, extra data, width, columns and NULL bits stand before the number.
            (number,) = struct.unpack_from("<i", raw, 19 + 10 + 3)
            found.append(number)
    return found


class RawClient:
    """A plain socket: the test decides about every byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = FrameStream()

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(cls, server: BinlogServer, host: str = "127.0.0.1") -> Any:
        """``host``: the local address, all of which are those of this machine."""
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=(host, 0))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def payload(self) -> bytes:
        """The next packet's payload; empty at the end of the connection."""
        while (payload := self.frames.read()) is None:
            data = await self.reader.read(65536)
            if not data:
                return b""
            self.frames.receive(data)
        return payload

    async def is_closed(self) -> bool:
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        return True
