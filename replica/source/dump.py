"""One connection over which a source sends its log: it asks for the log and watches for signs of life.

    Session.next_events -> Dump.take -> raw events

A stream, a relay and Spark's intake have one dump at a time. They decide what to do with the raw events, and what to
do when the connection ends.
"""

import asyncio
import logging
from typing import Final, Self

from protocol.binlog.checksum import crc32_matches
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    Event,
    EventHeader,
    FormatDescriptionEvent,
    HeartbeatEvent,
    RotateEvent,
    StartEncryptionEvent,
)
from protocol.constants import (
    ARTIFICIAL,
    EVENT_HEADER_SIZE,
    EVENT_TYPE_OFFSET,
    HEARTBEATS,
    POSITION_MASK,
    EventFlag,
    EventType,
)
from protocol.conversation.packets import BULK_SIZE
from protocol.conversation.server_errors import CANNOT_READ_BINLOG
from protocol.errors import (
    ConnectionLostError,
    DecodeError,
    MissingTableMapError,
    PositionInsideEventError,
    ReplicaError,
    SourceChangedError,
)
from protocol.gtid import AnyGtidSet, GtidSet, new_gtid
from protocol.position import FIRST_POSITION, is_older
from protocol.records import record
from protocol.wire import unpack_event_header

from ..config.options import Options
from ..transactions.boundary import Progress
from .hosts import first_host
from .killed_dumps import end_killed_dumps
from .log_scan import LogScan
from .resolve_start import StartPoint, begin_dump
from .server_facts import Source, ask, find_twin, identify, introduce
from .session import Session
from .sign_of_life import SIGN_OF_LIFE

_LOGGER: Final = logging.getLogger(__name__)
_SILENT_PERIODS: Final = 2.5
_BEFORE_FIRST: Final = HEARTBEATS | {
    EventType.ROTATE,
    EventType.FORMAT_DESCRIPTION,
    EventType.MARIADB_START_ENCRYPTION,
}
# Seconds without an event after which a dump of MariaDB may wait for the end of an older one.
_HELD_UP_SECONDS: Final = 1.0
# Seconds between two looks at a dump that writes, and of which nothing arrives.
_AGAIN_SECONDS: Final = 1.0
# Minimum wait, so that data already buffered is read.
_AT_HAND: Final = 0.01


@record(frozen=True, slots=True)
class Greeted:
    """A connection that has logged in and announced the replica. It has not asked for the log yet."""

    session: Session
    source: Source
    has_checksums: bool

    @classmethod
    async def open(cls, options: Options) -> Self:
        """Do ``greet`` with the first of the options' hosts that answers."""
        return await first_host(options, cls.greet)

    @classmethod
    async def greet(cls, options: Options, turn: int = 0) -> Self:
        """Log in to one host, read its server variables, and announce the replica. Raises what ``Session`` raises."""
        session = await Session.open(options, turn)
        try:
            source = await ask(session)
            source.check()
            return cls(session, source, await introduce(session, source, options))
        except BaseException:
            session.abort()
            raise

    def scan(self) -> LogScan:
        """A scan that finds places in this source's log."""
        return LogScan(self.session.options, self.source)


