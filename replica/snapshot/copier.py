"""Reads the windows of a copy from the source, over connections of its own, beside the stream.

``SnapshotCopy`` decides what to read, and what becomes of it. Here are the connections, one task each, and what to do
when one is lost. The stream calls ``look`` when it has moved on, and waits for ``changed`` beside its log.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from protocol.errors import (
    ConfigurationError,
    ConnectionLostError,
    ReplicaError,
    SchemaMismatchError,
    ServerError,
)

from ..config.options import Options
from ..config.reconnect import FailureCount, is_passing_refusal
from ..source.hidden_from_user import DENIED
from ..source.quiet_end import is_quiet
from ..source.second_connection import beside_the_dump
from ..source.server_facts import Source
from ..source.session import Session
from . import waiting_tables
from .chunk_reader import ChunkReader, prepare_session
from .chunk_sizes import TARGET_BYTES, ChunkSizes, LargeRowsError
from .key_rows import KEYS_AT_ONCE, rows_of_keys
from .log_touches import touches_before
from .marks import FileMark, LowMark, Place, PositionMark
from .read_plan import ReadPlan
from .row_keys import KeyRange
from .snapshot_copy import SnapshotCopy
from .source_marks import high_mark, low_mark
from .table_copy import TableCopy
from .table_list import (
    NO_TABLE,
    check_gone,
    check_keys,
    denied,
    key_columns_of,
    list_named,
    name_tables,
    read_plans,
)
from .touches import Row
from .transaction_touches import TableId
from .whole_tables import rows_of
from .window import Step, Window

# Chunks that are read ahead of the stream, besides those being read.
_AHEAD: Final = 3
_PAUSES: Final = (0.005, 0.01, 0.02, 0.05, 0.1)
# Seconds that rows which the log has are waited for. A semi-synchronous source waits 10 seconds for its replica.
_PATIENCE: Final = 15.0
# The table was altered after the view was opened.
_ALTERED: Final = 1412
# Others hold locks, the server's patience ran out, or an administrator ended the statement: this lasts as it lasts.
_BUSY: Final = frozenset({1205, 1213, 1317, 3024, 1969})
# A read with locks met writers: a deadlock, of which the reader is always the victim, or the wait was too long.
_MET_WRITERS: Final = frozenset({1205, 1213})
# No such column or key: the table was changed after its plan was read, or a condition of the user names it.
_OTHER_COLUMNS: Final = frozenset({1054, 1176})
# How often a read may fail in one way, or rows contradict their table, with nothing read in between: six seconds.
# Locks of others are waited for, and a warning says so each time.
_MOST_MISMATCHES: Final = 60
# The first rows of so many tables are read in one read view, as long as they have no more bytes than one chunk. A
# statement that names them has no more columns than that: servers allow 4096.
_TOGETHER: Final = 16
_MOST_COLUMNS: Final = 1000
# Tables whose plans are read together.
_PLANS: Final = 100

#: What a plan holds for: the copy of its table, and the number of the table's shape.
_Shape = tuple[TableCopy, int]
#: What a read view is opened for.
_Work = Sequence[tuple[TableId, ReadPlan, Window]]


class Copier:
    """The reading side of one stream's copies; ``place`` returns the last place between two transactions."""

    def __init__(self, options: Options, copy: SnapshotCopy, place: Callable[[], Place]) -> None:
        self._options = options
        self._copy = copy
        self._place = place
        self._source: Source | None = None
        self._plans: dict[TableId, tuple[ReadPlan, _Shape]] = {}
        self._sizes = ChunkSizes(options.snapshot_chunk_rows)
        self._waiting = waiting_tables.WaitingTables()
        self._tasks: list[asyncio.Task[None]] = []
        self._idle = asyncio.Event()
        self._scan_lock = asyncio.Lock()
        self._plan_lock = asyncio.Lock()
        # Tables that are read in a view of their own, as an error came up among others; SELECTs that named no column.
        self._alone: set[TableId] = set()
        self._failed: dict[TableId, str] = {}
        self._mismatches: Counter[str] = Counter()
        self.changed = asyncio.Event()
        self._error: Exception | None = None

    @property
    def is_started(self) -> bool:
        """Whether it reads."""
        return bool(self._tasks)

    def start(self, options: Options, source: Source) -> None:
        """Read from this one server from now on."""
        self.stop()
        self._options, self._source = options, source
        self._tasks = [asyncio.create_task(self._work()) for _ in range(options.snapshot_connections)]

    def stop(self) -> None:
        """End all reading: the connection of the stream is lost, or the stream ends."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._plans.clear()
        self._copy.void()

    async def aclose(self) -> None:
        """End all reading and wait until the connections are closed."""
        tasks = self._tasks
        self.stop()
        if tasks:
            await asyncio.wait(tasks)

    def look(self) -> None:
        """Look for something to read, as the stream has moved on. Raises the error that ended a task."""
        self.changed.clear()
        self._idle.set()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def _work(self) -> None:
        session: Session | None = None
        failures = FailureCount()
        try:
            while True:
                found = self._next()
                if not found:
                    self._tell_what_waits()
                    self._idle.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(waiting_tables.PATIENCE):
                            await self._idle.wait()
                    continue
                try:
                    if session is None:
                        with beside_the_dump():
                            session = await Session.open(self._options)
                        await prepare_session(session)
                    await self._read(session, found)
                    failures.forget()
                    self._mismatches.clear()
                except ReplicaError as error:
                    for _, window in found:
                        window.is_void = True
                        self._copy.forget(window)
                    if session is not None:
                        session.abort()
                        session = None
                    if isinstance(error, LargeRowsError):
                        # It is read again at once, with fewer rows.
                        continue
                    if len(found) > 1 and isinstance(error, ServerError | SchemaMismatchError):
                        # Which table it is about shows when they are read one by one.
                        self._alone.update(table for table, _ in found)
                    else:
                        await self._after(error, found[0][0], failures)
                self.changed.set()
        except Exception as error:
            self._error = error
            self.changed.set()
        finally:
            if session is not None:
                session.abort()

    def _next(self) -> list[tuple[TableId, Window]]:
        """The windows to read next: one, or those for the first rows of several tables."""
        place = self._place()
        found = list(islice(self._copy.windows(place, self._most), 1))
        for table, window in found:
            window.is_locking = self._locks
            if window.what == "first" and not self._locks and table not in self._alone:
                return found + list(islice(self._copy.first_windows(place, self._alone), _TOGETHER - 1))
        return found

    def _tell_what_waits(self) -> None:
        if self._copy.in_flight >= self._most:
            return
        self._waiting.tell(self._copy, self._options.address)

    @property
    def _suffix(self) -> str:
        return " LOCK IN SHARE MODE" if self._locks else ""

    @property
    def _locks(self) -> bool:
        return self._options.snapshot_locking == "rows"

    @property
    def _most(self) -> int:
        return self._options.snapshot_connections + _AHEAD

    async def _after(self, error: ReplicaError, table: TableId, failures: FailureCount) -> None:
        """Decide what a failed window means; raise if trying again is of no use, or the user's policy says so."""
        is_busy = isinstance(error, ServerError) and error.code in _BUSY
        is_altered = isinstance(error, SchemaMismatchError) or (
            isinstance(error, ServerError) and (error.code == _ALTERED or self._is_outdated(error, table))
        )
        if is_busy or is_altered:
            # The table was altered meanwhile; or the server says one thing of it, and sends another.
            times = self._mismatches[str(error)]
            if times and not times % _MOST_MISMATCHES:
                if not is_busy:
                    raise error
                waiting_tables.tell_again(error, table, self._options.address, logging.WARNING)
            self._mismatches[str(error)] += 1
            self._plans.pop(table, None)
            await asyncio.sleep(_PAUSES[min(times, len(_PAUSES) - 1)])
        elif isinstance(error, ServerError) and error.code in NO_TABLE:
            self._copy.drop(table)
        elif isinstance(error, ConnectionLostError) or (
            isinstance(error, ServerError) and is_passing_refusal(error)
        ):
            delay = self._options.reconnect.delay(failures.add(error))
            waiting_tables.tell_again(error, table, self._options.address, logging.INFO)
            await asyncio.sleep(delay)
        elif type(error) is ServerError and error.code in DENIED:
            raise denied(error, table)
        else:
            raise error

    def _is_outdated(self, error: ServerError, table: TableId) -> bool:
        """Whether a column or key is missing, and the same SELECT has not failed with this error before."""
        if error.code not in _OTHER_COLUMNS or table not in self._plans:
            return False
        sql = self._plans[table][0].rows_sql(KeyRange(), None)
        before, self._failed[table] = self._failed.get(table), sql
        return before != sql

    async def _read(self, session: Session, found: Sequence[tuple[TableId, Window]]) -> None:
        """Do the steps of some windows, as long as they are not void."""
        work, together = [], [table for table, _ in found]
        for table, window in found:
            plan = await self._plan(session, table, together)
            if plan is None:
                await check_gone(session, table, self._options)
                self._copy.drop(table)
            else:
                work.append((table, plan, window))
        if len(work) > 1:
            await self._read_together(session, work)
            for _, _, window in work[1:]:
                if window.step is not None:
                    # Another time: a few chunks are held in memory, not one of each of these tables.
                    window.is_void = True
                    self._copy.forget(window)
        for table, plan, window in work[:1]:
            await self._read_alone(session, table, plan, window)

    async def _read_together(self, session: Session, work: _Work) -> None:
        """Read several tables in one read view, as far as their low marks allow it.

        It lasts no longer than for a chunk: when its bytes are read, the tables that are left have to wait.
        """
        low, tries, (table, plan, first) = None, 0, work[0]
        while first.step is Step.LOW:
            low = await self._low(session, table, first, tries)
            tries += 1
        await self._await_rows(session, table, plan, first)
        for other, other_plan, window in work[1:]:
            if low is not None and await self._are_visible(session, self._copy.tables[other], other_plan):
                window.take_low(low)
        group, columns = [], 0
        for one in work:
            columns += len(one[1].table.columns)
            if one[2].step is Step.OPEN and columns <= _MOST_COLUMNS:
                group.append(one)
        if len(group) < 2:
            return
        await session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        await name_tables(session, [table for table, _, _ in group], self._options)
        for _, _, window in group:
            window.take_view()
        assert self._source is not None
        high, left = await high_mark(session, self._source), TARGET_BYTES
        for table, plan, window in group:
            window.take_high(high)
            if left > 0 and not window.is_void:
                left -= await self._rows_of(session, table, plan, window)
        await session.query("COMMIT")
        for _, _, window in group:
            if window.step is Step.CLOSE:
                window.close()

    async def _read_alone(self, session: Session, table: TableId, plan: ReadPlan, window: Window) -> None:
        fruitless = self._copy.tables[table].fruitless if window.what == "keys" else 0
        if fruitless:
            await asyncio.sleep(_PAUSES[min(fruitless, len(_PAUSES)) - 1])
        pauses = iter(_PAUSES)
        while window.step is not None:
            try:
                await self._steps(session, table, plan, window)
            except ServerError as error:
                if not (window.is_locking and error.code in _MET_WRITERS):
                    raise
                # The server has rolled back, or does it now. Windows read ahead stay as they are.
                await session.query("ROLLBACK")
                window.begin_again()
                await asyncio.sleep(next(pauses, _PAUSES[-1]))
        if window.is_void:
            await session.query("ROLLBACK")

    async def _steps(self, session: Session, table: TableId, plan: ReadPlan, window: Window) -> None:
        tries = 0
        while (step := window.step) is not None:
            if step is Step.LOW:
                await self._low(session, table, window, tries)
                tries += 1
                await self._await_rows(session, table, plan, window)
            elif step is Step.OPEN:
                await self._open(session, table, window)
                window.take_view()
            elif step is Step.HIGH:
                assert self._source is not None
                window.take_high(await high_mark(session, self._source))
            elif step is Step.READ:
                await self._rows_of(session, table, plan, window)
            else:
                await session.query("COMMIT")
                window.close()

    async def _low(self, session: Session, table: TableId, window: Window, tries: int) -> LowMark:
        """Read the low mark, and have the window take it if it can."""
        assert self._source is not None
        knows_gtids = self._place().gtid_set is not None
        visible = await low_mark(session, self._source, knows_gtids=knows_gtids)
        low: LowMark = visible
        if window.is_locking:
            low = PositionMark(await high_mark(session, self._source), visible)
        if window.is_void or window.take_low(low):
            return low
        if isinstance(visible, FileMark):
            # The stream began in the middle of the current file: its beginning is read separately, once.
            async with self._scan_lock:
                if not (window.is_void or window.take_low(low)):
                    await self._read_touches(self._copy.tables[table].segments.start, visible.file)
        else:
            await asyncio.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
        return low

    async def _read_touches(self, start: Place, file: str) -> None:
        """Read the touches before ``start`` of all tables whose touches are known from there on."""
        assert self._source is not None
        copied = {
            name: table
            for name, table in self._copy.tables.items()
            if self._copy.follows(name) and table.segments.start == start
        }
        keys = {name: table.key for name, table in copied.items()}
        before = await touches_before(self._options, self._source, file, start, keys, self._copy.dialect)
        # First, as keys that other transactions had touched before are folded below.
        self._copy.resolve(before.prepared)
        for name, table in copied.items():
            if self._copy.tables.get(name) is table and table.segments.start == start:
                table.await_rows(before.made[name])
                table.segments.lay_before(before.touched[name], Place(file, 4))

    async def _await_rows(self, session: Session, table: TableId, plan: ReadPlan, window: Window) -> None:
        """Wait until reads show the newest rows from before the copy's beginning, which the log brings no more.

        The log has them earlier than reads show them, for as long as a semi-synchronous source waits. A row that
        never appears was deleted by a foreign key, without an event.
        """
        copied, until, pauses = self._copy.tables[table], monotonic() + _PATIENCE, iter(_PAUSES)
        while window.step is Step.OPEN and not await self._are_visible(session, copied, plan):
            await asyncio.sleep(next(pauses, _PAUSES[-1]))
            assert self._source is not None
            if monotonic() > until or await is_quiet(session, self._source):
                copied.awaited = ()

    async def _are_visible(self, session: Session, copied: TableCopy, plan: ReadPlan) -> bool:
        """Whether reads show the rows for which the first window waits."""
        if copied.awaited:
            found = {plan.row_key(row) for row in await rows_of_keys(session, plan, copied.awaited)}
            # With autocommit=0 on the source the next read would show the same.
            await session.query("COMMIT")
            copied.awaited = tuple(key for key in copied.awaited if key not in found)
        return not copied.awaited

    async def _open(self, session: Session, table: TableId, window: Window) -> None:
        if window.is_locking and window.what != "table":
            # Without gap locks inserts go on, and far fewer deadlocks arise. A row that they add is in the log, too.
            # All rows of a table without a key have to be those of one moment.
            await session.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        view = "" if window.is_locking else " WITH CONSISTENT SNAPSHOT, READ ONLY"
        await session.query(f"START TRANSACTION{view}")
        await name_tables(session, [table], self._options)

    async def _rows_of(self, session: Session, table: TableId, plan: ReadPlan, window: Window) -> int:
        """Read the rows of a window; returns their bytes."""
        reader = ChunkReader(session, plan)
        if window.what == "keys":
            await self._read_keys(session, table, plan, window)
            return 0
        if window.what == "table":
            chunk = await reader.start(KeyRange())
            rows = await rows_of(chunk, plan.select)
        else:
            chunk = await reader.start(KeyRange(window.after, window.upto), self._sizes.limit(table))
            rows = await self._sizes.read(table, chunk)
        end, upto = chunk.end, window.upto
        if window.what == "first" and end is not None:
            upto = await reader.largest_key()
            end = None if end == upto else end
        window.take_rows(plan.table, plan.select.key, rows, end, upto)
        return chunk.size

    async def _read_keys(self, session: Session, table: TableId, plan: ReadPlan, window: Window) -> None:
        """Read rows by their keys, not many more than a chunk of the table has; the others wait."""
        rows = list[Row]()
        window.wanted = window.wanted[: max(self._sizes.limit(table), KEYS_AT_ONCE)]
        for begin in range(0, len(window.wanted), KEYS_AT_ONCE):
            some = window.wanted[begin : begin + KEYS_AT_ONCE]
            rows += await rows_of_keys(session, plan, some, self._suffix)
        window.take_rows(plan.table, plan.select.key, rows, None)

    async def _plan(
        self, session: Session, table: TableId, together: Sequence[TableId] = ()
    ) -> ReadPlan | None:
        """How to read a table; None if it does not exist. Tables read ``together`` with it are planned, too."""
        async with self._plan_lock:
            # Again, if the stream has come to a statement about the table meanwhile: the table is not gone.
            while (plan := self._known_plan(table)) is None:
                if not await self._read_plans(session, table, together):
                    return None
        copied = self._copy.tables.get(table)
        if copied is not None and not self._copy.goes_on_by(table, key_columns_of(plan)):
            # The key is another one, so that bounds and touches of the previous key mean nothing; or a complete table
            # is copied again; or the table is new.
            if not await self._is_copied(session, plan):
                return None
            if self._copy.tables.get(table) is copied:
                self._copy.learn(table, key_columns_of(plan))
        return plan

    async def _is_copied(self, session: Session, plan: ReadPlan) -> bool:
        """Whether a name belongs to a table now, not to a view. Raises for a table that cannot be copied exactly."""
        assert self._source is not None
        table = plan.table.schema, plan.table.name
        found = await list_named(session, [table])
        for one in found:
            one.check()
            knows_gtids = self._place().gtid_set is not None
            await check_keys(session, self._source, [plan], self._options, knows_gtids=knows_gtids)
        return bool(found)

    def _known_plan(self, table: TableId) -> ReadPlan | None:
        plan, shape = self._plans.get(table, (None, None))
        return plan if shape == self._shape(table) else None

    def _shape(self, table: TableId) -> _Shape | None:
        copied = self._copy.tables.get(table)
        return None if copied is None else (copied, copied.shape_number)

    async def _read_plans(self, session: Session, table: TableId, together: Sequence[TableId]) -> bool:
        """Read the plan of a table, and those of some that come next. Returns whether the table exists."""
        assert self._source is not None
        self._forget_plans()
        # Those ``together`` have windows, so they do not wait: each asked for its own plan, for 15 of 116 tables.
        following = [one for one in islice(self._copy.waiting, _PLANS) if self._known_plan(one) is None]
        following[:0] = [one for one in together if self._known_plan(one) is None]
        shapes = {one: shape for one in (table, *following) if (shape := self._shape(one)) is not None}
        try:
            plans = await read_plans(session, self._source, shapes, self._options, self._suffix)
        except (SchemaMismatchError, ConfigurationError):
            # The error may be about another one of these tables.
            plans = await read_plans(session, self._source, [table], self._options, self._suffix)
        self._plans |= {one: (plans[one], shape) for one, shape in shapes.items() if one in plans}
        return table in plans

    def _forget_plans(self) -> None:
        """Drop the plans of tables whose copy is complete: readers were compiled for them."""
        for table, (_, (copied, _)) in list(self._plans.items()):
            if copied.progress.is_whole or self._copy.tables.get(table) is not copied:
                del self._plans[table]
