"""Table mode: the changes of one table as typed columns, in types that Spark has.

    the table's columns     in the types of ``replica.arrow.schema``. Where Spark lacks one: an unsigned integer
                            becomes the next larger signed one (BIGINT UNSIGNED and BIT: DECIMAL(20, 0)), a DECIMAL
                            of more than 38 digits becomes STRING, TIME becomes INTERVAL DAY TO SECOND
    _op                     insert, update, delete
    _seq                    sorts all changes in the order of the log: see ``seq_number``
    _ts, _gtid              time and GTID of the commit, as in the envelope
    _file, _pos             binlog file and position of the event
    _source_name            only with the option sourceName: its value

With ``images=both`` also:

    _outcome, _xa           as in the envelope's ``source``
    _absent                 names of the columns that no row image holds
    _before                 the row before an update, a struct
    _before_absent          names of the columns that the before image lacks

A row is the row after the change, or the deleted row. A column that an update's after image leaves out has the value
of the before image. This module is not for rows of several tables: see ``envelope`` and ``packed``.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import ConfigurationError, SchemaMismatchError
from protocol.rows.table import Table

from ..arrow import Images, batch_schema
from ..arrow.temporal import TIMESTAMP
from ..spool.pieces import LogPiece
from ..sql.quoting import identifier
from .gather import SEQ_TYPE, GatheredRows
from .json_text import decimal_texts
from .packed_items import own_columns

OnSchemaChange = Literal["fail", "null", "ignore"]

#: The column with the value of the option ``sourceName``, which ``read_task`` adds.
SOURCE_NAME: Final = "_source_name"
_NAMES: Final = pa.list_(pa.field("element", pa.string()))
_BEFORE, _BEFORE_ABSENT = "_before", "_before_absent"
_SPARK_TYPES: Final[Mapping[int, pa.DataType]] = MappingProxyType(
    {
        pa.uint8().id: pa.int16(),
        pa.uint16().id: pa.int32(),
        pa.uint32().id: pa.int64(),
        pa.uint64().id: pa.decimal128(20, 0),
        pa.decimal256(1, 0).id: pa.string(),
        pa.null().id: pa.string(),
        pa.list_(pa.float32()).id: pa.list_(pa.field("element", pa.float32())),
    }
)
_FIXED_FIELDS: Final = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_seq", SEQ_TYPE, nullable=False),
    pa.field("_ts", TIMESTAMP, nullable=False),
    pa.field("_gtid", pa.string()),
    pa.field("_file", pa.string(), nullable=False),
    pa.field("_pos", pa.int64(), nullable=False),
)
_FIELDS_OF_BOTH: Final = (
    pa.field("_outcome", pa.string(), nullable=False),
    pa.field("_xa", pa.string()),
    pa.field("_absent", _NAMES),
)


def table_schema(table: Table, images: Images = "after") -> pa.Schema:
    """The schema of a table's batches. Raises ``ConfigurationError`` if the table has a column called ``_op`` etc."""
    columns = [pa.field(field.name, spark_type(field.type)) for field in batch_schema(table, metadata=())]
    added = list(_FIXED_FIELDS)
    if images == "both":
        added += [*_FIELDS_OF_BOTH, pa.field(_BEFORE, pa.struct(columns)), pa.field(_BEFORE_ABSENT, _NAMES)]
    taken = {field.name for field in added} & {field.name for field in columns}
    if taken:
        raise ConfigurationError(
            f"schemaMode: {table} has a column called {', '.join(sorted(taken))}, as table mode has: read it with "
            "schemaMode=envelope"
        )
    return pa.schema([*columns, *added])


