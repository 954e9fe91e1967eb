"""Reads the tables of a source for its schema history: information_schema between two marks of the log.

    low mark -> information_schema -> high mark -> the statements of the log between the marks

What is read is valid at the high mark, if no statement between the marks is about it; else it is read again. Low is
``gtid_executed`` where there are GTIDs of MySQL, else the end of the log: 8.0 and later write a statement into the
log before information_schema shows what it did. It keeps no history, and knows no stream.
"""

from collections.abc import Sequence
from typing import Final

from protocol.binlog.events import Event, GtidEvent, MariadbGtidEvent, QueryEvent
from protocol.binlog.query_status import is_unfinished_alter
from protocol.conversation.messages import TextValue
from protocol.errors import ConfigurationError, ProtocolError
from protocol.gtid import AnyGtidSet, GtidSet
from protocol.position import BinlogPosition
from protocol.records import record
from protocol.wire import utf8_text

from ..config.schema_store import SHOW_HISTORY
from ..source.log_scan import LogScan
from ..source.resolve_start import log_end
from ..source.server_facts import Source, executed_gtids, owned_gtids
from ..source.session import Session
from .baseline import BaselineQueries, Row, baseline
from .catalog import Catalog, Unknown
from .logged_statements import LogTraits, statement_of
from .past_history import LoggedStatement
from .timeline import SchemaHistory
from .touched import Touched, touched_by

_ATTEMPTS: Final = 5


@record(slots=True, frozen=True)
class Reading:
    """All tables as they are at a place of the log."""

    catalog: Catalog
    place: BinlogPosition


def traits_of(source: Source) -> LogTraits:
    """What all statements of the source's log have in common."""
    return LogTraits(source.is_mariadb, source.version, source.folds_names, source.explicit_timestamps)


class TableReader:
    """Reads tables over one session, and the log over connections of its own."""

    def __init__(self, session: Session, source: Source) -> None:
        self._session, self._source, self._traits = session, source, traits_of(source)
        self._scan = LogScan(session.options, source)

    async def read(self, where: str = "") -> Reading:
        """The tables; ``where`` limits them as in ``BaselineQueries``.

        A table that statements keep changing while it is read is ``Unknown``. Raises what ``Session.query`` and a
        dump raise.
        """
        queries = BaselineQueries.of(self._traits, where)
        for _ in range(_ATTEMPTS):
            low = await self._low_mark()
            rows = [
                await self._rows(sql, columns)
                for sql, columns in (
                    (queries.schemas, 2),
                    (queries.tables, 5),
                    (queries.columns, 11),
                    (queries.keys, 8),
                )
            ]
            high = await log_end(self._session, self._source, self._scan)
            catalog = _catalog(rows)
            touched = await self._touched_since(low, high)
            if not touched:
                break
        for table in touched.among(catalog.tables):
            catalog.set(table, Unknown(f"{table} was changed while it was read, at {high}"))
        return Reading(catalog, high)

    async def history(self, source: str) -> SchemaHistory:
        """The tables as they are now, or the whole history if the source serves a relay's files and has one.

        ``source`` identifies the source, as in ``SchemaHistory``. Raises what ``read`` raises.
        """
        lines = await self._rows(SHOW_HISTORY, 1) if self._source.is_relay else ()
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
        """The statements of the log from a place, or outside a GTID set, to another place.

        With a GTID set as ``end``: to the first transaction that is not in it.
        """
        found: list[LoggedStatement] = []

        def visit(event: Event, file: str, position: int) -> bool:
            if not isinstance(end, BinlogPosition):
                if isinstance(event, GtidEvent | MariadbGtidEvent) and event.gtid not in end:  # type: ignore[operator]
                    return True
            elif BinlogPosition(file, position) > end:
                return True
            if isinstance(event, QueryEvent) and not is_unfinished_alter(event.status_variables):
                found.append(
                    LoggedStatement(BinlogPosition(file, position), statement_of(event, self._traits))
                )
            return isinstance(end, BinlogPosition) and BinlogPosition(file, position) == end

        await self._scan.statements(begin, visit, end if isinstance(end, BinlogPosition) else None)
        return found

    async def _low_mark(self) -> "_LowMark":
        end = await log_end(self._session, self._source, self._scan)
        gtid_set: AnyGtidSet | None = None
        if self._source.has_gtids and not self._source.is_mariadb:
            gtid_set = await executed_gtids(self._session, self._source)
        return _LowMark(end, gtid_set)

    async def _touched_since(self, low: "_LowMark", high: BinlogPosition) -> Touched:
        if low.end == high and await self._is_committed(low):
            return Touched()
        begin = low.gtid_set if isinstance(low.gtid_set, GtidSet) else low.end
        found = await self.statements(begin, high)
        return touched_by(logged.statement for logged in found)

    async def _is_committed(self, low: "_LowMark") -> bool:
        """Whether all that the log had at the low mark was visible then."""
        if not isinstance(low.gtid_set, GtidSet):
            return True
        # A transaction goes from gtid_owned to gtid_executed: this order misses none.
        owned = await owned_gtids(self._session)
        return not owned and await executed_gtids(self._session, self._source) == low.gtid_set

    async def _rows(self, sql: str, columns: int) -> list[list[str | None]]:
        return [[_text(value) for value in row] for row in await self._session.query(sql, columns)]


@record(slots=True, frozen=True)
class _LowMark:
    end: BinlogPosition
    gtid_set: AnyGtidSet | None


def _catalog(rows: Sequence[Sequence[Row]]) -> Catalog:
    """The tables that the answers describe; ``ProtocolError`` for answers that describe none."""
    schemas, tables, columns, keys = rows
    try:
        return baseline(schemas, tables, columns, keys)
    except (ValueError, LookupError, TypeError) as error:
        raise ProtocolError(f"information_schema answered with rows that are no tables: {error!r}") from error


def _text(value: TextValue) -> str | None:
    return value if value is None or isinstance(value, str) else utf8_text(value)
