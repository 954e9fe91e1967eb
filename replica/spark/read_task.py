"""The work of a Spark task: read one piece of the log, return its rows as RecordBatches of one schema.

It needs a ``LogPiece`` and a ``ReadPlan`` only; it plans nothing and does not import PySpark.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal

import pyarrow as pa

from protocol.binlog.events import QueryEvent, RowsEvent
from protocol.records import record, replace

from ..spool.pieces import LogPiece, ReadSettings
from .changes import ChangeReader, OnStatement, PlacedChange
from .envelope import SOURCE_NAME, EnvelopeWriter, RowFormat, envelope_schema
from .gather import BATCH_ROWS, RowGatherer
from .packed import PackedWriter
from .packed_items import pack_batch
from .table_mode import SOURCE_NAME as TYPED_SOURCE_NAME
from .table_mode import OnSchemaChange, TableWriter

_LOGGER: Final = logging.getLogger(__name__)

SchemaMode = Literal["envelope", "table", "packed", "packed_envelope"]
#: The names of the column for the source's name, in the envelope and in table mode.
SOURCE_NAMES: Final = (SOURCE_NAME, TYPED_SOURCE_NAME)
Writer = EnvelopeWriter | TableWriter | PackedWriter
#: Takes the batches of a task and returns those that Spark gets. It is pickled.
Sink = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@record(frozen=True, slots=True)
class ReadPlan:
    """How pieces become batches; the same for all pieces of a query. The repr shows no secret.

    ``schema`` is the schema of the batches; in table mode the user chose its columns and types unless ``is_exact``.
    ``source_name`` is the value of the column for the source's name, if the schema has this column. ``sink`` takes
    the batches of a piece, and returns those that Spark gets instead.
    """

    settings: ReadSettings
    schema: pa.Schema
    mode: SchemaMode = "envelope"
    row_format: RowFormat = "variant"
    include_ddl: bool = False
    on_schema_change: OnSchemaChange = "fail"
    on_statement: OnStatement = "fail"
    is_exact: bool = True
    batch_rows: int = BATCH_ROWS
    source_name: str | None = None
    sink: Sink | None = None


def read_piece(piece: LogPiece, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The batches of a piece. A batch holds rows of one table in the order of the log, or statements.

    Raises the errors of reading binlog files, ``SchemaMismatchError`` if the table's columns change (see
    ``on_schema_change``) and ``StatementFormatError`` (see ``on_statement``).
    """
    batches = formed(plan, partial(_read, piece))
    return batches if plan.sink is None else plan.sink(batches)


def formed(plan: ReadPlan, read: Callable[[ReadPlan], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The batches of ``read`` in the form of the plan: packed or not; with the source's name if the schema has it."""
    if plan.mode == "packed_envelope":
        schema = envelope_schema(plan.row_format)
        if plan.source_name is not None:
            schema = schema.append(pa.field(SOURCE_NAME, pa.string()))
        yield from map(pack_batch, formed(replace(plan, mode="envelope", schema=schema), read))
        return
    names = plan.schema.names
    place = next((plan.schema.get_field_index(name) for name in SOURCE_NAMES if name in names), -1)
    if place < 0:
        yield from read(plan)
        return
    field = plan.schema.field(place)
    for batch in read(replace(plan, schema=plan.schema.remove(place))):
        name = pa.repeat(pa.scalar(plan.source_name, field.type), batch.num_rows)
        yield batch.add_column(place, field, name)


def _read(piece: LogPiece, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    if piece.gap:
        yield from _gap(piece, plan)
        return
    reader = ChangeReader(piece, plan.settings, on_statement=plan.on_statement)
    gatherer = RowGatherer(reader.rows, plan.batch_rows)
    writer = writer_of(piece, plan)
    statements: list[PlacedChange] = []
    for change in reader:
        event = change.event
        if isinstance(event, RowsEvent):
            if not gatherer.fits(event.table):
                yield from _flush(gatherer, writer, statements)
                gatherer.forget(event.table)
            if gatherer.add(change):
                yield from _flush(gatherer, writer, statements)
        elif isinstance(event, QueryEvent) and plan.include_ddl:
            statements.append(change)
            if plan.mode == "packed":
                # Packed mode keeps the order of the log: rows before the statement go out first.
                yield from _flush(gatherer, writer, statements)
    yield from _flush(gatherer, writer, statements)
    _warn_of_losses(piece, gatherer, plan)


def _gap(piece: LogPiece, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    _LOGGER.error("a part of the log is missing before %s:%d: %s", piece.file, piece.position, piece.gap)
    writer = writer_of(piece, plan)
    if not isinstance(writer, TableWriter):
        yield writer.gap()


def writer_of(piece: LogPiece, plan: ReadPlan) -> Writer:
    """The writer of batches in the plan's form, with places of ``piece``."""
    if plan.mode == "envelope":
        return EnvelopeWriter(piece, plan.row_format)
    if plan.mode == "packed":
        return PackedWriter(piece)
    return TableWriter(piece, plan.schema, plan.on_schema_change, is_exact=plan.is_exact)


def _flush(gatherer: RowGatherer, writer: Writer, statements: list[PlacedChange]) -> Iterator[pa.RecordBatch]:
    for gathered in gatherer.flush():
        yield writer.rows(gathered)
    if statements and not isinstance(writer, TableWriter):
        yield writer.statements(statements)
    statements.clear()


def _warn_of_losses(piece: LogPiece, gatherer: RowGatherer, plan: ReadPlan) -> None:
    losses = gatherer.losses()
    if losses.dates and plan.mode != "envelope":
        _LOGGER.warning(
            "%s from %d on: %d zero or impossible dates became null, as the type DATE cannot hold them; "
            "schemaMode=envelope keeps them as text",
            piece.file,
            piece.position,
            losses.dates,
        )
    if losses.texts:
        _LOGGER.warning(
            "%s from %d on: %d texts hold bytes that are invalid in their character set; these bytes became U+FFFD",
            piece.file,
            piece.position,
            losses.texts,
        )
