"""Row changes as INSERT, UPDATE and DELETE statements that repeat or undo them.

Takes rows of a decoder with ``sql_cells``, returns text. ``sql_lines`` decides the order, and adds transactions.
"""

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile

from protocol.binlog.events import DeleteRowsEvent, Event, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType
from protocol.errors import SourceConfigurationError, UnsupportedEventError
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from ..sql.quoting import identifier
from .json_values import JsonChanges
from .sql_values import ColumnSql, column_sql

_TABLES_BYTES = 32 << 20
_COLUMN_SIZE = 500
# One INSERT ends at this many rows or characters, which fit into every server's max_allowed_packet.
_MAX_INSERTED = 500
_MAX_INSERT_SIZE = 1 << 18
_BINARY32 = struct.Struct("<f")
_POWERS_OF_TEN = frozenset(
    sign * value
    for sign in (1, -1)
    for value in (
        *(10.0**exponent for exponent in range(309)),
        *(_BINARY32.unpack(_BINARY32.pack(10.0**exponent))[0] for exponent in range(39)),
    )
)
# Hidden columns: those of functional indexes (item_create.cc, make_functional_index_column_name), and after all other
# columns those of MariaDB's unique keys over BLOB or TEXT (sql_table.cc, add_hash_field).
_HIDDEN = "!hidden!"
_HASH = re.compile(r"DB_ROW_HASH_[0-9]+")
# The period of a MariaDB table WITH SYSTEM VERSIONING, also hidden; its end is part of the primary key.
_PERIOD = ("row_start", "row_end")
# The one row of a MariaDB sequence (sql_sequence.cc). It can be inserted, but not deleted.
_SEQUENCE = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)


class RowStatements:
    """Makes the statements of rows events.

    ``generated`` names the generated columns by table ("shop.orders"): no statement may write them, and the log does
    not mark them. ``versioned`` names system-versioned tables. ``is_mariadb`` is True for a log of MariaDB.
    """

    is_mariadb = False
    versioned: Collection[str] = ()

    def __init__(self, generated: Mapping[str, Collection[str]] | None = None) -> None:
        self.generated = generated or {}
        self._tables: BoundedCache[int, _TableSql] = BoundedCache(_TABLES_BYTES)

    def redo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that repeat the changes, in order.

        Raises ``SourceConfigurationError`` if the log has no column names, and ``UnsupportedEventError`` for
        system-versioned tables.
        """
        table = self._table(event)
        if isinstance(event, WriteRowsEvent):
            yield from table.inserts(event.rows)
        elif isinstance(event, UpdateRowsEvent):
            yield from (table.update(before, after, before) for before, after in event.rows)
        elif isinstance(event, DeleteRowsEvent):
            yield from map(table.delete, event.rows)

    def undo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that undo the changes, the last change first. Changes of sequences are not undone.

        Raises the errors of ``redo``, and ``UnsupportedEventError`` if row images are not complete.
        """
        table = self._table(event)
        if event.table.column_names == _SEQUENCE:
            return
        if isinstance(event, WriteRowsEvent):
            for row in reversed(event.rows):
                if not table.has_key(row):
                    self._check_image(event, row)
                yield table.delete(row)
        elif isinstance(event, UpdateRowsEvent):
            for before, after in reversed(event.rows):
                self._check_image(event, before, after)
                yield table.update(after, before, before)
        elif isinstance(event, DeleteRowsEvent):
            for row in event.rows:
                self._check_image(event, row)
            yield from table.inserts(event.rows[::-1])

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

    def _table(self, event: RowsEvent) -> "_TableSql":
        table = self._tables.get(id(event.table))
        if table is None:
            if event.table.names_from is None or _lacks_names(event.table):
                raise SourceConfigurationError(
                    f"the log has no column names for {event.table} at {event.file}:{event.position}, nor have the "
                    "files its CREATE TABLE, and SQL needs them: set binlog_row_metadata=FULL on the source, or give "
                    "the names with --schema"
                )
            if self.is_mariadb and (_is_versioned(event.table) or str(event.table) in self.versioned):
                raise unsupported(
                    event,
                    f"{event.table} is system-versioned, and no statement can write the periods of its rows",
                )
            generated = self.generated.get(str(event.table), ())
            table = _TableSql(event.table, generated)
            self._tables.keep(id(event.table), table, _COLUMN_SIZE * (1 + len(event.table.columns)))
        return table

    def _check_image(self, event: RowsEvent, before: Row, after: Row | None = None) -> None:
        """Raise if the image to restore lacks columns."""
        table = self._table(event)
        for index in table.written:
            changed = after is None or after[index] is not ABSENT
            if changed and (before[index] is ABSENT or isinstance(before[index], JsonChanges)):
                raise unsupported(
                    event,
                    f"a row of {event.table} cannot be restored, because its column "
                    f"{event.table.columns[index].name!r} is not in the log: undoing needs binlog_row_image=FULL on "
                    "the source",
                )


