"""What both sides of the conversation share: phases, NEED_DATA, ``StartTls``, and the bytes before an event."""

from enum import Enum
from typing import Final

from ..records import record
from .commands import SEMI_SYNC_MAGIC

#: The first byte of a row in the binary protocol.
BINARY_ROW: Final = b"\0"
#: The bytes before an event of a dump: a status byte, and with semi-sync a magic byte and the ACK flag.
EVENT: Final = b"\0"
SEMI_SYNC_EVENT: Final = bytes([0, SEMI_SYNC_MAGIC, 0])
SEMI_SYNC_EVENT_WITH_ACK: Final = bytes([0, SEMI_SYNC_MAGIC, 1])


class Phase(Enum):
    """The phase of a connection; the value is its wording in error messages."""

    HANDSHAKE = "the handshake"
    TLS = "the change to TLS"
    AUTHENTICATION = "authentication"
    READY = "waiting for a command"
    QUERY = "a query"
    REGISTER = "the registration as a replica"
    PREPARE = "the preparation of a statement"
    EXECUTE = "the execution of a prepared statement"
    ROWS = "the rows of a prepared statement"
    DUMP = "the binlog dump"
    CLOSED = "the end of the conversation"


class NeedData(Enum):
    """Type of ``NEED_DATA``: the next event needs more bytes."""

    NEED_DATA = "NEED_DATA"


NEED_DATA: Final = NeedData.NEED_DATA


@record(frozen=True, slots=True)
class StartTls:
    """Flush ``data_to_send()``, change the transport to TLS, then call ``tls_established()``."""
