"""The rows of packed mode as tasks of jobs take them; ``packed`` makes them, and describes the columns.

    fact names     the columns of typed rows that are not the table's own
    PackedItem     one row of packed mode
    unpack         the packed rows of an item

Nothing of decoding is imported here: Spark starts several processes for each write, and each imports what it needs.
"""

from typing import Final

import pyarrow as pa

from protocol.records import record

KEY: Final = b"key"
HAS_NAMES: Final = b"has_names"
SEPARATOR: Final = "\0"
#: The columns that table mode and packed mode add to those of a table.
FACT_NAMES: Final = frozenset(
    {
        *("_op", "_seq", "_ts", "_gtid", "_file", "_pos", "_outcome", "_xa"),
        *("_absent", "_before", "_before_absent", "_source_name"),
    }
)


@record(frozen=True, slots=True)
class PackedItem:
    """One row of packed mode; the fields are its columns, in their order."""

    op: str
    schema: str | None
    table: str | None
    rows: bytes | None
    ts: int
    file: str
    pos: int
    sql: str | None
    explicit_timestamps: bool | None = None
    row_count: int | None = None


@record(frozen=True, slots=True)
class PackedRows:
    """Rows of one table. ``key`` names the columns of its primary key; unless ``has_names`` columns are @1, @2..."""

    rows: pa.RecordBatch
    key: tuple[str, ...]
    has_names: bool


def unpack(data: bytes) -> PackedRows:
    """The packed rows of an item."""
    with pa.ipc.open_stream(data) as reader:
        rows = reader.read_next_batch()
    metadata = rows.schema.metadata or {}
    key = metadata.get(KEY, b"").decode()
    names = tuple(key.split(SEPARATOR)) if key else ()
    return PackedRows(
        rows.replace_schema_metadata(None),
        names,
        bool(metadata.get(HAS_NAMES)),
    )


def own_columns(schema: pa.Schema) -> list[pa.Field]:
    """The fields of a schema that are columns of the table itself, not ``_op`` and the like."""
    return [field for field in schema if field.name not in FACT_NAMES]
