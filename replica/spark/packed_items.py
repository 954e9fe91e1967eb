"""The rows of packed mode as tasks of jobs take them; ``packed`` makes them, and describes the columns.

    fact names     the columns of typed rows that are not the table's own
    PackedItem     one row of packed mode
    unpack         the packed rows of an item
    pack_batch     a batch of the envelope -> one row (``schemaMode=packed_envelope``), for jobs that write files

Nothing of decoding is imported here: Spark starts several processes for each write, and each imports what it needs.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
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
    seq: str | None = None
    sql_mode: int | None = None


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


#: The columns of an envelope whose batches are packed: Spark has little work with few large values.
BATCHES_SCHEMA: Final = pa.schema(
    [pa.field("batch", pa.binary(), nullable=False), pa.field("row_count", pa.int64(), nullable=False)]
)
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def pack_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as one row of ``BATCHES_SCHEMA``."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_COMPRESSED) as writer:
        writer.write_batch(batch)
    columns = [binary_value(sink.getvalue()), pa.array([batch.num_rows], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=BATCHES_SCHEMA)


def binary_value(data: pa.Buffer | None) -> pa.Array:
    """One value, which is not copied."""
    if data is None:
        return pa.nulls(1, pa.binary())
    ends = pa.py_buffer(np.array([0, data.size], np.int32))
    return pa.Array.from_buffers(pa.binary(), 1, [None, ends, data])


def unpack_batches(packed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The reverse of ``pack_batch``, for several rows."""
    for value in packed.column("batch"):
        with pa.ipc.open_stream(value.as_buffer()) as reader:
            yield from reader


def own_columns(schema: pa.Schema) -> list[pa.Field]:
    """The fields of a schema that are columns of the table itself, not ``_op`` and the like."""
    return [field for field in schema if field.name not in FACT_NAMES]
