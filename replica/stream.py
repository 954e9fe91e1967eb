"""The live stream: connect, decode, filter, follow transactions, hand events to the user, reconnect. One pull loop.

    Dump.read -> EventDecoder.decode -> filters -> the user -> Progress

An event counts as done when the user comes back for the next one: only then does the checkpoint move. Where bytes are
at hand nothing is awaited per event; ``Transport.read`` gives other tasks their turn before each chunk of at most
some 256 KB.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    FormatDescriptionEvent,
    HeartbeatEvent,
    MariadbGtidListEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from protocol.constants import EventFlag
from protocol.errors import CheckpointError, ProtocolError, ReplicaError
from protocol.position import BinlogPosition, Checkpoint

from .callbacks import AnyEvent, AnyHandler, Handlers
from .dump import Dump
from .opening import Broken, open_again, open_first
from .options import Options
from .progress import Progress
from .reconnect import FailureCount
from .resume import (
    FILE_EVENTS,
    CannotResumeError,
    Delivered,
    Replay,
    ReplayEnd,
    transaction_restarted,
)
from .scan import ROW_CODES
from .schema import ColumnLookup
from .source import Source
from .start import FIRST_POSITION, is_same_server
from .status import StreamState, StreamStatus
from .stop import StopPoint, settle
from .upkeep import Upkeep

_LOGGER: Final = logging.getLogger(__name__)
_ROWS: Final = frozenset({WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent})
# What may be of the connection instead of the log, or changes what is known of tables.
_SPECIAL: Final = frozenset(
    {FormatDescriptionEvent, HeartbeatEvent, MariadbGtidListEvent, QueryEvent, RotateEvent, TableMapEvent}
)


class BinlogStream:
    """The events of a source, in the order of its binary log; made by ``replica.connect``.

        async with replica.connect("mysql://repl:secret@127.0.0.1") as stream:
            async for event in stream:
                ...

    Iterating needs ``async with`` (or ``run()``), which connects and disconnects. Leaving the loop and iterating
    again goes on with the next event. ``aclose()`` ends the loop, from another task too. One task iterates at a time.

    When the connection is lost, the stream connects again, as the options' ``reconnect`` says, and goes on with the
    very next row. What cannot pass is raised, and the stream is over then: ``ConnectionLostError`` and
    ``SourceSilentError`` if ``reconnect`` gives up, ``ServerError`` when the source refuses, ``SourceChangedError``,
    ``DecodeError`` for a log that cannot be read, ``SchemaMismatchError``, and ``CheckpointError`` of the store.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._wants_all_events = Event in options.events
        self._handlers = Handlers()
        self._lookup = ColumnLookup(options)
        self._dump: Dump | None = None
        self._source: Source | None = None
        self._stop: StopPoint | None = None
        self._not_before: int | None = None
        self._by_gtid = False
        self._progress = Progress("", FIRST_POSITION, None, has_gtids=False)
        self._upkeep = Upkeep(options)
        # The events at hand; None where something is to be awaited in between.
        self._batch: Iterator[Event | None] = iter(())
        self._undescribed: TableMapEvent | None = None
        # The last event that was handed out or passed over, and whether the user is still at work on it.
        self._event: Event | None = None
        self._raw = b""
        self._inner = 0
        self._is_pending = False
        self._delivered = Delivered()
        self._rows_before = 0
        self._replay: Replay | None = None
        self._broken: Broken | None = None
        self._failures = FailureCount()
        self._retry_at = 0.0
        self._is_fresh = True
        self._closing = asyncio.Event()
        self._error: ReplicaError | None = None

    def __repr__(self) -> str:
        return f"<BinlogStream of {self._options.address}>"

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        try:
            await self.aclose()
        except CheckpointError as error:
            if kind is None:
                raise
            # What has ended the loop matters more.
            _LOGGER.error("%s", error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            try:
                for event in self._batch:
                    if event is not None:
                        return event
                    await self._attend()
                await self._refill()
            except ReplicaError as error:
                await self._lose(error)
            except CannotResumeError as difference:
                return await self._restart(str(difference))

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Where to go on after the last transaction whose events are all done; None before the stream is opened.

        ``gtid_set`` is None where it is not known: without GTIDs, and on MySQL after a start inside of a file until
        the next file begins. After a start by GTIDs ``file`` is empty until the first event.
        """
        progress, source = self._progress, self._source
        if source is None:
            return None
        gtid_set = None if progress.gtid_set is None else str(progress.gtid_set)
        return Checkpoint(progress.file, progress.position, gtid_set, source.server_uuid, source.server_id)

    @property
    def position(self) -> BinlogPosition | None:
        """File and offset of ``checkpoint``; None as long as the file is not known."""
        progress = self._progress
        return BinlogPosition(progress.file, progress.position) if progress.file else None

    @property
    def status(self) -> StreamStatus:
        """How the stream stands now."""
        session = None if self._dump is None else self._dump.session
        return self._upkeep.status(self._progress, self._source, session, self._event)

    def on(
        self, event_class: type[AnyEvent], *, table: str | Iterable[str] | None = None
    ) -> Callable[[AnyHandler], AnyHandler]:
        """Decorate a function or coroutine function of one event, for ``run()`` to call.

        It gets each event of the class or its subclasses; with ``table`` (patterns as for ``tables=``) only those of
        these tables. Handlers run one after another, in the order in which they were registered.
        """

        def register(handler: AnyHandler) -> AnyHandler:
            self._handlers.add(event_class, table, handler)
            return handler

        return register

    async def run(self) -> None:
        """Open the stream if it is not, call the handlers for each event, and close it at the end.

        Returns when the stream ends (``stop=``, ``aclose()``). What a handler raises ends it and goes on to the
        caller; the checkpoint stays before the transaction that the event belongs to.
        """
        try:
            if self._source is None:
                await self._connect()
            async for event in self:
                await self._handlers.call(event)
        finally:
            await self.aclose()

    async def acknowledge(self) -> None:
        """All that was delivered so far is done: the checkpoint moves, and the store has it on return."""
        self._finish_pending()
        await self._save()

    async def aclose(self) -> None:
        """End the stream and close its connections. May be called twice, and from any task."""
        self._closing.set()
        self._batch = iter(())
        self._abort()
        self._show("closed")
        if self._dump is not None:
            await self._dump.session.aclose()
        await self._lookup.aclose()
        if not isinstance(self._error, CheckpointError):
            await self._save()

    # Connections.

    @property
    def _has_ended(self) -> bool:
        return self._closing.is_set()

    def _abort(self) -> None:
        if self._dump is not None:
            self._dump.session.abort()
        self._lookup.abort()

    def _end(self) -> None:
        self._closing.set()
        self._abort()

    async def _connect(self) -> None:
        if self._source is not None or self._has_ended:
            raise RuntimeError("a stream is opened once: make another one with start=stream.checkpoint")
        self._show("connecting")
        stored = await self._upkeep.load()
        opening = await open_first(self._options, stored or self._options.start)
        dump = opening.dump
        try:
            self._stop, self._not_before = opening.stop, opening.start.not_before
            self._by_gtid = opening.start.by_gtid
            self._progress = opening.progress
            self._source = dump.source
            if self._stop is not None and self._stop.is_reached(self._progress):
                self._end()
            if not self._has_ended:
                await dump.start()
            self._upkeep.is_unsaved = stored is None
            await self._save()
        except BaseException:
            dump.session.abort()
            raise
        self._use(dump)

    def _use(self, dump: Dump) -> None:
        self._dump, self._source = dump, dump.source
        self._is_fresh = True
        self._show("seeking" if dump.is_seeking else "streaming")
        if self._has_ended:
            # Nothing is to come, or aclose() was called meanwhile.
            dump.session.abort()

    async def _lose(self, error: ReplicaError) -> None:
        """What has failed may pass: go on later from here. Or raise it, now and whenever the user comes back."""
        # aclose() makes whoever reads find a closed connection.
        if self._has_ended:
            self._finish_pending()
            raise StopAsyncIteration
        if self._error is None:
            try:
                failure = self._failures.add(error)
                delay = self._options.reconnect.delay(failure)
            except ReplicaError as final:
                self._error = final
        if self._error is not None:
            self._abort()
            self._show("closed", self._error)
            raise self._error
        self._retry_at = asyncio.get_running_loop().time() + delay
        log = _LOGGER.info if failure.attempt else _LOGGER.warning
        log("%s -- trying again in %.1f s", error, delay)
        self._break_off()
        self._show("waiting", error)

    def _break_off(self) -> None:
        """Drop the connection and remember how far it had come."""
        self._batch = iter(())
        self._undescribed = None
        dump, self._dump = self._dump, None
        if dump is None:
            return
        dump.session.abort()
        self._upkeep.lost(dump.session)
        if self._replay is not None:
            # The place to come back to is still that of the connection before.
            return
        source, event, progress = dump.source, self._event, self._progress
        end = None
        if event is not None:
            is_open, gtid = progress.in_transaction, progress.open_gtid
            end = ReplayEnd(event.file, event.position, self._inner, is_open, gtid)
        self._broken = Broken(
            progress,
            self._by_gtid,
            (source.server_uuid, source.server_id),
            end,
            self._delivered,
            dump.decoder,
        )

    async def _reconnect(self, broken: Broken) -> None:
        left = self._retry_at - asyncio.get_running_loop().time()
        if left > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._closing.wait()
        if self._has_ended:
            return
        self._show("connecting")
        dump, self._replay = await open_again(self._options, broken)
        broken.progress.reopen()
        if not is_same_server(broken.identity, dump.source):
            # Its place says nothing of this server's log.
            self._event = None
        self._upkeep.counters.reconnects += 1
        self._use(dump)

    async def _restart(self, reason: str) -> Event:
        """The delivered part of the open transaction is void: say so, and read again from the last boundary."""
        counters, progress = self._upkeep.counters, self._progress
        counters.restarts += 1
        rows = counters.rows - self._rows_before
        self._break_off()
        assert self._broken is not None
        end = self._broken.end
        gtid = None if end is None else end.gtid
        _LOGGER.warning("transaction %s is delivered again from its beginning: %s", gtid, reason)
        self._delivered = Delivered()
        self._event, self._replay = None, None
        self._broken = Broken(
            progress, self._by_gtid, self._broken.identity, None, self._delivered, self._broken.decoder
        )
        progress.reopen()
        self._rows_before = counters.rows
        return transaction_restarted((progress.file, progress.position), gtid, rows, reason)

    async def _refill(self) -> None:
        """Read what comes next, for as long as nothing else is due."""
        if self._error is not None:
            raise self._error
        if self._has_ended:
            self._finish_pending()
            raise StopAsyncIteration
        dump = self._dump
        if dump is None:
            if self._broken is None:
                raise RuntimeError("a stream is opened by `async with`, or by run()")
            await self._reconnect(self._broken)
            return
        stop = self._stop
        left = None if stop is None else stop.seconds_left(dump.source.now)
        limits = [limit for limit in (left, self._upkeep.limit()) if limit is not None]
        events = await dump.read(min(limits, default=None))
        if events is not None:
            self._batch = self._events(dump, events)
        elif stop is not None and left is not None and not stop.seconds_left(dump.source.now):
            # The time to stop at has come: now it can be said where the end lies.
            self._stop = await settle(stop, self._options, dump.source)
            self._end_if_reached(self._stop)
        if self._is_due():
            await self._attend()

    # What is awaited between events.

    def _is_due(self) -> bool:
        """Whether the checkpoint is to be saved, or the status to be shown."""
        now = asyncio.get_running_loop().time()
        return self._upkeep.is_save_due(now) or self._upkeep.is_status_due(now)

    async def _attend(self) -> None:
        """Do what a generator cannot: look columns up, save the checkpoint. Also show the status."""
        if self._undescribed is not None:
            await self._describe(self._undescribed)
        now = asyncio.get_running_loop().time()
        if self._upkeep.is_save_due(now):
            await self._save()
        if self._upkeep.is_status_due(now):
            self._upkeep.show(self.status, now)

    async def _save(self) -> None:
        await self._upkeep.save(self.checkpoint, asyncio.get_running_loop().time())

    def _show(self, state: StreamState, error: ReplicaError | None = None) -> None:
        """The state may have changed."""
        if self._upkeep.turn(state, error):
            self._upkeep.show(self.status, asyncio.get_running_loop().time())

    async def _describe(self, event: TableMapEvent) -> None:
        """Names for a table whose map has none; a cancelled call is repeated when the iteration goes on."""
        columns = await self._lookup.columns(event.table)
        assert self._dump is not None
        event.table = self._dump.decoder.describe(event.table_id, columns)
        if event.table.names_from is None:
            self._lookup.settle(event.table)
        self._undescribed = None

    # Events.

    def _events(self, dump: Dump, raw_events: list[bytes]) -> Iterator[Event | None]:
        """Decode one event when it is asked for: what the decoder knows must be that of the event before."""
        self._upkeep.received()
        for raw in raw_events:
            if self._not_before is not None and raw[4:5] in ROW_CODES:
                continue
            event = dump.decode(raw)
            if type(event) is TransactionPayloadEvent:
                for number, inner in enumerate(dump.decoder.payload_events(event), 1):
                    yield from self._hand_out(dump, inner, b"", number)
            elif event is not None:
                yield from self._hand_out(dump, event, raw, 0)
            if self._has_ended:
                return

    def _hand_out(self, dump: Dump, event: Event, raw: bytes, inner: int) -> Iterator[Event | None]:
        """Give one event to the user, if it is for the user; when this goes on, the user is done with it."""
        kind = type(event)
        if kind in _SPECIAL:
            if self._is_internal(event):
                self._internal(event, dump)
                return
            if isinstance(event, TableMapEvent) and self._lookup.is_needed(event.table):
                self._undescribed = event
                while self._undescribed is not None:
                    yield None
            elif isinstance(event, QueryEvent):
                self._lookup.statement(event.sql)
        if self._stop is not None and self._is_behind_stop(event, self._stop):
            self._end()
            return
        if self._replay is not None:
            replay = self._replay
            if self._passes_over(replay, event, raw, inner, dump):
                return
            raw = replay.trimmed or raw
        if self._not_before is not None and self._is_before_start(event, self._not_before):
            self._finish(event, dump)
            return
        if self._is_fresh:
            self._is_fresh = False
            self._failures.forget()
            self._show("streaming")
        rows = len(event.rows) if kind in _ROWS else 0  # type: ignore[attr-defined]
        self._event, self._raw, self._inner, self._rows = event, raw, inner, rows
        if self._wants_all_events or isinstance(event, self._options.events):
            counters = self._upkeep.counters
            counters.events += 1
            counters.rows += rows
            self._is_pending = True
            yield event
            if not self._is_pending:
                return
            self._is_pending = False
        self._finish(event, dump)
        if self._upkeep.is_unsaved and self._is_due():
            yield None

    def _finish_pending(self) -> None:
        """The user is done with the event that was handed out last."""
        if self._is_pending and self._event is not None and self._dump is not None:
            self._is_pending = False
            self._finish(self._event, self._dump)

    def _finish(self, event: Event, dump: Dump) -> None:
        """The event is done."""
        decoder = dump.decoder
        if self._progress.follow(event, decoder.file, decoder.position):
            if self._by_gtid:
                self._delivered.end()
            self._rows_before = self._upkeep.counters.rows
            self._upkeep.is_unsaved = True
            if self._stop is not None:
                self._end_if_reached(self._stop)
        elif self._by_gtid:
            self._delivered.add(event, self._raw, self._rows, decoder)

    def _passes_over(self, replay: Replay, event: Event, raw: bytes, inner: int, dump: Dump) -> bool:
        """Whether the user already has the event; the transaction that it belongs to is followed all the same."""
        passes = replay.passes(event, raw, inner, dump.decoder)
        if passes is None or (passes is False and replay.is_over):
            self._replay = None
        if passes is False:
            return False
        self._event, self._raw, self._inner = event, raw, inner
        self._upkeep.counters.skipped += 1
        if not (self._by_gtid and isinstance(event, FILE_EVENTS)):
            self._progress.follow(event, dump.decoder.file, dump.decoder.position)
        return True

    def _is_internal(self, event: Event) -> bool:
        """Whether an event is of the connection, not of the log; so is a description before a start inside a file."""
        header = event.header
        if header.flags & EventFlag.ARTIFICIAL or isinstance(event, HeartbeatEvent):
            return True
        return isinstance(event, FormatDescriptionEvent) and not header.next_position

    def _internal(self, event: Event, dump: Dump) -> None:
        """Where the source is. MariaDB sends an artificial GTID_LIST when it has passed over what a replica has."""
        if isinstance(event, RotateEvent):
            if self._is_fresh and not self._by_gtid and self._progress.file not in ("", event.next_file):
                # It is the one event without a checksum.
                raise ProtocolError(
                    f"asked for {self._progress.file}, the source begins with {event.next_file}"
                )
            if self._replay is None:
                self._progress.follow(event, dump.decoder.file, dump.decoder.position)
        elif isinstance(event, HeartbeatEvent):
            self._heartbeat(event)
        elif isinstance(event, MariadbGtidListEvent):
            self._progress.idle(event.file, event.header.next_position)

    def _heartbeat(self, event: HeartbeatEvent) -> None:
        """The source has sent all up to there, and is well."""
        self._failures.forget()
        self._upkeep.heard()
        if self._stop is not None and not self._progress.in_transaction and self._stop.has_passed(event):
            self._end()
        self._progress.idle(event.source_file, event.source_position)

    def _is_before_start(self, event: Event, not_before: int) -> bool:
        if self._progress.begins(event) and event.header.timestamp >= not_before:
            self._not_before = None
        return self._not_before is not None

    def _is_behind_stop(self, event: Event, stop: StopPoint) -> bool:
        return self._progress.begins(event) and stop.excludes(event)

    def _end_if_reached(self, stop: StopPoint) -> None:
        if not self._progress.in_transaction and stop.is_reached(self._progress):
            self._end()
