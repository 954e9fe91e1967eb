"""BinlogServer: listens, lets clients in, and keeps what they share."""

import asyncio
import contextlib
import itertools
import logging
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Final, Self

from protocol.binlog.checksum import version_numbers
from protocol.constants import Capability
from protocol.conversation.compressed_packets import available_compressions
from protocol.conversation.messages import Err, Handshake
from protocol.conversation.packets import FrameStream
from protocol.conversation.server_plugins import Account, StoredPassword, create_nonce
from protocol.conversation.source_side import NATIVE_PASSWORD, Acceptor
from protocol.errors import AuthenticationError, ConfigurationError, ProtocolError

from ..files.log_files import LogSource
from .answers import Client
from .client_session import Conversation, House
from .gtids import LogGtids
from .identity import Identity, ServerKeys
from .peer import ClientGoneError, Peer
from .replicas import ConnectedReplica, Replicas
from .served_log import ServedLog
from .variables import Facts

_LOGGER: Final = logging.getLogger(__name__)

_SHA2_PASSWORD: Final = "caching_sha2_password"
_SHA2_SINCE: Final = (8, 0, 0)
_TOO_MANY_CONNECTIONS: Final = Err(1040, "", "Too many connections")
_BACKLOG: Final = 128
_MAX_PORT: Final = 65535
_PAUSE_AFTER_ERROR: Final = 0.2
_CAPABILITIES: Final = (
    Capability.FOUND_ROWS
    | Capability.LONG_FLAG
    | Capability.CONNECT_WITH_DB
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.MULTI_RESULTS
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA
    | Capability.DEPRECATE_EOF
)
# MariaDB is told by its leaving LONG_PASSWORD out, and knows no query attributes.
_MYSQL_CAPABILITIES: Final = _CAPABILITIES | Capability.LONG_PASSWORD | Capability.QUERY_ATTRIBUTES


