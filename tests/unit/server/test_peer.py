"""A client that vanishes while the server sends to it, with and without TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import threading

import pytest

from protocol.conversation.source_side import Acceptor
from replica.server.client_session import _heartbeat
from replica.server.identity import ServerKeys
from replica.server.peer import ClientGoneError, Peer

SECONDS = 60


class Endless(Acceptor):
    """An acceptor that always has more to send."""

    def __init__(self) -> None:
        pass

    def data_to_send(self) -> bytes:
        return bytes(60_000)

    def tls_established(self) -> None:
        pass


def read_and_vanish(plain: socket.socket, tls: bool) -> None:
    client = plain
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        client = context.wrap_socket(plain)
    client.recv(100_000)
    # The connection is reset, as by a client that was killed.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_it_notices_at_once(tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    thread = threading.Thread(target=read_and_vanish, args=(client, tls))
    thread.start()
    peer = Peer(accepted, Endless(), ServerKeys())
    await (peer._start_tls() if tls else peer._use_streams())

    async def send_on() -> None:
        while True:
            await peer.flush()

    with caplog.at_level(logging.WARNING, "asyncio"), pytest.raises(ClientGoneError):
        await asyncio.wait_for(send_on(), SECONDS)
    thread.join()
    await peer.say_goodbye(0)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("period", "seconds"),
    [(None, None), ("0", None), ("1", 0.001), ("30000001024", 30.000001024), ("x", None)],
)
def test_heartbeats_are_no_flood(period: str | None, seconds: float | None) -> None:
    """A replica that asked for one each nanosecond kept the server busy."""
    variables = {} if period is None else {"source_heartbeat_period": period}
    assert _heartbeat(variables) == seconds
