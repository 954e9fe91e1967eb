"""Adds names, signs and character sets to tables that are logged without them.

Joins a ``Table`` from the log with a description from elsewhere (information_schema, a dump, the user), after
comparing the number and types of the columns. It asks no server and never guesses: a difference is an error.
"""

import re
from collections.abc import Callable, Sequence

from ..constants import ColumnType
from ..errors import SchemaMismatchError
from ..records import record, replace
from ..wire import utf8_text
from .column import BLOB_TYPES, Column, repeated_name
from .table import Table


@record(slots=True, frozen=True)
class ColumnDescription:
    """One row of information_schema.COLUMNS, in the server's own words.

    ``name`` is COLUMN_NAME, ``data_type`` DATA_TYPE (``"int"``), ``column_type`` COLUMN_TYPE (``"int(10)
    unsigned"``), ``nullable`` IS_NULLABLE, ``charset`` CHARACTER_SET_NAME, ``primary`` whether the column is part of
    the primary key.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool = True
    charset: str | None = None
    primary: bool = False


_TEMPORAL = {
    "date": {ColumnType.DATE, ColumnType.NEWDATE},
    "datetime": {ColumnType.DATETIME, ColumnType.DATETIME2},
    "timestamp": {ColumnType.TIMESTAMP, ColumnType.TIMESTAMP2},
    "time": {ColumnType.TIME, ColumnType.TIME2},
    "year": {ColumnType.YEAR},
}
_BLOB_LENGTHS = {"tiny": 1, "": 2, "medium": 3, "long": 4}
#: DATA_TYPE of BLOB and TEXT columns -> how many bytes their length takes.
BLOB_SIZES = {prefix + kind: size for prefix, size in _BLOB_LENGTHS.items() for kind in ("blob", "text")}
_SIZES = BLOB_SIZES | {"json": 4}
_VARIABLE = {ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.MARIADB_VARCHAR_COMPRESSED}
_BLOBS = {*BLOB_TYPES, ColumnType.MARIADB_BLOB_COMPRESSED}
#: DATA_TYPE of spatial columns. The first eight are numbered from 0 on in optional metadata (GEOMETRY_TYPE).
GEOMETRY_NAMES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
)

# DATA_TYPE -> the types that a table map may give a column of this type. MariaDB's json is a longtext, its vector a
# varbinary, its uuid and inet types are fixed binary strings.
_LOGGED_TYPES: dict[str, set[ColumnType]] = {
    "tinyint": {ColumnType.TINY},
    "smallint": {ColumnType.SHORT},
    "mediumint": {ColumnType.INT24},
    "int": {ColumnType.LONG},
    "bigint": {ColumnType.LONGLONG},
    "decimal": {ColumnType.NEWDECIMAL, ColumnType.DECIMAL},
    "float": {ColumnType.FLOAT},
    "double": {ColumnType.DOUBLE},
    "bit": {ColumnType.BIT},
    **_TEMPORAL,
    "char": {ColumnType.STRING, *_VARIABLE},
    "binary": {ColumnType.STRING, *_VARIABLE},
    "varchar": _VARIABLE,
    "varbinary": _VARIABLE,
    "enum": {ColumnType.ENUM},
    "set": {ColumnType.SET},
    **dict.fromkeys(_SIZES, _BLOBS),
    "json": {ColumnType.JSON, *_BLOBS},
    **{name: {ColumnType.GEOMETRY} for name in GEOMETRY_NAMES},
    "vector": {ColumnType.VECTOR, *_VARIABLE},
    **{name: {ColumnType.STRING} for name in ("uuid", "inet4", "inet6")},
}
#: DATA_TYPE of columns whose values are bytes.
BINARY_TYPES = frozenset(
    {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector", "uuid", "inet4", "inet6"}
)
#: DATA_TYPE of columns that have a sign.
SIGNED_TYPES = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"})
_SIZES_IN_BRACKETS = r"\(([0-9]{1,9}(?: *, *[0-9]{1,9})*)\)"
# MySQL 9 writes a label that is no text as x'ff'.
_LABEL = r"(x?)'((?:[^']|'')*)'"
# How the servers escape characters of a label in COLUMN_TYPE (unireg.cc, sql_show.cc: append_unescaped).
_LABEL_ESCAPES = {"''": "'", "\\\\": "\\", "\\0": "\0", "\\n": "\n", "\\r": "\r"}
_LABEL_ESCAPE = r"''|\\[\\0nr]"


def describe_table(table: Table, descriptions: Sequence[ColumnDescription]) -> Table:
    """``table`` with names, and with signs, character sets and labels where the log gives none.

    Values from the log win over the description. Raises ``SchemaMismatchError`` if the number of columns, a type or
    a sign differs.
    """
    if len(descriptions) != len(table.columns):
        raise SchemaMismatchError(
            f"{table} has {len(descriptions)} columns now, but {len(table.columns)} in the log; "
            "rows logged before a change of the table need a source that logs names (binlog_row_metadata=FULL)"
        )
    if (name := repeated_name([description.name for description in descriptions])) is not None:
        raise SchemaMismatchError(f"{table} has two columns of the name {name!r} now")
    pairs = list(zip(table.columns, descriptions, strict=True))
    columns = tuple(_describe_column(table, column, description) for column, description in pairs)
    primary_key = table.primary_key
    if not primary_key or table.names_from is None:
        primary_key = tuple(description.name for description in descriptions if description.primary)
    return replace(table, columns=columns, primary_key=primary_key, names_from="information_schema")


def _describe_column(table: Table, column: Column, description: ColumnDescription) -> Column:
    problem = _mismatch(column, description)
    if problem:
        raise SchemaMismatchError(
            f"column {description.name!r} of {table} is {description.column_type} now, but {problem} in the log"
        )
    unsigned = column.unsigned
    if unsigned is None and description.data_type in SIGNED_TYPES:
        unsigned = _is_unsigned(description)
    charset = column.charset
    if charset is None:
        charset = "binary" if description.data_type in BINARY_TYPES else description.charset
    labels = column.labels
    if labels is None and column.type in (ColumnType.ENUM, ColumnType.SET):
        labels = labels_of(description.column_type)
    return replace(column, name=description.name, unsigned=unsigned, charset=charset, labels=labels)


def labels_of(column_type: str) -> tuple[str, ...]:
    """The labels in COLUMN_TYPE of an ENUM or SET."""
    return tuple(
        utf8_text(bytes.fromhex(label)) if is_hex else _unescaped_label(label)
        for is_hex, label in re.findall(_LABEL, column_type)
    )


def numbers_of(column_type: str) -> tuple[int, ...]:
    """The numbers in the brackets of COLUMN_TYPE; none for anything else in brackets."""
    inside = re.search(_SIZES_IN_BRACKETS, column_type)
    return tuple(map(int, inside[1].split(","))) if inside else ()


def _unescaped_label(label: str) -> str:
    return re.sub(_LABEL_ESCAPE, lambda found: _LABEL_ESCAPES[found[0]], label)


def _is_unsigned(description: ColumnDescription) -> bool:
    return "unsigned" in description.column_type or "zerofill" in description.column_type


def _mismatch(column: Column, description: ColumnDescription) -> str | None:
    """The differing type or sign in the log, as text; None if the log agrees with the description."""
    logged_types = _LOGGED_TYPES.get(description.data_type)
    if logged_types is not None and column.type not in logged_types:
        return column.type.name
    has_sign = column.unsigned is not None and description.data_type in SIGNED_TYPES
    if has_sign and column.unsigned != _is_unsigned(description):
        return "unsigned" if column.unsigned else "signed"
    check = _METADATA_CHECKS.get(column.type)
    expected = None if check is None else check(description)
    if expected is not None and expected != column.metadata:
        return f"{column.type.name} with metadata {column.metadata} instead of {expected}"
    return None


def _decimal_metadata(description: ColumnDescription) -> int | None:
    numbers = numbers_of(description.column_type)
    return None if not numbers else numbers[0] << 8 | (numbers[1] if len(numbers) > 1 else 0)


def _fraction_metadata(description: ColumnDescription) -> int:
    return (numbers_of(description.column_type) or (0,))[0]


def _blob_metadata(description: ColumnDescription) -> int | None:
    return _SIZES.get(description.data_type)


def _bit_metadata(description: ColumnDescription) -> int:
    return (numbers_of(description.column_type) or (1,))[0]


_METADATA_CHECKS: dict[ColumnType, Callable[[ColumnDescription], int | None]] = {
    ColumnType.NEWDECIMAL: _decimal_metadata,
    ColumnType.BIT: _bit_metadata,
    ColumnType.DATETIME2: _fraction_metadata,
    ColumnType.TIMESTAMP2: _fraction_metadata,
    ColumnType.TIME2: _fraction_metadata,
    **dict.fromkeys(BLOB_TYPES, _blob_metadata),
}
