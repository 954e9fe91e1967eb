"""The ERR packets with which the source's side refuses clients by itself, in the servers' words.

``server_errors`` is the other direction: what a replica makes of the ERR packets of a source.
"""

from typing import Final

from ..errors import AuthenticationError
from .messages import Err

# sqlstates and texts of errmsg: ER_HANDSHAKE_ERROR, ER_MALFORMED_PACKET, ER_UNKNOWN_COM_ERROR,
# ER_NOT_SUPPORTED_AUTH_MODE, ER_SECURE_TRANSPORT_REQUIRED, ER_ACCESS_DENIED_ERROR.
BAD_HANDSHAKE: Final = Err(1043, "08S01", "Bad handshake")
MALFORMED_PACKET: Final = Err(1835, "HY000", "Malformed communication packet.")
UNKNOWN_COMMAND: Final = Err(1047, "08S01", "Unknown command")
OLD_CLIENT: Final = Err(
    1251,
    "08004",
    "Client does not support authentication protocol requested by server; consider upgrading MySQL client",
)
INSECURE: Final = Err(
    3159, "HY000", "Connections using insecure transport are prohibited while --require_secure_transport=ON."
)


def access_denied(user: str, host: str, using: str) -> Err:
    """A wrong user or password; ``using`` is YES if the client gave a password, else NO."""
    return Err(1045, "28000", f"Access denied for user '{user}'@'{host}' (using password: {using})")


def refused(err: Err) -> AuthenticationError:
    """The error that ends the conversation with a client that gets this packet."""
    return AuthenticationError(err.code, err.sqlstate, err.message)
