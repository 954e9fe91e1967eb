"""Loads, reads and saves the schema history of a stream: the input and output of ``SchemaTracker``.

    store -> history -> SchemaTracker                        when the stream is opened
    information_schema, statements of the log -> history     without a store, and where the history has a gap
    SchemaTracker -> store                                   before rows after a statement are handed out

The source is asked over the stream's own connection before the dump, later over a second one. A question never waits
for a lock of the source longer than a second: a semi-synchronous source may hold it until the stream acknowledges.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from protocol.binlog.events import TableMapEvent
from protocol.errors import (
    BinlogNotFoundError,
    CheckpointError,
    ConfigurationError,
    ReplicaError,
    ServerError,
)
from protocol.gtid import AnyGtidSet
from protocol.position import (
    FIRST_POSITION,
    BinlogPosition,
    Checkpoint,
    file_with_number,
    split_file_name,
)
from protocol.rows.table import Table

from ..config.checkpoint import FileCheckpointStore, settled
from ..config.daemon_thread import in_thread
from ..config.options import Options
from ..config.reconnect import is_account_limit, is_passing_refusal
from ..config.schema_store import SUFFIX, FileSchemaStore, SchemaStore
from ..config.unmatched_patterns import warn_of_unknown
from ..source.column_lookup import NamelessWarning
from ..source.dump import Dump
from ..source.hidden_from_user import hides_columns
from ..source.log_scan import LogScan
from ..source.open_dump import FirstOpening
from ..source.resolve_start import StartPoint, is_same_server
from ..source.second_connection import SecondConnection
from ..source.server_facts import Identity, Source
from ..source.session import Session
from ..sql.token_reader import TableName
from ..transactions.boundary import Progress
from .catalog import Catalog
from .logged_statements import LogTraits
from .lost_names import NamelessTables, mismatch
from .past_history import LoggedStatement, history_before, is_doubtful
from .reading import TableReader, traits_of
from .reconciliation import Reconciliation, only_tables
from .scanned_log import ScannedLog
from .schema_tracker import SchemaTracker
from .stored_log import check_stored_log, identity_of, name_of
from .timeline import SchemaHistory, State

_LOGGER: Final = logging.getLogger(__name__)
_MANY_STATEMENTS: Final = 50
# So many older log files may be read for the names of a table that the stream's file lacks.
_OLDER_FILES: Final = 10

# The store is rewritten, without states from before the source's oldest log file, when so many lines were added to
# it, and as many as the history had states: so the cost of a statement does not grow. Without a store the history is
# pruned as often.
_MOST_ADDED: Final = 2000


class SchemaKeeper:
    """Keeps one stream's schema history. ``tracker`` is the part without input and output.

    ``check_store`` is called before each write. It raises ``CheckpointError`` if another stream uses the store now.
    """

    def __init__(self, options: Options, check_store: Callable[[], None] = lambda: None) -> None:
        self.tracker = SchemaTracker(options, asks=True)
        self._options = options
        self._store = options.schemas
        self._check_store = check_store
        beside = options.checkpoints
        # A store beside a checkpoint file belongs to the checkpoint, and is not read without one.
        self._is_beside = self._store is None and isinstance(beside, FileCheckpointStore)
        if self._store is None and isinstance(beside, FileCheckpointStore):
            self._store = FileSchemaStore(beside.path + SUFFIX)
        self._traits = LogTraits(is_mariadb=False, version=())
        self._connection = SecondConnection(options, "SET SESSION lock_wait_timeout = 1")
        self._reconciliation = Reconciliation(self.tracker, self._connection)
        self._source: Source | None = None
        # The boundary at which the stream came from another server.
        self._moved_at = ("", 0)
        self._warn = NamelessWarning()
        self._nameless = NamelessTables()
        self._log = ScannedLog()
        # Lines since the history was written, or pruned, and how many states it had then.
        self._added = self._kept = 0

    # Opening.

    async def open(
        self, opening: FirstOpening, stored: Checkpoint | None, *, is_behind_gap: bool = False
    ) -> None:
        """Load the history, or read all tables. ``stored`` is the checkpoint that the stream begins at, if any.

        ``is_behind_gap``: the log between the checkpoint and the beginning of the dump cannot be read. Raises
        ``ConnectionLostError``, and ``CheckpointError`` for a store that cannot be used.
        """
        dump = opening.dump
        self._source = source = dump.source
        self._connection.move(dump.session.options)
        if not self._options.row_values:
            # Rows that are only counted need no names.
            return
        identity = identity_of(source)
        reader = TableReader(dump.session, source)
        self._traits = traits_of(source)
        history = None if self._is_beside and stored is None else await self._load()
        if history is not None and history.source != identity:
            self._move(history, stored, identity, opening)
            return
        folds = self._traits.folds_names
        if history is not None and history.folds_names != folds and not source.is_relay:
            raise CheckpointError(
                f"{self._store!r} was written when lower_case_table_names was another on the source; remove it: the "
                "tables are then read anew"
            )
        await check_stored_log(self._store, history, stored, self._connection.options, source)
        start = _start(opening, stored, source)
        if history is not None and is_behind_gap:
            self.tracker.use(self._traits, history)
            await self._pass_gap(reader, opening.start)
        elif history is not None and start is not None:
            left_out = await self._follow_gap(reader, history, start)
            self.tracker.use(self._traits, history)
            self.tracker.unseen = left_out
        else:
            self.tracker.use(self._traits, await self._read_all(reader))
        await self.save()
        known = self.tracker.history
        if known is not None and self._options.start != "snapshot":
            # A copy refuses them.
            warn_of_unknown(self._options, known.catalog.listed)
        if history is not None:
            self._kept = len(history.tables)
            self._added = history.size - self._kept

    async def _load(self) -> SchemaHistory | None:
        return None if self._store is None else await stored_history(self._store)

    def _move(
        self, history: SchemaHistory, stored: Checkpoint | None, identity: str, opening: FirstOpening
    ) -> None:
        """Use a store of another server, which is right if the checkpoint is of that server, too, and has GTIDs."""
        if stored is None or identity_of(stored) != history.source or not opening.dump.is_by_gtid:
            raise CheckpointError(
                f"{self._store!r} holds the schema history of server {history.source}, and this is server "
                f"{identity}; give the store of this server, or remove it: the tables are then read anew"
            )
        self.tracker.use(self._traits, history)
        place = BinlogPosition(stored.file, stored.position) if stored.file else history.head
        catalog = self.tracker.tables_at(place) or Catalog()
        self.tracker.move(self._traits, identity, catalog)

    async def _follow_gap(
        self, reader: TableReader, history: SchemaHistory, start: BinlogPosition | AnyGtidSet
    ) -> list[BinlogPosition]:
        """Follow the log from the end of the store to the beginning of the stream.

        Returns the places of statements that may stand after the beginning: a stream by GTIDs does not see them.
        """
        if isinstance(start, BinlogPosition) and start <= history.head:
            return []
        try:
            found, last = await reader.statements_and_end(history.head, start)
        except ServerError as error:
            if is_passing_refusal(error):
                raise
            raise CheckpointError(
                f"{self._store!r} ends at {history.head}, the stream begins at {start}, and the log between them "
                f"cannot be read ({error}); give the store that belongs to the checkpoint, or remove it: the tables "
                "are then read anew"
            ) from error
        new = [logged for logged in found if logged.end > history.head]
        for logged in new:
            history.apply(logged.statement, logged.end)
        if isinstance(start, BinlogPosition):
            history.advance(start)
            return []
        if last is not None:
            history.advance(last)
        return [logged.end for logged in new]

    async def _pass_gap(self, reader: TableReader, start: StartPoint) -> None:
        """Read all tables anew, as statements before this place are lost."""
        before = self.tracker.history
        self.tracker.use(self._traits, await self._read_all(reader))
        now = self.tracker.history
        if before is not None and now is not None:
            place = BinlogPosition(start.file, start.position)
            before.join(await self._extended(reader, now, place) if place < now.begin else now)
            self.tracker.use(self._traits, before)

    async def _read_all(self, reader: TableReader) -> SchemaHistory | None:
        """All tables as they are now; None if the source refuses. Later lookups of names ask again."""
        try:
            return await self._read_tables(reader)
        except (ServerError, ConfigurationError) as error:
            if isinstance(error, ServerError) and is_passing_refusal(error):
                raise
            _LOGGER.debug("the tables cannot be read: %s", error)
            return None

    async def _read_tables(self, reader: TableReader) -> SchemaHistory:
        assert self._source is not None
        return await reader.history(identity_of(self._source))

    # Going on.

    async def use(
        self, dump: Dump, progress: Progress, identity: Identity, *, gap_end: StartPoint | None = None
    ) -> None:
        """Go on with another dump, from the boundary ``progress`` of the server ``identity``.

        ``gap_end``: on the same server, the end of a part of the log that cannot be read.
        """
        await self._reconciliation.wait_ended()
        before, self._source = self._source, dump.source
        self._connection.move(dump.session.options)
        if before is None or is_same_server((before.server_uuid, before.server_id), dump.source):
            if gap_end is not None:
                await self._pass_gap(TableReader(dump.session, dump.source), gap_end)
                await self.save()
            return
        self._log.forget()
        self._nameless = NamelessTables()
        history = self.tracker.history
        boundary: BinlogPosition | None = None
        is_here = history is not None and history.source == name_of(identity)
        # Until a transaction has ended on this server, the boundary is a place of the server before it.
        place = progress.file, progress.position
        if progress.file and is_here and place != self._moved_at:
            boundary = BinlogPosition(*place)
        self._moved_at = place
        catalog = self.tracker.tables_at(boundary)
        self._traits = traits_of(dump.source)
        if catalog is None:
            async with self._connection.session() as session:
                self.tracker.use(self._traits, await self._read_all(TableReader(session, dump.source)))
        else:
            self.tracker.move(self._traits, identity_of(dump.source), catalog)

    def abort(self) -> None:
        """Close the second connection at once."""
        self._reconciliation.abort()
        self._connection.abort()

    async def aclose(self) -> None:
        """Close the second connection and wait until it is closed."""
        await self._reconciliation.wait_ended()
        await self._connection.aclose()

    @property
    def is_comparison_due(self) -> bool:
        """Whether tables were changed since they were last compared with the source's information_schema."""
        return self._reconciliation.is_due

    def compare(self, *, is_idle: bool) -> None:
        """Compare changed tables with the source, beside the stream; all of the log that has come was read."""
        if self._source is not None and self._reconciliation.is_time(is_idle=is_idle):
            self._reconciliation.begin(self._source)

    async def finish(self) -> None:
        """Compare them at the end of the stream, for the store: before the next one they may be changed or gone."""
        if self._store is not None and self._source is not None:
            await self._reconciliation.run(self._source)

    # Names.

    async def describe(self, event: TableMapEvent) -> Table | None:
        """The table with names that the history does not know yet; None if the source does not show the table.

        Then the source is asked again after later statements. Raises ``SchemaMismatchError`` if no shape fits the
        log, unless ``on_schema_mismatch`` is ``"positional"``.
        """
        name, place = self.tracker.name_of(event.table), BinlogPosition(event.file, event.position)
        followed, history = (self.tracker.statements, self.tracker.grants), self.tracker.history
        is_known = history is not None and history.shape_at(name, place) is not None
        if self._nameless.is_vain(name, place, *followed, is_known=is_known) or not self._options.row_values:
            return None
        await self._reconciliation.wait_ended()
        try:
            async with self._connection.session() as session:
                found, until = await self._ask(session, event, name, place)
        except ServerError as error:
            if is_passing_refusal(error) or is_account_limit(error):
                raise
            self._warn(event.table, str(error))
            found, until = self.tracker.sought(event), place
        if found is None:
            self._nameless.note(name, place, until, *followed)
        return found

    async def _ask(
        self, session: Session, event: TableMapEvent, name: TableName, place: BinlogPosition
    ) -> tuple[Table | None, BinlogPosition]:
        """The table, if the source tells its names, and the place up to which this answer holds."""
        assert self._source is not None
        reader = TableReader(session, self._source, self._log.known_end)
        history = self.tracker.history
        if history is None:
            history = await self._read_tables(reader)
            self.tracker.use(self._traits, history)
        known, end, found = history, history.begin, list[LoggedStatement]()
        for begin in self._begins(place):
            if begin < history.begin:
                try:
                    found = await self._log.between(reader, begin, history.begin) + found
                except BinlogNotFoundError:
                    if begin.file == place.file:
                        raise
                    self._log.first_file = history.begin.file
                    break
                history = await self._with_older(found, known, begin)
                self.tracker.use(self._traits, history)
            await self._log.find_lost(reader, history, name, place)
            if (named := self.tracker.named(event)) is not None:
                return named, place
            if not history.has_lost(name, place):
                is_known = begin < end <= place and not is_doubtful(history.shape_before(name, end))
                if is_known or history.next_change(name, place) is None:
                    break
        before = history.shape_at(name, place)
        is_shown, until = await self._read_again(reader, history, name, place)
        if not is_shown:
            self._warn(
                event.table, "the user cannot see the table: grant SELECT on it, unless the table was dropped"
            )
            return self.tracker.sought(event), until
        self.tracker.note(name, place)
        named = self.tracker.sought(event)
        if named is None and self._options.on_schema_mismatch == "error":
            later = history.next_change(name, place)
            hides = await hides_columns(session, *name)
            raise mismatch(event, (history.shape_at(name, place), before), later, hides_columns=hides)
        return named, until

    def _begins(self, place: BinlogPosition) -> Iterator[BinlogPosition]:
        """Places from which to extend the history, one after another, until it has a table's names at ``place``.

        If a statement after ``place`` has removed names, a statement before it, such as CREATE TABLE, may have them.
        So the log file is read from its beginning, wherever the stream began, and then some files before it.
        """
        begin = min(place, self.tracker.begin or place)
        yield begin
        if begin.position > FIRST_POSITION:
            yield BinlogPosition(begin.file, FIRST_POSITION)
        base, digits = split_file_name(begin.file)
        last = int(digits or 0)
        for number in range(last - 1, max(last - _OLDER_FILES, 1) - 1, -1):
            if file_with_number(base, digits, number + 1) == self._log.first_file:
                return
            file = file_with_number(base, digits, number)
            _LOGGER.info("reading %s for the names of a table in %s", file, place)
            yield BinlogPosition(file, FIRST_POSITION)

    async def _extended(
        self, reader: TableReader, history: SchemaHistory, place: BinlogPosition
    ) -> SchemaHistory:
        """The same history from an earlier place on."""
        return await self._with_older(await reader.statements(place, history.begin), history, place)

    async def _with_older(
        self, found: list[LoggedStatement], history: SchemaHistory, place: BinlogPosition
    ) -> SchemaHistory:
        """The same history from an earlier place on; ``found`` are the statements from there to its beginning."""
        catalog = self.tracker.tables_at(history.begin) or Catalog()
        longer = await _before(history.source, place, catalog, found)
        longer.join(history, has_gap=False)
        return longer

    async def _read_again(
        self, reader: TableReader, history: SchemaHistory, name: TableName, place: BinlogPosition
    ) -> tuple[bool, BinlogPosition]:
        """Read one table as it is now, and the statements about it between ``place`` and now.

        Returns whether the source shows the table, and the place up to which asking again would give the same.
        """
        reading = await reader.read(only_tables([name]), self._log.untouched(reader, name, place))
        self._log.known_end = until = reading.place
        shape: State = reading.catalog.get(name)
        if shape is None:
            # The history learns from later statements what becomes of the table after the place.
            return False, until
        if place < reading.place:
            # Names that a statement after the place has removed are found in statements before it.
            for begin in dict.fromkeys((place, min(place, history.begin))):
                if begin < place and not is_doubtful(shape):
                    break
                found, names = await self._log.about(reader, name, begin, reading.place)
                until = next((logged.end for logged in found if place < logged.end), until)
                now = history.catalog.only(names)
                now.set(name, reading.catalog.get(name))
                shape = (await _before(history.source, begin, now, found)).shape_at(name, place)
        history.set_at(name, place, shape)
        history.advance(place)
        return True, until

    # Saving.

    async def save(self, boundary: Progress | None = None) -> None:
        """Write what the store lacks. Raises ``CheckpointError`` from the store.

        ``boundary``: where the stream would go on after a lost connection. Without a store, the history ends there.
        """
        if self._store is None:
            self._added += self.tracker.forget_unsaved()
            self._forget_passed(boundary)
        if self._store is None or not self.tracker.is_unsaved:
            return
        with self.tracker.taking_unsaved() as (lines, is_whole):
            await self._write(lines, is_whole)

    async def _write(self, lines: list[str], is_whole: bool) -> None:
        assert self._store is not None
        self._check_store()
        if not is_whole and self._added + len(lines) > max(_MOST_ADDED, self._kept):
            await self._forget_purged()
            self.tracker.renew()
            lines, is_whole = self.tracker.take_unsaved()
        self._added += len(lines)
        if is_whole:
            self._note_size()
        await settled(self._store.save(lines) if is_whole else self._store.append(lines))

    def _note_size(self) -> None:
        assert self.tracker.history is not None
        self._added, self._kept = 0, self.tracker.history.size

    def _forget_passed(self, boundary: Progress | None) -> None:
        """Forget the states of tables before the boundary, unless the boundary is a place of another server."""
        place = ("", 0) if boundary is None else (boundary.file, boundary.position)
        if place[0] and place != self._moved_at and self._added > max(_MOST_ADDED, self._kept):
            self.tracker.forget_before(BinlogPosition(*place))
            self._note_size()

    async def _forget_purged(self) -> None:
        """Forget states that only a checkpoint in a purged log file would need."""
        history, source = self.tracker.history, self._source
        assert history is not None
        assert source is not None
        try:
            first = await LogScan(self._connection.options, source).first_file()
            history.prune(BinlogPosition(first, FIRST_POSITION))
        except ReplicaError as error:
            _LOGGER.debug("nothing of %r is forgotten: %s", self._store, error)


