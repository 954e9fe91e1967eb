"""Reading log files: their events one after another, from start to stop, with what damage does to that.

    log_files -> RawEventReader (decrypts) -> EventDecoder -> start and stop

What users see of it is ``BinlogFile``. It is written so that an event costs next to nothing but its decoding.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from typing import Final, Literal

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event, HeartbeatEvent, RotateEvent, TableMapEvent, TransactionPayloadEvent
from protocol.binlog.keys import LogKeys
from protocol.binlog.raw_reader import RawEventReader, TornTail
from protocol.errors import DecodeError, ReplicaError, TruncatedError
from protocol.records import record
from protocol.rows.description import ColumnDescription
from protocol.wire import HeaderFields, LocatedEvent

from .log_files import LogFile, OpenLogFile
from .log_range import LogRange

OnError = Literal["raise", "skip"]
RawEvent = tuple[bytes, int, Event]

# Of no log, as in a live stream: what a source says to its replica, and the envelope of its content.
_HIDDEN: Final = frozenset({HeartbeatEvent, TransactionPayloadEvent, RotateEvent})


@record(slots=True)
class Skipped:
    """What ``on_error="skip"`` has passed over: how many times damage was met, and its bytes."""

    events: int = 0
    bytes: int = 0


class LogEvents:
    """The events of files; ``iterator`` gives those that users see, which are of the types ``wanted``.

    ``schema`` describes tables by name, and ``columns`` names those of which only some columns are wanted. An error
    ends the iteration, and is raised again by each further step.
    """

    def __init__(
        self,
        files: Sequence[LogFile],
        log_range: LogRange,
        decoder: EventDecoder,
        *,
        wanted: tuple[type[Event], ...],
        schema: Mapping[str, Sequence[ColumnDescription]],
        columns: Mapping[str, Sequence[str]],
        on_error: OnError,
        torn: TornTail,
        keys: LogKeys,
    ) -> None:
        self.decoder = decoder
        self.wanted = wanted
        self.on_error = on_error
        self.skipped = Skipped()
        self.torn_bytes = 0
        self.file = files[0].name
        self._files = files
        self._range = log_range
        self._schema = schema
        self._columns = columns
        self._torn = torn
        self._keys = keys
        self._open: OpenLogFile | None = None
        self._bytes_before = 0
        self._reader: RawEventReader | None = None
        self._raw: bytes | None = None  # of the last event, if that is none of a batch
        self._is_raw_wanted = False
        self._error: ReplicaError | None = None
        self._state = "reading"  # or "at end" or "broken off": the file
        self._piece: Generator[Event, None, None] | list[Event] = []
        self._pieces = self._read()
        self.iterator = chain.from_iterable(self._pieces)

    @property
    def has_begun(self) -> bool:
        """Whether anything has been read."""
        return self._reader is not None

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, as they are stored."""
        return self._bytes_before + (self._open.bytes_read if self._open else 0)

    def close(self) -> None:
        """Close the files; the iteration ends."""
        if isinstance(self._piece, list):
            self._piece.clear()
        else:
            self._piece.close()
        self._pieces.close()

    def next_raw(self) -> RawEvent | None:
        """The next event of all, also of those that users do not see, with its bytes and its offset in the file."""
        self._is_raw_wanted = True
        try:
            event = next(self.iterator, None)
        finally:
            self._is_raw_wanted = False
        if event is None:
            return None
        raw = self._raw
        if raw is None:
            assert self._reader is not None
            raw = self._reader.bytes_of(event.position, event.header.size)
        return raw, event.position, event

    def count_skipped(self, error: DecodeError, size: int) -> None:
        """So many bytes of damage are left out: count them and say so."""
        self.skipped.events += 1
        self.skipped.bytes += size
        import logging

        logging.getLogger(__name__).warning("%s: %d bytes skipped", error, size)

    def _read(self) -> Generator[Iterable[Event], None, None]:
        """All events, in pieces: each generator of ours between them and the user would cost 20 ns an event."""
        try:
            for file in self._range.choose(self._files):
                self.file = file.name
                self._open = OpenLogFile(file, self._torn)
                with closing(self._open):
                    yield from self._read_file(file, self._open)
                self._bytes_before += self._open.bytes_read
                self._open = None
                if self._range.is_over or self._state == "broken off":
                    break
        except ReplicaError as error:
            self._error = error
        # An iterator, since a generator raises its error only once.
        yield iter(self._raise_again, None)

    def _raise_again(self) -> None:
        if self._error is not None:
            raise self._error

    def _read_file(self, file: LogFile, opened: OpenLogFile) -> Generator[Iterable[Event], None, None]:
        """The events of one open file."""
        self._reader = reader = RawEventReader(opened.read, file=file.name, torn=self._torn, keys=self._keys)
        self._range.enter(file.name)
        self._state = "reading"
        while self._state == "reading":
            while batch := self._read_batch(reader):
                self._raw = None
                self._piece, error = self._decode_batch(batch)
                yield self._piece
                if error is not None:
                    self._step_over(reader, error, batch)
            # Until it ends in order: what it raises goes past this generator.
            self._state = "broken off"
            self._piece = self._read_with_care(reader)
            yield self._piece
        if self._state == "at end" and not self._range.is_over:
            self.torn_bytes += reader.torn_bytes
            # A start where a torn event begins is right: all before it has been read, and it may be whole tomorrow.
            self._range.leave(reader.position - reader.torn_bytes)

    def _read_batch(self, reader: RawEventReader) -> list[LocatedEvent]:
        """Events that only need to be decoded: nearly all of them."""
        if not self._range.is_everything:
            return []
        self._prepare(reader)
        return reader.read_batch()

    def _decode_batch(self, batch: list[LocatedEvent]) -> tuple[list[Event], ReplicaError | None]:
        """The events, up to the one whose error it is."""
        events: list[Event] = []
        failed: ReplicaError | None = None
        try:
            if self._schema or self._columns:
                for located in batch:
                    event = self._decode(*located)
                    if event is not None:
                        events.append(event)
            else:
                self.decoder.decode_batch(batch, events)
        except ReplicaError as error:
            failed = error
        if Event not in self.wanted:
            events = [event for event in events if isinstance(event, self.wanted)]
        return events, failed

    def _step_over(self, reader: RawEventReader, error: ReplicaError, batch: list[LocatedEvent]) -> None:
        """Go on behind the event of a batch that could not be decoded; or raise."""
        if not isinstance(error, DecodeError):
            raise error
        reader.step_back(*next(located for located in batch if located[1] == error.position))
        self._pass_over(reader, error)

    def _read_with_care(self, reader: RawEventReader) -> Generator[Event, None, None]:
        """One event after the other, until the next may come in batches."""
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
        """One event and what is inside of it, as far as it lies in the range and is wanted."""
        log_range = self._range
        self._prepare(reader)
        try:
            for event in self._decode_payload(raw, reader.event_position):
                if log_range.admits(event) and isinstance(event, self.wanted) and self._is_shown(event):
                    yield event
                # A compressed transaction ends with the last event in it.
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
        """Go on behind damage, and say so; or raise, as the user wishes."""
        if self.on_error == "raise":
            raise error
        self.count_skipped(error, reader.resynchronize())

    def _prepare(self, reader: RawEventReader) -> None:
        # Also where the format description is damaged, or the file begins in mid-life.
        self.decoder.checksum_enabled = reader.has_checksums is True
        # The rotates in a relay log name files of its source.
        self.decoder.file = reader.file

    def _decode_payload(self, raw: bytes, position: int) -> Iterator[Event]:
        """An event, and those inside of it where it is a compressed transaction; nothing for unwanted rows."""
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
        """Whether users see it, or ask for everything."""
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
        """Names for a table whose map has none, from the user."""
        if type(event) is TableMapEvent and event.table.names_from is None:
            name = str(event.table)
            columns = self._schema.get(name)
            if columns is not None or name in self._columns:
                event.table = self.decoder.describe(event.table_id, columns)
