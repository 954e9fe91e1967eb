"""Row changes as INSERT, UPDATE and DELETE statements that repeat or undo them.

Takes rows of a decoder with ``sql_cells``, returns text. ``sql_lines`` decides the order, and adds transactions.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from protocol.binlog.events import RowsEvent, UpdateRowsEvent
from protocol.constants import ColumnType
from protocol.errors import SourceConfigurationError
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from .sql_session import SqlSession
from .sql_table import TableSql, unsupported
from .sql_versions import PendingHistory, Period, VersionedSql, period_of

_TABLES_BYTES = 32 << 20
_COLUMN_SIZE = 500
_BINARY32 = struct.Struct("<f")
_POWERS_OF_TEN = frozenset(
    sign * value
    for sign in (1, -1)
    for value in (
        *(10.0**exponent for exponent in range(309)),
        *(_BINARY32.unpack(_BINARY32.pack(10.0**exponent))[0] for exponent in range(39)),
    )
)
# The one row of a MariaDB sequence (sql_sequence.cc). It can be inserted, but not deleted.
_SEQUENCE = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)


class RowStatements:
    """Makes the statements of rows events, in a session that ``session`` tracks.

    ``generated`` names the generated columns by table ("shop.orders"): no statement may write them, and the log does
    not mark them. ``periods`` names start and end of system-versioned tables whose columns alone do not tell.
    ``is_mariadb`` is True for a log of MariaDB.
    """

    is_mariadb = False
    periods: Mapping[str, Period] = MappingProxyType({})

    def __init__(self, session: SqlSession, generated: Mapping[str, Collection[str]] | None = None) -> None:
        self.generated = generated or {}
        self._session = session
        self._pending = PendingHistory()
        self._tables: BoundedCache[int, TableSql] = BoundedCache(_TABLES_BYTES)

    def redo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that repeat the changes, in order.

        Raises ``SourceConfigurationError`` if the log has no column names, and ``UnsupportedEventError`` for a
        change of a row that is history, or a period of transaction numbers.
        """
        table = self._table(event)
        if not isinstance(table, VersionedSql):
            yield self._session.after_moments(event.header.timestamp)
        yield from table.redo(event)

    def undo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that undo the changes, the last change first. Changes of sequences are not undone.

        Raises the errors of ``redo``, and ``UnsupportedEventError`` if row images are not complete, or for a row
        that was inserted into the history.
        """
        table = self._table(event)
        if event.table.column_names != _SEQUENCE:
            yield from table.undo(event)

    def needs_lenient_mode(self, event: RowsEvent) -> bool:
        """Whether a row holds a stored value that strict SQL modes would refuse.

        Such values are the invalid value of ENUM, and powers of ten in FLOAT or DOUBLE: the largest FLOAT(9,3) is
        999999.999, which in binary32 is 1000000.
        """
        table = self._table(event)
        if not table.enums and not table.floats:
            return False
        rows: Iterator[Row] = (
            (image for pair in event.rows for image in pair)
            if isinstance(event, UpdateRowsEvent)
            else iter(getattr(event, "rows", ()))
        )
        return any(
            any(row[index] == 0 for index in table.enums)
            or any(row[index] in _POWERS_OF_TEN for index in table.floats)
            for row in rows
        )

    def _table(self, event: RowsEvent) -> TableSql:
        table = self._tables.get(id(event.table))
        if table is None:
            if event.table.names_from is None or _lacks_names(event.table):
                raise SourceConfigurationError(
                    f"the log has no column names for {event.table} at {event.file}:{event.position}, nor have the "
                    "files its CREATE TABLE, and SQL needs them: set binlog_row_metadata=FULL on the source, or give "
                    "the names with --schema"
                )
            table = self._new_table(event)
            self._tables.keep(id(event.table), table, _COLUMN_SIZE * (1 + len(event.table.columns)))
        return table

    def _new_table(self, event: RowsEvent) -> TableSql:
        table, name = event.table, str(event.table)
        generated = self.generated.get(name, ())
        period = None
        if self.is_mariadb:
            # Events are decoded ahead: facts known by the table's name may come from a later definition of the table.
            known = self.periods.get(name)
            fits = known is not None and set(known) <= set(table.column_names)
            period = period_of(event, generated) or (known if fits else None)
        if period is None:
            return TableSql(table, generated)
        if any(column.type is not ColumnType.TIMESTAMP2 for column in table.columns if column.name in period):
            raise unsupported(
                event, f"{name} has periods of transaction numbers, which are others on another server"
            )
        return VersionedSql(table, generated, period, self._session, self._pending)


def _lacks_names(table: Table) -> bool:
    """Whether a schema history knows only some of the columns."""
    return any(name == f"@{number}" for number, name in enumerate(table.column_names, 1))
