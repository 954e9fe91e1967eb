"""JSON columns as documents that can be told from SQL's NULL, and partial updates of them as they were logged.

``None`` is both a column's NULL and JSON's ``null`` in the documented Python values. Renderers that write values for
others to read must not confuse the two: with these cells a document is a ``JsonDocument``, and None is NULL.
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
    """What a partial update changed in a document that the before image does not hold."""

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
    """Cells with documents, for ``open_binlog(cells=...)``; ``makers`` replaces other types' values too."""
    return CellTable({**VALUE_CELLS, **_DOCUMENT_CELLS, **(makers or {})}, _apply)
