"""SQL statements and the lines around them. Server tests check that servers execute them as meant."""

from __future__ import annotations

import io
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest

from protocol.binlog.events import (
    Event,
    ExecuteLoadQueryEvent,
    IncidentEvent,
    IntvarEvent,
    MariadbGtidEvent,
    RandEvent,
    UserVarEvent,
    XaPrepareEvent,
)
from protocol.constants import ColumnType
from protocol.errors import SourceConfigurationError, UnsupportedEventError
from protocol.gtid import MariadbGtid
from protocol.rows.column import ABSENT, Column
from replica.render import sql_rows, sql_table
from replica.render.sql_lines import SqlRenderer
from replica.render.sql_spool import BackwardSpool
from replica.transactions.replay import transaction_restarted
from tests.support.rendered_events import (
    FILE,
    GTID,
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

ORDERS = table(column("id"), column("n"), key=["id"])
KEYLESS = table(column("a"), column("b", ColumnType.VARCHAR, 40, charset="utf8mb4"))

STRICT = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"
SETTINGS = (
    "SET NAMES utf8mb4;\n"
    f"SET @@session.time_zone='+00:00', @@session.sql_mode='{STRICT}', @@session.foreign_key_checks=1, "
    "@@session.autocommit=1;\n"
)
TRIGGERS = (
    "-- Triggers of the target would run again, and the log has the rows that they change: drop them first.\n"
)
REDO_HEAD = f"-- The changes of a binary log, to repeat them with: mysql --binary-mode\n{TRIGGERS}{SETTINGS}"
UNDO_HEAD = (
    f"-- The changes of a binary log, undone, the last first, with: mysql --binary-mode\n{TRIGGERS}{SETTINGS}"
)
PLACE = "-- binlog.000001:200 2023-11-14 22:13:20 UTC"


def sql(*events: Event, flashback: bool = False, **options: Any) -> str:
    """The SQL for the events, without the lines at its beginning."""
    text = written(
        lambda output: SqlRenderer(output, flashback=flashback, **options), format_description(), *events
    ).decode()
    head = UNDO_HEAD if flashback else REDO_HEAD
    assert text.startswith(head)
    return text.removeprefix(head)


def redone(*events: Event, **options: Any) -> str:
    """The statements of one transaction."""
    text = sql(query("BEGIN"), *events, xid(), **options)
    begin = f"{PLACE}\nSET TIMESTAMP=1700000000;\nBEGIN;\n"
    assert text.startswith(begin)
    assert text.endswith("COMMIT;\n")
    return text.removeprefix(begin).removesuffix("COMMIT;\n")


def undone(*events: Event, **options: Any) -> str:
    text = sql(query("BEGIN"), *events, xid(), flashback=True, **options)
    begin = "-- before binlog.000001:500 2023-11-14 22:13:20 UTC\nBEGIN;\n"
    assert text.startswith(begin)
    assert text.endswith("COMMIT;\n")
    return text.removeprefix(begin).removesuffix("COMMIT;\n")


# ----------------------------------------------------------------------------------------------- statements


def test_changes_are_redone_by_key() -> None:
    assert redone(
        inserts(ORDERS, (1, 10), (2, None)),
        updates(ORDERS, ((1, 10), (3, 30)), ((2, None), (2, 5))),
        deletes(ORDERS, (3, 30)),
    ) == (
        "INSERT INTO `shop`.`orders` (`id`, `n`) VALUES\n(1, 10),\n(2, NULL);\n"
        "UPDATE `shop`.`orders` SET `id` = 3, `n` = 30 WHERE `id` = 1 LIMIT 1;\n"
        "UPDATE `shop`.`orders` SET `id` = 2, `n` = 5 WHERE `id` = 2 LIMIT 1;\n"
        "DELETE FROM `shop`.`orders` WHERE `id` = 3 LIMIT 1;\n"
    )


def test_changes_are_undone_backwards() -> None:
    assert undone(
        inserts(ORDERS, (1, 10), (2, None)),
        updates(ORDERS, ((1, 10), (3, 30)), ((2, None), (2, 5))),
        deletes(ORDERS, (3, 30), (4, 40)),
    ) == (
        "INSERT INTO `shop`.`orders` (`id`, `n`) VALUES\n(4, 40),\n(3, 30);\n"
        "UPDATE `shop`.`orders` SET `id` = 2, `n` = NULL WHERE `id` = 2 LIMIT 1;\n"
        "UPDATE `shop`.`orders` SET `id` = 1, `n` = 10 WHERE `id` = 3 LIMIT 1;\n"
        "DELETE FROM `shop`.`orders` WHERE `id` = 2 LIMIT 1;\n"
        "DELETE FROM `shop`.`orders` WHERE `id` = 1 LIMIT 1;\n"
    )


def test_rows_without_a_key_are_found_by_all_they_hold() -> None:
    assert redone(deletes(KEYLESS, (None, b"x"))) == (
        "DELETE FROM `shop`.`orders` WHERE `a` IS NULL AND CAST(`b` AS BINARY) = 'x' LIMIT 1;\n"
    )
    assert undone(inserts(KEYLESS, (1, b"x"))) == (
        "DELETE FROM `shop`.`orders` WHERE `a` = 1 AND CAST(`b` AS BINARY) = 'x' LIMIT 1;\n"
    )


def test_transactions_are_undone_last_first() -> None:
    text = sql(
        *(query("BEGIN"), inserts(ORDERS, (1, 1)), xid()),
        *(gtid(), query("BEGIN"), inserts(ORDERS, (2, 2)), query("COMMIT")),
        flashback=True,
    )
    assert [line for line in text.splitlines() if not line.startswith("--")] == [
        "BEGIN;",
        "DELETE FROM `shop`.`orders` WHERE `id` = 2 LIMIT 1;",
        "COMMIT;",
        "BEGIN;",
        "DELETE FROM `shop`.`orders` WHERE `id` = 1 LIMIT 1;",
        "COMMIT;",
    ]
    assert f"-- before binlog.000001:200 2023-11-14 22:13:20 UTC {GTID}\n" in text


def test_a_lot_of_rows_are_several_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_table, "_MAX_INSERTED", 2)
    rows = [(number, 0) for number in range(5)]
    assert redone(inserts(ORDERS, *rows)).count("INSERT") == 3
    monkeypatch.setattr(sql_table, "_MAX_INSERT_SIZE", 1)
    assert redone(inserts(ORDERS, *rows)).count("INSERT") == 5
    assert redone(inserts(ORDERS)) == ""


