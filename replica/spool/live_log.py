"""A live source with blocking calls for Spark's source process. A thread with asyncio reads the log.

    Dump.read -> Follower.feed -> the spool, and the places where a micro-batch may end

The thread begins when the start of the log is known, and reads ahead of Spark until the spool is full. It reconnects
as a stream does: to the same server by position, to another server by GTID set.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import Event
from protocol.conversation.server_errors import CANNOT_READ_BINLOG
from protocol.errors import (
    BinlogNotFoundError,
    CheckpointError,
    ConnectionLostError,
    DecodeError,
    PositionInsideEventError,
    ReplicaError,
    ServerError,
    TransactionsUnavailableError,
)
from protocol.gtid import MariadbGtidSet
from protocol.position import FIRST_POSITION
from protocol.records import replace
from protocol.rows.table import Table

from ..config.options import Options
from ..config.table_filter import table_filter
from ..source.dump import Dump, Greeted
from ..source.resolve_start import StartPoint, is_same_server
from ..source.retry import Retry
from ..source.same_log import take_file
from ..transactions.boundary import Progress
from .follower import Follower
from .live_names import LiveNames
from .offsets import Offset
from .pieces import LogPiece, RowLayouts
from .resume_point import lacks, resume_point
from .row_counter import RowCounter
from .spool import Segment, Spool
from .start_offset import find_offset
from .storage import StoredFile

_LOGGER: Final = logging.getLogger(__name__)
# What else helps if the source has purged events.
_GO_ON: Final = "or set failOnDataLoss=false to go on after the gap"

_T = TypeVar("_T")
_READ_SECONDS: Final = 0.2
# The largest net_write_timeout of MySQL and MariaDB: a year.
_MOST_SECONDS: Final = 31_536_000
# The thread stops reading when the spool holds this many bytes that Spark has not committed.
SPOOL_BYTES: Final = 1 << 30


class LiveLog:
    """The log of one source for one query. Methods may block for seconds, and raise what a stream raises."""

    def __init__(
        self,
        options: Options,
        spool_dir: str,
        *,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        fail_on_data_loss: bool = True,
        on_table: Callable[[Table], None] | None = None,
        spool_bytes: int = SPOOL_BYTES,
        schemas_copy: StoredFile | None = None,
    ) -> None:
        self._options = options
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._fail_on_data_loss = fail_on_data_loss
        self._layouts = RowLayouts()
        self._names = LiveNames(options, spool_dir, on_table, schemas_copy)
        self._is_by_gtid = False
        self._start: Offset | None = None
        self._committed: Offset | None = None
        self._is_awaited = False
        self._spool_dir = spool_dir
        self._spool_bytes = spool_bytes
        self._spool: Spool | None = None
        self._follower: Follower | None = None
        self._error: ReplicaError | None = None
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mysql-binlog", daemon=True)
        self._pump_task: asyncio.Task[None] | None = None
        self.seconds_behind = 0.0

    # Called by Spark's thread.

    def find(self, start: str) -> Offset:
        """The present offset of a start as in ``startingOffsets``: ``latest``, ``earliest``, a time or GTIDs.

        ``snapshot``: a place before which all changes are visible in the tables.
        """
        return self._run(find_offset(self._options, start))

    def end(self) -> Offset:
        """The present end of the log."""
        return self._run(find_offset(self._options, "latest"))

    def follow(self, start: Offset, *, is_new: bool = False) -> None:
        """Read the log from ``start`` on, as far as possible from the spool. Later calls do nothing.

        ``is_new``: the query is new, so the spool's content belongs to another query.
        """
        if self._follower is not None:
            return
        if self._spool is None:
            self._spool = Spool(self._spool_dir)
        follower = self._follower = Follower(
            self._spool,
            start,
            max_rows=self._max_rows,
            max_bytes=self._max_bytes,
            count_rows=None if self._max_rows is None else RowCounter(self._layouts),
            look=self._look,
        )
        self._start = self._committed = start
        self._names.epoch = start.epoch
        if not is_new and self._names.fetch(self._spool.segments) and self._spool.covers(start):
            self._take_up(follower, start)
        else:
            self._spool.clear()
            if is_new:
                self._names.clear()
        self._run(self._start_pump())
        if is_new:
            # Spark logs the start once this returns: from then on the tables at the start must not be lost.
            self._wait(lambda: self._names.is_open, None)

    def take(self, max_rows: int | None, max_bytes: int | None, timeout: float) -> Offset:
        """The end of the next micro-batch; waits up to ``timeout`` seconds. The log up to there is synced to disk.

        Raises the error that ended reading, after everything read before it was taken.
        """
        follower, spool = self._following()
        with self._news:
            self._news.wait_for(lambda: follower.has_news or self._error is not None, timeout)
        if not follower.has_news and self._error is not None:
            raise self._error
        offset = follower.take(max_rows, max_bytes)
        spool.sync()
        return offset

    def wait_until(self, end: Offset, timeout: float | None = None) -> None:
        """Wait until the log has been read up to an offset."""
        follower, _ = self._following()
        self._wait(lambda: follower.boundary.key >= end.key and not follower.is_held, timeout)

    def reach(self, end: Offset) -> Offset:
        """Wait until everything before an offset has been read. Returns the offset up to which to read it."""
        follower, _ = self._following()
        self._wait(lambda: self.has_reached(end) and not follower.is_held, None)
        return min(end, follower.boundary, key=lambda offset: offset.key)

    def _wait(self, is_there: Callable[[], bool], timeout: float | None) -> None:
        self._is_awaited = True
        with self._news:
            self._news.wait_for(lambda: is_there() or self._error is not None, timeout)
        self._is_awaited = False
        if not is_there() and self._error is not None:
            raise self._error
        self._following()[1].sync()

    def pieces(self, start: Offset, end: Offset, max_bytes: int) -> list[LogPiece]:
        """The pieces of the log between two offsets that have been read."""
        pieces = self._following()[1].pieces(start, end, max_bytes)
        return [replace(piece, shapes=self._names.shapes(*piece.places)) for piece in pieces]

    def has_reached(self, end: Offset) -> bool:
        """Whether everything before an offset of this source has been read."""
        return self.is_behind(self._following()[0].boundary, end)

    def is_behind(self, boundary: Offset, end: Offset) -> bool:
        """Whether an offset of this log is not before another one of this source."""
        if boundary.is_of_log(end) and boundary.file and boundary.key[1:] >= end.key[1:]:
            return True
        # The source skips transactions that the start already has, so no event shows that the log has come so far.
        begun = (self._start or boundary, boundary)
        return any(one.is_sought_by_gtid(end) for one in begun) and boundary.has_all_of(end)

    def is_drained(self, end: Offset) -> bool:
        """Whether everything before an offset of this source has been read, and has been taken by ``take``."""
        # In this order: what arrives between the two questions lies behind the end.
        return self.has_reached(end) and self._following()[0].is_drained

    def report(self) -> dict[str, str | int | None]:
        """The last offset read, how far the taken offset lies behind, and what the spool has."""
        follower, spool = self._following()
        return follower.boundary.to_dict() | {
            "lag_bytes": follower.waiting_bytes,
            "lag_seconds": round(self.seconds_behind),
            "received_bytes": follower.bytes,
            "spool_bytes": spool.size,
        }

    def table(self, name: str) -> Table:
        """A table with its present columns. Raises ``ConfigurationError`` if the source does not show it."""
        return self._run(self._names.table(name))

    def commit(self, end: Offset) -> None:
        """Everything before ``end`` is done: remove it from the spool."""
        self._committed = end
        if self._spool is not None:
            self._spool.trim(end)
            self._names.trim(end)

    def close(self) -> None:
        """Stop reading, and release the spool for other processes. May be called repeatedly."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._stop_pump(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        if not self._loop.is_closed():
            self._loop.close()
        if self._spool is not None:
            self._spool.close()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if not self._thread.is_alive():
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _following(self) -> tuple[Follower, Spool]:
        assert self._follower is not None
        assert self._spool is not None
        return self._follower, self._spool

    # From the spool

    def _take_up(self, follower: Follower, start: Offset) -> None:
        """Read the spool again from an offset to the end of its last whole transaction."""
        spool = follower.spool
        progress = Progress(start.file, start.position, start.gtids, has_gtids=True)
        kept: tuple[Segment, int] | None = None
        for segment, offset in spool.resume(start):
            size = self._read_segment(follower, progress, segment, offset)
            if size is not None:
                kept = segment, size
            elif kept is None:
                kept = segment, offset
        assert kept is not None
        spool.keep(*kept)
        if not follower.last_event():
            follower.note_last(*spool.last_event())

    def _read_segment(
        self, follower: Follower, progress: Progress, segment: Segment, offset: int
    ) -> int | None:
        """The size up to the segment's last transaction boundary; None without a boundary."""
        decoder = self._decoder(segment.file, segment.position)
        server = (segment.server_uuid, segment.server_id)
        progress.reopen()
        self._names.take_up(segment.epoch)
        follower.open(
            decoder, progress, server, segment.epoch, has_gtids=segment.has_gtids, is_spooling=False
        )
        with open(segment.path, "rb") as file:
            if offset > 4:
                follower.describe(segment.description())
            decoder.position = segment.position + offset - segment.head
            file.seek(offset)
            last = None
            while len(header := file.read(19)) == 19:
                size = int.from_bytes(header[9:13], "little")
                body = file.read(size - 19) if size >= 19 else b""
                if len(body) + 19 != size:
                    break
                try:
                    is_boundary = follower.feed(header + body)
                except DecodeError:
                    # A crash of the machine left damaged data after the published data.
                    break
                if is_boundary:
                    last = file.tell()
            return last

    def _decoder(self, file: str, position: int, *, is_mariadb: bool = False) -> EventDecoder:
        """A decoder that decodes no rows."""
        options = self._options
        return EventDecoder(
            file=file,
            position=position,
            mariadb=is_mariadb,
            verify_checksum=options.verify_checksum,
            wants_table=table_filter(options.tables, options.exclude_tables),
            row_compiler=self._layouts,
            max_event_bytes=options.max_event_bytes,
        )

    # In the thread.

    async def _start_pump(self) -> None:
        self._pump_task = asyncio.get_running_loop().create_task(self._pump())

    async def _stop_pump(self) -> None:
        if self._pump_task is not None:
            self._pump_task.cancel()
            await asyncio.gather(self._pump_task, return_exceptions=True)
        await self._names.aclose()

    async def _pump(self) -> None:
        """Read until an error is raised that is not temporary."""
        retry = Retry(self._options, asyncio.Event(), _LOGGER)
        try:
            while True:
                try:
                    await self._read(retry)
                except ReplicaError as error:
                    retry.lost(error)
                    if isinstance(error, PositionInsideEventError) and isinstance(
                        self._following()[0].boundary.gtids, MariadbGtidSet
                    ):
                        # A crash may have torn an event at the file's end: see ``Broken.behind_torn_event``.
                        self._is_by_gtid = True
                    await retry.wait()
        except ReplicaError as final:
            self._fail(final)
        except OSError as error:
            self._fail(CheckpointError(f"spoolDir {self._spool_dir}: {error.strerror or error}"))
        except Exception as error:
            self._fail(ReplicaError(f"reading the live log failed: {error!r}"))
            raise

    async def _read(self, retry: Retry) -> None:
        """Read over one connection from the last transaction boundary on."""
        follower, spool = self._following()
        greeted = await Greeted.open(self._options)
        try:
            dump = await self._open(greeted, follower)
            await self._describe()
            while True:
                if self._is_full(follower, spool):
                    await asyncio.sleep(_READ_SECONDS)
                    continue
                events = await self._next_events(dump, follower)
                if events is None:
                    continue
                is_news = False
                for raw in events:
                    is_news = follower.feed(raw) or is_news
                    await self._describe()
                behind = greeted.source.now - follower.newest_timestamp
                self.seconds_behind = 0.0 if follower.is_idle else max(behind, 0.0)
                if is_news:
                    retry.forget()
                    self._is_by_gtid = False
                    with self._news:
                        self._news.notify_all()
        finally:
            await greeted.session.aclose()

    def _is_full(self, follower: Follower, spool: Spool) -> bool:
        """Whether reading has to wait until Spark commits a part of the spool."""
        if self._is_awaited or spool.size <= self._spool_bytes or self._committed is None:
            return False
        # One transaction may be larger than the limit: Spark cannot commit anything before its end.
        return follower.boundary.key > self._committed.key

    def _look(self, event: Event) -> None:
        """Learn from an event about tables: DDL statements and table maps."""
        follower, _ = self._following()
        self._names.look(event, follower.epoch)
        follower.is_held = self._names.is_waiting

    async def _describe(self) -> None:
        """Ask for the columns of tables that are not known, before Spark gets any later part of the log."""
        follower, _ = self._following()
        if self._names.is_waiting:
            await self._names.ask()
            follower.is_held = False

    async def _next_events(self, dump: Dump, follower: Follower) -> list[bytes] | None:
        try:
            return await dump.read(_READ_SECONDS)
        except (BinlogNotFoundError, TransactionsUnavailableError) as error:
            await self._meet_purged(follower, error)
            return None

    async def _open(self, greeted: Greeted, follower: Follower) -> Dump:
        """Ask for the log from the last boundary on: on the same server by position, else by GTID set."""
        start, source = follower.boundary, greeted.source
        is_same = is_same_server(start.identity, source)
        try:
            point = await resume_point(greeted, start, is_by_gtid=self._is_by_gtid)
        except TransactionsUnavailableError as error:
            point = await self._behind_gap(greeted, follower, error)
        if follower.gap:
            point = await self._earliest(greeted)
        progress = Progress(point.file, point.position, point.gtid_set, source.has_gtids)
        progress.begun, progress.unlogged = point.begun, source.unlogged
        # The event before the boundary comes again, to prove that this is still the same log.
        again = b"" if point.by_gtid or follower.gap or not is_same else follower.last_event()
        begin = replace(point, position=point.position - len(again))
        dump = Dump(greeted, begin, is_known=True)
        decoder = self._decoder(begin.file, begin.position, is_mariadb=source.is_mariadb)
        decoder.checksum_enabled = greeted.has_checksums
        epoch = start.epoch if is_same else start.epoch + 1
        server = (source.server_uuid, source.server_id)
        await self._names.open(dump, point, start, epoch, is_behind_gap=bool(follower.gap))
        with self._news:
            self._news.notify_all()
        kind = {"has_gtids": source.has_gtids, "is_by_gtid": point.by_gtid}
        on_file = partial(take_file, source=source)
        follower.open(decoder, progress, server, epoch, again=again, on_file=on_file, **kind)
        # While the spool is full nothing is read, for as long as it takes: the source must not close the connection.
        await greeted.session.query(f"SET SESSION net_write_timeout = {_MOST_SECONDS}")
        await dump.start()
        return dump

    async def _behind_gap(
        self, greeted: Greeted, follower: Follower, error: TransactionsUnavailableError
    ) -> StartPoint:
        # A gap may be skipped in the same log only. A server that lacks transactions read before has another log.
        if await lacks(greeted, follower.boundary.gtids):
            raise error
        if self._fail_on_data_loss:
            remedy = f"{error.remedy}; {_GO_ON}"
            raise TransactionsUnavailableError(error.code, error.sqlstate, error.message, remedy) from error
        follower.pass_gap(str(error))
        return await self._earliest(greeted)

    async def _earliest(self, greeted: Greeted) -> StartPoint:
        return StartPoint(await greeted.scan().first_file(), FIRST_POSITION)

    async def _meet_purged(self, follower: Follower, error: ServerError) -> None:
        """The file was purged. If GTIDs show that no transaction is lost, go on by GTID set."""
        start = follower.boundary
        greeted = await Greeted.open(self._options)
        try:
            first = (await self._earliest(greeted)).file
            has_gtids = start.gtid_set is not None and greeted.source.has_gtids
        finally:
            await greeted.session.aclose()
        if has_gtids and not self._is_by_gtid and isinstance(error, BinlogNotFoundError):
            self._is_by_gtid = True
            raise ConnectionLostError("going on by GTID set")
        reason = (
            f"the source has purged its log from {start.file}:{start.position} up to {first}:{FIRST_POSITION}"
        )
        if self._fail_on_data_loss:
            raise TransactionsUnavailableError(
                CANNOT_READ_BINLOG,
                "HY000",
                reason,
                f"copy the data anew; {_GO_ON}",
            ) from error
        follower.pass_gap(reason)
        raise ConnectionLostError(reason)

    def _fail(self, error: ReplicaError) -> None:
        self._error = error
        if self._follower is not None:
            # Spark may still take what was read before the error.
            self._follower.is_held = False
        with self._news:
            self._news.notify_all()
