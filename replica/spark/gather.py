"""Row changes -> RecordBatches of one table, many events at once, and the facts of the change of each row.

This module comes between reading the log (``changes``) and the forms in which Spark gets rows (``envelope``,
``table_mode``, ``packed``); it imports none of these forms.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.binlog.events import RowsEvent
from protocol.records import record
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table

from ..arrow import BatchBuilder, Losses
from ..spool.pieces import LogPiece, RowLayouts
from .changes import PlacedChange

Numbers = npt.NDArray[np.int64]

#: The operation, the number of the row within its event, and the columns that no row image holds.
METADATA: Final = ("_op", "_row", "_absent")
# So many rows that the work on a column outweighs the cost of the calls; Spark's own batches hold 10,000.
BATCH_ROWS: Final = 32_768
_HELD_BYTES: Final = 16 << 20

SEQ_TYPE: Final = pa.decimal128(38, 0)
_ROWS, _POSITIONS, _FILES = 10**10, 10**13, 10**10
_LOW: Final = (1 << 64) - 1


@record(frozen=True, slots=True)
class GatheredRows:
    """Row changes of one table. ``batch`` has the table's columns, ``_op``, ``_row``, ``_absent``, the before images.

    ``numbers`` has for each row the index of its change in ``changes``, ``rows`` its number within that event.
    ``lost_dates``: the batch has nulls for dates that the log holds but no calendar has (zero, partial, impossible).
    """

    table: Table
    batch: pa.RecordBatch
    changes: Sequence[PlacedChange]
    numbers: Numbers
    rows: Numbers
    layouts: RowLayouts
    lost_dates: bool

    def lost_texts(self, column: int, image: Literal["before", "after"]) -> pa.Array:
        """The text that MySQL has for the column's dates that no calendar has; null for all other values.

        ``after`` is the row as in ``batch``: the row after the change, or the deleted row.
        """
        texts: list[str | None] = []
        tuples: dict[int, list[tuple[Row | None, Row | None]]] = {}
        for number, row in zip(self.numbers.tolist(), self.rows.tolist(), strict=True):
            if number not in tuples:
                [raw] = self.changes[number].event.rows
                tuples[number] = self.layouts.tuples(raw)
            before, after = tuples[number][row]
            value = None if after is None else after[column]
            if image == "before" or value is ABSENT:
                value = None if before is None else before[column]
            texts.append(value if isinstance(value, str) else None)
        return pa.array(texts, pa.string())

    def seq(self, piece: LogPiece) -> pa.Array:
        """The sequence number of each row: see ``seq_number``."""
        return seq_array([seq_number(piece, change) for change in self.changes], self.numbers, self.rows)

    def spread(self, values: Sequence[object], arrow_type: pa.DataType) -> pa.Array:
        """Repeat the value of each change for each of its rows."""
        if values.count(values[0]) == len(values):
            return pa.repeat(pa.scalar(values[0], arrow_type), len(self.numbers))
        return pa.array(values, arrow_type).take(pa.array(self.numbers))


def seq_number(piece: LogPiece, change: PlacedChange) -> int:
    """The sequence number of a change's first row. It grows along the log.

    Its decimal digits: five of the epoch, ten of the file's number, thirteen of the position, ten of the row within
    the event at that position. A compressed transaction is one event: there the row is the byte offset of the rows
    event in the uncompressed content, plus the number of the row. Every row takes a byte at least, so numbers still
    grow, though not by one.
    """
    return place_number(piece.epoch, piece.number, change.event.position) + change.inner


def place_number(epoch: int, file: int, position: int) -> int:
    """The least sequence number at a place of the log; ``file`` is the file's number."""
    return ((epoch * _FILES + file) * _POSITIONS + position) * _ROWS


def epoch_of(number: int) -> int:
    """The epoch of a sequence number."""
    return number // (_FILES * _POSITIONS * _ROWS)


def seq_array(starts: Sequence[int], numbers: Numbers, rows: Numbers) -> pa.Array:
    """``starts[numbers] + rows`` as decimals."""
    words = np.empty((len(numbers), 2), np.uint64)
    low = np.array([start & _LOW for start in starts], np.uint64)[numbers]
    words[:, 0] = low + rows.astype(np.uint64)
    words[:, 1] = np.array([start >> 64 for start in starts], np.uint64)[numbers] + (words[:, 0] < low)
    return pa.Array.from_buffers(SEQ_TYPE, len(numbers), [None, pa.py_buffer(words)])


class RowGatherer:
    """Collects rows events of any tables, and makes batches of their rows when there are enough.

    ``flush`` gives the batches table by table; ``seq`` has the order across tables.
    """

    def __init__(self, layouts: RowLayouts, batch_rows: int = BATCH_ROWS) -> None:
        self._layouts = layouts
        self._batch_rows = batch_rows
        self._builders: dict[tuple[str, str], tuple[BatchBuilder, list[PlacedChange]]] = {}
        self._bytes = 0

    def add(self, change: PlacedChange) -> bool:
        """Take a rows event of a table that ``fits``. Returns whether it is time to ``flush``."""
        event = change.event
        assert isinstance(event, RowsEvent)
        key = (event.table.schema, event.table.name)
        found = self._builders.get(key)
        if found is None:
            builder = BatchBuilder(event.table, images="both", metadata=METADATA, batch_rows=self._batch_rows)
            found = self._builders[key] = (builder, [])
        found[1].append(change)
        self._bytes += event.header.size
        return found[0].append(event) or self._bytes >= _HELD_BYTES

    def fits(self, table: Table) -> bool:
        """Whether the table's columns are those of its rows taken so far. If not, call ``flush`` and ``forget``."""
        found = self._builders.get((table.schema, table.name))
        return found is None or found[0].fits(table)

    def forget(self, table: Table) -> None:
        """Forget a table whose columns have changed; ``flush`` must have been called."""
        self._builders.pop((table.schema, table.name), None)

    def flush(self) -> Iterator[GatheredRows]:
        """The batches of all rows taken so far. Raises ``DecodeError`` for damaged rows."""
        self._bytes = 0
        for builder, changes in self._builders.values():
            if not changes:
                continue
            taken, first, dates = changes.copy(), 0, builder.losses.dates
            changes.clear()
            for batch in builder.flush():
                rows = batch.column("_row").to_numpy().astype(np.int64)
                # A batch may begin in the middle of a large event.
                numbers = first - 1 + np.cumsum(rows == 0)
                first = int(numbers[-1]) + 1
                lost = builder.losses.dates > dates
                yield GatheredRows(builder.table, batch, taken, numbers, rows, self._layouts, lost)

    def losses(self) -> Losses:
        """Count the values so far that Arrow could not hold."""
        losses = Losses()
        for builder, _ in self._builders.values():
            losses.add(builder.losses)
        return losses
