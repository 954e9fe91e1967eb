"""Turns a dump's raw events into batches for the user: decodes, applies start and stop, passes over repeated events.

    raw events -> BatchDecoder -> without repeated events -> up to the stop -> Batch -> the user -> Account

The raw events of one read are decoded as one batch where possible. Nothing here awaits: ``advance`` returns what the
stream has to do next.

    Deliver     hand out these events, then call ``advance`` again
    Describe    ask for the columns of this table, call ``describe``, then ``advance``
    Ask.TURN    give other tasks a turn
    Ask.READ    wait for more of the log, then call ``advance``
    Ask.END     the stream is over

What ends a batch early, and what happens in the middle of one:

    A DDL statement does not end a batch. ``SchemaTracker`` applies it to the schema history at once, a
    ``SchemaChangeEvent`` for each table that it changes comes behind it, and the decoder forgets all tables.
    A table map without names, of a table that is new since the last DDL, gets them from the history. If it has none,
    the batch ends before the table map, the stream asks the source, and the table map is a batch of its own.
    An event that changes how later events are read (``constants.ALONE``) is decoded by itself, between two batches.
    Damage: the events before the damaged event are handed out. Then ``advance`` raises the error.
    A lost connection: the stream waits for bytes only when the batch is handed out, so the user gets all whole events
    that arrived before the stream notices the loss. ``break_off`` then returns how far the user came. The new dump
    begins at the last transaction boundary, and ``Replay`` passes over the events that the user already has.
    An error in the middle of a batch, for example of the checkpoint store: if the stream reconnects, ``break_off``
    forgets the events not handed out, and the source sends them again.
    An acknowledgement (semi-sync): the source's request comes with the last raw event that is taken. The stream
    answers before more are taken: by then the user is done with that event, and the checkpoint is saved.
"""

import time
from collections.abc import Callable, Iterator, Sequence
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
    TableMapEvent,
    TransactionPayloadEvent,
)
from protocol.constants import HEARTBEATS, ROW_CODES
from protocol.conversation.packets import BULK_SIZE, LARGE_BULK_SIZE
from protocol.errors import ConfigurationError, ProtocolError, ReplicaError, SourceChangedError
from protocol.position import is_older
from protocol.records import record, replace
from protocol.rows.compiler import RowCompiler
from protocol.rows.table import Table

