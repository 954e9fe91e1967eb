"""BinlogRelay: follows a source and writes its log into a directory, through lost connections and restarts.

It uses the same connection as a stream. Only statements are decoded, for the schema history (``relay_schemas``).
Events that the source makes for the connection only, and that its own files do not hold, are left out. Their flags,
or a missing position, identify them.
"""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from protocol.binlog.checksum import CRC32_ALGORITHM, algorithm_of, crc32_matches, is_damaged_description
from protocol.binlog.damage import wrong_checksum
from protocol.constants import (
    ARTIFICIAL,
    CHECKSUM_SIZE,
    EVENT_FLAGS_OFFSET,
    EVENT_HEADER_SIZE,
    HEARTBEATS,
    DumpFlag,
    EventType,
)
from protocol.errors import (
    ConfigurationError,
    PositionInsideEventError,
    PositionPastEndError,
    ReplicaError,
    SourceChangedError,
    SourceConfigurationError,
    TruncatedError,
)
from protocol.position import FIRST_POSITION, BinlogPosition
from protocol.wire import Reader, unpack_event_header, utf8_text

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.status import moment
from ..config.steady_time import steady_time
from ..source.dump import Dump, Greeted
from ..source.resolve_start import StartPoint
from ..source.retry import Retry
from ..source.server_facts import Source, ask, introduce, log_files
from ..source.session import Session
from .folder import RelayFolder
from .relay_schemas import STATEMENTS, RelaySchemas
from .relay_status import RelayState, RelayStatus

_LOGGER: Final = logging.getLogger(__name__)

# Events that are not copied, or that need more than copying.
_SPECIAL: Final = frozenset(
    {
        *HEARTBEATS,
        EventType.FORMAT_DESCRIPTION,
        EventType.MARIADB_START_ENCRYPTION,
    }
)
_ALL: Final = ("*",)
# How statements end that only frame transactions; the others may change tables.
_FRAME: Final = (b"\0BEGIN", b"\0COMMIT", b"\0ROLLBACK")
# After this many seconds without an event, written data is synced to disk.
_IDLE: Final = 0.05


