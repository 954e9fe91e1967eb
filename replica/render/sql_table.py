"""INSERT, UPDATE and DELETE of one table's rows. ``sql_rows`` chooses them; ``sql_versions`` extends them."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from protocol.binlog.events import DeleteRowsEvent, Event, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.constants import ColumnType
from protocol.errors import UnsupportedEventError
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from ..sql.quoting import identifier
from .json_values import JsonChanges
from .sql_values import ColumnSql, column_sql

# One INSERT ends at this many rows or characters, which fit into every server's max_allowed_packet.
_MAX_INSERTED = 500
_MAX_INSERT_SIZE = 1 << 18
# Hidden columns: those of functional indexes (item_create.cc, make_functional_index_column_name), and after all other
# columns those of MariaDB's unique keys over BLOB or TEXT (sql_table.cc, add_hash_field).
_HIDDEN = "!hidden!"
HASH = re.compile(r"DB_ROW_HASH_[0-9]+")


class TableSql:
    """Makes the statements of one table; the parts that do not depend on the row are made once."""

    def __init__(self, table: Table, generated: Collection[str], period: Collection[str] = ()) -> None:
        self.table = table  # kept alive, because this object is found by the table's id()
        self.name = f"{identifier(table.schema)}.{identifier(table.name)}"
        self.columns: list[ColumnSql] = [column_sql(column) for column in table.columns]
        unused = _hidden_columns(table).union(period)
        self._compared = [index for index, name in enumerate(table.column_names) if name not in unused]
        self.written = [index for index in self._compared if table.column_names[index] not in generated]
        self.key = [table.column_names.index(name) for name in table.primary_key if name not in period]
        self.enums = self._of_type(ColumnType.ENUM)
        self.floats = self._of_type(ColumnType.FLOAT, ColumnType.DOUBLE)

    def _of_type(self, *types: ColumnType) -> list[int]:
        return [index for index in self.written if self.table.columns[index].type in types]

    def redo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that repeat the changes, in order."""
        if isinstance(event, WriteRowsEvent):
            yield from self.inserts(event.rows)
        elif isinstance(event, UpdateRowsEvent):
            yield from (self.update(before, after, before) for before, after in event.rows)
        elif isinstance(event, DeleteRowsEvent):
            yield from map(self.delete, event.rows)

    def undo(self, event: RowsEvent) -> Iterator[str]:
        """Statements that undo the changes, the last change first.

        Raises ``UnsupportedEventError`` if row images are not complete.
        """
        if isinstance(event, WriteRowsEvent):
            for row in reversed(event.rows):
                yield self.undo_insert(event, row)
        elif isinstance(event, UpdateRowsEvent):
            for before, after in reversed(event.rows):
                self.check_image(event, before, after)
                yield self.update(after, before, before)
        elif isinstance(event, DeleteRowsEvent):
            for row in event.rows:
                self.check_image(event, row)
            yield from self.inserts(event.rows[::-1])

    def undo_insert(self, event: RowsEvent, row: Row) -> str:
        """DELETE of an inserted row."""
        if not self.has_key(row):
            self.check_image(event, row)
        return self.delete(row)

    def inserts(self, rows: Sequence[Row], also: Sequence[int] = ()) -> Iterator[str]:
        """INSERT statements of many rows each, with columns ``also`` that are usually not written.

        All rows of an event hold the same columns.
        """
        if not rows:
            return
        held = [index for index in (*self.written, *also) if rows[0][index] is not ABSENT]
        columns = [self.columns[index] for index in held]
        head = f"INSERT INTO {self.name} ({', '.join(column.name for column in columns)}) VALUES\n"
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

    def update(self, found: Row, wanted: Row, complete: Row, order: str = "") -> str:
        """UPDATE of the row ``found`` to ``wanted``. Columns that ``found`` lacks are taken from ``complete``.

        Unchanged columns are set, too: a column with ON UPDATE CURRENT_TIMESTAMP would change otherwise. ``order``
        is the ORDER BY that chooses one of several rows.
        """
        assignments = [
            self.columns[index].assignment(wanted[index])
            for index in self.written
            if wanted[index] is not ABSENT
        ]
        if not assignments:
            return ""
        where = self._where(found, complete)
        return f"UPDATE {self.name} SET {', '.join(assignments)} WHERE {where}{order} LIMIT 1;\n"

    def delete(self, row: Row, order: str = "") -> str:
        """DELETE of one row."""
        return f"DELETE FROM {self.name} WHERE {self._where(row, row)}{order} LIMIT 1;\n"

    def check_image(self, event: RowsEvent, before: Row, after: Row | None = None) -> None:
        """Raise if the image to restore lacks columns."""
        for index in self.written:
            changed = after is None or after[index] is not ABSENT
            if changed and (before[index] is ABSENT or isinstance(before[index], JsonChanges)):
                raise unsupported(
                    event,
                    f"a row of {event.table} cannot be restored, because its column "
                    f"{event.table.columns[index].name!r} is not in the log: undoing needs binlog_row_image=FULL on "
                    "the source",
                )

    def has_key(self, row: Row) -> bool:
        """Whether the image holds the whole primary key."""
        return bool(self.key) and all(row[index] is not ABSENT for index in self.key)

    def _where(self, row: Row, complete: Row) -> str:
        """A condition on the primary key, or else on all known columns: then any of several equal rows is right."""
        key = [(index, _first_held(row[index], complete[index])) for index in self.key]
        if key and all(value is not ABSENT for _, value in key):
            return " AND ".join([self.columns[index].key_condition(value) for index, value in key])
        known = [(index, _first_held(row[index], complete[index])) for index in self._compared]
        conditions = [
            self.columns[index].condition(value)
            for index, value in known
            if value is not ABSENT and not isinstance(value, JsonChanges)
        ]
        return " AND ".join(conditions) or "TRUE"


def _hidden_columns(table: Table) -> set[str]:
    """The hidden columns, made by the server for itself, which no statement may name."""
    hidden = {name for name in table.column_names if name.startswith(_HIDDEN)}
    return hidden.union(takewhile(HASH.fullmatch, reversed(table.column_names)))


def unsupported(event: Event, reason: str) -> UnsupportedEventError:
    """The error for an event that cannot be written as SQL."""
    return UnsupportedEventError(reason, event.file, event.position, event.header.type)


def _insert(head: str, values: Sequence[str]) -> str:
    rows = ",\n".join(values)
    return f"{head}{rows};\n"


def _first_held(value: object, other: object) -> object:
    return other if value is ABSENT else value
