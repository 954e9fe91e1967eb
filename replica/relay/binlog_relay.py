"""BinlogRelay: follows a source and writes its log into a directory, through lost connections and restarts.

The connection is that of a stream, without a decoder behind it. What a source sends in between, which no file of its
own holds, is left out: it is told by its flags and by having no place in the log.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Final

from protocol.binlog.checksum import CRC32_ALGORITHM, algorithm_of
from protocol.constants import CHECKSUM_SIZE, EVENT_HEADER_SIZE, DumpFlag, EventFlag, EventType
from protocol.errors import ConfigurationError, ReplicaError, SourceChangedError, SourceConfigurationError
from protocol.position import FIRST_POSITION, BinlogPosition
from protocol.wire import Reader, unpack_event_header, utf8_text

from ..config.options import Options
from ..source.dump import Dump, Greeted
from ..source.resolve_start import StartPoint
from ..source.retry import Retry
from ..source.server_facts import Source, ask, introduce, log_files
from ..source.session import Session
from .folder import RelayFolder

_LOGGER: Final = logging.getLogger(__name__)

# Not of the log, or of it and more than an event.
_SPECIAL: Final = frozenset(
    {
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.FORMAT_DESCRIPTION,
        EventType.MARIADB_START_ENCRYPTION,
    }
)
_FLAGS_OFFSET: Final = 17
# A plain number: `&` with a member of an IntFlag takes 540 ns instead of 9.
_ARTIFICIAL: Final = int(EventFlag.ARTIFICIAL)
_ALL: Final = ("*",)
# When nothing has come for so many seconds, what was written is made to last.
_IDLE: Final = 0.05


class BinlogRelay:
    """Copies a source's log into a directory.

        relay = BinlogRelay("mysql://repl:secret@127.0.0.1", "/var/lib/relay")
        await relay.run()

    ``dsn`` and ``given`` are those of ``replica.connect``. ``start`` says what an empty directory begins with:
    ``"earliest"`` (default), ``"now"`` for the newest file, or the beginning of a file. Later it goes on as it was.
    What has come is written at once; after ``sync_interval`` seconds, or when nothing comes, the disk is made to keep
    it. With ``once`` it ends where the log ends.

    ``run`` returns when it is done or closed. The first connection is tried once; later, what may pass is tried again
    as the options' ``reconnect`` says. What cannot pass is raised: what ``BinlogStream`` raises,
    ``SourceChangedError`` where the source's log is not the one that is here, ``OSError`` for a disk that is full.
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
        self._options.check_one_host("a relay's files are those of one server")
        start = self._options.start
        if start not in ("earliest", "now") and not (
            isinstance(start, BinlogPosition) and start.position == FIRST_POSITION
        ):
            raise ConfigurationError(
                f"start: a relay begins with a whole file: earliest, now or FILE:{FIRST_POSITION}, not {start}"
            )
        if self._options.semi_sync:
            raise ConfigurationError("semi_sync: a relay acknowledges nothing: leave it out")
        options = self._options
        if options.stop is not None or options.exclude_tables or options.tables != _ALL:
            raise ConfigurationError("stop, tables: a relay copies all of the log; with once, up to its end")
        self._directory = directory
        self._sync_interval = sync_interval
        self._once = once
        self._folder: RelayFolder | None = None
        self._session: Session | None = None
        self._opening: asyncio.Task[Session] | None = None
        self._closing = asyncio.Event()
        self._retry = Retry(options.reconnect, self._closing, _LOGGER)
        self._has_begun = False
        self._synced_at = 0.0

    def __repr__(self) -> str:
        return f"<BinlogRelay of {self._options.address}>"

    @property
    def address(self) -> str:
        """Where the source is, for messages."""
        return self._options.address

    @property
    def position(self) -> BinlogPosition | None:
        """The place behind the last event that is here; None before the first one."""
        folder = self._folder
        return BinlogPosition(folder.file, folder.end) if folder is not None and folder.file else None

    async def run(self) -> None:
        """Copy, until the end of the log (with ``once``) or until it is closed."""
        with RelayFolder(self._directory) as self._folder:
            while not self._closing.is_set():
                try:
                    await self._follow(self._folder)
                    return
                except ReplicaError as error:
                    if self._closing.is_set():
                        return
                    if not self._has_begun:
                        raise
                    self._retry.lost(error)
                    await self._retry.wait()

    async def aclose(self) -> None:
        """End it, from another task."""
        self._closing.set()
        if self._opening is not None:
            self._opening.cancel()
        if self._session is not None:
            self._session.abort()

    # One connection

    async def _follow(self, folder: RelayFolder) -> None:
        """Copy over one connection; returns at the log's end with ``once``, or when it is closed."""
        session = await self._open()
        if session is None:
            return
        self._session = session
        self._has_begun = True
        try:
            source = await ask(session)
            _check(source, folder)
            has_checksums = await introduce(session, source, self._options)
            folder.step_back()
            start = await self._start(folder, session)
            dump = Dump(Greeted(session, source, has_checksums), start, is_known=True)
            copy = _Copy(folder, has_checksums)
            if self._once:
                await self._copy_once(dump, start, source, copy)
            else:
                await dump.start()
                await self._copy(dump, copy)
        finally:
            self._session = None
            await session.aclose()

    async def _open(self) -> Session | None:
        """Connect; None when it is closed meanwhile: a source that says nothing is not waited for."""
        self._opening = asyncio.create_task(Session.open(self._options))
        try:
            return await self._opening
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return None
        finally:
            self._opening = None

    async def _start(self, folder: RelayFolder, session: Session) -> StartPoint:
        if folder.file:
            return StartPoint(folder.file, folder.position)
        if isinstance(self._options.start, BinlogPosition):
            return StartPoint(self._options.start.file, FIRST_POSITION)
        if self._options.start == "earliest":
            return StartPoint()
        names = await log_files(session)
        if not names:
            raise ConfigurationError(
                "start: the user may not ask which file is the newest one (GRANT REPLICATION CLIENT, on MariaDB "
                "BINLOG MONITOR): name it as FILE:4"
            )
        return StartPoint(names[-1], FIRST_POSITION)

    async def _copy(self, dump: Dump, copy: "_Copy") -> None:
        while not self._closing.is_set():
            events = await dump.read(_IDLE if copy.folder.is_unsynced else None)
            self._take(copy, events or [])
            await self._sync(copy.folder, is_idle=events is None)

    async def _copy_once(self, dump: Dump, start: StartPoint, source: Source, copy: "_Copy") -> None:
        """To the end of the log, as a client that does not wait."""
        dump.session.start_dump(start.file, start.position, 0, source.dump_flags | DumpFlag.NON_BLOCK)
        while events := await dump.session.read_events(self._options.connect_timeout):
            self._take(copy, events)
            await self._sync(copy.folder, is_idle=False)

    def _take(self, copy: "_Copy", events: list[bytes]) -> None:
        copy.take(events)
        if copy.folder.write():
            self._retry.forget()

    async def _sync(self, folder: RelayFolder, *, is_idle: bool) -> None:
        now = asyncio.get_running_loop().time()
        if folder.is_unsynced and (is_idle or now - self._synced_at >= self._sync_interval):
            self._synced_at = now
            await asyncio.to_thread(folder.sync)


