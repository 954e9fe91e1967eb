"""The client's part of a login between the greeting and the server's OK: which plugin answers, and what it says.

Stands on ``auth`` for the plugins and on ``messages`` for the packets that carry their data. It knows neither frames
nor phases: ``connection`` sends what is returned here, and reads OK and ERR itself.
"""

from typing import Final

from .auth import Credentials, create_plugin, first_plugin
from .errors import ProtocolError
from .messages import AUTH_MORE_DATA_HEADER, EOF_HEADER, AuthMoreData, AuthSwitchRequest, Handshake

# MySQL switches once at most; MariaDB once for each way in that the account has (IDENTIFIED VIA a OR b OR c).
_MAX_SWITCHES: Final = 10


class Login:
    """One attempt to log in. ``plugin_name`` and ``response`` are for the handshake response."""

    def __init__(self, handshake: Handshake, credentials: Credentials) -> None:
        self._credentials = credentials
        self._switches = 0
        self.plugin_name = first_plugin(handshake.auth_plugin)
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

    def _switch(self, request: AuthSwitchRequest) -> bytes:
        self._switches += 1
        if self._switches > _MAX_SWITCHES:
            raise ProtocolError(f"the server has switched authentication plugins {self._switches} times")
        self._plugin = create_plugin(request.plugin, self._credentials)
        return self._plugin.start(request.data)
