"""The schema history that a relay keeps beside its files, so that whoever reads them has names for their tables.

    information_schema, statements of the log -> SchemaTracker -> relay.schemas

The tables are read when the relay connects for the first time; from there on the statements that it copies are
followed, each before it is written. Where one does not tell columns, the source is asked for them once the log is
idle. Rows are not looked at. ``open_binlog``, ``BinlogServer`` and Spark read the file.
"""

import asyncio
import logging
import os
from typing import Final

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import QueryEvent
from protocol.constants import EVENT_TYPE_OFFSET, EventType
from protocol.errors import ConfigurationError, DecodeError, ServerError
from protocol.position import FIRST_POSITION, BinlogPosition, file_number, file_with_number, split_file_name

from ..config.log_facts import log_facts
from ..config.options import Options
from ..config.schema_store import FileSchemaStore
from ..files.table_descriptions import RELAY_STORE
from ..schemas.catalog import Catalog
from ..schemas.logged_statements import LogTraits
from ..schemas.past_history import is_doubtful
from ..schemas.reading import TableReader, traits_of
from ..schemas.reconciliation import Reconciliation, only_tables
from ..schemas.schema_keeper import stored_history
from ..schemas.schema_tracker import SchemaTracker, write_unsaved
from ..schemas.shape import Shape
from ..schemas.stored_log import identity_of
from ..schemas.timeline import SchemaHistory
from ..schemas.touched import touched_by
from ..server.served_log import FileEvents
from ..source.second_connection import SecondConnection
from ..source.server_facts import Source
from ..source.session import Session

_LOGGER: Final = logging.getLogger(__name__)

# Why a source's tables have no names.
_NO_NAMES: Final = "the user sees no table"
# Up to so many tables are asked for by name.
_FEW: Final = 500
#: Types of events that are statements.
STATEMENTS: Final = frozenset({EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED})


