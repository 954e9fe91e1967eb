"""A source for who has no server at hand: ``BinlogServer`` on a free port of this machine, with the recorded log.

It is the product's own server and speaks as a MySQL does: login, registration, both dumps.
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
#: The name that the log is served under: one with a number, as every file of a source has.
SERVED_NAME: Final = "shop.000001"

_HOST: Final = "127.0.0.1"
_PASSWORD_BYTES: Final = 9


class DemoSource:
    """Serves the demo's log for as long as it is entered; ``dsn`` is what ``replica.connect`` takes.

        with DemoSource() as source:
            ...  # source.dsn, from this process or others

    As ``async with`` it runs in the loop at hand, as ``with`` in a thread of its own. The password is made up anew;
    only this machine reaches the port. ``tls``: as ``BinlogServer`` has it.
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
        """Where it listens; 0 when it does not."""
        return 0 if self._server is None else self._server.port

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{_HOST}:{self.port}"

    @property
    def password(self) -> str:
        """That of the user ``demo``."""
        return self._password

    @property
    def version(self) -> str:
        """The version of the server that the log comes from."""
        return "" if self._server is None else self._server.version

    @property
    def dsn(self) -> str:
        """Its whole DSN, with the password."""
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
