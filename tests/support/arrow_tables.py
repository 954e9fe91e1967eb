"""Undecoded rows events made by hand, and the batches that come of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from protocol.binlog.events import (
    DeleteRowsEvent,
    EventHeader,
    RowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from protocol.binlog.row_changes import Operation
from protocol.constants import ColumnType, EventType
from protocol.rows.cells import CellTable
from protocol.rows.column import Column
from protocol.rows.compiler import Image
from protocol.rows.table import Table
from replica.arrow import BatchBuilder, RawRowCompiler
from tests.support.binlog_encoder import row_image

_EVENTS: dict[Operation, tuple[EventType, type[RowsEvent]]] = {
    "insert": (EventType.WRITE_ROWS, WriteRowsEvent),
    "update": (EventType.UPDATE_ROWS, UpdateRowsEvent),
    "delete": (EventType.DELETE_ROWS, DeleteRowsEvent),
}


def column(name: str, column_type: ColumnType, metadata: int = 0, **more: Any) -> Column:
    return Column(name, column_type, metadata, True, **more)


NUMBER = column("number", ColumnType.LONG)
TEXT = column("text", ColumnType.VARCHAR, 100, charset="utf8mb4")


def short(data: bytes) -> bytes:
    """Behind a length of one byte."""
    return bytes([len(data)]) + data


def number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


@dataclass
class TableRows:
    """Makes rows events of one table; each is 100 bytes behind the one before, and a second later."""

    columns: Sequence[Column]
    events: list[RowsEvent] = field(default_factory=list)
    name: str = "t"

    def __post_init__(self) -> None:
        self.table = Table("s", self.name, tuple(self.columns))
        self._compiler = RawRowCompiler()
        self._cells = CellTable()

    def add(
        self,
        operation: Operation,
        rows: Iterable[Sequence[bytes | None]],
        *,
        images: Sequence[Sequence[bool]] | None = None,
        partial: bool = False,
    ) -> RowsEvent:
        """Each row has the values of all columns; of an update before and after, one behind the other."""
        width = len(self.columns)
        images = images or [[True] * width] * (2 if operation == "update" else 1)
        data = b"".join(
            row_image(image, row[place * width : (place + 1) * width])
            for row in rows
            for place, image in enumerate(images)
        )
        return self.add_bytes(operation, data, images=images)

    def add_bytes(
        self, operation: Operation, data: bytes, *, images: Sequence[Sequence[bool]], diffs: Any = None
    ) -> RowsEvent:
        cells = tuple(map(self._cells.cell, self.columns))
        wanted = tuple(range(len(self.columns)))
        shapes = [
            Image(cells, tuple(index for index, held in enumerate(image) if held), wanted) for image in images
        ]
        if diffs is not None:
            shapes[1] = Image(cells, shapes[1].present, wanted, diffs=diffs)
        event_type, event_class = _EVENTS[operation]
        raw = self._compiler.reader(*shapes)(b"before" + data + b"behind", 6, 6 + len(data))
        number = len(self.events)
        header = EventHeader(1_700_000_000 + number, event_type, 1, 40 + len(data), 0, 0)
        event = event_class(header, "binlog.000007", 100 * number, 1, self.table, 1, b"")
        event.rows = raw  # type: ignore[attr-defined]
        self.events.append(event)
        return event

    def builder(self, **options: Any) -> BatchBuilder:
        """With all events."""
        builder = BatchBuilder(self.table, **options)
        for event in self.events:
            builder.append(event)
        return builder

    def batch(self, **options: Any) -> pa.RecordBatch:
        """The one batch of all events."""
        [batch] = self.builder(**options).flush()
        batch.validate(full=True)
        return batch


def converted(of: Column, values: Iterable[bytes | None]) -> tuple[pa.Array, Any]:
    """The array of a column's stored values, and what was lost."""
    rows = TableRows([of])
    rows.add("insert", [[value] for value in values])
    builder = rows.builder()
    [batch] = builder.flush()
    batch.validate(full=True)
    return batch.column(0), builder.losses