def test_names_are_quoted() -> None:
    odd = table(column("a`b\n"), column("%s{0}"))
    assert redone(deletes(odd, (1, 2))) == (
        "DELETE FROM `shop`.`orders` WHERE `a``b\n` = 1 AND `%s{0}` = 2 LIMIT 1;\n"
    )


def test_generated_and_hidden_columns_are_not_written() -> None:
    of = table(column("id"), column("g"), column("!hidden!i!0!0"))
    generated = {"shop.orders": {"g"}, "shop.other": {"id"}}
    assert redone(inserts(of, (1, 2, 3)), generated=generated) == (
        "INSERT INTO `shop`.`orders` (`id`) VALUES\n(1);\n"
    )
    assert redone(updates(of, ((1, 2, 3), (4, 5, 6))), generated=generated) == (
        "UPDATE `shop`.`orders` SET `id` = 4 WHERE `id` = 1 AND `g` = 2 LIMIT 1;\n"
    )
    # MariaDB puts hidden hash columns of unique keys over long columns after all others.
    of = table(column("DB_ROW_HASH_9"), column("id"), column("DB_ROW_HASH_1"), column("DB_ROW_HASH_2"))
    assert undone(inserts(of, (1, 2, 3, 4))) == (
        "DELETE FROM `shop`.`orders` WHERE `DB_ROW_HASH_9` = 1 AND `id` = 2 LIMIT 1;\n"
    )