class Dump:
    """The raw log of one source from one place on. ``start`` asks for the log; ``take`` returns the events that have
    arrived, ``wait`` waits for more, ``read`` does both.

    The dump begins at ``start_point``; ``is_by_gtid`` says whether by GTID set, ``goes_on_by_gtid`` whether the next
    one begins so on another server. ``has_checksums`` holds until the first format description. ``is_known``: an
    event is known to begin at the start point. ``has_begun``: events have come.
    """

    def __init__(self, greeted: Greeted, start: StartPoint, *, is_known: bool) -> None:
        """``is_known``: events were read up to ``start`` before, so an event begins there."""
        self.session = greeted.session
        self.source = greeted.source
        self.has_checksums = greeted.has_checksums
        self.start_point = start
        self.is_by_gtid = start.by_gtid
        self.goes_on_by_gtid = start.by_gtid or start.stands_for_gtids
        self.is_known = is_known or start.by_gtid or start.position <= FIRST_POSITION
        self._options = options = greeted.session.options
        self.has_begun = False
        # Acknowledged with the first events: from then on the source reads acknowledgements.
        self._overdue: tuple[str, int] | None = None
        self._is_asked_for = False
        self._silence = options.heartbeat * _SILENT_PERIODS or None
        self._silent_since: float | None = None
        self._bytes_then = 0
        self._is_woken = False
        self._was_writing = False
        # When to look for an older dump that holds this one up; None: never, or events have come.
        self._held_up_at: float | None = None
        self._patience = _HELD_UP_SECONDS

    async def start(self, overdue: tuple[str, int] | None = None) -> None:
        """Register as a replica and ask for the log.

        ``overdue`` is a place that is done, and that a semi-synchronous source may not have heard of.
        """
        self._overdue = overdue
        await identify(self.session, self.source, self._options)
        self._is_asked_for = True
        await begin_dump(self.start_point, self.session, self.source, self._options.server_id)
        if self.source.is_mariadb:
            if self._silence is not None:
                self._patience = min(self._patience, self._silence / 2)
            self._held_up_at = asyncio.get_running_loop().time() + self._patience

    def take(self, bulk_size: int = BULK_SIZE) -> list[bytes]:
        """The next whole raw events that have come, about ``bulk_size`` bytes; empty until more come, see ``wait``.

        Raises ``ServerError`` if the source refuses to go on, and ``ProtocolError``.
        """
        if not self._is_asked_for:
            # The stream was closed while it connected.
            return []
        events = self.session.next_events(bulk_size)
        if events:
            self._silent_since = self._held_up_at = None
            self.has_begun = True
            self._was_writing = False
            if self._overdue is not None:
                self.session.acknowledge_unasked(*self._overdue)
                self._overdue = None
        return events

    async def read(self, limit: float | None) -> list[bytes] | None:
        """What ``take`` returns; if that is empty, do ``wait`` and return None."""
        events = self.take()
        if events:
            return events
        await self.wait(limit)
        return None

    async def wait(self, limit: float | None) -> None:
        """Wait up to ``limit`` seconds for bytes, when ``take`` has returned no events.

        Raises ``ConnectionLostError`` if the dump has ended, and ``SourceSilentError`` after 2.5 heartbeat periods
        without a sign of life, counted over all calls since the last event.
        """
        if self.session.dump_ended:
            raise await self._ended()
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._note_life(now)
        left = self._seconds_left(now)
        held_up = None if self._held_up_at is None else self._held_up_at - now
        limits = [seconds for seconds in (limit, left, held_up) if seconds is not None]
        if await self.session.wait(max(_AT_HAND, min(limits)) if limits else None):
            if self.session.bytes_received - self._bytes_then >= SIGN_OF_LIFE:
                self._silent_since = None
        elif self._is_woken:
            self._is_woken = False
        elif held_up is not None and held_up <= min(limits):
            await self._end_killed_dumps()
        elif left is not None and (limit is None or left <= limit):
            await self._check_life()

    def decode_first(self, decoder: EventDecoder, raw: bytes) -> Event | None:
        """Decode one of the first events. An event of the log proves the start point: then it ``is_known``.

        From a position in the middle of an event, a source may send bytes that look like an event:
        ``PositionInsideEventError``.
        """
        file, position = decoder.file, decoder.position
        try:
            event = decoder.decode(raw)
        except MissingTableMapError as error:
            raise PositionInsideEventError(
                CANNOT_READ_BINLOG,
                "HY000",
                f"{file}:{position} is inside a statement: {error.reason}",
                "start where its transaction begins (SHOW BINLOG EVENTS lists the places); its rows before this "
                "place come again",
            ) from error
        except DecodeError as error:
            raise _not_an_event(file, position, error.reason) from error
        header = EventHeader._make(unpack_event_header(raw))
        if header.type in _BEFORE_FIRST or header.flags & EventFlag.ARTIFICIAL:
            return event
        if header.next_position not in (0, (position + header.size) & 0xFFFFFFFF):
            raise _not_an_event(file, position, f"its header says that it ends at {header.next_position}")
        self.is_known = True
        return event

    def check_place(
        self, raw: bytes, decoder: EventDecoder, progress: Progress, *, is_open: bool = False
    ) -> None:
        """Raise ``DecodeError`` if the source has left out events before this one, or sends events again.

        A dump by GTIDs leaves out whole transactions that are known: there may be a gap where none is open
        (``is_open``: one is that ``progress`` has not come to). A dump by position leaves out nothing, except behind
        a format description what tells how the file is encrypted. Of a damaged event ``decoder`` says more, and
        before ``is_known`` ``decode_first``.
        """
        if len(raw) < EVENT_HEADER_SIZE or not self.is_known:
            return
        _, kind, _, size, end, flags = unpack_event_header(raw)
        position = decoder.position
        if end in (0, position + size & POSITION_MASK) or flags & ARTIFICIAL or kind in HEARTBEATS:
            return
        is_damaged = size != len(raw) or (decoder.checksum_enabled and not crc32_matches(raw))
        is_between = not (is_open or progress.in_transaction)
        may_skip = is_between and (self.is_by_gtid or is_behind_description(decoder, position))
        if not is_damaged and (not may_skip or _has(progress.gtid_set, raw)):
            raise DecodeError(
                f"the source sends an event of {size} bytes that ends at {end}: events are missing, or come again",
                decoder.file,
                position,
            )

    def wake(self) -> None:
        """Let a pending ``wait`` return before its limit."""
        self._is_woken = True
        self.session.wake()

    def _note_life(self, now: float) -> None:
        self._silent_since, self._bytes_then = now, self.session.bytes_received

    def _seconds_left(self, now: float) -> float | None:
        if self._silence is None or self._silent_since is None:
            return None
        return self._silent_since + self._silence - now

    async def _end_killed_dumps(self) -> None:
        try:
            await end_killed_dumps(self._options)
        except ReplicaError:
            # The second connection was refused or broke; this one may be alive.
            _LOGGER.debug("looking for killed dumps failed", exc_info=True)
        else:
            self._patience *= 2
        self._held_up_at = asyncio.get_running_loop().time() + self._patience

    async def _check_life(self) -> None:
        """Nothing has come for too long. By GTIDs, a source that searches its log has nothing to send yet.

        One that writes may have ended its search just now, and is looked at a second time.
        """
        silence = self._silence or 0
        try:
            activity = await self.session.activity() if self.is_by_gtid else "none"
        except ReplicaError as error:
            raise self.session.silent(silence) from error
        if activity == "none" or (activity == "writing" and self._was_writing):
            raise self.session.silent(silence)
        self._silent_since = None
        self._was_writing = activity == "writing"
        if self._was_writing:
            self._note_life(asyncio.get_running_loop().time() - silence + min(_AGAIN_SECONDS, silence))

    async def _ended(self) -> ReplicaError:
        twin = await find_twin(self.source, self._options)
        return twin or ConnectionLostError(f"{self._options.address} ended the binlog dump")


