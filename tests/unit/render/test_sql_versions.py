"""SQL for MariaDB's system-versioned tables. Server tests check that servers make the same history of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from protocol.binlog.events import Event
from protocol.constants import ColumnType
from protocol.errors import UnsupportedEventError
from protocol.rows.column import ABSENT
from replica.render.sql_lines import SqlRenderer
from tests.support.rendered_events import (
    column,
    deletes,
    format_description,
    inserts,
    query,
    table,
    updates,
    written,
    xid,
)


def moment(name: str) -> Any:
    return column(name, ColumnType.TIMESTAMP2, 6)


HIDDEN = table(column("id"), column("n"), moment("row_start"), moment("row_end"), key=["id", "row_end"])
KEYLESS = table(column("id"), moment("row_start"), moment("row_end"))
NAMED = table(moment("e"), column("id"), moment("s"))
T1, T2, T3 = (datetime(2026, 11, 26, 10, 0, second, 250_000 + second, tzinfo=UTC) for second in (1, 2, 3))
NEVER = datetime(2106, 2, 7, 6, 28, 15, 999999, tzinfo=UTC)
NEVER_BEFORE_11_5 = datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)
AT = {T1: "1795687201.250001", T2: "1795687202.250002", T3: "1795687203.250003"}
ORDERS = "`shop`.`orders`"


def sql(*events: Event, flashback: bool = False, version: str = "11.8.6-MariaDB-log", **options: Any) -> str:
    """The statements of one transaction."""
    text = written(
        lambda output: SqlRenderer(output, flashback=flashback, **options),
        *(format_description(version), query("BEGIN"), *events, xid()),
    ).decode()
    return text.partition("BEGIN;\n")[2].removesuffix("COMMIT;\n")


def test_an_insert_is_made_at_the_start_of_its_row() -> None:
    rows = [(1, 5, T1, NEVER), (2, 6, T1, NEVER), (3, 7, T2, NEVER_BEFORE_11_5)]
    assert sql(inserts(HIDDEN, *rows)) == (
        f"SET TIMESTAMP={AT[T1]};\nINSERT INTO {ORDERS} (`id`, `n`) VALUES\n(1, 5),\n(2, 6);\n"
        f"SET TIMESTAMP={AT[T2]};\nINSERT INTO {ORDERS} (`id`, `n`) VALUES\n(3, 7);\n"
    )


def test_the_server_makes_the_history_of_an_update() -> None:
    """Only a row of the history that no UPDATE leaves behind is inserted as such."""
    changed = updates(HIDDEN, ((1, 5, T1, NEVER), (1, 6, T2, NEVER)), flags=0)
    assert sql(changed, inserts(HIDDEN, (1, 5, T1, T2), (1, 5, T1, T2), (9, 9, T1, T3))) == (
        f"SET TIMESTAMP={AT[T2]};\nUPDATE {ORDERS} SET `id` = 1, `n` = 6 WHERE `id` = 1 LIMIT 1;\n"
        "SET @@session.system_versioning_insert_history=1;\n"
        f"INSERT INTO {ORDERS} (`id`, `n`, `row_start`, `row_end`) VALUES\n"
        "(1, 5, '2026-11-26 10:00:01.250001', '2026-11-26 10:00:02.250002'),\n"
        "(9, 9, '2026-11-26 10:00:01.250001', '2026-11-26 10:00:03.250003');\n"
        "SET @@session.system_versioning_insert_history=0;\n"
    )


def test_an_update_expects_no_history_beyond_its_statement() -> None:
    changed = updates(HIDDEN, ((1, 5, T1, NEVER), (1, 6, T2, NEVER)))
    assert "insert_history=1" in sql(changed, inserts(HIDDEN, (1, 5, T1, T2)))


def test_a_row_that_would_end_before_its_start_leaves_no_history() -> None:
    """The clock of the source was set back."""
    changed = updates(HIDDEN, ((1, 5, T2, NEVER), (1, 6, T1, NEVER)), flags=0)
    assert "insert_history=1" in sql(changed, inserts(HIDDEN, (1, 5, T2, T1)))
    assert sql(deletes(HIDDEN, (1, 6, T2, NEVER))) == (
        f"SET TIMESTAMP=1700000000.000000;\nDELETE FROM {ORDERS} WHERE `id` = 1 LIMIT 1;\n"
    )
    early = datetime(2001, 1, 1, tzinfo=UTC)
    for start in (early, ABSENT):
        assert sql(deletes(HIDDEN, (1, 6, start, NEVER))).startswith("SET TIMESTAMP=1.000000;\nDELETE")


def test_an_update_of_the_end_is_a_delete() -> None:
    assert sql(updates(HIDDEN, ((1, 5, T1, NEVER), (1, 5, T1, T3)))) == (
        f"SET TIMESTAMP={AT[T3]};\nDELETE FROM {ORDERS} WHERE `id` = 1 LIMIT 1;\n"
    )


def test_incomplete_images_are_redone() -> None:
    changed = updates(HIDDEN, ((1, ABSENT, ABSENT, NEVER), (1, 6, T2, NEVER)), flags=0)
    gone = updates(HIDDEN, ((1, ABSENT, ABSENT, NEVER), (1, 6, T2, T3)))
    assert sql(changed, inserts(HIDDEN, (1, 5, T1, T2)), gone) == (
        f"SET TIMESTAMP={AT[T2]};\nUPDATE {ORDERS} SET `id` = 1, `n` = 6 WHERE `id` = 1 LIMIT 1;\n"
        f"SET TIMESTAMP={AT[T3]};\nDELETE FROM {ORDERS} WHERE `id` = 1 LIMIT 1;\n"
    )


def test_of_equal_rows_the_one_with_the_same_start_is_changed() -> None:
    assert sql(updates(KEYLESS, ((1, T1, NEVER), (2, T2, NEVER)))) == (
        f"SET TIMESTAMP={AT[T2]};\nUPDATE {ORDERS} SET `id` = 2 WHERE `id` = 1 "
        "ORDER BY `row_start` = '2026-11-26 10:00:01.250001' DESC LIMIT 1;\n"
    )


def test_history_is_deleted_up_to_the_last_end() -> None:
    assert sql(deletes(HIDDEN, (1, 5, T1, T3), (2, 5, T1, T2))) == (
        f"DELETE HISTORY FROM {ORDERS} BEFORE SYSTEM_TIME TIMESTAMP'2026-11-26 10:00:03.250004';\n"
    )


def test_other_tables_have_the_time_of_their_event() -> None:
    orders = table(column("id"), key=["id"])
    assert sql(inserts(orders, (1,)), inserts(KEYLESS, (1, T1, NEVER)), inserts(orders, (2,))) == (
        f"INSERT INTO {ORDERS} (`id`) VALUES\n(1);\n"
        f"SET TIMESTAMP={AT[T1]};\nINSERT INTO {ORDERS} (`id`) VALUES\n(1);\n"
        f"SET TIMESTAMP=1700000000;\nINSERT INTO {ORDERS} (`id`) VALUES\n(2);\n"
    )


def test_current_rows_are_undone_and_the_history_stays() -> None:
    changed = updates(HIDDEN, ((1, 5, T1, NEVER), (1, 6, T2, NEVER)), flags=0)
    events = [
        inserts(HIDDEN, (1, 5, T1, NEVER)),
        *(changed, inserts(HIDDEN, (1, 5, T1, T2))),
        updates(HIDDEN, ((1, 6, T2, NEVER), (1, 6, T2, T3))),
    ]
    assert sql(*events, flashback=True) == (
        f"INSERT INTO {ORDERS} (`id`, `n`) VALUES\n(1, 6);\n"
        f"UPDATE {ORDERS} SET `id` = 1, `n` = 5 WHERE `id` = 1 LIMIT 1;\n"
        f"DELETE FROM {ORDERS} WHERE `id` = 1 LIMIT 1;\n"
    )
    deleted = sql(deletes(HIDDEN, (1, 5, T1, T2)), flashback=True)
    assert "insert_history=1;\nINSERT INTO `shop`.`orders` (`id`, `n`, `row_start`, `row_end`)" in deleted


def test_what_no_statement_can_do() -> None:
    with pytest.raises(UnsupportedEventError, match="take a single row out of its history"):
        sql(inserts(HIDDEN, (1, 5, T1, T2)), flashback=True)
    history = updates(HIDDEN, ((1, 5, T1, T2), (1, 6, T1, T2)))
    for flashback in (False, True):
        with pytest.raises(UnsupportedEventError, match="change a row of its history"):
            sql(history, flashback=flashback)
    numbered = table(column("id"), column("s", ColumnType.LONGLONG), column("e", ColumnType.LONGLONG))

    def render(output: Any) -> SqlRenderer:
        renderer = SqlRenderer(output)
        renderer.use_columns(None, {"shop.orders": ("s", "e")})
        return renderer

    with pytest.raises(UnsupportedEventError, match="periods of transaction numbers"):
        written(
            render, format_description("11.8.6-MariaDB-log"), query("BEGIN"), inserts(numbered, (1, 2, 3))
        )


def test_a_period_is_known_by_its_columns() -> None:
    """Of generated columns the one in the key is the end, or the one without an end in a row."""
    generated = {"shop.orders": {"s", "e"}}
    expected = f"SET TIMESTAMP={AT[T1]};\nINSERT INTO {ORDERS} (`id`) VALUES\n(1);\n"
    assert sql(inserts(NAMED, (NEVER, 1, T1)), generated=generated) == expected
    keyed = table(*NAMED.columns, key=["id", "e"])
    assert sql(inserts(keyed, (NEVER, 1, T1)), generated=generated) == expected
    # No period: another server, other types, or a key without the end.
    assert "`row_end`" in sql(inserts(HIDDEN, (1, 5, T1, NEVER)), version="9.7.4")
    dates = table(column("id"), column("row_start"), column("row_end"))
    assert "(1, 2, 3)" in sql(inserts(dates, (1, 2, 3)))
    other = table(*HIDDEN.columns, key=["id"])
    assert "`row_end`" in sql(inserts(other, (1, 5, T1, NEVER)))
    assert "(1);" in sql(inserts(NAMED, (T2, 1, T1)), generated=generated)
