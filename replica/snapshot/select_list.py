"""What to SELECT of a table so that the values are those of the log, and how to read the rows.

One ``SelectList`` serves one shape of a table. It writes SQL and compiles a reader; it asks no server.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from protocol.charset import charset_of_collation
from protocol.constants import ColumnType
from protocol.conversation.results import ColumnDefinition
from protocol.errors import DecodeError, ProtocolError, SchemaMismatchError
from protocol.records import replace
from protocol.rows.cells import CellTable
from protocol.rows.column import INTEGER_TYPES, LABEL_TYPES, Column
from protocol.rows.result_cells import result_cells, usual_form
from protocol.rows.result_compiler import (
    ROW_DAMAGE,
    ResultColumn,
    ResultReader,
    Row,
    RowWalker,
    compile_result_reader,
    compile_row_walker,
    select_order,
)
from protocol.rows.table import Table

from ..schemas.logged_columns import FIXED_BYTES
from ..schemas.shape import ColumnShape, Shape
from ..sql.quoting import identifier
from .row_keys import KeyBytes, key_bytes

if TYPE_CHECKING:
    from ..arrow.result_rows import ResultBatches

_UNSIGNED_FLAG: Final = 32
# The bytes of a SET as text: more than a length of one byte can say.
_MOST_LABELS: Final = 0xFFFF
# Types of the client/server protocol that no column of the log has (field_types.h).
_JSON, _NEWDECIMAL, _VAR_STRING, _STRING, _GEOMETRY = 245, 246, 253, 254, 255
_STRINGS: Final = frozenset({*range(249, 253), _VAR_STRING, _STRING})
#: Type of the log -> the types that the server may announce for the selected value.
_ANNOUNCED: Final[Mapping[ColumnType, frozenset[int]]] = {
    **{
        kind: frozenset({int(kind)})
        for kind in (*INTEGER_TYPES, ColumnType.YEAR, ColumnType.BIT, ColumnType.DATE)
    },
    ColumnType.FLOAT: frozenset({int(ColumnType.FLOAT)}),
    ColumnType.DOUBLE: frozenset({int(ColumnType.DOUBLE)}),
    ColumnType.NEWDECIMAL: frozenset({_NEWDECIMAL}),
    ColumnType.DATETIME2: frozenset({int(ColumnType.DATETIME)}),
    ColumnType.TIMESTAMP2: frozenset({int(ColumnType.TIMESTAMP)}),
    ColumnType.TIME2: frozenset({int(ColumnType.TIME)}),
    ColumnType.ENUM: frozenset({int(ColumnType.LONGLONG)}),
    ColumnType.SET: frozenset({int(ColumnType.LONGLONG)}),
    ColumnType.JSON: frozenset({_JSON}),
    ColumnType.GEOMETRY: frozenset({_GEOMETRY}),
    ColumnType.VECTOR: frozenset({int(ColumnType.VECTOR)}),
}


class SelectList:
    """The columns of one table, selected in the order in which they are read fastest.

    ``sql`` is the text between SELECT and FROM for rows, ``key_sql`` for keys alone. A row tuple has the columns of
    ``table`` in their order; a hash that MariaDB keeps for a unique key cannot be selected and is ABSENT. ``key`` has
    the indexes of the key's columns. ``log_cells`` are the cells with which rows of the log are read.
    """

    def __init__(
        self,
        table: Table,
        shape: Shape,
        key: Sequence[str],
        *,
        is_mariadb: bool,
        log_cells: CellTable | None = None,
    ) -> None:
        self.table = table
        self.key = tuple(table.column_names.index(name) for name in key)
        self._is_mariadb = is_mariadb
        cells = result_cells(None if log_cells is None else log_cells.document)
        selectable = [index for index, column in enumerate(shape.columns) if column.role != "hash"]
        self._read_as = [
            column if index in self.key else _read_as(column) for index, column in enumerate(table.columns)
        ]
        unordered = [_result_column(cells, self._read_as[index]) for index in selectable]
        order = select_order(unordered)
        columns = [unordered[place] for place in order]
        self._order = [selectable[place] for place in order]
        self._columns = columns
        places = {index: place for place, index in enumerate(self._order)}
        self.sql = ", ".join(self._expression(shape.columns[index], index) for index in self._order)
        items = [places.get(index) for index in range(len(table.columns))]
        self._items = items
        self._keys = {
            index: ResultColumn(cells.cell(_as_key(table.columns[index])), False) for index in self.key
        }
        self.key_sql = ", ".join(self._expression(shape.columns[index], index) for index in self._keys)

    # Compiled when needed: Arrow columns are made without ``walk``, which saves 3 ms for 19 columns; and of thousands
    # of tables only a few are read at a time.

    @cached_property
    def _key_reader(self) -> ResultReader:
        return compile_result_reader(list(self._keys.values()), range(len(self._keys)))

    @cached_property
    def _row_key_reader(self) -> ResultReader:
        undecoded = [
            self._keys.get(index, column) for index, column in zip(self._order, self._columns, strict=True)
        ]
        return compile_result_reader(undecoded, [self._order.index(index) for index in self._keys])

    @cached_property
    def walk(self) -> RowWalker:
        """Reads tuples out of the frames in which rows come."""
        return compile_row_walker(self._columns, self._items)

    @cached_property
    def _reader(self) -> ResultReader:
        return compile_result_reader(self._columns, self._items)

    def rows(self, payloads: Sequence[bytes]) -> list[Row]:
        """The tuples of undecoded rows. ``ProtocolError`` if their bytes are damaged."""
        return self._read(self._reader, payloads)

    def batches(self) -> "ResultBatches":
        """A maker of Arrow batches of undecoded rows; ``MissingExtraError`` without the extra ``arrow``."""
        from ..arrow.result_rows import ResultBatches

        return ResultBatches(
            self.table, self._order, [self._read_as[index] for index in self._order], self._columns
        )

    def row_key(self, payload: bytes) -> KeyBytes:
        """The key of an undecoded row."""
        return self._bound(self._row_key_reader, payload)

    def key_alone(self, payload: bytes) -> KeyBytes:
        """The key of an undecoded row of ``key_sql``."""
        return self._bound(self._key_reader, payload)

    def _bound(self, reader: ResultReader, payload: bytes) -> KeyBytes:
        [values] = self._read(reader, [payload])
        if None in values:
            raise ProtocolError(f"the server sends NULL for the key of {self.table}, which has none")
        return tuple(map(key_bytes, values))

    def check(self, definitions: Sequence[ColumnDefinition]) -> None:
        """Raise ``SchemaMismatchError`` if the server announces other types than those of the shape.

        The table was changed after its shape was read.
        """
        self._compare(self._order, definitions)

    def check_key(self, definitions: Sequence[ColumnDefinition]) -> None:
        """As ``check``, for ``key_sql``."""
        self._compare(self.key, definitions)

    def _compare(self, indexes: Sequence[int], definitions: Sequence[ColumnDefinition]) -> None:
        if len(definitions) != len(indexes):
            raise SchemaMismatchError(f"{self.table} was changed: {len(definitions)} columns were selected")
        for index, definition in zip(indexes, definitions, strict=True):
            column = self._read_as[index]
            difference = self._difference(column, definition)
            if difference:
                raise SchemaMismatchError(f"column {column.name!r} of {self.table} was changed: {difference}")

    def _difference(self, column: Column, definition: ColumnDefinition) -> str | None:
        announced = _ANNOUNCED.get(column.type, _STRINGS)
        if definition.type not in announced:
            return f"its values come with the type {definition.type}"
        if column.type in INTEGER_TYPES and bool(definition.flags & _UNSIGNED_FLAG) != bool(column.unsigned):
            return "its sign"
        if announced is _STRINGS:
            charset = charset_of_collation(definition.collation, self._is_mariadb)
            if charset is None or charset.name != (column.charset or "binary"):
                return f"its character set is {charset.name if charset else definition.collation} now"
        return None

    def _expression(self, shape: ColumnShape, index: int) -> str:
        """A column's value in the form that equals the log's.

        ENUM and SET as exact numbers: ``+ 0`` would make a DOUBLE, which has no room for 64 labels. UUID and INET as
        their bytes instead of their text.
        """
        name = identifier(shape.name)
        if shape.type in FIXED_BYTES:
            return f"CAST({name} AS BINARY({FIXED_BYTES[shape.type]}))"
        return f"{name} | 0" if self._read_as[index].type in LABEL_TYPES else name

    def _read(self, reader: ResultReader, payloads: Sequence[bytes]) -> list[Row]:
        try:
            return reader(payloads)
        except (*ROW_DAMAGE, DecodeError) as error:
            raise ProtocolError(f"a row of {self.table} is damaged: {error}") from error


def _result_column(cells: CellTable, column: Column) -> ResultColumn:
    return ResultColumn(cells.cell(column), column.nullable, usual_form(column))


def _as_key(column: Column) -> Column:
    """A key with its text undecoded, and ENUM and SET as numbers. A CHAR has no fixed size, as a BINARY has."""
    is_char = column.type is ColumnType.STRING and column.charset != "binary"
    kind = ColumnType.VARCHAR if is_char else column.type
    return replace(column, type=kind, charset="binary", labels=None)


def _read_as(column: Column) -> Column:
    """ENUM and SET as text if a label has a question mark.

    information_schema has one in place of each character beyond U+FFFF, which the values have.
    """
    if column.type not in LABEL_TYPES or "?" not in "".join(column.labels or ()):
        return column
    return replace(column, type=ColumnType.VARCHAR, metadata=_MOST_LABELS, labels=None)
