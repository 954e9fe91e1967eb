"""Moves bytes to and from a source over TCP or a Unix socket, with asyncio; a connection can change to TLS.

Bytes are handed on in the chunks in which they arrive. While more than ``_HIGH_WATER`` bytes wait to be read, the
socket is not read, so that TCP holds the source back. Packets are unknown here.
"""

import asyncio
import contextlib
import errno
import hashlib
import ipaddress
import socket
import ssl
import struct
from collections import deque
from typing import Final, cast

from protocol.binlog.freed_blocks import keep_freed_blocks
from protocol.errors import ConfigurationError, ConnectionLostError

from ..config.after_fork import cut_off, forget_in_children
from ..config.daemon_thread import in_thread
from ..config.options import Options
from ..config.tls import broken_error, handshake_error

#: asyncio reads at most this many bytes at once. Rows of a SELECT in reads of 1 MB were 80 reads in place of 190,
#: with 100 to 2,600 more page faults, and no difference in processor time that a second measurement showed, too.
CHUNK_SIZE: Final = 256 << 10
#: The same of a log. After each read a source on the same machine goes on to send, partly on this processor: a stream
#: of 43 MB took 0.212 s of processor time with reads of 256 KB, and 0.202 with 1 MB. With 2 MB it took 0.22, as
#: ``keep_freed_blocks`` keeps blocks of 1 MB.
LOG_CHUNK_SIZE: Final = 1 << 20
# While a chunk is being decoded, one more at most waits here, so that memory stays within two; none waits behind a
# chunk of more than CHUNK_SIZE. Small chunks may wait together: to stop and start reading for each of them would cost
# more than they take.
_HIGH_WATER: Final = CHUNK_SIZE // 16
# Seconds, seconds, number of probes; milliseconds that sent data, probes included, may stay unacknowledged.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
# struct linger of SO_LINGER: close at once, with a reset.
_RESET: Final = struct.pack("ii", 1, 0)


