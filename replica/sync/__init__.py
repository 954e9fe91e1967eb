"""The live stream without asyncio.

    import replica.sync

    with replica.sync.connect("mysql://repl:secret@127.0.0.1:3306", tables=["shop.*"]) as stream:
        for event in stream:
            ...

``replica.sync.connect`` has the arguments of ``replica.connect``, and ``SyncStream`` the names of ``BinlogStream``
without ``await``; ``close()`` is its ``aclose()``, and ``timeout()`` is ``asyncio.timeout``: with it a thread looks
after other things, too.

    while not stopping.is_set():
        try:
            with stream.timeout(1):
                event = next(stream, None)  # None: the stream has ended
        except TimeoutError:
            continue
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec

from .. import BinlogStream
from .. import connect as _connect
from ..transactions.transaction import SyncTransactions
from .sync_arrow import SyncArrowBatches
from .sync_stream import SyncBatches, SyncStream

__all__ = ["SyncArrowBatches", "SyncBatches", "SyncStream", "SyncTransactions", "connect"]

_Arguments = ParamSpec("_Arguments")


def _synchronous(connect: Callable[_Arguments, BinlogStream]) -> Callable[_Arguments, SyncStream]:
    """A function with the same arguments whose stream needs no asyncio."""

    @wraps(connect)
    def connect_synchronously(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> SyncStream:
        return SyncStream(connect(*arguments, **options))

    # For ``help()``, and for ``pickle``, which looks functions up in their module.
    described = signature(connect).replace(return_annotation="SyncStream")
    connect_synchronously.__signature__ = described  # type: ignore[attr-defined]
    connect_synchronously.__module__ = __name__
    return connect_synchronously


#: Create a stream of changes; it connects when it is opened, not before. The arguments are those of
#: ``replica.connect``.
connect = _synchronous(_connect)