class RelaySchemas:
    """The history of one relay's directory, in the file ``relay.schemas`` there (mode 0600)."""

    def __init__(self, options: Options, folder: str) -> None:
        self._options, self._folder = options, folder
        self._store = FileSchemaStore(os.path.join(folder, RELAY_STORE))
        self._tracker = SchemaTracker(options)
        self._traits = LogTraits(is_mariadb=False, version=())
        self._decoder = EventDecoder()
        self._learning: asyncio.Task[None] | None = None

    async def open(self, session: Session, source: Source, start: BinlogPosition | None) -> None:
        """Take up the history where the files end (``start``; None: there are none), or read the tables.

        Without an answer of information_schema there is no history yet: the next connection asks again. Raises
        ``CheckpointError`` for a file that cannot be used, ``ConnectionLostError``.
        """
        reader, source_id = TableReader(session, source), identity_of(source)
        self._traits = traits_of(source)
        is_stored = self._tracker.history is None
        history = await stored_history(self._store) if is_stored else self._tracker.history
        if history is not None and not (history.source == source_id and _is_of_log(history, start)):
            history = None
        if is_stored and history is not None and start is not None:
            history = self._followed(history, start, source)
        self._decoder = _decoder(source)
        try:
            if history is None:
                history = await reader.history(source_id)
            elif start is not None:
                history.advance(start)
                await _learn(history, reader)
        except (ServerError, ConfigurationError) as error:
            _LOGGER.debug("the tables cannot be read: %s", error)
        self._tracker.use(self._traits, history)
        self.save()
        if not source.is_relay and (history is None or not history.catalog.listed):
            await self._warn_of_names(session)

    def learn(self, session: Session, source: Source) -> None:
        """Beside the copying: ask the source for columns that statements did not tell. Raises ``CheckpointError``."""
        if self._learning is None or self._learning.done():
            self._raise_error()
            self._learning = (
                asyncio.create_task(self.learn_now(session, source)) if self._lacks_any() else None
            )

    async def learn_now(self, session: Session, source: Source) -> None:
        """The same, and wait until they are saved."""
        if not self._lacks_any():
            return
        connection = SecondConnection(session.options, "SET SESSION lock_wait_timeout = 1")
        reconciliation = Reconciliation(self._tracker, connection)
        try:
            await reconciliation.run(source)
        finally:
            await reconciliation.wait_ended()
            await connection.aclose()
        self.save()

    def _lacks_any(self) -> bool:
        """Whether columns of a table are not known that a statement has changed since they were asked for."""
        tracker = self._tracker
        known = Catalog() if tracker.history is None else tracker.history.catalog
        tracker.compared({table for table in tracker.changed if not is_doubtful(known.get(table))})
        return bool(tracker.changed)

    def _raise_error(self) -> None:
        if self._learning is not None and not self._learning.cancelled():
            self._learning.result()

    async def close(self) -> None:
        """End what is asked of the source, as the connection to it ends."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait((self._learning,))
            self._learning = None

    async def _warn_of_names(self, session: Session) -> None:
        """Warn that readers of the rows will get no column names. The copy is right."""
        options = self._options
        if _NO_NAMES in options.warned:
            return
        options.warned.add(_NO_NAMES)
        rows = await session.query("SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'", 2)
        if any(row[1] == "FULL" for row in rows):
            return
        _LOGGER.warning(
            "the user sees no table of %s: readers of these files get no column names, but @1, @2... -- GRANT SELECT "
            "on the tables to the user%s",
            options.address,
            ", or set binlog_row_metadata=FULL on the source" if rows else "",
            extra=log_facts("names-unknown", table="*", reason=_NO_NAMES),
        )

    def _followed(self, history: SchemaHistory, end: BinlogPosition, source: Source) -> SchemaHistory | None:
        """Apply the statements in the files after the history's head; None if not all files are there.

        A statement is applied before it is written to a file, so the files have later statements only if the store
        was restored from a backup.
        """
        self._tracker.use(self._traits, history)
        base, digits = split_file_name(history.head.file)
        first, last = file_number(history.head.file), file_number(end.file)
        for number in range(first, last + 1):
            file = file_with_number(base, digits, number)
            self._decoder = _decoder(source, file)
            try:
                self._follow_file(os.path.join(self._folder, file))
            except (OSError, DecodeError) as error:
                _LOGGER.debug("the statements behind %s cannot be read: %s", history.head, error)
                return None
        return history

    def _follow_file(self, path: str) -> None:
        with FileEvents(path) as events:
            position = FIRST_POSITION
            while batch := events.read():
                for raw in batch:
                    if raw[EVENT_TYPE_OFFSET] == EventType.FORMAT_DESCRIPTION:
                        self._decoder.decode(raw, position)
                    elif raw[EVENT_TYPE_OFFSET] in STATEMENTS:
                        self.follow(raw, position)
                    position += len(raw)

    def describe(self, description: bytes) -> None:
        """Note the FORMAT_DESCRIPTION that holds from here on."""
        self._decoder.decode(description, FIRST_POSITION)

    def enter(self, file: str, position: int) -> None:
        """The log goes on at this place. Where a file begins the history is saved: its readers need no older file."""
        history, place = self._tracker.history, BinlogPosition(file, position)
        self._decoder.file = file
        if history is None or position != FIRST_POSITION:
            return
        if not _is_of_log(history, place):
            # The source's log has another name now: the tables are read anew at the next connection.
            self._tracker.use(self._traits, None)
        elif place > history.head:
            history.advance(place)
            self._tracker.renew()

    def follow(self, raw: bytes, position: int) -> None:
        """Do what a statement does; ``position`` is its place in the file. Raises ``DecodeError``."""
        event = self._decoder.decode(raw, position)
        if isinstance(event, QueryEvent):
            self._tracker.follow(event)

    def save(self) -> None:
        """Write what the file lacks, and sync it. Raises ``CheckpointError``."""
        write_unsaved(self._tracker, self._store)


async def _learn(history: SchemaHistory, reader: TableReader) -> None:
    """Enter tables whose columns are not known at the head, the end of the files, as the source has them now."""
    known, place = history.catalog, history.head
    names = [
        table for table in await reader.names() if (state := known.get(table)) is None or is_doubtful(state)
    ]
    if not names:
        # Each connection would read the columns of all tables.
        return
    reading = await reader.read(only_tables(names) if len(names) <= _FEW else "")
    shapes = {table: reading.catalog.get(table) for table in names}
    tables = {table: shape for table, shape in shapes.items() if isinstance(shape, Shape)}
    if tables and place < reading.place:
        found = await reader.statements(place, reading.place)
        touched = touched_by(logged.statement for logged in found)
        tables = {table: shape for table, shape in tables.items() if table not in touched}
    for table, shape in tables.items():
        history.set_at(table, place, shape)


def _is_of_log(history: SchemaHistory, place: BinlogPosition | None) -> bool:
    return place is None or split_file_name(history.head.file)[0] == split_file_name(place.file)[0]


def _decoder(source: Source, file: str = "") -> EventDecoder:
    return EventDecoder(file=file, mariadb=source.is_mariadb, verify_checksum=False)