def test_sequences_go_forward_only() -> None:
    """No statement deletes the one row of a MariaDB sequence; an INSERT replaces it."""
    names = ["next_not_cached_value", "minimum_value", "maximum_value", "start_value"]
    names += ["increment", "cache_size", "cycle_option", "cycle_count"]
    step = inserts(table(*map(column, names)), (1001, 1, 99, 1, 1, 1000, 0, 0))
    assert redone(step).startswith("INSERT INTO `shop`.`orders` (`next_not_cached_value`, ")
    assert sql(query("BEGIN"), step, xid(), flashback=True) == ""


def test_incomplete_images_are_redone() -> None:
    assert redone(
        inserts(ORDERS, (1, ABSENT)),
        updates(ORDERS, ((1, ABSENT), (ABSENT, 5))),
        deletes(ORDERS, (1, ABSENT)),
    ) == (
        "INSERT INTO `shop`.`orders` (`id`) VALUES\n(1);\n"
        "UPDATE `shop`.`orders` SET `n` = 5 WHERE `id` = 1 LIMIT 1;\n"
        "DELETE FROM `shop`.`orders` WHERE `id` = 1 LIMIT 1;\n"
    )
    assert redone(updates(ORDERS, ((1, ABSENT), (ABSENT, ABSENT)))) == ""


@pytest.mark.parametrize(
    "event",
    [
        updates(ORDERS, ((1, ABSENT), (ABSENT, 5))),
        deletes(ORDERS, (1, ABSENT)),
        inserts(KEYLESS, (1, ABSENT)),
        inserts(ORDERS, (ABSENT, 5)),
    ],
)
def test_incomplete_images_are_not_undone(event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match="binlog_row_image=FULL") as caught:
        undone(event)
    assert (caught.value.file, caught.value.position) == (FILE, 300)


def test_what_is_needed_of_an_incomplete_image_is_there() -> None:
    assert undone(inserts(ORDERS, (1, ABSENT))) == "DELETE FROM `shop`.`orders` WHERE `id` = 1 LIMIT 1;\n"
    assert undone(updates(ORDERS, ((1, 4), (ABSENT, 5)))) == (
        "UPDATE `shop`.`orders` SET `id` = 1, `n` = 4 WHERE `id` = 1 LIMIT 1;\n"
    )


@pytest.mark.parametrize("flashback", [False, True])
def test_names_are_needed(flashback: bool) -> None:
    nameless = table(column("@1"), names_from=None)
    with pytest.raises(SourceConfigurationError, match=r"binlog_row_metadata=FULL.*--schema"):
        sql(inserts(nameless, (1,)), flashback=flashback, on_unsupported="skip")


LENIENT = "SET @@session.sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES';\n"


@pytest.mark.parametrize(
    ("of", "value", "is_lenient"),
    [
        (column("c", ColumnType.ENUM, 1, labels=("a",)), 0, True),
        (column("c", ColumnType.ENUM, 1, labels=("a",)), 1, False),
        (column("c", ColumnType.ENUM, 1, labels=("a",)), None, False),
        (column("c", ColumnType.FLOAT, 4), 1e6, True),
        (column("c", ColumnType.FLOAT, 4), -9.999999680285692e37, True),
        (column("c", ColumnType.DOUBLE, 8), 1e16, True),
        (column("c", ColumnType.DOUBLE, 8), 1.5, False),
        (column("c"), 0, False),
    ],
)
def test_values_that_strict_modes_refuse(of: Column, value: object, is_lenient: bool) -> None:
    of_table = table(column("id"), of, key=["id"])
    for event in (inserts(of_table, (1, value)), updates(of_table, ((1, None), (1, value)))):
        for text in (redone(event), undone(event)):
            assert text.startswith(LENIENT) == is_lenient
            assert text.endswith(f"SET @@session.sql_mode='{STRICT}';\n") == is_lenient


def test_foreign_keys_are_checked_where_they_were() -> None:
    expected = (
        "SET @@session.foreign_key_checks=0;\n"
        "INSERT INTO `shop`.`orders` (`id`, `n`) VALUES\n(1, 2);\n"
        "SET @@session.foreign_key_checks=1;\n"
    )
    assert redone(inserts(ORDERS, (1, 2), flags=3)) == expected
    assert undone(deletes(ORDERS, (1, 2), flags=3)) == expected


