"""A source on a loopback port for tests of the asyncio half: logs anybody in, answers, and sends scripted events.

It checks no password and no grammar. What a real source does is tested on real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from protocol.constants import Capability, Command, EventType
from protocol.conversation.commands import BinlogDump, BinlogDumpGtid, Query
from protocol.conversation.messages import Err, Handshake, HandshakeResponse, Ok
from protocol.conversation.packets import MAX_PAYLOAD, FrameStream
from protocol.conversation.results import ColumnDefinition, encode_row

from .fake_source import MARIADB_CAPABILITIES, NONCE, OLD_CAPABILITIES

Rows = Sequence[tuple[str | None, ...]]
FILE = "binlog.000001"
#: How the question about the columns of all tables begins.
ALL_COLUMNS = "SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
#: How the statements of the settings begin.
SETTINGS = ("SET NAMES", "SELECT @@SESSION.autocommit")
UUID = "11111111-2222-3333-4444-555555555555"
MYSQL_VARIABLES = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_checksum": "NONE",
    "gtid_mode": "OFF",
    "server_id": "97",
    "server_uuid": UUID,
}


@dataclass
class SocketSource:
    """``answers`` are looked up by the beginning of the statement; the longest one wins.

    ``events`` are sent to each dump with a ``pause`` in seconds behind each, and then the source is silent.
    ``events_for`` says instead what a dump gets; the first connections are cut after so many bytes of theirs as
    ``cuts`` has, and ``on_cut`` is called then. ``columns`` are the rows of information_schema.COLUMNS
    for each table of the log; they hold from ``tables_since`` on, a position in the file.
    ``silent_for`` is the beginning of a statement that is never answered, or "login". ``delay`` is how many seconds
    each answer takes. ``alter`` makes of each payload those that are sent, ``alter_bytes`` of their frames the bytes.
    """

    events: list[bytes] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=lambda: dict(MYSQL_VARIABLES))
    answers: dict[str, Rows | Err | Callable[[], Rows]] = field(default_factory=dict)
    columns: Sequence[tuple[str | None, ...]] = field(default_factory=list)
    version: str = "9.7.4"
    tables_since: int = 4
    silent_for: str = ""
    refuses_login: Err | None = None
    settings: Callable[[str], Ok | Err] = lambda sql: Ok()
    refuses_dump: Err | None = None
    ends_dump: bool = False
    closes_after_events: bool = False
    events_for: Callable[[BinlogDump | BinlogDumpGtid], list[bytes]] | None = None
    cuts: list[int] = field(default_factory=list)
    on_cut: Callable[[], None] = lambda: None
    alter: Callable[[bytes], Iterable[bytes]] = lambda payload: (payload,)
    alter_bytes: Callable[[bytes], bytes] = lambda data: data
    pause: float = 0
    delay: float = 0
    port: int = 0
    statements: list[str] = field(default_factory=list)
    dumps: list[BinlogDump | BinlogDumpGtid] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    conversations: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return f"mysql://repl:secret@127.0.0.1:{self.port}/?tls=disabled"

    @property
    def is_open(self) -> bool:
        """Whether a client is still connected."""
        return not all(conversation.done() for conversation in self.conversations)

    def has_been_asked(self, beginning: str) -> bool:
        """Whether a statement that begins so has come."""
        return any(sql.startswith(beginning) for sql in self.statements)

    async def until_closed(self) -> None:
        """Return when no client is connected."""
        async with asyncio.timeout(10):
            await asyncio.gather(*self.conversations, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self.conversations.append(task)
        try:
            await _Conversation(self, reader, writer).run()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def tables(self) -> set[tuple[str, str]]:
        """Schema and name of each table that the events have a table map of; s.t may be in a compressed one."""
        found = {("s", "t")}
        for raw in self.events:
            if len(raw) > 27 and raw[4] == EventType.TABLE_MAP:
                schema, rest = raw[28 : 28 + raw[27]], raw[29 + raw[27] :]
                found.add((schema.decode(), rest[1 : 1 + rest[0]].decode()))
        return found

    def describe(self) -> Rows | Err | None:
        """The answer about all columns, from what a question about one table gets."""
        rows = self.answer("SELECT COLUMN_NAME FROM information_schema.COLUMNS")
        if not isinstance(rows, Sequence):
            return rows
        return [
            (schema, name, str(number), *row, "", "")
            for schema, name in sorted(self.tables())
            for number, row in enumerate(rows, 1)
        ]

    def answer(self, sql: str) -> Rows | Err | None:
        known = [prefix for prefix in self.answers if sql.startswith(prefix)]
        if known:
            answer = self.answers[max(known, key=len)]
            return answer() if callable(answer) else answer
        if sql.startswith("SHOW GLOBAL VARIABLES"):
            return list(self.variables.items())
        if sql.startswith(ALL_COLUMNS):
            return self.describe()
        if sql.startswith("SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME"):
            primary = [row[0] for row in self.columns if row[5] == "PRI"]
            return [
                (*table, "PRIMARY", str(number), name, None, "0", "BTREE")
                for table in sorted(self.tables())
                for number, name in enumerate(primary, 1)
            ]
        if sql.startswith("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE"):
            return [(*table, "BASE TABLE", "InnoDB", "utf8mb4_0900_ai_ci") for table in sorted(self.tables())]
        if "information_schema.COLUMNS" in sql:
            return self.columns
        if sql in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
            # What the source says of its tables holds from this place on.
            return [(FILE, str(self.tables_since), "", "", "")]
        if sql.startswith("SELECT UNIX_TIMESTAMP"):
            return [("1700000000",)]
        if sql.startswith("SELECT @master_binlog_checksum"):
            return [(self.variables["binlog_checksum"],)]
        return None


class _Conversation:
    def __init__(
        self, source: SocketSource, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.source = source
        self.reader = reader
        self.writer = writer
        self.frames = FrameStream(MAX_PAYLOAD)

    def send(self, *payloads: bytes) -> None:
        for payload in payloads:
            for altered in self.source.alter(payload):
                self.writer.write(self.source.alter_bytes(self.frames.encode(altered)))

    async def receive(self) -> bytes:
        return await next_payload(self.reader, self.frames)

    async def run(self) -> None:
        if self.source.silent_for == "login":
            await self.reader.read()
        is_mariadb = "MariaDB" in self.source.version
        capabilities = MARIADB_CAPABILITIES if is_mariadb else OLD_CAPABILITIES
        self.send(
            Handshake(self.source.version, 7, capabilities, NONCE + b"\0", "mysql_native_password").encode()
        )
        response = HandshakeResponse.parse(await self.receive())
        if self.source.refuses_login is not None:
            self.send(self.source.refuses_login.encode())
            return
        self.send(Ok().encode())
        while await self.command(Capability.DEPRECATE_EOF in response.capabilities):
            pass

    async def command(self, deprecate_eof: bool) -> bool:
        self.frames.sequence = 0
        payload = await self.receive()
        await asyncio.sleep(self.source.delay)
        if payload[0] == Command.QUERY:
            sql = Query.parse(payload).sql
            if sql.startswith(SETTINGS):
                # Each connection begins with them.
                self.send(self.source.settings(sql).encode())
                return True
            self.source.statements.append(sql)
            if self.source.silent_for and sql.startswith(self.source.silent_for):
                return True
            self.send(*_encode(self.source.answer(sql), deprecate_eof))
        elif payload[0] == Command.REGISTER_SLAVE:
            self.send(Ok().encode())
        elif payload[0] in (Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID):
            parse = BinlogDump.parse if payload[0] == Command.BINLOG_DUMP else BinlogDumpGtid.parse
            self.source.dumps.append(parse(payload))
            await self.dump()
        else:
            return False
        return True

    async def dump(self) -> None:
        if self.source.refuses_dump is not None:
            self.send(self.source.refuses_dump.encode())
            return
        source = self.source
        events = source.events if source.events_for is None else source.events_for(source.dumps[-1])
        if source.cuts:
            whole = b"".join(self.frames.encode(b"\0" + event) for event in events)
            self.writer.write(whole[: source.cuts.pop(0)])
            await self.writer.drain()
            source.on_cut()
            raise ConnectionResetError
        for event in events:
            self.send(b"\0" + event)
            await self.writer.drain()
            if self.source.pause:
                await asyncio.sleep(self.source.pause)
        if self.source.ends_dump:
            self.send(b"\xfe\0\0\2\0")
        if self.source.closes_after_events:
            raise ConnectionResetError


def _encode(answer: Rows | Err | None, deprecate_eof: bool) -> list[bytes]:
    if answer is None:
        return [Ok().encode()]
    if isinstance(answer, Err):
        return [answer.encode()]
    width = len(answer[0]) if answer else 1
    end = Ok(ends_rows=True).encode() if deprecate_eof else b"\xfe\0\0\2\0"
    middle = [] if deprecate_eof else [b"\xfe\0\0\2\0"]
    columns = [ColumnDefinition(f"c{index}", 253).encode() for index in range(width)]
    return [bytes([width]), *columns, *middle, *map(encode_row, answer), end]


async def next_payload(reader: asyncio.StreamReader, frames: FrameStream) -> bytes:
    """The client's next packet. Raises ``ConnectionResetError`` when it has gone."""
    while (payload := frames.read()) is None:
        data = await reader.read(65536)
        if not data:
            raise ConnectionResetError
        frames.receive(data)
    return payload


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as the condition holds; at the latest after ten seconds, with TimeoutError."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def serving(source: SocketSource) -> AsyncIterator[SocketSource]:
    """The source, listening on a free port of 127.0.0.1; its connections are closed at the end."""
    server = await asyncio.start_server(source.serve, "127.0.0.1", 0)
    source.port = server.sockets[0].getsockname()[1]
    try:
        yield source
    finally:
        server.close()
        for writer in source.writers:
            writer.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*source.conversations, return_exceptions=True)
            await server.wait_closed()
