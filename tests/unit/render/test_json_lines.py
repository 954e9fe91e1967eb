"""JSON lines: one line for each change or event, without loss of values."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from protocol.binlog.events import (
    AnonymousGtidEvent,
    Event,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    UnknownEvent,
    ViewChangeEvent,
    XaPrepareEvent,
)
from protocol.constants import ColumnType
from protocol.gtid import Gtid, GtidSet, MariadbGtid
from protocol.rows.column import ABSENT
from protocol.values.jsonb_diff import JsonDiff
from protocol.wire import is_characters
from replica.render.json_lines import EventObjects, JsonRenderer, json_line, plain, time_text
from replica.render.json_values import JsonChanges, JsonDocument, document_cells
from replica.render.yaml_documents import YamlRenderer
from replica.schemas.catalog import Unknown
from replica.schemas.change_event import SchemaChangeEvent
from replica.schemas.shape import ColumnShape, Shape
from replica.transactions.replay import transaction_restarted
from replica.transactions.snapshot_events import SnapshotCompleteEvent, SnapshotRestartedEvent
from tests.support.rendered_events import (
    FILE,
    GTID,
    TIME,
    column,
    deletes,
    format_description,
    gtid,
    header,
    inserts,
    query,
    table,
    updates,
    written,
    xid,
)
from tests.support.rendered_values import DOCUMENTS, VALUES

ORDERS = table(column("id"), column("status"), key=["id"])


def lines(*events: Any) -> list[dict[str, Any]]:
    text = written(JsonRenderer, *events)
    assert text.count(b"\n") == len(text.splitlines())
    return [json.loads(line) for line in text.splitlines()]


def test_a_change_is_a_line() -> None:
    [_, insert] = lines(gtid(), inserts(ORDERS, (1, "new")))
    assert insert == {
        "op": "insert",
        "schema": "shop",
        "table": "orders",
        "ts": TIME,
        "server_id": 97,
        "gtid": GTID,
        "file": FILE,
        "position": 300,
        "row": 0,
        "before": None,
        "after": {"id": 1, "status": "new"},
    }


def test_images_and_absent_columns() -> None:
    update, delete = lines(updates(ORDERS, ((1, ABSENT), (ABSENT, "paid"))), deletes(ORDERS, (1, None)))
    assert (update["op"], update["before"], update["after"]) == ("update", {"id": 1}, {"status": "paid"})
    assert (delete["op"], delete["before"], delete["after"]) == ("delete", {"id": 1, "status": None}, None)


def test_rows_are_counted_at_their_place() -> None:
    """All events in a compressed transaction have the position of the transaction."""
    changes = lines(
        inserts(ORDERS, (1, "a"), (2, "b")),
        inserts(ORDERS, (3, "c")),
        inserts(ORDERS, (4, "d"), position=400),
    )
    assert [(change["position"], change["row"]) for change in changes] == [
        (300, 0),
        (300, 1),
        (300, 2),
        (400, 0),
    ]


def test_other_events_have_their_own_fields() -> None:
    statement, end = lines(query("DROP TABLE t", "shop"), xid())
    assert statement == {
        "event": "QueryEvent",
        "ts": TIME,
        "server_id": 97,
        "gtid": None,
        "file": FILE,
        "position": 200,
        "thread_id": 1,
        "exec_time": 0,
        "error_code": 0,
        "schema": "shop",
        "sql": "DROP TABLE t",
        "status_variables": {},
    }
    assert (end["event"], end["xid"]) == ("XidEvent", 77)


def test_status_variables_are_read() -> None:
    event = query("SELECT 1")
    event.status_variables = b"\x00\x01\x00\x00\x00\x04\x21\x00\x21\x00\x08\x00"
    assert lines(event)[0]["status_variables"] == {"FLAGS2": 1, "CHARSET": [33, 33, 8]}


def test_a_gtid_lasts_until_the_next_one() -> None:
    anonymous = AnonymousGtidEvent(header(), FILE, 600, 0)
    rows = inserts(ORDERS, (1, "a"))
    found = lines(
        rows, gtid(), query("BEGIN"), rows, xid(), anonymous, rows, gtid(), format_description(), rows
    )
    assert [line["gtid"] for line in found] == [None, GTID, GTID, GTID, GTID, None, None, GTID, None, None]
    mariadb = MariadbGtidEvent(header(), FILE, 600, MariadbGtid(0, 1, 100), 12, commit_id=4)
    begin, change = lines(mariadb, rows)
    assert begin["gtid"] == change["gtid"] == "0-1-100"
    assert (begin["gtid_flags"], begin["commit_id"], begin["xid"]) == (12, 4, None)


def table_map(of: Any) -> TableMapEvent:
    return TableMapEvent(header(), FILE, 250, 7, 1, of)


def test_a_table_is_described_when_it_is_new() -> None:
    other = table(
        column("id"), column("status", ColumnType.ENUM, 1, labels=("new", "paid"), charset="utf8mb4")
    )
    first, change, second = lines(
        table_map(ORDERS),
        inserts(ORDERS, (1, "a")),
        table_map(table(column("id"), column("status"), key=["id"])),
        table_map(other),
        table_map(other),
    )
    assert (first["event"], change["op"], second["event"]) == ("TableMapEvent", "insert", "TableMapEvent")
    assert (first["schema"], first["table"], first["table_id"]) == ("shop", "orders", 7)
    assert (first["primary_key"], first["names_from"]) == (["id"], "log")
    assert second["columns"][1] == {
        "type": "ENUM",
        "name": "status",
        "metadata": 1,
        "nullable": True,
        "unsigned": None,
        "charset": "utf8mb4",
        "collation": None,
        "labels": ["new", "paid"],
        "visible": True,
        "geometry_type": None,
        "dimension": None,
    }


def test_fields_that_json_has_no_types_for() -> None:
    payload, unknown, previous, prepared, view, listed = lines(
        TransactionPayloadEvent(header(), FILE, 1, 0, 500, b"compressed"),
        UnknownEvent(header(), FILE, 1, b"\0\xff"),
        PreviousGtidsEvent(header(), FILE, 1, GtidSet(GTID)),
        XaPrepareEvent(header(), FILE, 1, False, 1, b"g", b""),
        ViewChangeEvent(header(), FILE, 1, "view", 5, {b"\x01": b"\x02"}),
        MariadbGtidListEvent(header(), FILE, 1, (MariadbGtid(0, 1, 2),), 0),
    )
    assert "payload" not in payload
    assert (payload["compression_type"], payload["uncompressed_size"]) == (0, 500)
    assert unknown["body"] == {"base64": "AP8="}
    assert previous["gtid_set"] == GTID
    assert (prepared["gtrid"], prepared["one_phase"]) == ({"base64": "Zw=="}, False)
    assert view["certification_info"] == {"01": {"base64": "Ag=="}}
    assert listed["gtids"] == ["0-1-2"]


# ------------------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=repr)
def test_values_of_columns(value: object, expected: object) -> None:
    [line] = lines(inserts(ORDERS, (1, value)))
    is_valid = not isinstance(expected, str) or is_characters(expected)
    assert line["after"]["status"] == (expected if is_valid else "\ufffd" * len(str(expected)))
    assert type(line["after"]["status"]) is type(expected)
    assert plain({"v": value}) == {"v": expected}


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS, ids=repr)
def test_documents(document: Any, expected: object) -> None:
    [line] = lines(inserts(ORDERS, (1, JsonDocument(document))))
    assert line["after"]["status"] == expected


def test_partial_updates_without_the_document() -> None:
    changes = JsonChanges(
        (JsonDiff("replace", "$.a", b"\x05\x07\x00"), JsonDiff("remove", "$.b", b""))  # INT16 7
    )
    [line] = lines(updates(ORDERS, ((1, ABSENT), (ABSENT, changes))))
    assert line["after"]["status"] == {
        "$diffs": [
            {"operation": "replace", "path": "$.a", "value": 7},
            {"operation": "remove", "path": "$.b"},
        ]
    }


def test_a_document_is_told_from_null_when_it_is_decoded() -> None:
    cells = document_cells()
    cell = cells.cell(column("j", ColumnType.JSON, 4))
    assert callable(cell.function)
    assert cell.function(b"\x04\x00") == JsonDocument(None)
    assert cells.apply_diff(JsonDocument({"a": 1}), b"\x00\x03$.a\x03\x05\x02\x00") == JsonDocument({"a": 2})
    partial = cells.apply_diff(ABSENT, b"\x00\x03$.a\x03\x05\x02\x00")
    assert partial == JsonChanges((JsonDiff("replace", "$.a", b"\x05\x02\x00"),))


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "00:00:00"),
        (1, "00:00:00.000001"),
        (-3_661_000_000, "-01:01:01"),
        (360_000_500_000, "100:00:00.500000"),
    ],
)
def test_time_text(micros: int, text: str) -> None:
    assert time_text(timedelta(microseconds=micros)) == text


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_what_json_knows_comes_back(value: Any) -> None:
    line = json_line({"v": value})
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"v": value}


def test_a_failover_is_an_event_of_its_own() -> None:
    [line] = lines(transaction_restarted((FILE, 200), Gtid.parse(GTID), 3, "the rows differ"))
    assert line["event"] == "TransactionRestarted"
    assert (line["gtid"], line["rows"], line["reason"]) == (GTID, 3, "the rows differ")
    assert (line["file"], line["position"]) == (FILE, 200)


def test_many_tables_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest first: after the third table the first is new again."""
    monkeypatch.setattr("replica.render.json_lines._TABLES_BYTES", 2000)
    objects = EventObjects()
    tables = [replace(table(column(name)), name=name) for name in ("a", "b", "c")]
    told = [len(list(objects.of(table_map(tables[number])))) for number in (0, 1, 0, 2, 1, 2, 0)]
    assert told == [1, 1, 0, 1, 0, 0, 1]


