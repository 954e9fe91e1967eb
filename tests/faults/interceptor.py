"""Somebody in the middle: ends the client's TLS with a certificate of his own, and talks TLS to the server himself.

On a port of 127.0.0.1. What both sides say is passed on, and nothing is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

HOST = "127.0.0.1"
_HEADER = 4
_SSL_REQUEST = _HEADER + 32


@contextlib.asynccontextmanager
async def intercepting(port: int, certificate: Path, key: Path) -> AsyncIterator[int]:
    """The port on which the server at `port` is to be had, with another certificate."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate, key)
    with socket.create_server((HOST, 0)) as listener:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(_serve(listener, port, ours, group))
            yield listener.getsockname()[1]
            task.cancel()


async def _serve(listener: socket.socket, port: int, ours: ssl.SSLContext, group: asyncio.TaskGroup) -> None:
    while True:
        client, _ = await asyncio.get_running_loop().sock_accept(listener)
        group.create_task(_pass_on(client, port, ours))


async def _pass_on(client: socket.socket, port: int, ours: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(OSError), client, socket.socket() as server:
        server.setblocking(False)
        await loop.sock_connect(server, (HOST, port))
        # Not a byte more is read than belongs before TLS: the client does not wait for an answer.
        header = await _read(server, _HEADER)
        await loop.sock_sendall(client, header + await _read(server, int.from_bytes(header[:3], "little")))
        await loop.sock_sendall(server, await _read(client, _SSL_REQUEST))
        reader = asyncio.StreamReader()
        near, protocol = await loop.connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(reader), client, ssl=ours
        )
        writer = asyncio.StreamWriter(near, protocol, reader, loop)
        far = await asyncio.open_connection(sock=server, ssl=theirs, server_hostname=HOST)
        await asyncio.gather(_copy(reader, far[1]), _copy(far[0], writer))


async def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await asyncio.get_running_loop().sock_recv(source, size - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
