"""From a column's definition in DDL to its shape, as the server makes it.

The rules are measured on MySQL 5.6 and 9.7 and MariaDB 10.11 and 11.8. What is not known raises
``UnknownShapeError``.
"""

from typing import Final

from protocol.charset import Decode, charset_by_name
from protocol.records import record, replace
from protocol.wire import is_characters

from ..sql.ddl_statements import CharsetClause, ColumnClause, TypeClause
from ..sql.dialect import Dialect
from .charset_names import (
    NOT_ASCII,
    UTF8,
    UnknownShapeError,
    UnknownTextError,
    charset_of,
    most_bytes,
    stores,
)
from .shape import ColumnShape

#: Bytes that the types hold, smallest first, with the prefix of their names.
_SIZES: Final = (("tiny", 0xFF), ("", 0xFFFF), ("medium", 0xFFFFFF), ("long", 0xFFFFFFFF))
_CAPACITIES: Final = {prefix + kind: size for prefix, size in _SIZES for kind in ("text", "blob")}
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_NUMBERS: Final = _INTEGERS | {"float", "double"}
_TIMES: Final = frozenset({"time", "datetime", "timestamp"})
GEOMETRY_TYPES: Final = frozenset(
    {"geometry", "point", "linestring", "polygon"}
    | {"multipoint", "multilinestring", "multipolygon", "geometrycollection"}
)
_PLAIN: Final = frozenset({"date", "year", "uuid", "inet4", "inet6"}) | GEOMETRY_TYPES
_STRINGS: Final = {"char": "binary", "varchar": "varbinary"}
_MOST_BYTES: Final = 0xFFFF
_MOST_CHARACTERS: Final = 0xFF
_MOST_DIGITS: Final = 6
_DEFAULT_DIMENSIONS: Final = 2048

TEXT_TYPES: Final = frozenset(name for name in _CAPACITIES if name.endswith("text"))
BLOB_TYPES: Final = frozenset(_CAPACITIES)
STRING_TYPES: Final = frozenset({"char", "varchar", "binary", "varbinary"})
LABEL_TYPES: Final = frozenset({"enum", "set"})


@record(slots=True, frozen=True)
class CharsetContext:
    """What columns without a character set of their own get: the table's default.

    ``converted`` is the set of CONVERT TO in the same statement: all character columns get it, but those that the
    table's default makes binary.
    """

    table: str | None
    converted: str | None = None

    def of(self, clause: CharsetClause) -> str:
        """The set of a column."""
        charset = charset_of(clause, self.table, None)
        if charset is None:
            raise UnknownTextError("the default character set of the table is not known")
        return charset if self.converted is None or charset == "binary" else self.converted


def make_column(clause: ColumnClause, context: CharsetContext, dialect: Dialect) -> ColumnShape:
    """The shape of a column that a statement defines."""
    shape = _typed(clause, context, dialect)
    nullable = clause.nullable
    if nullable is None:
        nullable = dialect.explicit_timestamps if shape.type == "timestamp" else True
        if clause.generated and shape.type == "timestamp":
            nullable = None
    return replace(
        shape,
        nullable=nullable,
        generated=clause.generated,
        invisible=clause.invisible,
        compressed=clause.compressed,
        role=clause.row_period,
    )


def _typed(clause: ColumnClause, context: CharsetContext, dialect: Dialect) -> ColumnShape:
    kind, name = clause.type, clause.name
    numbers = kind.numbers
    if kind.name in _NUMBERS:
        return ColumnShape(name, kind.name, (), kind.unsigned, kind.zerofill)
    if kind.name == "decimal":
        return ColumnShape(name, "decimal", _decimal(numbers), kind.unsigned, kind.zerofill)
    if kind.unsigned or kind.zerofill:
        # YEAR takes both, and makes nothing of them.
        kind = replace(kind, unsigned=False, zerofill=False)
    if kind.name in _PLAIN:
        return ColumnShape(name, kind.name)
    if kind.name in _TIMES:
        return ColumnShape(name, kind.name, _fraction(numbers))
    if kind.name == "bit":
        return ColumnShape(name, "bit", (_one(numbers, 1) or 1,))
    if kind.name == "json":
        if not dialect.is_mariadb:
            return ColumnShape(name, "json")
        # LONGTEXT, which CONVERT TO in the same statement does not spare.
        return _sized(name, "longtext", (), context.converted or "utf8mb4")
    if kind.name == "vector":
        return ColumnShape(name, "vector", (_one(numbers, _DEFAULT_DIMENSIONS),))
    if kind.name in LABEL_TYPES:
        charset = context.of(kind.charset)
        labels = tuple(_label(label, charset, dialect) for label in kind.labels)
        if context.converted is not None and (charset in NOT_ASCII or not all(map(str.isascii, labels))):
            raise UnknownTextError(f"labels of {name} in a statement that converts to {charset}")
        return ColumnShape(name, kind.name, charset=charset, labels=labels)
    return _string(name, kind, context)


