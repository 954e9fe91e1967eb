"""The live stream: opens, hands events to the user, reconnects, looks after checkpoint and status. One pull loop.

    Dump.take -> Delivery (decode, filter) -> a batch -> the user -> Account

An event counts as done when the user comes back for the next event: only then does the checkpoint move. Within a
batch nothing is awaited: ``delivery`` says what happens there. Between two batches the stream is

    not opened  no delivery, and none was lost: iterating is an error
    connected   the delivery says what to do
    lost        no delivery: the next call waits as ``Retry`` says, and connects again
    failed      ``_error`` is set: each call raises it
    closed      ``_closing`` is set: each call ends the loop
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Final, Self

from protocol.binlog.events import Event, TableMapEvent
from protocol.errors import CheckpointError, ReplicaError
from protocol.position import BinlogPosition, Checkpoint

from ..config.log_facts import log_facts
from ..config.one_process import OneProcess
from ..config.options import Options
from ..config.selection import Start
from ..config.status import StreamState, StreamStatus
from ..schemas.schema_keeper import SchemaKeeper
from ..source.dump import Dump
from ..source.open_dump import Broken, open_again, open_first, start_first
from ..source.retry import Retry
from ..transactions.replay import CannotResumeError
from .batch import Account
from .bounds import Bounds
from .deliveries import Deliveries
from .delivery import Ask, Deliver, Delivery, Describe, Request
from .grouping import GroupedStream, Grouping
from .handlers import AnyEvent, Handlers, Result
from .lasting_work import LastingWork
from .one_loop import OneLoop
from .stream_copy import StreamCopy
from .stream_state import Upkeep
from .transaction_groups import StreamPlace

_LOGGER: Final = logging.getLogger(__name__)
# After so many seconds without a byte the log seems to be at its end.
_IDLE: Final = 1.0


class BinlogStream(OneProcess, GroupedStream):
    """The events of a source, in the order of its binary log; made by ``replica.connect``.

        async with replica.connect("mysql://repl:secret@127.0.0.1") as stream:
            async for event in stream:
                ...

    Iterating needs ``async with`` (or ``run()``). If you leave the loop and iterate again, it goes on with the
    next event. ``aclose()`` ends the loop, also from another task. Only one task may iterate at a time.

    When the connection is lost, the stream reconnects as the option ``reconnect`` says, and goes on with the very
    next row. Other failures are raised and end the stream: ``ConnectionLostError`` and ``SourceSilentError`` if
    ``reconnect`` gives up, ``ServerError`` if the source refuses, ``SourceChangedError``, ``DecodeError`` for a log
    that cannot be read, ``SchemaMismatchError``, and ``CheckpointError`` from the store.
    """

    _instead = "each process connects a stream of its own; the checkpoint, events and changes can be pickled"

    def __init__(self, options: Options) -> None:
        self._loop = OneLoop()
        self._closing = asyncio.Event()
        self._options = options
        self._handlers = Handlers()
        self._account = Account(options.events)
        self._upkeep = Upkeep(options, self._account)
        self._schemas = SchemaKeeper(options, self._upkeep.check_stores)
        self._bounds = Bounds(self._account)
        self._deliveries = Deliveries(options, self._schemas.tracker, self._account, self._bounds)
        self._copy = StreamCopy(options, self._account)
        # The rest of the current batch, as the delivery gave it.
        self._batch: Iterator[Event] = iter(())
        # The same, if nothing is to be done for an event but to hand it out; else empty.
        self._rest = self._batch
        # What the delivery has asked for, or raised, until it is served.
        self._asked: Request | ReplicaError | CannotResumeError | None = None
        # When to check for duties in the middle of a batch. Without duties it is never checked.
        self._has_duties = self._upkeep.has_duties
        self._look_at = 0.0
        self._work = LastingWork()
        self._retry = Retry(options, self._closing, _LOGGER)
        self._error: ReplicaError | None = None
        place = StreamPlace(
            self._upkeep.checkpoint,
            self._upkeep.checkpoint_behind,
            self._account.finish_handed,
            lambda: self._deliveries.is_awaited,
            self._settle_batch,
        )
        self._grouping = Grouping(options, self.__anext__, place, self._deliveries, self._account)

    def __repr__(self) -> str:
        return f"<BinlogStream of {self._options.address}>"

    def __del__(self) -> None:
        if not self._has_ended:
            self._loop.drop(self, self._drop)

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            await self.aclose()
        except Exception as error:
            if kind is None:
                raise
            # The exception that ended the loop matters more than one of a store or a hook.
            address = self._options.address
            _LOGGER.error("%s", error, extra=log_facts("close-failed", source=address, error=error))

    def __aiter__(self) -> Self:
        self._grouping.check_without_batches()
        return self

    async def __anext__(self) -> Event:
        # Keep this short, it runs for each event. Progress and counters follow after the batch.
        for event in self._rest:
            return event
        return await self._next_with_care()

    async def _next_with_care(self) -> Event:
        if self._has_duties and monotonic() >= self._look_at:
            await self._look_after_duties()
        for event in self._batch:
            return self._grouping.follow(event)
        return await self._next_of_new_batch()

    def _take_batch(self, events: Iterable[Event] = ()) -> None:
        is_plain = not self._has_duties and self._grouping.transactions is None
        self._batch = iter(events)
        self._rest = self._batch if is_plain else iter(())

    async def _next_of_new_batch(self) -> Event:
        """The user is done with the batch: do what the delivery asks for until there is a new batch."""
        self._loop.check()
        while True:
            try:
                if not self._advance():
                    await self._serve()
            except ReplicaError as error:
                await self._lose(error)
            except CannotResumeError as difference:
                self._break_off(difference)
                return self._grouping.follow(self._deliveries.restart(difference))
            for event in self._batch:
                return self._grouping.follow(event)

    def _advance(self) -> bool:
        """Ask the delivery what comes next. True: it is a batch, which has begun, as nothing is to be done before.

        False: ``_serve`` does it. ``SyncStream`` calls this without an event loop.
        """
        if self._asked is None:
            try:
                delivery = self._deliveries.current
                self._asked = Ask.READ if delivery is None else delivery.advance()
            except (ReplicaError, CannotResumeError) as error:
                self._asked = error
        is_busy = self._error or self._has_ended or self._has_duties or self._copy.is_known
        if is_busy or self._schemas.tracker.is_unsaved or not isinstance(self._asked, Deliver):
            return False
        self._begin(self._asked)
        return True

    def _begin(self, request: Request) -> None:
        self._asked = None
        if isinstance(request, Deliver):
            self._take_batch(request.events)
            self._upkeep.delivers()
        delivery = self._deliveries.current
        if delivery is not None and delivery.takes_news():
            self._retry.forget()
            self._upkeep.turn("streaming")

    async def _serve(self) -> None:
        """Do what the delivery asks for. A new batch is kept if this is cancelled or a hook raises."""
        if self._error is not None:
            raise self._error
        request = self._asked
        if isinstance(request, Exception):
            self._asked = None
            raise request
        if self._schemas.tracker.is_unsaved:
            # Rows behind a statement are not handed out before the store has what it did, also if this is cancelled.
            await self._schemas.save(self._account.progress)
        delivery = self._deliveries.current
        if self._copy.is_known and delivery is not None:
            await self._copy.look()
        assert request is not None
        self._begin(request)
        if self._has_ended or request is Ask.END:
            await self._finish()
        elif delivery is None:
            await self._reconnect()
        elif isinstance(request, Describe):
            event = request.event
            await self._work.see_through(event, lambda: self._describe(delivery, event))
        elif request is Ask.READ:
            await self._copy.read(lambda: self._read(delivery))
        elif request is Ask.TURN:
            await asyncio.sleep(0)
        if self._has_duties:
            await self._look_after_duties()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The place after the last transaction whose events are all done; None before the stream is opened.

        While tables are copied, ``snapshot`` has the state of the copy at that place.
        ``gtid_set`` is None if unknown: without GTIDs, and until the next file begins after a start in the middle of
        a file (on MariaDB: of a transaction). After a start by GTIDs ``file`` is empty until the first event.
        """
        if self._upkeep.source is None:
            return None
        return self._grouping.held or self._upkeep.checkpoint()

    @property
    def position(self) -> BinlogPosition | None:
        """File and position of ``checkpoint``; None until the file is known."""
        place = self._grouping.held or self._account.progress
        return BinlogPosition(place.file, place.position) if place.file else None

    @property
    def server_version(self) -> str | None:
        """The source's version, such as "9.7.4" or "11.8.6-MariaDB"; None before the stream is opened."""
        source = self._upkeep.source
        return None if source is None else source.version_text

    @property
    def status(self) -> StreamStatus:
        """The status of the stream now."""
        return self._upkeep.status(self._deliveries.session, self._copy.status())

    async def snapshot(self, table: str) -> None:
        """Copy one table, such as ``"shop.orders"``, while the stream runs; a table that was copied is copied again.

        Returns at once: the rows come as ``SnapshotRowsEvent`` when the stream is iterated, and a
        ``SnapshotCompleteEvent`` tells the end. Raises ``ConfigurationError`` if the stream's filters leave the table
        out, and ``RuntimeError`` on a stream that has ended; iterating raises it if there is no such table.
        """
        self._order_copy(table)
        self._wake()

    def _order_copy(self, table: str) -> None:
        self._grouping.check_decodes()
        self._copy.order(table, has_ended=self._has_ended)

    def on(
        self, event_class: type[AnyEvent], *, table: str | Iterable[str] | None = None
    ) -> Callable[[Callable[[AnyEvent], Result]], Callable[[AnyEvent], Result]]:
        """Register the decorated function or coroutine function as an event handler, which ``run()`` calls.

        The handler gets each event of the class or a subclass. With ``table`` (patterns as for ``tables=``) it gets
        only events of these tables. Handlers run one after another, in the order of registration.
        """
        return self._handlers.on(event_class, table)

    async def run(self) -> None:
        """Open the stream if it is not open, call the handlers for each event, and close the stream at the end.

        Returns when the stream ends (``stop=``, ``aclose()``). An exception of a handler ends the stream and goes on
        to the caller; the checkpoint stays before the transaction of that event. A stream runs once.
        """
        self._handlers.begin()
        try:
            if self._upkeep.source is None:
                await self._connect()
            async for event in self:
                await self._handlers.call(event)
        except BaseException as error:
            await self.__aexit__(type(error))
            raise
        await self.aclose()

    async def acknowledge(self) -> None:
        """Mark all delivered events as done. The checkpoint moves, and is in the store when this returns."""
        if self._grouping.batches is not None:
            self._grouping.batches.finish_given()
            self._account.move_checkpoint()
        else:
            self._account.finish_handed()
        await self._save()
        delivery, is_held = self._deliveries.current, self._grouping.held is not None
        if delivery is not None and delivery.is_awaited and delivery.is_at_boundary and not is_held:
            delivery.acknowledge()

    async def aclose(self) -> None:
        """End the stream, from any task, repeatedly too. Rows of an event (or a copy's chunk) at hand still come."""
        self._loop.check()
        self._end()
        try:
            self._show("closed")
        finally:
            await self._close_all()

    def _end(self) -> None:
        """Let the loop end, in whichever task or thread it waits."""
        self._closing.set()
        self._take_batch()
        self._abort()

    async def _close_all(self) -> None:
        try:
            await self._work.wait_closed()
            await self._deliveries.aclose()
            await self._schemas.aclose()
            await self._copy.aclose()
            if not isinstance(self._error, CheckpointError):
                self._schemas.tracker.settle()
                await self._schemas.save()
                await self._save()
        finally:
            self._upkeep.release()

    async def _settle_batch(self) -> None:
        """The user is done with a batch: save the checkpoint and show the status if due."""
        self._account.move_checkpoint()
        if self._has_duties:
            await self._look_after_duties()

    @property
    def _has_ended(self) -> bool:
        return self._closing.is_set()

    def _abort(self) -> None:
        self._work.cancel()
        self._deliveries.abort()
        self._schemas.abort()

    def _drop(self) -> None:
        self._abort()
        self._copy.abort()
        self._upkeep.release()

    async def _connect(self) -> None:
        if self._upkeep.source is not None or self._has_ended:
            raise RuntimeError("a stream is opened once: connect a new stream with start=stream.checkpoint")
        self._show("connecting")
        self._loop.begin()
        try:
            await self._open_first(await self._upkeep.load() or self._options.start)
        except BaseException as error:
            self._drop()
            self._loop.end()
            self._show("closed", error if isinstance(error, ReplicaError) else None)
            raise

    async def _open_first(self, start: Start) -> None:
        opening = await open_first(self._options, start)
        dump = opening.dump
        try:
            self._upkeep.begin(dump.source)
            self._account.begin(opening.progress)
            await self._schemas.open(opening, start if isinstance(start, Checkpoint) else None)
            await self._copy.begin(dump.session, dump.source, start, opening.start)
            self._bounds.begin(opening)
            if not (self._bounds.is_over or self._has_ended):
                await start_first(dump, start)
            await self._save()
            self._deliveries.begin(dump)
            self._use(dump)
        except BaseException:
            dump.session.abort()
            raise

    def _use(self, dump: Dump) -> None:
        self._copy.use(dump.session.options, dump.source)
        self._show("seeking" if dump.is_by_gtid else "streaming")
        if self._has_ended:  # the stop is reached already, or aclose() was called meanwhile
            dump.session.abort()

    async def _lose(self, error: ReplicaError) -> None:
        """Prepare a reconnect after a failure. If the policy gives up, raise the error, also at every later call."""
        if self._has_ended:  # after aclose() a pending read fails; that is the normal end
            raise StopAsyncIteration
        if self._error is None:
            try:
                self._retry.lost(error)
            except ReplicaError as final:
                self._error = final
            except BaseException:
                # An exception of the user's policy: iterating again goes on after the last event.
                self._break_off(error)
                raise
        if self._error is not None:
            self._has_duties = False
            self._abort()
            self._show("closed", self._error)
            raise self._error
        self._break_off(error)
        self._show("waiting", error)

    def _break_off(self, error: Exception) -> None:
        """Drop the connection with all events that were not handed out: the source sends them again."""
        self._take_batch()
        self._asked = None
        self._copy.break_off()
        self._upkeep.lost(self._deliveries.session)
        self._deliveries.break_off(error)

    async def _reconnect(self) -> None:
        broken = self._deliveries.broken
        if broken is None:
            raise RuntimeError("a stream is opened by `async with` (`with` in replica.sync), or by run()")
        await self._retry.wait()
        if not self._has_ended:
            await self._work.see_through(broken, lambda: self._open_again(broken))

    async def _open_again(self, broken: Broken) -> None:
        self._show("connecting")
        if self._options.semi_sync:
            # A source takes everything before the start of a dump as acknowledged.
            await self._save()
        dump, replay = await open_again(self._options, broken)
        try:
            await self._schemas.use(dump, broken.progress, broken.identity)
            self._deliveries.begin(dump, replay)
        except BaseException:
            dump.session.abort()
            raise
        self._upkeep.reconnected(broken.identity, dump.source)
        self._use(dump)

    def _wake(self) -> None:
        """Let a task that waits for the source look what is to be done; else the source's next heartbeat does."""
        self._copy.wake()
        if self._deliveries.current is not None:
            self._deliveries.current.dump.wake()

    async def _finish(self) -> None:
        """End the stream. A source that waits for an acknowledgement gets it before the connection is closed."""
        self._closing.set()  # an error from here on is no reason to reconnect
        self._account.finish_handed()
        self._deliveries.warn_of_unmatched()
        self._take_batch()
        delivery = self._deliveries.current
        if delivery is not None and delivery.is_awaited:
            await self._confirm(delivery)
        await self._schemas.finish()
        self._abort()
        raise StopAsyncIteration

    async def _read(self, delivery: Delivery) -> None:
        """Wait for more of the log until another duty is due."""
        dump = delivery.dump
        if delivery.is_awaited:
            await self._confirm(delivery)
            return
        left = self._bounds.seconds_left(dump.source)
        if left == 0:
            await self._work.see_through(dump, lambda: self._bounds.settle(dump))
            return
        waits = left, self._upkeep.limit(), _IDLE if self._schemas.is_comparison_due else None
        self._upkeep.waits(dump.session)
        received = dump.session.bytes_received
        await dump.wait(min((limit for limit in waits if limit is not None), default=None))
        self._schemas.compare(is_idle=dump.session.bytes_received == received)

    async def _confirm(self, delivery: Delivery) -> None:
        """The source waits for an acknowledgement, and the user is done with all that it has sent."""
        await self._save()
        delivery.acknowledge()

    async def _describe(self, delivery: Delivery, event: TableMapEvent) -> None:
        """Ask the source for the columns of a table that the schema history does not know."""
        delivery.describe(event, await self._schemas.describe(event))

    async def _look_after_duties(self) -> None:
        """The user has come back for more: save the checkpoint and show the status if due."""
        try:
            self._account.finish_handed()
            if self._upkeep.is_save_due():
                await self._save()
            if self._upkeep.is_status_due():
                self._upkeep.show(self.status)
        except ReplicaError as error:
            await self._lose(error)
        else:
            self._look_at = self._upkeep.next_look()

    async def _save(self) -> None:
        await self._upkeep.save(self.checkpoint)

    def _show(self, state: StreamState, error: ReplicaError | None = None) -> None:
        """Set the state, and call ``on_status`` if it has changed."""
        if self._upkeep.turn(state, error):
            self._upkeep.show(self.status)
