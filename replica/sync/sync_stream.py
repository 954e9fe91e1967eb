"""``SyncStream``: the stream for code without asyncio. It is a front of ``BinlogStream``, which does all the work.

    for event in stream      events of the current batch are handed out as they are; nothing is awaited
                             at its end the next batch is decoded, if its bytes are at hand, or the driver awaits it

So 256 KB of the log cost one turn of the event loop or more, and an event no more than a call.
"""

import logging
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from operator import length_hint
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from protocol.binlog.events import Event
from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition, Checkpoint

from ..config.log_facts import log_facts
from ..config.one_process import OneProcess
from ..config.selection import wrong_value
from ..config.status import StreamStatus
from ..stream.binlog_stream import BinlogStream
from ..stream.change_batches import Batches, ChangeBatch
from ..stream.handlers import AnyEvent, Handlers, Result
from ..transactions.transaction import SyncTransactions
from .loop_driver import LoopDriver
from .sync_arrow import SyncArrowBatches

if TYPE_CHECKING:
    from ..arrow import Images

_LOGGER: Final = logging.getLogger(__name__)


class SyncBatches:
    """The changes of a stream in batches: like ``Batches``, without ``await``."""

    def __init__(self, batches: Batches, stream: "SyncStream") -> None:
        # A stream that nobody holds is closed. ``pickle`` and ``copy`` come to it first, and are refused.
        self._stream = stream
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeBatch:
        return self._stream._driver.next(self._batches)


