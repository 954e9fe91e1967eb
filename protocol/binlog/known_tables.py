"""Keeps the tables of table maps by the bytes that describe them, within a limit of memory.

Each statement's rows follow a table map, and nearly always the same table map has come earlier. The part after the
names, called the shape, is parsed once for all tables with equal shapes: a source of 50,000 tables often has few.
The tables and shapes that were kept longest are forgotten first. This module reads no rows and decides nothing for
the user.
"""

from typing import Final

from ..constants import MAX_EVENT_SIZE
from ..records import replace
from ..rows.bounded_cache import BoundedCache
from ..rows.column import Column, labels_size
from ..rows.table import Table, TableShape, parse_names, parse_shape
from ..wire import Reader, check_size
from .rows_events import MappedTable

# Memory for tables (700 bytes and their table map's bytes each), for shapes, and for columns that shapes share.
_TABLES_BYTES: Final = 64 << 20
_SHAPES_BYTES: Final = 64 << 20
_COLUMNS_BYTES: Final = 16 << 20
_TABLE_SIZE: Final = 700
_SHAPE_SIZE: Final = 500
_COLUMN_SIZE: Final = 300
# A column that shapes share counts a part of its size in each of them.
_SHARERS: Final = 4
#: The table ids that one statement can have.
MAX_STATEMENT_TABLES: Final = 1 << 16


class KnownTables:
    """The tables of one decoder. ``tables`` has them by the bytes of the table map after its id and flags."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_SIZE) -> None:
        self._max_event_bytes = max_event_bytes
        self._shapes: BoundedCache[bytes, tuple[TableShape, set[bytes]]] = BoundedCache(
            _SHAPES_BYTES, self._forget_shape
        )
        self._columns: BoundedCache[Column, Column] = BoundedCache(_COLUMNS_BYTES)
        self._mariadb = False
        self._statement_bytes = 0
        self.tables: BoundedCache[bytes, MappedTable] = BoundedCache(_TABLES_BYTES, self._forget_table)

    def parse(self, table_map: bytes, mariadb: bool) -> Table:
        """The table of a table map; its parts are shared with other tables. Raises ``DecodeError``."""
        if mariadb is not self._mariadb:
            self._shapes.clear()
            self._mariadb = mariadb
        reader = Reader(table_map)
        schema, name = parse_names(reader)
        rest = table_map[reader.position :]
        known = self._shapes.get(rest)
        if known is None:
            shape, size = self._shared(parse_shape(reader, mariadb, self._max_event_bytes))
            known = shape, set()
            self._shapes.keep(rest, known, size + len(rest))
        return known[0].named(schema, name)

    def keep(self, table_map: bytes, mapped: MappedTable, is_first: bool) -> None:
        """Keep a table until others need the room.

        ``is_first``: it is the first table of its statement. Raises ``DecodeError`` if the new tables of one
        statement take more than ``max_event_bytes``.
        """
        size = _TABLE_SIZE + len(table_map) + _SHAPE_SIZE
        self._statement_bytes = size + (0 if is_first else self._statement_bytes)
        check_size("the table maps of a statement", self._statement_bytes, self._max_event_bytes)
        self.tables.keep(table_map, mapped, size)
        known = self._shapes.get(_rest(table_map))
        if known is not None:
            known[1].add(table_map)

    def describe(self, table: Table) -> Table:
        """The same table, whose columns are shared with other tables: they come from a description."""
        columns = tuple(map(self._shared_column, table.columns))
        return replace(table, columns=columns)

    def forget(self) -> None:
        """Treat every table as new from here on. The shapes stay: they depend on the bytes alone."""
        self.tables.clear()
        for _, tables in self._shapes.values():
            tables.clear()

    def _forget_table(self, table_map: bytes, mapped: MappedTable) -> None:
        known = self._shapes.get(_rest(table_map))
        if known is not None:
            known[1].discard(table_map)

    def _forget_shape(self, rest: bytes, known: tuple[TableShape, set[bytes]]) -> None:
        for table_map in known[1]:
            self.tables.drop(table_map)

    def _shared(self, shape: TableShape) -> tuple[TableShape, int]:
        """The shape with shared columns, and its size."""
        size = _SHAPE_SIZE
        columns = []
        for column in shape.columns:
            own = _column_size(column)
            shared = self._columns.get(column)
            if shared is None:
                shared = column
                self._columns.keep(column, column, own)
                size += own
            else:
                size += own // _SHARERS
            columns.append(shared)
        names = tuple(column.name for column in columns)
        return replace(shape, columns=tuple(columns), column_names=names), size

    def _shared_column(self, column: Column) -> Column:
        shared = self._columns.get(column)
        if shared is None:
            shared = column
            self._columns.keep(column, column, _column_size(column))
        return shared


def _rest(table_map: bytes) -> bytes:
    """The bytes after the names, each of which has a byte of length before it and a zero after it."""
    name = table_map[0] + 2
    return table_map[name + table_map[name] + 2 :]


def _column_size(column: Column) -> int:
    return _COLUMN_SIZE + labels_size([column])
