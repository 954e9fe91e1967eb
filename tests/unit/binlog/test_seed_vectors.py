"""Byte vectors published in articles: all events and headers among them decode to the expected result.

The tests of messages use the packets of the same collection, the tests of value readers its values.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    AnonymousGtidEvent,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    IntvarEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    RowsQueryEvent,
    TableMapEvent,
    UpdateRowsEvent,
    XidEvent,
)
from protocol.binlog.query_status import parse_status_variables
from protocol.constants import EventType
from protocol.wire import unpack_event_header
from tests.support.places import CORPUS

VECTORS = CORPUS / "seed_vectors.json"

# Vectors that are not decoded as published, each with its reason.
EXCEPTIONS = {
    "table_map_5.6_test1": "doubtful: its VARCHAR length cannot be that of the table shown, and no checksum decides",
    "delete_rows_5.6_int_table": "doubtful: the checksum bytes are copied from the WRITE_ROWS example",
}
# Rows events whose table map is at another place of the article, or missing.
TABLE_MAPS = {"rec_write_rows_365": "rec_table_map_320", "rec_delete_rows_961": "rec_table_map_909"}

Vector = dict[str, Any]


def load() -> dict[str, Vector]:
    vectors = json.loads(VECTORS.read_text()) if VECTORS.exists() else []
    return {vector["name"]: vector for vector in vectors}


ALL = load()
EVENTS = [name for name, vector in ALL.items() if vector["kind"] == "event" and name not in EXCEPTIONS]
HEADERS = [name for name in ALL if name.startswith("event_header")]

pytestmark = pytest.mark.skipif(not ALL, reason="the corpus is not here")


def event(event_type: int, body: bytes) -> bytes:
    """An event without checksum around a body."""
    return struct.pack("<IBIIIH", 0, event_type, 1, 19 + len(body), 0, 0) + body


def table_map(table_id: int, column_types: list[int]) -> bytes:
    """A table map of integer columns, for vectors whose article shows none."""
    count = len(column_types)
    body = table_id.to_bytes(6, "little") + b"\1\0\1s\0\1t\0" + bytes([count, *column_types, 0, 0xFF])
    return event(EventType.TABLE_MAP, body)


def raw_event(vector: Vector) -> bytes:
    if "full_event_hex" in vector:
        return bytes.fromhex(vector["full_event_hex"])
    return event(vector["expected"]["type"], bytes.fromhex(vector.get("body_hex") or vector["hex"]))


def decode(vector: Vector) -> Any:
    decoder = EventDecoder()
    expected = vector["expected"]
    needed = vector.get("needs") or TABLE_MAPS.get(vector["name"])
    if needed:
        decoder.checksum_enabled = True
        decoder.decode(raw_event(ALL[needed]))
    elif "column_types" in expected and ("row" in expected or "before" in expected):
        decoder.decode(table_map(expected["table_id"], expected["column_types"]))
    decoder.checksum_enabled = "full_event_hex" in vector
    return decoder.decode(raw_event(vector))


def published(value: object) -> object:
    """A decoded value in the collection's form: temporal values as text, FLOAT as the exact binary32."""
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).timestamp()
    if isinstance(value, date | datetime | timedelta | Decimal):
        return str(value)
    return value


def same(decoded: object, expected: object) -> bool:
    if isinstance(decoded, datetime) and decoded.tzinfo:
        # The article prints the local time of a session at +08:00.
        text = (decoded + timedelta(hours=8)).replace(tzinfo=None).isoformat(" ")
        return text.startswith(str(expected).split(".")[0])
    if isinstance(decoded, float):
        return abs(decoded - float(str(expected))) < 1e-9
    if isinstance(decoded, timedelta):
        return decoded == timedelta(hours=9, minutes=54) and str(expected).startswith("09:54:00")
    if isinstance(decoded, datetime):
        return decoded == datetime.fromisoformat(str(expected))
    if isinstance(decoded, bytes):
        # 5.6 does not log character sets: strings stay bytes.
        return decoded == str(expected).encode()
    return published(decoded) == expected


def assert_row(row: tuple[object, ...], expected: list[object]) -> None:
    assert len(row) == len(expected)
    for decoded, wanted in zip(row, expected, strict=True):
        assert same(decoded, wanted), (decoded, wanted)


def check_rows(decoded: RowsEvent, expected: Vector) -> None:
    assert decoded.table_id == expected["table_id"]
    if isinstance(decoded, UpdateRowsEvent):
        ((before, after),) = decoded.rows
        assert_row(before, expected["before"])
        assert_row(after, expected["after"])
    else:
        (row,) = decoded.rows  # type: ignore[attr-defined]
        assert_row(row, expected["row"])


