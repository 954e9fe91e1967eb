"""Reads the tables of a source for its schema history: information_schema between two marks of the log.

    low mark -> information_schema -> high mark -> the statements of the log between the marks

What is read is valid at the high mark, if no statement between the marks is about it; else it is read again. Low is
``gtid_executed`` where there are GTIDs of MySQL, else the end of the log; MySQL 8.0 and later without GTIDs then
finish the statements before it (``finished_changes``). It keeps no history, and knows no stream.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from protocol.binlog.decoder import WantsTable
from protocol.binlog.events import (
    Event,
    GtidEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
)
from protocol.conversation.messages import TextValue
from protocol.errors import ConfigurationError, PositionError, ProtocolError
from protocol.gtid import AnyGtidSet, GtidSet, MariadbGtidSet
from protocol.position import FIRST_POSITION, BinlogPosition
from protocol.records import record
from protocol.wire import utf8_text

from ..config.schema_store import SHOW_HISTORY
from ..config.table_filter import table_filter
from ..source.log_scan import LogScan
from ..source.server_facts import LogMark, Source, log_mark
from ..source.session import Session
from ..source.statement_answers import Question, rows_of
from ..sql.token_reader import TableName
from .baseline import COLUMN_VALUES, KEY_VALUES, VIEWS, BaselineQueries, packed_baseline
from .catalog import Catalog, Unknown
from .finished_changes import tables_in_change
from .logged_statements import LogTraits, shape_statement
from .past_history import LoggedStatement
from .timeline import SchemaHistory
from .touched import Touched, touched_by

_ATTEMPTS: Final = 5

# Whether a scan is over at an event, which ends at the place.
_IsOver = Callable[[Event, BinlogPosition], bool]
#: Whether no statement before a place is about the tables that are read, unless it was finished before.
IsUntouched = Callable[[BinlogPosition], Awaitable[bool]]


@record(slots=True, frozen=True)
class Reading:
    """All tables as they are at a place of the log."""

    catalog: Catalog
    place: BinlogPosition


def traits_of(source: Source) -> LogTraits:
    """What all statements of the source's log have in common."""
    return LogTraits(source.is_mariadb, source.version, source.folds_names, source.explicit_timestamps)


