"""Turns a dump's raw events into batches for the user: decodes, applies start and stop, passes over repeated events.

    raw events -> BatchDecoder -> without repeated events -> up to the stop -> Batch -> the user -> Account

The raw events of one read are decoded as one batch where possible. Nothing here awaits: ``advance`` returns what the
stream has to do next.

    Deliver     hand out these events, then call ``advance`` again
    Describe    ask for the columns of this table, call ``describe``, then ``advance``
    Ask.TURN    give other tasks a turn
    Ask.READ    wait for more of the log, then call ``advance``
    Ask.END     the stream is over

What happens in the middle of a batch:

    A DDL statement: the batch goes on. ``SchemaTracker`` applies the statement to the schema history at once, a
    ``SchemaChangeEvent`` for each wanted table that it changes comes behind it, and the decoder forgets all tables.
    The statement is done when the changes behind it are done. The schema store has them before the user does.

    A table map without names, of a table that is new since the last DDL: it gets them from the history. If that has
    none, the batch ends before the table map. When the user is done with it, the stream asks the source. The table
    map is the next batch, and what comes after it is decoded with its names.

    A lost connection: the stream reads only when a batch is handed out, so the user gets all whole events that have
    arrived before the stream notices the loss. Then ``broken`` says how far the user has come, and the delivery is
    dropped. The next dump begins at the last transaction boundary, and ``Replay`` passes over what the user has.

    An acknowledgement that the source wants (semi-sync): it asks with the last raw event that is taken, so at the end
    of a batch. No more are taken until the user is done with that event, the checkpoint is saved, and the stream has
    answered. If the user calls ``acknowledge()`` in the middle of a batch, what was handed out is done and saved, and
    the source gets its answer if that was all, and a transaction ends there.

    An event that changes how later events are read (``constants.ALONE``): it is decoded alone, between two batches.

    Damage: the events before the damaged event are handed out. Then ``advance`` raises the error.

    Another error, for example of the checkpoint store: if the stream reconnects, the events that were not handed out
    are dropped with the delivery, and the source sends them again.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import islice
from operator import length_hint
from typing import Final

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.events import (
    Event,
    FormatDescriptionEvent,
    HeartbeatEvent,
    MariadbGtidListEvent,
    RotateEvent,
    RowsEvent,
    TableMapEvent,
    TransactionPayloadEvent,
)
from protocol.constants import HEARTBEATS, ROW_CODES
from protocol.conversation.packets import BULK_SIZE, LARGE_BULK_SIZE
from protocol.errors import DecodeError, ProtocolError, ReplicaError
from protocol.records import record
from protocol.rows.table import Table

from ..schemas.schema_tracker import SchemaTracker
from ..snapshot.marks import Place
from ..source.dump import Dump, check_place_of, check_rotate, is_behind_description, is_internal
from ..source.open_dump import Broken
from ..source.same_log import take_file
from ..source.semi_sync import confirmed_place
from ..transactions.replay import COMPARED_BYTES, FILE_EVENTS, Replay, ReplayEnd
from .batch import Account, Batch
from .bounds import Bounds
from .place_names import PlaceNames

# A compressed transaction is handed out in batches of this many events, whatever its size.
_PAYLOAD_EVENTS: Final = 256
# Other tasks get a turn after about 256 KB of the log, or one larger event: this many, and those of one more batch.
_TURN_BYTES: Final = (256 << 10) - LARGE_BULK_SIZE


class Ask(Enum):
    """Requests to the stream that need no argument."""

    TURN = "give other tasks a turn"
    READ = "wait for more of the log"
    END = "the stream is over"


@record(frozen=True, slots=True)
class Deliver:
    """Events for the user. The length of the rest of the iterator tells how far the user has come."""

    events: Iterator[Event]


@record(frozen=True, slots=True)
class Describe:
    """A table map without column names, of a table that the schema history does not know."""

    event: TableMapEvent


Request = Deliver | Describe | Ask


class Delivery:
    """Makes the batches of one dump. When its connection is lost, it is dropped with all that it has not handed out.

    ``account`` knows how far the user has come, and ``bounds`` where the stream begins and ends. ``replay`` passes
    over the events that the user already has; None if there are none. ``is_divided``: each transaction is a batch.
    """

    def __init__(
        self,
        dump: Dump,
        decoder: BatchDecoder,
        tracker: SchemaTracker,
        account: Account,
        bounds: Bounds,
        replay: Replay | None,
        *,
        is_divided: bool,
    ) -> None:
        self.dump = dump
        self._decoder = decoder
        self._names = PlaceNames(tracker, decoder)
        self._account = account
        self._bounds = bounds
        self._replay = replay
        self._is_divided = is_divided
        self._has_news = False
        self._awaits_rotate = True
        # The raw events of the last read, and the number of the next one to decode.
        self._raws: Sequence[bytes] = ()
        self._next = 0
        # The rest of a compressed transaction, and the number of its next event.
        self._payload: Iterator[Event] | None = None
        self._inner = 0
        # Decoded events that are not handed out yet, and the error behind them.
        self._decoded: Batch | None = None
        self._error: ReplicaError | None = None
        # A table map without column names, until it is described.
        self._nameless: Batch | None = None
        # The decoder's position when other tasks had their last turn. In each file positions begin anew.
        self._turned_at = decoder.position
        account.begin_dump(decoder if dump.goes_on_by_gtid else None)

    # What the stream asks

    def takes_news(self) -> bool:
        """Whether the dump has brought a new event or a heartbeat since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    @property
    def is_awaited(self) -> bool:
        """Whether a semi-synchronous source waits for the acknowledgement of the last event that was taken."""
        return self.dump.session.ack_requested

    @property
    def is_at_boundary(self) -> bool:
        """Whether a transaction ends with the last decoded event, and the user is done with it."""
        progress = self._account.progress
        return self._place == (progress.file, progress.position)

    def acknowledge(self) -> None:
        """Tell a semi-synchronous source that the last decoded event is done, and the checkpoint before it saved."""
        self.dump.session.acknowledge(*confirmed_place(self._account.progress, *self._place))

    def broken(self, before: Broken | None) -> Broken:
        """The connection is lost: how far the user has come. ``before`` is the result for the previous dump."""
        account, dump = self._account, self.dump
        account.finish_batch()
        if self._replay is not None and before is not None:
            # The dump was lost during the replay: the user has come no further than before it.
            return before
        end = None
        if account.last is not None:
            event, raw, inner = account.last
            # An event that lost rows in a replay cannot be compared by its bytes.
            compared = raw if len(raw) == event.header.size <= COMPARED_BYTES else b""
            progress = account.progress
            end = ReplayEnd(
                event.file, event.position, inner, progress.in_transaction, progress.open_gtid, compared
            )
        identity = dump.source.server_uuid, dump.source.server_id
        return Broken(account.progress, dump.goes_on_by_gtid, identity, end, account.delivered, self._decoder)

    # Batches

    def advance(self) -> Request:
        """The user is done with all events that were handed out: return what the stream has to do next.

        Raises the errors of decoding, ``SourceChangedError`` and ``CannotResumeError``.
        """
        self._account.finish_batch()
        if chunk := self._chunk():
            return chunk
        while True:
            if self._bounds.is_over:
                return Ask.END
            if self._decoded is not None:
                is_inner = self._decoded.inner > 0
                events = self._hand_out(self._decoded)
                if length_hint(events):
                    return Deliver(events)
                self._account.finish_batch()
                if is_inner:
                    return Ask.TURN
            elif self._error is not None:
                raise self._error
            elif self._nameless is not None:
                (event,) = self._nameless.events
                assert isinstance(event, TableMapEvent)
                return Describe(event)
            elif self._payload is not None:
                self._decode_payload(self._payload)
            elif self._next < len(self._raws):
                self._decode()
            elif not 0 <= self._decoder.position - self._turned_at < _TURN_BYTES:
                self._turned_at = self._decoder.position
                return Ask.TURN
            elif not self._take():
                self._turned_at = self._decoder.position
                # Heartbeats, and events that the user does not want, may have moved the place.
                return self._chunk() or Ask.READ

    def _chunk(self) -> Request | None:
        """A chunk of an initial copy that is due, now that the user is done with all events before it."""
        copy, progress = self._account.copy, self._account.progress
        if copy is None or progress.in_transaction or self._replay is not None:
            return None
        event = copy.deliver(Place(progress.file, progress.position, progress.gtid_set))
        if event is None:
            return None
        return Deliver(self._account.hand_out(Batch([event], [b""], (progress.file, progress.position))))

    def _take(self) -> bool:
        """Take the next raw events from the dump; False if there are none, or the last one must be acknowledged."""
        if self.is_awaited:
            return False
        size = BULK_SIZE if self._decoder.has_documents else LARGE_BULK_SIZE
        self._raws, self._next = self.dump.take(size), 0
        if any(not HEARTBEATS.issuperset(raw[4:5]) for raw in self._raws):
            self._account.received()
        return bool(self._raws)

    def describe(self, event: TableMapEvent, table: Table | None) -> None:
        """Take the table that ``advance`` asked for, with names; None if the source does not show them."""
        event.table = self._decoder.name_table(event.table_id, table or self._names.partly(event))
        described, self._nameless = self._nameless, None
        assert described is not None
        self._admit(described)

    def _decode(self) -> None:
        """Decode as many raw events as possible at once, or a single event that must be decoded by itself."""
        begin = self._next
        # Events before the first one for the user are decoded one by one.
        if self.dump.is_known and not self._bounds.awaits_start and self._decoder.file:
            self._decode_run(begin)
        if self._next == begin and self._error is None:
            self._next += 1
            self._decode_special(self._raws[begin])

    def _decode_run(self, begin: int) -> None:
        """Decode events up to one that must be decoded by itself, which may be the next one."""
        events: list[Event] = []
        kept: list[bytes] = []
        followed = 0
        try:
            while self._next < len(self._raws):
                if self._replay is None:
                    self.dump.check_place(
                        self._raws[self._next], self._decoder, self._account.progress, is_open=bool(events)
                    )
                run = self._names.run(self._raws, self._next)
                self._next = self._decoder.decode_run(run, self._next, events, kept)
                if self._next == begin:
                    return
                self._names.follow(events[followed:])
                followed = len(events)
                self._names.reach()
                if not self._decoder.takes_description():
                    break
                if not self._names.gives(events[-1]):
                    self._nameless = Batch([events.pop()], [kept.pop()])
                    break
        except ReplicaError as error:
            self._names.follow(events[followed:])
            self._error = error
        self._admit(Batch(events, kept))

    @property
    def _place(self) -> tuple[str, int]:
        """File and position after the last decoded event."""
        return self._decoder.file, self._decoder.position

    def _decode_special(self, raw: bytes) -> None:
        if self._bounds.awaits_start and raw[4:5] in ROW_CODES:
            return
        is_proven = self.dump.is_known
        event = self._decoder.decode(raw) if is_proven else self.dump.decode_first(self._decoder, raw)
        if event is None:
            return
        if isinstance(event, FormatDescriptionEvent):
            take_file(event, self._account.progress, self.dump.source)
            self._names.take_file(self._account.progress.begun)
        self._names.follow([event])
        if not self._decoder.file and not isinstance(event, HeartbeatEvent):
            raise ProtocolError("the source sends events of its log before the name of their file")
        if is_internal(event):
            self._take_internal(event)
        elif self._is_before_start(event):
            self._account.skip(event, *self._place)
        elif type(event) is TransactionPayloadEvent:
            self._payload, self._inner = self._decoder.payload_events(event), 1
        else:
            # Where a file begins a checkpoint needs no older one: nor must the schema store, as it may be purged.
            self._names.reach()
            batch = Batch([event], [raw], self._place)
            if self._decoder.takes_description() and not self._names.gives(event):
                self._nameless = batch
            else:
                self._admit(batch)

    def _decode_payload(self, payload: Iterator[Event]) -> None:
        events: list[Event] = []
        try:
            for event in islice(payload, _PAYLOAD_EVENTS):
                self._names.follow([event])
                if self._decoder.takes_description() and not self._names.gives(event):
                    self._nameless = Batch([event], [b""], self._place, self._inner + len(events))
                    break
                events.append(event)
            else:
                if len(events) < _PAYLOAD_EVENTS:
                    self._payload = None
        except ReplicaError as error:
            self._error = error
        batch = Batch(events, [b""] * len(events), self._place, self._inner)
        self._inner += len(events) + (self._nameless is not None)
        self._admit(batch)

    def _admit(self, batch: Batch) -> None:
        """Take decoded events, without those that the user already has."""
        if self._replay is not None:
            batch = self._pass_over(self._replay, batch)
        if batch.events:
            self._has_news = True
            batch = self._names.with_changes(batch)
        self._decoded = batch

    def _hand_out(self, batch: Batch) -> Iterator[Event]:
        """The events of the batch for the user, or of its part up to where something has to be done."""
        self._decoded = None
        # What is behind the stop stays: the last statement before it may begin a copy, which needs more of the log.
        part = self._bounds.up_to_stop(batch.before(self._end_of_part(batch)))
        number = len(part.events)
        if number < len(batch.events):
            self._decoded = batch.behind(number)
        return self._account.hand_out(part)

    def _end_of_part(self, batch: Batch) -> int:
        """The number of events after which something may have to be done."""
        copy = self._account.copy
        if self._is_divided:
            # First of all: what is behind the transaction is looked through with a later part.
            batch = batch.before(self._first_boundary(batch))
        if copy is not None and (statement := copy.next_statement(batch.events)) >= 0:
            batch = batch.before(batch.end_of(statement))
        number = 0
        if not self._is_divided and (self._account.ordered or (copy is not None and copy.in_flight)):
            # The last place in the batch at which a chunk could come, or a copy could begin.
            number = self._account.progress_behind().follow_all(batch.events, batch.end)
        return number or len(batch.events)

    def _pass_over(self, replay: Replay, batch: Batch) -> Batch:
        """The batch without the events that the user already has."""
        for number, event in enumerate(batch.events):
            passes = replay.passes(event, batch.raws[number], batch.inner_number(number), self._decoder)
            if not passes:
                self._replay = None
            if passes is False:
                rest = batch.behind(number)
                if replay.trimmed:
                    rest.raws = [replay.trimmed, *rest.raws[1:]]
                return rest
            is_of_file = self.dump.is_by_gtid and isinstance(event, FILE_EVENTS)
            self._account.pass_over(batch, number, is_followed=not is_of_file)
            if passes is None:
                return batch.behind(number + 1)
        return batch.behind(len(batch.events))

    def _first_boundary(self, batch: Batch) -> int:
        """The number of events up to the end of the first transaction."""
        progress = self._account.progress_behind()
        for number, event in enumerate(batch.events):
            if progress.follow(event, *batch.place(number)):
                return batch.end_of(number)
        return len(batch.events)

    def _is_before_start(self, event: Event) -> bool:
        if not self._bounds.awaits_start:
            return False
        if self._bounds.starts_with(event):
            # Tables seen before the start have no columns looked up yet.
            self._decoder.forget_tables()
            return False
        return True

    # Events of the connection

    def _take_internal(self, event: Event) -> None:
        """Take the source's place. MariaDB sends an artificial GTID_LIST after skipping what the replica has.

        Raises ``DecodeError`` for rows: no source makes them for the connection, and they would be passed over.
        """
        if isinstance(event, RotateEvent):
            self._take_artificial_rotate(event)
        elif isinstance(event, HeartbeatEvent):
            self._take_heartbeat(event)
        elif isinstance(event, MariadbGtidListEvent):
            self._account.progress.idle(event.file, event.header.next_position)
        elif isinstance(event, RowsEvent | TableMapEvent | TransactionPayloadEvent):
            raise DecodeError(
                "rows have the flag of events that are made for the connection",
                event.file,
                event.position,
                event.header.type,
            )

    def _take_artificial_rotate(self, event: RotateEvent) -> None:
        progress = self._account.progress
        is_first, self._awaits_rotate = self._awaits_rotate, False
        if is_first:
            self._names.begin_at(event, is_exact=not self.dump.is_by_gtid)
        else:
            check_rotate(event)
        if is_first and not self.dump.is_by_gtid:
            # This event has no checksum, so its place is checked here.
            if progress.file not in ("", event.next_file):
                raise ProtocolError(f"asked for {progress.file}, the source begins with {event.next_file}")
            if self._replay is None:
                check_place_of(event, self.dump.start_point.position)
        if self._replay is None:
            progress.follow(event, *self._place)

    def _take_heartbeat(self, event: HeartbeatEvent) -> None:
        """The source is alive, and has sent everything up to the heartbeat's position."""
        self._has_news = True
        self._account.heard()
        self._bounds.follow(event, self.dump.session.options.address)
        if self.dump.is_by_gtid or is_behind_description(self._decoder, self._decoder.position):
            self._account.progress.idle(event.source_file, event.source_position)
