"""The client's login between the greeting and the server's OK: chooses the plugin and returns its answers.

The plugins come from ``client_plugins``, the packets that carry their data from ``messages``. This module knows
neither frames nor phases: ``replica_side`` sends the answers, and reads OK and ERR itself.
"""

import hmac
from collections.abc import Mapping
from typing import Final

from ..constants import Capability
from ..errors import AuthenticationError, ProtocolError
from ..records import record
from .client_plugins import (
    CR_SSL_CONNECTION_ERROR,
    DEFAULT_PLUGIN,
    NONCE_SIZE,
    Credentials,
    certificate_proof,
    client_error,
    create_plugin,
    first_plugin,
)
from .compressed_packets import ZSTD_LEVEL
from .messages import (
    AUTH_MORE_DATA_HEADER,
    EOF_HEADER,
    AuthMoreData,
    AuthSwitchRequest,
    Handshake,
    HandshakeResponse,
    Ok,
)

# Capabilities without which the two sides cannot talk; every server since 4.1 has them.
_REQUIRED: Final = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION
# Capabilities that are offered, and used if the server has them. SESSION_TRACK and QUERY_ATTRIBUTES would only add
# bytes that nobody reads. MariaDB's extended capabilities count only without LONG_PASSWORD, which MariaDB does not
# offer.
_OFFERED: Final = (
    Capability.LONG_PASSWORD
    | Capability.LONG_FLAG
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.PLUGIN_AUTH
    | Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA
    | Capability.CONNECT_ATTRS
    | Capability.DEPRECATE_EOF
)
# MySQL switches plugins at most once; MariaDB once for each plugin of the account (IDENTIFIED VIA a OR b OR c).
_MAX_SWITCHES: Final = 10
# Plugins that do not send the password: a server that knows something of the password has proved itself.
_PROVING_PLUGINS: Final = frozenset({"mysql_native_password", "client_ed25519", "parsec"})
# The byte before the proof in the text of OK (MDEV-31855).
PROOF: Final = "\x01"


@record(frozen=True, slots=True)
class Authenticated:
    """Logged in; commands may be sent."""

    ok: Ok


def common_capabilities(handshake: Handshake) -> Capability:
    """What both sides have, without compression and TLS. ``ProtocolError`` for a server before 4.1."""
    if handshake.capabilities & _REQUIRED != _REQUIRED:
        raise ProtocolError(
            f"the server ({handshake.server_version}) speaks the protocol of servers before MySQL 4.1"
        )
    return _OFFERED & handshake.capabilities


class Login:
    """One attempt to log in. ``plugin_name`` and ``response`` go into the handshake response.

    ``fingerprint``: the SHA-256 of a server certificate that no authority has verified. The server then has to prove
    with the password that the certificate is its own, as MariaDB 11.4 and later can; else ``check()`` raises.
    """

    def __init__(
        self, handshake: Handshake, credentials: Credentials, fingerprint: bytes | None = None
    ) -> None:
        self._credentials = credentials
        self._fingerprint = fingerprint
        self._switches = 0
        self._has_sent_password = False
        self.plugin_name = first_plugin(handshake.auth_plugin)
        if fingerprint is not None:
            if not credentials.password:
                raise _unproven("a login without a password proves nothing")
            if self.plugin_name not in _PROVING_PLUGINS:
                self.plugin_name = DEFAULT_PLUGIN
        self._nonce = handshake.auth_data[:NONCE_SIZE]
        self._plugin = create_plugin(self.plugin_name, credentials)
        self.response = self._plugin.start(handshake.auth_data)

    def first(
        self, capabilities: Capability, user: str, database: str, attributes: Mapping[str, str]
    ) -> bytes:
        """The handshake response."""
        response = HandshakeResponse(
            capabilities,
            user,
            self.response,
            database,
            self.plugin_name,
            attributes,
            zstd_level=ZSTD_LEVEL,
        )
        return response.encode()

    def receive(self, payload: bytes) -> bytes | None:
        """The answer to a packet that is neither OK nor ERR; None if there is nothing to send.

        Raises ``AuthenticationError`` for a plugin or request that is not supported, ``ProtocolError`` for a
        malformed packet.
        """
        if payload[0] == EOF_HEADER:
            return self._switch(AuthSwitchRequest.parse(payload))
        # The byte 0x01 precedes a plugin's data; MariaDB 10.11 sends it only before data that could be mistaken for
        # OK, ERR or a switch (server_mpvio_write_packet).
        is_wrapped = payload[0] == AUTH_MORE_DATA_HEADER
        return self._plugin.more(AuthMoreData.parse(payload).data if is_wrapped else payload)

    @property
    def has_sent_password(self) -> bool:
        """Whether the password itself was sent, in clear."""
        return self._has_sent_password or self._plugin.has_sent_password

    def check(self, ok: Ok) -> None:
        """Raises ``AuthenticationError`` if the server had to prove its certificate and did not."""
        if self._fingerprint is None:
            return
        stored = self._plugin.stored_password()
        if stored is None or not ok.info.startswith(PROOF):
            raise _unproven("the server does not prove that the certificate is its own")
        expected = PROOF + certificate_proof(stored, self._nonce, self._fingerprint)
        if not hmac.compare_digest(expected.encode(), ok.info.encode()):
            raise _unproven("the certificate is not the one of the server that knows the password")

    def _switch(self, request: AuthSwitchRequest) -> bytes:
        self._switches += 1
        if self._switches > _MAX_SWITCHES:
            raise ProtocolError(f"the server has switched authentication plugins {self._switches} times")
        if self._fingerprint is not None and request.plugin not in _PROVING_PLUGINS:
            raise _unproven(
                f"the authentication plugin {request.plugin or 'mysql_old_password'} cannot prove a certificate"
            )
        self._has_sent_password = self.has_sent_password
        self._plugin = create_plugin(request.plugin, self._credentials)
        if request.plugin == DEFAULT_PLUGIN:
            # The proof uses the greeting's nonce, or the nonce of a switch to this plugin.
            self._nonce = request.data[:NONCE_SIZE]
        return self._plugin.start(request.data)


def _unproven(why: str) -> AuthenticationError:
    return client_error(
        CR_SSL_CONNECTION_ERROR,
        why,
        "tls='verify-password' needs MariaDB 11.4 or later, no TLS proxy in between, and an account with one of the "
        f"plugins {', '.join(sorted(_PROVING_PLUGINS))}; tls='verify-ca' with tls_ca verifies any server",
    )