class BinlogRelay:
    """Copies a source's log into a directory.

        relay = BinlogRelay("mysql://repl:secret@127.0.0.1", "/var/lib/relay")
        await relay.run()

    ``dsn`` and ``given`` are the arguments of ``replica.connect``. ``start`` says where an empty directory begins:
    ``"earliest"`` (default), ``"now"`` for the newest file, or the beginning of a file. Later runs continue the last
    file. Events are written at once, and synced to disk after ``sync_interval`` seconds or when no events come. With
    ``once`` the relay ends at the end of the log.

    Beside the files it keeps ``relay.schemas``, the columns of all tables at each place: they are read from
    information_schema when the relay first connects (the user needs SELECT), and follow the DDL that it copies.

    ``run`` returns when the relay is done or closed. The first connection is tried once. Later, temporary failures
    are retried as the option ``reconnect`` says. Other failures are raised: what ``BinlogStream`` raises,
    ``SourceChangedError`` if the directory holds another source's log, ``OSError`` for example for a full disk.
    """

    def __init__(
        self,
        dsn: str | None,
        directory: str | os.PathLike[str],
        *,
        sync_interval: float = 1.0,
        once: bool = False,
        **given: object,
    ) -> None:
        self._options = Options.build(dsn, {"start": "earliest"} | given)
        self._options.check_one_host("a relay copies the files of one server")
        start = self._options.start
        if start not in ("earliest", "now") and not (
            isinstance(start, BinlogPosition) and start.position == FIRST_POSITION
        ):
            raise ConfigurationError(
                f"start: a relay begins with a whole file: earliest, now or FILE:{FIRST_POSITION}, not {start}"
            )
        if self._options.semi_sync:
            raise ConfigurationError("semi_sync: a relay sends no acknowledgements: leave semi_sync out")
        options = self._options
        if options.stop is not None or options.exclude_tables or options.tables != _ALL:
            raise ConfigurationError(
                "stop, tables: a relay copies the whole log (with once, up to its end): leave them out"
            )
        # Of "not a number" nothing is ever due.
        if not (isinstance(sync_interval, int | float) and sync_interval >= 0):
            raise ConfigurationError(f"sync_interval: a number of seconds from 0 on, not {sync_interval!r}")
        self._directory = directory
        self._sync_interval = sync_interval
        self._once = once
        self._folder: RelayFolder | None = None
        self._schemas = RelaySchemas(options, os.fspath(directory))
        self._session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._closing = asyncio.Event()
        self._retry = Retry(options, self._closing, _LOGGER)
        self._connections = 0
        self._synced_at = 0.0
        self._state: RelayState = "new"
        self._clock_lead = self._received_at = self._saved_at = 0.0
        # The time that the source gave the last copied event; None while the source has nothing more to send.
        self._newest: int | None = None
        self._events = self._bytes_before = 0
        self._may_be_torn = False

    def __repr__(self) -> str:
        return f"<BinlogRelay of {self._options.address}>"

    @property
    def address(self) -> str:
        """The address of the source, for messages."""
        return self._options.address

    @property
    def position(self) -> BinlogPosition | None:
        """The place after the last copied event; None before the first event."""
        folder = self._folder
        return BinlogPosition(folder.file, folder.end) if folder is not None and folder.file else None

    @property
    def status(self) -> RelayStatus:
        """The status of the relay now."""
        behind = 0.0 if self._events else None
        if self._newest is not None:
            behind = max(steady_time() + self._clock_lead - self._newest, 0.0)
        session = self._session
        return RelayStatus(
            state=self._state,
            address=self.address,
            position=self.position,
            seconds_behind=behind,
            last_event=moment(self._received_at),
            last_sync=moment(self._saved_at),
            bytes=self._bytes_before + (0 if session is None else session.bytes_received),
            events=self._events,
            reconnects=max(self._connections - 1, 0),
        )

    async def run(self) -> None:
        """Copy until the end of the log (with ``once``), or until the relay is closed."""
        with RelayFolder(self._directory) as self._folder:
            while not self._closing.is_set():
                try:
                    await self._follow(self._folder)
                    return
                except ReplicaError as error:
                    if self._closing.is_set():
                        return
                    if not self._connections:
                        raise
                    self._state = "waiting"
                    self._lost(error, self._folder)
                    self._may_be_torn = isinstance(error, PositionInsideEventError)
                    await self._retry.wait()
                finally:
                    if self._closing.is_set():
                        self._state = "closed"

    async def aclose(self) -> None:
        """End the relay, from another task."""
        self._closing.set()
        if self._opening is not None:
            self._opening.cancel()
        if self._session is not None:
            self._session.abort()

    def _lost(self, error: ReplicaError, folder: RelayFolder) -> None:
        """Note a failed connection. Raises an error that trying again does not help."""
        try:
            self._retry.lost(error)
        except (PositionPastEndError, PositionInsideEventError) as final:
            if not folder.file:
                raise
            raise folder.shortened(final.message) from final

    # One connection

    async def _follow(self, folder: RelayFolder) -> None:
        """Copy over one connection. Returns at the end of the log with ``once``, or when the relay is closed."""
        self._state = "connecting"
        session = await self._open()
        if session is None:
            return
        self._session = session
        self._connections += 1
        try:
            source = await ask(session)
            _check(source, folder)
            self._warn_of_statements(source)
            self._clock_lead = source.clock_lead
            has_checksums = await introduce(session, source, self._options)
            folder.step_back()
            greeted = Greeted(session, source, has_checksums)
            start = await self._start(folder, greeted)
            schemas = self._schemas
            place = BinlogPosition(folder.file, folder.position) if folder.file else None
            await schemas.open(session, source, place)
            dump = Dump(greeted, start, is_known=True)
            copy = _Copy(folder, schemas, has_checksums)
            self._state = "streaming"
            if self._once:
                await self._copy_once(dump, start, source, copy)
            else:
                await dump.start()
                await self._copy(dump, source, copy)
        finally:
            self._bytes_before += session.bytes_received
            self._session = None
            await self._schemas.close()
            await session.aclose()

    def _warn_of_statements(self, source: Source) -> None:
        """Warn if the source logs statements: the copy is right, but readers of its rows will miss changes."""
        if source.binlog_format == "ROW" or source.binlog_format in self._options.warned:
            return
        self._options.warned.add(source.binlog_format)
        _LOGGER.warning(
            "binlog_format is %s: the source logs statements, not rows, and readers of these files will miss their "
            "changes -- SET GLOBAL binlog_format = ROW on the source, and reconnect its sessions",
            source.binlog_format,
            extra=log_facts("statements-logged", source=self.address, binlog_format=source.binlog_format),
        )

    async def _open(self) -> Session | None:
        """Connect; None if the relay is closed meanwhile, also while the source does not answer."""
        opening = self._opening = asyncio.create_task(Session.open(self._options))
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not (opening.cancelled() or opening.exception()):
                # The connection was open already, and nothing else would close it.
                opening.result().abort()
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return None
        finally:
            self._opening = None

    async def _start(self, folder: RelayFolder, greeted: Greeted) -> StartPoint:
        session = greeted.session
        if folder.file:
            next_file = None
            if self._may_be_torn:
                next_file = await greeted.scan().file_behind_torn_event(folder.file, folder.end)
            if next_file:
                # What is in front of the torn event was compared before.
                folder.position = folder.end
            return StartPoint(next_file or folder.file, FIRST_POSITION if next_file else folder.position)
        if isinstance(self._options.start, BinlogPosition):
            return StartPoint(self._options.start.file, FIRST_POSITION)
        if self._options.start == "earliest":
            return StartPoint()
        names = await log_files(session)
        if not names:
            raise ConfigurationError(
                "start: the user lacks the privilege to list the binlog files (GRANT REPLICATION CLIENT, on MariaDB "
                "BINLOG MONITOR): grant it, or give the newest file as FILE:4"
            )
        return StartPoint(names[-1], FIRST_POSITION)

    async def _copy(self, dump: Dump, source: Source, copy: "_Copy") -> None:
        while not self._closing.is_set():
            received = dump.session.bytes_received
            events = await dump.read(_IDLE if copy.folder.is_unsynced else None)
            if events is None and dump.session.bytes_received == received:
                self._newest = None
            self._take(copy, events or [])
            await self._sync(copy.folder, is_idle=events is None)
            if events is None:
                copy.schemas.learn(dump.session, source)

    async def _copy_once(self, dump: Dump, start: StartPoint, source: Source, copy: "_Copy") -> None:
        """Copy to the end of the log with a dump that does not wait for new events."""
        dump.session.start_dump(start.file, start.position, 0, source.dump_flags | DumpFlag.NON_BLOCK)
        while events := await dump.session.read_events(self._options.connect_timeout):
            self._take(copy, events)
            await self._sync(copy.folder, is_idle=False)
        copy.folder.check_end()
        await copy.schemas.learn_now(dump.session, source)

    def _take(self, copy: "_Copy", events: list[bytes]) -> None:
        before = copy.events
        copy.take(events)
        copy.schemas.save()
        if copy.events > before:
            self._events += copy.events - before
            self._received_at = time.time()
            self._newest = copy.newest
        if copy.folder.write():
            self._retry.forget()

    async def _sync(self, folder: RelayFolder, *, is_idle: bool) -> None:
        now = asyncio.get_running_loop().time()
        if folder.is_unsynced and (is_idle or now - self._synced_at >= self._sync_interval):
            self._synced_at = now
            await asyncio.to_thread(folder.sync)
            self._saved_at = time.time()