from ..config.options import Options
from ..schemas.schema_tracker import SchemaTracker
from ..source.dump import Dump, is_behind_description, is_internal
from ..source.open_dump import Broken, FirstOpening
from ..source.resolve_start import is_same_server
from ..source.same_log import take_file
from ..transactions.replay import (
    COMPARED_BYTES,
    FILE_EVENTS,
    Replay,
    ReplayEnd,
    TransactionRestarted,
    transaction_restarted,
)
from ..transactions.stop_point import StopPoint
from .batch import Account, Batch
from .copy_delivery import CopyDelivery
from .place_names import PlaceNames
from .stream_decoder import DecoderMaker

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
    """Makes the batches of one stream, across reconnects.

    ``account`` knows how far the user has come, ``decoders`` which tables the user selected.
    """

    def __init__(self, options: Options, tracker: SchemaTracker) -> None:
        self.account = Account(options.events)
        self._copy = CopyDelivery(self.account)
        self._names = PlaceNames(tracker)
        # With an interval of 0 the checkpoint is saved at each transaction: then each transaction is a batch.
        self._is_divided = options.checkpoints is not None and not options.checkpoint_interval
        self.decoders = DecoderMaker(options)
        self._decoder = BatchDecoder()
        self._dump: Dump | None = None
        self._stop: StopPoint | None = None
        self._not_before: int | None = None
        self._replay: Replay | None = None
        self._is_over = False
        self._has_news = False
        # The decoder's position when other tasks had their last turn. In each file positions begin anew.
        self._turned_at = 0
        self._drop()

    @property
    def stop(self) -> StopPoint | None:
        """Where the stream ends."""
        return self._stop

    def read_columns(self, table: str, make_compiler: Callable[[], RowCompiler]) -> None:
        """Read the rows of this table alone, undecoded. Raises ``ConfigurationError`` if events have been read."""
        if self._raws or self.account.last is not None:
            raise ConfigurationError(
                "arrow() must be called before any event is read: connect another stream"
            )
        self.decoders.read_columns(table, make_compiler)
        self.account.counts_rows = False
        if self._dump is not None:
            self._open(self._dump)

    @property
    def place(self) -> tuple[str, int]:
        """File and position after the last decoded event."""
        return self._decoder.file, self._decoder.position

    def takes_news(self) -> bool:
        """Whether this dump has brought a new event or a heartbeat since the last call."""
        has_news, self._has_news = self._has_news, False
        return has_news

    def settle_stop(self, stop: StopPoint) -> None:
        """Replace the stop by a more exact one."""
        self._stop = stop
        self._end_if_reached()

    # Dumps

    def begin(self, opening: FirstOpening) -> bool:
        """Begin with the first dump; an initial copy has begun before. Returns whether the stop is reached."""
        self._stop, self._not_before = opening.stop, opening.start.not_before
        self._open(opening.dump)
        self._end_if_reached()
        return self._is_over

    def go_on(self, dump: Dump, broken: Broken, replay: Replay | None) -> None:
        """Go on with a new dump from the last transaction boundary; ``replay`` knows the events the user already has.

        Raises ``SourceChangedError`` if the stop is only a position and another server answers.
        """
        if not is_same_server(broken.identity, dump.source):
            # Positions in the previous server's log mean nothing in this server's log.
            if self._stop is not None:
                self._stop = self._stop.on_another_server()
            self.account.last = self.account.progress.begun = None
        self._replay = replay
        self.account.progress.reopen()
        self._open(dump)

    def break_off(self, before: Broken | None) -> Broken:
        """End the dump and return how far the user had come. ``before`` is the result for the previous dump."""
        account, dump = self.account, self._dump
        assert dump is not None
        self._dump = None
        account.finish_batch()
        self._drop()
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
        return Broken(account.progress, dump.is_by_gtid, identity, end, account.delivered, self._decoder)

    def restart(self, broken: Broken, reason: str) -> tuple[TransactionRestarted, Broken]:
        """Void the delivered part of the open transaction. Returns the marker, and from where to read again."""
        account, progress = self.account, self.account.progress
        gtid = None if broken.end is None else broken.end.gtid
        marker = transaction_restarted((progress.file, progress.position), gtid, account.open_rows, reason)
        account.restart()
        if account.copy is not None:
            account.copy.settle([marker])
        self._replay = None
        return marker, replace(broken, end=None, delivered=account.delivered, progress=progress)

    def _open(self, dump: Dump) -> None:
        self._dump, self._is_by_gtid = dump, dump.is_by_gtid
        self._decoder = self.decoders.make(dump)
        self.account.begin_dump(self._decoder if dump.is_by_gtid else None)
        self._has_news, self._awaits_rotate = False, True
        self._names.open(self._decoder)
        self._drop()

    def _drop(self) -> None:
        """Forget the events that were received and not handed out: the source sends them again."""
        self._raws: Sequence[bytes] = ()
        self._next = 0
        # Decoded events that are not handed out yet.
        self._decoded: Batch | None = None
        self._error: ReplicaError | None = None
        # The rest of a compressed transaction, and the number of its next event.
        self._payload: Iterator[Event] | None = None
        self._inner = 0
        # A table map without column names, until it is described, and then until it is handed out.
        self._nameless: Batch | None = None
        self._described: Batch | None = None
        self._names.drop()

    # Batches

    def advance(self) -> Request:
        """The user is done with all events that were handed out: return what the stream has to do next.

        Raises the errors of decoding, ``SourceChangedError`` and ``CannotResumeError``.
        """
        self.account.finish_batch()
        if chunk := self._chunk():
            return chunk
        if self._copy.takes_end():
            self._end_if_reached()
        while True:
            if self._decoded is not None:
                is_inner = self._decoded.inner > 0
                events = self._hand_out(self._decoded)
                if length_hint(events):
                    return Deliver(events)
                self.account.finish_batch()
                if is_inner:
                    return Ask.TURN
            elif self._is_over:
                return Ask.END
            elif self._error is not None:
                raise self._error
            elif self._nameless is not None:
                (event,) = self._nameless.events
                assert isinstance(event, TableMapEvent)
                return Describe(event)
            elif self._described is not None:
                self._admit(self._described)
                self._described = None
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
        """A chunk of the copy that is due at this place."""
        batch = None if self._replay is not None else self._copy.next_batch()
        return None if batch is None else Deliver(self.account.hand_out(batch))

    def _take(self) -> bool:
        """Take the next raw events from the dump; False if there are none, or the last one must be acknowledged."""
        dump = self._dump
        if dump is None or dump.session.ack_requested:
            return False
        size = BULK_SIZE if self._decoder.has_documents else LARGE_BULK_SIZE
        self._raws, self._next = dump.take(size), 0
        if any(not HEARTBEATS.issuperset(raw[4:5]) for raw in self._raws):
            self.account.received_at = time.time()
        return bool(self._raws)

    def describe(self, event: TableMapEvent, table: Table | None) -> None:
        """Take the table that ``advance`` asked for, with names; None if the source does not show them."""
        event.table = self._decoder.name_table(event.table_id, table or event.table)
        self._described, self._nameless = self._nameless, None

    def _decode(self) -> None:
        """Decode as many raw events as possible at once, or a single event that must be decoded by itself."""
        begin = self._next
        # Events before the first one for the user are decoded one by one.
        if self._not_before is None and (self._dump is None or self._dump.is_known):
            self._decode_run(begin)
        if self._next == begin and self._error is None:
            self._next += 1
            self._decode_special(self._raws[begin])

    def _decode_run(self, begin: int) -> None:
        """Decode events up to one that must be decoded by itself, which may be the next one."""
        events: list[Event] = []
        kept: list[bytes] = []
        try:
            while self._next < len(self._raws):
                self._check_place(events)
                run = self._names.run(self._raws, self._next)
                self._next = self._decoder.decode_run(run, self._next, events, kept)
                if self._next == begin:
                    return
                self._names.follow(events)
                self._names.reach()
                if not self._decoder.takes_description():
                    break
                if not self._names.gives(events[-1]):
                    self._nameless = Batch([events.pop()], [kept.pop()])
                    break
        except ReplicaError as error:
            self._names.follow(events)
            self._error = error
        self._admit(Batch(events, kept))

    def _check_place(self, events: Sequence[Event]) -> None:
        """Raise ``DecodeError`` if events are missing before the next one. ``events`` come before it in its batch."""
        if self._dump is not None and self._replay is None:
            raw, progress = self._raws[self._next], self.account.progress
            self._dump.check_place(raw, self._decoder, progress, is_open=bool(events))

    def _decode_special(self, raw: bytes) -> None:
        if self._not_before is not None and raw[4:5] in ROW_CODES:
            return
        if self._dump is None or self._dump.is_known:
            event = self._decoder.decode(raw)
        else:
            event = self._dump.decode_first(self._decoder, raw)
        if event is None:
            return
        if isinstance(event, FormatDescriptionEvent) and self._dump is not None:
            take_file(event, self.account.progress, self._dump.source)
        self._names.follow([event])
        if is_internal(event):
            self._take_internal(event)
        elif self._is_before_start(event):
            self.account.skip(event, *self.place)
            self._end_if_reached()
        elif type(event) is TransactionPayloadEvent:
            self._payload, self._inner = self._decoder.payload_events(event), 1
        elif self._decoder.takes_description() and not self._names.gives(event):
            self._nameless = Batch([event], [raw], self.place)
        else:
            self._admit(Batch([event], [raw], self.place))

    def _decode_payload(self, payload: Iterator[Event]) -> None:
        events: list[Event] = []
        try:
            for event in islice(payload, _PAYLOAD_EVENTS):
                self._names.follow([event])
                if self._decoder.takes_description() and not self._names.gives(event):
                    self._nameless = Batch([event], [b""], self.place, self._inner + len(events))
                    break
                events.append(event)
            else:
                if len(events) < _PAYLOAD_EVENTS:
                    self._payload = None
        except ReplicaError as error:
            self._error = error
        batch = Batch(events, [b""] * len(events), self.place, self._inner)
        self._inner += len(events) + (self._nameless is not None)
        self._admit(batch)

    def _admit(self, batch: Batch) -> None:
        """Take decoded events, without those that the user already has and those after the stop."""
        if self._replay is not None:
            batch = self._pass_over(self._replay, batch)
        if batch.events:
            self._has_news = True
            batch = self._names.with_changes(batch)
            if self._stop is not None and not self._copy.is_running:
                batch = self._up_to_stop(self._stop, batch)
        self._decoded = batch

    def _hand_out(self, batch: Batch) -> Iterator[Event]:
        """The events of the batch for the user, or of its part up to where something has to be done."""
        self._decoded = None
        number = self._first_boundary(batch) if self._is_divided else self._copy.last_boundary(batch)
        if 0 < number < len(batch.events):
            batch, self._decoded = batch.before(number), batch.behind(number)
        return self.account.hand_out(batch)

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
            is_of_file = self._is_by_gtid and isinstance(event, FILE_EVENTS)
            self.account.pass_over(batch, number, is_followed=not is_of_file)
            if passes is None:
                return batch.behind(number + 1)
        return batch.behind(len(batch.events))

    # Start and stop

    def _up_to_stop(self, stop: StopPoint, batch: Batch) -> Batch:
        end = batch.place(len(batch.events) - 1)
        if not stop.may_lie_within(batch.events, end, lambda: self.account.progress_behind(batch)):
            return batch
        progress = self.account.progress_behind()
        for number, event in enumerate(batch.events):
            if progress.begins(event) and stop.excludes(event):
                self._is_over = True
                return batch.before(number)
            if progress.follow(event, *batch.place(number)) and stop.is_reached(progress):
                self._is_over = True
                return batch.before(batch.end_of(number))
        return batch

    def _first_boundary(self, batch: Batch) -> int:
        """The number of events up to the end of the first transaction."""
        progress = self.account.progress_behind()
        for number, event in enumerate(batch.events):
            if progress.follow(event, *batch.place(number)):
                return batch.end_of(number)
        return len(batch.events)

    def _end_if_reached(self) -> None:
        progress = self.account.progress
        if self._stop is not None and not progress.in_transaction and self._stop.is_reached(progress):
            self._is_over = not self._copy.is_running

    def _is_before_start(self, event: Event) -> bool:
        if self._not_before is None:
            return False
        if self.account.progress.begins(event) and event.header.timestamp >= self._not_before:
            self._not_before = None
            # Tables seen before the start have no columns looked up yet.
            self._decoder.forget_tables()
        return self._not_before is not None

    # Events of the connection

    def _take_internal(self, event: Event) -> None:
        """Take the source's place. MariaDB sends an artificial GTID_LIST after skipping what the replica has."""
        if isinstance(event, RotateEvent):
            self._take_artificial_rotate(event)
        elif isinstance(event, HeartbeatEvent):
            self._take_heartbeat(event)
        elif isinstance(event, MariadbGtidListEvent):
            self.account.progress.idle(event.file, event.header.next_position)

    def _take_artificial_rotate(self, event: RotateEvent) -> None:
        progress = self.account.progress
        is_first, self._awaits_rotate = self._awaits_rotate, False
        if is_first:
            self._names.begin_at(event, is_exact=not self._is_by_gtid)
        if is_first and not self._is_by_gtid and progress.file not in ("", event.next_file):
            # This event has no checksum, so its file name is checked here.
            raise ProtocolError(f"asked for {progress.file}, the source begins with {event.next_file}")
        if not is_first and is_older(event.next_file, event.file):
            raise SourceChangedError(f"the source goes back from {event.file} to {event.next_file}")
        if self._replay is None:
            progress.follow(event, *self.place)

    def _take_heartbeat(self, event: HeartbeatEvent) -> None:
        """The source is alive, and has sent everything up to the heartbeat's position."""
        self._has_news = True
        self.account.heard()
        progress = self.account.progress
        if self._stop is not None and not progress.in_transaction and self._stop.has_passed(event):
            self._is_over = not self._copy.is_running
        if self._is_by_gtid or is_behind_description(self._decoder, self._decoder.position):
            progress.idle(event.source_file, event.source_position)
