"""A source without a database server: ``BinlogServer`` serves the recorded log on a free port of this machine.

Clients see a MySQL source: login, registration as a replica, binlog dumps by position and by GTID.
"""

import asyncio
import secrets
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Final, Self

from ..server import BinlogServer
from .log import read_log

USER: Final = "demo"
#: The name under which the log is served: like every binlog file name it ends in a number.
SERVED_NAME: Final = "shop.000001"

_HOST: Final = "127.0.0.1"
_PASSWORD_BYTES: Final = 9


class DemoSource:
    """A context manager that serves the demo's log. ``dsn`` is the address for ``replica.connect``.

        with DemoSource() as source:
            ...  # source.dsn, from this process or others

    With ``async with`` the server runs in the current event loop, with ``with`` in a thread of its own. The password
    is random, and the port is on the loopback interface. ``tls``: as for ``BinlogServer``.
    """

    def __init__(self, *, tls: bool = True) -> None:
        self._tls = tls
        self._password = secrets.token_urlsafe(_PASSWORD_BYTES)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._server: BinlogServer | None = None
        self._thread: threading.Thread | None = None
        self._leaving: Future[None] = Future()

    def __repr__(self) -> str:
        return f"<DemoSource at {_HOST}:{self.port}>"

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 while it is not running."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{_HOST}:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user ``demo``."""
        return self._password

    @property
    def version(self) -> str:
        """The version of the server that wrote the log; empty while the source is not running."""
        return "" if self._server is None else self._server.version

    @property
    def dsn(self) -> str:
        """The DSN of the source, with the password."""
        return f"mysql://{USER}:{self._password}@{self.address}"

    async def __aenter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="mysql-replica-demo-")
        try:
            path = _write_log(self._folder.name)
            server = BinlogServer(path, user=USER, password=self._password, host=_HOST, tls=self._tls)
            await server.start()
        except BaseException:
            self._folder.cleanup()
            raise
        self._server = server
        return self

    async def __aexit__(self, *exception: object) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.aclose()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        entered: Future[None] = Future()
        self._leaving = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._stay(entered)), name="mysql-replica-demo", daemon=True
        )
        self._thread.start()
        entered.result()
        return self

    def __exit__(self, *exception: object) -> None:
        self._leaving.set_result(None)
        if self._thread is not None:
            self._thread.join()

    async def _stay(self, entered: "Future[None]") -> None:
        try:
            await self.__aenter__()
        except BaseException as error:
            entered.set_exception(error)
            return
        entered.set_result(None)
        await asyncio.wrap_future(self._leaving)
        await self.__aexit__()


def _write_log(folder: str) -> Path:
    path = Path(folder, SERVED_NAME)
    path.write_bytes(read_log())
    return path
