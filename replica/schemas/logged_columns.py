"""The columns of a shape as a TABLE_MAP would describe them, with every name, sign, character set and label known.

Rows that do not come from the log (the first copy of a table) get the values of the log through these columns. It
reads no log and asks no server.
"""

from collections.abc import Callable, Mapping
from typing import Final

from protocol.charset import charset_by_name
from protocol.constants import ColumnType
from protocol.errors import SchemaMismatchError
from protocol.rows.column import Column
from protocol.rows.description import BLOB_SIZES, GEOMETRY_NAMES
from protocol.rows.table import Table

from .shape import ColumnShape, Shape

_LONG_LENGTH: Final = 4
_FEW_LABELS: Final = 255
_MOST_SET_BYTES: Final = 8

_INTEGERS: Final[Mapping[str, ColumnType]] = {
    "tinyint": ColumnType.TINY,
    "smallint": ColumnType.SHORT,
    "mediumint": ColumnType.INT24,
    "int": ColumnType.LONG,
    "bigint": ColumnType.LONGLONG,
}
#: DATA_TYPE of MariaDB's fixed binary types -> their bytes.
FIXED_BYTES: Final[Mapping[str, int]] = {"uuid": 16, "inet6": 16, "inet4": 4}
_BINARY: Final = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", *FIXED_BYTES}
)


def logged_table(schema: str, name: str, shape: Shape, *, is_mariadb: bool) -> Table:
    """The table as rows of the log have it. ``SchemaMismatchError`` for a type that no log has."""
    columns = tuple(_column(column, is_mariadb) for column in shape.columns)
    return Table(schema, name, columns, shape.primary_key, "information_schema")


def _column(shape: ColumnShape, is_mariadb: bool) -> Column:
    make = _TYPES.get(shape.type)
    if make is None:
        raise SchemaMismatchError(
            f"column {shape.name!r} has the type {shape.type}, which rows of the log cannot have"
        )
    column_type, metadata = make(shape)
    if shape.type == "vector" and is_mariadb:
        column_type, metadata = ColumnType.VARCHAR, _LONG_LENGTH * _first(shape)
    is_number = shape.type in _INTEGERS or shape.type in ("decimal", "float", "double")
    return Column(
        name=shape.name,
        type=column_type,
        metadata=metadata,
        nullable=shape.nullable is not False,
        unsigned=shape.unsigned if is_number else None,
        charset="binary" if shape.type in _BINARY else shape.charset,
        labels=shape.labels or None,
        visible=not shape.invisible,
    )


def _first(shape: ColumnShape) -> int:
    return shape.numbers[0] if shape.numbers else 0


def _most_bytes(shape: ColumnShape) -> int:
    charset = None if shape.charset is None else charset_by_name(shape.charset)
    return _first(shape) * (1 if charset is None else charset.max_bytes)


def _decimal(shape: ColumnShape) -> tuple[ColumnType, int]:
    precision, scale = (*shape.numbers, 0)[:2]
    return ColumnType.NEWDECIMAL, precision << 8 | scale


def _same(column_type: ColumnType, metadata: int = 0) -> Callable[[ColumnShape], tuple[ColumnType, int]]:
    return lambda shape: (column_type, metadata)


def _sized(
    column_type: ColumnType, size: Callable[[ColumnShape], int]
) -> Callable[[ColumnShape], tuple[ColumnType, int]]:
    return lambda shape: (column_type, size(shape))


def _set_bytes(shape: ColumnShape) -> int:
    """1 to 4 bytes, or 8 (field.cc: get_set_pack_length), also if the labels are not known."""
    size = (len(shape.labels) + 7) >> 3
    return size if 0 < size <= _LONG_LENGTH else _MOST_SET_BYTES


_TYPES: Final[Mapping[str, Callable[[ColumnShape], tuple[ColumnType, int]]]] = {
    **{name: _same(column_type) for name, column_type in _INTEGERS.items()},
    "decimal": _decimal,
    "float": _same(ColumnType.FLOAT, 4),
    "double": _same(ColumnType.DOUBLE, 8),
    "bit": _sized(ColumnType.BIT, _first),
    "year": _same(ColumnType.YEAR),
    "date": _same(ColumnType.DATE),
    "time": _sized(ColumnType.TIME2, _first),
    "datetime": _sized(ColumnType.DATETIME2, _first),
    "timestamp": _sized(ColumnType.TIMESTAMP2, _first),
    "char": _sized(ColumnType.STRING, _most_bytes),
    "binary": _sized(ColumnType.STRING, _first),
    "varchar": _sized(ColumnType.VARCHAR, _most_bytes),
    "varbinary": _sized(ColumnType.VARCHAR, _first),
    **{name: _same(ColumnType.BLOB, size) for name, size in BLOB_SIZES.items()},
    **{name: _same(ColumnType.STRING, size) for name, size in FIXED_BYTES.items()},
    "enum": _sized(ColumnType.ENUM, lambda shape: 1 if len(shape.labels) <= _FEW_LABELS else 2),
    "set": _sized(ColumnType.SET, _set_bytes),
    "json": _same(ColumnType.JSON, _LONG_LENGTH),
    **{name: _same(ColumnType.GEOMETRY, _LONG_LENGTH) for name in GEOMETRY_NAMES},
    "vector": _same(ColumnType.VECTOR, _LONG_LENGTH),
}
