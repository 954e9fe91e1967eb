"""One connection that a source sends its log over: opened, asked for a place, and watched for signs of life.

    Session.next_events -> raw events; the decoder that stands behind them

A stream has one of these at a time. What its events are for, and what to do when it ends, is decided above.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Self

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event, EventHeader
from protocol.constants import EventFlag, EventType
from protocol.errors import ConnectionLostError, DecodeError, PositionInsideEventError, ReplicaError
from protocol.position import FIRST_POSITION
from protocol.records import record
from protocol.rows.counting import row_compiler
from protocol.wire import unpack_event_header

from ..config.options import Options
from ..config.table_filter import table_filter
from .log_scan import LogScan
from .resolve_start import StartPoint, begin_dump
from .server_facts import CANNOT_READ_BINLOG, Source, ask, find_twin, identify, introduce, is_seeking
from .session import Session

_SILENT_PERIODS: Final = 2.5
# So many bytes of an event that is not whole yet are a sign of life, too: it may be large and the network slow.
_SIGN_OF_LIFE: Final = 1 << 16
_BEFORE_FIRST: Final = frozenset(
    {EventType.ROTATE, EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, EventType.HEARTBEAT_V2}
)
# What is at hand arrives within this, whatever the time limit.
_AT_HAND: Final = 0.01


@record(frozen=True, slots=True)
class Greeted:
    """A connection that has logged in and said what it understands; the log is not asked for yet."""

    session: Session
    source: Source
    has_checksums: bool

    @classmethod
    async def open(cls, options: Options) -> Self:
        """Log in, ask the source about itself and introduce the replica. Raises what ``Session`` raises."""
        session = await Session.open(options)
        try:
            source = await ask(session)
            source.check()
            return cls(session, source, await introduce(session, source, options))
        except BaseException:
            session.abort()
            raise

    def scan(self, options: Options) -> LogScan:
        """For finding places in this source's log."""
        return LogScan(options, self.source)


class Dump:
    """The log of one source from one place on. ``start`` asks for it, ``read`` waits for what comes."""

    def __init__(self, greeted: Greeted, options: Options, start: StartPoint, *, is_known: bool) -> None:
        """``is_known``: events have been read up to this place, so that an event begins there."""
        self.session = greeted.session
        self.source = greeted.source
        #: It was asked for by GTID, not by position.
        self.is_by_gtid = self.is_seeking = start.by_gtid
        self.decoder = EventDecoder(
            file=start.file,
            position=start.position,
            mariadb=greeted.source.is_mariadb,
            verify_checksum=options.verify_checksum,
            wants_table=table_filter(options.tables, options.exclude_tables),
            columns=options.columns,
            on_schema_mismatch=options.on_schema_mismatch,
            cells=options.cells,
            row_compiler=row_compiler(options.row_values),
        )
        self.decoder.checksum_enabled = greeted.has_checksums
        self.decode: Callable[[bytes], Event | None] = self.decoder.decode
        if not (is_known or start.by_gtid or start.position <= FIRST_POSITION):
            self.decode = self._decode_first
        self._options = options
        self._start = start
        self._silence = options.heartbeat * _SILENT_PERIODS or None
        self._silent_since: float | None = None
        self._bytes_then = 0

    async def start(self) -> None:
        """Register as a replica and ask for the log."""
        await identify(self.session, self.source, self._options)
        await begin_dump(self._start, self.session, self.source, self._options.server_id)

    async def read(self, limit: float | None) -> list[bytes] | None:
        """What whole raw events are at hand, or have come within ``limit`` seconds; None when there are none.

        Raises ``ConnectionLostError`` when the dump has ended, and ``SourceSilentError`` when there has been no sign
        of life for 2.5 heartbeat periods, counted over all calls since the last event.
        """
        events = self.session.next_events()
        if events:
            self._silent_since = None
            return events
        if self.session.dump_ended:
            raise await self._ended()
        now = asyncio.get_running_loop().time()
        if self._silent_since is None:
            self._note_life(now)
        left = self._seconds_left(now)
        limits = [seconds for seconds in (limit, left) if seconds is not None]
        if await self.session.wait(max(_AT_HAND, min(limits)) if limits else None):
            if self.session.bytes_received - self._bytes_then >= _SIGN_OF_LIFE:
                self._silent_since = None
        elif left is not None and (limit is None or left <= limit):
            await self._check_life()
        return None

    def _note_life(self, now: float) -> None:
        self._silent_since, self._bytes_then = now, self.session.bytes_received

    def _seconds_left(self, now: float) -> float | None:
        if self._silence is None or self._silent_since is None:
            return None
        return self._silent_since + self._silence - now

    async def _check_life(self) -> None:
        """Nothing has come for too long: a source that still seeks the first transaction has nothing to send yet."""
        silence = self._silence or 0
        try:
            is_alive = self.is_seeking and await is_seeking(
                self.source, self._options, self.session.connection_id
            )
        except ReplicaError as error:
            raise self.session.silent(silence) from error
        if not is_alive:
            raise self.session.silent(silence)
        self._silent_since = None

    async def _ended(self) -> ReplicaError:
        twin = await find_twin(self.source, self._options)
        return twin or ConnectionLostError(f"{self._options.address} ended the binlog dump")

    def _decode_first(self, raw: bytes) -> Event | None:
        """The first event from a position: in the middle of an event a source may send what looks like one."""
        position = self.decoder.position
        try:
            event = self.decoder.decode(raw)
        except DecodeError as error:
            raise self._not_an_event(position, error.reason) from error
        header = EventHeader._make(unpack_event_header(raw))
        if header.type in _BEFORE_FIRST or header.flags & EventFlag.ARTIFICIAL:
            return event
        if header.next_position not in (0, (position + header.size) & 0xFFFFFFFF):
            raise self._not_an_event(position, f"it says that it ends at {header.next_position}")
        self.decode = self.decoder.decode
        return event

    def _not_an_event(self, position: int, reason: str) -> PositionInsideEventError:
        return PositionInsideEventError(
            CANNOT_READ_BINLOG,
            "HY000",
            f"what stands at {self.decoder.file}:{position} is no event: {reason}",
            "start at the end position of an event, or at 4 for the beginning of the file",
        )
