"""Compares tables that statements may have changed with the source's information_schema, once the log is at its end.

    tracker.changed -> information_schema between two marks -> the schema history, if the two differ

A shape that the reader of statements could not tell becomes known this way, from the end of the log on. A
difference means that a statement was not logged (``sql_log_bin=0``, log filters) or was read wrongly: then nothing is
said of the rows behind the last statement that is known. It runs beside the stream, over the stream's second
connection, and the stream waits for it at its end alone.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Final

from protocol.errors import ReplicaError
from protocol.position import BinlogPosition, file_number

from ..config.log_facts import log_facts
from ..source.second_connection import SecondConnection
from ..source.server_facts import Source
from ..sql.quoting import hex_literal
from ..sql.token_reader import TableName
from .catalog import Unknown
from .past_history import contradict
from .reading import TableReader
from .schema_tracker import SchemaTracker
from .shape import Shape
from .timeline import SchemaHistory, State
from .touched import touched_by

_LOGGER: Final = logging.getLogger(__name__)
# Seconds between comparisons with a source that always writes. By GTIDs it reads its newest file from the beginning
# for each of them.
_PATIENCE: Final = 60


class Reconciliation:
    """One comparison at a time, for the ``SchemaTracker`` of one stream."""

    def __init__(self, tracker: SchemaTracker, connection: SecondConnection) -> None:
        self._tracker, self._connection = tracker, connection
        self._task: asyncio.Task[None] | None = None
        self._due_since: float | None = None

    @property
    def is_due(self) -> bool:
        """Whether a table has changed since the last comparison, and none is under way."""
        return bool(self._tracker.changed) and (self._task is None or self._task.done())

    def is_time(self, *, is_idle: bool) -> bool:
        """Whether to begin now: the log is idle, or a source that always writes has made it wait for long."""
        if not self.is_due:
            self._due_since = None
            return False
        now = time.monotonic()
        self._due_since = self._due_since or now
        return is_idle or now - self._due_since > _PATIENCE

    def begin(self, source: Source) -> None:
        """Begin a comparison with this source."""
        self._task = asyncio.create_task(self._compare(source))

    async def run(self, source: Source) -> None:
        """Compare tables that have changed, if no comparison is under way, and wait until that has ended.

        The stream has ended: of the log behind its end no more is read for this than the rest of a file and the next
        one, as the source may begin a file meanwhile.
        """
        if self.is_due:
            self._task = asyncio.create_task(self._compare(source, is_last=True))
        if self._task is not None:
            await asyncio.wait((self._task,))

    def abort(self) -> None:
        """Break off; the comparison is due again."""
        if self._task is not None:
            self._task.cancel()

    async def wait_ended(self) -> None:
        """Break off, and wait until the second connection is free."""
        self.abort()
        if self._task is not None:
            await asyncio.wait((self._task,))
            self._task = None

    async def _compare(self, source: Source, *, is_last: bool = False) -> None:
        tracker, history = self._tracker, self._tracker.history
        names, statements = frozenset(tracker.changed), tracker.statements
        if history is None:
            return
        try:
            async with self._connection.session() as session:
                reader = TableReader(session, source)
                reading = await reader.read(only_tables(names))
                reached = tracker.reached or history.head
                if is_last and file_number(reading.place.file) - file_number(reached.file) > 1:
                    return
                found = await reader.statements(reached, reading.place) if reached < reading.place else ()
        except ReplicaError as error:
            _LOGGER.debug("tables cannot be compared with the source: %s", error)
            tracker.compared(names)
            return
        touched = touched_by(logged.statement for logged in found)
        if tracker.statements != statements or tracker.history is not history or touched.among(names):
            # The tables were read at a later place than the stream's: compare them again later.
            return
        suspects = {name: tracker.suspects[name] for name in names & tracker.suspects.keys()}
        tracker.compared(names)
        tracker.settle()
        for name in names:
            since = _settle(history, name, reading.catalog.get(name), suspects.get(name))
            if since is not None:
                tracker.note(name, since)
                tracker.unseen.append(history.head)


def only_tables(names: Collection[TableName]) -> str:
    """The limit of ``BaselineQueries`` to these tables."""
    pairs = ", ".join(f"({hex_literal(name.schema)}, {hex_literal(name.name)})" for name in sorted(names))
    return f" AND (TABLE_SCHEMA, TABLE_NAME) IN ({pairs})"


def _settle(
    history: SchemaHistory,
    name: TableName,
    now: State,
    suspect: tuple[BinlogPosition, BinlogPosition] | None,
) -> BinlogPosition | None:
    """Correct the history of a table if the source shows another shape. Returns the place of the correction.

    ``suspect``: the places between which a statement that the log lacks has changed the table.
    """
    known = history.catalog.get(name)
    if not isinstance(now, Shape) or known is None:
        return None
    end = history.head
    if not (isinstance(known, Shape) and known.is_whole):
        # Not from the table's last change on: a statement about columns that are not known changes nothing.
        history.set_at(name, end, now)
        return end
    if not contradict(known, now):
        return None
    begin = history.places_of(name)[-1]
    if suspect is not None and begin < suspect[0]:
        begin, end = suspect
    reason = f"information_schema has other columns of {name} than the statements of the log lead to"
    _LOGGER.warning(
        "%s: a statement was not logged (sql_log_bin=0, log filters) or not understood; rows behind %s may have "
        "come under wrong names",
        reason,
        begin,
        extra=log_facts(
            "names-corrected", table=name, binlog_file=begin.file, binlog_position=begin.position
        ),
    )
    history.set_at(name, begin, Unknown(reason))
    # No statement of the log is about the table since then.
    history.set_at(name, end, now)
    return begin