def _has(known: AnyGtidSet | None, raw: bytes) -> bool:
    """Whether a raw event begins a transaction of MySQL that is known. MariaDB may log a GTID again."""
    if raw[EVENT_TYPE_OFFSET] != EventType.GTID or not isinstance(known, GtidSet):
        return False
    body = raw[EVENT_HEADER_SIZE + 1 : EVENT_HEADER_SIZE + 25]
    return len(body) == 24 and new_gtid(body[:16], int.from_bytes(body[16:], "little")) in known


def is_internal(event: Event) -> bool:
    """Whether the source made the event for this connection, as what tells in mid-file how to read the file."""
    header = event.header
    if header.flags & ARTIFICIAL or isinstance(event, HeartbeatEvent):
        return True
    return isinstance(event, FormatDescriptionEvent | StartEncryptionEvent) and not header.next_position


def check_rotate(event: RotateEvent) -> None:
    """Raise an error if an artificial ROTATE behind the first of a dump leads back, or to another place of its file.

    Not for one of the log, which may name any file: one that was renamed ends with the old name of the next one.
    """
    if is_older(event.next_file, event.file):
        raise SourceChangedError(f"the source goes back from {event.file} to {event.next_file}")
    if event.next_file == event.file:
        check_place_of(event, event.position)


def check_place_of(event: RotateEvent, due: int) -> None:
    """Raise ``DecodeError`` if a ROTATE leads to another place of the file than the one that is due."""
    if event.next_position != due:
        raise DecodeError(
            f"the source goes on at {event.next_file}:{event.next_position}: events are missing, or come again",
            event.next_file,
            due,
        )


def is_behind_description(decoder: EventDecoder, position: int) -> bool:
    """Whether the event at this position is the second one of its file."""
    description = decoder.format_description
    return description is not None and position == description.position + description.header.size


def _not_an_event(file: str, position: int, reason: str) -> PositionInsideEventError:
    return PositionInsideEventError(
        CANNOT_READ_BINLOG,
        "HY000",
        f"the data at {file}:{position} is no event: {reason}",
        "start at the end position of an event, or at 4 for the beginning of the file",
    )
