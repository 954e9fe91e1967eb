"""What row tuples say about RecordBatches: the values and metadata that the batches of the same events must have.

It knows the documented differences between the two: what becomes null or U+FFFD, JSON as text, an update as one row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    GtidEvent,
    MariadbGtidEvent,
    RowsEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from protocol.constants import ColumnType
from protocol.rows.cells import VALUE_CELLS, Cell, CellTable
from protocol.rows.column import ABSENT, Column
from protocol.values.jsonb import JsonValue, decode_json
from protocol.values.jsonb_diff import JsonDiff, apply_json_diffs, read_json_diffs
from protocol.values.jsonb_text import render_json
from replica.arrow import METADATA_COLUMNS

DATES = {
    ColumnType.DATE,
    ColumnType.NEWDATE,
    ColumnType.DATETIME,
    ColumnType.DATETIME2,
    ColumnType.TIMESTAMP,
    ColumnType.TIMESTAMP2,
}

ADDED = {*METADATA_COLUMNS, "_before", "_before_absent"}

Row = tuple[Any, ...]
# Operation, before and after image, the event, the transaction's GTID, the row's number in its event.
RowChange = tuple[str, Row | None, Row | None, RowsEvent, str | None, int]


class Document(str):
    """The text of a JSON value, and the value."""

    value: JsonValue

    @classmethod
    def of(cls, value: JsonValue) -> Document:
        document = cls(render_json(value))
        document.value = value
        return document


def text_cells() -> CellTable:
    """Cells of tuples in which JSON is text, so that JSON's null differs from NULL."""

    def json_cell(column: Column) -> Cell:
        return Cell("{f}({v})", lambda data: Document.of(decode_json(data)), length_bytes=column.metadata)

    return CellTable({**VALUE_CELLS, ColumnType.JSON: json_cell}, apply_diff)


def apply_diff(before: object, data: bytes) -> object:
    diffs = read_json_diffs(data)
    if not isinstance(before, Document):
        return diffs
    return Document.of(ordered(apply_json_diffs(before.value, diffs)))


def ordered(value: JsonValue) -> JsonValue:
    """With members in the server's order: short names first."""
    if isinstance(value, list):
        return [ordered(element) for element in value]
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return {name: ordered(value[name]) for name in names}
    return value


def has_lone_diffs(change: RowChange) -> bool:
    """Whether a document's change is logged without the document."""
    return any(
        isinstance(value, list) and value and isinstance(value[0], JsonDiff) for value in change[2] or ()
    )


def tuples_of(raw_events: Iterable[bytes]) -> Iterator[Event]:
    """The events with row tuples."""
    decoder = EventDecoder(cells=text_cells())
    for raw in raw_events:
        event = decoder.decode(raw)
        if event is not None:
            yield event


def row_changes(events: Iterable[Event]) -> Iterator[RowChange]:
    """Each row change of the events."""
    gtid = None
    for event in events:
        match event:
            case GtidEvent() | MariadbGtidEvent():
                gtid = str(event.gtid)
            case WriteRowsEvent():
                yield from (("insert", None, row, event, gtid, n) for n, row in enumerate(event.rows))
            case DeleteRowsEvent():
                yield from (("delete", row, None, event, gtid, n) for n, row in enumerate(event.rows))
            case UpdateRowsEvent():
                yield from (("update", *rows, event, gtid, n) for n, rows in enumerate(event.rows))


def current_image(change: RowChange) -> Row:
    """The row after the change, or the deleted one; columns that only the before image holds have not changed."""
    _, before, after, *_ = change
    if before is None or after is None:
        return after or before or ()
    return tuple(old if new is ABSENT else new for old, new in zip(before, after, strict=True))


def arrow_value(column: Column, value: Any) -> Any:
    """The value as ``to_pylist`` gives it."""
    if value is ABSENT or value is None:
        return None
    if isinstance(value, str):
        return None if column.type in DATES else valid(value)
    return list(value) if column.type is ColumnType.VECTOR else value


def valid(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", str(text))


def expected_row(change: RowChange, *, both: bool = False) -> dict[str, Any]:
    """The row of a batch with all metadata; columns by number, since names may be there twice."""
    operation, before, _, event, gtid, number = change
    columns = event.table.columns
    image = current_image(change)
    row = {str(index): arrow_value(column, image[index]) for index, column in enumerate(columns)}
    row |= {
        "_op": operation,
        "_ts": event.header.timestamp,
        "_gtid": gtid,
        "_file": event.file,
        "_pos": event.position,
        "_row": number,
        "_absent": absent(columns, image),
    }
    if both:
        is_update = operation == "update"
        row["_before"] = [arrow_value(*pair) for pair in zip(columns, before or (), strict=False)]
        row["_before"] = row["_before"] if is_update else None
        row["_before_absent"] = absent(columns, before or image)
    return row


def absent(columns: Iterable[Column], image: Row) -> list[str] | None:
    names = [valid(column.name) for column, value in zip(columns, image, strict=True) if value is ABSENT]
    return names or None


def batch_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, its table's columns by number."""
    names = [field.name if field.name in ADDED else str(index) for index, field in enumerate(batch.schema)]
    columns = []
    for name, array in zip(names, batch.columns, strict=True):
        if name == "_ts":
            array = array.cast(pa.int64())
            columns.append([value // 1_000_000 for value in array.to_pylist()])
        elif name == "_before":
            columns.append(struct_rows(array))
        else:
            columns.append(array.to_pylist())
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def struct_rows(array: Any) -> list[Any]:
    """The rows of a struct as lists; None where it is null."""
    children = [array.field(index).to_pylist() for index in range(array.type.num_fields)]
    rows = list(zip(*children, strict=True)) if children else [()] * len(array)
    return [
        list(row) if is_valid else None
        for row, is_valid in zip(rows, array.is_valid().to_pylist(), strict=True)
    ]


def same(mine: Any, others: Any) -> bool:
    """Equal and of one type, all the way down; NaN equals NaN."""
    if type(mine) is not type(others):
        return False
    if isinstance(mine, list):
        return len(mine) == len(others) and all(map(same, mine, others))
    if isinstance(mine, float) and math.isnan(mine):
        return math.isnan(others)
    return bool(mine == others)


def differences(
    batches: Iterable[pa.RecordBatch], changes: list[RowChange], *, both: bool = False
) -> list[str]:
    """Where the batches are not what the row changes say."""
    found = [row for batch in batches for row in batch_rows(batch)]
    expected = [expected_row(change, both=both) for change in changes]
    if len(found) != len(expected):
        return [f"{len(found)} rows instead of {len(expected)}"]
    return [
        f"row {number}, {name}: {mine.get(name)!r} instead of {value!r}"
        for number, (mine, others) in enumerate(zip(found, expected, strict=True))
        for name, value in others.items()
        if not same(mine.get(name), value)
    ]
