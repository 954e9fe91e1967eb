"""Pending rows events of one table -> one RecordBatch.

All rows of one layout are found together, even if other events come in between. Their places are sorted in the order
of the log before values are read, so each column is converted once for the whole batch. ``builder`` decides which
events make a batch.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from protocol.binlog.row_changes import Operation

from .arrays import Losses, numbers_array, valid_bits
from .buffer import Positions, RowBuffer
from .metadata import ConstantTexts, numbers_by_event, row_numbers, texts_by_event
from .places import ImageWalk, Places, Rows, merge
from .rawrows import ImageLayout, RowsLayout
from .row_starts import find_rows, repeat_and_count
from .schema import BEFORE, BEFORE_ABSENT, NAMES, BatchColumn

# The kept parts of a rows event: its bytes, where the rows begin and end in them, the number of their layout,
# operation, timestamp, file, position, GTID, event type and size. Plain tuples of plain values, as the garbage
# collector stops tracking these: with objects it took a fourth of the time of 50,000 small events.
PendingRows = tuple[bytes, int, int, int, Operation, int, str, int, str | None, int, int]


def assemble(
    pending: Sequence[PendingRows],
    layouts: Sequence[RowsLayout],
    columns: Sequence[BatchColumn],
    schema: pa.Schema,
    constants: ConstantTexts,
) -> tuple[pa.RecordBatch, Losses]:
    """The batch of these events of one table. Raises ``DecodeError``, which does not name the damaged event."""
    batch = _Batch(pending, layouts, columns, constants)
    if not batch.size:
        return pa.RecordBatch.from_pylist([], schema=schema), batch.losses
    arrays = [batch.column(column) for column in columns]
    arrays += [_ADDED[name](batch) for name in schema.names[len(columns) :]]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), batch.losses


class _LayoutRows:
    """The rows of all events of one layout. ``events`` are the events' indexes, ``rows`` the rows' in the batch."""

    def __init__(
        self, buffer: RowBuffer, layout: RowsLayout, events: Positions, starts: Positions, ends: Positions
    ) -> None:
        found = find_rows(buffer, layout, starts[events], ends[events])
        self.layout = layout
        self.events = events
        self.counts = found.counts
        self.rows: Rows = slice(0, 0)
        self._walk = [
            ImageWalk(buffer, image, begins)
            for image, begins in zip(layout.images, found.images, strict=True)
        ]
        self._walk_before = ImageWalk(buffer, layout.images[0], found.images[0])

    def place(self, first: Positions) -> None:
        """Set ``rows``; ``first`` is the index of the first row of each event of the batch."""
        events = self.events
        if events[-1] - events[0] == len(events) - 1:
            begin = int(first[events[0]])
            self.rows = slice(begin, begin + int(self.counts.sum()))
        else:
            self.rows = repeat_and_count(first[events], self.counts)

    def current(self, column: BatchColumn) -> Places | None:
        """The column's values after the change, or in the deleted row. None: no row image holds the column."""
        index = self.layout.shown[column.index]
        last = self._walk[-1].find(index)
        if len(self._walk) == 1:
            return last
        before = self._walk[0].find(index)
        if last is None:
            # An after image leaves out columns that have not changed.
            return before
        if last.diffs is not None:
            last.before = before
        return last

    def before(self, column: BatchColumn) -> Places | None:
        """The column's values before an update. None: the rows are no updates, or the image lacks the column."""
        if len(self._walk) == 1:
            return None
        return self._walk_before.find(self.layout.shown[column.index])