def _check(source: Source, folder: RelayFolder) -> None:
    """Check that the source writes a binary log, and that the directory holds the log of this source."""
    if not source.log_bin:
        source.check()
    known, uuid = folder.server_uuid, None if source.is_mariadb else source.server_uuid
    if known is None and uuid is not None:
        if folder.file:
            raise SourceChangedError(
                f"{folder.path} has the log of another source: give the relay another directory"
            )
        folder.keep_server_uuid(uuid)
    elif known != uuid:
        raise SourceChangedError(
            f"{folder.path} has the log of server {known}, but the source is {uuid}: give the relay "
            "another directory"
        )


class _Copy:
    """Separates events of the log from events made for the connection only, for one connection."""

    def __init__(self, folder: RelayFolder, schemas: RelaySchemas, has_checksums: bool) -> None:
        self.folder = folder
        self.schemas = schemas
        self._has_checksums = has_checksums
        #: The number of events of the log, and the time that the source gave the last one.
        self.events = self.newest = 0

    def take(self, events: Sequence[bytes]) -> None:
        """Take the next raw events."""
        own: list[bytes] = []
        for raw in events:
            if len(raw) < EVENT_HEADER_SIZE:
                raise TruncatedError(f"the source sends an event of {len(raw)} bytes", self.folder.file)
            if raw[4] in _SPECIAL or raw[EVENT_FLAGS_OFFSET] & ARTIFICIAL:
                self._append(own)
                own.clear()
                self._take_special(raw)
            elif raw[4] in STATEMENTS and not raw.endswith(
                _FRAME, 0, -CHECKSUM_SIZE if self._has_checksums else len(raw)
            ):
                self._append(own)
                own.clear()
                self.schemas.follow(raw, self.folder.position)
                own.append(raw)
            else:
                own.append(raw)
        self._append(own)

    def _append(self, own: list[bytes]) -> None:
        self.folder.append(own)
        if own:
            self.events += len(own)
            self.newest = int.from_bytes(own[-1][:4], "little")

    def _take_special(self, raw: bytes) -> None:
        _, kind, _, _, next_position, flags = unpack_event_header(raw)
        # An event of the log that the network has damaged may look like an event that is left out.
        if kind == EventType.FORMAT_DESCRIPTION:
            algorithm = algorithm_of(raw)
            is_damaged = is_damaged_description(raw, algorithm, is_repeated=not next_position)
        else:
            is_damaged = self._has_checksums and not crc32_matches(raw)
        if is_damaged:
            raise wrong_checksum(raw, self.folder.file, self.folder.position)
        if kind == EventType.FORMAT_DESCRIPTION:
            self._has_checksums = algorithm == CRC32_ALGORITHM
            self.schemas.describe(raw)
            # Without a position it is a repetition, for a dump that begins in the middle of a file.
            if next_position:
                self.folder.begin_events(raw)
        elif kind == EventType.MARIADB_START_ENCRYPTION:
            raise SourceConfigurationError(
                "the source encrypts its binary log, and a relay cannot make the same encrypted files: use a source "
                "without encrypt_binlog"
            )
        elif kind == EventType.ROTATE and flags & ARTIFICIAL:
            self._rotate(raw)

    def _rotate(self, raw: bytes) -> None:
        body = Reader(raw, EVENT_HEADER_SIZE, len(raw) - CHECKSUM_SIZE * self._has_checksums)
        position = body.uint(8)
        file = utf8_text(body.rest())
        # Entering a file writes the events before it.
        self.schemas.save()
        self.folder.enter(file, position)
        self.schemas.enter(file, position)