class _Receiver(asyncio.Protocol):
    """Keeps the received chunks until they are read."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.error: Exception | None = None
        self.has_ended = False
        self.waiter: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the same methods, but are not of asyncio's class.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        # A reader takes the chunk before the next one is received: to stop and start reading takes 15 us. But while a
        # large chunk is decoded other tasks get turns, in each of which more would be received.
        if self.waiter is None or self.waiter.done() or len(data) > CHUNK_SIZE:
            self.hold_back()
        self.wake()

    def hold_back(self) -> None:
        """Stop reading the socket if enough waits here."""
        if self._size > _HIGH_WATER and not self._is_paused and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.has_ended = True
        self.wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_ended = True
        self.error = exc
        if not self.closed.done():
            self.closed.set_result(None)
        self.wake()

    def wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    @property
    def has_data(self) -> bool:
        return bool(self._chunks)

    def take(self) -> bytes:
        """The oldest chunk; empty if there is none."""
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        self._size -= len(chunk)
        if self._size <= _HIGH_WATER and len(chunk) <= CHUNK_SIZE:
            self.go_on()
        return chunk

    def go_on(self) -> None:
        """Read the socket again if that was stopped."""
        if self._is_paused and self.transport is not None:
            self._is_paused = False
            self.transport.resume_reading()


async def _connect_to_one(options: Options, turn: int) -> tuple[asyncio.Transport, _Receiver]:
    """Connect to the first of the host's addresses that answers within its share of ``connect_timeout``.

    ``turn`` is how many of them come last.

    The event loop itself tries them in turn, too, and would wait for a silent one until the caller's limit.
    """
    loop, addresses = asyncio.get_running_loop(), [options.host]
    if not _is_address(options.host):
        found = await in_thread(socket.getaddrinfo, options.host, options.port, 0, socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(_address_text(*address) for *_, address in found))
        turn %= len(addresses)
        addresses = addresses[turn:] + addresses[:turn]
    failures = []
    for address in addresses:
        try:
            async with asyncio.timeout(options.connect_timeout / len(addresses)):
                return await loop.create_connection(_Receiver, address, options.port)
        except OSError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    raise OSError(failures[-1].errno, "; ".join(str(error) or "no answer" for error in failures))


def _address_text(host: str, port: int, flow: int = 0, scope: int = 0) -> str:
    """An address with the number of its interface, which only link-local addresses of IPv6 have."""
    return f"{host}%{scope}" if scope else host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class Transport:
    """One connection. Network errors are raised as ``ConnectionLostError``."""

    def __init__(self, transport: asyncio.Transport, receiver: _Receiver, address: str) -> None:
        self._transport = transport
        self._receiver = receiver
        self._address = address
        # Whether other tasks get a turn before the next chunk.
        self._is_turn_due = True
        forget_in_children(self)

    def forget(self) -> None:
        """In a forked process: leave the connection to the parent, which alone keeps it open."""
        raw = self._transport.get_extra_info("socket")
        if raw is not None and not (self._transport.is_closing() or self._receiver.has_ended):
            cut_off(raw.fileno())

    @classmethod
    async def connect(cls, options: Options, turn: int = 0) -> "Transport":
        """Connect to the options' host and port, or to their Unix socket. The caller sets the time limit.

        ``turn`` counts the tries to reach one server: each begins with the next of the host's addresses.
        """
        loop = asyncio.get_running_loop()
        try:
            if options.unix_socket is not None:
                transport, receiver = await loop.create_unix_connection(_Receiver, options.unix_socket)
            else:
                transport, receiver = await _connect_to_one(options, turn)
        except OSError as error:
            # This includes a host name that cannot be resolved (socket.gaierror).
            hint = "is the server running and reachable from here?"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                hint = "close some of this process's files and sockets, or raise their limit (ulimit -n)"
            raise ConnectionLostError(
                f"cannot connect to {options.address}: {error.strerror or error} -- {hint}"
            ) from error
        except ValueError as error:
            # UnicodeError of a name that IDNA cannot encode, or one with a zero character.
            raise ConfigurationError(f"host: {options.host!r} is not a valid host name") from error
        _tune(transport)
        keep_freed_blocks()
        return cls(transport, receiver, options.address)

    @property
    def local_port(self) -> int:
        """The local TCP port; 0 over a Unix socket."""
        name = self._transport.get_extra_info("sockname")
        return int(name[1]) if isinstance(name, tuple) and len(name) > 1 else 0

    @property
    def is_local(self) -> bool:
        """Whether the server is reached over a Unix socket or a loopback address: no network is in between."""
        name = self._transport.get_extra_info("peername")
        if not isinstance(name, tuple):
            return True
        address = ipaddress.ip_address(str(name[0]).partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Change to TLS as the client. The certificate is compared with the name ``host``."""
        loop = asyncio.get_running_loop()
        try:
            upgraded = await loop.start_tls(self._transport, self._receiver, context, server_hostname=host)
        except ssl.SSLError as error:
            raise handshake_error(error, self._address) from error
        except OSError as error:
            raise ConnectionLostError(
                f"{self._address} closed the connection during the TLS handshake: {error}"
            ) from error
        if upgraded is None:
            raise ConnectionLostError(f"{self._address} closed the connection during the TLS handshake")
        self._transport = self._receiver.transport = upgraded

    @property
    def peer_fingerprint(self) -> bytes:
        """The SHA-256 of the server's certificate; only with TLS."""
        return hashlib.sha256(self._transport.get_extra_info("ssl_object").getpeercert(True)).digest()

    def expect_log(self, *, is_one_way: bool) -> None:
        """Read larger chunks from now on, where asyncio allows it: without TLS, and in its own event loop.

        ``is_one_way``: nothing is written any more, and closing resets the connection. An idle source notices a lost
        connection when it writes, at its next heartbeat. Into one that was closed in order it can write once more:
        its dump stayed for 53 to 61 seconds on MySQL 5.6 and MariaDB, and a reset one for 30.
        """
        if hasattr(self._transport, "max_size"):
            self._transport.max_size = LOG_CHUNK_SIZE
        raw = self._transport.get_extra_info("socket")
        if is_one_way and raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def write(self, data: bytes) -> None:
        """Send bytes without waiting for the network: commands are small."""
        if data and not (self._transport.is_closing() or self._receiver.has_ended):
            self._transport.write(data)

    async def read(self) -> bytes:
        """The next chunk, of at most ``CHUNK_SIZE``, in a log ``LOG_CHUNK_SIZE``; empty if the source has closed.

        Other tasks get a turn before each chunk, even if many chunks are buffered. A cancelled call loses nothing.
        """
        await self.wait(None)
        return self.take()

    async def wait(self, limit: float | None) -> bool:
        """Wait until ``take`` has something to return; False after ``limit`` seconds (None: wait for ever)."""
        receiver = self._receiver
        if receiver.has_data:
            # Once, also if the call is cancelled there: calls with short time limits in a busy loop got no further.
            is_due, self._is_turn_due = self._is_turn_due, False
            if is_due:
                await asyncio.sleep(0)
            self._is_turn_due = True
        elif not receiver.has_ended:
            await self._wait(limit)
        return receiver.has_data or receiver.has_ended

    def wake(self) -> None:
        """Let a pending ``wait`` return, as if its limit were over."""
        self._receiver.wake()

    def wake_at(self, size: int) -> None:
        """Let ``wait`` return for so many bytes, or for the end of the connection, but not for fewer bytes.

        The system decides that (SO_RCVLOWAT; elsewhere than on Linux it may do nothing). Its buffer grows to hold
        twice as many. With TLS and with compression these are the bytes as they travel.
        """
        raw = self._transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def take(self) -> bytes:
        """The oldest chunk that ``wait`` has waited for; empty if the source has closed the connection."""
        receiver = self._receiver
        chunk = receiver.take()
        if not chunk and receiver.error is not None:
            raise broken_error(receiver.error, self._address) from receiver.error
        return chunk

    async def _wait(self, limit: float | None) -> None:
        receiver = self._receiver
        if receiver.waiter is not None:
            raise RuntimeError("another task already waits for data of this connection")
        loop = asyncio.get_running_loop()
        receiver.go_on()
        receiver.waiter = loop.create_future()
        # asyncio.timeout() takes 7 us more, at each chunk.
        timer = None if limit is None else loop.call_later(limit, receiver.wake)
        try:
            await receiver.waiter
        except asyncio.CancelledError:
            # What has come for this call waits for the next one.
            receiver.hold_back()
            raise
        finally:
            receiver.waiter = None
            if timer is not None:
                timer.cancel()

    def abort(self) -> None:
        """Close at once; a pending ``read`` returns empty."""
        self._transport.abort()

    async def aclose(self) -> None:
        """Close at once, and return when the socket is closed."""
        self.abort()
        await asyncio.shield(self._receiver.closed)


def _tune(transport: asyncio.Transport) -> None:
    """Set keepalive probes, which detect a vanished peer, and TCP_NODELAY, which sends commands at once."""
    raw = transport.get_extra_info("socket")
    if raw is None or raw.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # A platform without one of these options can still connect.
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
