"""The batch builder: rows events of one table, with undecoded rows -> RecordBatches.

Every columnar reader uses it. It knows no files, streams or transactions. Events are kept undecoded until there are
enough; then all of their rows become columns at once (``assemble``).
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from protocol.binlog.events import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent
from protocol.binlog.row_changes import Operation
from protocol.errors import ConfigurationError, DecodeError, ReplicaError
from protocol.rows.table import Table

from .arrays import Losses
from .assemble import PendingRows, assemble
from .buffer import RowBuffer
from .metadata import ConstantTexts
from .rawrows import RowsLayout
from .row_starts import find_rows
from .schema import METADATA_COLUMNS, Images, batch_columns, schema_of

# Arrays of this size stay in the processor's cache from step to step: with four times as many rows, a row takes 20 %
# longer; with a fourth as many, 5 %.
BATCH_ROWS = 16_384
# Bytes of rows in the log; while a batch is made, it takes about three times as much memory. With 32 MB a log of JSON
# documents took 15 % longer, and wide and bulk rows 7 %: each new page costs a page fault.
BATCH_BYTES = 4 << 20
# The exceptions that damaged rows may cause, as in the decoder.
_DAMAGE = (IndexError, struct.error, ValueError, OverflowError, ArithmeticError, DecodeError)
_OPERATIONS: Final[Mapping[type[RowsEvent], Operation]] = MappingProxyType(
    {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
)
# A guess of the bytes in a row. When a batch of such rows is pending, the first events give the real size.
_FIRST_ROW_SIZE = 64
_EVENTS_LOOKED_AT = 32


class BatchBuilder:
    """Collects the rows events of one table as long as its columns stay the same, and makes batches of their rows.

    Events come from a decoder with a ``RawRowCompiler``. ``columns`` (None: all), ``images`` and ``metadata`` choose
    the columns of the batches, as for ``BinlogFile.arrow``; ``schema`` is the schema of the batches. ``losses``
    counts the values in the batches so far that Arrow could not hold. ``failed_bytes`` is the size of the event for
    which ``flush`` last raised an error. Raises ``ConfigurationError`` for unknown names.
    """

    def __init__(
        self,
        table: Table,
        *,
        columns: Sequence[str] | None = None,
        images: Images = "after",
        metadata: Sequence[str] = METADATA_COLUMNS,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        losses: Losses | None = None,
    ) -> None:
        check_batch_rows(batch_rows)
        self.table = table
        self.losses = losses or Losses()
        self.failed_bytes = 0
        self._columns = batch_columns(table, columns)
        self.schema = schema_of(self._columns, images, metadata)
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._row_size = float(_FIRST_ROW_SIZE)
        self._is_guess = True
        self._pending: list[PendingRows] = []
        self._bytes = 0
        self._constants = ConstantTexts()
        # The layouts of all pending rows; with MINIMAL images there can be very many.
        self._layouts: list[RowsLayout] = []
        self._numbers: dict[RowsLayout, int] = {}

    def fits(self, table: Table) -> bool:
        """Whether the table has the columns of the batches; only then may an event of it be appended."""
        if table is self.table:
            return True
        if (table.schema, table.name, table.columns) != (
            self.table.schema,
            self.table.name,
            self.table.columns,
        ):
            return False
        self.table = table
        return True

    def append(self, event: RowsEvent, gtid: str | None = None) -> bool:
        """Take an event with undecoded ``rows``, and the GTID of its transaction. Returns whether to ``flush`` now.

        No row is read yet: ``flush`` raises the errors of damaged rows.
        """
        header, operation = event.header, _OPERATIONS[type(event)]
        for raw in event.rows:  # type: ignore[attr-defined]
            self._pending.append(
                (
                    raw.data,
                    raw.start,
                    raw.end,
                    self._number(raw.layout),
                    operation,
                    header.timestamp,
                    event.file,
                    event.position,
                    gtid,
                    header.type,
                    header.size,
                )
            )
            self._bytes += raw.end - raw.start
        if self._is_guess and self._bytes >= self._batch_rows * self._row_size:
            self._is_guess = False
            self._row_size = self._size_of_rows()
        return self._bytes >= self._batch_bytes or self._bytes >= self._batch_rows * self._row_size

    def _size_of_rows(self) -> float:
        """The mean size of the rows in the first events.

        With the guess alone, the first batch of each section of a log (one process reads a section) had a fourth of
        the rows: a table of 100 columns took a tenth more time.
        """
        _, _, _, first, *_ = self._pending[0]
        some = [
            memoryview(data)[start:end]
            for data, start, end, layout, *_ in self._pending[:_EVENTS_LOOKED_AT]
            if layout == first
        ]
        buffer, ends = RowBuffer(some), np.cumsum([len(rows) for rows in some])
        try:
            found = find_rows(buffer, self._layouts[first], np.concatenate(([0], ends[:-1])), ends)
        except _DAMAGE:
            return self._row_size
        return buffer.size / max(int(found.counts.sum()), 1)

    def _number(self, layout: RowsLayout) -> int:
        number = self._numbers.get(layout)
        if number is None:
            number = self._numbers[layout] = len(self._layouts)
            self._layouts.append(layout)
        return number

    def flush(self) -> Iterator[pa.RecordBatch]:
        """The batches of all events so far, of about ``batch_rows`` rows each.

        Raises ``DecodeError`` (with file, position and event type) for an event with damaged rows, after the batches
        of the events before it. The next call continues after that event.
        """
        while self._pending:
            batch, taken = self._next_batch()
            self._pending = self._pending[taken:]
            self._bytes = sum(map(_size, self._pending))
            if not self._pending:
                self._layouts.clear()
                self._numbers.clear()
            yield from self._cut(batch)

    def _next_batch(self) -> tuple[pa.RecordBatch, int]:
        """A batch of as many pending events as can be read, and their number."""
        taken = len(self._pending)
        while True:
            pending = self._pending[:taken]
            try:
                batch, losses = assemble(pending, self._layouts, self._columns, self.schema, self._constants)
            except _DAMAGE as error:
                if isinstance(error, ReplicaError) and not isinstance(error, DecodeError):
                    raise
                if taken > 1:
                    taken //= 2
                    continue
                self._pending = self._pending[1:]
                self.failed_bytes = pending[0][-1]
                raise _located(error, pending[0]) from error.__cause__
            self.losses.add(losses)
            if batch.num_rows:
                self._row_size = sum(map(_size, pending)) / batch.num_rows
            return batch, taken

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch in equal parts, if it has many more rows than it should."""
        rows = batch.num_rows
        parts = max(1, round(rows / self._batch_rows))
        for part in range(parts):
            start, end = rows * part // parts, rows * (part + 1) // parts
            if end > start:
                yield batch.slice(start, end - start)


def check_batch_rows(batch_rows: int) -> None:
    """Raises ``ConfigurationError`` unless ``batch_rows`` is at least 1."""
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise ConfigurationError(f"batch_rows: must be at least 1, not {batch_rows!r}")


def _size(pending: PendingRows) -> int:
    return pending[2] - pending[1]


def _located(error: Exception, pending: PendingRows) -> DecodeError:
    if not isinstance(error, DecodeError):
        located = DecodeError(f"the event's content is damaged: {error}")
        located.__cause__ = error
        error = located
    *_, error.file, error.position, _, error.event_type, _ = pending
    return error