def check_format(decoded: FormatDescriptionEvent, expected: Vector) -> None:
    assert decoded.server_version == expected["server_version"]
    assert decoded.checksum_algorithm == 1
    assert decoded.created == expected.get("create_timestamp", decoded.header.timestamp)
    if "post_header_lengths_count" in expected:
        assert len(decoded.post_header_sizes) == expected["post_header_lengths_count"]


def check_table_map(decoded: TableMapEvent, expected: Vector) -> None:
    assert decoded.table_id == expected["table_id"]
    assert (decoded.table.schema, decoded.table.name) == (expected["database"], expected["table"])
    # The columns have no STRING, ENUM or SET, whose logged type would differ.
    assert [column.type for column in decoded.table.columns] == expected["column_types"]
    nullable = sum(1 << index for index, column in enumerate(decoded.table.columns) if column.nullable)
    assert nullable.to_bytes(-(-len(decoded.table.columns) // 8), "little").hex() == expected["null_bits_hex"]
    if "decimal" in expected:
        assert decoded.table.columns[5].metadata == expected["decimal"][0] << 8 | expected["decimal"][1]
    if "bit_bits" in expected:
        assert decoded.table.columns[8].metadata == expected["bit_bits"]
    if "optional_metadata" in expected:
        assert decoded.table.columns[1].collation == 255
        assert decoded.table.columns[0].unsigned is False


def check_query(decoded: QueryEvent, expected: Vector) -> None:
    variables = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in parse_status_variables(decoded.status_variables).items()
    }
    assert variables == expected["status_vars"]
    assert (decoded.schema, decoded.sql) == (expected["database"], expected["query"])
    assert (decoded.thread_id, decoded.exec_time, decoded.error_code) == (
        expected["thread_id"],
        expected["exec_time"],
        expected["error_code"],
    )


def check_gtid(decoded: AnonymousGtidEvent, expected: Vector) -> None:
    if isinstance(decoded, GtidEvent):
        assert str(decoded.gtid) == expected["gtid"]
    else:
        assert decoded.gtid_flags == expected["gtid_flags"]
        assert (decoded.last_committed, decoded.sequence_number) == (20, 21)


CHECKS: dict[type, Callable[[Any, Vector], None]] = {
    FormatDescriptionEvent: check_format,
    TableMapEvent: check_table_map,
    QueryEvent: check_query,
    GtidEvent: check_gtid,
    AnonymousGtidEvent: check_gtid,
}
FIELDS: dict[type, dict[str, Callable[[Any], object]]] = {
    XidEvent: {"xid": lambda e: e.xid},
    RotateEvent: {"position": lambda e: e.next_position, "next_log": lambda e: e.next_file},
    RowsQueryEvent: {"query": lambda e: e.sql},
    PreviousGtidsEvent: {"as_text": lambda e: str(e.gtid_set)},
    IntvarEvent: {"value": lambda e: e.value, "intvar": lambda e: {2: "INSERT_ID"}[e.variable]},
}
HEADER_FIELDS = {
    "timestamp": "timestamp",
    "type": "type",
    "server_id": "server_id",
    "event_size": "size",
    "end_log_pos": "next_position",
    "flags": "flags",
}


def check_header(header: EventHeader, expected: Vector) -> None:
    for published_name, name in HEADER_FIELDS.items():
        if published_name in expected:
            assert getattr(header, name) == expected[published_name], name


@pytest.mark.parametrize("name", EVENTS)
def test_event(name: str) -> None:
    vector = ALL[name]
    expected = vector["expected"]
    decoded = decode(vector)
    check_header(decoded.header, expected if "full_event_hex" in vector else {"type": expected["type"]})
    if isinstance(decoded, RowsEvent):
        check_rows(decoded, expected)
        return
    fields = FIELDS.get(type(decoded))
    if fields is None:
        CHECKS[type(decoded)](decoded, expected)
        return
    for field, read in fields.items():
        assert read(decoded) == expected[field]


@pytest.mark.parametrize("name", HEADERS)
def test_header(name: str) -> None:
    header = EventHeader._make(unpack_event_header(bytes.fromhex(ALL[name]["hex"])))
    check_header(header, ALL[name]["expected"])


def test_exceptions_are_the_doubtful_ones() -> None:
    doubtful = {name for name in ALL if ALL[name]["kind"] == "event" and ALL[name]["doubtful"]}
    assert doubtful == set(EXCEPTIONS)
