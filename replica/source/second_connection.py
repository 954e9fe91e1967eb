"""A connection beside the dump, for questions to the source while the log flows. It is opened at the first question.

A connection can do nothing else once it sends the log; hence the second one. What to ask is not decided here.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from protocol.conversation.messages import TextValue
from protocol.errors import ConnectionLostError, PrivilegeError, ServerError

from ..config.options import Options
from ..config.reconnect import is_account_limit
from .hosts import first_host
from .session import Session

_REMEDY: Final = (
    "the stream asks and copies over connections beside that of the log: as an administrator raise the account's "
    "limits (MAX_USER_CONNECTIONS: 4, for copies 4 + snapshot_connections)"
)


@contextlib.contextmanager
def beside_the_dump() -> Iterator[None]:
    """Make of a refusal by a limit of the account, while one more connection is opened, a ``PrivilegeError``.

    To wait would not help: the dump itself keeps a connection.
    """
    try:
        yield
    except ServerError as error:
        if not is_account_limit(error):
            raise
        raise PrivilegeError(error.code, error.sqlstate, error.message, _REMEDY) from error


class SecondConnection:
    """Runs statements, one after another; opens a new connection if the server has closed the last one."""

    def __init__(self, options: Options, *statements: str) -> None:
        """``statements`` are run on each new connection, before the first question."""
        self._options = options
        self._statements = statements
        self._session: Session | None = None
        self._is_closed = False

    @property
    def is_mariadb(self) -> bool:
        """Whether the server that answered last is MariaDB; False before the first question."""
        return self._session is not None and self._session.handshake.is_mariadb

    @property
    def options(self) -> Options:
        """The options with the host that is asked."""
        return self._options

    def move(self, options: Options) -> None:
        """From now on ask the host of these options, and the server that they name."""
        before = self._options.address, self._options.server
        if (options.address, options.server) != before and self._session is not None:
            self._session.abort()
            self._session = None
        self._options = options

    def abort(self) -> None:
        """Close the connection at once; a pending question raises ``ConnectionLostError``."""
        self._is_closed = True
        if self._session is not None:
            self._session.abort()

    async def aclose(self) -> None:
        """Close the connection and wait until it is closed."""
        self.abort()
        if self._session is not None:
            await self._session.aclose()

    async def query(self, sql: str, columns: int | None = None) -> list[tuple[TextValue, ...]]:
        """The rows of a statement, as ``Session.query`` returns them. Raises what it and ``Session.open`` raise."""
        if self._session is not None:
            # The server closes an idle connection after wait_timeout, with or without error 4031.
            with contextlib.suppress(ServerError, ConnectionLostError):
                return await self._run(self._session, sql, columns)
        return await self._run(await self._open(), sql, columns)

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """The connection itself for several questions; newly opened if the old one no longer answers."""
        await self.query("SELECT 1")
        session = self._session
        assert session is not None
        try:
            yield session
        except BaseException:
            self._drop(session)
            raise

    async def _open(self) -> Session:
        self._check_open()
        with beside_the_dump():
            session = await first_host(self._options, Session.open)
        try:
            for statement in self._statements:
                await session.query(statement)
            # If the stream was closed meanwhile, nothing else would close this connection.
            self._check_open()
        except BaseException:
            await session.aclose()
            raise
        self._session = session
        return session

    def _check_open(self) -> None:
        if self._is_closed:
            raise ConnectionLostError("the stream was closed while the source was asked about its tables")

    async def _run(self, session: Session, sql: str, columns: int | None) -> list[tuple[TextValue, ...]]:
        try:
            return await session.query(sql, columns)
        except BaseException:
            self._drop(session)
            raise

    def _drop(self, session: Session) -> None:
        """Refused, lost, or cancelled before the answer: the connection cannot be used for the next statement."""
        session.abort()
        self._session = None
