"""How one table is read: the SELECTs of its rows, its bounds and its largest key. It asks no server."""

from protocol.rows.cells import CellTable
from protocol.rows.result_compiler import Row

from ..schemas.logged_columns import logged_table
from ..schemas.shape import Shape
from ..sql.quoting import identifier
from .row_keys import KeyBytes, KeyColumn, KeyRange, behind, key_columns, key_literal, key_of, up_to
from .select_list import SelectList


class ReadPlan:
    """The plan of one table, for one shape of it.

    ``where`` is a condition in SQL that selects rows; ``suffix`` ends each SELECT of rows, such as
    `` LOCK IN SHARE MODE``. ``table`` is the table as rows of the log have it; ``key_names`` are the columns of the
    key by which it is read (empty: it has none, and can only be read as a whole). Raises ``SchemaMismatchError`` for
    a column that no log can have.
    """

    def __init__(
        self,
        schema: str,
        name: str,
        shape: Shape,
        *,
        is_mariadb: bool,
        where: str = "",
        suffix: str = "",
        log_cells: CellTable | None = None,
    ) -> None:
        key = key_of(shape)
        self.shape = shape
        self.is_mariadb = is_mariadb
        self.table = logged_table(schema, name, shape, is_mariadb=is_mariadb)
        self.key_names = () if key is None else key_columns(key, shape)
        self.select = SelectList(
            self.table, shape, self.key_names, is_mariadb=is_mariadb, log_cells=log_cells
        )
        self._where = where
        self._suffix = suffix
        columns = [shape.columns[index] for index in self.select.key]
        self._key = [
            KeyColumn(identifier(column.name), len(column.labels) if column.type == "enum" else 0)
            for column in columns
        ]
        self._source = f"{identifier(schema)}.{identifier(name)}"
        if key is not None:
            # Without it a server may prefer to read and sort the whole table for each chunk.
            self._source += f" FORCE INDEX ({identifier(key.name)})"

    def row_key(self, row: Row) -> tuple[object, ...]:
        """The values of the key in a row, of a chunk or of the log: equal if and only if the stored bytes are."""
        return tuple(row[index] for index in self.select.key)

    def rows_sql(self, keys: KeyRange, limit: int | None) -> str:
        """The SELECT of the rows in a range, in the order of the key; at most ``limit`` of them (None: all)."""
        sql = self._sql(self.select.sql, keys, "")
        return f"{sql}{'' if limit is None else f' LIMIT {limit}'}{self._suffix}"

    def largest_sql(self) -> str:
        """The SELECT of the largest key."""
        return f"{self._sql(self.select.key_sql, KeyRange(), ' DESC')} LIMIT 1{self._suffix}"

    def key_sql(self, keys: KeyRange, rows: int) -> str:
        """The SELECT of the key that is so many rows (1: the first) into a range."""
        return f"{self._sql(self.select.key_sql, keys, '')} LIMIT {rows - 1}, 1"

    def touch_sql(self, keys: KeyRange) -> str:
        """The SELECT of one row in a range, whatever ``where`` says: it opens the table, and a read view."""
        return f"{self._sql('1', keys, '', '')} LIMIT 1"

    def _sql(self, what: str, keys: KeyRange, direction: str, where: str | None = None) -> str:
        conditions = []
        if keys.after is not None:
            conditions.append(behind(self._key, self._literals(keys.after)))
        if keys.upto is not None:
            conditions.append(up_to(self._key, self._literals(keys.upto)))
        if where := self._where if where is None else where:
            conditions.append(f"({where})")
        sql = f"SELECT {what} FROM {self._source}"
        if conditions:
            sql += f" WHERE {' AND '.join(conditions)}"
        if self._key:
            sql += f" ORDER BY {', '.join(column.name + direction for column in self._key)}"
        return sql

    def _literals(self, key: KeyBytes) -> list[str]:
        return [
            key_literal(self.table.columns[index], self.shape.columns[index].type, data)
            for index, data in zip(self.select.key, key, strict=True)
        ]
