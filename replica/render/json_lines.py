"""Events as JSON lines: one object per row change, one per other event.

A row change has the keys ``op`` ("insert", "update", "delete"; "read" for a row of an initial copy), ``schema``,
``table``, ``ts`` (seconds since 1970), ``server_id``, ``gtid`` (of its transaction, or null), ``file``, ``position``
(the event's offset), ``row`` (the row's number at that position, from 0), ``before`` and ``after`` (objects by column
name, or null). File, position and row together are unique. Any other event has ``event`` (its class), ``ts``,
``server_id``, ``gtid``, ``file``, ``position`` and its own fields. A transaction's number is in the ``XidEvent`` that
ends it. A table map has a line only if the table is new or has changed. A compressed transaction is followed by its
events. A ``SchemaChangeEvent`` has the table ``before`` and ``after``: ``columns`` and ``primary_key``, or a
``reason`` why they are not known, or null where there is no table.

No value loses information:

    int, YEAR, BIT      number (of up to 64 bits, more than a double's 53)
    FLOAT, DOUBLE       number that reads back as the same double; or "NaN", "Infinity", "-Infinity"
    DECIMAL             string, all digits of its scale: "1.50"
    DATE, DATETIME      string in ISO 8601: "2026-01-31", "2026-01-31T23:59:59.500000"; zero and partial dates as
                        MySQL prints them: "0000-00-00 00:00:00"
    TIMESTAMP           the same followed by "+00:00"
    TIME                string as MySQL prints it: "-838:59:59.000001"
    strings             string; bytes that are invalid in the character set are "\\ufffd", and the line has:
                        "invalid_text": {"/after/name": {"base64": "..."}}, the bytes of each such string by its path
    binary strings      {"base64": "..."}; GEOMETRY too
    ENUM, SET           string; number if the labels are not known
    VECTOR              list of numbers
    JSON                the document; JSON's own null is {"$json": null}. A value of a type that JSON lacks is an
                        object with one key: {"$decimal": "1.50"}, {"$date": ...}, {"$datetime": ...},
                        {"$time": ...}, {"$base64": "...", "$type": 252}. An object in the document whose first key
                        begins with "$" is {"$json": object}
    partial JSON        {"$diffs": [{"operation": ..., "path": ..., "value": ...}]} if the document is not in the log
    NULL                null; a column that the row image lacks has no key
"""

import json
import uuid
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from types import MappingProxyType
from typing import Any, BinaryIO, Final

from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    StopEvent,
    TableMapEvent,
    TransactionPayloadEvent,
)
from protocol.binlog.query_status import parse_status_variables
from protocol.gtid import Gtid, GtidSet, MariadbGtid
from protocol.rows.bounded_cache import BoundedCache
from protocol.rows.table import Table
from protocol.values.jsonb import JsonOpaque, JsonValue, decode_json
from protocol.wire import is_characters, utf8_bytes

from ..transactions.replay import TransactionRestarted
from ..transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent
from .json_values import JsonChanges, JsonDocument, document_cells

JsonObject = dict[str, Any]

_MICROSECOND: Final = timedelta(microseconds=1)
# Events between transactions, and the event that begins a transaction without a GTID.
_WITHOUT_GTID: Final = (
    AnonymousGtidEvent,
    FormatDescriptionEvent,
    RotateEvent,
    StopEvent,
    PreviousGtidsEvent,
    MariadbGtidListEvent,
    SnapshotCompleteEvent,
    SnapshotRestartedEvent,
)
# Memory for the tables whose maps were written.
_TABLES_BYTES: Final = 64 << 20
_TABLE_SIZE: Final = 500
_COLUMN_SIZE: Final = 100


class JsonRenderer:
    """Writes events to ``output``, a line for each object. The events' decoder must use ``renderer.cells``.

    With ``changes_only`` there are lines for row changes, and for ``TransactionRestarted``, which voids some.
    """

    def __init__(self, output: BinaryIO, *, changes_only: bool = False) -> None:
        self.cells = document_cells()
        self._output = output
        self._objects = EventObjects(changes_only=changes_only)

    def render(self, raw: bytes, position: int, event: Event) -> None:
        """Write one event; ``raw`` and ``position`` are not used: the event has its own."""
        self._output.writelines([json_line(value) for value in self._objects.of(event)])

    def finish(self) -> None:
        """Do nothing: every line has been written."""


