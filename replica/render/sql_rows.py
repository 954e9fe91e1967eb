"""Row changes as INSERT, UPDATE and DELETE statements that do them again, or undo them.

Text only: what stands around the statements, and in which order they come, is ``sql``'s. Rows are those of a decoder
with ``sql_cells``.
"""

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile

from protocol.binlog.events import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType
from protocol.errors import SourceConfigurationError, UnsupportedEventError
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from ..sql.quoting import identifier
from .json_values import JsonChanges
from .sql_values import ColumnSql, column_sql

_TABLES_KEPT = 512
# Rows of one INSERT: as many as reach one of these, which every server's max_allowed_packet has room for.
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
# Hidden columns: those of functional indexes (item_create.cc, make_functional_index_column_name), and behind all
# others those of MariaDB's unique keys over BLOB or TEXT (sql_table.cc, add_hash_field).
_HIDDEN = "!hidden!"
_HASH = re.compile(r"DB_ROW_HASH_[0-9]+")
# The period of a MariaDB table WITH SYSTEM VERSIONING, hidden too; its end is part of the primary key.
_PERIOD = ("row_start", "row_end")
# The one row of a MariaDB sequence (sql_sequence.cc). It can be inserted, but not deleted.
_SEQUENCE = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)


class RowStatements:
    """The statements of rows events.

    ``generated`` names by table ("shop.orders") the generated columns, which the log does not tell from others and
    which no statement may write. ``is_mariadb`` says whose log it is.
    """

    is_mariadb = False

    def __init__(self, generated: Mapping[str, Collection[str]] | None = None) -> None:
        self._generated = generated or {}
        self._tables: dict[int, _TableSql] = {}

    def redo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that do the changes again, in order.

        Raises ``SourceConfigurationError`` without names, and ``UnsupportedEventError`` for system-versioned tables.
        """
        table = self._table(event)
        if isinstance(event, WriteRowsEvent):
            yield from table.inserts(event.rows)
        elif isinstance(event, UpdateRowsEvent):
            yield from (table.update(before, after, before) for before, after in event.rows)
        elif isinstance(event, DeleteRowsEvent):
            yield from map(table.delete, event.rows)

    def undo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that undo the changes, the last one first. Sequences only go forward: what they did stays.

        Raises as ``redo``, and where row images are not complete.
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
        """Whether a row holds a value that columns can hold, but that strict SQL modes do not let in again.

        That is the invalid value of ENUM, and a power of ten in FLOAT or DOUBLE: FLOAT(9,3) ends at 999999.999, and
        in binary32 that is 1000000.
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
            if event.table.names_from is None:
                raise SourceConfigurationError(
                    f"SQL needs column names, and the log has none for {event.table} ({event.file}, at "
                    f"{event.position}): set binlog_row_metadata=FULL on the source, or give them with --schema"
                )
            if self.is_mariadb and _is_versioned(event.table):
                raise _unsupported(
                    event,
                    f"{event.table} is system-versioned, and no statement writes the periods of its rows",
                )
            if len(self._tables) >= _TABLES_KEPT:
                self._tables.clear()
            generated = self._generated.get(str(event.table), ())
            table = self._tables[id(event.table)] = _TableSql(event.table, generated)
        return table

    def _check_image(self, event: RowsEvent, before: Row, after: Row | None = None) -> None:
        """An image that lacks columns is not enough to go back to."""
        table = self._table(event)
        for index in table.written:
            changed = after is None or after[index] is not ABSENT
            if changed and (before[index] is ABSENT or isinstance(before[index], JsonChanges)):
                raise _unsupported(
                    event,
                    f"a row of {event.table} cannot be restored, as the log does not hold its column "
                    f"{event.table.columns[index].name!r}: undoing needs binlog_row_image=FULL on the source",
                )


class _TableSql:
    """A table's statements: what does not depend on the row is made once."""

    def __init__(self, table: Table, generated: Collection[str]) -> None:
        self.table = table  # keeps the id by which this is found from being used again
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
        """UPDATE of the row ``found`` to ``wanted``. What ``found`` does not hold of it is in ``complete``.

        Columns that stay as they are are set too: one with ON UPDATE CURRENT_TIMESTAMP would change otherwise.
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
        """Whether the image says which row it is."""
        return bool(self._key) and all(row[index] is not ABSENT for index in self._key)

    def _where(self, row: Row, complete: Row) -> str:
        """By the primary key, or else by all that is known of the row: then each of several equal rows will do."""
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
    """The columns that the server made for itself, which no statement may name."""
    hidden = {name for name in table.column_names if name.startswith(_HIDDEN)}
    return hidden.union(takewhile(_HASH.fullmatch, reversed(table.column_names)))


def _is_versioned(table: Table) -> bool:
    """Whether columns and key are those of a table WITH SYSTEM VERSIONING."""
    names = [name for name in table.column_names if not _HASH.fullmatch(name)]
    return tuple(names[-2:]) == _PERIOD and _PERIOD[1] in table.primary_key


def _unsupported(event: RowsEvent, reason: str) -> UnsupportedEventError:
    return UnsupportedEventError(reason, event.file, event.position, event.header.type)


def _insert(head: str, values: Sequence[str]) -> str:
    rows = ",\n".join(values)
    return f"{head}{rows};\n"


def _first_held(value: object, other: object) -> object:
    return other if value is ABSENT else value
