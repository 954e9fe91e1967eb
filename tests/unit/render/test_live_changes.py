"""Row changes as text for people: values, line lengths, transaction lines, and no control characters."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol.binlog.events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    Event,
    IncidentEvent,
    MariadbGtidEvent,
    RowsQueryEvent,
    XaPrepareEvent,
)
from protocol.constants import EventFlag, EventType
from protocol.gtid import MariadbGtid
from protocol.rows.column import ABSENT
from protocol.values.jsonb import JsonValue
from protocol.values.jsonb_diff import JsonDiff
from replica.render.change_text import change_fields, value_text
from replica.render.json_values import JsonChanges, JsonDocument
from replica.render.live_changes import MOST_LINES, ChangeRenderer
from replica.statistics.layout import Line, Span, cell_width, cut, fill, line_width, printable
from replica.transactions.replay import transaction_restarted
from replica.transactions.snapshot_events import SnapshotRestartedEvent
from tests.support.rendered_events import (
    FILE,
    GTID,
    column,
    deletes,
    gtid,
    header,
    inserts,
    query,
    table,
    updates,
    xid,
)

ORDERS = table(column("id"), column("status"), column("total"), key=["id"])
DOCUMENTS = table(column("id"), column("details"), key=["id"])
HEAD = f"2023-11-14 22:13:20  {GTID}  {FILE}:126"
TEXT = st.text(st.characters(codec="utf-8"))


def lines_of(*events: Event, width: int | None = 80) -> list[Line]:
    lines: list[Line] = []
    renderer = ChangeRenderer(lines.append, lambda: width)
    for event in events:
        renderer.render(b"", event.position, event)
    renderer.finish()
    assert width is None or all(line_width(line) <= width for line in lines)
    return lines


def shown(*events: Event, width: int | None = 80) -> list[str]:
    return ["".join(span.text for span in line) for line in lines_of(*events, width=width)]


# ---------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (-5, "-5"),
        (1.5, "1.5"),
        (Decimal("1E+2"), "100"),
        (Decimal("1.50"), "1.50"),
        ("it's", "'it''s'"),
        ("a\nb\t\x1b[31m\x9b\u202e", r"'a\nb\t\x1b[31m\x9b\u202e'"),
        ("\udcff", r"'\udcff'"),
        ("👩\u200d🚀", "'👩\u200d🚀'"),
        (b"\x00\xff", "0x00ff"),
        (b"", "''"),
        (date(2026, 1, 2), "'2026-01-02'"),
        (datetime(2026, 1, 2, 3, 4, 5), "'2026-01-02 03:04:05'"),
        (datetime(2026, 1, 2, 3, 4, 50, 120_000), "'2026-01-02 03:04:50.12'"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "'2026-01-02 03:04:05Z'"),
        (timedelta(hours=-1), "'-01:00:00'"),
        (array("f", [1.5, -2.0]), "[1.5, -2.0]"),
        (JsonDocument(None), "null"),
        (JsonDocument({"a": [1, Decimal("2.50"), "ü\x1b"]}), r'{"a": [1, 2.50, "ü\u001b"]}'),
        (JsonChanges((JsonDiff("remove", "$.a", b""),)), "remove $.a"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert value_text(value) == text


@pytest.mark.parametrize("value", ["x" * 10**6, b"x" * 10**6, array("f", [1.0]) * 10**6])
def test_long_values_are_not_made_whole(value: object) -> None:
    assert len(value_text(value)) < 5000


def test_a_file_name_that_a_terminal_would_obey() -> None:
    event = query("CREATE TABLE t (a INT)")
    event.file = "bin\x1b[2J.000001"
    assert shown(event)[0].endswith(r"bin\x1b[2J.000001:" + str(event.position))


@given(TEXT)
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert all(one.isprintable() or one == "\u200d" for one in printable(text))
    assert printable(text) == text or not text.isprintable()


@given(TEXT, st.integers(1, 40))
def test_what_is_cut_fits(text: str, width: int) -> None:
    found = cut(printable(text), width)
    assert cell_width(found) <= width
    assert found == printable(text) or found.endswith("…")


@pytest.mark.parametrize(
    ("text", "cells"),
    [("plain", 5), ("Łukasz", 6), ("佐藤", 4), ("e\u0301", 1), ("｡ﾊﾛ", 3), ("→…", 2), ("👍", 2)],
)
def test_wide_characters_take_two_cells_and_combining_ones_none(text: str, cells: int) -> None:
    assert cell_width(text) == cells


# ---------------------------------------------------------------------------------------------------- fields


def fields_of(*events: Event) -> list[str]:
    found: Iterator[str] = (
        "".join(span.text for span in field.spans(None))
        for event in events
        for change in event.changes()  # type: ignore[attr-defined]
        for field in change_fields(change)
    )
    return list(found)


def test_an_update_is_its_key_and_what_has_changed() -> None:
    event = updates(ORDERS, ((1, "new", None), (1, "paid", None)))
    assert fields_of(event) == ["id=1", "status='new' -> 'paid'"]
    assert fields_of(updates(ORDERS, ((1, "new", 5), (2, "new", 5)))) == ["id=1 -> 2"]
    assert fields_of(updates(ORDERS, ((1, "new", 5), (1, "new", 5)))) == ["id=1"]
    without_key = table(column("id"), column("status"))
    assert fields_of(updates(without_key, ((1, "new"), (1, None)))) == ["id=1", "status='new' -> NULL"]


def test_a_short_image_before_says_the_key_only() -> None:
    event = updates(ORDERS, ((1, ABSENT, ABSENT), (ABSENT, "paid", ABSENT)))
    assert fields_of(event) == ["id=1", "status -> 'paid'"]


def test_of_documents_the_paths_that_differ() -> None:
    before: dict[str, JsonValue] = {
        "same": 1,
        "to": {"city": "Oslo", "a b": True},
        "list": [1, 2],
        "gone": "x",
        "kind": 1,
    }
    after: dict[str, JsonValue] = {
        "same": 1,
        "to": {"city": "Bergen", "a b": True},
        "list": [1, 3, 4],
        "new": None,
        "kind": True,
    }
    event = updates(DOCUMENTS, ((1, JsonDocument(before)), (1, JsonDocument(after))))
    assert fields_of(event) == [
        "id=1",
        'details.to.city="Oslo" -> "Bergen"',
        "details.list[1]=2 -> 3",
        "details.list[2]=(none) -> 4",
        'details.gone="x" -> (none)',
        "details.kind=1 -> true",
        "details.new=(none) -> null",
    ]
    odd = updates(DOCUMENTS, ((1, JsonDocument({"a b": 1})), (1, JsonDocument({"a b": 2}))))
    assert fields_of(odd)[1] == 'details."a b"=1 -> 2'
    assert fields_of(updates(DOCUMENTS, ((1, JsonDocument([1])), (1, None))))[1] == "details=[1] -> NULL"


@pytest.mark.parametrize("width", [1, 5, 9, 20, 21, 40, 71, 200])
@pytest.mark.parametrize(
    ("before", "after"),
    [("a" * 300, "b"), ("a", "b" * 300), ("a" * 300, "b" * 300), ("佐" * 50, "藤" * 50), ("a", "b")],
)
def test_both_sides_of_a_change_get_room(before: str, after: str, width: int) -> None:
    [field] = list(change_fields(next(updates(table(column("id")), ((before,), (after,))).changes())))
    line = field.spans(width)
    # The column's name, sign and arrow are not shortened.
    assert line_width(line) <= max(width, 10)
    if width >= 20:
        texts = [span.text for span in line]
        assert texts[2].startswith("'" + before[0])
        assert texts[4].startswith("'" + after[0])
        assert (
            line_width(line) == min(width, cell_width(f"id='{before}' -> '{after}'")) or not before.isascii()
        )


# ----------------------------------------------------------------------------------------------------- lines


def test_a_transaction() -> None:
    assert shown(
        gtid(),
        query("BEGIN"),
        inserts(ORDERS, (1, "new", Decimal("1.50"))),
        updates(ORDERS, ((1, "new", None), (1, "paid", None))),
        deletes(ORDERS, (1, "paid", None)),
        xid(),
    ) == [
        HEAD,
        "  insert shop.orders  id=1  status='new'  total=1.50",
        "  update shop.orders  id=1  status='new' -> 'paid'",
        "  delete shop.orders  id=1  status='paid'  total=NULL",
    ]


def test_one_of_which_nothing_is_wanted_is_not_shown() -> None:
    assert shown(gtid(), query("BEGIN"), xid(), gtid(), query("BEGIN"), query("COMMIT")) == []


def test_without_gtids_the_place_says_which_one_it_is() -> None:
    anonymous = AnonymousGtidEvent(header(EventType.ANONYMOUS_GTID), FILE, 126, 0)
    mariadb = MariadbGtidEvent(header(EventType.MARIADB_GTID), FILE, 126, MariadbGtid(0, 11, 5), 0)
    row = inserts(table(column("id")), (1,))
    assert shown(anonymous, query("BEGIN"), row, xid())[0] == f"2023-11-14 22:13:20  {FILE}:126"
    # MySQL 5.6 without GTIDs, and a log that begins within a transaction.
    assert shown(query("BEGIN"), row, xid())[0] == f"2023-11-14 22:13:20  {FILE}:200"
    assert shown(row)[0] == f"2023-11-14 22:13:20  {FILE}:300"
    assert shown(mariadb, row, xid())[0] == f"2023-11-14 22:13:20  0-11-5  {FILE}:126"


def test_a_place_that_does_not_fit_is_left_out() -> None:
    events = (gtid(), query("BEGIN"), inserts(ORDERS, (1, "new", 5)), xid())
    assert shown(*events, width=70)[0] == HEAD.removesuffix(f"  {FILE}:126")
    assert shown(*events, width=50)[0] == GTID
    assert shown(*events, width=None)[0] == HEAD


def test_columns_that_do_not_fit_go_on_below() -> None:
    wide = table(*(column(f"column_{number}") for number in range(9)))
    found = shown(inserts(wide, tuple("x" * 12 for _ in range(9))))
    assert found[1].startswith("  insert shop.orders  column_0='xxxxxxxxxxxx'")
    assert all(line.startswith("         column_") for line in found[2:])
    assert "".join(found).count("column_") == 9
    assert len(shown(inserts(wide, tuple("x" * 12 for _ in range(9))), width=None)) == 2


def test_a_row_takes_so_many_lines_and_no_more() -> None:
    wide = table(*(column(f"column_{number}") for number in range(200)))
    found = shown(inserts(wide, tuple(range(200))))
    assert len(found) == 1 + MOST_LINES
    assert found[-1].split() == ["...", str(int(found[-1].split()[1])), "more", "lines"]
    unlimited = shown(inserts(wide, tuple(range(200))), width=None)
    assert unlimited[1].count("column_") == 200


def test_statements() -> None:
    ddl = query("ALTER TABLE orders\n  ADD COLUMN note VARCHAR(80)", "shop")
    assert shown(gtid(), ddl) == [
        HEAD,
        "  sql    use shop; ALTER TABLE orders ADD COLUMN note VARCHAR(80)",
    ]
    ddl.header = header(EventType.QUERY, flags=EventFlag.SUPPRESS_USE)
    assert shown(ddl)[1] == "  sql    ALTER TABLE orders ADD COLUMN note VARCHAR(80)"
    assert len(shown(query("CREATE TABLE t (" + "a INT, " * 500 + ")"))) == 1 + MOST_LINES
    assert shown(query("DROP TABLE \x1b[2J"))[1] == r"  sql    DROP TABLE \x1b[2J"
    assert len(shown(query("SELECT '" + "x" * 500 + "'"))[-1]) == 80


def test_what_the_rows_come_from() -> None:
    rows_query = RowsQueryEvent(header(EventType.ROWS_QUERY), FILE, 250, "UPDATE  orders\nSET " + "x" * 100)
    annotate = AnnotateRowsEvent(header(EventType.MARIADB_ANNOTATE_ROWS), FILE, 250, "DELETE FROM t")
    found = shown(gtid(), query("BEGIN"), rows_query, inserts(ORDERS, (1, "new", 5)), xid())
    assert found[1].startswith("  # UPDATE orders SET xxx")
    assert len(found[1]) == 80
    assert shown(annotate, deletes(ORDERS, (1, 2, 3)))[1] == "  # DELETE FROM t"
    # The rows belong to tables that were not selected.
    assert shown(gtid(), query("BEGIN"), rows_query, xid()) == []
    assert not any("UPDATE" in line for line in shown(rows_query, xid(), inserts(ORDERS, (1, 2, 3))))


def test_how_a_transaction_ends() -> None:
    row = inserts(ORDERS, (1, "new", 5))
    prepare = XaPrepareEvent(header(EventType.XA_PREPARE), FILE, 400, False, 1, b"a", b"b")
    assert shown(gtid(), query("BEGIN"), row, query("ROLLBACK"))[-1] == "  rolled back"
    assert shown(gtid(), query("BEGIN"), query("ROLLBACK")) == []
    xa = (gtid(), query("XA START X'61',X'62',1"), row, query("XA END X'61',X'62',1"), prepare)
    assert shown(*xa)[0] == HEAD
    assert shown(*xa)[2:] == ["  prepared as X'61',X'62',1"]
    assert shown(query("XA COMMIT X'61',X'62',1"))[1] == "  sql    XA COMMIT X'61',X'62',1"
    prepare.one_phase = True
    assert shown(gtid(), query("BEGIN"), row, prepare)[-1] == "  committed as X'61',X'62',1"
    restarted = transaction_restarted((FILE, 4), None, 1, "the rows differ")
    found = shown(gtid(), query("BEGIN"), row, restarted, gtid(), query("BEGIN"), row, xid())
    assert found.count(HEAD) == 2
    assert "comes again" in found[2]
    incident = IncidentEvent(header(EventType.INCIDENT), FILE, 400, 1, "disk full")
    assert shown(incident)[-1] == "  the source reports that events are missing from its log: disk full"


def test_roles_are_there_to_be_coloured() -> None:
    [_, line] = lines_of(query("BEGIN"), updates(ORDERS, ((1, None, 1), (1, "paid", 1))), xid())
    assert [(span.text, span.role) for span in line if span.role] == [
        ("update", "update"),
        ("shop.orders", "table"),
        ("id", "name"),
        ("status", "name"),
        ("NULL", "null"),
        ("'paid'", "after"),
    ]


@example([1, 24], 5, 6, 31)
@given(st.lists(st.integers(1, 30), max_size=30), st.integers(0, 20), st.integers(0, 10), st.integers(31, 60))
def test_filled_lines_hold_all_and_fit(sizes: list[int], head: int, indent: int, width: int) -> None:
    items = [[Span("x" * min(size, width - indent))] for size in sizes]
    lines = list(fill([Span("h" * head)], items, "  ", indent, width))
    assert all(line_width(line) <= width for line in lines)
    text = "".join(span.text for line in lines for span in line)
    assert text.count("x") == sum(line_width(item) for item in items)


def test_a_copy_that_begins_anew() -> None:
    """Nothing said that the rows above are void, and the table was there twice."""
    [line] = lines_of(SnapshotRestartedEvent(header(), FILE, 4, ORDERS))
    assert (
        "".join(span.text for span in line)
        == "  the copy of shop.orders begins anew: its rows so far are void"
    )
    assert line[-1].role == "warning"
