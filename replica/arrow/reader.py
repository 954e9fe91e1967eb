"""The batch reader: events in the order of the log -> batches of one table's row changes.

It remembers the GTID of the transaction for its rows, and begins a new batch where the table's columns change. It
opens no files: ``BinlogFile.arrow`` gives it the events.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

import pyarrow as pa

from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    RowsEvent,
)
from protocol.errors import DecodeError, ReplicaError, SchemaMismatchError
from protocol.rows.table import table_text

from ..config.interruption import interrupted
from ..config.selection import read_names, read_table_text
from ..transactions.units import ROWS
from .arrays import Losses
from .builder import BATCH_ROWS, BatchBuilder, check_batch_rows
from .schema import METADATA_COLUMNS, Images, schema_of

# The events that a reader needs besides rows events.
SURROUNDING_EVENTS: Final = (AnonymousGtidEvent, MariadbGtidEvent, QueryEvent)
_FOLLOWED: Final = frozenset({GtidEvent, *SURROUNDING_EVENTS})


class BatchReader:
    """RecordBatches of one table, in the order of the log; an iterator.

        for batch in log.arrow(table="shop.orders"):
            print(batch.num_rows)

    It is an Arrow stream, too (``__arrow_c_stream__``): ``pyarrow.table``, ``polars.DataFrame`` and DuckDB take it
    as it is.

    ``events`` come from a decoder with a ``RawRowCompiler``; ``read`` takes later ones. ``table`` is
    ``"schema.table"``. ``schema`` is the schema of the last batch (None before the first); it changes with the
    table's columns. ``losses`` counts the values that Arrow could not hold. Damage raises the errors of iterating
    ``events``, after the batches of the rows before it; ``error`` holds the first one. With ``on_damage`` an event
    with damaged rows is skipped, and ``on_damage`` gets the error and the size of the event. Raises
    ``ConfigurationError`` for a table name without schema, and for unknown names.
    """

    def __init__(
        self,
        events: Iterator[Event],
        table: str,
        *,
        columns: Sequence[str] | None = None,
        images: Images = "after",
        metadata: Sequence[str] = METADATA_COLUMNS,
        batch_rows: int = BATCH_ROWS,
        on_damage: Callable[[DecodeError, int], None] | None = None,
    ) -> None:
        metadata = read_names("metadata", metadata)
        schema_of((), images, metadata)
        check_batch_rows(batch_rows)
        self.table = read_table_text("table", table)
        self.schema: pa.Schema | None = None
        self.losses = Losses()
        self._columns = None if columns is None else read_names("columns", columns)
        self._images = images
        self._metadata = metadata
        self._batch_rows = batch_rows
        self._on_damage = on_damage
        self._builder: BatchBuilder | None = None
        self._gtid: str | None = None
        self._is_gtid_new = False
        self.error: ReplicaError | None = None
        self._interruption: RuntimeError | None = None
        self._batches = self.read(events)
        # A batch that was read for its schema.
        self._first: pa.RecordBatch | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        try:
            for batch in self._batches:
                return batch
        except BaseException as error:
            # Of a signal handler, say. A generator that has raised would seem to be at its end.
            self._interruption = interrupted(type(error).__name__)
            raise
        if (failed := self.error or self._interruption) is not None:
            raise failed
        raise StopIteration

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The batches that are left as a stream of the Arrow PyCapsule interface; reading it reads the log.

        A stream has one schema, that of its first batch: later columns are a ``SchemaMismatchError``. Without any
        batch the stream has the metadata columns alone. A program that reads the stream raises errors of its own,
        with the texts of the errors here.
        """
        # DuckDB asks twice, first for the schema only: the first batch is kept until the stream is read.
        first = self._first = next(self, None)
        schema = self.empty_schema if first is None else first.schema
        stream = pa.RecordBatchReader.from_batches(schema, self._of_one_schema(schema))
        return stream.__arrow_c_stream__(requested_schema)

    @property
    def empty_schema(self) -> pa.Schema:
        """The schema of an Arrow stream without any batch: the metadata columns."""
        return schema_of((), self._images, self._metadata)

    def _of_one_schema(self, schema: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
        for batch in self:
            check_schema(self.table, batch, schema)
            yield batch

    def go_on_with(self, section: Iterator[Event]) -> None:
        """Read a section of the log, which begins with a transaction. ``losses`` start again at 0."""
        self._gtid, self._is_gtid_new = None, False
        self.error = None
        self.losses = Losses()
        if self._builder is not None:
            self._builder.losses = self.losses
        self._batches = self.read(section)

    def take(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Hand out these batches, which other readers have made. An error of these readers ends the batches."""

        def followed() -> Generator[pa.RecordBatch, None, None]:
            try:
                for batch in batches:
                    self.schema = batch.schema
                    yield batch
            except ReplicaError as error:
                self.error = error

        self._batches = followed()

    def read(self, events: Iterable[Event]) -> Generator[pa.RecordBatch, None, None]:
        """The batches of these events, up to the first error, which ``error`` then holds."""
        try:
            # In small transactions most events are no rows events: each costs two look-ups here.
            for event in events:
                kind = type(event)
                if kind in ROWS:
                    assert isinstance(event, RowsEvent)
                    yield from self._add(event)
                elif kind in _FOLLOWED:
                    self._follow(event)
            yield from self._flush()
        except ReplicaError as error:
            if self.error is None:
                # Reading has failed: give out the rows before the damage first.
                with suppress(ReplicaError):
                    yield from self._flush()
            self.error = self.error or error

    def _follow(self, event: Event) -> None:
        """Follow which transaction the next rows belong to."""
        if isinstance(event, AnonymousGtidEvent | MariadbGtidEvent):
            self._gtid = str(event.gtid) if isinstance(event, GtidEvent | MariadbGtidEvent) else None
            self._is_gtid_new = True
        elif isinstance(event, QueryEvent) and event.sql == "BEGIN":
            if not self._is_gtid_new:
                # This transaction has no GTID: the last one belongs to the transaction before.
                self._gtid = None
            self._is_gtid_new = False

    def _add(self, event: RowsEvent) -> Iterator[pa.RecordBatch]:
        if self._builder is None or not self._builder.fits(event.table):
            if table_text(event.table.schema, event.table.name) != self.table:
                return
            yield from self._flush()
            self._builder = BatchBuilder(
                event.table,
                columns=self._columns,
                images=self._images,
                metadata=self._metadata,
                batch_rows=self._batch_rows,
                losses=self.losses,
            )
        if self._builder.append(event, self._gtid):
            yield from self._flush()

    def _flush(self) -> Iterator[pa.RecordBatch]:
        builder = self._builder
        if builder is None:
            return
        batches = builder.flush()
        while True:
            try:
                for batch in batches:
                    self.schema = builder.schema
                    yield batch
                return
            except DecodeError as error:
                if self._on_damage is None:
                    self.error = error
                    raise
                self._on_damage(error, builder.failed_bytes)
                batches = builder.flush()


def check_schema(table: str, batch: pa.RecordBatch, schema: pa.Schema) -> None:
    """Raise ``SchemaMismatchError`` for a batch that an Arrow stream of this schema cannot take."""
    if batch.schema != schema:
        raise SchemaMismatchError(
            f"the columns of {table} change within the log, and an Arrow stream has one schema -- read the batches "
            "one by one, or give a stop before the change"
        )
