"""Expected rows: the row changes that open_binlog gives, in the form of the envelope, as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protocol.binlog.events import (
    AnonymousGtidEvent,
    GtidEvent,
    MariadbGtidEvent,
    QueryEvent,
    RowsEvent,
    TransactionPayloadEvent,
)
from protocol.constants import ColumnType
from protocol.rows.column import ABSENT
from replica.files.binlog_file import BinlogFile, open_binlog
from replica.render.json_lines import plain
from tests.support.arrow_rows import text_cells, valid
from tests.support.places import CORPUS

Change = dict[str, Any]


def corpus_files(limit: int = 1 << 40) -> list[Path]:
    """The corpus files of at most ``limit`` bytes; none if there is no corpus."""
    if not CORPUS.exists():
        return []
    records = json.loads((CORPUS / "index.json").read_text())
    # Files made of single events ("seeds") have transactions that no server would write.
    return [
        CORPUS / record["file"]
        for record in records
        if record["size"] <= limit and record["source"] != "seeds"
    ]


def expected_changes(log: BinlogFile) -> Iterator[Change]:
    """All row changes; ``log`` must be opened with ``cells=text_cells()``."""
    gtid, place = None, ("", -1)
    inner = row = 0
    is_new = False
    for _, _, event in log.raw_events():
        if isinstance(event, TransactionPayloadEvent):
            place = (event.file, event.position)
            continue
        if isinstance(event, AnonymousGtidEvent | MariadbGtidEvent):
            gtid = str(event.gtid) if isinstance(event, GtidEvent | MariadbGtidEvent) else None
        elif isinstance(event, QueryEvent) and event.sql == "BEGIN" and not is_new:
            gtid = None
        is_new = isinstance(event, AnonymousGtidEvent | MariadbGtidEvent)
        if not isinstance(event, RowsEvent):
            continue
        inner = 1 if (event.file, event.position) == place else 0
        for row, change in enumerate(_changes(event)):
            yield {
                **change,
                "gtid": gtid,
                "file": event.file,
                "pos": event.position,
                # Within a compressed transaction rows are not counted one by one.
                "row": None if inner else row,
            }


def _changes(event: Any) -> Iterator[Change]:
    table = event.table
    for op, before, after in _images(event):
        if op == "update":
            after = [old if new is ABSENT else new for old, new in zip(before, after, strict=True)]
        yield {
            "op": op,
            "schema": valid(table.schema),
            "table": valid(table.name),
            "before": _object(table, before),
            "after": _object(table, after),
        }


def _images(event: Any) -> Iterator[tuple[str, Any, Any]]:
    kind = type(event).__name__
    for row in event.rows:
        if kind.startswith("Write"):
            yield "insert", None, row
        elif kind.startswith("Delete"):
            yield "delete", row, None
        else:
            yield "update", row[0], row[1]


def _object(table: Any, image: Any) -> dict[str, Any] | None:
    if image is None:
        return None
    return {
        valid(column.name): _value(column, value)
        for column, value in zip(table.columns, image, strict=True)
        if value is not ABSENT and column.type is not ColumnType.TYPED_ARRAY
    }


def _value(column: Any, value: Any) -> Any:
    if column.type is ColumnType.JSON and isinstance(value, str):
        return json.loads(value)
    if isinstance(value, str):
        return valid(value)
    return plain(value)


def open_expected(path: Path | list[Path], **options: Any) -> BinlogFile:
    return open_binlog(path, cells=text_cells(), **options)
