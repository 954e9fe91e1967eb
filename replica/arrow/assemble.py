"""One batch: from pending rows events to the arrays of its columns.

Rows that are laid out alike are found together, whatever stands between them; their places are put in the order of
the log before values are read, so that each column is made once for all rows of the batch.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa

from protocol.binlog.events import DeleteRowsEvent, Operation, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from .arrays import Losses, fixed_array, valid_bits
from .buffer import Positions, RowBuffer
from .offsets import find_rows, repeat_and_count
from .places import ImageWalk, Places, Rows, merge
from .rawrows import ImageLayout, RawRows, RowsLayout
from .schema import BEFORE, BEFORE_ABSENT, BatchColumn

_OPERATIONS: Final[Mapping[type[RowsEvent], Operation]] = MappingProxyType(
    {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
)


@dataclass(frozen=True, slots=True)
class PendingRows:
    """A rows event with its undecoded rows, and the GTID of its transaction (None: it has none)."""

    event: RowsEvent
    rows: RawRows
    gtid: Hashable


def assemble(
    pending: Sequence[PendingRows], columns: Sequence[BatchColumn], schema: pa.Schema
) -> tuple[pa.RecordBatch, Losses]:
    """The batch of these events, which are of one table. Raises ``DecodeError``; it does not say for which event."""
    batch = _Batch(pending, columns)
    if not batch.size:
        return pa.RecordBatch.from_pylist([], schema=schema), batch.losses
    arrays = [batch.column(column) for column in columns]
    arrays += [_ADDED[name](batch) for name in schema.names[len(columns) :]]
    return pa.RecordBatch.from_arrays(arrays, schema=schema), batch.losses


class _Alike:
    """The rows of those events that have one layout. ``events`` are their indexes, ``rows`` those of their rows."""

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
        """Take the rows that the batch has for them; ``first`` is the first row of each of its events."""
        events = self.events
        if events[-1] - events[0] == len(events) - 1:
            begin = int(first[events[0]])
            self.rows = slice(begin, begin + int(self.counts.sum()))
        else:
            self.rows = repeat_and_count(first[events], self.counts)

    def current(self, column: BatchColumn) -> Places | None:
        """The value as the change leaves it, or what was deleted. None: no image holds the column."""
        index = self.layout.shown[column.index]
        last = self._walk[-1].find(index)
        if len(self._walk) == 1:
            return last
        before = self._walk[0].find(index)
        if last is None:
            # An image leaves out what has not changed.
            return before
        if last.diffs is not None:
            last.before = before
        return last

    def before(self, column: BatchColumn) -> Places | None:
        """The value before an update."""
        if len(self._walk) == 1:
            return None
        return self._walk_before.find(self.layout.shown[column.index])


class _Batch:
    """What the arrays of one batch are made from. Columns are to be asked for in the order of the table."""

    def __init__(self, pending: Sequence[PendingRows], columns: Sequence[BatchColumn]) -> None:
        self.losses = Losses()
        self.pending = pending
        self.columns = columns
        raw = [one.rows for one in pending]
        self.buffer = RowBuffer(memoryview(rows.data)[rows.start : rows.end] for rows in raw)
        sizes = np.array([rows.end - rows.start for rows in raw], np.int64)
        ends = np.cumsum(sizes)
        by_layout: dict[RowsLayout, list[int]] = {}
        for index, rows in enumerate(raw):
            by_layout.setdefault(rows.layout, []).append(index)
        self._groups = [
            _Alike(self.buffer, layout, np.array(events, np.int64), ends - sizes, ends)
            for layout, events in by_layout.items()
        ]
        self.counts = np.empty(len(pending), np.int64)
        for group in self._groups:
            self.counts[group.events] = group.counts
        first = np.cumsum(self.counts) - self.counts
        for group in self._groups:
            group.place(first)
        self.size = int(self.counts.sum())

    def column(self, column: BatchColumn) -> pa.Array:
        """A column of the table."""
        return self._convert(column, _Alike.current)

    def _convert(self, column: BatchColumn, find: Callable[[_Alike, BatchColumn], Places | None]) -> pa.Array:
        parts = [(group.rows, find(group, column)) for group in self._groups]
        if all(places is None for _, places in parts):
            return pa.nulls(self.size, column.arrow.type)
        return column.arrow.convert(merge(self.buffer, self.size, parts), self.losses)

    def before(self) -> pa.Array:
        """The rows before updates, as a struct."""
        arrow_type = pa.struct([column.field for column in self.columns])
        is_update = np.zeros(self.size, np.bool_)
        for group in self._groups:
            if len(group.layout.images) > 1:
                is_update[group.rows] = True
        if not is_update.any():
            return pa.nulls(self.size, arrow_type)
        children = [self._convert(column, _Alike.before) for column in self.columns]
        return pa.Array.from_buffers(arrow_type, self.size, [valid_bits(is_update)], children=children)

    def absent(self, held_by: Callable[[RowsLayout], Sequence[ImageLayout]]) -> pa.Array:
        """The names of the columns that none of an event's images holds, of those that ``held_by`` gives; or null."""
        names: dict[RowsLayout, tuple[str, ...] | None] = {}
        for group in self._groups:
            held = {column.index for image in held_by(group.layout) for column in image.columns}
            missing = [column.name for column in self.columns if group.layout.shown[column.index] not in held]
            names[group.layout] = tuple(missing) or None
        return self.by_event((names[one.rows.layout] for one in self.pending), pa.list_(pa.string()))

    def by_event(self, values: Iterable[Hashable], arrow_type: pa.DataType) -> pa.Array:
        """A value of each event, for each of its rows. Values that are no text or list become text."""
        numbers: dict[Hashable, int] = {}
        events = [numbers.setdefault(value, len(numbers)) for value in values]
        distinct = pa.array(
            [value if value is None or isinstance(value, tuple) else str(value) for value in numbers],
            arrow_type,
        )
        if len(distinct) == 1:
            return pa.repeat(distinct[0], self.size)
        return distinct.take(pa.array(np.repeat(np.array(events, np.int64), self.counts)))

    def numbers(self, values: Iterable[int], arrow_type: pa.DataType, factor: int = 1) -> pa.Array:
        """A number of each event, for each of its rows."""
        each = np.fromiter(values, np.int64, len(self.pending)) * factor
        return fixed_array(arrow_type, np.repeat(each, self.counts), None)


_ADDED: Final[Mapping[str, Callable[[_Batch], pa.Array]]] = MappingProxyType(
    {
        "_op": lambda batch: batch.by_event(
            (_OPERATIONS[type(one.event)] for one in batch.pending), pa.string()
        ),
        "_ts": lambda batch: batch.numbers(
            (one.event.header.timestamp for one in batch.pending), pa.timestamp("us", "UTC"), 1_000_000
        ),
        "_gtid": lambda batch: batch.by_event((one.gtid for one in batch.pending), pa.string()),
        "_file": lambda batch: batch.by_event((one.event.file for one in batch.pending), pa.string()),
        "_pos": lambda batch: batch.numbers((one.event.position for one in batch.pending), pa.uint64()),
        "_row": lambda batch: fixed_array(
            pa.uint32(),
            repeat_and_count(np.zeros(len(batch.pending), np.int64), batch.counts).astype(np.uint32),
            None,
        ),
        "_absent": lambda batch: batch.absent(lambda layout: layout.images),
        BEFORE: _Batch.before,
        BEFORE_ABSENT: lambda batch: batch.absent(lambda layout: layout.images[:1]),
    }
)
