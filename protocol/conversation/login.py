"""The client's part of a login between the greeting and the server's OK: which plugin answers, and what it says.

Stands on ``auth`` for the plugins and on ``messages`` for the packets that carry their data. It knows neither frames
nor phases: ``connection`` sends what is returned here, and reads OK and ERR itself.
"""

import hmac
from typing import Final

from ..errors import AuthenticationError, ProtocolError
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
from .messages import AUTH_MORE_DATA_HEADER, EOF_HEADER, AuthMoreData, AuthSwitchRequest, Handshake, Ok

# MySQL switches once at most; MariaDB once for each way in that the account has (IDENTIFIED VIA a OR b OR c).
_MAX_SWITCHES: Final = 10
# Those that do not tell the server the password, so that what it knows of it is a proof.
_PROVING_PLUGINS: Final = frozenset({"mysql_native_password", "client_ed25519", "parsec"})
# Before the proof, in the text of OK (MDEV-31855).
_PROOF: Final = "\x01"


class Login:
    """One attempt to log in. ``plugin_name`` and ``response`` are for the handshake response.

    ``fingerprint``: the SHA-256 of the server's certificate, for which nobody else vouches. Then the server has to
    prove by the password that it is its own, as MariaDB does from 11.4 on; ``check()`` raises if it does not.
    """

    def __init__(
        self, handshake: Handshake, credentials: Credentials, fingerprint: bytes | None = None
    ) -> None:
        self._credentials = credentials
        self._fingerprint = fingerprint
        self._switches = 0
        self.plugin_name = first_plugin(handshake.auth_plugin)
        if fingerprint is not None:
            if not credentials.password:
                raise _unproven("a login without a password proves nothing")
            if self.plugin_name not in _PROVING_PLUGINS:
                self.plugin_name = DEFAULT_PLUGIN
        self._nonce = handshake.auth_data[:NONCE_SIZE]
        self._plugin = create_plugin(self.plugin_name, credentials)
        self.response = self._plugin.start(handshake.auth_data)

    def receive(self, payload: bytes) -> bytes | None:
        """The answer to a packet that is neither OK nor ERR; None if there is nothing to send.

        Raises ``AuthenticationError`` for what we do not have or do not do, ``ProtocolError`` for nonsense.
        """
        if payload[0] == EOF_HEADER:
            return self._switch(AuthSwitchRequest.parse(payload))
        # 0x01 stands before all data of a plugin; in MariaDB 10.11 only before what could be taken for OK, ERR or a
        # switch (server_mpvio_write_packet).
        is_wrapped = payload[0] == AUTH_MORE_DATA_HEADER
        return self._plugin.more(AuthMoreData.parse(payload).data if is_wrapped else payload)

    def check(self, ok: Ok) -> None:
        """Raises ``AuthenticationError`` if the server was to prove its certificate, and has not."""
        if self._fingerprint is None:
            return
        stored = self._plugin.stored_password()
        if stored is None or not ok.info.startswith(_PROOF):
            raise _unproven("the server does not prove that its certificate is its own")
        expected = _PROOF + certificate_proof(stored, self._nonce, self._fingerprint)
        if not hmac.compare_digest(expected.encode(), ok.info.encode()):
            raise _unproven(
                "the certificate that was shown is not the one of the server that knows the password"
            )

    def _switch(self, request: AuthSwitchRequest) -> bytes:
        self._switches += 1
        if self._switches > _MAX_SWITCHES:
            raise ProtocolError(f"the server has switched authentication plugins {self._switches} times")
        if self._fingerprint is not None and request.plugin not in _PROVING_PLUGINS:
            raise _unproven(f"no certificate is proven by {request.plugin or 'mysql_old_password'}")
        self._plugin = create_plugin(request.plugin, self._credentials)
        if request.plugin == DEFAULT_PLUGIN:
            # The proof has the nonce of the greeting, or the one that took its place.
            self._nonce = request.data[:NONCE_SIZE]
        return self._plugin.start(request.data)


def _unproven(why: str) -> AuthenticationError:
    return client_error(
        CR_SSL_CONNECTION_ERROR,
        why,
        "tls='verify-password' needs MariaDB 11.4 or later with TLS up to itself, and an account of "
        f"{', '.join(sorted(_PROVING_PLUGINS))}; tls='verify-ca' with tls_ca verifies any server",
    )
