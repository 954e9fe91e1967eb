"""The Arrow schema of a table: the Arrow type of each column, and the converter that makes its arrays.

| column | Arrow type |
|---|---|
| integers | int8 to int64, uint8 to uint64; MEDIUMINT has 32 bits |
| YEAR; BIT(n) | int16; uint64 |
| FLOAT, DOUBLE | float, double |
| DECIMAL(p, s) | decimal128(p, s) up to 38 digits, else decimal256(p, s) |
| DATE | date32 |
| DATETIME(f); TIMESTAMP(f); TIME(f) | timestamp[us]; timestamp[us, UTC]; duration[us] |
| CHAR, VARCHAR, TEXT | string; binary where their character set is not known |
| BINARY, VARBINARY, BLOB, GEOMETRY | binary |
| ENUM, SET | string; uint16 and uint64 where labels are not known |
| JSON | string: the text that SELECT gives |
| VECTOR | list<float> |

Every column is nullable, also if the table says NOT NULL: a MINIMAL image leaves columns out, and dates that do not
exist become null. A functional index over JSON (TYPED_ARRAY) is no column here: table maps list it, but rows hold no
value of it.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from protocol.constants import ColumnType
from protocol.errors import ConfigurationError
from protocol.records import record
from protocol.rows.column import BLOB_TYPES, Column
from protocol.rows.table import Table

from . import decimals, documents, labels, numbers, strings, temporal
from .arrays import ArrowColumn
from .binary import binary, padded_binary, vector

Images = Literal["after", "both"]

BEFORE: Final = "_before"
BEFORE_ABSENT: Final = "_before_absent"
NAMES: Final = pa.list_(pa.string())

METADATA_FIELDS: Final[Mapping[str, pa.Field]] = MappingProxyType(
    {
        name: pa.field(name, arrow_type, nullable=nullable)
        for name, arrow_type, nullable in (
            ("_op", pa.string(), False),
            ("_ts", pa.timestamp("us", "UTC"), False),
            ("_gtid", pa.string(), True),
            ("_file", pa.string(), False),
            ("_pos", pa.uint64(), False),
            ("_row", pa.uint32(), False),
            ("_absent", NAMES, True),
        )
    }
)
METADATA_COLUMNS: Final = tuple(METADATA_FIELDS)


def _string(column: Column) -> ArrowColumn:
    return padded_binary(column) if column.charset == "binary" else _characters(column)


def _characters(column: Column) -> ArrowColumn:
    return binary(column) if strings.known_charset(column) is None else strings.text(column)


def _nothing(column: Column) -> ArrowColumn:
    """A column of a type that rows cannot hold: the decoder raises an error for rows that do."""
    return ArrowColumn(pa.null(), lambda places, losses: pa.nulls(len(places)))


def _decimal(column: Column) -> ArrowColumn:
    # Table maps from before MySQL 5.1.18 lack the precision.
    return decimals.decimal(column) if column.metadata else _nothing(column)


_MAKERS: Final[Mapping[ColumnType, Callable[[Column], ArrowColumn]]] = MappingProxyType(
    {
        ColumnType.TINY: numbers.integer,
        ColumnType.SHORT: numbers.integer,
        ColumnType.INT24: numbers.medium_integer,
        ColumnType.LONG: numbers.integer,
        ColumnType.LONGLONG: numbers.integer,
        ColumnType.FLOAT: lambda column: numbers.floating(pa.float32(), np.float32),
        ColumnType.DOUBLE: lambda column: numbers.floating(pa.float64(), np.float64),
        ColumnType.NEWDECIMAL: _decimal,
        ColumnType.BIT: numbers.bit,
        ColumnType.YEAR: numbers.year,
        ColumnType.DATE: temporal.date,
        ColumnType.NEWDATE: temporal.date,
        ColumnType.TIME: temporal.old_time,
        ColumnType.DATETIME: temporal.old_datetime,
        ColumnType.TIMESTAMP: temporal.old_timestamp,
        ColumnType.TIME2: temporal.time2,
        ColumnType.DATETIME2: temporal.datetime2,
        ColumnType.TIMESTAMP2: temporal.timestamp2,
        ColumnType.STRING: _string,
        ColumnType.VARCHAR: _characters,
        ColumnType.VAR_STRING: _characters,
        **dict.fromkeys(BLOB_TYPES, _characters),
        ColumnType.MARIADB_VARCHAR_COMPRESSED: strings.compressed,
        ColumnType.MARIADB_BLOB_COMPRESSED: strings.compressed,
        ColumnType.ENUM: labels.enum,
        ColumnType.SET: labels.label_set,
        ColumnType.JSON: documents.document,
        ColumnType.GEOMETRY: binary,
        ColumnType.VECTOR: vector,
    }
)


@record(frozen=True, slots=True)
class BatchColumn:
    """A column of the batches. ``index`` is its index among the table's columns, ``name`` is valid Unicode."""

    index: int
    name: str
    arrow: ArrowColumn

    @property
    def field(self) -> pa.Field:
        """The column's field in the schema."""
        return pa.field(self.name, self.arrow.type)


def batch_columns(table: Table, names: Sequence[str] | None = None) -> tuple[BatchColumn, ...]:
    """The table's columns, or the named ones, in the order of the table.

    Raises ``ConfigurationError`` for a name that the table does not have.
    """
    table.check_columns(names or ())
    return tuple(
        BatchColumn(index, strings.valid_text(column.name), _MAKERS.get(column.type, _nothing)(column))
        for index, column in enumerate(table.columns)
        if column.type is not ColumnType.TYPED_ARRAY and (names is None or column.name in names)
    )


def batch_schema(
    table: Table,
    *,
    columns: Sequence[str] | None = None,
    images: Images = "after",
    metadata: Sequence[str] = METADATA_COLUMNS,
) -> pa.Schema:
    """The schema of a table's batches: its columns, the chosen ``METADATA_COLUMNS``, with ``both`` the before image.

    Raises ``ConfigurationError`` for unknown names, and for a column called like a metadata column.
    """
    return schema_of(batch_columns(table, columns), images, metadata)


def schema_of(columns: Sequence[BatchColumn], images: Images, metadata: Sequence[str]) -> pa.Schema:
    """The schema of batches with these columns."""
    fields = [column.field for column in columns]
    unknown = set(metadata).difference(METADATA_FIELDS)
    if unknown:
        raise ConfigurationError(
            f"metadata: unknown column {', '.join(sorted(unknown))}; there are {', '.join(METADATA_FIELDS)}"
        )
    if images == "both":
        before = pa.struct([column.field for column in columns])
        added = [pa.field(BEFORE, before), pa.field(BEFORE_ABSENT, NAMES)]
    elif images == "after":
        added = []
    else:
        raise ConfigurationError(f"images: must be 'after' or 'both', not {images!r}")
    added = [field for name, field in METADATA_FIELDS.items() if name in metadata] + added
    taken = {field.name for field in added}.intersection(column.name for column in columns)
    if taken:
        raise ConfigurationError(
            f"metadata: the table has a column called {', '.join(sorted(taken))}, as the metadata columns have: "
            "leave them out by metadata= and images="
        )
    return pa.schema([*fields, *added])