async def _before(
    source: str, place: BinlogPosition, catalog: Catalog, statements: list[LoggedStatement]
) -> SchemaHistory:
    """``history_before``, for many statements in a thread: each takes 0.7 ms, and other tasks go on meanwhile."""
    if len(statements) < _MANY_STATEMENTS:
        # A program that forks has no thread without need.
        return history_before(source, place, catalog, statements)
    return await in_thread(history_before, source, place, catalog, statements)


async def stored_history(store: SchemaStore) -> SchemaHistory | None:
    """The history in a store; None if nothing has been saved. Raises ``CheckpointError`` for anything else."""
    lines = await settled(store.load())
    return None if lines is None else history_of(store, lines)


def history_of(store: SchemaStore, lines: Iterable[str]) -> SchemaHistory:
    """The history in the lines of a store. Raises ``CheckpointError`` for anything else."""
    try:
        return SchemaHistory.from_lines(lines)
    except ConfigurationError as error:
        raise CheckpointError(
            f"{store!r} holds {error}; restore it from a backup, or remove it: the tables are then read anew"
        ) from error


def _start(
    opening: FirstOpening, stored: Checkpoint | None, source: Source
) -> BinlogPosition | AnyGtidSet | None:
    """Where the stream begins in this server's log: the place if it is known, else the transactions before it."""
    start = opening.start
    if not start.by_gtid:
        return BinlogPosition(start.file, start.position) if start.file else None
    if stored is not None and stored.file and identity_of(stored) == identity_of(source):
        return BinlogPosition(stored.file, stored.position)
    return start.gtid_set
