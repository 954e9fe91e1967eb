"""The description of one logged column, from TABLE_MAP and its optional metadata. It reads no row."""

from collections import Counter
from collections.abc import Iterable, Sequence
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

    Values that differ from what other clients make of the type: BIT is an ``int``; a zero or partial date is text,
    which Python's dates cannot hold; TIMESTAMP is an aware UTC ``datetime``; TIME is a ``timedelta``, in JSON, too;
    SET is a text with commas; GEOMETRY is SRID and WKB, MariaDB's UUID its 16 bytes; invalid bytes of a text are
    surrogate escapes. JSON's own ``null`` is None, as ``json.loads`` makes it, and NULL of the column is None, too: a
    document that is nothing but ``null`` cannot be told from NULL here. JSON lines of the command line do tell them
    apart, and files opened with ``cells=replica.render.json_values.document_cells()`` have each document in a
    ``JsonDocument``.

    ``name`` is ``@1``, ``@2``... if the name is unknown. ``type`` is the real type: ENUM and SET, although the log
    gives them as STRING. ``metadata`` depends on the type: the maximum bytes of a string, the bytes of a blob's
    length, ``precision << 8 | scale`` of a DECIMAL, the fractional digits of a temporal type, the bits of a BIT, the
    bytes of an ENUM, SET, FLOAT or DOUBLE value; else 0. ``nullable`` comes from the table map; ``visible`` is False
    for an INVISIBLE column. ``unsigned``, ``charset``, ``collation`` (MySQL's id), ``labels`` of ENUM and SET,
    ``geometry_type`` (as in WKB) and ``dimension`` of a VECTOR are None if the log does not give them or the type
    has none. ``charset`` is ``"binary"`` for BINARY, VARBINARY and BLOB.
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


# A label: its text, and its place in a tuple.
_LABEL_BYTES: Final = 70


def labels_size(columns: Iterable[Column]) -> int:
    """About how many bytes the labels of columns take."""
    return sum(_LABEL_BYTES + len(label) for column in columns for label in column.labels or ())


def repeated_name(names: Sequence[str]) -> str | None:
    """A name that comes twice, as in no real table: a row as a dictionary would lose a value. None without one."""
    if len(set(names)) == len(names):
        return None
    return next(name for name, count in Counter(names).items() if count > 1)


INTEGER_TYPES = frozenset(
    {ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG}
)
# Types with a bit in SIGNEDNESS (field_common_properties.h: has_signedess_information_type). YEAR has one in both
# families, although mariadb-binlog leaves it out and prints wrong signs for the columns after a YEAR.
NUMERIC_TYPES = INTEGER_TYPES | {
    ColumnType.DECIMAL,
    ColumnType.NEWDECIMAL,
    ColumnType.FLOAT,
    ColumnType.DOUBLE,
    ColumnType.YEAR,
}
BLOB_TYPES = frozenset({ColumnType.TINY_BLOB, ColumnType.BLOB, ColumnType.MEDIUM_BLOB, ColumnType.LONG_BLOB})
# Types with an entry in DEFAULT_CHARSET and COLUMN_CHARSET (table_map_event.h: is_character_type). MariaDB's GEOMETRY
# has one, too, because it is a blob there.
CHARACTER_TYPES = BLOB_TYPES | {
    ColumnType.STRING,
    ColumnType.VAR_STRING,
    ColumnType.VARCHAR,
    ColumnType.VECTOR,
    ColumnType.MARIADB_VARCHAR_COMPRESSED,
    ColumnType.MARIADB_BLOB_COMPRESSED,
}
LABEL_TYPES = frozenset({ColumnType.ENUM, ColumnType.SET})
