"""``BinlogServer``: accepts connections, limits their number, and runs one ``ClientSession`` for each.

It knows the listening socket and the TLS keys. What a client asks for is answered in ``client_session``.
"""

import asyncio
import contextlib
import errno
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

from ..config.log_facts import log_facts
from ..config.selection import whole_number
from ..files.log_files import LogSource
from ..statistics.layout import printable
from .answers import Client
from .client_session import ClientSession, SharedState
from .gtids import LogGtids
from .identity import Identity, ServerKeys
from .peer import ClientGoneError, Peer
from .pending_logins import FailedLogins, PendingLogins
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
# A process without file descriptors fails five times a second, for as long as its clients stay.
_PAUSE_AFTER_WARNING: Final = 60.0
# The greeting has 32 bits for a connection's id.
_MAX_ID: Final = (1 << 32) - 1
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
# Clients recognize MariaDB by the missing LONG_PASSWORD. It has no query attributes.
_MYSQL_CAPABILITIES: Final = _CAPABILITIES | Capability.LONG_PASSWORD | Capability.QUERY_ATTRIBUTES


class BinlogServer:
    """Serves binlog files over a socket as their source would.

        async with BinlogServer("/var/lib/relay/binlog.index", user="repl", password="secret") as server:
            print(server.port)
            await server.serve_forever()

    ``files`` is what ``replica.open_binlog`` takes, or a directory. Files may grow and new files may be added:
    waiting replicas get new events within ``poll_interval`` seconds. Family, version and server id are read from the
    newest file. The server uuid is read from ``auto.cnf`` beside the files, or derived from the server id and the
    files' base name.

    One user can log in; its password may be empty only with ``allow_empty_password``. ``tls`` is True (with a
    self-signed certificate made here), False, or an ``ssl.SSLContext``; ``require_tls`` refuses clients without TLS.
    ``auth_plugin`` defaults to that of the family and version: caching_sha2_password (MySQL 8.0 and later) or
    mysql_native_password. With ``semi_sync``, replicas that support it are asked to acknowledge each transaction.

    Limits: ``max_connections`` at a time; ``max_pending_logins`` of one host that have not logged in (a further one
    closes the oldest); ``login_timeout`` seconds for the login, ``idle_timeout`` seconds between two commands. If all
    connections are in use, one that has not logged in is closed for a new one. After three failed logins the next
    logins of that host wait up to 4 seconds for the greeting.

    Raises ``ConfigurationError`` for files that cannot be served and for invalid arguments.
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
            raise ConfigurationError("user: the name is empty; name the user that can log in")
        if not password and not allow_empty_password:
            raise ConfigurationError(
                "password: the password is empty; set one, or allow_empty_password=True to let anybody read the log"
            )
        if require_tls and not tls:
            raise ConfigurationError("require_tls: TLS is switched off (tls=False): leave out one of the two")
        if not 0 <= port <= _MAX_PORT:
            raise ConfigurationError(
                f"port: {port} is not a port; use 1 to {_MAX_PORT}, or 0 for any free port"
            )
        self._log = ServedLog(files)
        identity = Identity.of(self._log, server_id, server_uuid)
        plugin = auth_plugin or _default_plugin(identity)
        self._accounts = {user: Account(StoredPassword.of(password), plugin, full_authentication)}
        self._keys = ServerKeys(tls if isinstance(tls, ssl.SSLContext) else None, bool(tls))
        self._require_tls = require_tls
        self._host = host
        self._port = port
        self._max_connections = whole_number(1)("max_connections", max_connections)
        self._pending = PendingLogins(whole_number(1)("max_pending_logins", max_pending_logins))
        self._failed = FailedLogins()
        self._login_timeout = login_timeout
        self._semi_sync = semi_sync
        self._identity = identity
        self._poll_interval = poll_interval
        self._idle_timeout = idle_timeout
        self._replicas = Replicas(by_uuid=not identity.is_mariadb)
        self._shared: SharedState | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: dict[int, asyncio.Task[None]] = {}
        self._clients: dict[int, Client] = {}
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
        """The port that the server listens on; before ``start()``, the port that was given."""
        return self._port

    @property
    def replicas(self) -> Sequence[ConnectedReplica]:
        """The replicas that have a binlog dump running."""
        return tuple(self._replicas)

    @property
    def connections(self) -> int:
        """The number of connections, with those that have not logged in."""
        return len(self._connections)

    @property
    def version(self) -> str:
        """The version of the server that wrote the newest file, such as "9.7.0"."""
        return self._identity.version

    @property
    def server_uuid(self) -> str:
        """The server uuid that replicas see; empty on MariaDB, which has none."""
        return self._identity.server_uuid

    async def start(self) -> None:
        """Start to listen. Raises ``ConfigurationError`` if the address cannot be used."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listener = socket.create_server((self._host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(f"cannot listen at {self._host}:{self._port}: {reason}") from error
        listener.setblocking(False)
        self._listener, self._port = listener, int(listener.getsockname()[1])
        facts = Facts(self._log, LogGtids(self._log), self._identity, self.port, self._semi_sync)
        self._shared = SharedState(
            facts,
            self._replicas,
            lambda: list(self._clients.values()),
            self._kill,
            self._poll_interval,
            self._idle_timeout,
        )
        self._accepting = asyncio.create_task(self._accept(listener))

    async def serve_forever(self) -> None:
        """Wait until the server is closed."""
        if self._accepting is not None:
            # asyncio.wait() keeps the server running if only this wait is cancelled.
            await asyncio.wait({self._accepting})

    async def aclose(self) -> None:
        """Stop listening and end all connections."""
        tasks = [task for task in (self._accepting, *self._connections.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting = None
        if self._listener is not None:
            self._listener.close()

    def _kill(self, connection_id: int) -> bool:
        task = self._connections.get(connection_id)
        if task is None:
            return False
        task.cancel()
        return True

    # Clients

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        warned_at = -_PAUSE_AFTER_WARNING
        while True:
            try:
                sock, address = listener.accept()
            except BlockingIOError:
                await _readable(listener)
                continue
            except OSError as error:
                # The client has already left, or the process has no file descriptors left.
                if loop.time() - warned_at >= _PAUSE_AFTER_WARNING:
                    warned_at = loop.time()
                    _LOGGER.warning("a connection could not be accepted: %s", error)
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._pending.close_one()
                await asyncio.sleep(_PAUSE_AFTER_ERROR)
                continue
            if len(self._connections) >= self._max_connections and not self._pending.close_one():
                _refuse(sock)
            else:
                self._begin(sock, str(address[0]))
            # However fast connections come: clients get their turn, and closed connections are counted no more.
            await asyncio.sleep(0)

    def _begin(self, sock: socket.socket, host: str) -> None:
        connection_id = next(self._ids) & _MAX_ID
        sock.setblocking(False)
        _tune(sock)
        peer = Peer(sock, self._acceptor(connection_id, host), self._keys)
        task = asyncio.create_task(self._serve(peer, host, connection_id))
        self._connections[connection_id] = task
        self._pending.add(host, connection_id, task.cancel)

        def ended(_: asyncio.Task[None]) -> None:
            # Not in _serve(): a task that is cancelled before its first step runs none of its code.
            peer.abort()
            self._pending.remove(host, connection_id)
            self._connections.pop(connection_id, None)

        task.add_done_callback(ended)

    async def _serve(self, peer: Peer, host: str, connection_id: int) -> None:
        assert self._shared is not None
        session = ClientSession(self._shared, peer, Client(connection_id, host=host))
        try:
            if delay := self._failed.delay(host):
                await asyncio.sleep(delay)
            async with asyncio.timeout(self._login_timeout):
                await session.log_in()
            self._failed.succeeded(host)
            self._pending.remove(host, connection_id)
            self._clients[connection_id] = session.client
            await session.run()
        except (ProtocolError, AuthenticationError) as error:
            if isinstance(error, AuthenticationError):
                self._failed.failed(host)
            text = printable(str(error))
            _LOGGER.info("%s: %s", host, text, extra=log_facts("client-refused", client=host, error=text))
            await peer.say_goodbye(self._login_timeout)
        except (ClientGoneError, TimeoutError, asyncio.CancelledError):
            pass
        except Exception:
            _LOGGER.exception("a defect of mysql-replica ended the connection of %s", host)
        finally:
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


async def _readable(sock: socket.socket) -> None:
    """Wait until a listening socket has a connection to accept.

    ``loop.sock_accept()`` accepts by itself: a task that is cancelled in that moment loses the connection, unclosed.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)


def _refuse(sock: socket.socket) -> None:
    """Send ER_CON_COUNT_ERROR in place of the greeting, unless the socket would block."""
    with contextlib.suppress(OSError), sock:
        sock.setblocking(False)
        sock.send(FrameStream().encode(_TOO_MANY_CONNECTIONS.encode()))


def _tune(sock: socket.socket) -> None:
    """Send packets at once, and let keepalive probes find a client whose machine is gone."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
