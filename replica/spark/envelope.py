"""The envelope: the changes of any table in one schema, with rows as VARIANT or as JSON text.

    op      STRING     insert, update, delete; ddl, xa_commit, xa_rollback (option includeDdl); gap
    schema  STRING     the schema of the table; for a statement the default schema of its session
    table   STRING     null for statements
    before  VARIANT    the row before an update or delete
    after   VARIANT    the row after an insert or update; a column that a MINIMAL after image leaves out has the value
                       of the before image
    key     VARIANT    the primary key of ``after`` (of ``before`` for a delete); null if the log does not name it
    ts      TIMESTAMP  of the commit, in microseconds since MySQL 8.0.1; else the second in which the transaction
                       began
    gtid    STRING     of the transaction
    source  STRUCT     server_id, server_uuid (of live sources), file, pos (of the event), row (see ``seq_number``),
                       xid (the engine's number of the transaction), xa (id of an XA transaction), and outcome:
                       ``commit``; ``rollback`` (the change was undone); ``prepared`` (a later xa_commit or
                       xa_rollback decides); ``open`` (the log ends within the transaction)
    seq     DECIMAL    sorts all changes in the order of the log: see ``seq_number``
    sql     STRING     of statements; of a gap the reason
    source_name  STRING  only with the option sourceName: its value

An object has no member for a column that no row image holds. This module makes Arrow batches and does not need Spark;
typed columns are in ``table_mode``.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from protocol.binlog.events import EventHeader, QueryEvent
from protocol.constants import ColumnType

from ..arrow.strings import STRING, valid_text
from ..arrow.temporal import TIMESTAMP
from ..spool.pieces import LogPiece
from ..spool.transaction_part import TransactionFacts
from ..sql.xa import XA_COMMIT, XA_ROLLBACK
from . import json_text, variant
from .changes import PlacedChange
from .gather import SEQ_TYPE, GatheredRows, seq_array, seq_number

RowFormat = Literal["variant", "json"]
Flags = npt.NDArray[np.bool_]
# The encoded values of each column; None for a column that is left out.
_Values = Sequence[pa.Array | json_text.Member | None]

#: The column with the value of the option ``sourceName``, which ``read_task`` adds.
SOURCE_NAME: Final = "source_name"
SOURCE_TYPE: Final = pa.struct(
    [
        pa.field("server_id", pa.int64(), nullable=False),
        ("server_uuid", STRING),
        pa.field("file", STRING, nullable=False),
        pa.field("pos", pa.int64(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        ("xid", pa.int64()),
        ("xa", STRING),
        pa.field("outcome", STRING, nullable=False),
    ]
)


def envelope_schema(row_format: RowFormat) -> pa.Schema:
    """The schema of envelope batches."""
    row = STRING if row_format == "json" else variant.VARIANT_TYPE
    return pa.schema(
        [
            pa.field("op", STRING, nullable=False),
            ("schema", STRING),
            ("table", STRING),
            ("before", row),
            ("after", row),
            ("key", row),
            pa.field("ts", TIMESTAMP, nullable=False),
            ("gtid", STRING),
            pa.field("source", SOURCE_TYPE, nullable=False),
            pa.field("seq", SEQ_TYPE, nullable=False),
            ("sql", STRING),
        ]
    )


class EnvelopeWriter:
    """Makes envelope batches from the changes of one piece."""

    def __init__(self, piece: LogPiece, row_format: RowFormat) -> None:
        self.schema = envelope_schema(row_format)
        self._piece = piece
        self._row_format = row_format

    def rows(self, gathered: GatheredRows) -> pa.RecordBatch:
        """The batch of some row changes of one table."""
        table, size = gathered.table, gathered.batch.num_rows
        objects = _Objects(gathered, self._row_format)
        op = gathered.batch.column("_op")
        is_delete, is_update = (_flags(pc.equal(op, kind)) for kind in ("delete", "update"))
        row = objects.row()
        before, has_before = row, is_delete
        if is_update.any():
            old = objects.row_before()
            before = pc.if_else(pa.array(is_update), old, row) if is_delete.any() else old
            has_before = is_update | is_delete
        key = objects.key()
        columns = [
            op,
            pa.repeat(pa.scalar(valid_text(table.schema)), size),
            pa.repeat(pa.scalar(valid_text(table.name)), size),
            objects.finish(before, has_before),
            objects.finish(row, ~is_delete),
            pa.nulls(size, self.schema.field("key").type) if key is None else key,
            *self._facts(gathered.changes, gathered.spread, gathered.rows, gathered.seq(self._piece)),
            pa.nulls(size, STRING),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def statements(self, changes: Sequence[PlacedChange]) -> pa.RecordBatch:
        """The batch of some statements (DDL, XA COMMIT, XA ROLLBACK)."""
        size = len(changes)
        numbers, rows = np.arange(size), np.zeros(size, np.int64)
        queries = [change.event for change in changes if isinstance(change.event, QueryEvent)]
        row_type = self.schema.field("before").type
        columns = [
            pa.array([statement_operation(query.sql) for query in queries], STRING),
            pa.array([valid_text(query.schema) for query in queries], STRING),
            pa.nulls(size, STRING),
            *(pa.nulls(size, row_type) for _ in range(3)),
            *self._facts(
                changes,
                lambda values, arrow_type: pa.array(values, arrow_type),
                rows,
                seq_array([seq_number(self._piece, change) for change in changes], numbers, rows),
            ),
            pa.array([valid_text(query.sql) for query in queries], STRING),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def gap(self) -> pa.RecordBatch:
        """One row for a missing part of the log; ``sql`` has the reason."""
        piece = self._piece
        header = EventHeader(int(time.time()), 0, 0, 0, 0, 0)
        event = QueryEvent(header, piece.file, piece.position, 0, 0, 0, "", "", b"")
        facts = TransactionFacts(None, header.timestamp * 1_000_000, outcome="open")
        batch = self.statements([PlacedChange(event, 0, facts)])
        values = {"op": pa.array(["gap"]), "schema": pa.nulls(1, STRING), "sql": pa.array([piece.gap])}
        columns = [values.get(field.name, batch.column(field.name)) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _facts(
        self,
        changes: Sequence[PlacedChange],
        spread: Callable[[Sequence[object], pa.DataType], pa.Array],
        rows: npt.NDArray[np.int64],
        seq: pa.Array,
    ) -> list[pa.Array]:
        """The columns ts, gtid, source and seq."""
        facts = [change.facts for change in changes]
        firsts = spread([change.inner for change in changes], pa.int64())
        size = len(rows)
        source = [
            spread([change.event.header.server_id for change in changes], pa.int64()),
            pa.repeat(pa.scalar(self._piece.server_uuid, STRING), size),
            pa.repeat(pa.scalar(self._piece.file, STRING), size),
            spread([change.event.position for change in changes], pa.int64()),
            pc.add(firsts, pa.array(rows)),
            spread([one.xid for one in facts], pa.int64()),
            spread([one.xa for one in facts], STRING),
            spread([one.outcome for one in facts], STRING),
        ]
        return [
            spread([one.ts for one in facts], pa.int64()).cast(TIMESTAMP),
            spread([one.gtid for one in facts], STRING),
            pa.StructArray.from_arrays(source, fields=list(SOURCE_TYPE)),
            seq,
        ]


class _Objects:
    """The rows of a batch as VARIANT or JSON objects, before rows that do not exist become NULL."""

    def __init__(self, gathered: GatheredRows, row_format: RowFormat) -> None:
        self._gathered = gathered
        self._is_json = row_format == "json"
        batch, columns = gathered.batch, gathered.table.columns
        self._size = batch.num_rows
        # A functional index over JSON (TYPED_ARRAY) is in the table map, but no row holds a value of it.
        self._indexes = [
            index for index, column in enumerate(columns) if column.type is not ColumnType.TYPED_ARRAY
        ]
        self._names = batch.schema.names[: len(self._indexes)]
        self._is_document = [columns[index].type is ColumnType.JSON for index in self._indexes]
        self._layout = variant.ObjectLayout(self._names)
        self._values = self._encode(batch.columns[: len(self._indexes)], "after")

    def row(self) -> pa.Array:
        """The rows after the change, or the deleted rows."""
        return self._by_absence(self._values, self._gathered.batch.column("_absent"))

    def row_before(self) -> pa.Array:
        """The rows before updates; undefined for other changes."""
        before = self._gathered.batch.column("_before")
        values = self._encode(before.flatten(), "before")
        return self._by_absence(values, self._gathered.batch.column("_before_absent"))

    def key(self) -> pa.Array | None:
        """The primary keys of ``row`` as a finished column; None if the log does not name the key."""
        columns, wanted = self._gathered.table.columns, set(self._gathered.table.primary_key)
        places = [place for place, index in enumerate(self._indexes) if columns[index].name in wanted]
        if not places:
            return None
        names = [self._names[place] for place in places]
        values = [self._values[place] for place in places]
        if self._is_json:
            return json_text.json_objects(names, values, self._size)
        # The key has a VARIANT dictionary of its own: the one of all column names is longer than most rows.
        layout = variant.ObjectLayout(names)
        return variant.variant_array(layout.objects(values, self._size), layout.metadata)

    def finish(self, objects: pa.Array, valid: Flags) -> pa.Array:
        """The objects as a column, NULL where they are not ``valid``."""
        flags = None if valid.all() else valid
        if not self._is_json:
            return variant.variant_array(objects, self._layout.metadata, flags)
        if flags is None:
            return objects
        return (
            pc.if_else(pa.array(flags), objects, pa.scalar(None, STRING))
            if flags.any()
            else pa.nulls(len(flags), STRING)
        )

    def _encode(self, arrays: Sequence[pa.Array], image: Literal["before", "after"]) -> _Values:
        values: list[pa.Array | json_text.Member] = []
        for index, array, is_document in zip(self._indexes, arrays, self._is_document, strict=True):
            is_lossy = self._gathered.lost_dates and pa.types.is_temporal(array.type)
            lost = self._gathered.lost_texts(index, image) if is_lossy else None
            value: pa.Array | json_text.Member
            if self._is_json:
                value = json_text.json_member(array, is_document=is_document)
                value = value if lost is None else json_text.with_texts(value, lost)
            else:
                value = variant.variant_values(array)
                value = value if lost is None else pc.coalesce(value, variant.strings(lost))
            values.append(value)
        return values

    def _objects(self, values: _Values, size: int) -> pa.Array:
        if self._is_json:
            return json_text.json_objects(self._names, values, size)
        return self._layout.objects(values, size)

    def _by_absence(self, values: _Values, absent: pa.Array) -> pa.Array:
        """Objects without the members that are absent. Rows that lack the same columns are encoded together."""
        if absent.null_count == len(absent):
            return self._objects(values, self._size)
        groups: dict[tuple[str, ...], list[int]] = {}
        for row, names in enumerate(absent.to_pylist()):
            groups.setdefault(tuple(names or ()), []).append(row)
        parts, order = [], []
        for names, rows in groups.items():
            indexes = pa.array(rows)
            kept: _Values = [
                None if name in names or value is None else value.take(indexes)
                for name, value in zip(self._names, values, strict=True)
            ]
            parts.append(self._objects(kept, len(rows)))
            order += rows
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.array(order))))


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.to_numpy(zero_copy_only=False)
    return flags


def statement_operation(sql: str) -> str:
    """The ``op`` of a statement."""
    if sql.startswith(XA_COMMIT):
        return "xa_commit"
    return "xa_rollback" if sql.startswith(XA_ROLLBACK) else "ddl"
