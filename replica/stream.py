"""The live stream: connect, decode, filter, follow transactions, hand events to the user. One pull loop, no queue.

    Session.read_events -> EventDecoder.decode -> filters -> the user -> Progress

An event counts as done when the user comes back for the next one: only then does the checkpoint move. Where bytes are
at hand nothing is awaited per event; ``Transport.read`` gives other tasks their turn before each chunk of at most
some 256 KB.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    Event,
    EventHeader,
    FormatDescriptionEvent,
    HeartbeatEvent,
    MariadbGtidListEvent,
    QueryEvent,
    RotateEvent,
    TableMapEvent,
    TransactionPayloadEvent,
)
from protocol.constants import EventFlag, EventType
from protocol.errors import (
    ConnectionLostError,
    DecodeError,
    PositionInsideEventError,
    ReplicaError,
    SourceSilentError,
)
from protocol.position import BinlogPosition, Checkpoint
from protocol.wire import unpack_event_header

from .callbacks import AnyEvent, AnyHandler, Handlers
from .filters import table_filter
from .options import Options
from .progress import Progress
from .scan import ROW_CODES, LogScan
from .schema import ColumnLookup
from .session import Session
from .source import CANNOT_READ_BINLOG, Source, ask, find_twin, identify, introduce
from .start import FIRST_POSITION, begin_dump, resolve_start, with_gtids
from .stop import StopPoint, resolve_stop, settle

_SILENT_PERIODS: Final = 2.5
_BEFORE_FIRST: Final = frozenset(
    {EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.HEARTBEAT_V2}
)


class BinlogStream:
    """The events of a source, in the order of its binary log; made by ``replica.connect``.

        async with replica.connect("mysql://repl:secret@127.0.0.1") as stream:
            async for event in stream:
                ...

    Iterating needs ``async with`` (or ``run()``), which connects and disconnects. Leaving the loop and iterating
    again goes on with the next event. ``aclose()`` ends the loop, from another task too. One task iterates at a time.

    Iterating raises ``ConnectionLostError`` when the network or the source fails (``SourceSilentError`` when neither
    events nor heartbeats came for 2.5 heartbeat periods), ``ServerError`` when the source refuses,
    ``DecodeError`` for a log that cannot be read, and ``SchemaMismatchError``. The stream is over then.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._silence = options.heartbeat * _SILENT_PERIODS or None
        self._wants_all_events = Event in options.events
        self._handlers = Handlers()
        self._lookup = ColumnLookup(options)
        self._session: Session | None = None
        self._source: Source | None = None
        self._stop: StopPoint | None = None
        self._progress = Progress("", FIRST_POSITION, None, has_gtids=False)
        self._decoder = EventDecoder()
        self._expects_first = False
        self._not_before: int | None = None
        self._batch: Iterator[Event] = iter(())
        self._delivered: Event | None = None
        self._undescribed: TableMapEvent | None = None
        self._has_ended = False
        self._error: ReplicaError | None = None

    def __repr__(self) -> str:
        return f"<BinlogStream of {self._options.address}>"

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._delivered is not None:
            delivered, self._delivered = self._delivered, None
            self._follow(delivered)
        if self._error is not None:
            raise self._error
        try:
            while not self._has_ended:
                if self._undescribed is not None:
                    described = await self._describe(self._undescribed)
                    if self._offer(described):
                        return described
                for event in self._batch:
                    if self._is_for_user(event) and self._offer(event):
                        return event
                    if self._has_ended or self._undescribed is not None:
                        break
                else:
                    await self._refill()
        except ReplicaError as error:
            # aclose() makes whoever reads find a closed connection.
            if not self._has_ended:
                self._error = error
                self._abort()
                raise
        raise StopAsyncIteration

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
            if self._session is None:
                await self._connect()
            async for event in self:
                await self._handlers.call(event)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End the stream and close its connections. May be called twice, and from any task."""
        self._has_ended = True
        self._abort()
        if self._session is not None:
            await self._session.aclose()
        await self._lookup.aclose()

    def _abort(self) -> None:
        if self._session is not None:
            self._session.abort()
        self._lookup.abort()

    async def _connect(self) -> None:
        if self._session is not None or self._has_ended:
            raise RuntimeError("a stream is opened once: make another one with start=stream.checkpoint")
        session = await Session.open(self._options)
        try:
            await self._begin(session)
        except BaseException:
            session.abort()
            raise
        self._session = session
        if self._has_ended:
            # Nothing is to come, or aclose() was called meanwhile.
            session.abort()

    async def _begin(self, session: Session) -> None:
        """Get to know the source, find start and stop, and ask for the dump."""
        options = self._options
        source = await ask(session)
        source.check()
        has_checksums = await introduce(session, source, options)
        scan = LogScan(options, source)
        start = await resolve_start(options.start, session, source, scan)
        if options.stop is not None:
            self._stop = await resolve_stop(options.stop, session, source, scan)
            if self._stop.gtid_set is not None and self._stop.position is None:
                start = await with_gtids(start, scan)
        self._source = source
        self._progress = Progress(start.file, start.position, start.gtid_set, source.has_gtids)
        self._not_before = start.not_before
        self._expects_first = not start.by_gtid and start.position > FIRST_POSITION
        self._decoder = EventDecoder(
            file=start.file,
            position=start.position,
            mariadb=source.is_mariadb,
            verify_checksum=options.verify_checksum,
            wants_table=table_filter(options.tables, options.exclude_tables),
            columns=options.columns,
            on_schema_mismatch=options.on_schema_mismatch,
        )
        self._decoder.checksum_enabled = has_checksums
        if self._stop is not None and self._stop.is_reached(self._progress):
            self._has_ended = True
            return
        await identify(session, source, options)
        await begin_dump(start, session, source, options.server_id)

    async def _refill(self) -> None:
        """Read what comes next; or find out where the end lies, when the time to stop at has come."""
        session, source = self._session, self._source
        if session is None or source is None:
            raise RuntimeError("a stream is opened by `async with`, or by run()")
        left = None if self._stop is None else self._stop.seconds_left(source.now)
        silence = self._silence if left is None else min(left, self._silence or left)
        try:
            events = await session.read_events(silence)
        except SourceSilentError:
            if self._stop is None or left != silence:
                raise
            self._stop = await settle(self._stop, self._options, source)
            self._end_if_reached(self._stop)
            return
        if not events:
            twin = await find_twin(source, self._options)
            raise twin or ConnectionLostError(f"{self._options.address} ended the binlog dump")
        self._batch = self._decode(events)

    def _decode(self, raw_events: list[bytes]) -> Iterator[Event]:
        """Decode one event when it is asked for: what the decoder knows must be that of the event before."""
        decoder = self._decoder
        for raw in raw_events:
            if self._not_before is not None and raw[4:5] in ROW_CODES:
                continue
            event = self._decode_first(raw) if self._expects_first else decoder.decode(raw)
            if type(event) is TransactionPayloadEvent:
                yield from decoder.payload_events(event)
            elif event is not None:
                yield event

    def _is_for_user(self, event: Event) -> bool:
        """Whether an event is of the log and lies between start and stop.

        What is not is done at once. May end the stream, or put a table aside whose columns are to be looked up.
        """
        if self._stop is not None and self._is_behind_stop(event, self._stop):
            self._has_ended = True
            self._abort()
            return False
        if self._is_internal(event):
            self._internal(event)
            return False
        if self._not_before is not None and self._is_before_start(event, self._not_before):
            self._follow(event)
            return False
        if isinstance(event, QueryEvent):
            self._lookup.statement(event.sql)
        elif isinstance(event, TableMapEvent) and self._lookup.is_needed(event.table):
            self._undescribed = event
            return False
        return True

    def _is_internal(self, event: Event) -> bool:
        """Whether an event is of the connection, not of the log; so is a description before a start inside a file."""
        header = event.header
        if header.flags & EventFlag.ARTIFICIAL or isinstance(event, HeartbeatEvent):
            return True
        return isinstance(event, FormatDescriptionEvent) and not header.next_position

    def _internal(self, event: Event) -> None:
        """Where the source is. MariaDB sends an artificial GTID_LIST when it has passed over what a replica has."""
        if isinstance(event, RotateEvent):
            self._progress.follow(event, self._decoder.file, self._decoder.position)
        elif isinstance(event, HeartbeatEvent):
            self._progress.idle(event.source_file, event.source_position)
        elif isinstance(event, MariadbGtidListEvent):
            self._progress.idle(event.file, event.header.next_position)

    def _is_before_start(self, event: Event, not_before: int) -> bool:
        if self._progress.begins(event) and event.header.timestamp >= not_before:
            self._not_before = None
        return self._not_before is not None

    def _decode_first(self, raw: bytes) -> Event | None:
        """The first event from a position: in the middle of an event a source may send what looks like one."""
        position = self._decoder.position
        try:
            event = self._decoder.decode(raw)
        except DecodeError as error:
            raise self._not_an_event(position, error.reason) from error
        header = EventHeader._make(unpack_event_header(raw))
        if header.type in _BEFORE_FIRST or header.flags & EventFlag.ARTIFICIAL:
            return event
        if header.next_position not in (0, (position + header.size) & 0xFFFFFFFF):
            raise self._not_an_event(position, f"it says that it ends at {header.next_position}")
        self._expects_first = False
        return event

    def _not_an_event(self, position: int, reason: str) -> PositionInsideEventError:
        return PositionInsideEventError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"what stands at {self._decoder.file}:{position} is no event: {reason}",
            "start at the end position of an event, or at 4 for the beginning of the file",
        )

    def _is_behind_stop(self, event: Event, stop: StopPoint) -> bool:
        if isinstance(event, HeartbeatEvent):
            return not self._progress.in_transaction and stop.has_passed(event)
        return self._progress.begins(event) and stop.excludes(event)

    async def _describe(self, event: TableMapEvent) -> TableMapEvent:
        """Names for a table whose map has none; a cancelled call is repeated when the iteration goes on."""
        columns = await self._lookup.columns(event.table)
        event.table = self._decoder.describe(event.table_id, columns)
        if event.table.names_from is None:
            self._lookup.settle(event.table)
        self._undescribed = None
        return event

    def _offer(self, event: Event) -> bool:
        """Whether the user gets the event; one that the user has not asked for is done at once."""
        if self._wants_all_events or isinstance(event, self._options.events):
            self._delivered = event
            return True
        self._follow(event)
        return False

    def _follow(self, event: Event) -> None:
        """The event is done."""
        is_between = self._progress.follow(event, self._decoder.file, self._decoder.position)
        if is_between and self._stop is not None:
            self._end_if_reached(self._stop)

    def _end_if_reached(self, stop: StopPoint) -> None:
        if not self._progress.in_transaction and stop.is_reached(self._progress):
            self._has_ended = True
            self._abort()