# --------------------------------------------------------------------------------------- transactions, DDL


def test_empty_transactions_leave_nothing() -> None:
    events = [
        query("BEGIN"),
        xid(),
        gtid(),
        query("BEGIN"),
        query("COMMIT"),
        query("BEGIN"),
        query("ROLLBACK"),
    ]
    assert sql(*events) == ""
    assert sql(*events[:-2], flashback=True) == ""


def test_a_transaction_that_a_crash_of_the_source_has_left_open_is_rolled_back() -> None:
    text = sql(query("BEGIN"), inserts(ORDERS, (1, 1)), query("BEGIN"), inserts(ORDERS, (2, 2)), xid())
    ends = [line for line in text.splitlines() if line in ("BEGIN;", "COMMIT;", "ROLLBACK;")]
    assert ends == ["BEGIN;", "ROLLBACK;", "BEGIN;", "COMMIT;"]


def test_a_log_that_begins_or_ends_within_a_transaction() -> None:
    rows = inserts(ORDERS, (1, 1))
    text = sql(rows, xid(), query("BEGIN"), rows)
    assert text.count("BEGIN;") == 2
    assert text.endswith("-- the end of this transaction is not in the log\nROLLBACK;\n")
    assert "COMMIT;\n-- binlog.000001:200" in text
    undo = written(lambda output: SqlRenderer(output, flashback=True), rows, xid(), query("BEGIN"), rows)
    assert undo.decode().startswith(
        f"{UNDO_HEAD}-- not undone: the last transaction, because its end is not in the log\n-- before"
    )
    assert undo.count(b"DELETE") == 1


def test_a_transaction_that_a_crash_has_left_open_is_not_undone() -> None:
    rows = inserts(ORDERS, (1, 1))
    text = sql(query("BEGIN"), rows, format_description(), query("BEGIN"), rows, xid(), flashback=True)
    assert text.count("DELETE") == 1


def test_what_a_failover_cuts_off_is_rolled_back() -> None:
    rows = inserts(ORDERS, (1, 1))
    marker = transaction_restarted((FILE, 200), None, 1, "the rows differ")
    text = sql(gtid(), query("BEGIN"), rows, marker, gtid(), query("BEGIN"), rows, xid())
    assert [line for line in text.splitlines() if line in ("BEGIN;", "ROLLBACK;", "COMMIT;")] == [
        *("BEGIN;", "ROLLBACK;"),
        *("BEGIN;", "COMMIT;"),
    ]
    assert sql(gtid(), query("BEGIN"), marker) == ""


def test_a_reader_that_begins_inside_of_a_file_is_told_the_family() -> None:
    output = io.BytesIO()
    renderer = SqlRenderer(output)
    renderer.follow("11.8.6-MariaDB")
    renderer.render(b"", 0, query("CREATE TABLE t (a INT)"))
    told = output.getvalue()
    assert told == written(SqlRenderer, format_description("11.8.6-MariaDB"), query("CREATE TABLE t (a INT)"))


def test_mariadb_begins_with_the_gtid() -> None:
    group = MariadbGtidEvent(header(), FILE, 200, MariadbGtid(0, 1, 100), 12)
    text = sql(group, inserts(ORDERS, (1, 1)), xid())
    # BEGIN would begin a block if the statement before it was logged with sql_mode=ORACLE.
    assert text.startswith(f"{PLACE} 0-1-100\nSET TIMESTAMP=1700000000;\nSTART TRANSACTION;\nINSERT")
    assert "UTC 0-1-100\nBEGIN;\nDELETE" in sql(group, inserts(ORDERS, (1, 1)), xid(), flashback=True)
    prepared = MariadbGtidEvent(header(), FILE, 200, MariadbGtid(0, 1, 101), 64, xid=(1, b"g", b"b"))
    assert "\nXA START X'67',X'62',1;\nINSERT" in sql(prepared, inserts(ORDERS, (1, 1)))


