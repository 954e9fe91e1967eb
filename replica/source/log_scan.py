"""Finds places in a source's log by reading the log, if the user lacks the privilege to ask or no statement answers.

Each search is a dump that ends at the end of the log (server id 0 and the flag NON_BLOCK, as in ``mysqlbinlog``). It
has a connection of its own, because a connection can do nothing after a dump. Rows are never decoded.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from protocol.binlog.checksum import crc32_matches
from protocol.binlog.damage import wrong_checksum
from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    BinlogCheckpointEvent,
    Event,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
)
from protocol.constants import (
    EVENT_END_OFFSET,
    EVENT_HEADER_SIZE,
    EVENT_TYPE_OFFSET,
    ROW_CODES,
    DumpFlag,
    EventFlag,
    EventType,
)
from protocol.errors import (
    BinlogNotFoundError,
    ConnectionLostError,
    DecodeError,
    PositionError,
    PositionInsideEventError,
    ProtocolError,
)
from protocol.gtid import AnyGtidSet, GtidSet
from protocol.position import FIRST_POSITION, BinlogPosition, file_with_number, split_file_name

from ..config.options import Options
from ..transactions.boundary import Progress
from .second_connection import beside_the_dump
from .server_facts import Source, introduce
from .session import Session

# A source that claims to have more files than this is no real source: a log of a year with a file each minute has
# half as many.
_MOST_FILES: Final = 1 << 20
# Seconds between two dumps of a log whose end is not sent yet: a sync takes milliseconds.
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.2

_DAMAGE: Final = (ConnectionLostError, DecodeError, ProtocolError)
# Events of MariaDB's log that do not stand inside a transaction, after its first event.
_BETWEEN: Final = (
    MariadbGtidEvent,
    FormatDescriptionEvent,
    RotateEvent,
    StopEvent,
    MariadbGtidListEvent,
    BinlogCheckpointEvent,
    StartEncryptionEvent,
    IncidentEvent,
)

# Gets each event with the file and the position after it; returns True to end the scan.
_Visitor = Callable[[Event, str, int], bool]

_STATEMENTS: Final = frozenset(
    bytes([kind])
    for kind in (
        EventType.FORMAT_DESCRIPTION,
        EventType.ROTATE,
        EventType.QUERY,
        EventType.MARIADB_QUERY_COMPRESSED,
        EventType.GTID,
        EventType.PREVIOUS_GTIDS,
        EventType.MARIADB_GTID,
        EventType.MARIADB_GTID_LIST,
    )
)


class LogScan:
    """Searches the log of one source. Every method raises the errors of a dump, ``ConnectionLostError`` included."""

    def __init__(self, options: Options, source: Source) -> None:
        self._options = options
        self._source = source

    async def files(self) -> list[str]:
        """The names of all files, oldest first.

        Logs are purged from their beginning only, and numbered without gaps. So the newest file is found from the
        oldest one by doubling the step, then by halving it.
        """
        first = await self.first_file()
        base, digits = split_file_name(first)
        if not digits:
            return [first]

        name = partial(file_with_number, base, digits)

        low, step = int(digits), 1
        while await self._exists(name(low + step)):
            low, step = low + step, step * 2
            if step > _MOST_FILES:
                raise ProtocolError(f"the source says that it has more than {_MOST_FILES} binlog files")
        while step > 1:
            step //= 2
            if await self._exists(name(low + step)):
                low += step
        return [name(number) for number in range(int(digits), low + 1)]

    async def created(self, file: str) -> int:
        """The time at which a file was begun, in seconds since 1970 by the source's clock."""
        timestamp = 0

        def visit(event: Event, file: str, position: int) -> bool:
            nonlocal timestamp
            timestamp = event.header.timestamp
            return isinstance(event, FormatDescriptionEvent)

        await self.walk(file, visit)
        return timestamp

    async def end(self, since: BinlogPosition | None = None) -> BinlogPosition:
        """The end of the log now. Reads the newest file, or what has come since it ended at ``since``."""
        end = since or BinlogPosition((await self.files())[-1], FIRST_POSITION)

        def visit(event: Event, file: str, position: int) -> bool:
            nonlocal end
            end = BinlogPosition(file, position)
            return False

        await self.walk(end, visit)
        return end

    async def is_inside(self, place: BinlogPosition) -> bool:
        """Whether a place of MariaDB's log lies inside a transaction: after its first event, and before its end.

        False if no event begins there; then the dump fails with an error of its own. Rows events, which are not
        looked at, are never the last event of a transaction.
        """
        found = False

        def visit(event: Event, file: str, position: int) -> bool:
            nonlocal found
            if event.header.flags & EventFlag.ARTIFICIAL or not event.header.next_position:
                return False
            found = not isinstance(event, _BETWEEN)
            return True

        if place.position > FIRST_POSITION:
            with contextlib.suppress(PositionError):
                try:
                    await self.walk(place, visit)
                except _DAMAGE:
                    # Try again here, as nobody tries again to open a stream: damage by the network would end it.
                    await self.walk(place, visit)
        return found

    async def first_since(self, file: str, second: int) -> BinlogPosition:
        """The start of the first transaction, from the start of ``file`` on, that began in that second or later.

        If there is none, the end of the log.
        """
        progress = Progress(file, FIRST_POSITION, None, self._source.has_gtids)

        def visit(event: Event, file: str, end: int) -> bool:
            if progress.begins(event) and event.header.timestamp >= second:
                return True
            if not event.header.flags & EventFlag.ARTIFICIAL:
                progress.follow(event, file, end)
            return False

        await self.walk(file, visit)
        return BinlogPosition(progress.file, progress.position)

    async def gtids_before(self, position: BinlogPosition) -> AnyGtidSet | None:
        """All transactions of the log before a position. Reads its file up to there."""
        progress = Progress(position.file, FIRST_POSITION, None, self._source.has_gtids)

        def visit(event: Event, file: str, end: int) -> bool:
            if BinlogPosition(file, end) > position:
                return True
            progress.follow(event, file, end)
            return False

        await self.walk(position.file, visit, end=position)
        return progress.gtid_set

    async def _gtids_at_start(self, file: str) -> AnyGtidSet | None:
        """All transactions of the log before a file, as the file itself lists them."""
        progress = Progress(file, FIRST_POSITION, None, self._source.has_gtids)

        def visit(event: Event, file: str, end: int) -> bool:
            progress.follow(event, file, end)
            return progress.gtid_set is not None

        await self.walk(file, visit)
        return progress.gtid_set

    async def first_file(self) -> str:
        """The name of the oldest file."""
        first = ""

        def visit(event: Event, file: str, position: int) -> bool:
            nonlocal first
            first = file
            return isinstance(event, RotateEvent)

        await self.walk("", visit)
        return first

    async def file_before(self, file: str) -> str:
        """The file before this one; the same if the source has none."""
        base, digits = split_file_name(file)
        number = int(digits or 0) - 1
        before = file_with_number(base, digits, number)
        return before if number > 0 and await self._exists(before) else file

    async def _exists(self, file: str) -> bool:
        try:
            await self.walk(file, lambda event, file, position: True)
        except BinlogNotFoundError:
            return False
        return True

    async def statements(
        self, start: BinlogPosition | GtidSet, visit: _Visitor, end: BinlogPosition | None = None
    ) -> None:
        """Pass statements, GTIDs and sets of them to ``visit``, from a place on or all of transactions outside a set.

        Other events are not decoded, which is about as fast as the source sends. Waits for the log up to ``end``.
        """
        await self.walk(start, visit, _STATEMENTS, end)

    async def walk(
        self,
        start: str | BinlogPosition | GtidSet,
        visit: _Visitor,
        kinds: frozenset[bytes] | None = None,
        end: BinlogPosition | None = None,
    ) -> None:
        """Pass every event except rows to ``visit``, from the start of a file or a place to the end of the log.

        ``kinds``: only events of these types, and those that tell the file and the checksums. ``end``: the log up to
        there is waited for, at most ``connect_timeout`` seconds, then ``ProtocolError``. With sync_binlog=1, the
        default, MySQL sends a transaction when it is synced, and says before that the log ends behind it
        (sql/binlog.cc, ``update_binlog_end_pos``).
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._options.connect_timeout
        pause = _FIRST_PAUSE
        while (begin := await self._dump(start, visit, kinds, end)) is not None:
            if isinstance(begin, str):
                start, give_up = begin, loop.time() + self._options.connect_timeout
                continue
            if loop.time() > give_up:
                raise ProtocolError(f"{end} cannot be reached: the source sends its log up to {begin} only")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            start = begin

    async def file_behind_torn_event(self, file: str, end: int) -> str | None:
        """The next file, if a crash has torn the event at ``end``, and no transaction lies behind it in ``file``.

        MariaDB leaves such an event at the end of its file, where each dump by position ends with an error. The next
        file's GTID list proves that nothing is missing: it must have the transactions that end before ``end``, and no
        others. None without that proof. MySQL cuts the event off when it starts again
        (``MYSQL_BIN_LOG::open_binlog`` in sql/binlog.cc).
        """
        base, digits = split_file_name(file)
        if not self._source.is_mariadb or not digits:
            return None
        next_file = file_with_number(base, digits, int(digits) + 1)
        if not await self._exists(next_file):
            return None
        before = await self.gtids_before(BinlogPosition(file, end))
        return next_file if before is not None and before == await self._gtids_at_start(next_file) else None

    async def _dump(
        self,
        start: str | BinlogPosition | GtidSet,
        visit: _Visitor,
        kinds: frozenset[bytes] | None,
        end: BinlogPosition | None,
    ) -> str | BinlogPosition | GtidSet | None:
        """One dump. If it ended before ``end``: where to go on, behind all that was passed to ``visit``.

        If a torn event has ended it: the name of the next file.
        """
        with beside_the_dump():
            session = await Session.open(self._options)
        try:
            decoder = EventDecoder(mariadb=self._source.is_mariadb)
            decoder.checksum_enabled = await introduce(session, self._source, self._options)
            self._request(session, decoder, start)
            # A copy, which grows.
            passed = start | GtidSet() if isinstance(start, GtidSet) else None
            reached = decoder.position
            while events := await session.read_events(self._options.connect_timeout):
                for raw in events:
                    event = _decoded(decoder, raw, kinds)
                    if event is not None and visit(event, decoder.file, decoder.position):
                        return None
                    if passed is not None and isinstance(event, GtidEvent):
                        passed.add(event.gtid)
                    # An event's header has its end modulo 2**32; events that are in no file have none. The end in a
                    # ROTATE is a place in the file before.
                    behind = 0 if raw[4] == EventType.ROTATE else _end_of(raw)
                    reached = reached + (behind - reached) % (1 << 32) if behind else decoder.position
                    if end is not None and decoder.file == end.file and reached == end.position:
                        return None
        except PositionInsideEventError:
            next_file = await self.file_behind_torn_event(decoder.file, reached)
            if next_file is None:
                raise
            return next_file
        finally:
            await session.aclose()
        if end is None or BinlogPosition(decoder.file, reached) >= end:
            return None
        if passed is not None and self._source.version < (5, 7):
            # MySQL 5.6 sends all that it has written, and no heartbeat for transactions that it passes over: of a log
            # whose last ones are in ``start`` the end is not seen. Later versions send one (``Binlog_sender``).
            return None
        return BinlogPosition(decoder.file, decoder.position) if passed is None else passed

    def _request(
        self, session: Session, decoder: EventDecoder, start: str | BinlogPosition | GtidSet
    ) -> None:
        """Ask for the log from ``start`` to its end; tell the decoder where that is, unless GTIDs say it."""
        flags = DumpFlag.NON_BLOCK | self._source.dump_flags
        if isinstance(start, GtidSet):
            session.start_dump_gtid(start.encode(), 0, flags)
            return
        if isinstance(start, BinlogPosition):
            decoder.file, decoder.position = start.file, start.position
        else:
            decoder.file = start
        session.start_dump(decoder.file, decoder.position, 0, flags)


def _decoded(decoder: EventDecoder, raw: bytes, kinds: frozenset[bytes] | None) -> Event | None:
    """The event; None for rows, and for events that are not of these kinds."""
    if len(raw) >= EVENT_HEADER_SIZE:
        if raw[4:5] in ROW_CODES:
            return None
        if kinds is not None and raw[4:5] not in kinds:
            if decoder.checksum_enabled and _was_one_of(raw, kinds):
                raise wrong_checksum(raw)
            return None
    return decoder.decode(raw)


def _end_of(raw: bytes) -> int:
    """The position behind an event, as its header has it: modulo 2**32."""
    return int.from_bytes(raw[EVENT_END_OFFSET : EVENT_END_OFFSET + 4], "little")


def _was_one_of(raw: bytes, kinds: Collection[bytes]) -> bool:
    """Whether an event was of one of these kinds before the network damaged its type.

    Other damage of events that are not decoded is no error here: the log itself may have it, after wanted rows.
    """
    if crc32_matches(raw):
        return False
    return any(crc32_matches(raw[:EVENT_TYPE_OFFSET] + kind + raw[EVENT_TYPE_OFFSET + 1 :]) for kind in kinds)
