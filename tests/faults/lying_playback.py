"""A fuzzer of whole conversations: what a real server once said, played back with lies, to everything that reads it.

Each step is one consumer (a stream, a copy, a relay, the doctor, Spark's intake, a subcommand) and a source that
plays a recording back: it answers by statement, and damages packets, events (with checksums that fit), frames and
the bytes on the wire. Only errors of the library's tree may come out. The environment variable ``RECORDINGS`` names
files of ``tests.faults.recording``, separated by colons. See ``tests.support.limited_steps``.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import random
import re
import signal
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import replica
import replica.sync
from protocol.constants import Capability, Command
from protocol.conversation.commands import SEMI_SYNC_MAGIC
from protocol.conversation.compressed_packets import CompressedFrameStream, agreed_codec
from protocol.conversation.messages import AuthSwitchRequest, Err, Handshake, HandshakeResponse, Ok
from protocol.conversation.packets import MAX_PAYLOAD, FrameStream
from protocol.errors import ReplicaError
from replica.cli import make_parser
from replica.cli.console import Console
from replica.config.options import Options
from replica.doctor import examine
from replica.export.exporter import Exporter
from replica.relay import BinlogRelay
from replica.spool.live_log import LiveLog
from tests.faults.lying_source import take_transactions
from tests.faults.recording import DUMPS, HOST, Recording, key_of
from tests.support.limited_steps import Step
from tests.support.socket_source import next_payload

VARIABLE = "RECORDINGS"
# Longer than any conversation takes: a client that waits for ever fails.
_SECONDS = 60
_MOST_EVENTS = 400
_EVENT_HEADER = 19
_ROWS = bytes([Command.STMT_PREPARE, Command.STMT_EXECUTE])
_QUERIES = bytes([Command.QUERY, Command.REGISTER_SLAVE])
#: What is lied about, and the most answers of that kind that are true at first.
_TARGETS = (
    (bytes(DUMPS), 1),
    (bytes(DUMPS), 3),
    (_ROWS, 6),
    (_QUERIES, 30),
    (_QUERIES, 100),
    (bytes(1), 2),
    (bytes(1) + bytes(DUMPS) + _ROWS + _QUERIES, 20),
)
_SPECIAL = (0, 1, 2, 0x7F, 0x80, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)
_LENGTHS = (
    b"\xfb", b"\xff", b"\xfc\xff\xff", b"\xfd\xff\xff\xff", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\xfe\0\0\0\1\0\0\0\0", b"\xfc\0\0", b"\0",
)  # fmt: skip
_EVIL = "\x1b]0;x\x07\x9b1m\u202e`'\"\n*/../<script>".encode()
#: What no output on a terminal has, but for the colours of the command itself.
_COMMANDING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PACKETS = (
    b"", b"\0", b"\0\0\0\2\0\0\0", b"\0\0\0\x0a\0\0\0", b"\0\0\0\2\x40\0\0\0\3\1\2\3", b"\xfe", b"\xfe\0\0\2\0",
    b"\xfe\0\0\x0a\0", b"\xfe\0\0\2\0\0\0", b"\xff", b"\xff\x15\x04#28000Access denied", b"\xff\xd4\x04#HY000binlog",
    b"\xff\x78\x04#42S02no such table", b"\xff\xff\xff\xfe\0\0", b"\xfb/etc/passwd", b"\1", b"\xfc\xff\xff",
    b"\xfd\xff\xff\xff", b"\3def\0\0\0\1a\1a\x0c\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0",
    b"\xfemysql_clear_password\0", b"\xfecaching_sha2_password\0" + bytes(21), b"\xfedialog\0\4Password",
    b"\xfesha256_password\0" + bytes(21), b"\xfeclient_ed25519\0" + bytes(32), b"\xfeparsec\0" + bytes(32),
    b"\xfemysql_old_password\0" + bytes(9), b"\xfe\xff\xfe\0", b"\1\4", b"\1\3", b"\1" + bytes(300),
)  # fmt: skip


@dataclass
class Liar:
    """One seeded source: about one answer in ``rarity`` is damaged, and one in ``wire`` on the wire."""

    rng: random.Random
    recording: Recording
    others: list[Recording]
    rarity: int
    wire: int
    #: Bytes with which the commands begin whose answers may be lies; a zero stands for the login.
    targets: bytes = bytes(256)
    #: So many answers to these are true, before the first lie.
    spared: int = 0
    left: int = 300

    def may_lie(self, command: int) -> bool:
        if command not in self.targets:
            return False
        self.spared -= 1
        return self.spared < 0

    def payloads(self, key: bytes, *, is_lie: bool) -> list[bytes] | None:
        """An answer to a command; now and then another one, or another server's."""
        rng = self.rng
        recording = self.recording
        if is_lie and not rng.randrange(4 * self.rarity):
            recording = rng.choice(self.others)
        found = recording.find(key)
        if is_lie and not rng.randrange(4 * self.rarity):
            found = rng.choice(list(recording.answers.values()))
        return rng.choice(found) if found else None

    def lie(self, payloads: list[bytes], *, are_events: bool) -> list[bytes]:
        rng = self.rng
        if rng.randrange(self.rarity):
            return payloads
        payloads = list(payloads)
        for _ in range(rng.choice((1, 1, 1, 3))):
            if not payloads:
                return payloads
            place, other = rng.randrange(len(payloads)), rng.randrange(len(payloads))
            kind = rng.randrange(9)
            if kind == 0:
                del payloads[place]
            elif kind == 1:
                payloads.insert(other, payloads[place])
            elif kind == 2:
                payloads[place], payloads[other] = payloads[other], payloads[place]
            elif kind == 3:
                payloads[place] = rng.choice(_PACKETS)
            elif kind == 4:
                payloads.insert(place, rng.choice(_PACKETS))
            elif kind == 5:
                payloads[place : place + 1] = [payloads[place]] * rng.choice((2, 300, 5000))
            elif are_events and len(payloads[place]) > _EVENT_HEADER + 4 and rng.random() < 0.8:
                payloads[place] = self._event(payloads[place])
            else:
                payloads[place] = self._damaged(payloads[place])
        return payloads

    def _event(self, payload: bytes) -> bytes:
        """A damaged event, mostly with the size and the checksum that it then has."""
        rng = self.rng
        prefix, raw = payload[:1], payload[1:]
        if raw[:1] == bytes([SEMI_SYNC_MAGIC]):
            prefix, raw = payload[:3], payload[3:]
        body = self._damaged(raw[_EVENT_HEADER:-4])
        head = bytearray(raw[:_EVENT_HEADER])
        if not rng.randrange(6):
            head[rng.choice((4, 4, 13, 17, 18))] = rng.choice((*_SPECIAL, rng.randrange(256)))
        if rng.randrange(6):
            size = _EVENT_HEADER + len(body) + 4
            end = int.from_bytes(head[13:17], "little")
            head[9:13] = size.to_bytes(4, "little")
            head[13:17] = (max(end - len(raw) + size, 0) & 0xFFFFFFFF).to_bytes(4, "little")
        event = bytes(head) + body
        return prefix + event + (zlib.crc32(event).to_bytes(4, "little") if rng.randrange(8) else raw[-4:])

    def _damaged(self, data: bytes) -> bytes:
        rng = self.rng
        kind = rng.randrange(7)
        place = rng.randrange(len(data) + 1)
        if kind == 6:
            # No longer than before: the text gets into names and values.
            text = _EVIL[: max(len(data) - place, 0)]
            return data[:place] + text + data[place + len(text) :]
        if kind == 0:
            return data[:place]
        if kind == 1:
            return data[:place] + rng.randbytes(rng.randrange(1, 40)) + data[place:]
        if kind == 2:
            return data[:place] + rng.choice(_LENGTHS) + data[place + 1 :]
        if kind == 3:
            return data + rng.randbytes(rng.randrange(1, 40))
        changed = bytearray(data or b"\0")
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(changed))
            changed[at] = rng.choice(_SPECIAL) if kind == 4 else changed[at] ^ (1 << rng.randrange(8))
        return bytes(changed)

    def wired(self, data: bytes) -> bytes:
        if not self.wire or self.rng.randrange(self.wire):
            return data
        return self._damaged(data)


