"""The replica's side of the conversation with a source as a state machine, without any input or output.

A driver moves bytes: what the network brought goes into ``receive_data()``, what ``data_to_send()`` returns goes out, and
``next_event()`` says what has happened so far:

    Handshake -> (StartTls ->) Authenticated -> [send_query() -> Ok or ResultSet]... -> send_dump() -> raw events

It decides what may follow what and nothing else: messages parse themselves, plugins answer for the password, and the
bytes of an event are the decoder's. It never waits, retries or reads a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .messages import Handshake, Ok, ResultSet


class NeedData(Enum):
    """Type of ``NEED_DATA``: there is no event before more bytes are received."""

    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = NeedData.NEED_DATA


class Phase(Enum):
    """What the conversation is about; the value is the wording of error messages."""

    HANDSHAKE = "the handshake"
    TLS = "the change to TLS"
    AUTHENTICATION = "authentication"
    READY = "a query"
    REGISTER = "the registration as a replica"
    DUMP = "the binlog dump"
    CLOSED = "the end of the conversation"


@dataclass(frozen=True, slots=True)
class StartTls:
    """Flush ``data_to_send()``, change the transport to TLS, then call ``tls_established()``."""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Logged in; commands may be sent."""

    ok: Ok


ConnectionEvent = Handshake | StartTls | Authenticated | Ok | ResultSet


class Connection:
    """One connection to a source, from its greeting to the end of the binlog dump.

    ``want_tls``: use TLS if the server offers it; ``require_tls``: refuse servers that do not (SourceConfigurationError).
    ``secure_transport``: the transport needs no encryption (a Unix socket), so passwords may be sent in clear to plugins
    that want them so. ``server_public_key`` (PEM) encrypts the password on an unencrypted transport; without it
    ``get_server_public_key`` allows to ask the server for its key, which protects against listeners but not against
    somebody in the middle. ``allow_cleartext_plugin`` allows mysql_clear_password, and that over TLS only.
    ``attributes`` are added to the connection attributes (performance_schema.session_connect_attrs).

    One command may be outstanding at a time: sending another one raises RuntimeError, as does all other misuse by the
    driver. After an error that ends the conversation every further call of next_event() raises it again.
    """

    def __init__(
        self,
        user: str,
        password: str = "",
        *,
        database: str | None = None,
        want_tls: bool = False,
        require_tls: bool = False,
        secure_transport: bool = False,
        server_public_key: bytes | None = None,
        get_server_public_key: bool = True,
        allow_cleartext_plugin: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        raise NotImplementedError

    #: The server's greeting, once it has come.
    handshake: Handshake | None
    phase: Phase
    #: TLS is in use.
    tls: bool
    #: Set it before send_dump() when the source has accepted us as a semi-synchronous replica: events then carry a
    #: header of two bytes more, which is taken off.
    semi_sync: bool
    #: The last event of the list that next_events() returned last wants send_semi_sync_ack().
    ack_requested: bool
    #: The source has ended the dump in order (EOF): it has no more events for a replica that does not wait.
    dump_ended: bool

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the network; any cut of the stream will do."""
        raise NotImplementedError

    def data_to_send(self) -> bytes:
        """All bytes that are to be sent now, and forget them; often empty."""
        raise NotImplementedError

    def next_event(self) -> ConnectionEvent | NeedData:
        """The next event in order, or NEED_DATA. Not for the dump phase.

        An ERR of the server is raised as what ``server_error()`` makes of it; after one that answers a query the
        conversation goes on. Anything out of form raises ProtocolError.
        """
        raise NotImplementedError

    def tls_established(self) -> None:
        """The transport has been changed to TLS, as StartTls asked for."""
        raise NotImplementedError

    def send_query(self, sql: str) -> None:
        """COM_QUERY; answered by Ok or ResultSet."""
        raise NotImplementedError

    def send_register_replica(
        self,
        server_id: int,
        *,
        host: str = "",
        user: str = "",
        password: str = "",
        port: int = 0,
        source_id: int = 0,
    ) -> None:
        """COM_REGISTER_SLAVE; answered by Ok. The texts are what SHOW REPLICAS will print."""
        raise NotImplementedError

    def send_dump(self, file: str, position: int, server_id: int, flags: int = 0) -> None:
        """COM_BINLOG_DUMP; from here on next_events() is to be used. ``position`` is below 4 GiB."""
        raise NotImplementedError

    def send_dump_gtid(
        self, gtid_set: bytes, server_id: int, flags: int = 0, *, file: str = "", position: int = 4
    ) -> None:
        """COM_BINLOG_DUMP_GTID with an encoded GTID set of what we have; from here on next_events() is to be used."""
        raise NotImplementedError

    def next_events(self) -> list[bytes]:
        """All whole raw events at hand, in order; empty when data is needed or ``dump_ended`` has become true.

        A raw event starts with its header and ends with its checksum, if it has one. An ERR of the server is raised
        after the events before it were returned. The list ends early after an event that wants to be acknowledged.
        """
        raise NotImplementedError

    def send_semi_sync_ack(self, file: str, position: int) -> None:
        """Acknowledge everything up to this end position of an event."""
        raise NotImplementedError

    def send_quit(self) -> None:
        """COM_QUIT; the server closes the connection and answers nothing."""
        raise NotImplementedError