def test_xa() -> None:
    start, rows, end = query("XA START X'67',X'',1"), inserts(ORDERS, (1, 1)), query("XA END X'67',X'',1")
    one_phase = XaPrepareEvent(header(), FILE, 400, True, 1, b"g", b"")
    prepared = XaPrepareEvent(header(), FILE, 400, False, 1, b"g", b"")
    assert sql(start, rows, end, one_phase).endswith(
        "XA END X'67',X'',1;\nXA COMMIT X'67',X'',1 ONE PHASE;\n"
    )
    commit = query("XA COMMIT X'67',X'',1")
    assert sql(start, rows, end, prepared, commit).endswith(
        "XA END X'67',X'',1;\nXA PREPARE X'67',X'',1;\nXA COMMIT X'67',X'',1;\n"
    )
    undo = sql(start, rows, end, one_phase, flashback=True).splitlines()
    assert [undo[1], undo[2][:6], undo[3]] == ["BEGIN;", "DELETE", "COMMIT;"]
    with pytest.raises(UnsupportedEventError, match="prepared"):
        sql(start, rows, end, prepared, flashback=True)
    forced = sql(start, rows, end, prepared, commit, flashback=True, on_unsupported="skip")
    assert "DELETE" not in forced
    assert forced.count("-- left out: ") == 2


def test_statements_bring_their_settings() -> None:
    text = sql(query("CREATE TABLE t (a INT)", "shop"), query("BEGIN"), inserts(ORDERS, (1, 1)), xid())
    statement, _, rows = text.partition("CREATE TABLE t (a INT);\n")
    assert statement.startswith(f"{PLACE}\nuse `shop`;\nSET TIMESTAMP=1700000000;\n")
    assert rows == (
        f"{PLACE}\nBEGIN;\n{SETTINGS}INSERT INTO `shop`.`orders` (`id`, `n`) VALUES\n(1, 1);\nCOMMIT;\n"
    )


def test_a_statement_keeps_its_bytes() -> None:
    output = io.BytesIO()
    renderer = SqlRenderer(output)
    renderer.render(b"raw", 4, query("INSERT INTO t VALUES ('\udce4')"))
    assert b"INSERT INTO t VALUES ('\xe4');\n" in output.getvalue()


@pytest.mark.parametrize(
    "statement", ["CREATE PROCEDURE t BEGIN SET @a = 1; END", "DROP TABLE t -- why", "DROP TABLE t #"]
)
def test_a_statement_ends_where_it_should(statement: str) -> None:
    assert sql(query(statement)).endswith(f"DELIMITER /*!*/;\n{statement}\n/*!*/;\nDELIMITER ;\n")


def test_create_table_as_select() -> None:
    text = redone(query("CREATE TABLE `t` (\n  `a` int\n) START TRANSACTION"), inserts(ORDERS, (1, 1)))
    assert "CREATE TABLE `t` (\n  `a` int\n);\nSTART TRANSACTION;\nSET NAMES" in text


def test_variables_of_a_statement() -> None:
    variables = [
        IntvarEvent(header(), FILE, 1, 2, 5),
        IntvarEvent(header(), FILE, 1, 1, 6),
        RandEvent(header(), FILE, 1, 7, 8),
        UserVarEvent(header(), FILE, 1, "a`b", b"\xe4", 0, 8),
        UserVarEvent(header(), FILE, 1, "m", b"x", 0, 2304),
        UserVarEvent(header(), FILE, 1, "n", None),
        UserVarEvent(header(), FILE, 1, "f", 0.1, 1),
        UserVarEvent(header(), FILE, 1, "d", Decimal("1.50"), 4),
    ]
    text = redone(*variables, query("INSERT INTO t VALUES (@n)"))
    assert text.startswith(
        "SET INSERT_ID=5;\nSET LAST_INSERT_ID=6;\nSET @@rand_seed1=7, @@rand_seed2=8;\nSET @`a``b` := _latin1 0xE4;\n"
        "SET @`m` := _utf8mb4 0x78;\nSET @`n` := NULL;\nSET @`f` := 0.1e0;\nSET @`d` := 1.50;\n"
    )
    assert "SET @" not in sql(*variables, with_statements=False).replace("SET @@session", "")