class SyncStream(OneProcess):
    """The events of a source, in the order of its binary log; made by ``replica.sync.connect``.

        with replica.sync.connect("mysql://repl:secret@127.0.0.1") as stream:
            for event in stream:
                ...

    It has the promises, options and errors of ``BinlogStream``. Iterating needs ``with`` (or ``run()``). If you leave
    the loop and iterate again, the stream goes on with the next event. ``timeout()`` limits a wait. Only one thread
    may iterate at a time, and no other process than the one that opened the stream. ``close()`` ends the loop, also
    from another thread or a signal handler; the end of the ``with`` block waits until another thread has left the
    loop. Ctrl-C raises ``KeyboardInterrupt``, and an exception of another signal handler is raised as it is. Events,
    batches and changes go on with the next one then; ``transactions()`` may raise ``RuntimeError`` instead, if an
    event is half in its transaction, and all of them if a second Ctrl-C comes before the first is raised: connect a
    new stream with ``start=stream.checkpoint``. An exception that another thread sets (Dramatiq's time limits) may
    lose events: leave the ``with`` block, or close the stream.
    A checkpoint store and ``on_status`` are called in the thread that iterates; if an event loop runs there, as in
    notebooks, in a helper thread.
    """

    _instead = "each process connects a stream of its own; the checkpoint, events and changes can be pickled"

    def __init__(self, stream: BinlogStream) -> None:
        # First: Ctrl-C may come up below, and then ``__del__`` is called.
        self._is_open = False
        self._stream = stream
        self._driver = LoopDriver()
        self._handlers = Handlers()
        self._transactions: SyncTransactions | None = None
        # The rest of the stream's batch, if nothing is to be done for an event but to hand it out.
        self._rest: Iterator[Event] = iter(())
        # An event for the user, until the transactions have it.
        self._followed: Event | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return repr(self._stream).replace("BinlogStream", "SyncStream")

    def __del__(self) -> None:
        if self._is_open:
            self._driver.drop(self._stream._drop)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            self._end(waits=True)
        except Exception as error:
            if kind is None:
                raise
            # The exception that ended the loop matters more than one of a store or a hook.
            address = self._stream._options.address
            _LOGGER.error("%s", error, extra=log_facts("close-failed", source=address, error=error))

    def __iter__(self) -> Self:
        self._stream._grouping.check_without_batches()
        return self

    def __next__(self) -> Event:
        # Keep this short, it runs for each event.
        for event in self._rest:
            return event
        return self._next_with_care()

    def _next_with_care(self) -> Event:
        event = self._next() if self._followed is None else self._followed
        if event is None:
            raise StopIteration
        if self._transactions is not None:
            # A signal handler may raise in there: then the next call does it again.
            self._followed = event
            self._transactions.follow(event)
            self._followed = None
        return event

    def _next(self) -> Event | None:
        """The next event; None at the end. As in ``BinlogStream``, duties are looked after between two events."""
        stream, driver = self._stream, self._driver
        if driver.fetched is None and not (
            driver.overdue or (stream._has_duties and monotonic() >= stream._look_at)
        ):
            for event in stream._batch:
                return event
        if self._is_closed:
            return None
        try:
            if driver.fetched is None and not stream._has_duties and driver.call(self._advance):
                for event in stream._batch:
                    return event
            return driver.next(stream)
        except StopIteration:
            return None
        except RuntimeError:
            # A signal handler may call close() at any moment, also since the look at it above.
            if driver.is_closed:
                return None
            raise
        finally:
            # No call here: a signal handler that raised in it would lose the event.
            if self._transactions is None and not (self._is_closed or driver.overdue or driver.fetched):
                self._rest = stream._rest

    def _advance(self) -> bool:
        # Another thread may have begun a batch meanwhile: nobody has its events yet.
        return length_hint(self._stream._batch) > 0 or self._stream._advance()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place after the last transaction whose events are all done: see ``BinlogStream.checkpoint``."""
        return self._stream.checkpoint

    @property
    def position(self) -> BinlogPosition | None:
        """File and position of ``checkpoint``; None until the file is known."""
        return self._stream.position

    @property
    def server_version(self) -> str | None:
        """The source's version, such as "9.7.4" or "11.8.6-MariaDB"; None before the stream is opened."""
        return self._stream.server_version

    @property
    def status(self) -> StreamStatus:
        """The status of the stream now."""
        return self._stream.status

    def transactions(self) -> SyncTransactions:
        """Iterate over whole transactions, from begin to commit: see ``BinlogStream.transactions``."""
        self._stream._grouping.check_without_batches()
        if self._transactions is None:
            self._rest = iter(())
            if Event not in self._stream._options.events:
                raise ConfigurationError("transactions() needs all events: leave out events=")
            self._transactions = SyncTransactions(self._next, self._stream._upkeep.checkpoint_behind)
        return self._transactions

    def batches(self, *, max_rows: int = 10_000, max_seconds: float | None = 1.0) -> "SyncBatches":
        """Iterate over the changes of many transactions at once: see ``BinlogStream.batches``."""
        if self._transactions is not None:
            raise RuntimeError("a stream gives batches or transactions, not both: connect another stream")
        self._rest = iter(())
        return SyncBatches(self._stream.batches(max_rows=max_rows, max_seconds=max_seconds), self)

    def arrow(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        images: "Images" = "after",
        metadata: Sequence[str] | None = None,
        max_rows: int = 16_384,
        max_seconds: float | None = 1.0,
    ) -> SyncArrowBatches:
        """The row changes of one table as Arrow RecordBatches: see ``BinlogStream.arrow``.

        What it returns is an Arrow stream, too: ``pyarrow.table``, ``polars.DataFrame`` and DuckDB take it as it is.
        """
        if self._transactions is not None:
            raise RuntimeError("a stream gives batches or transactions, not both: connect another stream")
        batches = self._stream.arrow(
            table,
            columns=columns,
            images=images,
            metadata=metadata,
            max_rows=max_rows,
            max_seconds=max_seconds,
        )
        self._rest = iter(())
        return SyncArrowBatches(batches, self._driver, self)

    def on(
        self, event_class: type[AnyEvent], *, table: str | Iterable[str] | None = None
    ) -> Callable[[Callable[[AnyEvent], Result]], Callable[[AnyEvent], Result]]:
        """Register the decorated function as an event handler, which ``run()`` calls: see ``BinlogStream.on``.

        A coroutine function is called, too, and awaited before the next handler.
        """
        return self._handlers.on(event_class, table)

    def timeout(self, seconds: float | None) -> AbstractContextManager[None]:
        """Limit how long events are waited for within a block, as ``asyncio.timeout`` does: ``TimeoutError``.

            try:
                with stream.timeout(5):
                    event = next(stream)
            except TimeoutError:
                ...  # nothing has come within 5 seconds

        It holds for all ways to iterate: ``next(stream.transactions())``, the changes of a transaction, ``batches()``
        and ``arrow()``; not for opening and closing. Nothing is lost: iterating again goes on. A loop in the block
        ends, too, if events come all the time. 0 takes what has arrived, None is no limit.
        """
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds == seconds
        if seconds is not None and not is_number:
            raise wrong_value("timeout()", seconds, "a number of seconds, or None")
        return self._driver.timeout(seconds)

    def run(self) -> None:
        """Open the stream if it is not open, call the handlers for each event, and close the stream at the end.

        Returns when the stream ends (``stop=``, ``close()``). An exception of a handler ends the stream and goes on
        to the caller; the checkpoint stays before the transaction of that event. A stream runs once.
        """
        self._handlers.begin()
        try:
            if not self._is_open:
                self._open()
            for event in self:
                for handler in self._handlers.matching(event):
                    result = handler(event)
                    if isinstance(result, Coroutine):
                        self._await(result)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        self.close()

    def _await(self, result: Coroutine[object, object, object]) -> None:
        with closing(result):
            self._driver.run(lambda: result)

    def snapshot(self, table: str) -> None:
        """Copy one table while the stream runs: see ``BinlogStream.snapshot``. Any thread may call it."""
        self._stream._order_copy(table)
        self._driver.interrupt(self._stream._wake)

    def acknowledge(self) -> None:
        """Mark all delivered events as done. The checkpoint moves, and is in the store when this returns.

        For the thread that iterates: another one waits until that thread has its next event.
        """
        self._driver.run(self._stream.acknowledge)

    def close(self) -> None:
        """End the stream and close its connections. May be called repeatedly, from any thread and signal handler.

        Called in a signal handler, or while another thread waits for events, it ends that wait and the loop. The end
        of the ``with`` block then closes the connections. A forked process leaves its parent's alone.
        """
        self._end()

    def _end(self, *, waits: bool = False) -> None:
        """``waits``: until another thread that iterates has left the loop."""
        self._is_closed = True
        self._rest = iter(())
        driver = self._driver
        if driver.is_foreign or driver.is_closed:
            return
        if driver.interrupt(self._stream._end) and not (waits and driver.wait_for_others()):
            return
        try:
            driver.run(self._stream.aclose, is_last=True)
        finally:
            driver.close()

    def _open(self) -> None:
        self._driver.keep(partial(_forget_events, weakref.ref(self)))
        try:
            self._driver.run(self._stream.__aenter__)
        except BaseException:
            if not self._is_open:
                self._driver.let_go()
            raise
        self._is_open = True
        # A generator may be left in the middle of the block, and what its end calls is gone when modules are.
        weakref.finalize(self, _end_at_exit, weakref.ref(self))
        # Where objects that hold one another go together, ``__del__`` may find the loop closed and its tasks gone. A
        # hook's object may hold the stream, which would never go if this held the hook.
        if self._stream._options.on_status is None:
            weakref.finalize(self, self._driver.drop, self._stream._drop).atexit = False


def _forget_events(reference: weakref.ref[SyncStream]) -> None:
    """In a forked process: the rest of the batch is the parent's, which hands it out."""
    stream = reference()
    if stream is not None:
        stream._rest = iter(())
        stream._stream._take_batch()


def _end_at_exit(reference: weakref.ref[SyncStream]) -> None:
    """The interpreter ends (``weakref.finalize`` calls this before modules go): end a stream that is still open.

    A daemon thread that waits for events is left alone.
    """
    stream = reference()
    if stream is not None:
        stream._driver.call_alone(lambda: stream.__exit__(SystemExit))
