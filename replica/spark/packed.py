"""Packed mode, for jobs that keep many tables: one stream with the typed rows of all tables, in the order of the log.

    op      STRING     rows; ddl, xa_commit, xa_rollback; gap
    schema  STRING     the schema of the table; for a statement the default schema of its session
    table   STRING     null for statements
    rows    BINARY     many rows of one table: an Arrow IPC stream, which ``packed_items.unpack`` reads
    ts      BIGINT     commit time of the first row: microseconds since 1970
    file    STRING     binlog file of the first row's event
    pos     BIGINT     position of the first row's event
    sql     STRING     of statements; of a gap the reason
    explicit_timestamps  BOOLEAN  of statements: whether the log says that explicit_defaults_for_timestamp was on
    row_count            BIGINT   how many row changes ``rows`` has; null without ``rows``
    seq     STRING     of statements: the number that rows have as ``_seq``, see ``seq_number``
    sql_mode             BIGINT   of statements: the bits of sql_mode that the statement was read with

Packed rows have the columns of table mode with ``images=both``, but TIME is text, as Delta has no type for it. Unlike
the rows of an envelope, they are in order across statements, and from one partition to the next.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from protocol.binlog.events import QueryEvent
from protocol.binlog.query_status import parse_status_variables
from protocol.constants import SessionFlag
from protocol.errors import DecodeError

from ..arrow.strings import STRING, valid_text
from ..render.json_lines import time_text
from ..schemas.proof import nameless
from ..spool.pieces import LogPiece
from ..sql.statement_kind import sql_mode_of, text_of
from .changes import PlacedChange
from .envelope import statement_operation
from .gather import GatheredRows, seq_number
from .packed_items import HAS_NAMES, KEY, SEPARATOR, PackedRows
from .table_mode import TableWriter, table_schema
from .unlogged import with_unknown

PACKED_SCHEMA: Final = pa.schema(
    [
        pa.field("op", STRING, nullable=False),
        ("schema", STRING),
        ("table", STRING),
        ("rows", pa.binary()),
        pa.field("ts", pa.int64(), nullable=False),
        pa.field("file", STRING, nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        ("sql", STRING),
        ("explicit_timestamps", pa.bool_()),
        ("row_count", pa.int64()),
        ("seq", STRING),
        ("sql_mode", pa.int64()),
    ]
)


class PackedWriter:
    """Makes packed batches from the changes of one piece."""

    def __init__(self, piece: LogPiece) -> None:
        self.schema = PACKED_SCHEMA
        self._piece = piece

    def rows(self, gathered: GatheredRows) -> pa.RecordBatch:
        """A batch of one row, which packs some row changes of one table."""
        table = gathered.table
        typed = TableWriter(self._piece, table_schema(table, "both"), "ignore").rows(gathered)
        key = tuple(valid_text(name) for name in table.primary_key)
        if table.names_from is not None:
            typed = with_unknown(typed, table, key)
        first = gathered.changes[int(gathered.numbers[0])]
        return self._batch(
            op=["rows"],
            schema=[valid_text(table.schema)],
            table=[valid_text(table.name)],
            rows=[pack(typed, key, has_names=table.names_from is not None and not nameless(table))],
            row_count=[typed.num_rows],
            **_place([first]),
        )

    def statements(self, changes: Sequence[PlacedChange]) -> pa.RecordBatch:
        """The batch of some statements (DDL, XA COMMIT, XA ROLLBACK)."""
        queries = [change.event for change in changes if isinstance(change.event, QueryEvent)]
        return self._batch(
            op=[statement_operation(query.sql) for query in queries],
            schema=[valid_text(query.schema) for query in queries],
            sql=[valid_text(text_of(query)) for query in queries],
            explicit_timestamps=[_has_explicit_timestamps(query) for query in queries],
            seq=[str(seq_number(self._piece, change)) for change in changes],
            sql_mode=[sql_mode_of(query) for query in queries],
            **_place(changes),
        )

    def gap(self) -> pa.RecordBatch:
        """A batch of one row for a missing part of the log."""
        piece = self._piece
        return self._batch(op=["gap"], sql=[piece.gap], ts=[0], file=[piece.file], pos=[piece.position])

    def _batch(
        self, **values: list[object] | list[str] | list[int] | list[bytes] | list[bool]
    ) -> pa.RecordBatch:
        size = len(values["op"])
        columns = [pa.array(values.get(field.name, [None] * size), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def pack(rows: pa.RecordBatch, key: Sequence[str], *, has_names: bool) -> bytes:
    """Rows, and the facts of their table, as one Arrow IPC stream; TIME becomes text."""
    metadata = {
        KEY: SEPARATOR.join(key).encode(),
        HAS_NAMES: b"1" if has_names else b"",
    }
    rows = without_durations(rows)
    rows = rows.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def repack(packed: PackedRows, rows: pa.RecordBatch) -> bytes:
    """Pack some of the rows of a ``PackedRows`` again."""
    return pack(rows, packed.key, has_names=packed.has_names)


def _has_explicit_timestamps(query: QueryEvent) -> bool:
    try:
        variables = parse_status_variables(query.status_variables)
    except DecodeError:
        return False
    if (said := variables.get("EXPLICIT_DEFAULTS_FOR_TIMESTAMP")) is not None:
        return bool(said)
    flags = variables.get("FLAGS2")
    return isinstance(flags, int) and bool(flags & SessionFlag.MARIADB_EXPLICIT_DEF_TIMESTAMP)


def _place(changes: Sequence[PlacedChange]) -> dict[str, list[object]]:
    return {
        "ts": [change.facts.ts for change in changes],
        "file": [change.event.file for change in changes],
        "pos": [change.event.position for change in changes],
    }


def without_durations(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with TIME columns as text."""
    columns, fields = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        array = _as_text(column)
        columns.append(array)
        fields.append(field.with_type(array.type))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_text(array: pa.Array) -> pa.Array:
    if pa.types.is_duration(array.type):
        return pa.array([None if value is None else time_text(value) for value in array.to_pylist()], STRING)
    if not pa.types.is_struct(array.type):
        return array
    kind = array.type
    fields = [kind.field(index) for index in range(kind.num_fields)]
    if not any(pa.types.is_duration(field.type) for field in fields):
        return array
    children = [_as_text(child) for child in array.flatten()]
    fields = [field.with_type(child.type) for field, child in zip(fields, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=array.is_null())