class _Batch:
    """The rows of one batch. Its columns must be asked for in the order of the table."""

    def __init__(
        self,
        pending: Sequence[PendingRows],
        layouts: Sequence[RowsLayout],
        columns: Sequence[BatchColumn],
        constants: ConstantTexts,
    ) -> None:
        self.losses = Losses()
        self.columns = columns
        self._constants = constants
        data, begins, ends, self.numbers, self.operations, *more = zip(*pending, strict=True)
        self.times, self.files, self.positions, self.gtids, *_ = more
        self.buffer = RowBuffer(
            memoryview(event)[begin:end] for event, begin, end in zip(data, begins, ends, strict=True)
        )
        sizes = np.array(ends, np.int64) - np.array(begins, np.int64)
        stops = np.cumsum(sizes)
        numbers = np.array(self.numbers)
        self._groups = [
            _LayoutRows(self.buffer, layouts[number], np.flatnonzero(numbers == number), stops - sizes, stops)
            for number in dict.fromkeys(self.numbers)
        ]
        self.counts = np.empty(len(pending), np.int64)
        for group in self._groups:
            self.counts[group.events] = group.counts
        first = np.cumsum(self.counts) - self.counts
        for group in self._groups:
            group.place(first)
        self.size = int(self.counts.sum())

    def column(self, column: BatchColumn) -> pa.Array:
        """The array of a column of the table."""
        return self._convert(column, _LayoutRows.current)

    def _convert(
        self, column: BatchColumn, find: Callable[[_LayoutRows, BatchColumn], Places | None]
    ) -> pa.Array:
        parts = [(group.rows, find(group, column)) for group in self._groups]
        if all(places is None for _, places in parts):
            return pa.nulls(self.size, column.arrow.type)
        return column.arrow.convert(merge(self.buffer, self.size, parts), self.losses)

    def before(self) -> pa.Array:
        """The rows before updates as a struct array; null for other changes."""
        arrow_type = pa.struct([column.field for column in self.columns])
        is_update = np.zeros(self.size, np.bool_)
        for group in self._groups:
            if len(group.layout.images) > 1:
                is_update[group.rows] = True
        if not is_update.any():
            return pa.nulls(self.size, arrow_type)
        children = [self._convert(column, _LayoutRows.before) for column in self.columns]
        return pa.Array.from_buffers(arrow_type, self.size, [valid_bits(is_update)], children=children)

    def absent(self, held_by: Callable[[RowsLayout], Sequence[ImageLayout]]) -> pa.Array:
        """For each row the names of the columns that no image in ``held_by`` of its layout holds; null if none."""
        names: dict[int, tuple[str, ...] | None] = {}
        for group, number in zip(self._groups, dict.fromkeys(self.numbers), strict=True):
            held = {column.index for image in held_by(group.layout) for column in image.columns}
            missing = [column.name for column in self.columns if group.layout.shown[column.index] not in held]
            names[number] = tuple(missing) or None
        if not any(names.values()):
            return pa.nulls(self.size, NAMES)
        lists = pa.array(list(names.values()), NAMES)
        places = {number: place for place, number in enumerate(names)}
        events = np.fromiter(map(places.__getitem__, self.numbers), np.int64, len(self.numbers))
        return lists.take(numbers_array(np.repeat(events, self.counts)))

    def texts(self, texts: Sequence[str | None]) -> pa.Array:
        """Repeat each event's string for each of its rows."""
        return texts_by_event(texts, self.counts, self._constants)


_ADDED: Final[Mapping[str, Callable[[_Batch], pa.Array]]] = MappingProxyType(
    {
        "_op": lambda batch: batch.texts(batch.operations),
        "_ts": lambda batch: numbers_by_event(
            [time * 1_000_000 for time in batch.times], batch.counts, pa.timestamp("us", "UTC")
        ),
        "_gtid": lambda batch: batch.texts(batch.gtids),
        "_file": lambda batch: batch.texts(batch.files),
        "_pos": lambda batch: numbers_by_event(batch.positions, batch.counts, pa.uint64()),
        "_row": lambda batch: row_numbers(batch.counts),
        "_absent": lambda batch: batch.absent(lambda layout: layout.images),
        BEFORE: _Batch.before,
        BEFORE_ABSENT: lambda batch: batch.absent(lambda layout: layout.images[:1]),
    }
)
