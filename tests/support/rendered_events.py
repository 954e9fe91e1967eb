"""Events made by hand for tests of renderers, and what a renderer writes for them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    QueryEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XidEvent,
)
from protocol.constants import ColumnType, EventType
from protocol.gtid import Gtid
from protocol.rows.column import Column
from protocol.rows.table import Table

FILE = "binlog.000001"
TIME = 1_700_000_000
GTID = "3e11fa47-71ca-11e1-9e33-c80aa9429562:5"


def header(kind: int = 0, *, flags: int = 0, next_position: int = 100) -> EventHeader:
    return EventHeader(TIME, kind, 97, 50, next_position, flags)


def format_description(version: str = "9.7.4") -> FormatDescriptionEvent:
    return FormatDescriptionEvent(header(EventType.FORMAT_DESCRIPTION), FILE, 4, 4, version, 0, 19, b"", 1)


def gtid() -> GtidEvent:
    return GtidEvent(header(EventType.GTID), FILE, 126, 0, gtid=Gtid.parse(GTID))


def query(sql: str, schema: str = "", *, error_code: int = 0) -> QueryEvent:
    return QueryEvent(header(EventType.QUERY), FILE, 200, 1, 0, error_code, schema, sql, b"")


def xid() -> XidEvent:
    return XidEvent(header(EventType.XID), FILE, 500, 77)


def column(name: str, kind: ColumnType = ColumnType.LONG, metadata: int = 0, **facts: Any) -> Column:
    return Column(name, kind, metadata, True, **facts)


def table(*columns: Column, key: Sequence[str] = (), names_from: str | None = "log") -> Table:
    return Table("shop", "orders", columns, tuple(key), names_from)


def inserts(of: Table, *rows: tuple[object, ...], flags: int = 1, position: int = 300) -> WriteRowsEvent:
    return WriteRowsEvent(header(EventType.WRITE_ROWS), FILE, position, 7, of, flags, b"", list(rows))


def updates(
    of: Table, *rows: tuple[tuple[object, ...], tuple[object, ...]], flags: int = 1
) -> UpdateRowsEvent:
    return UpdateRowsEvent(header(EventType.UPDATE_ROWS), FILE, 300, 7, of, flags, b"", list(rows))


def deletes(of: Table, *rows: tuple[object, ...], flags: int = 1) -> DeleteRowsEvent:
    return DeleteRowsEvent(header(EventType.DELETE_ROWS), FILE, 300, 7, of, flags, b"", list(rows))


def written(make: Callable[[BinaryIO], Any], *events: Event) -> bytes:
    """All that a renderer writes for some events."""
    output = io.BytesIO()
    renderer = make(output)
    with contextlib.ExitStack() as stack:
        if hasattr(renderer, "close"):
            stack.callback(renderer.close)
        for event in events:
            renderer.render(b"raw", event.position, event)
        renderer.finish()
    return output.getvalue()
