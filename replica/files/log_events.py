"""Reads the events of binlog files one after another, from start to stop, and handles damage.

    log_files -> RawEventReader (decrypts) -> EventDecoder -> LogRange (start and stop)

``BinlogFile`` is its public face. The code is arranged so that an event costs almost nothing besides its decoding.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from protocol.binlog.batch_decoder import BatchDecoder
from protocol.binlog.checksum import CRC32_ALGORITHM, algorithm_of
from protocol.binlog.events import Event, HeartbeatEvent, RotateEvent, TableMapEvent, TransactionPayloadEvent
from protocol.binlog.freed_blocks import keep_freed_blocks
from protocol.binlog.keys import LogKeys
from protocol.binlog.raw_reader import BATCH_BYTES, RawEventReader, TornTail
from protocol.constants import BINLOG_MAGIC
from protocol.errors import DecodeError, ReplicaError, TruncatedError
from protocol.records import record
from protocol.rows.description import ColumnDescription
from protocol.wire import HeaderFields, LocatedEvent

from ..config.interruption import interrupted
from ..config.table_filter import SeenTables, TableFilter, unmatched_text
from .log_files import LogFile, OpenLogFile
from .log_range import LogRange

if TYPE_CHECKING:
    from .log_shapes import LogShapes

OnError = Literal["raise", "skip"]
RawEvent = tuple[bytes, int, Event]

# Not yielded, as in a live stream: messages of a source to its replica, and the envelope of a compressed transaction.
_HIDDEN: Final = frozenset({HeartbeatEvent, TransactionPayloadEvent, RotateEvent})
# Bytes of events that are read together where rows stay undecoded: eight full rows events instead of one.
_UNDECODED_BYTES: Final = 1 << 16
# The rows of a batch of columns have up to 4 MB, or are the rows of one event. Without kept blocks each batch of JSON
# documents took 500 page faults more, a fourteenth of its time.
_UNDECODED_KEPT: Final = 16 << 20


@record(slots=True)
class Skipped:
    """Damage that ``on_error="skip"`` has skipped: ``events`` is the number of places, ``bytes`` their size."""

    events: int = 0
    bytes: int = 0


class LogEvents:
    """The events of files; ``iterator`` yields the events that users see, of the types ``wanted``.

    ``schema`` describes tables by name, ``shapes`` by place; ``columns`` lists the columns to decode of some tables.
    An error ends the iteration, and each further step raises it again.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        log_range: LogRange,
        decoder: BatchDecoder,
        *,
        wanted: tuple[type[Event], ...],
        schema: Mapping[str, Sequence[ColumnDescription]],
        columns: Mapping[str, Sequence[str]],
        on_error: OnError,
        torn: TornTail,
        keys: LogKeys,
        max_event_bytes: int,
        wants_table: TableFilter | None,
        shapes: "LogShapes | None" = None,
    ) -> None:
        self.decoder = decoder
        self.wanted = wanted
        # The filter whose unmatched patterns are logged at the end of the log.
        self.wants_table = wants_table
        self.on_error = on_error
        self.skipped = Skipped()
        self.torn_bytes = 0
        self.file = files[0].name
        self._files = files
        self._range = log_range
        self._schema = schema
        self.shapes = shapes
        # The table changes that the last described event has made.
        self._changes: Sequence[Event] = ()
        self._columns = columns
        self._torn = torn
        self._keys = keys
        self._max_event_bytes = max_event_bytes
        self._batch_bytes = BATCH_BYTES
        self._open: OpenLogFile | None = None
        self._bytes_before = 0
        self._reader: RawEventReader | None = None
        self._raw: bytes | None = None  # of the last event, unless a batch holds it
        self._is_raw_wanted = False
        self._error: BaseException | None = None
        self._state = "reading"  # or "at end" or "broken off": the file
        self._piece: Generator[Event, None, None] | list[Event] = []
        self._pieces = self._read()
        self.iterator = chain.from_iterable(self._pieces)

    def go_on_with(self, section: LogFile) -> None:
        """Read another section of the log, with what the decoder knows of tables."""
        self._files = [section]
        self._error = None
        self.torn_bytes = 0
        self._pieces = self._read()
        self.iterator = chain.from_iterable(self._pieces)

    def add_section(self, file: str, size: int, torn_bytes: int, seen: SeenTables | None) -> None:
        """Note that a process has read a section of a file, ``size`` bytes."""
        self.file = file
        self._bytes_before += size
        self.torn_bytes += torn_bytes
        if self.wants_table is not None and seen is not None:
            self.wants_table.include(seen)

    def end_sections(self) -> None:
        """Note that all sections have been read."""
        self._warn_of_unmatched()

    def leave_rows_undecoded(self, decoder: BatchDecoder, surrounding: tuple[type[Event], ...]) -> None:
        """Read with this decoder, which leaves the rows of one table undecoded, and read ``surrounding`` events."""
        keep_freed_blocks(_UNDECODED_KEPT)
        self.decoder = decoder
        self.wanted += surrounding
        self._batch_bytes = _UNDECODED_BYTES
        # One table is read, so patterns of other tables would match nothing.
        self.wants_table = None

    @property
    def has_begun(self) -> bool:
        """Whether reading has begun."""
        return self._reader is not None

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as stored."""
        return self._bytes_before + (self._open.bytes_read if self._open else 0)

    def close(self) -> None:
        """Close the files; the iteration ends."""
        if isinstance(self._piece, list):
            self._piece.clear()
        else:
            self._piece.close()
        self._pieces.close()

    def next_sized(self) -> tuple[int, Event] | None:
        """The number of the next event's bytes in the file, and the event, also of types that users do not see."""
        self._is_raw_wanted = True
        try:
            # No call behind the event: a signal handler that raised in it would lose the event.
            for event in self.iterator:
                return 0 if self._raw == b"" else event.header_fields[3], event
        finally:
            self._is_raw_wanted = False
        return None

    def next_raw(self) -> RawEvent | None:
        """As ``next_sized``, with the bytes of the event and its offset in the file."""
        found = self.next_sized()
        if found is None:
            return None
        size, event = found
        raw = self._raw
        if raw is None:
            assert self._reader is not None
            raw = self._reader.bytes_of(event.position, size)
        return raw, event.position, event

    def count_skipped(self, error: DecodeError, size: int) -> None:
        """Count ``size`` bytes of damage as skipped, and log a warning."""
        self.skipped.events += 1
        self.skipped.bytes += size
        import logging

        logging.getLogger(__name__).warning("%s: %d bytes skipped", error, size)

    def _read(self) -> Generator[Iterable[Event], None, None]:
        """All events, in pieces: a generator between events and user would cost 20 ns an event."""
        try:
            files = self._range.choose(self._files)
            if self.shapes is not None:
                self.shapes.begin(files, self._files)
            for file in files:
                self.file = file.name
                self._open = OpenLogFile(file, self._torn)
                with closing(self._open):
                    yield from self._read_file(file, self._open)
                self._bytes_before += self._open.bytes_read
                self._open = None
                if self._range.is_over or self._state == "broken off":
                    break
            if self._state == "broken off" and self._error is None:
                self._error = interrupted("an exception")
            self._warn_of_unmatched()
        except GeneratorExit:
            raise
        # Also that of a signal handler, or MemoryError: without it the log would seem to end here.
        except BaseException as error:
            self._error = error
        # An iterator, because a generator raises its error only once.
        yield iter(self._raise_again, None)

    def _warn_of_unmatched(self) -> None:
        """Log a warning for each pattern of ``tables`` that has matched no table."""
        for pattern, nearest in self.wants_table.unmatched() if self.wants_table is not None else ():
            import logging

            text = unmatched_text(pattern, nearest, "the log")
            logging.getLogger(__name__).warning("%s", text)

    def _raise_again(self) -> None:
        error = self._error
        if error is None:
            return
        if not isinstance(error, ReplicaError | RuntimeError):
            self._error = interrupted(type(error).__name__)
        raise error

    def _read_file(self, file: LogFile, opened: OpenLogFile) -> Generator[Iterable[Event], None, None]:
        """The events of one open file."""
        self._reader = reader = RawEventReader(
            opened.read,
            file=file.name,
            torn=self._torn,
            keys=self._keys,
            base=file.section.start - len(BINLOG_MAGIC)
            if file.section is not None and file.section.start
            else 0,
            max_event_bytes=self._max_event_bytes,
            batch_bytes=self._batch_bytes,
        )
        if file.section is not None and file.section.description:
            self.decoder.file = file.name
            self.decoder.decode(file.section.description, len(BINLOG_MAGIC))
            reader.has_checksums = algorithm_of(file.section.description) == CRC32_ALGORITHM
        self._range.enter(file.name)
        self._state = "reading"
        while self._state == "reading":
            while batch := self._read_batch(reader):
                self._raw = None
                self._piece, error = self._decode_batch(batch)
                yield self._piece
                if error is not None:
                    self._step_over(reader, error, batch)
            # The state stays "broken off" if the piece raises: its errors do not pass through this generator.
            self._state = "broken off"
            self._piece = self._read_with_care(reader)
            yield self._piece
        if self._state == "at end" and not self._range.is_over:
            self.torn_bytes += reader.torn_bytes
            # A start at the beginning of a torn event is valid: all before it has been read, and the event may be
            # complete later.
            self._range.leave(reader.position - reader.torn_bytes)

    def _read_batch(self, reader: RawEventReader) -> list[LocatedEvent]:
        """The next batch of events, if the range needs no check of each event: nearly always."""
        if not self._range.is_everything:
            return []
        self._prepare(reader)
        return reader.read_batch()

    def _decode_batch(self, batch: list[LocatedEvent]) -> tuple[list[Event], ReplicaError | None]:
        """The decoded events, and the error that ended decoding early, if any."""
        events: list[Event] = []
        failed: ReplicaError | None = None
        try:
            if self._schema or self._columns or self.shapes is not None:
                for located in batch:
                    event = self._decode(*located)
                    if event is not None:
                        events.append(event)
                        events += self._changes
            else:
                self.decoder.decode_batch(batch, events)
        except ReplicaError as error:
            failed = error
        if Event not in self.wanted:
            events = [event for event in events if isinstance(event, self.wanted)]
        return events, failed

    def _step_over(self, reader: RawEventReader, error: ReplicaError, batch: list[LocatedEvent]) -> None:
        """Continue after the event of a batch that could not be decoded, or raise its error."""
        if not isinstance(error, DecodeError):
            raise error
        reader.step_back(*next(located for located in batch if located[1] == error.position))
        self._pass_over(reader, error)

    def _read_with_care(self, reader: RawEventReader) -> Generator[Event, None, None]:
        """One event after another, until the next events can be read in batches."""
        log_range = self._range
        try:
            while (raw := self._read_event(reader)) is not None:
                if log_range.wants(raw, reader.event_position):
                    yield from self._decode_whole(raw, reader)
                if log_range.is_over:
                    break
                if log_range.is_everything:
                    self._state = "reading"
                    return
            self._state = "at end"
        except ReplicaError as error:
            self._error = error

    def _decode_whole(self, raw: bytes, reader: RawEventReader) -> Iterator[Event]:
        """An event and the events inside it, as far as they are in the range and wanted."""
        log_range = self._range
        self._prepare(reader)
        try:
            for event in self._decode_payload(raw, reader.event_position):
                changes = self._changes
                if log_range.admits(event):
                    if isinstance(event, self.wanted) and self._is_shown(event):
                        yield event
                    yield from (change for change in changes if isinstance(change, self.wanted))
                # A compressed transaction ends with its last inner event.
                if not log_range.is_over and type(event) is not TransactionPayloadEvent:
                    log_range.follow(event, reader.position)
                if log_range.is_over:
                    return
        except DecodeError as error:
            self._pass_over(reader, error)

    def _read_event(self, reader: RawEventReader) -> bytes | None:
        while True:
            try:
                return reader.read_event()
            except TruncatedError:
                raise
            except DecodeError as error:
                self._pass_over(reader, error)

    def _pass_over(self, reader: RawEventReader, error: DecodeError) -> None:
        """Skip damage and log it, or raise, according to ``on_error``."""
        if self.on_error == "raise":
            raise error
        self.count_skipped(error, reader.resynchronize())

    def _prepare(self, reader: RawEventReader) -> None:
        # Set here too, because the format description may be damaged or missing.
        self.decoder.checksum_enabled = reader.has_checksums is True
        # ROTATE events in a relay log name the source's files.
        self.decoder.file = reader.file

    def _decode_payload(self, raw: bytes, position: int) -> Iterator[Event]:
        """An event, then the events inside it if it is a compressed transaction; nothing for unwanted rows."""
        event = self._decode(raw, position)
        if event is None:
            return
        self._raw = raw
        yield event
        if type(event) is TransactionPayloadEvent:
            for inner in self.decoder.payload_events(event):
                self._describe(inner)
                self._raw = b""
                yield inner

    def _is_shown(self, event: Event) -> bool:
        """Whether the event is yielded: ``next_raw`` yields all, iterating leaves some types out."""
        kind = type(event)
        if self._is_raw_wanted or kind not in _HIDDEN:
            return True
        return kind is RotateEvent and event.header.next_position != 0

    def _decode(self, raw: bytes, position: int, header: HeaderFields | None = None) -> Event | None:
        event = self.decoder.decode(raw, position, header)
        if event is not None:
            self._describe(event)
        return event

    def _describe(self, event: Event) -> None:
        """Describe a table whose map has no names by the user's ``schema`` or the schema history."""
        if self.shapes is not None:
            changes = self.shapes.follow(event, self.wants_table)
            # Schema changes are not among raw events: they have no bytes.
            self._changes = [] if self._is_raw_wanted else changes
        if type(event) is not TableMapEvent:
            return
        if event.table.names_from is not None:
            if self.shapes is not None and self.shapes.learns_all:
                self.shapes.learn(event)
        else:
            name = str(event.table)
            columns = self._schema.get(name)
            named = None if columns is not None or self.shapes is None else self.shapes.named(event)
            if named is not None:
                event.table = self.decoder.name_table(event.table_id, named)
            elif columns is not None or name in self._columns:
                event.table = self.decoder.describe(event.table_id, columns)
