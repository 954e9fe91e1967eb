"""Whether a table of the log, as its TABLE_MAP has it, can be of a shape; and the table with the shape's names.

Every TABLE_MAP has the count of columns, their types, lengths and nullability. Names, signs, character sets, labels
and the key are there at binlog_row_metadata=FULL (or, some of them, MINIMAL), and are compared where they are.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from protocol.charset import charset_by_name
from protocol.constants import ColumnType
from protocol.records import replace
from protocol.rows.column import BLOB_TYPES, INTEGER_TYPES, LABEL_TYPES, Column
from protocol.rows.description import BINARY_TYPES, BLOB_SIZES, GEOMETRY_NAMES, SIGNED_TYPES
from protocol.rows.table import Table

from .placement import placed
from .shape import ColumnShape, Shape

#: A type as the log has it: the type's code, and the metadata behind it (None: any).
Logged = tuple[ColumnType, int | None]

_PLAIN: Final[Mapping[str, tuple[Logged, ...]]] = MappingProxyType(
    {
        "tinyint": ((ColumnType.TINY, None),),
        "smallint": ((ColumnType.SHORT, None),),
        "mediumint": ((ColumnType.INT24, None),),
        "int": ((ColumnType.LONG, None),),
        "bigint": ((ColumnType.LONGLONG, None),),
        "float": ((ColumnType.FLOAT, 4),),
        "double": ((ColumnType.DOUBLE, 8),),
        "date": ((ColumnType.DATE, None), (ColumnType.NEWDATE, None)),
        "year": ((ColumnType.YEAR, None),),
        "json": ((ColumnType.JSON, 4),),
        "uuid": ((ColumnType.STRING, 16),),
        "inet6": ((ColumnType.STRING, 16),),
        "inet4": ((ColumnType.STRING, 4),),
    }
)
# The second code is that of columns made before 5.6, or in MariaDB without mysql56_temporal_format.
_TIMES: Final[Mapping[str, tuple[ColumnType, ColumnType]]] = MappingProxyType(
    {
        "time": (ColumnType.TIME2, ColumnType.TIME),
        "datetime": (ColumnType.DATETIME2, ColumnType.DATETIME),
        "timestamp": (ColumnType.TIMESTAMP2, ColumnType.TIMESTAMP),
    }
)
_STRINGS: Final = frozenset({"char", "binary", "varchar", "varbinary"})
_TEXTS: Final = BLOB_TYPES | {
    ColumnType.STRING,
    ColumnType.VARCHAR,
    ColumnType.VAR_STRING,
    ColumnType.MARIADB_VARCHAR_COMPRESSED,
    ColumnType.MARIADB_BLOB_COMPRESSED,
}


def first_difference(shape: Shape, table: Table) -> str | None:
    """What a table of the log has that the shape does not, in words; None if nothing speaks against the shape."""
    has_names = table.names_from == "log"
    missing, (fewest, most) = len(table.columns) - len(shape.columns), shape.lost
    if not fewest <= missing <= most:
        others = "" if not most else f" and {fewest} to {most} that a later statement dropped or moved"
        return f"{len(table.columns)} columns in the log, {len(shape.columns)}{others} in the history"
    if not shape.is_whole:
        return None if _placed(shape, table) is not None else "columns of other types in the log"
    for index, (known, logged) in enumerate(zip(shape.columns, table.columns, strict=True), 1):
        for problem in _differences(known, logged, has_name=has_names):
            return f"column {index}, {known.name!r}: {problem}"
    is_key_known = shape.primary is not None or shape.keys is not None
    if has_names and is_key_known and table.primary_key and table.primary_key != shape.primary_key:
        return f"the key is {table.primary_key} in the log, {shape.primary_key} in the history"
    return None


def with_shape(table: Table, shape: Shape) -> Table:
    """The table with names, signs, character sets and labels of a shape that ``first_difference`` says nothing about.

    What the log itself says stays. ``names_from`` becomes ``"history"`` where the log has no names. With a shape that
    is not whole, columns stay ``@1``, ``@2``... where it is not sure which they are, or what their values mean.
    """
    found = shape.columns if shape.is_whole else _placed(shape, table) or ()
    columns = tuple(map(_filled, table.columns, found))
    if table.names_from == "log":
        return replace(table, columns=columns)
    names = {column.name for column in columns}
    primary_key = shape.primary_key if names.issuperset(shape.primary_key) else ()
    return replace(table, columns=columns, primary_key=primary_key, names_from="history")


def nameless(table: Table, shape: Shape | None = None) -> bool:
    """Whether a table that ``with_shape`` made has columns whose names are not known.

    A column may be called ``@1``: with the whole ``shape`` of the table all names are known.
    """
    return (shape is None or not shape.is_whole) and any(
        column.name == f"@{number}" for number, column in enumerate(table.columns, 1)
    )


def _placed(shape: Shape, table: Table) -> list[ColumnShape | None] | None:
    """The known columns at their places in the log."""
    has_names = table.names_from == "log"
    found = placed(
        shape.columns,
        table.columns,
        lambda known, logged: not any(_differences(known, logged, has_name=has_names)),
    )
    if found is None:
        return None
    return [
        known if known is not None and (known.type or _is_enough(logged)) else None
        for known, logged in zip(found, table.columns, strict=True)
    ]


def _is_enough(logged: Column) -> bool:
    """Whether the log says of a column what its values mean, besides its name."""
    if logged.type in INTEGER_TYPES:
        return logged.unsigned is not None
    if logged.type in LABEL_TYPES:
        return logged.labels is not None
    return logged.type not in _TEXTS or logged.charset is not None


def _filled(logged: Column, known: ColumnShape | None) -> Column:
    if known is None:
        return logged
    return replace(
        logged,
        name=known.name,
        unsigned=known.unsigned
        if logged.unsigned is None and known.type in SIGNED_TYPES
        else logged.unsigned,
        charset=logged.charset or _charset(known),
        labels=logged.labels if logged.labels is not None else known.labels or None,
        visible=logged.visible and not known.invisible,
    )


def _charset(column: ColumnShape) -> str | None:
    return "binary" if column.type in BINARY_TYPES else column.charset


def _differences(known: ColumnShape, logged: Column, *, has_name: bool) -> Iterator[str]:
    if has_name and known.name != logged.name:
        yield f"named {logged.name!r} in the log"
    if known.type and not any(_agrees(kind, logged) for kind in logged_types(known)):
        yield f"{logged.type.name} with metadata {logged.metadata} in the log, {known.column_type} in the history"
    if known.nullable is not None and known.nullable != logged.nullable:
        yield "NULL in the log, NOT NULL in the history" if logged.nullable else "NOT NULL in the log"
    if logged.unsigned is not None and known.type in SIGNED_TYPES and known.unsigned != logged.unsigned:
        yield f"{'unsigned' if logged.unsigned else 'signed'} in the log, {known.column_type} in the history"
    charset = _charset(known)
    if not known.type:
        return
    if logged.charset is not None and charset is not None and logged.charset != charset:
        yield f"character set {logged.charset} in the log, {charset} in the history"
    if logged.labels is not None and logged.labels != known.labels:
        yield f"labels {logged.labels} in the log, {known.labels} in the history"
    if not logged.visible and not known.invisible:
        yield "invisible in the log"
    yield from _shape_differences(known, logged)


def _shape_differences(known: ColumnShape, logged: Column) -> Iterator[str]:
    """Of geometries and vectors."""
    if logged.geometry_type is not None and known.type in GEOMETRY_NAMES:
        code = logged.geometry_type
        name = GEOMETRY_NAMES[code] if code < len(GEOMETRY_NAMES) else str(code)
        if name != known.type:
            yield f"{name} in the log, {known.type} in the history"
    if logged.dimension is not None and known.type == "vector" and (logged.dimension,) != known.numbers:
        yield f"{logged.dimension} dimensions in the log, {known.numbers[0]} in the history"


def _agrees(kind: Logged, logged: Column) -> bool:
    return kind[0] is logged.type and kind[1] in (None, logged.metadata)


def logged_types(column: ColumnShape) -> tuple[Logged, ...]:
    """The types that a TABLE_MAP may give such a column; none for a type that is not known."""
    plain = _PLAIN.get(column.type)
    if plain is not None:
        return plain
    if column.type in BLOB_SIZES:
        code = ColumnType.MARIADB_BLOB_COMPRESSED if column.compressed else ColumnType.BLOB
        return ((code, BLOB_SIZES[column.type]),)
    if column.type in GEOMETRY_NAMES:
        return ((ColumnType.GEOMETRY, 4),)
    if column.type in _STRINGS:
        return _string_types(column)
    if column.type in _TIMES:
        new, old = _TIMES[column.type]
        return ((new, column.numbers[0] if column.numbers else 0), (old, None))
    read = _SIZED.get(column.type)
    return () if read is None else read(column)


def _string_types(column: ColumnShape) -> tuple[Logged, ...]:
    charset = charset_by_name(column.charset or "binary")
    size = column.numbers[0] * (1 if charset is None else charset.max_bytes)
    if column.type in ("char", "binary"):
        return ((ColumnType.STRING, size),)
    if column.compressed:
        return ((ColumnType.MARIADB_VARCHAR_COMPRESSED, size + 1),)
    return ((ColumnType.VARCHAR, size), (ColumnType.VAR_STRING, size))


def _decimal_types(column: ColumnShape) -> tuple[Logged, ...]:
    precision, scale = column.numbers
    return ((ColumnType.NEWDECIMAL, precision << 8 | scale), (ColumnType.DECIMAL, None))


def _enum_types(column: ColumnShape) -> tuple[Logged, ...]:
    if not column.labels:
        # MySQL 5.6 breaks the list off at a label that is no text.
        return ((ColumnType.ENUM, 1), (ColumnType.ENUM, 2))
    return ((ColumnType.ENUM, 1 if len(column.labels) < 256 else 2),)


def _set_types(column: ColumnShape) -> tuple[Logged, ...]:
    if not column.labels:
        return tuple((ColumnType.SET, size) for size in (1, 2, 3, 4, 8))
    size = (len(column.labels) + 7) // 8
    return ((ColumnType.SET, 8 if size > 4 else size),)


def _vector_types(column: ColumnShape) -> tuple[Logged, ...]:
    """MariaDB logs a vector as VARBINARY."""
    return ((ColumnType.VECTOR, None), (ColumnType.VARCHAR, column.numbers[0] * 4))


_SIZED: Final[Mapping[str, Callable[[ColumnShape], tuple[Logged, ...]]]] = MappingProxyType(
    {
        "decimal": _decimal_types,
        "bit": lambda column: ((ColumnType.BIT, column.numbers[0]),),
        "enum": _enum_types,
        "set": _set_types,
        "vector": _vector_types,
    }
)