def _check(source: Source, folder: RelayFolder) -> None:
    """Whether the source has a log at all, and whether it is the one that is here."""
    if not source.log_bin:
        source.check()
    known = folder.server_uuid
    if known is None and source.server_uuid is not None:
        if folder.file:
            raise SourceChangedError(
                f"{folder.path} has the log of another source: give the relay another directory"
            )
        folder.keep_server_uuid(source.server_uuid)
    elif known != source.server_uuid:
        raise SourceChangedError(
            f"{folder.path} has the log of server {known}, this is {source.server_uuid}: give the relay another "
            "directory"
        )


class _Copy:
    """Tells the log's own events from what a source says in between, for one connection."""

    def __init__(self, folder: RelayFolder, has_checksums: bool) -> None:
        self.folder = folder
        self._has_checksums = has_checksums

    def take(self, events: Sequence[bytes]) -> None:
        """The next raw events that have come."""
        own: list[bytes] = []
        for raw in events:
            if raw[4] in _SPECIAL or raw[_FLAGS_OFFSET] & _ARTIFICIAL:
                self.folder.append(own)
                own.clear()
                self._take_special(raw)
            else:
                own.append(raw)
        self.folder.append(own)

    def _take_special(self, raw: bytes) -> None:
        _, kind, _, _, next_position, flags = unpack_event_header(raw)
        if kind == EventType.FORMAT_DESCRIPTION:
            self._has_checksums = algorithm_of(raw) == CRC32_ALGORITHM
            # Without its position it is repeated, for a dump from the middle of a file on.
            if next_position:
                self.folder.begin_events(raw)
        elif kind == EventType.MARIADB_START_ENCRYPTION:
            raise SourceConfigurationError(
                "the source encrypts its binary log, and what it sends cannot be made the same file again: relay a "
                "source without encrypt_binlog"
            )
        elif kind == EventType.ROTATE and flags & _ARTIFICIAL:
            self._rotate(raw)

    def _rotate(self, raw: bytes) -> None:
        body = Reader(raw, EVENT_HEADER_SIZE, len(raw) - CHECKSUM_SIZE * self._has_checksums)
        position = body.uint(8)
        self.folder.enter(utf8_text(body.rest()), position)