class _Conversation:
    def __init__(self, liar: Liar, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.liar, self.reader, self.writer = liar, reader, writer
        self.frames = FrameStream(MAX_PAYLOAD)
        self.is_semi_sync = False
        self.statement = b""

    async def send(self, *payloads: bytes, is_lie: bool, are_events: bool = False) -> None:
        rng = self.liar.rng
        data = []
        sent = self.liar.lie([*payloads], are_events=are_events) if is_lie else payloads
        for payload in sent:
            frames = self.frames.encode(payload)
            data.append(self.liar.wired(frames) if is_lie else frames)
            if are_events and self.is_semi_sync and payload[1:3] == bytes([SEMI_SYNC_MAGIC, 1]):
                self.frames.sequence = 1
        whole = b"".join(data)
        if not rng.randrange(40):
            # Slowly, in small pieces.
            for start in range(0, min(len(whole), 600), 20):
                self.writer.write(whole[start : start + 20])
                await self.writer.drain()
                await asyncio.sleep(0.001)
            whole = whole[600:]
        self.writer.write(whole)
        await self.writer.drain()

    async def receive(self) -> bytes:
        return await next_payload(self.reader, self.frames)

    async def run(self) -> None:
        greeting = Handshake.parse(self.liar.recording.greeting)
        capabilities = (greeting.capabilities | Capability.COMPRESS) & ~Capability.SSL
        plugin = "mysql_native_password"
        is_lie = self.liar.may_lie(0)
        await self.send(
            Handshake(greeting.server_version, 7, capabilities, greeting.auth_data, plugin).encode(),
            is_lie=is_lie,
        )
        response = HandshakeResponse.parse(await self.receive())
        for switch in self.liar.rng.choices(("", "mysql_native_password", "client_ed25519"), (8, 1, 1)):
            if switch:
                await self.send(AuthSwitchRequest(switch, bytes(range(1, 33))).encode(), is_lie=is_lie)
                await self.receive()
        await self.send(Ok().encode(), is_lie=is_lie)
        codec = agreed_codec(response.capabilities)
        if codec is not None:
            self.frames = CompressedFrameStream(codec)
        while await self.command():
            pass

    async def command(self) -> bool:
        self.frames.start_command()
        payload = await self.receive()
        if not payload or payload[0] == Command.QUIT:
            return False
        if payload[0] in (Command.STMT_CLOSE, SEMI_SYNC_MAGIC):
            return True
        if payload[0] == Command.STMT_PREPARE:
            self.statement = payload
        self.is_semi_sync |= b"@rpl_semi_sync" in payload
        is_lie = self.liar.may_lie(payload[0])
        answer = self.liar.payloads(key_of(payload, self.statement), is_lie=is_lie)
        if answer is None:
            unknown = Err(1064, "42000", "You have an error in your SQL syntax")
            message = Ok() if payload[1:5] == b"SET " else unknown
            await self.send(message.encode(), is_lie=is_lie)
        elif payload[0] in DUMPS:
            if self.is_semi_sync:
                flags = self.liar.rng.choices((0, 1), k=len(answer))
                marks = [bytes([0, SEMI_SYNC_MAGIC, flag]) for flag in flags]
                answer = [mark + event[1:] for mark, event in zip(marks, answer, strict=True)]
            await self.send(*answer, are_events=True, is_lie=is_lie)
            await asyncio.sleep(self.liar.rng.choice((0, 0.05, 0.5)))
            return False
        else:
            await self.send(*answer, is_lie=is_lie)
        self.liar.left -= 1
        return self.liar.left > 0


async def _serve(liar: Liar, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ReplicaError, asyncio.CancelledError):
        await _Conversation(liar, reader, writer).run()
    writer.close()


@contextlib.contextmanager
def playing(liar: Liar) -> Iterator[int]:
    """The source in a thread of its own; the port of 127.0.0.1 that it listens at."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(partial(_serve, liar), HOST, 0)

    async def stop() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


# The consumers.


@dataclass
class Run:
    """One consumer's run: where the source is, and a folder for files."""

    rng: random.Random
    dsn: str
    folder: str

    def options(self) -> dict[str, Any]:
        given: dict[str, Any] = {"connect_timeout": 0.3, "heartbeat": 0.4, "max_event_bytes": 64 << 20}
        given["exclude_tables"] = ("*.w", "*.z")
        if not self.rng.randrange(4):
            given["compression"] = self.rng.choice(("zlib", "zstd,zlib,uncompressed"))
        return given

    def start(self) -> str | None:
        return self.rng.choice((None, "earliest", "earliest", "now", "binlog.000001:4", "snapshot"))


async def _stream(run: Run) -> None:
    given = run.options() | {"start": run.start(), "stop": run.rng.choice((None, "now"))}
    given["semi_sync"] = run.rng.random() < 0.3
    async with replica.connect(run.dsn, reconnect=False, **given) as stream:
        count = 0
        async for event in stream:
            repr(event)
            for change in getattr(event, "changes", list)():
                repr(change)
            count += 1
            if count > _MOST_EVENTS:
                return


async def _transactions(run: Run) -> None:
    policy = replica.ReconnectPolicy(initial=0.001, maximum=0.001, attempts=2)
    schemas = replica.FileSchemaStore(os.path.join(run.folder, "schemas"))
    given = run.options() | {"start": run.start(), "schemas": schemas, "reconnect": policy}
    async with replica.connect(run.dsn, **given) as stream:
        await take_transactions(stream, _MOST_EVENTS)


def _sync(run: Run) -> None:
    given = run.options() | {"start": run.start(), "stop": "now"}
    with replica.sync.connect(run.dsn, reconnect=False, **given) as stream:
        for event in stream:
            repr(event)


async def _columns(run: Run) -> None:
    given = run.options() | {"start": "earliest", "stop": "now"}
    async with replica.connect(run.dsn, reconnect=False, **given) as stream:
        async for batch in stream.arrow(table="test_1.t"):
            repr(batch)


async def _relay(run: Run) -> None:
    once = run.rng.random() < 0.7
    await BinlogRelay(run.dsn, run.folder, once=once, reconnect=False, connect_timeout=0.3).run()


async def _doctor(run: Run) -> None:
    for finding in await examine(run.dsn, connect_timeout=0.3, server_id=7, semi_sync=True):
        repr(finding)


async def _copy(run: Run) -> None:
    options = Options.build(run.dsn, run.options() | {"reconnect": False})
    form = run.rng.choice(("jsonl", "csv"))
    with contextlib.closing(Exporter(options, os.path.join(run.folder, "copy"), form)) as exporter:
        async with exporter.stream:
            await exporter.copy(lambda status: None)
        if exporter.is_copied:
            list(exporter.finish())


def _intake(run: Run) -> None:
    options = Options.build(run.dsn, run.options() | {"reconnect": False})
    with contextlib.closing(LiveLog(options, os.path.join(run.folder, "spool"))) as log:
        start = log.find(run.rng.choice(("earliest", "latest", "snapshot")))
        log.follow(start, is_new=run.rng.random() < 0.5)
        end = log.take(None, None, 0.3)
        log.pieces(start, end, 1 << 20)


class _FakeTerminal(io.BytesIO):
    """Keeps what is written; its number is a terminal's, whose size can be asked for."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number


def _command(run: Run) -> None:
    """A subcommand; what it says of an unexpected error names a defect."""
    dsn = f"{run.dsn}&connect_timeout=0.3&heartbeat=0.4&reconnect=false"
    form = run.rng.choice(("json", "yaml", "sql", "text"))
    arguments = run.rng.choice(
        (
            ["tail", "--from", "earliest", "--stop", "now", "-f", form, dsn],
            [
                "stats",
                "-f",
                run.rng.choice(("json", "text")),
                "--html",
                os.path.join(run.folder, "page"),
                dsn,
            ],
            ["doctor", dsn],
            ["doctor", dsn],
            ["copy", "--to", os.path.join(run.folder, "to"), "-f", "csv", "--exclude-tables", "*.w,*.z", dsn],
        )
    )
    options = make_parser().parse_args(arguments)
    master, terminal = pty.openpty()
    output, errors = _FakeTerminal(terminal), io.StringIO()
    errors.isatty = output.isatty  # type: ignore[method-assign]
    console = Console(output, errors)
    try:
        options.command.run(options, console)
    except ReplicaError as error:
        console.note(str(error))
    os.close(terminal)
    os.close(master)
    for text in (output.getvalue().decode(), errors.getvalue()):
        assert not _COMMANDING.search(_COLOUR.sub("", text)), text


_CONSUMERS: tuple[Callable[[Run], Any], ...] = (
    _stream, _stream, _transactions, _sync, _columns, _relay, _doctor, _copy, _copy, _intake, _command, _command,
)  # fmt: skip


class _TooLongError(BaseException):
    """The wall clock has passed ``_SECONDS``."""


def _give_up(number: int, frame: FrameType | None) -> None:
    raise _TooLongError


def _run(rng: random.Random, recordings: list[Recording]) -> None:
    rarity = rng.choice((1, 3, 20))
    liar = Liar(rng, rng.choice(recordings), recordings, rarity, rng.choice((0, 0, 10 * rarity)))
    liar.targets, most = rng.choice(_TARGETS)
    liar.spared = rng.randrange(most)
    consume = rng.choice(_CONSUMERS)
    own = random.Random(rng.random())
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(_SECONDS)
    with playing(liar) as port, tempfile.TemporaryDirectory() as folder:
        run = Run(own, f"mysql://repl:secret@{HOST}:{port}/?tls=disabled", folder)
        with contextlib.suppress(ReplicaError):
            found = consume(run)
            if found is not None:
                asyncio.run(found)
    signal.alarm(0)


def steps(seed: int) -> Iterator[Step]:
    """Conversations without end; each depends on the seed and its number alone, but for the order of connections."""
    recordings = [Recording.load(Path(path)) for path in os.environ[VARIABLE].split(":")]
    number = 0
    while True:
        yield f"playback {number}", partial(_run, random.Random(f"{seed}/{number}"), recordings)
        number += 1