def spark_type(arrow_type: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark receives values of this Arrow type."""
    return _SPARK_TYPES.get(arrow_type.id, arrow_type)


class TableWriter:
    """Makes batches of one ``schema`` from rows of a table, whose columns may have changed; ``on_change`` says how.

    ``fail`` raises ``SchemaMismatchError`` if names or types differ. ``ignore`` and ``null`` leave added columns out,
    set missing ones to null, and convert values of another type. A column whose values do not fit becomes null with
    ``null``, and raises ``SchemaMismatchError`` with ``ignore``.
    """

    def __init__(
        self, piece: LogPiece, schema: pa.Schema, on_change: OnSchemaChange, *, is_exact: bool = True
    ) -> None:
        """``is_exact``: the schema is the table's own; otherwise the user chose columns and types."""
        self.schema = schema
        self._piece = piece
        self._on_change = on_change
        self._is_exact = is_exact
        self._columns = own_columns(schema)

    def rows(self, gathered: GatheredRows) -> pa.RecordBatch:
        """One batch of row changes. Raises ``SchemaMismatchError`` as the class says."""
        batch = gathered.batch
        count = batch.schema.get_field_index("_op")
        names = batch.schema.names[:count]
        types = [field.type for field in batch.schema][:count]
        if gathered.table.names_from is None:
            self._check_names(gathered, names)
        if self._on_change == "fail" and self._is_exact:
            self._check(gathered, {name: spark_type(kind) for name, kind in zip(names, types, strict=True)})
        current = dict(zip(names, batch.columns[:count], strict=True))
        added = self._added(gathered, names)
        columns = [
            added[field.name]()
            if field.name in added
            else self._convert(gathered, field, current.get(field.name))
            for field in self.schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _added(self, gathered: GatheredRows, names: Sequence[str]) -> dict[str, Callable[[], pa.Array]]:
        facts = [change.facts for change in gathered.changes]
        batch, spread = gathered.batch, gathered.spread
        return {
            "_op": lambda: batch.column("_op"),
            "_seq": lambda: gathered.seq(self._piece),
            "_ts": lambda: spread([one.ts for one in facts], pa.int64()).cast(TIMESTAMP),
            "_gtid": lambda: spread([one.gtid for one in facts], pa.string()),
            "_file": lambda: pa.repeat(pa.scalar(self._piece.file), batch.num_rows),
            "_pos": lambda: spread([change.event.position for change in gathered.changes], pa.int64()),
            "_outcome": lambda: spread([one.outcome for one in facts], pa.string()),
            "_xa": lambda: spread([one.xa for one in facts], pa.string()),
            "_absent": lambda: batch.column("_absent").cast(_NAMES),
            _BEFORE: lambda: self._before(gathered, names),
            _BEFORE_ABSENT: lambda: batch.column(_BEFORE_ABSENT).cast(_NAMES),
        }

    def _before(self, gathered: GatheredRows, names: Sequence[str]) -> pa.Array:
        before = gathered.batch.column(_BEFORE)
        found = dict(zip(names, before.flatten(), strict=True))
        fields = list(self.schema.field(_BEFORE).type)
        if not fields:
            return pa.nulls(len(before), pa.struct([]))
        values = [self._convert(gathered, field, found.get(field.name)) for field in fields]
        return pa.StructArray.from_arrays(values, fields=fields, mask=pc.invert(before.is_valid()))

    def _check(self, gathered: GatheredRows, found: Mapping[str, pa.DataType]) -> None:
        wanted = {field.name: field.type for field in self._columns}
        if found != wanted:
            event = gathered.changes[0].event
            raise SchemaMismatchError(
                f"the columns of {gathered.table} at {event.file}:{event.position} are not those of this query: "
                f"{schema_difference(wanted, found)} -- restart the query to go on with the new columns, or set "
                "onSchemaChange=ignore or null"
            )

    def _check_names(self, gathered: GatheredRows, names: Sequence[str]) -> None:
        """Raises ``SchemaMismatchError`` if the log has no column names: every column would silently be null."""
        lost = [field.name for field in self._columns if field.name not in names]
        if lost:
            event = gathered.changes[0].event
            raise SchemaMismatchError(
                f"the log has no column names of {gathered.table} at {event.file}:{event.position}, so it is not "
                f"known which of its {len(names)} columns is {', '.join(lost)} -- grant the user SELECT on the table "
                "(for files: relay.schemas of the relay beside them), or read the rows by the column names @1, @2..."
            )

    def _convert(self, gathered: GatheredRows, field: pa.Field, array: pa.Array | None) -> pa.Array:
        if array is None:
            return pa.nulls(gathered.batch.num_rows, field.type)
        if array.type == field.type:
            return array
        if array.type.id == pa.decimal256(1, 0).id and field.type == pa.string():
            return decimal_texts(array)
        try:
            return array.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self._on_change == "null":
                return pa.nulls(len(array), field.type)
            event = gathered.changes[0].event
            raise SchemaMismatchError(
                f"column {gathered.table}.{field.name} has the type {array.type} at {event.file}:{event.position} "
                f"and cannot be read as {field.type}: {error} -- onSchemaChange=null makes the whole batch null there"
            ) from error


def schema_difference(wanted: Mapping[str, pa.DataType], found: Mapping[str, pa.DataType]) -> str:
    """The difference between two schemas as text, for error messages."""
    changes = [f"{name} is new" for name in found if name not in wanted]
    changes += [f"{name} is gone" for name in wanted if name not in found]
    changes += [
        f"{name} is {found[name]} instead of {kind}"
        for name, kind in wanted.items()
        if name in found and found[name] != kind
    ]
    return ", ".join(changes) or "the columns have another order"


def spark_ddl(schema: pa.Schema) -> str:
    """The schema as the DDL text that Spark takes."""
    return ", ".join(_spark_field(field, " ") for field in schema)


def _spark_field(field: pa.Field, between: str) -> str:
    not_null = "" if field.nullable else " NOT NULL"
    return f"{identifier(field.name)}{between}{_spark_name(field.type)}{not_null}"


def _spark_name(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        fields: Sequence[pa.Field] = [kind.field(index) for index in range(kind.num_fields)]
        if any(b"variant" in (field.metadata or {}) for field in fields):
            return "VARIANT"
        return f"STRUCT<{', '.join(_spark_field(field, ': ') for field in fields)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_spark_name(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    return _SPARK_NAMES[kind.id]


_SPARK_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {
        pa.bool_().id: "BOOLEAN",
        pa.int8().id: "TINYINT",
        pa.int16().id: "SMALLINT",
        pa.int32().id: "INT",
        pa.int64().id: "BIGINT",
        pa.float32().id: "FLOAT",
        pa.float64().id: "DOUBLE",
        pa.string().id: "STRING",
        pa.binary().id: "BINARY",
        pa.date32().id: "DATE",
        pa.duration("us").id: "INTERVAL DAY TO SECOND",
    }
)