class BinlogServer:
    """Serves binlog files over a socket as their source would.

        async with BinlogServer("/var/lib/relay/binlog.index", user="repl", password="secret") as server:
            print(server.port)
            await server.serve_forever()

    ``files`` is what ``replica.open_binlog`` takes, or a directory. They may grow, and new ones may be added:
    replicas that wait get what is added within ``poll_interval`` seconds. Family and version are those of the newest
    file, and so is the server id; the uuid is that of ``auto.cnf`` beside the files, and made up if there is none.

    One user can log in, with a password unless it is ``allow_empty_password``. ``tls`` is True (with a certificate
    made here), False, or an ``ssl.SSLContext``; ``require_tls`` refuses clients that do without. ``auth_plugin`` is
    caching_sha2_password where the family and version have it as their default, otherwise mysql_native_password.
    ``semi_sync``: replicas that ask for it are asked to acknowledge each transaction.

    Limits: ``max_connections`` at a time, ``max_pending_logins`` of them not yet logged in, ``login_timeout`` seconds
    for the login, ``idle_timeout`` seconds between commands.

    Raises ``ConfigurationError`` for files that cannot be served and for what cannot be used.
    """

    def __init__(
        self,
        files: LogSource | Iterable[LogSource],
        *,
        user: str,
        password: str,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | bool = True,
        require_tls: bool = False,
        allow_empty_password: bool = False,
        auth_plugin: str | None = None,
        full_authentication: bool = False,
        server_id: int | None = None,
        server_uuid: str | None = None,
        semi_sync: bool = False,
        poll_interval: float = 0.1,
        max_connections: int = 151,
        max_pending_logins: int = 32,
        login_timeout: float = 10.0,
        idle_timeout: float = 28800.0,
    ) -> None:
        if not user:
            raise ConfigurationError("user: somebody has to be able to log in")
        if not password and not allow_empty_password:
            raise ConfigurationError(
                "password: give one, or allow_empty_password=True to let anybody read the log"
            )
        if require_tls and not tls:
            raise ConfigurationError("require_tls needs tls")
        if not 0 <= port <= _MAX_PORT:
            raise ConfigurationError(f"port: {port} is none: 0 (any that is free) to {_MAX_PORT}")
        self._log = ServedLog(files)
        identity = Identity.of(self._log, server_id, server_uuid)
        plugin = auth_plugin or _default_plugin(identity)
        self._accounts = {user: Account(StoredPassword.of(password), plugin, full_authentication)}
        self._keys = ServerKeys(tls if isinstance(tls, ssl.SSLContext) else None, bool(tls))
        self._require_tls = require_tls
        self._host = host
        self._port = port
        self._limits = (max_connections, max_pending_logins)
        self._login_timeout = login_timeout
        self._semi_sync = semi_sync
        self._identity = identity
        self._poll_interval = poll_interval
        self._idle_timeout = idle_timeout
        self._replicas = Replicas(by_uuid=not identity.is_mariadb)
        self._house: House | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._stays: dict[int, asyncio.Task[None]] = {}
        self._clients: dict[int, Client] = {}
        self._pending = 0
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"<BinlogServer of {len(self._log.names)} files at {self._host}:{self.port}>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    @property
    def port(self) -> int:
        """Where it listens; before it is started, what was asked for."""
        return self._port

    @property
    def replicas(self) -> Sequence[ConnectedReplica]:
        """The connections that the log is being sent over."""
        return tuple(self._replicas)

    @property
    def version(self) -> str:
        """The version of the server that has written the files."""
        return self._identity.version

    @property
    def server_uuid(self) -> str:
        """What replicas are told; empty on MariaDB."""
        return self._identity.server_uuid

    async def start(self) -> None:
        """Listen. Raises ``ConfigurationError`` where that cannot be."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(f"cannot listen at {self._host}:{self._port}: {reason}") from error
        listener.setblocking(False)
        self._listener, self._port = listener, int(listener.getsockname()[1])
        facts = Facts(self._log, LogGtids(self._log), self._identity, self.port, self._semi_sync)
        self._house = House(
            facts,
            self._replicas,
            lambda: list(self._clients.values()),
            self._kill,
            self._poll_interval,
            self._idle_timeout,
        )
        self._accepting = asyncio.create_task(self._accept(listener))

    async def serve_forever(self) -> None:
        """Return when the server is closed."""
        if self._accepting is not None:
            # Who cancels the wait alone does not close the server, and is told so.
            await asyncio.wait({self._accepting})

    async def aclose(self) -> None:
        """Stop listening and end all connections."""
        tasks = [task for task in (self._accepting, *self._stays.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting = None
        if self._listener is not None:
            self._listener.close()

    def _kill(self, connection_id: int) -> bool:
        task = self._stays.get(connection_id)
        if task is None:
            return False
        task.cancel()
        return True

    # Clients

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listener)
            except OSError as error:
                # The client has gone again, or there are no handles left.
                _LOGGER.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(_PAUSE_AFTER_ERROR)
                continue
            most, most_pending = self._limits
            if len(self._stays) >= most or self._pending >= most_pending:
                _refuse(sock)
                continue
            self._begin(sock, str(address[0]))

    def _begin(self, sock: socket.socket, host: str) -> None:
        connection_id = next(self._ids)
        self._pending += 1
        task = asyncio.create_task(self._serve(sock, host, connection_id))
        self._stays[connection_id] = task
        task.add_done_callback(lambda _: self._stays.pop(connection_id, None))

    async def _serve(self, sock: socket.socket, host: str, connection_id: int) -> None:
        assert self._house is not None
        _tune(sock)
        peer = Peer(sock, self._acceptor(connection_id, host), self._keys)
        conversation = Conversation(self._house, peer, Client(connection_id, host=host))
        try:
            try:
                async with asyncio.timeout(self._login_timeout):
                    await conversation.log_in()
            finally:
                self._pending -= 1
            self._clients[connection_id] = conversation.client
            await conversation.run()
        except (ProtocolError, AuthenticationError) as error:
            _LOGGER.info("%s: %s", host, error)
            await peer.say_goodbye(self._login_timeout)
        except (ClientGoneError, TimeoutError, asyncio.CancelledError):
            pass
        except Exception:
            _LOGGER.exception("the connection of %s was ended by a defect", host)
        finally:
            peer.abort()
            self._clients.pop(connection_id, None)

    def _acceptor(self, connection_id: int, host: str) -> Acceptor:
        capabilities = _CAPABILITIES if self._identity.is_mariadb else _MYSQL_CAPABILITIES
        capabilities |= available_compressions()
        if self._keys.has_tls:
            capabilities |= Capability.SSL
        [account] = self._accounts.values()
        greeting = Handshake(
            self._identity.greeting_version,
            connection_id,
            capabilities,
            create_nonce() + b"\0",
            account.plugin,
        )
        return Acceptor(
            greeting,
            self._accounts,
            require_tls=self._require_tls,
            private_key=self._keys.private_key,
            fingerprint=lambda: self._keys.fingerprint,
            peer=host,
        )


def _default_plugin(identity: Identity) -> str:
    has_sha2 = not identity.is_mariadb and version_numbers(identity.version) >= _SHA2_SINCE
    return _SHA2_PASSWORD if has_sha2 else NATIVE_PASSWORD


def _refuse(sock: socket.socket) -> None:
    """One packet in place of the greeting, if the socket takes it at once."""
    with contextlib.suppress(OSError), sock:
        sock.setblocking(False)
        sock.send(FrameStream().encode(_TOO_MANY_CONNECTIONS.encode()))


def _tune(sock: socket.socket) -> None:
    """What is sent leaves at once; a client whose machine has vanished is found by keepalive probes."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