def test_an_alter_of_two_phases_is_done_once() -> None:
    """MariaDB's binlog_alter_two_phase logs an ALTER twice: at its start, and at its commit or rollback."""
    began, committed, gave_up = (query("ALTER TABLE t ADD a INT") for _ in range(3))
    began.status_variables = b"\x82\x02"
    committed.status_variables = b"\x82\x04" + bytes(8)
    gave_up.status_variables = b"\x82\x08" + bytes(8)
    assert sql(began, committed).count("ALTER TABLE") == 1
    assert sql(began, gave_up) == sql(began, gave_up, flashback=True) == ""
    with pytest.raises(UnsupportedEventError, match="ALTER TABLE t"):
        sql(committed, flashback=True)


def test_an_error_on_the_source_is_told() -> None:
    dropped = query("DROP TABLE a, b", error_code=1051)
    assert "-- on the source this statement ended with error 1051\n" in sql(dropped)


def test_statements_are_comments_where_tables_are_filtered() -> None:
    assert sql(query("DROP TABLE\n other"), with_statements=False) == (
        "-- left out, because its tables are not known: DROP TABLE other\n"
    )


LOAD = ExecuteLoadQueryEvent(header(), FILE, 400, 1, 0, 0, "s", "LOAD DATA ...", b"", 1, 0, 1, 0)
INCIDENT = IncidentEvent(header(), FILE, 400, 1, "lost")


@pytest.mark.parametrize("event", [LOAD, INCIDENT])
@pytest.mark.parametrize("flashback", [False, True])
def test_what_no_sql_can_say(event: Event, flashback: bool) -> None:
    with pytest.raises(UnsupportedEventError, match=r"cannot be written as SQL \(binlog.000001, at 400"):
        sql(event, flashback=flashback)
    output = io.BytesIO()
    renderer = SqlRenderer(output, flashback=flashback, on_unsupported="skip")
    renderer.render(b"raw", 4, event)
    renderer.finish()
    assert renderer.left_out == 1
    assert b"-- left out: " in output.getvalue()


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE TABLE t", "ALTER TABLE t ADD a INT", "ROLLBACK", "ROLLBACK TO s", "XA COMMIT X'67',X'',1"],
)
def test_statements_that_cannot_be_undone(statement: str) -> None:
    with pytest.raises(UnsupportedEventError, match=r"--force.*binlog.000001, at 200"):
        sql(query(statement), flashback=True)


@pytest.mark.parametrize(
    "statement", ["FLUSH TABLES", "GRANT ALL ON *.* TO a", "CREATE USER a", "SAVEPOINT s", "ANALYZE TABLE t"]
)
def test_statements_with_nothing_to_undo(statement: str) -> None:
    assert sql(query(statement), flashback=True) == ""


@pytest.mark.parametrize("flashback", [False, True])
def test_the_replay_can_stay_out_of_the_log(flashback: bool) -> None:
    output = written(lambda output: SqlRenderer(output, flashback=flashback, disable_log=True))
    assert b"\nSET @@session.sql_log_bin=0;\nSET NAMES" in output


def test_many_tables_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_rows, "_TABLES_BYTES", 2000)
    tables = [table(column(name)) for name in "abcde"]
    text = redone(*(inserts(of, (1,)) for of in tables))
    assert [line[30] for line in text.splitlines() if line.startswith("INSERT")] == list("abcde")


# ----------------------------------------------------------------------------------------------------- spool


def backwards(pieces: Iterable[bytes], spool: BackwardSpool) -> bytes:
    for piece in pieces:
        spool.append(piece)
    output = io.BytesIO()
    spool.write_backwards(output)
    return output.getvalue()


def test_pieces_come_back_last_first() -> None:
    pieces = [b"%d" % number * (number % 7) for number in range(1000)]
    assert backwards(pieces, BackwardSpool()) == b"".join(reversed(pieces))
    assert backwards([], BackwardSpool()) == b""


def test_pieces_can_be_taken_back() -> None:
    spool = BackwardSpool()
    spool.append(b"a")
    size = spool.size
    spool.append(b"b" * 100_000)
    spool.truncate(size)
    assert backwards([b"c"], spool) == b"ca"