class TableReader:
    """Reads tables over one session, and the log over connections of its own.

    ``known_end``: the log was once seen to end there; a user who may not ask for its end does not read it again.
    """

    def __init__(self, session: Session, source: Source, known_end: BinlogPosition | None = None) -> None:
        self._session, self._source, self._traits = session, source, traits_of(source)
        self._scan, self._known_end = LogScan(session.options, source), known_end

    async def read(self, where: str = "", is_untouched: IsUntouched | None = None) -> Reading:
        """The tables; ``where`` limits them as in ``BaselineQueries``.

        ``is_untouched`` may know of a place of the log that no statement about the tables stands before it: then the
        log is not read for that. By GTIDs a source reads its newest file from the beginning. A table that statements
        keep changing while it is read is ``Unknown``, and one that the session's options do not select at the first
        such statement: a stream gets no rows of it. Raises what ``Session.query`` and a dump raise.
        """
        queries = BaselineQueries.of(self._traits, where)
        questions = (
            Question(queries.schemas, 2),
            Question(queries.tables, 5),
            Question(queries.columns, COLUMN_VALUES, is_packed=True),
            Question(queries.keys, KEY_VALUES, is_packed=True),
        )
        for _ in range(_ATTEMPTS):
            _, low = await log_mark(self._session, self._source)
            begin = await self._end_of(low)
            locked = await self._in_change(queries)
            answers, high = await log_mark(self._session, self._source, *questions)
            schemas, tables, columns, keys = map(rows_of, answers)
            catalog = packed_baseline(_texts(schemas), _texts(tables), columns, keys)
            end = await self._end_of(high)
            is_quiet = begin == end and not high.owned and high.executed == low.executed
            since = begin if low.executed is None else low.executed
            is_right = is_quiet or (is_untouched is not None and await is_untouched(end))
            touched = Touched() if is_right else await self._touched_in(since, end)
            if not self._selects_among(touched):
                break
        for table in {*locked, *touched.among(catalog.tables)} & catalog.tables.keys():
            catalog.set(table, Unknown(f"{table} was changed while it was read, at {end}"))
        return Reading(catalog, end)

    async def names(self) -> list[TableName]:
        """The names of all tables that the user may see now, without a place of the log."""
        rows = _texts(await self._session.query(BaselineQueries.of(self._traits).names, 3))
        return [TableName(schema or "", name or "") for schema, name, kind in rows if kind not in VIEWS]

    async def history(self, source: str) -> SchemaHistory:
        """The tables as they are now, or the whole history if the source serves a relay's files and has one.

        ``source`` identifies the source, as in ``SchemaHistory``. Raises what ``read`` raises.
        """
        lines = _texts(await self._session.query(SHOW_HISTORY, 1)) if self._source.is_relay else ()
        if not lines:
            reading = await self.read()
            folds = self._traits.folds_names
            return SchemaHistory(source, reading.place, reading.catalog, folds_names=folds)
        try:
            history = SchemaHistory.from_lines(line or "" for (line,) in lines)
        except ConfigurationError as error:
            raise ProtocolError(f"the source answered {SHOW_HISTORY} with {error}") from error
        history.source = source
        return history

    async def statements(
        self, begin: BinlogPosition | GtidSet, end: BinlogPosition | AnyGtidSet
    ) -> list[LoggedStatement]:
        """The statements of the log that may change shapes, from a place, or outside a GTID set, to another place.

        With a GTID set as ``end``: to the first transaction that is not in it and has none that is in it behind it.
        A set that grew on another server need not be a beginning of this log: the source leaves out the transactions
        of the set wherever they stand, and nobody would follow their statements. Statements before ``begin``, in its
        file, may be among them.
        """
        found, _ = await self.statements_and_end(begin, end)
        return found

    async def statements_and_end(
        self, begin: BinlogPosition | GtidSet, end: BinlogPosition | AnyGtidSet
    ) -> tuple[list[LoggedStatement], BinlogPosition | None]:
        """As ``statements``, with the end of the last statement of any kind that was read; None if there was none."""
        found: list[LoggedStatement] = []
        last: BinlogPosition | None = None
        if isinstance(end, BinlogPosition):
            until, is_over = end, _past_position(end)
        else:
            until, is_over = None, _past_transactions(end)
            if isinstance(begin, BinlogPosition):
                # The GTIDs before it stand at the beginning of its file.
                begin = BinlogPosition(begin.file, FIRST_POSITION)

        def visit(event: Event, file: str, position: int) -> bool:
            nonlocal last
            if is_over(event, BinlogPosition(file, position)):
                return True
            if isinstance(event, QueryEvent):
                last = BinlogPosition(file, position)
                statement = shape_statement(event, self._traits)
                if statement is not None:
                    found.append(LoggedStatement(last, statement))
            return False

        await self._scan.statements(begin, visit, until)
        return found, last

    async def _end_of(self, mark: LogMark) -> BinlogPosition:
        if mark.end is not None:
            return BinlogPosition(*mark.end)
        try:
            self._known_end = await self._scan.end(self._known_end)
        except PositionError:
            # It was purged since, or lost in a crash.
            self._known_end = await self._scan.end()
        return self._known_end

    async def _in_change(self, queries: BaselineQueries) -> list[TableName]:
        """Wanted tables that information_schema may show as they were before the low mark."""
        source = self._source
        if source.has_gtids or source.version < (8,) or source.is_relay:
            return []
        wants_table = self._wants_table()
        rows = _texts(await self._session.query(queries.tables, 3))
        names = [TableName(schema or "", name or "") for schema, name, kind in rows if kind == "BASE TABLE"]
        return await tables_in_change(
            self._session, [name for name in names if wants_table is None or wants_table(*name)]
        )

    def _wants_table(self) -> WantsTable | None:
        options = self._session.options
        return table_filter(options.tables, options.exclude_tables)

    def _selects_among(self, touched: Touched) -> bool:
        """Whether the options may select a touched table."""
        if not touched or touched.is_every or touched.schemas:
            return bool(touched)
        wants_table = self._wants_table()
        return wants_table is None or any(wants_table(*table) for table in touched.tables)

    async def _touched_in(self, begin: BinlogPosition | GtidSet, end: BinlogPosition) -> Touched:
        return touched_by(logged.statement for logged in await self.statements(begin, end))


def _past_position(end: BinlogPosition) -> _IsOver:
    return lambda event, place: place > end


def _past_transactions(wanted: AnyGtidSet) -> _IsOver:
    """Tells the first transaction outside a GTID set once all of the set have gone by."""
    seen: Any = type(wanted)()
    known: Any = wanted

    def is_over(event: Event, place: BinlogPosition) -> bool:
        nonlocal seen
        if isinstance(event, PreviousGtidsEvent):
            seen |= event.gtid_set
        elif isinstance(event, MariadbGtidListEvent):
            seen = MariadbGtidSet([*seen, *event.gtids])
        elif isinstance(event, GtidEvent | MariadbGtidEvent):
            if event.gtid not in known and known <= seen:
                return True
            seen.add(event.gtid)
        return False

    return is_over


def _texts(rows: Sequence[Sequence[TextValue]]) -> list[list[str | None]]:
    return [[utf8_text(value) if isinstance(value, bytes) else value for value in row] for row in rows]
