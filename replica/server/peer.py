"""One client's connection: moves bytes between a socket and the state machine ``source_side.Acceptor``, with asyncio.

Before TLS starts, nothing is read beyond the client's TLS request: the bytes after it are TLS already, and a stream
reader would buffer them where TLS cannot see them. So a plain socket is used until then, asyncio's streams after.
"""

import asyncio
import contextlib
import socket
from typing import Final

from protocol.conversation.commands import Answered
from protocol.conversation.phases import NEED_DATA, StartTls
from protocol.conversation.source_side import Acceptor, AcceptorEvent

from .identity import ServerKeys

_CHUNK_SIZE: Final = 1 << 16
# Bytes that asyncio buffers for a slow client before drain() waits.
_HIGH_WATER: Final = 1 << 19


class ClientGoneError(Exception):
    """The client or the network closed the connection."""


class Peer:
    """A connected client. Network errors are raised as ``ClientGoneError``."""

    def __init__(self, sock: socket.socket, acceptor: Acceptor, keys: ServerKeys) -> None:
        self.acceptor = acceptor
        self._socket: socket.socket | None = sock
        self._keys = keys
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def cipher(self) -> str:
        """The name of the TLS cipher; empty without TLS."""
        cipher = self._writer.get_extra_info("cipher") if self._writer is not None else None
        return str(cipher[0]) if cipher else ""

    async def next_event(self) -> AcceptorEvent:
        """Wait for the client's next command. Raises what ``Acceptor.next_event`` raises."""
        while True:
            event = self.acceptor.next_event()
            await self.flush()
            if isinstance(event, StartTls):
                await self._start_tls()
            elif event is NEED_DATA:
                await self.receive()
            elif not isinstance(event, Answered):
                return event

    async def receive(self) -> None:
        """Wait for bytes and give them to the acceptor."""
        try:
            data = await self._read()
        except OSError as error:
            raise ClientGoneError from error
        if not data:
            raise ClientGoneError
        self.acceptor.receive_data(data)

    async def flush(self) -> None:
        """Send all pending data, and wait while the client is slow to read it."""
        data = self.acceptor.data_to_send()
        if not data:
            return
        try:
            if self._writer is not None:
                self._writer.write(data)
                # With TLS, drain() neither waits nor sees at once that the client has gone. Then asyncio logs the
                # writes that follow: "socket.send() raised exception".
                await asyncio.sleep(0)
                await self._writer.drain()
            elif self._socket is not None:
                await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except OSError as error:
            raise ClientGoneError from error

    async def say_goodbye(self, seconds: float) -> None:
        """Send all pending data and close; give up after ``seconds``."""
        with contextlib.suppress(ClientGoneError, OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.flush()
                if self._writer is not None:
                    self._writer.close()
                    await self._writer.wait_closed()

    def abort(self) -> None:
        """Close at once."""
        if self._writer is not None:
            self._writer.transport.abort()
        elif self._socket is not None:
            self._socket.close()

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        wanted = self.acceptor.bytes_wanted
        if self._socket is not None and wanted:
            return await loop.sock_recv(self._socket, wanted)
        if self._reader is None:
            await self._use_streams()
        assert self._reader is not None
        return await self._reader.read(_CHUNK_SIZE)

    async def _start_tls(self) -> None:
        await asyncio.to_thread(self._keys.prepare)
        try:
            await self._use_streams(tls=True)
        except OSError as error:  # ssl.SSLError is one
            raise ClientGoneError from error
        self.acceptor.tls_established()

    async def _use_streams(self, *, tls: bool = False) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        assert self._socket is not None
        sock, self._socket = self._socket, None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, sock, ssl=self._keys.context if tls else None
            )
        except BaseException:
            sock.close()
            raise
        transport.set_write_buffer_limits(_HIGH_WATER)
        self._reader = reader
        self._writer = asyncio.StreamWriter(transport, protocol, reader, loop)
