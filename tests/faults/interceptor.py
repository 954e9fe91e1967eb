"""Somebody in the middle: ends the client's TLS with a certificate of his own, and talks TLS to the server himself.

For one connection after the other, on a port of 127.0.0.1. What both sides say is passed on, and nothing is changed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
SECONDS = 30
_HEADER = 4
_SSL_REQUEST = _HEADER + 32


@contextlib.contextmanager
def intercepting(port: int, certificate: Path, key: Path) -> Iterator[int]:
    """The port on which the server at `port` is to be had, with another certificate."""
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate, key)
    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, port, ours), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # close() alone leaves accept() waiting.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(SECONDS)


def _serve(listener: socket.socket, port: int, ours: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError), socket.create_connection((HOST, port)) as server:
                _pass_on(client, server, ours)


def _pass_on(client: socket.socket, server: socket.socket, ours: ssl.SSLContext) -> None:
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname = False
    theirs.verify_mode = ssl.CERT_NONE
    for side in (client, server):
        side.settimeout(SECONDS)
    header = _read(server, _HEADER)
    client.sendall(header + _read(server, int.from_bytes(header[:3], "little")))
    server.sendall(_read(client, _SSL_REQUEST))
    with ours.wrap_socket(client, server_side=True) as near, theirs.wrap_socket(server) as far:
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join(SECONDS)


def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def _copy(source: ssl.SSLSocket, target: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for side in (source, target):
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
