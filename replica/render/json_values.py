"""Decodes JSON columns to ``JsonDocument``, so that JSON's ``null`` differs from SQL's NULL. Renders nothing.

In the documented Python values ``None`` is both a column's NULL and JSON's ``null``. Renderers must not confuse the
two: with these cells None is always NULL. Partial updates stay as logged if their document is not in the log.
"""

from protocol.constants import ColumnType
from protocol.records import record
from protocol.rows.cells import VALUE_CELLS, Cell, CellMakers, CellTable
from protocol.values.jsonb import JsonValue, decode_json
from protocol.values.jsonb_diff import JsonDiff, apply_json_diffs, read_json_diffs


@record(frozen=True, slots=True)
class JsonDocument:
    """The document of a JSON column."""

    value: JsonValue


@record(frozen=True, slots=True)
class JsonChanges:
    """A partial update of a document that the before image lacks."""

    diffs: tuple[JsonDiff, ...]


def _document(data: bytes) -> JsonDocument:
    return JsonDocument(decode_json(data))


def _apply(before: object, data: bytes) -> JsonDocument | JsonChanges:
    diffs = read_json_diffs(data)
    if isinstance(before, JsonDocument):
        return JsonDocument(apply_json_diffs(before.value, diffs))
    return JsonChanges(tuple(diffs))


_DOCUMENT_CELLS: CellMakers = {
    ColumnType.JSON: lambda column: Cell("{f}({v})", _document, length_bytes=column.metadata)
}


def document_cells(makers: CellMakers | None = None) -> CellTable:
    """Cells with ``JsonDocument`` for ``open_binlog(cells=...)``; ``makers`` replaces cells of other types."""
    return CellTable({**VALUE_CELLS, **_DOCUMENT_CELLS, **(makers or {})}, _apply, JsonDocument)
