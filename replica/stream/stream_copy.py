"""``StreamCopy``: the initial copy of a stream, from the user's order to the checkpoint.

It finds the tables, begins or resumes their copies, and moves the reading to the server of each new dump. ``Account``
and ``Delivery`` follow the copy through the account; the chunks are read by ``Copier``.

Most streams copy no table. What a copy needs is imported when one begins: it takes an eighth of a stream's imports.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Final

from protocol.binlog.decoder import WantsTable
from protocol.errors import ConfigurationError
from protocol.gtid import GtidSet
from protocol.position import BinlogPosition, Checkpoint
from protocol.rows.table import table_text

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.selection import read_table
from ..config.snapshot_status import SnapshotStatus
from ..config.table_filter import table_filter
from ..snapshot.marks import LOWEST, Place
from ..source.hosts import first_host
from ..source.resolve_start import StartPoint, is_same_server
from ..source.second_connection import beside_the_dump
from ..source.server_facts import Source
from ..source.session import Session
from ..sql.dialect import Dialect
from ..sql.quoting import first_names
from .batch import Account
from .lasting_work import LastingWork

if TYPE_CHECKING:
    from ..snapshot.copier import Copier
    from ..snapshot.copy_state import CopyState
    from ..snapshot.read_plan import ReadPlan
    from ..snapshot.snapshot_copy import SnapshotCopy
    from ..snapshot.table_list import Listed, Refusals
    from ..snapshot.transaction_touches import KeyColumns

_LOGGER: Final = logging.getLogger(__name__)
# The plans of so many tables are held at once.
_PLANS: Final = 500


class StreamCopy:
    """The copy of one stream. ``options.start == "snapshot"`` or ``order`` begins it."""

    def __init__(self, options: Options, account: Account) -> None:
        self._options = options
        self._account = account
        self._wants = table_filter(options.tables, options.exclude_tables)
        self._copy: SnapshotCopy | None = None
        self._copier: Copier | None = None
        # Begins the copies that ``order`` has asked for.
        self._beginning = LastingWork()
        # A read of the log that goes on while chunks are delivered.
        self._reading: asyncio.Task[None] | None = None
        self._source: Source | None = None
        self._began_at = 0.0
        # The source's estimates of the rows of each table, and of all.
        self._estimates: dict[tuple[str, str], int] = {}
        self._estimate = 0

    @property
    def is_known(self) -> bool:
        """Whether a copy was ordered or has begun."""
        return bool(self._account.ordered) or self._copier is not None or self._beginning.is_begun

    def status(self) -> SnapshotStatus | None:
        """How far the copy has come; None without one."""
        copy = self._copy
        if copy is None:
            return None
        totals = copy.totals
        estimate = max(self._estimate, totals.rows)
        seconds = monotonic() - self._began_at
        left = seconds * (estimate - totals.rows) / totals.rows if totals.rows else None
        return SnapshotStatus(
            tables=len(copy.tables),
            tables_complete=totals.complete,
            rows=totals.rows,
            estimate=estimate,
            seconds_left=0.0 if not copy.is_active else left,
            chunks=totals.chunks,
            chunks_corrected=totals.corrected,
            complete=not copy.is_active,
            keys=copy.key_names,
        )

    # Beginning

    async def begin(self, session: Session, source: Source, start: object, point: StartPoint) -> None:
        """Begin what the stream's start asks for, or go on with the copy of a checkpoint, before the first event.

        ``point`` is where the dump begins.
        """
        text = start.snapshot if isinstance(start, Checkpoint) else None
        if text is None and start != "snapshot":
            return
        from ..snapshot.copy_state import CopyState
        from ..snapshot.hidden_tables import check_unnamed
        from ..snapshot.source_marks import high_mark
        from ..snapshot.table_list import Refusals, check_gone, list_tables

        self._check()
        # Every chunk reads it: a user without the privilege learns that before any work is done.
        await high_mark(session, source)
        listed = {one.identity: one for one in await list_tables(session, self._wants)}
        state = None if text is None else CopyState.from_text(text, listed)
        refusals = Refusals()
        await self._check_tables(session, state, listed, refusals)
        if state is not None and state.unnamed is not None and (begin := _begin(start, point, source)):
            await check_unnamed(state.unnamed, state.waiting, begin, session, source)
        # In the order of the names: a checkpoint counts on it.
        unfinished = [
            table
            for table in sorted(state.tables if state else listed)
            if not (state and state.tables[table].is_whole)
        ]
        copy = self._begin_copy(source)
        copy.has_all = state is None or state.has_all
        if state is not None:
            copy.selection = state.selection
        if copy.has_all:
            copy.coverage.wants = self._covers(copy.selection)
        # Without keys, ``check`` raises.
        with refusals.noted():
            keys = await self._read_keys(session, source, unfinished)
        refusals.check()
        for table in [table for table in unfinished if table not in keys]:
            await check_gone(session, table, self._options)
        # Touches from before a place up to which everything is visible are not needed.
        place = LOWEST if point.is_visible else self._place()
        for table, key in keys.items():
            copy.add(table, key, place, state.progress_by(table, key) if state else None)
        if state is not None:
            for table, progress in state.tables.items():
                if table not in keys:
                    copy.add_ended(table, progress, is_keyless=table in state.keyless)
            copy.restore(state)
        for one in listed.values():
            if one.identity in copy.tables:
                self._note_estimate(one)

    async def _check_tables(
        self,
        session: Session,
        state: "CopyState | None",
        listed: "Mapping[tuple[str, str], Listed]",
        refusals: "Refusals",
    ) -> None:
        """Note what is wrong with the tables that a copy begins with, or that a copy which goes on selects now."""
        from ..snapshot.table_list import check_conditions, check_found, check_tables

        new = listed if state is None else self._select(state, listed)
        with refusals.noted():
            check_tables([listed[table] for table in new])
        if state is None:
            with refusals.noted():
                await check_found(session, self._options.tables, listed, self._options.snapshot_where)
        with refusals.noted():
            await check_conditions(session, listed, self._options.snapshot_where)

    def _select(
        self, state: "CopyState", listed: "Mapping[tuple[str, str], Listed]"
    ) -> list[tuple[str, str]]:
        """Have ``state`` select the tables that the stream selects now. Returns newly selected tables."""
        from ..snapshot.copied_selection import selected_by, selection_text

        before, selection = (
            state.selection,
            selection_text(self._options.tables, self._options.exclude_tables),
        )
        copies_new = self._options.start == "snapshot"
        new = state.select(selection, self._wants, listed, copies_new=copies_new)
        is_untold = (
            copies_new and state.has_all and before not in ("", selection) and selected_by(before) is None
        )
        facts = log_facts("selection-changed", source=self._options.address, tables=len(new))
        if new:
            names = first_names([table_text(*table) for table in new])
            _LOGGER.info("%s: copied now, as tables= did not select them before", names, extra=facts)
        elif is_untold:
            _LOGGER.warning(
                "tables= is not what it was when the tables were copied, and was too long to be kept: tables that it "
                "did not select are not copied (stream.snapshot() copies one)",
                extra=facts,
            )
        return new

    def _covers(self, selection: str) -> WantsTable:
        """The filter of all tables that a copy is about, also of those that come later."""
        from ..snapshot.copied_selection import selected_by
        from ..snapshot.table_list import SYSTEM_SCHEMAS

        filters = [one for one in (self._wants, selected_by(selection)) if one is not None]
        return lambda schema, name: schema not in SYSTEM_SCHEMAS and all(one(schema, name) for one in filters)

    def order(self, table: str, *, has_ended: bool) -> None:
        """Copy one more table, or one table again, from the next place of the stream on."""
        if has_ended:
            raise RuntimeError(
                f"snapshot(): {table} is not copied, as the stream has ended: connect a new stream"
            )
        schema, name = read_table("snapshot()", table)
        self._check()
        if self._wants is not None and not self._wants(schema, name):
            raise ConfigurationError(
                f"snapshot(): {table} is left out by tables= and exclude_tables=, and its changes would be missing"
            )
        self._account.ordered.append((schema, name))

    def wake(self) -> None:
        """Let ``read`` return while a copy runs."""
        if self._copier is not None:
            self._copier.changed.set()

    async def _begin_ordered(self) -> None:
        """Begin the copies that were ordered, at the stream's place."""
        if self._source is None:
            return
        from ..snapshot.table_copy import TableProgress
        from ..snapshot.table_list import list_named

        with beside_the_dump():
            session = await first_host(self._options, Session.open)
        try:
            ordered = list(dict.fromkeys(self._account.ordered))
            listed = {one.identity: one for one in await list_named(session, ordered)}
            for table in ordered:
                if table not in listed:
                    self._account.ordered.remove(table)
                    raise ConfigurationError(
                        f"snapshot(): there is no table {'.'.join(table)}, or the user lacks SELECT on it -- "
                        "correct the name, or GRANT SELECT on it"
                    )
                listed[table].check()
            keys = await self._read_keys(session, self._source, ordered)
        finally:
            await session.aclose()
        copy = self._copy or self._begin_copy(self._source)
        place = self._place()
        for table, key in keys.items():
            # Without a key nothing tells rows of the copy from those that the log has brought: these are void.
            is_anew = not key.names and table not in copy.tables
            copy.add(table, key, place, TableProgress(is_void=True) if is_anew else None)
            self._note_estimate(listed[table])
        self._account.ordered = [table for table in self._account.ordered if table not in keys]
        assert self._copier is not None
        if not self._copier.is_started:
            self._copier.start(self._options, self._source)

    def _note_estimate(self, listed: "Listed") -> None:
        self._estimate += listed.estimate - self._estimates.get(listed.identity, 0)
        self._estimates[listed.identity] = listed.estimate

    # The stream's life

    def use(self, options: Options, source: Source) -> None:
        """A dump has begun: read from its server."""
        before, self._options, self._source = self._source, options, source
        identity = (None, None) if before is None else (before.server_uuid, before.server_id)
        if self._copy is not None and before is not None and not is_same_server(identity, source):
            self._copy.move()
        if self._copier is not None:
            self._copier.start(options, source)

    def break_off(self) -> None:
        """The dump is lost: chunks in flight are read again later."""
        self._drop_reading()
        if self._copier is not None:
            self._copier.stop()

    async def look(self) -> None:
        """The stream has moved on, or is about to wait. Raises errors of the reading."""
        # Of a transaction that is open, the changes before the order would not be known.
        is_due = bool(self._account.ordered) and not self._account.progress.in_transaction
        has_begun = is_due or self._beginning.is_begun
        if has_begun:
            await self._beginning.see_through(self, self._begin_ordered)
        if self._copier is not None:
            self._copier.look()
            if has_begun:
                # A copy that begins anew is told before it is read: an idle source would say nothing for a while.
                self.wake()

    async def read(self, read: Callable[[], Coroutine[object, object, None]]) -> None:
        """Read from the log by ``read``, or return because a chunk has been read: then ``read`` goes on meanwhile."""
        is_active = bool(self._account.ordered) or (self._copy is not None and self._copy.is_active)
        changed = self._copier.changed if self._copier is not None and is_active else None
        if self._reading is None and changed is None:
            await read()
            return
        if self._reading is None:
            self._reading = asyncio.create_task(read())
        waiting = asyncio.create_task((changed or asyncio.Event()).wait())
        try:
            await asyncio.wait((self._reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            reading.result()

    def _drop_reading(self) -> None:
        """The log is lost, and with it a task that still reads it."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())
            reading.cancel()

    def abort(self) -> None:
        """End the reading, and do not wait for that."""
        self._beginning.cancel()
        self.break_off()

    async def aclose(self) -> None:
        """End the reading."""
        self._beginning.cancel()
        await self._beginning.wait_closed()
        self._drop_reading()
        if self._copier is not None:
            await self._copier.aclose()

    def _begin_copy(self, source: Source) -> "SnapshotCopy":
        from ..snapshot.copied_selection import selection_text
        from ..snapshot.copier import Copier
        from ..snapshot.snapshot_copy import SnapshotCopy

        self._copy = self._account.copy = SnapshotCopy()
        self._copy.dialect = Dialect(
            source.is_mariadb, source.version, 0, source.folds_names, source.explicit_timestamps
        )
        self._copy.selection = selection_text(self._options.tables, self._options.exclude_tables)
        self._copy.coverage.restarts = self._options.snapshot_restarts_after_ddl
        self._copier = Copier(self._options, self._copy, self._place)
        self._source = source
        self._began_at = monotonic()
        return self._copy

    def _place(self) -> Place:
        progress = self._account.progress
        gtid_set = None if progress.gtid_set is None else progress.gtid_set.copy()
        return Place(progress.file, progress.position, gtid_set)

    def _check(self) -> None:
        if not self._options.row_values:
            raise ConfigurationError(
                "row_values=False counts rows only, and a copy of tables needs their values"
            )

    async def _read_keys(
        self, session: Session, source: Source, tables: Sequence[tuple[str, str]]
    ) -> "dict[tuple[str, str], KeyColumns]":
        """The key of each table. Raises for one without a key that cannot be read at one exact place of the log."""
        from ..snapshot.table_list import check_keys, key_columns_of, read_plans

        suffix = " LOCK IN SHARE MODE" if self._options.snapshot_locking == "rows" else ""
        keys: dict[tuple[str, str], KeyColumns] = {}
        keyless: list[ReadPlan] = []
        for begin in range(0, len(tables), _PLANS):
            # A plan takes 0.4 KB for each column: it is read again when its table is.
            some = tables[begin : begin + _PLANS]
            plans = await read_plans(session, source, some, self._options, suffix)
            keys |= {table: key_columns_of(plan) for table, plan in plans.items()}
            keyless += [plan for plan in plans.values() if not plan.key_names]
        knows_gtids = self._place().gtid_set is not None
        await check_keys(session, source, keyless, self._options, knows_gtids=knows_gtids)
        return keys


def _begin(start: object, point: StartPoint, source: Source) -> BinlogPosition | GtidSet | None:
    """Where the statements behind a checkpoint begin in this server's log; None if it is not known."""
    if isinstance(point.gtid_set, GtidSet):
        return point.gtid_set
    if not isinstance(start, Checkpoint) or not start.file:
        return None
    is_here = is_same_server((start.server_uuid, start.server_id), source)
    return BinlogPosition(start.file, start.position) if is_here else None
