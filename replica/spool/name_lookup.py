"""Column names for tables of a live log that has none: from the spool, else from the source's information_schema.

After a statement that may be DDL, a table is looked up again when its next rows come: it may have renamed columns of
the same number and types. The names are kept in ``descriptions``; this module decodes no rows.
"""

from collections.abc import Callable
from typing import Final

from protocol.binlog.events import Event, QueryEvent, TableMapEvent
from protocol.constants import STATEMENT_FRAME
from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.position import file_number
from protocol.rows.description import describe_table
from protocol.rows.table import Table

from ..config.options import Options
from ..source.column_lookup import ColumnLookup
from .descriptions import described, table_of
from .offsets import Key
from .spool import Spool


class NameLookup:
    """Finds the column names of a stream's tables.

    ``on_table`` sees each table map's table, with its column names if they are known; it may raise.
    """

    def __init__(self, options: Options, on_table: Callable[[Table], None] | None) -> None:
        self._lookup: Final = ColumnLookup(options)
        self._on_table = on_table
        self._waiting: list[tuple[Table, Key]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a table must be looked up before Spark gets the log from there on."""
        return bool(self._waiting)

    def statement(self, event: QueryEvent, epoch: int, spool: Spool) -> None:
        """Take a statement of the log, which may have changed tables."""
        if event.sql.startswith(STATEMENT_FRAME):
            return
        self._lookup.forget()
        if spool.names:
            spool.learn_statement(_place(event, epoch))

    def table_map(self, event: TableMapEvent, epoch: int, spool: Spool) -> None:
        """Take a table map of the log."""
        table = event.table
        if table.names_from is None:
            place = _place(event, epoch)
            known = described(table, spool.names, place)
            if known is None and self._lookup.is_needed(table):
                self._waiting.append((table, place))
                return
            table = table if known is None else describe_table(table, known)
        if self._on_table is not None:
            self._on_table(table)

    async def describe(self, spool: Spool) -> None:
        """Look up all tables that wait, and keep their names in the spool."""
        while self._waiting:
            table, place = self._waiting[0]
            columns = await self._lookup.columns(table)
            del self._waiting[0]
            try:
                found = table if columns is None else describe_table(table, columns)
            except SchemaMismatchError:
                # The table has changed since then; the DDL that did it comes later, and has it looked up again.
                columns, found = None, table
            if columns is None:
                self._lookup.settle(table)
            else:
                spool.learn(table, columns, place)
            if self._on_table is not None:
                self._on_table(found)

    async def remember(self, name: str, place: Key, spool: Spool) -> None:
        """Keep a table's present column names for rows from ``place`` on, before a DDL in the log can change them."""
        if name in spool.names:
            return
        table = _nameless(name)
        columns = await self._lookup.columns(table)
        if columns:
            spool.learn(table, columns, place)

    async def table(self, name: str) -> Table:
        """The table as it is now. Raises ``ConfigurationError`` if the source does not show it."""
        columns = await self._lookup.columns(_nameless(name))
        if not columns:
            raise ConfigurationError(
                f"table: the source shows no table {name} to this user: grant the user SELECT on it, or give "
                ".schema(...)"
            )
        return table_of(name, columns)

    async def aclose(self) -> None:
        """Close the lookup's connection."""
        await self._lookup.aclose()


def _place(event: Event, epoch: int) -> Key:
    return epoch, file_number(event.file), event.position


def _nameless(name: str) -> Table:
    schema, _, table = name.partition(".")
    return Table(schema, table, ())
