"""A TCP proxy that fails as networks do: it cuts, stalls and damages connections at bytes that a seeded plan names.

It stands on a port of 127.0.0.1 in front of a server. Bytes are counted from the server to the client; what the
client sends is only looked at for the command that begins a binlog dump, because before it no checksum guards the
bytes and no bit is flipped there. TLS has to be off, and it has to know of compression: the proxy reads the packets'
headers.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle
from typing import Final, Literal, Self

HOST: Final = "127.0.0.1"
_FRAME_HEADER: Final = 4
_COMPRESSED_HEADER: Final = 7
_DUMP_COMMANDS: Final = (0x12, 0x1E)  # COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID
_CHUNK: Final = 64 << 10
_POLL_SECONDS: Final = 0.01
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # struct linger
# Distances between faults reach from a few bytes, so that some lie within the login, to very many.
_SPREAD: Final = 100_000

Kind = Literal["fin", "rst", "stall", "flip"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens ``distance`` bytes after the fault before it. Flips count only bytes of a dump.

    ``is_seen``: the server's side of the connection is closed too; otherwise the server goes on believing in it.
    """

    kind: Kind
    distance: int
    is_seen: bool = True
    bit: int = 0


def plan(rng: random.Random, *, cuts: int, stalls: int, flips: int, reach: int) -> list[Fault]:
    """So many faults of each kind in random order, all within ``reach`` bytes; half of the cuts are resets."""
    wanted: dict[Kind, int] = {"fin": cuts - cuts // 2, "rst": cuts // 2, "stall": stalls, "flip": flips}
    kinds = [kind for kind, count in wanted.items() for _ in range(count)]
    rng.shuffle(kinds)
    weights = [math.exp(rng.uniform(0, math.log(_SPREAD))) for _ in kinds]
    unit = reach / max(sum(weights), 1)
    return [
        Fault(kind, int(weight * unit), rng.random() < 0.5, rng.randrange(8))
        for kind, weight in zip(kinds, weights, strict=True)
    ]


class _CommandWatch:
    """Finds the command that begins a dump in the bytes that a client sends.

    Where they are compressed, commands (number 0) are, and those of a dump are so short that they are sent as they
    are; what is said at the login is not.
    """

    def __init__(self, *, is_compressed: bool) -> None:
        self._command_header = _COMPRESSED_HEADER if is_compressed else 0
        self.dump_began = False
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> None:
        if self.dump_began:
            return
        self._buffer += data
        while True:
            skipped = min(self._skip, len(self._buffer))
            del self._buffer[:skipped]
            self._skip -= skipped
            place = self._command_header + _FRAME_HEADER
            if len(self._buffer) <= place:
                return
            length, sequence = int.from_bytes(self._buffer[:3], "little"), self._buffer[3]
            if sequence == 0 and self._buffer[place] in _DUMP_COMMANDS:
                self.dump_began = True
                return
            is_frame = sequence != 0 or not self._command_header
            self._skip = (_FRAME_HEADER if is_frame else _COMPRESSED_HEADER) + length


class _Link:
    """One connection through the proxy."""

    def __init__(
        self,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        watch: _CommandWatch,
    ) -> None:
        self.number = number
        self.client_reader = reader
        self.client = writer
        self.server: asyncio.StreamWriter | None = None
        self.watch = watch
        self.is_stalled = False
        self.sent = 0

    def close_client(self, *, reset: bool) -> None:
        if reset:
            raw: socket.socket = self.client.get_extra_info("socket")
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.client.transport.abort()
        else:
            self.client.close()

    def close_server(self) -> None:
        if self.server is not None:
            self.server.transport.abort()

    def close(self) -> None:
        self.client.transport.abort()
        self.close_server()


class FaultProxy:
    """``async with FaultProxy(server.port) as proxy``: clients connect to ``proxy.port``.

    ``counts`` holds how many faults of each kind have happened and ``history`` what happened where; ``pending`` says
    how many are still to come; ``dump_bytes`` have been sent behind the commands that begin a dump.
    """

    def __init__(self, port: int, *, is_compressed: bool = False) -> None:
        self._is_compressed = is_compressed
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        self.connections = 0
        self.dump_bytes = 0
        self._targets = cycle((port,))
        self._faults: deque[Fault] = deque()
        self._since = 0
        self._rate: float | None = None
        self._light = asyncio.Event()
        self._light.set()
        self._links: set[_Link] = set()
        self._unnoticed: list[_Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self._light.set()
        # Nothing is cancelled: each connection's task ends when its sockets do.
        while self._tasks:
            for link in list(self._links):
                link.close()
            await asyncio.wait(self._tasks, timeout=_POLL_SECONDS)
        for link in self._unnoticed:
            link.close_server()
            if link.server is not None:
                with contextlib.suppress(OSError):
                    await link.server.wait_closed()
        await self._listener.wait_closed()

    @property
    def port(self) -> int:
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def pending(self) -> int:
        return len(self._faults)

    @property
    def open_connections(self) -> int:
        return len(self._links)

    def arm(self, faults: Iterable[Fault]) -> None:
        """From now on these happen, after what is still to come."""
        self._faults.extend(faults)

    def disarm(self) -> None:
        """What is still to come does not."""
        self._faults.clear()

    def cut_now(self, *, reset: bool = True) -> None:
        """Cut every connection, on both sides."""
        for link in list(self._links):
            self._note("rst" if reset else "fin", link)
            link.close_client(reset=reset)
            link.close_server()

    def black_hole(self) -> None:
        """From now on nothing comes through in either direction, as when a firewall drops every packet."""
        self._light.clear()
        self.counts["black hole"] += 1

    def serve(self) -> None:
        """Let bytes through again, those included that have waited."""
        self._light.set()

    def throttle(self, bytes_per_second: float | None) -> None:
        """Slow down what the server sends; None: as fast as it goes."""
        self._rate = bytes_per_second

    def damage_next(self, distance: int, bit: int) -> None:
        """Flip a bit of what is sent next in a dump, behind so many bytes."""
        self._faults.appendleft(Fault("flip", distance, bit=bit))
        self._since = 0

    def retarget(self, port: int) -> None:
        """Later connections go to another server."""
        self.balance(port)

    def balance(self, *ports: int) -> None:
        """Later connections go to these servers in turn."""
        self._targets = cycle(ports)

    def _note(self, kind: str, link: _Link) -> None:
        self.counts[kind] += 1
        phase = "dump" if link.watch.dump_began else "login"
        self.history.append(f"{kind} at byte {link.sent} of connection {link.number} ({phase})")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        link = _Link(self.connections, reader, writer, _CommandWatch(is_compressed=self._is_compressed))
        self._links.add(link)
        try:
            await self._light.wait()
            await self._join(link)
        except OSError:
            pass  # One side is gone; so is the other, below.
        finally:
            self._links.discard(link)
            self._tasks.discard(task)
            link.client.transport.abort()
            if link not in self._unnoticed:
                link.close_server()

    async def _join(self, link: _Link) -> None:
        server_reader, link.server = await asyncio.open_connection(HOST, next(self._targets))
        upward = asyncio.ensure_future(self._upward(link))
        downward = asyncio.ensure_future(self._downward(link, server_reader))
        try:
            done, _ = await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
        finally:
            for pump in (upward, downward):
                pump.cancel()
            await asyncio.gather(upward, downward, return_exceptions=True)

    async def _upward(self, link: _Link) -> None:
        assert link.server is not None
        while data := await link.client_reader.read(_CHUNK):
            link.watch.feed(data)
            await self._light.wait()
            if not link.is_stalled:
                link.server.write(data)
                await link.server.drain()

    async def _downward(self, link: _Link, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK):
            if self._rate is not None:
                await asyncio.sleep(len(data) / self._rate)
            await self._light.wait()
            while data and not link.is_stalled:
                data = await self._forward(link, data)
                if link.client.transport.is_closing():
                    # What was written is still on its way, with a FIN behind it.
                    with contextlib.suppress(OSError):
                        await link.client.wait_closed()
                    return
            if link.is_stalled:
                await asyncio.get_running_loop().create_future()

    async def _forward(self, link: _Link, data: bytes) -> bytes:
        """Send bytes up to the next fault, which happens then; returns those behind it."""
        fault = self._faults[0] if self._faults else None
        if fault is None or (fault.kind == "flip" and not link.watch.dump_began):
            await self._send(link, data)
            return b""
        ahead = fault.distance - self._since
        if ahead >= len(data):
            self._since += len(data)
            await self._send(link, data)
            return b""
        self._faults.popleft()
        self._since = 0
        try:
            await self._send(link, data[:ahead])
        except BaseException:
            # The client has hung up meanwhile, so the fault has not happened: another connection meets it.
            self._faults.appendleft(fault)
            raise
        self._note(fault.kind, link)
        if fault.kind == "flip":
            await self._send(link, bytes([data[ahead] ^ 1 << fault.bit]))
            return data[ahead + 1 :]
        if not fault.is_seen:
            self._unnoticed.append(link)
        if fault.kind == "stall":
            link.is_stalled = True
        else:
            link.close_client(reset=fault.kind == "rst")
        return b""

    async def _send(self, link: _Link, data: bytes) -> None:
        link.sent += len(data)
        self.dump_bytes += len(data) * link.watch.dump_began
        link.client.write(data)
        await link.client.drain()