def _lacks_names(table: Table) -> bool:
    """Whether a schema history knows only some of the columns."""
    return any(name == f"@{number}" for number, name in enumerate(table.column_names, 1))


class _TableSql:
    """Makes the statements of one table; the parts that do not depend on the row are made once."""

    def __init__(self, table: Table, generated: Collection[str]) -> None:
        self.table = table  # kept alive, because this object is found by the table's id()
        self._name = f"{identifier(table.schema)}.{identifier(table.name)}"
        self._columns: list[ColumnSql] = [column_sql(column) for column in table.columns]
        hidden = _hidden_columns(table)
        readable = [index for index, name in enumerate(table.column_names) if name not in hidden]
        self.written = [index for index in readable if table.column_names[index] not in generated]
        self._compared = readable
        self._key = [table.column_names.index(name) for name in table.primary_key]
        self.enums = self._of_type(ColumnType.ENUM)
        self.floats = self._of_type(ColumnType.FLOAT, ColumnType.DOUBLE)

    def _of_type(self, *types: ColumnType) -> list[int]:
        return [index for index in self.written if self.table.columns[index].type in types]

    def inserts(self, rows: Sequence[Row]) -> Iterator[str]:
        """INSERT statements of many rows each. All rows of an event hold the same columns."""
        if not rows:
            return
        held = [index for index in self.written if rows[0][index] is not ABSENT]
        columns = [self._columns[index] for index in held]
        head = f"INSERT INTO {self._name} ({', '.join(column.name for column in columns)}) VALUES\n"
        values: list[str] = []
        size = 0
        for row in rows:
            texts = [column.value(row[index]) for index, column in zip(held, columns, strict=True)]
            values.append(f"({', '.join(texts)})")
            size += len(values[-1])
            if len(values) == _MAX_INSERTED or size >= _MAX_INSERT_SIZE:
                yield _insert(head, values)
                values, size = [], 0
        if values:
            yield _insert(head, values)

    def update(self, found: Row, wanted: Row, complete: Row) -> str:
        """UPDATE of the row ``found`` to ``wanted``. Columns that ``found`` lacks are taken from ``complete``.

        Unchanged columns are set, too: a column with ON UPDATE CURRENT_TIMESTAMP would change otherwise.
        """
        assignments = [
            self._columns[index].assignment(wanted[index])
            for index in self.written
            if wanted[index] is not ABSENT
        ]
        if not assignments:
            return ""
        where = self._where(found, complete)
        return f"UPDATE {self._name} SET {', '.join(assignments)} WHERE {where} LIMIT 1;\n"

    def delete(self, row: Row) -> str:
        """DELETE of one row."""
        return f"DELETE FROM {self._name} WHERE {self._where(row, row)} LIMIT 1;\n"

    def has_key(self, row: Row) -> bool:
        """Whether the image holds the whole primary key."""
        return bool(self._key) and all(row[index] is not ABSENT for index in self._key)

    def _where(self, row: Row, complete: Row) -> str:
        """A condition on the primary key, or else on all known columns: then any of several equal rows is right."""
        key = [(index, _first_held(row[index], complete[index])) for index in self._key]
        if key and all(value is not ABSENT for _, value in key):
            return " AND ".join([self._columns[index].key_condition(value) for index, value in key])
        known = [(index, _first_held(row[index], complete[index])) for index in self._compared]
        conditions = [
            self._columns[index].condition(value)
            for index, value in known
            if value is not ABSENT and not isinstance(value, JsonChanges)
        ]
        return " AND ".join(conditions) or "TRUE"


def _hidden_columns(table: Table) -> set[str]:
    """The hidden columns, made by the server for itself, which no statement may name."""
    hidden = {name for name in table.column_names if name.startswith(_HIDDEN)}
    return hidden.union(takewhile(_HASH.fullmatch, reversed(table.column_names)))


def _is_versioned(table: Table) -> bool:
    """Whether the table has the columns and the key of a table WITH SYSTEM VERSIONING."""
    names = [name for name in table.column_names if not _HASH.fullmatch(name)]
    return tuple(names[-2:]) == _PERIOD and _PERIOD[1] in table.primary_key


def unsupported(event: Event, reason: str) -> UnsupportedEventError:
    """What is raised for an event that cannot be written as SQL."""
    return UnsupportedEventError(reason, event.file, event.position, event.header.type)


def _insert(head: str, values: Sequence[str]) -> str:
    rows = ",\n".join(values)
    return f"{head}{rows};\n"


def _first_held(value: object, other: object) -> object:
    return other if value is ABSENT else value
