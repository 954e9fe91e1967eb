"""The tables of the recorded shop at the end of its log."""

from __future__ import annotations

import json
from typing import Any

import replica
from replica import RowsEvent
from replica.demo import recorded_log

Rows = list[dict[str, Any]]


def shop_at_the_end() -> dict[str, Rows]:
    """The tables at the end of the log, from the changes that open_binlog gives."""
    kept: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    columns: dict[str, list[str]] = {}
    with recorded_log() as path, replica.open_binlog(path) as log:
        for event in log:
            if not isinstance(event, RowsEvent):
                continue
            table = event.table
            columns[str(table)] = [column.name for column in table.columns]
            rows = kept.setdefault(str(table), {})
            for change in event.changes():
                for image, is_there in ((change.before, False), (change.after, True)):
                    if image is not None:
                        key = tuple(image[name] for name in table.primary_key)
                        rows.pop(key, None)
                        if is_there:
                            rows[key] = image
    return {
        name: [dict.fromkeys(columns[name]) | row for _, row in sorted(rows.items())]
        for name, rows in kept.items()
    }


def plain(rows: Rows) -> list[list[tuple[str, Any]]]:
    """The rows with sorted columns, as Delta puts new columns last, and with JSON documents in one text form."""
    return [
        [
            (name, json.loads(value) if name == "details" and isinstance(value, str) else value)
            for name, value in sorted(row.items())
        ]
        for row in sorted(
            rows, key=lambda row: [row[name] for name in ("id", "order_id", "line") if name in row]
        )
    ]
