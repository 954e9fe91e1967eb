"""Sends one binlog dump: from the start position on, file by file, and then waits for new events if asked to.

    ServedLog -> FileEvents -> EventFilter -> Acceptor.send_events

It follows MySQL's ``rpl_binlog_sender.cc`` and MariaDB's ``sql_repl.cc``. ``dump_start`` finds the start position.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import QueryEvent
from protocol.constants import (
    CHECKSUM_SIZE,
    EVENT_FLAGS_OFFSET,
    EVENT_HEADER_SIZE,
    EVENT_SIZE_OFFSET,
    EVENT_TYPE_OFFSET,
    MAX_EVENT_SIZE,
    POSITION_MASK,
    ROW_CODES,
    EventFlag,
    EventType,
)
from protocol.conversation.source_side import Acceptor
from protocol.errors import ConfigurationError, DecodeError
from protocol.position import FIRST_POSITION, BinlogPosition, file_number
from protocol.records import record
from protocol.wire import unpack_u32, utf8_text

from ..transactions.boundary import Progress
from . import artificial
from .event_filter import EventFilter
from .refusals import Place, Refusals
from .replicas import ConnectedReplica
from .served_log import FileEvents, FileHead, ServedLog

_KNOWN_TYPES: Final = frozenset(EventType) - {EventType.UNKNOWN}
# A ROTATE event's file name is after its position.
_ROTATE_NAME: Final = EVENT_HEADER_SIZE + 8


@record(frozen=True, slots=True)
class DumpOptions:
    """The options of a dump, most of them SET by the replica.

    ``waits``: at the log's end, wait for new events. ``heartbeat``: seconds of silence before a heartbeat, None for
    no heartbeats. ``has_checksums``: whether events have checksums before the first format description says so; None
    if the replica does not know checksums. ``poll_interval``: seconds between two looks at files that may have grown.
    """

    waits: bool
    heartbeat: float | None
    has_long_heartbeats: bool
    has_checksums: bool | None
    poll_interval: float
    asks_for_acknowledgements: bool = False


@record(frozen=True, slots=True)
class DumpStart:
    """Where a dump starts. ``by_gtid``: at the start of a file; ``event_filter`` skips what the replica has.

    ``keep_created``: the first format description may make the replica drop its temporary tables.
    """

    file: str
    position: int
    event_filter: EventFilter
    by_gtid: bool = False
    keep_created: bool = True


class Dump:
    """Sends the log to one replica. ``flush`` sends the acceptor's data, and waits while the replica is slow."""

    def __init__(
        self,
        log: ServedLog,
        acceptor: Acceptor,
        flush: Callable[[], Awaitable[None]],
        replica: ConnectedReplica,
        options: DumpOptions,
        server_id: int,
        refusals: Refusals,
    ) -> None:
        self._log = log
        self._acceptor = acceptor
        self._flush = flush
        self._replica = replica
        self._options = options
        self._server_id = server_id
        self._refusals = refusals
        self._has_checksums = bool(options.has_checksums)
        self._file = ""
        # Not the start itself: its filter holds the replica's GTIDs, and this dump for its heartbeats. A replica with
        # a million intervals left 77 MB behind each time, until Python looked for such circles.
        self._began = ("", 0)
        self._sent_at = 0.0
        self._event_position = 0
        self._last_event = b""
        self._acknowledging: _TransactionEnds | None = None

    async def run(self, start: DumpStart) -> None:
        """Send all events; return at the log's end if the replica does not wait. Raises ``DumpRefusedError``."""
        self._began = start.file, start.position
        file: str | None = start.file
        position = start.position
        while file is not None:
            file = await self._send_file(file, position, start)
            position = FIRST_POSITION
        self._acceptor.send_dump_end()
        await self._flush()

    def place(self) -> Place:
        """The current place of this dump, for an error's text."""
        file, position = self._began
        sent = position if self._replica.sent is None else self._replica.sent.position
        return Place(file, position, self._file, self._event_position, sent)

    def make_heartbeat(self, position: int) -> bytes:
        """A heartbeat event with a position in the current file."""
        make = artificial.heartbeat_v2 if self._options.has_long_heartbeats else artificial.heartbeat
        return make(self._server_id, self._file, position, has_checksum=self._has_checksums)

    async def _send_file(self, file: str, position: int, start: DumpStart) -> str | None:
        """Send a file's events. Returns the next file; None at the log's end, if the replica does not wait."""
        self._enter(file, position)
        head = self._head(file)
        try:
            events = self._log.open(file, position if position > FIRST_POSITION else head.first_event)
        except OSError:
            raise self._refusals.no_such_file() from None
        with events:
            self._send_description(head, position, start)
            decoder = head.decoder(file, events.position)
            start.event_filter.enter(decoder)
            if self._options.asks_for_acknowledgements:
                self._acknowledging = _TransactionEnds(decoder, file)
            is_checked = position <= FIRST_POSITION
            while True:
                following = self._next_file()
                is_checked = is_checked or self._is_checked(events, head)
                if is_checked and await self._send_events(
                    events, start.event_filter, is_last=following is None
                ):
                    continue
                if rest := start.event_filter.rest(events.position):
                    self._send(rest)
                    await self._flush()
                if following is not None:
                    if events.position < events.size:
                        raise self._refusals.truncated_event(self.place())
                    self._check_following(following)
                    return following
                if not self._options.waits:
                    return None
                await self._wait(events.position)

    def _enter(self, file: str, position: int) -> None:
        self._file = file
        self._event_position = position
        self._last_event = b""
        self._replica.sent = BinlogPosition(file, position)
        # Whether this event has a checksum is still decided by the file before.
        rotate = artificial.rotate(self._server_id, file, position, has_checksum=self._has_checksums)
        self._send([rotate])

    def _head(self, file: str) -> FileHead:
        try:
            head = self._log.head(file)
        except ConfigurationError as error:
            raise self._refusals.unreadable_file(str(error)) from error
        if head is None:
            raise self._refusals.truncated_event(self.place())
        return head

    def _send_description(self, head: FileHead, position: int, start: DumpStart) -> None:
        self._has_checksums = head.has_checksums
        if head.has_checksums and self._options.has_checksums is None:
            raise self._refusals.no_checksums(self.place())
        is_first = self._file == start.file
        is_within = position > FIRST_POSITION and is_first
        description = artificial.format_description(
            head.description,
            keep_position=not is_within,
            keep_created=not is_within and (start.keep_created or not is_first),
            has_checksums=head.has_checksums,
        )
        self._send([description])

    def _is_checked(self, events: FileEvents, head: FileHead) -> bool:
        """Whether the requested position is the start of an event, or the end of the file.

        False while the event is still being written: ask again. Raises ``DumpRefusedError`` for any other position.
        """
        header = events.header()
        left = events.size - events.position
        if not left:
            return True
        is_growing = self._options.waits and self._next_file() is None
        if header is None:
            if not is_growing:
                raise self._refusals.truncated_event(self.place())
            return False
        _, kind, _, size, end, _ = header
        if size < EVENT_HEADER_SIZE:
            raise self._refusals.bogus_event(self.place())
        if size > MAX_EVENT_SIZE:
            raise self._refusals.large_event(self.place())
        is_end_right = end == (events.position + size) & POSITION_MASK
        # MariaDB 11.4 and later write no position into the events of a transaction.
        may_be_right = is_end_right or (head.is_mariadb and not end and kind in _KNOWN_TYPES)
        if size > left:
            if is_end_right or (may_be_right and is_growing):
                return False
            raise self._refusals.truncated_event(self.place())
        if not (events.checksum_matches(size) if head.has_checksums else may_be_right):
            raise self._refusals.bogus_event(self.place())
        return True

    def _next_file(self) -> str | None:
        """The file after the current one; None if there is none, or it holds no event yet."""
        try:
            following = self._log.next_file(self._file)
        except LookupError:
            raise self._refusals.no_next_file(self.place()) from None
        return following if following is None or self._is_begun(following) else None

    def _check_following(self, file: str) -> None:
        """Refuse a next file other than the ROTATE event named. Only numbers are compared: files may be renamed."""
        raw = self._last_event
        if (
            not raw
            or raw[EVENT_TYPE_OFFSET] != EventType.ROTATE
            or raw[EVENT_FLAGS_OFFSET] & EventFlag.ARTIFICIAL
        ):
            return
        name = raw[_ROTATE_NAME : len(raw) - CHECKSUM_SIZE * self._has_checksums]
        named, found = file_number(utf8_text(name)), file_number(file)
        if named and found and named != found:
            raise self._refusals.no_next_file(self.place())

    def _is_begun(self, file: str) -> bool:
        """Whether the file can be sent next. True for a broken file, too: the error comes when it is opened."""
        if file != self._log.names[-1]:
            # Later files exist: nothing will be added to this one.
            return True
        try:
            return self._log.head(file) is not None
        except ConfigurationError:
            return True

    async def _send_events(self, events: FileEvents, event_filter: EventFilter, *, is_last: bool) -> bool:
        """Send the next batch of events; return whether there was one."""
        start = events.position
        header = events.large_event()
        if header and self._goes_in_pieces(header):
            await self._send_large(events, event_filter, header)
            return True
        try:
            batch = events.read()
        except DecodeError:
            raise self._refusals.bogus_event(self.place()) from None
        if batch and is_last and self._options.waits and batch[-1][EVENT_TYPE_OFFSET] == EventType.ROTATE:
            # The ROTATE names a file that does not exist yet; a later heartbeat must not go back before it (13122).
            events.position -= len(batch.pop())
        if not batch:
            return False
        self._event_position = events.position - len(batch[-1])
        self._last_event = batch[-1]
        self._replica.sent = BinlogPosition(self._file, events.position)
        if chosen := event_filter.select(batch, start):
            self._send(chosen)
        else:
            self._send_heartbeat(events.position)
        await self._flush()
        return True

    def _goes_in_pieces(self, header: bytes) -> bool:
        """Whether the event need not be whole. A semi-synchronous dump looks for commits in all but rows events."""
        return self._acknowledging is None or header[4:5] in ROW_CODES

    async def _send_large(self, events: FileEvents, event_filter: EventFilter, header: bytes) -> None:
        """Send an event in pieces, as fast as the client reads: only one piece of it is in memory."""
        (size,) = unpack_u32(header, EVENT_SIZE_OFFSET)
        self._event_position = events.position
        self._last_event = header
        for raw in event_filter.select([header], events.position):
            if raw is header:
                self._acceptor.begin_event(size)
                for piece in events.pieces(size):
                    self._acceptor.send_piece(piece)
                    await self._flush()
                self._sent_at = asyncio.get_running_loop().time()
            else:
                self._send([raw])
        events.position += size
        self._replica.sent = BinlogPosition(self._file, events.position)
        self._send_heartbeat(events.position)
        await self._flush()

    def _send(self, events: list[bytes]) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        if self._acknowledging is None:
            self._acceptor.send_events(events)
            return
        for raw in events:
            if self._acknowledging.is_end(raw):
                self._acceptor.send_event_to_acknowledge(raw)
            else:
                self._acceptor.send_events((raw,))

    async def _wait(self, position: int) -> None:
        """Wait ``poll_interval`` seconds, or until the next heartbeat is due; send a heartbeat that is due now."""
        pause = self._options.poll_interval
        self._replica.is_waiting = True
        try:
            left = self._send_heartbeat(position)
            await self._flush()
            await asyncio.sleep(pause if left is None else min(pause, left))
        finally:
            self._replica.is_waiting = False
        self._log.refresh()

    def _send_heartbeat(self, position: int) -> float | None:
        """Send a heartbeat if it is due. Returns the seconds until the next one, None without heartbeats."""
        heartbeat = self._options.heartbeat
        if heartbeat is None:
            return None
        left = self._sent_at + heartbeat - asyncio.get_running_loop().time()
        if left > 0:
            return left
        self._send([self.make_heartbeat(position)])
        return heartbeat


class _TransactionEnds:
    """Finds the last event of each transaction, which a semi-synchronous replica is asked to acknowledge."""

    def __init__(self, decoder: EventDecoder, file: str) -> None:
        self._decoder = decoder
        self._file = file
        self._progress = Progress(file, FIRST_POSITION, None, has_gtids=False)

    def is_end(self, raw: bytes) -> bool:
        """Whether this event, the next one of the file, ends a transaction."""
        if raw[4:5] in ROW_CODES:
            return False
        was_open = self._progress.in_transaction
        # What cannot be decoded is for the replica to judge, as in other dumps.
        event = None
        with contextlib.suppress(DecodeError):
            event = self._decoder.decode(raw)
        if event is None:
            return False
        is_boundary = self._progress.follow(event, self._file, FIRST_POSITION)
        return is_boundary and (was_open or type(event) is QueryEvent)
