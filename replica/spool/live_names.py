"""Column names of a live log that has none: its schema history, kept in the spool, and the shapes for the pieces.

    folder/schemas        the history of the server that is followed; ``copied_names``: a copy for another machine
    folder/schemas-0      that of the server before (epoch 0), as long as the spool has its log

A statement is followed and saved before the spool has it; so the history knows all tables of the spool's log, also
after a kill. The source is asked when the log is opened, and for tables that the history does not know. This module
decodes no rows.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from protocol.binlog.events import Event, FormatDescriptionEvent, QueryEvent, TableMapEvent
from protocol.constants import STATEMENT_FRAME
from protocol.errors import ConfigurationError
from protocol.position import BinlogPosition, Checkpoint, file_number
from protocol.records import replace
from protocol.rows.table import Table, table_text

from ..config.options import Options
from ..config.schema_store import FileSchemaStore
from ..config.table_names import split_text
from ..schemas.logged_columns import logged_table
from ..schemas.logged_statements import LogTraits
from ..schemas.schema_keeper import SchemaKeeper, history_of
from ..schemas.schema_tracker import SchemaTracker, write_unsaved
from ..schemas.shape import Shape
from ..schemas.stored_log import identity_of
from ..schemas.table_shapes import read_shapes
from ..source.dump import Dump
from ..source.hosts import first_host
from ..source.open_dump import FirstOpening
from ..source.resolve_start import StartPoint
from ..source.session import Session
from ..sql.token_reader import TableName
from ..transactions.boundary import Progress
from .copied_names import CopiedSchemaStore
from .offsets import Key, Offset
from .placed_shapes import PlacedShapes, PlacedTables, between
from .spool import Segment
from .storage import StoredFile

_STORE: Final = "schemas"
# So many tables are not named anew at each of their table maps.
_MOST_NAMED: Final = 1000
_OLD_STORE: Final = re.compile(rf"{_STORE}-(\d+)")


class LiveNames:
    """The names of one stream's tables. ``on_table`` sees each table map's table, with its names; it may raise."""

    def __init__(
        self,
        options: Options,
        folder: str,
        on_table: Callable[[Table], None] | None,
        copy: StoredFile | None = None,
    ) -> None:
        self._folder = folder
        path = os.path.join(folder, _STORE)
        self._store = FileSchemaStore(path) if copy is None else CopiedSchemaStore(path, copy)
        self._options = replace(options, schemas=self._store, checkpoints=None)
        self._keeper = SchemaKeeper(self._options)
        self._on_table = on_table
        # Followed now: the keeper's, or that of an older part of the spool.
        self._tracker = self._keeper.tracker
        #: The server that is followed, or was last.
        self.epoch = 0
        self._waiting: list[tuple[TableMapEvent, int]] = []
        self._shapes: dict[str, tuple[tuple[Key, Shape | None], ...]] = {}
        self._placed = PlacedTables()
        # The table maps of the last stretch of the log that were named since the last statement.
        self._named: dict[int, tuple[Table, Table]] = {}
        self.is_open = False

    @property
    def is_waiting(self) -> bool:
        """Whether the source must be asked about a table before Spark gets the log from there on."""
        return bool(self._waiting)

    def shapes(self, begin: Key, end: Key) -> PlacedShapes:
        """The shapes that a piece between two places of the log needs."""
        tables = self._placed.between(begin, end)
        # The thread that reads the log adds tables.
        return between({name: self._shapes[name] for name in tables if name in self._shapes}, begin, end)

    # What the spool has.

    def clear(self) -> None:
        """The spool's content is of another query."""
        if isinstance(self._store, CopiedSchemaStore):
            self._store.clear()
        for name in [_STORE, *self._old_stores()]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, name))

    def fetch(self, segments: Iterable[Segment]) -> bool:
        """Take the copy if a driver on another machine has gone on; returns whether it serves these segments, too.

        Raises ``CheckpointError`` for a copy that cannot be read or used.
        """
        if not (isinstance(self._store, CopiedSchemaStore) and self._store.fetch()):
            return True
        source = history_of(self._store, self._store.load() or ()).source
        old = set(self._old_stores().values())
        return all(segment.epoch in old or _server(segment) == source for segment in segments)

    def take_up(self, epoch: int) -> None:
        """The next events are from the spool. Raises ``CheckpointError`` for a store that cannot be read."""
        old = os.path.join(self._folder, f"{_STORE}-{epoch}")
        store = FileSchemaStore(old) if os.path.exists(old) else self._store
        lines = store.load()
        self.epoch, self._tracker = epoch, SchemaTracker(self._options)
        self._named.clear()
        if lines is not None:
            traits = LogTraits(is_mariadb=False, version=())
            self._tracker.use(traits, history_of(store, lines))

    def trim(self, end: Offset) -> None:
        """The log before this offset is not needed any more."""
        for name, epoch in self._old_stores().items():
            if epoch < end.epoch:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))
        self._placed.trim(end.key)
        for table, states in list(self._shapes.items()):
            kept = next(
                (number for number, (place, _) in enumerate(states, 1) if place <= end.key), len(states)
            )
            if kept < len(states):
                self._shapes[table] = states[:kept]

    def _old_stores(self) -> dict[str, int]:
        found = map(_OLD_STORE.fullmatch, os.listdir(self._folder) if self._folder else ())
        return {match[0]: int(match[1]) for match in found if match is not None}

    # Connections.

    async def open(
        self, dump: Dump, start: StartPoint, boundary: Offset, epoch: int, *, is_behind_gap: bool = False
    ) -> None:
        """The log goes on with this dump, which has not begun. ``boundary``: where the spool ends.

        ``is_behind_gap``: the source has purged what follows there.

        Raises ``CheckpointError`` for a store that cannot be used, ``ConnectionLostError``.
        """
        if epoch != self.epoch:
            self._keep_old()
            self.epoch = epoch
        progress = Progress(boundary.file, boundary.position, boundary.gtids, has_gtids=True)
        if self.is_open:
            await self._keeper.use(
                dump, progress, boundary.identity, gap_end=start if is_behind_gap else None
            )
            self._named.clear()
            return
        if self._tracker is not self._keeper.tracker:
            # All statements up to the end of the spool are in the store.
            self._note_end(boundary.file, boundary.position)
        stored = Checkpoint(
            boundary.file, boundary.position, boundary.gtid_set, boundary.server_uuid, boundary.server_id
        )
        opening = FirstOpening(dump, start, None, progress)
        await self._keeper.open(opening, stored, is_behind_gap=is_behind_gap)
        self._tracker, self.is_open = self._keeper.tracker, True
        self._named.clear()

    def _keep_old(self) -> None:
        path = os.path.join(self._folder, _STORE)
        if os.path.exists(path):
            shutil.copyfile(path, f"{path}-{self.epoch}.new")
            os.chmod(f"{path}-{self.epoch}.new", os.stat(path).st_mode)
            os.replace(f"{path}-{self.epoch}.new", f"{path}-{self.epoch}")

    def _note_end(self, file: str, position: int) -> None:
        """The store has all statements before this place: that part of the log is not to be read again."""
        history = self._tracker.history
        if history is not None and file:
            place = BinlogPosition(file, position)
            if place > history.head:
                history.advance(place)
                self._store.append([history.head_line()])

    async def aclose(self) -> None:
        """Close the connection for questions."""
        await self._keeper.aclose()

    # Events.

    def look(self, event: Event, epoch: int) -> None:
        """Take an event of the log, before the spool has it."""
        tracker = self._tracker
        if tracker.history is None:
            tracker.begin_at(event.file, event.position)
        if isinstance(event, TableMapEvent):
            self._table_map(event, epoch)
        elif isinstance(event, QueryEvent) and not event.sql.startswith(STATEMENT_FRAME):
            self._named.clear()
            if tracker is self._keeper.tracker:
                tracker.follow(event)
        if tracker is self._keeper.tracker:
            write_unsaved(tracker, self._store)
            if isinstance(event, FormatDescriptionEvent):
                # A driver with an empty disk begins where Spark is. The source may have purged the files before.
                self._note_end(event.file, event.position)

    def _table_map(self, event: TableMapEvent, epoch: int) -> None:
        table = event.table
        if table.names_from is None:
            if self._placed.enter(_place(event, epoch)):
                self._named.clear()
            before, named = self._named.get(id(table), (None, None))
            if before is not table:
                self._placed.add(table_text(table.schema, table.name))
                named = self._tracker.named(event)
                if named is None:
                    self._waiting.append((event, epoch))
                    return
                self._note(event, epoch)
                if len(self._named) >= _MOST_NAMED:
                    self._named.clear()
                self._named[id(table)] = table, named
            table = named or table
        if self._on_table is not None:
            self._on_table(table)

    async def ask(self) -> None:
        """Ask the source about all tables that wait. Raises ``SchemaMismatchError`` if no shape fits the log."""
        while self._waiting:
            event, epoch = self._waiting[0]
            table = await self._keeper.describe(event)
            del self._waiting[0]
            if table is not None:
                self._note(event, epoch)
            else:
                self._add(event.table, _place(event, epoch), None)
            if self._on_table is not None:
                self._on_table(table or event.table)
        if self.is_open:
            await self._keeper.save()

    def _note(self, event: TableMapEvent, epoch: int) -> None:
        """Keep the shape of a table for the pieces, if it is not the last one."""
        history = self._tracker.history
        if history is not None:
            place = BinlogPosition(event.file, event.position)
            shape = history.shape_at(self._tracker.name_of(event.table), place)
            self._add(event.table, _place(event, epoch), shape if isinstance(shape, Shape) else None)

    def _add(self, table: Table, place: Key, shape: Shape | None) -> None:
        name = table_text(table.schema, table.name)
        known = self._shapes.get(name, ())
        if not known or (place > known[0][0] and shape != known[0][1]):
            self._shapes[name] = ((place, shape), *known)

    # Tables as they are now.

    async def table(self, name: str) -> Table:
        """The table as it is now. Raises ``ConfigurationError`` if the source does not show it."""
        wanted = TableName(*split_text(name))
        session = await first_host(self._options, Session.open)
        try:
            shapes = await read_shapes(session, [wanted])
        finally:
            await session.aclose()
        if not shapes:
            raise ConfigurationError(
                f"table: the source shows no table {name} to this user: grant the user SELECT on it, or give "
                ".schema(...)"
            )
        [shape] = shapes.values()
        return logged_table(*wanted, shape, is_mariadb=session.handshake.is_mariadb)


def _server(segment: Segment) -> str:
    """How a history names the server that a segment is of."""
    return identity_of(
        Checkpoint(segment.file, segment.position, None, segment.server_uuid, segment.server_id)
    )


def _place(event: Event, epoch: int) -> Key:
    return epoch, _number(event.file), event.position


# Each table map asks.
_number: Final = lru_cache(maxsize=4)(file_number)
