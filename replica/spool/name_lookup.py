"""Which names the tables of a live log have that brings none: those of the spool, else those that the source has now.

Whatever a statement may have changed is asked for again at the table's next rows: a table that has as many columns of
the same types as before may have other names for them.
"""

from collections.abc import Callable
from typing import Final

from protocol.binlog.events import Event, QueryEvent, TableMapEvent
from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.rows.description import describe_table
from protocol.rows.table import Table
from replica.config.options import Options
from replica.source.column_lookup import ColumnLookup
from replica.sql.statement_kind import FRAME

from .descriptions import described, table_of
from .offsets import Key, file_number
from .spool import Spool


class Naming:
    """``on_table`` sees each table of the log, with its names if they are known; it may raise."""

    def __init__(self, options: Options, on_table: Callable[[Table], None] | None) -> None:
        self._lookup: Final = ColumnLookup(options)
        self._on_table = on_table
        self._waiting: list[tuple[Table, Key]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether a table has come that is to be described before anything behind it is given to Spark."""
        return bool(self._waiting)

    def statement(self, event: QueryEvent, epoch: int, spool: Spool) -> None:
        """A statement of the log, which may have changed tables."""
        self._lookup.statement(event.sql)
        if spool.names and not event.sql.startswith(FRAME):
            spool.learn_statement(_place(event, epoch))

    def table_map(self, event: TableMapEvent, epoch: int, spool: Spool) -> None:
        """A table of the log."""
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
        """Names for all tables that wait."""
        while self._waiting:
            table, place = self._waiting[0]
            columns = await self._lookup.columns(table)
            del self._waiting[0]
            try:
                found = table if columns is None else describe_table(table, columns)
            except SchemaMismatchError:
                # It has changed since then; a DDL that comes will have it looked up again.
                columns, found = None, table
            if columns is None:
                self._lookup.settle(table)
            else:
                spool.learn(table, columns, place)
            if self._on_table is not None:
                self._on_table(found)

    async def remember(self, name: str, place: Key, spool: Spool) -> None:
        """A table's columns now, for rows from there on: the log may tell of it only when it has been changed."""
        if name in spool.names:
            return
        table = _nameless(name)
        columns = await self._lookup.columns(table)
        if columns:
            spool.learn(table, columns, place)

    async def table(self, name: str) -> Table:
        """A table as it is now. Raises ``ConfigurationError`` if the source does not show it."""
        columns = await self._lookup.columns(_nameless(name))
        if not columns:
            raise ConfigurationError(
                f"table: the source shows no table {name} to this user: grant it SELECT on it, or give .schema(...)"
            )
        return table_of(name, columns)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._lookup.aclose()


def _place(event: Event, epoch: int) -> Key:
    return epoch, file_number(event.file), event.position


def _nameless(name: str) -> Table:
    schema, _, table = name.partition(".")
    return Table(schema, table, ())
