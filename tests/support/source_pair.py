"""A client's and a server's state machine joined in memory, byte by byte if wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.constants import Capability
from protocol.conversation.login import Authenticated
from protocol.conversation.messages import Handshake
from protocol.conversation.phases import NEED_DATA, NeedData, StartTls
from protocol.conversation.replica_side import Connection
from protocol.conversation.server_plugins import Account, StoredPassword
from protocol.conversation.source_side import Acceptor, AcceptorEvent, LoggedIn
from tests.support.rsa_keys import KEY

from .fake_source import MYSQL_CAPABILITIES, NONCE, PASSWORD

USER = "repl"
# What is offered must be understood.
OFFERED = Capability(0xDFFFFFFF) & ~(
    Capability.COMPRESS | Capability.ZSTD_COMPRESSION | Capability.SESSION_TRACK | Capability.LOCAL_FILES
)
assert OFFERED & MYSQL_CAPABILITIES == OFFERED


class Pair:
    """`client` and `server`; `log_in` moves bytes until both wait. `chunk` is how many are moved at once.

    `shown`: the fingerprint of the certificate that the client sees, and wants to be proven.
    """

    def __init__(
        self,
        *,
        plugin: str = "caching_sha2_password",
        greeted_plugin: str | None = None,
        capabilities: Capability = OFFERED,
        version: str = "9.7.4",
        password: str = PASSWORD,
        stored: str = PASSWORD,
        user: str = USER,
        full: bool = False,
        chunk: int = 1 << 20,
        shown: bytes | None = None,
        server: dict[str, Any] | None = None,
        **client: Any,
    ) -> None:
        greeting = Handshake(version, 7, capabilities, NONCE + b"\0", greeted_plugin or plugin)
        accounts = {USER: Account(StoredPassword.of(stored), plugin, full)}
        self.server = Acceptor(greeting, accounts, **({"private_key": lambda: KEY} | (server or {})))
        self.client = Connection(user, password, **({"get_server_public_key": True} | client))
        self.chunk = chunk
        self.shown = shown
        self.sent = bytearray()  # by the client
        self.seen: list[AcceptorEvent] = []

    def move(self) -> bool:
        """One round of bytes in both directions; whether there were any."""
        to_client, to_server = self.server.data_to_send(), self.client.data_to_send()
        self.sent += to_server
        for data, receive in (
            (to_client, self.client.receive_data),
            (to_server, self.server.receive_data),
        ):
            for start in range(0, len(data), self.chunk):
                receive(data[start : start + self.chunk])
                if receive == self.server.receive_data:
                    self.poll_server()
        return bool(to_client or to_server)

    def poll_server(self) -> None:
        while self.server.phase.name not in ("QUERY", "REGISTER"):
            event = self.server.next_event()
            if isinstance(event, NeedData):
                return
            self.seen.append(event)

    def log_in(self) -> list[object]:
        """Both sides' events up to the login; errors of either side are raised."""
        events: list[object] = []
        while True:
            moved = self.move()
            event = self.client.next_event()
            if isinstance(event, StartTls):
                self.move()
                assert self.seen == [StartTls()]
                self.server.tls_established()
                self.client.tls_established(self.shown)
            if event is not NEED_DATA:
                events.append(event)
            if isinstance(event, Authenticated):
                assert isinstance(self.seen[-1], LoggedIn)
                return events
            assert moved or event is not NEED_DATA, "both wait"

    def ask(self, command: Callable[[Connection], None]) -> AcceptorEvent:
        """Let the client send a command; what the server makes of it."""
        self.seen.clear()
        command(self.client)
        self.move()
        [event] = self.seen
        return event


def logged_in(**options: Any) -> Pair:
    pair = Pair(**options)
    pair.log_in()
    return pair
