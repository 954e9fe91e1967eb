"""Whole conversations of a real server, recorded by a proxy, so that a lying server can play them back.

``Recorder`` stands on a port of 127.0.0.1 in front of the server, without TLS and compression, and writes down which
packets answer which command. A ``Recording`` finds the answers to a command, whichever connection asks: what differs
between two runs (ids, uuids, numbers of statements) is left out of its key.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from protocol.constants import MAX_FRAME_PAYLOAD, Command
from protocol.conversation.commands import SEMI_SYNC_MAGIC
from protocol.conversation.packets import HEADER_SIZE

HOST = "127.0.0.1"
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DUMPS = (Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID)
_NUMBER = re.compile(rb"[0-9]+")
_WITHOUT_ANSWER = (Command.QUIT, Command.STMT_CLOSE, SEMI_SYNC_MAGIC)

#: Command -> its key -> the payloads of each answer that it got.
Answers = dict[bytes, list[list[bytes]]]


def key_of(command: bytes, statement: bytes = b"") -> bytes:
    """What a command is looked up by; an execution by the ``statement`` that was prepared last."""
    if command[0] == Command.QUERY or command[0] == Command.STMT_PREPARE:
        return _UUID.sub(b"uuid", command)
    if command[0] == Command.BINLOG_DUMP:
        return command[:5] + command[11:]
    return command[:1] + (key_of(statement) if command[0] == Command.STMT_EXECUTE and statement else b"")


def _without_numbers(key: bytes) -> bytes:
    return _NUMBER.sub(b"1", key)


def _family(key: bytes) -> bytes:
    return key[:1]


@dataclass
class Recording:
    """The greeting of a server, and its answers; those of dumps are all that came until the client went."""

    greeting: bytes = b""
    answers: Answers = field(default_factory=dict)

    def find(self, key: bytes) -> list[list[bytes]]:
        """The answers to a command; without any, those to commands that differ in numbers, or to any dump."""
        if key in self.answers:
            return self.answers[key]
        likes: Callable[[bytes], bytes] = _family if key[0] in DUMPS else _without_numbers
        return [
            answer for other, some in self.answers.items() if likes(other) == likes(key) for answer in some
        ]

    def add(self, key: bytes) -> list[bytes]:
        """A new answer, to be filled."""
        answer: list[bytes] = []
        self.answers.setdefault(key, []).append(answer)
        return answer

    def save(self, path: Path) -> None:
        path.write_bytes(pickle.dumps((self.greeting, self.answers)))

    @classmethod
    def load(cls, path: Path) -> Recording:
        return cls(*pickle.loads(path.read_bytes()))


class Recorder:
    """The proxy: ``recording`` has what passed, once the clients have gone."""

    def __init__(self, port: int) -> None:
        self.recording = Recording()
        self.port = 0
        self._server_port = port
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def before(cls, port: int) -> AsyncIterator[Recorder]:
        """A recorder before the server at ``port``; when the block ends, all clients have to be gone."""
        recorder = cls(port)
        server = await asyncio.start_server(recorder._serve, HOST, 0)
        recorder.port = server.sockets[0].getsockname()[1]
        try:
            yield recorder
        finally:
            server.close()
            await asyncio.wait_for(asyncio.gather(*recorder._tasks, return_exceptions=True), 30)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        far_reader, far_writer = await asyncio.open_connection(HOST, self._server_port)
        tape = _Tape(self.recording)
        with contextlib.suppress(OSError):
            await asyncio.gather(
                _pass(reader, far_writer, tape.hear_client), _pass(far_reader, writer, tape.hear_server)
            )


class _Packets:
    """Cuts one direction's bytes into packets; returns the number of each packet's first frame and its payload."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        self._data += data
        found = []
        while (packet := self._take()) is not None:
            found.append(packet)
        return found

    def _take(self) -> tuple[int, bytes] | None:
        position, payload = 0, b""
        while len(self._data) - position >= HEADER_SIZE:
            size = int.from_bytes(self._data[position : position + 3], "little")
            start, position = position + HEADER_SIZE, position + HEADER_SIZE + size
            if position > len(self._data):
                break
            payload += self._data[start:position]
            if size < MAX_FRAME_PAYLOAD:
                number = self._data[3]
                del self._data[:position]
                return number, payload
        return None


class _Tape:
    """Writes one connection down: commands have the number 0, and the first packet of an answer has 1."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._client, self._server = _Packets(), _Packets()
        self._answer: list[bytes] | None = None
        self._statement = b""
        self._commands: list[bytes] = []
        self._last = 0

    def hear_client(self, data: bytes) -> None:
        for number, command in self._client.feed(data):
            if number or command[0] in _WITHOUT_ANSWER:
                continue
            if command[0] == Command.STMT_PREPARE:
                self._statement = command
            self._commands.append(key_of(command, self._statement))

    def hear_server(self, data: bytes) -> None:
        for number, payload in self._server.feed(data):
            if not self._recording.greeting:
                self._recording.greeting = payload
            has_wrapped, self._last = self._last == 0, number
            if number == 1 and self._commands and not has_wrapped:
                self._answer = self._recording.add(self._commands.pop(0))
            if self._answer is not None:
                self._answer.append(payload)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], None]
) -> None:
    try:
        while data := await reader.read(1 << 16):
            hear(data)
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