class EventObjects:
    """Turns the events of a log, in order, into the objects described above; ``plain`` then converts their values.

    ``changes_only``: as in ``JsonRenderer``.
    """

    def __init__(self, *, changes_only: bool = False) -> None:
        self._changes_only = changes_only
        self._gtid: str | None = None
        self._place = ("", -1)
        self._row = 0
        self._tables: BoundedCache[tuple[str, str], Table] = BoundedCache(_TABLES_BYTES)

    def of(self, event: Event) -> Iterator[JsonObject]:
        """The objects of one event; values are still Python values, which ``plain`` converts to JSON's types."""
        if isinstance(event, RowsEvent):
            return self._changes(event)
        if isinstance(event, GtidEvent | MariadbGtidEvent):
            self._gtid = str(event.gtid)
        elif isinstance(event, _WITHOUT_GTID):
            self._gtid = None
        elif isinstance(event, TableMapEvent) and not self._is_news(event.table):
            return iter(())
        if self._changes_only and not isinstance(event, TransactionRestarted | SnapshotRestartedEvent):
            return iter(())
        return iter((self._other(event),))

    def _is_news(self, table: Table) -> bool:
        key = (table.schema, table.name)
        known = self._tables.get(key)
        if known is table or known == table:
            return False
        self._tables.keep(key, table, _TABLE_SIZE + _COLUMN_SIZE * len(table.columns))
        return True

    def _changes(self, event: RowsEvent) -> Iterator[JsonObject]:
        header, table = event.header, event.table
        place = (event.file, event.position)
        if place != self._place:
            self._place, self._row = place, 0
        for change in event.changes():
            yield {
                "op": change.op,
                "schema": table.schema,
                "table": table.name,
                "ts": header.timestamp,
                "server_id": header.server_id,
                "gtid": None if change.op == "read" else self._gtid,
                "file": event.file,
                "position": event.position,
                "row": self._row,
                "before": change.before,
                "after": change.after,
            }
            self._row += 1

    def _other(self, event: Event) -> JsonObject:
        return {
            "event": type(event).__name__,
            "ts": event.header.timestamp,
            "server_id": event.header.server_id,
            "gtid": self._gtid,
            "file": event.file,
            "position": event.position,
            **_fields_of(event),
        }


# ----------------------------------------------------------------------------------------- fields of events


def _field_names(event_class: type[Event]) -> tuple[str, ...]:
    common = {field.name for field in fields(Event)}
    return tuple(field.name for field in fields(event_class) if field.name not in common)


def _own_fields(event: Event) -> JsonObject:
    return {name: getattr(event, name) for name in _field_names(type(event))}


def _query_fields(event: Any) -> JsonObject:
    values = _own_fields(event)
    return values | {"status_variables": parse_status_variables(event.status_variables)}


def _payload_fields(event: Any) -> JsonObject:
    return {"compression_type": event.compression_type, "uncompressed_size": event.uncompressed_size}


_COLUMN_FIELDS: Final = (
    *("name", "metadata", "nullable", "unsigned", "charset", "collation", "labels", "visible"),
    *("geometry_type", "dimension"),
)


def _table_fields(event: Any) -> JsonObject:
    table: Table = event.table
    columns = [
        {"type": column.type.name} | {name: getattr(column, name) for name in _COLUMN_FIELDS}
        for column in table.columns
    ]
    return {
        "table_id": event.table_id,
        "schema": table.schema,
        "table": table.name,
        "names_from": table.names_from,
        "primary_key": table.primary_key,
        "columns": columns,
    }


def _named_table_fields(event: Any) -> JsonObject:
    table: Table = event.table
    rest = {name: value for name, value in _own_fields(event).items() if name != "table"}
    return {"schema": table.schema, "table": table.name} | rest


def _schema_change_fields(event: Any) -> JsonObject:
    values = _own_fields(event)
    shapes = {name: _shape(values.pop(name)) for name in ("before", "after")}
    return {"schema": values.pop("schema"), "table": values.pop("name")} | shapes | values


def _shape(shape: Any) -> JsonObject | None:
    """The columns of a table, or the reason why they are not known; None if there is no table."""
    if shape is None or hasattr(shape, "reason"):
        return shape and {"reason": shape.reason}
    columns = [
        {"name": one.name, "type": one.column_type, "nullable": one.nullable, "charset": one.charset}
        for one in shape.columns
    ]
    return {"columns": columns, "primary_key": shape.primary_key}


_FIELDS: Final[Mapping[type[Event], Callable[[Any], JsonObject]]] = MappingProxyType(
    {
        QueryEvent: _query_fields,
        TableMapEvent: _table_fields,
        TransactionPayloadEvent: _payload_fields,
        SnapshotCompleteEvent: _named_table_fields,
        SnapshotRestartedEvent: _named_table_fields,
    }
)
# Compared by name: importing the class imports the modules of DDL, 13 ms that files without a schema history save.
_SCHEMA_CHANGE: Final = "SchemaChangeEvent"


def _fields_of(event: Event) -> JsonObject:
    kind = type(event)
    if kind.__name__ == _SCHEMA_CHANGE:
        return _schema_change_fields(event)
    return _FIELDS.get(kind, _own_fields)(event)