def _decimal(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if len(numbers) > 2:
        raise UnknownShapeError("DECIMAL with more than two numbers")
    precision, scale = (*numbers, 0, 0)[:2]
    return (precision or (10 if scale == 0 else scale), scale)


def _one(numbers: tuple[int, ...], default: int) -> int:
    if len(numbers) > 1:
        raise UnknownShapeError("a length of several numbers")
    return numbers[0] if numbers else default


def _fraction(numbers: tuple[int, ...]) -> tuple[int, ...]:
    digits = _one(numbers, 0)
    if digits > _MOST_DIGITS:
        raise UnknownShapeError(f"a time of {digits} fractional digits")
    return (digits,) if digits else ()


def _string(name: str, kind: TypeClause, context: CharsetContext) -> ColumnShape:
    base, numbers = kind.name, kind.numbers
    if base.endswith("blob") or base in _STRINGS.values():
        return _sized(name, base, numbers, "binary")
    if base in TEXT_TYPES or base in _STRINGS:
        return _sized(name, base, numbers, context.of(kind.charset))
    raise UnknownShapeError(f"unknown type {base.lstrip('?')} of column {name}")


def _sized(name: str, base: str, numbers: tuple[int, ...], charset: str) -> ColumnShape:
    """A string type; the binary set makes its binary twin of it."""
    width = most_bytes(charset)
    if base in BLOB_TYPES:
        base = base.removesuffix("text") + "blob" if charset == "binary" and base in TEXT_TYPES else base
        if numbers and base in ("text", "blob"):
            size = _one(numbers, 0)
            if size == 0:
                raise UnknownShapeError("TEXT or BLOB of no length, which servers differ about")
            base = sized_type(size * width, base)
        return ColumnShape(name, base, charset=None if charset == "binary" else charset)
    length = _one(numbers, 1)
    if charset == "binary":
        base = _STRINGS.get(base, base)
    if base in ("varchar", "varbinary"):
        if not numbers:
            raise UnknownShapeError(f"a {base} without a length")
        if length * width > _MOST_BYTES:
            # Without strict mode; strict servers refuse it and log nothing.
            base = sized_type(length * width, "blob" if charset == "binary" else "text")
            return ColumnShape(name, base, charset=None if charset == "binary" else charset)
    elif length > _MOST_CHARACTERS:
        raise UnknownShapeError(f"a {base} of {length}")
    return ColumnShape(name, base, (length,), charset=None if charset == "binary" else charset)


def sized_type(size: int, kind: str) -> str:
    """The smallest TEXT or BLOB that holds so many bytes (field.cc: get_blob_type_from_length)."""
    kind = "text" if kind.endswith("text") else "blob"
    return next((prefix + kind for prefix, most in _SIZES if size <= most), f"long{kind}")


def _label(label: str | bytes, charset: str, dialect: Dialect) -> str:
    if isinstance(label, bytes):
        text = _decoded(label, charset)
    elif stores(charset, label) and _passes(label, charset, dialect):
        text = label
    else:
        raise UnknownTextError(f"label {label!r}, which {charset} may not have, or the session")
    return text if charset == "binary" else text.rstrip(" ")


def _passes(label: str, charset: str, dialect: Dialect) -> bool:
    """Whether a text comes to a column of this set as it is, through the character sets of the session."""
    return all(
        # Bytes that are read as text of the column's set.
        label.isascii() and charset not in NOT_ASCII if each == "binary" else stores(each, label)
        for each in dialect.literal_charsets
    )


def _decoded(label: bytes, charset: str) -> str:
    decode = _decoder(charset)
    text = label.decode("ascii", "surrogateescape") if decode is None else decode(label)
    if charset in NOT_ASCII or not is_characters(text):
        raise UnknownTextError(f"label {label!r} in character set {charset}")
    return text


def _decoder(name: str) -> Decode | None:
    charset = charset_by_name(name)
    return None if charset is None else charset.decode


def converted(column: ColumnShape, charset: str) -> ColumnShape:
    """The column after CONVERT TO CHARACTER SET: TEXT grows so that as many characters fit."""
    if column.charset is None or column.charset == "binary":
        return column
    if column.type in LABEL_TYPES:
        if column.charset == charset:
            return column
        # Servers keep the bytes of the labels, and read them in the new set.
        sets = {column.charset, charset}
        is_same = all(stores(charset, label) if sets <= UTF8 else label.isascii() for label in column.labels)
        if sets & NOT_ASCII or not is_same:
            raise UnknownTextError(f"labels of {column.name} converted from {column.charset} to {charset}")
        return replace(column, charset=charset)
    new_charset = None if charset == "binary" else charset
    if column.type in STRING_TYPES:
        made = _sized(column.name, column.type, column.numbers, charset)
        return replace(column, type=made.type, numbers=made.numbers, charset=made.charset)
    characters = _CAPACITIES[column.type] // most_bytes(column.charset)
    size = _CAPACITIES[column.type] if column.type == "longtext" else characters * most_bytes(charset)
    kind = sized_type(size, "blob" if charset == "binary" else "text")
    return replace(column, type=kind, charset=new_charset)
