"""What is known of one logged column, from TABLE_MAP and its optional metadata. It reads no row."""

from typing import Final

from ..constants import ColumnType
from ..records import record


class Absent:
    """The type of ``ABSENT``: the value of a column that a MINIMAL or NOBLOB row image does not hold."""

    _instance: "Absent | None" = None

    def __new__(cls) -> "Absent":
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "ABSENT"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


@record(slots=True, frozen=True)
class Column:
    """One column of a logged table.

    ``name`` is ``@1``, ``@2``... where it is not known. ``type`` is the real type: ENUM and SET, which travel as
    STRING, are told apart. ``metadata`` depends on it: bytes a string can take, bytes of a blob's length, ``precision
    << 8 | scale`` of a DECIMAL, fractional digits of a temporal type, bits of a BIT, bytes of an ENUM, SET, FLOAT or
    DOUBLE value; else 0. ``nullable`` is that of the table map, ``visible`` False for an INVISIBLE column.
    ``unsigned``, ``charset``, ``collation`` (MySQL's id), ``labels`` of ENUM and SET, ``geometry_type`` (as in WKB)
    and ``dimension`` of a VECTOR are None where the log does not say, or the type has none. ``charset`` is
    ``"binary"`` for BINARY, VARBINARY and BLOB.
    """

    name: str
    type: ColumnType
    metadata: int
    nullable: bool
    unsigned: bool | None = None
    charset: str | None = None
    collation: int | None = None
    labels: tuple[str, ...] | None = None
    visible: bool = True
    geometry_type: int | None = None
    dimension: int | None = None


INTEGER_TYPES = frozenset(
    {ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG}
)
# Those that take a bit in SIGNEDNESS (field_common_properties.h: has_signedess_information_type). YEAR is one
# of them on both families, although mariadb-binlog itself leaves it out and prints wrong signs behind it.
NUMERIC_TYPES = INTEGER_TYPES | {
    ColumnType.DECIMAL,
    ColumnType.NEWDECIMAL,
    ColumnType.FLOAT,
    ColumnType.DOUBLE,
    ColumnType.YEAR,
}
BLOB_TYPES = frozenset({ColumnType.TINY_BLOB, ColumnType.BLOB, ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB})
# Those that take a place in DEFAULT_CHARSET and COLUMN_CHARSET (table_map_event.h: is_character_type), besides
# MariaDB's GEOMETRY, which is a blob there.
CHARACTER_TYPES = BLOB_TYPES | {
    ColumnType.STRING,
    ColumnType.VAR_STRING,
    ColumnType.VARCHAR,
    ColumnType.VECTOR,
    ColumnType.MARIADB_VARCHAR_COMPRESSED,
    ColumnType.MARIADB_BLOB_COMPRESSED,
}
LABEL_TYPES = frozenset({ColumnType.ENUM, ColumnType.SET})