# ---------------------------------------------------------------------------------------------------- values


def _base64(value: bytes) -> JsonObject:
    return {"base64": b64encode(value).decode("ascii")}


def time_text(value: timedelta) -> str:
    """A TIME as MySQL prints it, with six fractional digits if it has a fraction: "-838:59:59"."""
    micros = value // _MICROSECOND
    seconds, fraction = divmod(abs(micros), 1_000_000)
    sign = "-" if micros < 0 else ""
    text = f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}" if fraction else text


def _float(value: float) -> float | str:
    if isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _decimal(value: Decimal) -> str:
    return f"{value:f}"


def _isoformat(value: date) -> str:
    return value.isoformat()


def _changes(value: JsonChanges) -> JsonObject:
    return {
        "$diffs": [
            {"operation": diff.operation, "path": diff.path}
            | ({"value": _member(decode_json(diff.value))} if diff.operation != "remove" else {})
            for diff in value.diffs
        ]
    }


def _document(document: JsonDocument) -> Any:
    return {"$json": None} if document.value is None else _member(document.value)


def _member(value: JsonValue) -> Any:
    """A value inside a document."""
    if isinstance(value, dict):
        members = {name: _member(member) for name, member in value.items()}
        return {"$json": members} if next(iter(members), "").startswith("$") else members
    if isinstance(value, list):
        return [_member(element) for element in value]
    make = _TYPED_MEMBERS.get(type(value))
    return value if make is None else make(value)


_TYPED_MEMBERS: Final[Mapping[type, Callable[[Any], Any]]] = MappingProxyType(
    {
        float: _float,
        Decimal: lambda value: {"$decimal": _decimal(value)},
        date: lambda value: {"$date": value.isoformat()},
        datetime: lambda value: {"$datetime": value.isoformat()},
        timedelta: lambda value: {"$time": time_text(value)},
        bytes: lambda value: {"$base64": b64encode(value).decode("ascii")},
        JsonOpaque: lambda value: {
            "$base64": b64encode(value).decode("ascii"),
            "$type": value.column_type,
        },
    }
)

# Types that the json module cannot write.
_VALUES: Final[Mapping[type, Callable[[Any], Any]]] = MappingProxyType(
    {
        Decimal: _decimal,
        date: _isoformat,
        datetime: _isoformat,
        timedelta: time_text,
        bytes: _base64,
        array: lambda value: value.tolist(),
        JsonDocument: _document,
        JsonChanges: _changes,
        uuid.UUID: str,
        Gtid: str,
        GtidSet: str,
        MariadbGtid: str,
    }
)


def _plain_value(value: object) -> Any:
    return _VALUES[type(value)](value)


def plain(value: object) -> Any:
    """``value`` in JSON's own types: dict, list, str, int, float, bool and None."""
    if isinstance(value, dict):
        # Certification info of group replication has bytes as keys.
        return {key if isinstance(key, str) else key.hex(): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, float):
        return _float(value)
    make = _VALUES.get(type(value))
    return value if make is None else plain(make(value))


def _without_surrogates(value: Any, path: str, replaced: JsonObject) -> Any:
    """Plain values with U+FFFD for lone surrogates; the bytes of such a text go to ``replaced`` by its path."""
    if isinstance(value, dict):
        return {
            _characters(key): _without_surrogates(member, f"{path}/{_characters(key)}", replaced)
            for key, member in value.items()
        }
    if isinstance(value, list):
        return [
            _without_surrogates(member, f"{path}/{index}", replaced) for index, member in enumerate(value)
        ]
    if isinstance(value, str) and not is_characters(value):
        replaced[path] = _base64(_stored(value))
        return _characters(value)
    return value


def _characters(text: str) -> str:
    return text if is_characters(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _stored(text: str) -> bytes:
    try:
        return utf8_bytes(text)
    except UnicodeEncodeError:  # surrogates that stand for no byte
        return text.encode("utf-8", "surrogatepass")


# The C encoder writes a line in 4 us; ``plain`` prepares values that it refuses (keys of bytes, NaN, lone
# surrogates).
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain_value)


def json_line(value: JsonObject) -> bytes:
    """An object as one line of UTF-8.

    Text with bytes that are not valid in its character set has U+FFFD in their places, because strict readers refuse
    lone surrogates. Then the line has one more member, ``invalid_text``: the bytes of each such text in base64, by
    its path in the object (``{"/sql": {"base64": "..."}}``).
    """
    try:
        return _ENCODER.encode(value).encode() + b"\n"
    except (ValueError, TypeError):  # UnicodeEncodeError is a ValueError
        replaced: JsonObject = {}
        line = _without_surrogates(plain(value), "", replaced)
        if replaced:
            line["invalid_text"] = replaced
        return _ENCODER.encode(line).encode() + b"\n"
