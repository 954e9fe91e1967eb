"""Changes to RecordBatches with the facts of each row: rows of one table at a time, many events at once.

It stands between reading and the two forms in which rows are handed to Spark, and knows neither.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from protocol.binlog.events import RowsEvent
from protocol.rows.column import ABSENT
from protocol.rows.compiler import Row
from protocol.rows.table import Table
from replica.arrow import BatchBuilder, Losses

from ..spool.pieces import LogPiece, RowLayouts
from .changes import PlacedChange

Numbers = npt.NDArray[np.int64]

# What the rows need to be told from one another, and the columns that images leave out.
_METADATA: Final = ("_op", "_row", "_absent")
# Enough for the work on a column to outweigh the calls; Spark's own batches hold 10,000 rows.
BATCH_ROWS: Final = 32_768
_HELD_BYTES: Final = 16 << 20

SEQ_TYPE: Final = pa.decimal128(38, 0)
_ROWS, _POSITIONS, _FILES = 10**10, 10**13, 10**10
_LOW: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class GatheredRows:
    """Row changes of one table. ``batch`` has its columns, ``_op``, ``_row``, ``_absent`` and the before images.

    ``numbers`` says for each row which of ``changes`` it comes from. With ``lost_dates`` some dates are null that
    the log holds: those that no calendar has.
    """

    table: Table
    batch: pa.RecordBatch
    changes: Sequence[PlacedChange]
    numbers: Numbers
    rows: Numbers
    layouts: RowLayouts
    lost_dates: bool

    def lost_texts(self, column: int, image: Literal["before", "after"]) -> pa.Array:
        """MySQL's own text of the dates of a column that no calendar has; null for all other values.

        ``after`` is the row after the change, as in ``batch``: the deleted one, or what an update leaves.
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
        """The place of each row in the total order: see ``seq_number``."""
        return seq_array([seq_number(piece, change) for change in self.changes], self.numbers, self.rows)

    def spread(self, values: Sequence[object], arrow_type: pa.DataType) -> pa.Array:
        """A value of each change, for each of its rows."""
        if values.count(values[0]) == len(values):
            return pa.repeat(pa.scalar(values[0], arrow_type), len(self.numbers))
        return pa.array(values, arrow_type).take(pa.array(self.numbers))


def seq_number(piece: LogPiece, change: PlacedChange) -> int:
    """A number that grows with the place in the log: five digits of the epoch, ten of the file, thirteen of the
    position, ten of the row within the event at that position. Here the row is that of the change's first one.

    In a compressed transaction, which is one event, the row is counted in bytes of its plain content: every row takes
    one at least, so that numbers grow there too, though not by one.
    """
    place = piece.epoch * _FILES + piece.number
    return (place * _POSITIONS + change.event.position) * _ROWS + change.inner


def seq_array(starts: Sequence[int], numbers: Numbers, rows: Numbers) -> pa.Array:
    """``starts[numbers] + rows`` as decimals."""
    words = np.empty((len(numbers), 2), np.uint64)
    low = np.array([start & _LOW for start in starts], np.uint64)[numbers]
    words[:, 0] = low + rows.astype(np.uint64)
    words[:, 1] = np.array([start >> 64 for start in starts], np.uint64)[numbers] + (words[:, 0] < low)
    return pa.Array.from_buffers(SEQ_TYPE, len(numbers), [None, pa.py_buffer(words)])


class RowGatherer:
    """Takes rows events of any tables, and gives their rows when there are enough of them.

    ``flush`` gives those of one table behind those of another: order is in ``seq``.
    """

    def __init__(self, layouts: RowLayouts, batch_rows: int = BATCH_ROWS) -> None:
        self._layouts = layouts
        self._batch_rows = batch_rows
        self._builders: dict[tuple[str, str], tuple[BatchBuilder, list[PlacedChange]]] = {}
        self._bytes = 0

    def add(self, change: PlacedChange) -> bool:
        """Take a rows event of a table that ``fits``; whether it is time to ``flush``."""
        event = change.event
        assert isinstance(event, RowsEvent)
        key = (event.table.schema, event.table.name)
        found = self._builders.get(key)
        if found is None:
            builder = BatchBuilder(
                event.table, images="both", metadata=_METADATA, batch_rows=self._batch_rows
            )
            found = self._builders[key] = (builder, [])
        found[1].append(change)
        self._bytes += event.header.size
        return found[0].append(event) or self._bytes >= _HELD_BYTES

    def fits(self, table: Table) -> bool:
        """Whether the table has the columns of those of its rows that are here; if not, ``flush`` and ``forget``."""
        found = self._builders.get((table.schema, table.name))
        return found is None or found[0].fits(table)

    def forget(self, table: Table) -> None:
        """The table's columns have changed; its rows have been flushed."""
        self._builders.pop((table.schema, table.name), None)

    def flush(self) -> Iterator[GatheredRows]:
        """All rows that were taken. Raises ``DecodeError`` for damaged ones."""
        self._bytes = 0
        for builder, changes in self._builders.values():
            if not changes:
                continue
            taken, first, dates = changes.copy(), 0, builder.losses.dates
            changes.clear()
            for batch in builder.flush():
                rows = batch.column("_row").to_numpy().astype(np.int64)
                # A batch may begin within an event, if that is large.
                numbers = first - 1 + np.cumsum(rows == 0)
                first = int(numbers[-1]) + 1
                lost = builder.losses.dates > dates
                yield GatheredRows(builder.table, batch, taken, numbers, rows, self._layouts, lost)

    def losses(self) -> Losses:
        """What Arrow could not hold of the rows so far."""
        losses = Losses()
        for builder, _ in self._builders.values():
            losses.add(builder.losses)
        return losses
