"""Published vectors through the whole decoder: values through compiled rows, event bodies, whole events.

Temporal values, decimals and JSON documents of the same collection are tested with their readers.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from protocol.binlog.decoder import EventDecoder
from protocol.binlog.events import (
    AnnotateRowsEvent,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    TableMapEvent,
    UserVarEvent,
    WriteRowsEvent,
    XaPrepareEvent,
)
from protocol.constants import ColumnType
from protocol.errors import TruncatedError
from protocol.gtid import Gtid, GtidSet, MariadbGtid
from protocol.rows.cells import CellTable
from protocol.rows.column import Column
from protocol.rows.compiler import Image, RowCompiler
from tests.support.places import CORPUS
from tests.support.raw_events import raw_event

VECTORS = CORPUS / "value_vectors.json"
THROUGH_ROWS = (
    "TINY",
    "SHORT",
    "INT24",
    "LONG",
    "LONGLONG",
    "DOUBLE",
    "VARCHAR",
    "JSON",
    "ENUM",
    "SET",
    "BIT",
    "YEAR",
)

pytestmark = pytest.mark.skipif(not VECTORS.exists(), reason="the corpus is not here")


def load() -> list[dict[str, Any]]:
    return json.loads(VECTORS.read_text()) if VECTORS.exists() else []


def of_kind(*kinds: str) -> list[Any]:
    return [
        pytest.param(vector, id=f"{number}-{vector['type']}")
        for number, vector in enumerate(load())
        if vector["kind"] in kinds
    ]


def in_rows() -> list[Any]:
    return [param for param in of_kind("value") if param.values[0]["type"] in THROUGH_ROWS]


def expected_value(column_type: str, text: str) -> object:
    if column_type == "VARCHAR":
        return text
    if column_type == "JSON":
        return json.loads(text)
    if column_type == "DOUBLE":
        return float(text)
    return int(text.removeprefix("bits "), 0)


@pytest.mark.parametrize("vector", in_rows())
def test_value_in_a_row(vector: dict[str, Any]) -> None:
    meta = vector["meta"] or {}
    metadata = meta.get("meta", 8 if vector["type"] == "DOUBLE" else 0)
    if vector["type"] == "BIT":
        # As in the table map: whole bytes above, further bits below.
        metadata = (metadata >> 8) * 8 + (metadata & 0xFF)
    unsigned = meta.get("unsigned")
    column = Column("c", ColumnType[vector["type"]], metadata, True, unsigned=unsigned, charset="utf8mb4")
    data = b"\0" + bytes.fromhex(vector["hex"])
    reader = RowCompiler().reader(Image((CellTable().cell(column),), (0,), (0,)))
    assert reader(data, 0, len(data)) == [(expected_value(vector["type"], vector["expected"]),)]


SOURCES = (
    uuid.UUID("b5cd1624-5f30-11e4-b4e9-1051721bd241"),
    uuid.UUID("bb421d26-5f30-11e4-b4e9-d89d672b2ef8"),
)
# Number in a type's name -> the event class of the body, and its attributes.
BODIES: dict[int, tuple[type, dict[str, object]]] = {
    162: (MariadbGtidEvent, {"gtid": MariadbGtid(0, 1, 7404), "gtid_flags": 12}),
    163: (MariadbGtidListEvent, {"gtids": (MariadbGtid(0, 102, 7255),)}),
    33: (GtidEvent, {"gtid": Gtid(uuid.UUID("24bc7850-2c16-11e6-a073-0242ac110002"), 11), "gtid_flags": 3}),
    35: (
        PreviousGtidsEvent,
        {"gtid_set": GtidSet(f"{SOURCES[0]}:1-7081968,{SOURCES[1]}:1-7823824")},
    ),
    38: (XaPrepareEvent, {"one_phase": False, "format_id": 123, "gtrid": b"gtrid", "bqual": b"bqual"}),
    160: (AnnotateRowsEvent, {"sql": "INSERT INTO foo set i = 2"}),
}
# The vector's bytes are a placeholder; the payload to which its numbers belong is only in a test of its project.
NO_BODY = {40}


@pytest.mark.parametrize("vector", of_kind("event-body"))
def test_event_body(vector: dict[str, Any]) -> None:
    number = int(vector["type"].rpartition("(")[2].rstrip(")"))
    if number in NO_BODY:
        assert bytes.fromhex(vector["hex"]) == bytes(range(11))
        return
    event = EventDecoder().decode(raw_event(number, bytes.fromhex(vector["hex"])))
    event_class, attributes = BODIES[number]
    assert type(event) is event_class
    assert {name: getattr(event, name) for name in attributes} == attributes


def test_whole_events() -> None:
    decoder = EventDecoder()
    decoder.checksum_enabled = True
    *raw_events, mismatched = [bytes.fromhex(param.values[0]["hex"]) for param in of_kind("event")]
    user_var, description, first_map, first_rows, second_map = map(decoder.decode, raw_events)
    assert isinstance(user_var, UserVarEvent)
    assert (user_var.name, user_var.value, user_var.collation) == ("foo", b"bar", 33)
    assert isinstance(description, FormatDescriptionEvent)
    assert description.server_version == "5.7.22-log"
    assert isinstance(first_map, TableMapEvent)
    assert isinstance(second_map, TableMapEvent)
    assert (str(first_map.table), str(second_map.table)) == ("db.tbl", "db1.tbl1")
    assert isinstance(first_rows, WriteRowsEvent)
    assert first_rows.rows == [(1,)]
    # The table map says TINYINT, but the rows have an INT: they do not end where the event ends.
    with pytest.raises(TruncatedError):
        decoder.decode(mismatched)