def test_text_that_is_not_valid() -> None:
    """Strict readers refuse lone surrogates: U+FFFD stands for the bytes, which come by path at the end."""
    line = json_line({"sql": "x\udcff\udce4", "after": {"a\udcff": ["\ud83d", "é"]}, "none": None})
    text = line.decode("utf-8")
    assert is_characters(text)
    assert "\\ud" not in text
    assert json.loads(line) == {
        "sql": "x\ufffd\ufffd",
        "after": {"a\ufffd": ["\ufffd", "é"]},
        "none": None,
        "invalid_text": {"/sql": {"base64": "eP/k"}, "/after/a\ufffd/0": {"base64": "7aC9"}},
    }
    assert "invalid_text" not in json.loads(json_line({"sql": "é", "nan": float("nan")}))


SHAPE = Shape(
    (ColumnShape("id", "int", unsigned=True, nullable=False), ColumnShape("e", "enum", labels=("a",)))
)
COMMON = {"ts": TIME, "server_id": 97, "gtid": None, "file": FILE, "position": 4}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            SchemaChangeEvent(header(), FILE, 4, "shop", "orders", None, SHAPE, "CREATE TABLE ..."),
            {
                "event": "SchemaChangeEvent",
                "schema": "shop",
                "table": "orders",
                "before": None,
                "after": {
                    "columns": [
                        {"name": "id", "type": "int unsigned", "nullable": False, "charset": None},
                        {"name": "e", "type": "enum('a')", "nullable": True, "charset": None},
                    ],
                    "primary_key": [],
                },
                "sql": "CREATE TABLE ...",
                "renamed_from": None,
                "renamed_to": None,
            },
        ),
        (
            SchemaChangeEvent(header(), FILE, 4, "shop", "orders", Unknown("lost"), None, "DROP TABLE ..."),
            {
                "event": "SchemaChangeEvent",
                "schema": "shop",
                "table": "orders",
                "before": {"reason": "lost"},
                "after": None,
                "sql": "DROP TABLE ...",
                "renamed_from": None,
                "renamed_to": None,
            },
        ),
        (
            SnapshotCompleteEvent(header(), FILE, 4, ORDERS, 7),
            {
                "event": "SnapshotCompleteEvent",
                "schema": "shop",
                "table": "orders",
                "rows": 7,
                "is_dropped": False,
            },
        ),
        (
            SnapshotRestartedEvent(header(), FILE, 4, ORDERS),
            {"event": "SnapshotRestartedEvent", "schema": "shop", "table": "orders"},
        ),
    ],
)
def test_events_that_are_not_in_the_log(event: Event, expected: dict[str, Any]) -> None:
    assert lines(event) == [COMMON | expected]
    assert yaml.safe_load(written(YamlRenderer, event)) == COMMON | expected


def test_void_rows_are_told_among_changes() -> None:
    text = written(
        lambda output: JsonRenderer(output, changes_only=True),
        SnapshotCompleteEvent(header(), FILE, 4, ORDERS, 7),
        SnapshotRestartedEvent(header(), FILE, 4, ORDERS),
    )
    assert [json.loads(line)["event"] for line in text.splitlines()] == ["SnapshotRestartedEvent"]


def test_the_end_of_a_copy_is_of_no_transaction() -> None:
    """It had the GTID of the transaction before it."""
    events: list[Event] = [
        gtid(),
        xid(),
        SnapshotCompleteEvent(header(), FILE, 4, ORDERS, 7),
        gtid(),
        xid(),
        SnapshotRestartedEvent(header(), FILE, 4, ORDERS),
    ]
    found = [json.loads(line) for line in written(JsonRenderer, *events).splitlines()]
    assert [one["gtid"] is None for one in found] == [False, False, True] * 2
