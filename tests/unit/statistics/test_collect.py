"""LogStatistics counts tables, transactions and their ends, minutes, statements and lag."""

from __future__ import annotations

import copy
import io
import json
from collections import Counter
from typing import Any

import pytest

import replica
from protocol.binlog.events import Event, EventHeader, IncidentEvent, RowsEvent, WriteRowsEvent
from protocol.rows.table import Table
from replica.statistics.collect import LogStatistics
from replica.statistics.summaries import KEPT, shown_statement
from tests.support.grouped_events import (
    AT,
    BEGIN,
    COMMIT,
    NEXT_FILE,
    ROLLBACK,
    TABLE,
    TABLE_MAP,
    UUID,
    XID,
    anonymous,
    deletes,
    description,
    gtid,
    mariadb_gtid,
    query,
    restarted,
    rows,
    transaction,
    updates,
    xa_prepare,
)
from tests.support.log_builder import LogBuilder, numbered_log
from tests.support.places import CORPUS, corpus_index

SECOND = 1_700_000_000
MICROSECOND = SECOND * 1_000_000


def at(event: Any, time: int, size: int = 50) -> Any:
    """A copy of the event with another time and size: the events of ``grouped_events`` are shared."""
    other = copy.copy(event)
    header = event.header
    other.header = EventHeader(time, header.type, header.server_id, size, header.next_position, header.flags)
    return other


def statistics_of(*events: Event) -> LogStatistics:
    statistics = LogStatistics()
    statistics.add_all(events)
    return statistics


def committed(sequence: int, *content: Event) -> list[Event]:
    return [gtid(sequence), BEGIN, *content, XID]


def test_an_empty_log() -> None:
    statistics = statistics_of()
    assert (statistics.transactions, statistics.events, statistics.bytes) == (0, 0, 0)
    assert (statistics.first_time, statistics.last_time) == (None, None)
    assert (statistics.tables, statistics.minutes, statistics.longest) == ([], [], [])
    assert json.loads(json.dumps(statistics.to_dict()))["lag"] is None


def test_changes_by_table_and_operation() -> None:
    other = Table("shop", "customers", TABLE.columns)
    of_other = WriteRowsEvent(*AT, 8, other, 1, b"", [(1,), (2,)])
    statistics = statistics_of(
        *committed(1, TABLE_MAP, rows(1, 2, 3), updates(1), deletes(2, 3)),
        *committed(2, TABLE_MAP, of_other, TABLE_MAP, rows(4)),
    )
    [orders, customers] = statistics.tables
    assert (str(orders), orders.inserts, orders.updates, orders.deletes) == ("shop.orders", 4, 1, 2)
    assert (orders.total, orders.events, orders.bytes, orders.transactions) == (7, 4, 200, 2)
    assert (str(customers), customers.total, customers.transactions) == ("shop.customers", 2, 1)
    assert (statistics.rows.inserts, statistics.rows.total) == (6, 9)
    assert (statistics.transactions, statistics.with_rows) == (2, 2)
    assert statistics.bytes == 50 * statistics.events == 50 * 14
    assert statistics.rows_classes == [0, 2, 0, 0, 0, 0, 0]


def test_one_table_whatever_its_table_map() -> None:
    """After DDL a table has another Table object."""
    again = Table("shop", "orders", TABLE.columns * 2)
    statistics = statistics_of(
        *committed(1, TABLE_MAP, rows(1)), *committed(2, WriteRowsEvent(*AT, 9, again, 1, b"", [(1, 1)]))
    )
    assert [(str(table), table.inserts) for table in statistics.tables] == [("shop.orders", 2)]


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        (transaction(1, 5), 1),
        ([anonymous(), BEGIN, TABLE_MAP, rows(1), XID], 1),
        ([BEGIN, TABLE_MAP, rows(1), COMMIT], 1),
        ([BEGIN, TABLE_MAP, rows(1), ROLLBACK], 1),
        ([mariadb_gtid(1, flags=4), TABLE_MAP, rows(1), XID], 1),
        ([gtid(1), query("XA START X'71',X'62',7"), TABLE_MAP, rows(1), xa_prepare()], 1),
        # The log begins within a transaction, with this table map.
        ([TABLE_MAP, rows(1), XID, *transaction(2, 5)], 2),
    ],
)
def test_where_transactions_end(events: list[Event], ended: int) -> None:
    statistics = statistics_of(*events)
    assert (statistics.transactions, statistics.with_rows, statistics.unfinished) == (ended, ended, 0)
    assert statistics.rows.total == ended


@pytest.mark.parametrize(
    "cut", [NEXT_FILE[1:], [IncidentEvent(*AT, 1, "LOST_EVENTS")], [gtid(2), BEGIN, XID]]
)
def test_what_a_crash_has_cut_off_is_in_no_figure(cut: list[Event]) -> None:
    statistics = statistics_of(gtid(1), BEGIN, TABLE_MAP, rows(1), *cut)
    assert (statistics.unfinished, statistics.rows.total) == (1, 0)
    assert statistics.bytes == 50 * statistics.events
    statistics.add_all(transaction(3, 5))
    assert (statistics.unfinished, statistics.rows.total) == (1, 1)


def test_transactions_of_relay_logs_go_on_in_the_next_file() -> None:
    """A relay log's first and last events are the replica's own; the source's FORMAT_DESCRIPTION has position 0."""
    of_relay = [description(), NEXT_FILE[0]]
    flagged = [copy.copy(event) for event in of_relay]
    for event in flagged:
        event.header = event.header._replace(flags=0x40)
    again = copy.copy(description())
    again.header = again.header._replace(next_position=0)
    statistics = statistics_of(*transaction(1, 5)[:-1], flagged[1], flagged[0], again, rows(6), XID)
    assert (statistics.transactions, statistics.unfinished, statistics.rows.total) == (1, 0, 2)


def test_what_a_failover_makes_void_counts_once() -> None:
    statistics = statistics_of(gtid(1), BEGIN, TABLE_MAP, rows(1), restarted(1), *transaction(1, 5))
    assert (statistics.unfinished, statistics.transactions, statistics.rows.total) == (0, 1, 1)


def test_incidents() -> None:
    assert statistics_of(IncidentEvent(*AT, 1, "LOST_EVENTS")).incidents == 1


def test_event_by_event_is_the_same() -> None:
    events = [description(), *transaction(1, 5, 6), *transaction(2, 7), gtid(3), query("DROP TABLE t")]
    statistics = LogStatistics()
    for event in events:
        statistics.add(event)
    assert statistics.to_dict() == statistics_of(*events).to_dict()


def test_the_largest_and_the_longest() -> None:
    statistics = LogStatistics()
    for number in range(1, 31):
        begin = at(gtid(number), SECOND)
        many = rows(*range(number))
        end = at(XID, SECOND + number % 20, 1000 - number)
        statistics.add_all([begin, BEGIN, TABLE_MAP, many, end])
    assert [one.rows for one in statistics.most_rows] == list(range(30, 20, -1))
    assert [one.seconds for one in statistics.longest][:3] == [19, 18, 17]
    assert [one.bytes for one in statistics.most_bytes][:2] == [4 * 50 + 999, 4 * 50 + 998]
    first = statistics.most_rows[0]
    assert (first.gtid, first.tables, first.started.isoformat()) == (
        f"{UUID}:30",
        ("shop.orders",),
        "2023-11-14T22:13:20+00:00",
    )
    assert len(statistics.longest) == KEPT


def test_the_first_of_equals_is_kept() -> None:
    statistics = LogStatistics()
    for number in range(1, 21):
        statistics.add_all(committed(number, TABLE_MAP, rows(1)))
    assert [one.gtid for one in statistics.most_rows] == [f"{UUID}:{number}" for number in range(1, 11)]
    assert statistics.longest == []


def test_minutes_are_those_of_the_commits() -> None:
    statistics = statistics_of(
        *(at(event, SECOND) for event in committed(1, TABLE_MAP, rows(1, 2))),
        *(at(event, SECOND + 59) for event in committed(2, TABLE_MAP, deletes(1))[:-1]),
        at(XID, SECOND + 61),
    )
    [first, second] = statistics.minutes
    assert (first.start, first.transactions, first.inserts, first.bytes) == (SECOND - 20, 1, 2, 250)
    assert (second.start, second.transactions, second.deletes) == (SECOND + 40, 1, 1)
    assert (statistics.first_time, statistics.last_time) == (SECOND, SECOND + 61)


def test_lag_between_servers() -> None:
    statistics = LogStatistics()
    for number, seconds in enumerate((0, 2.5, 0.5, -1), 1):
        begin = gtid(number)
        begin.original_commit_timestamp = MICROSECOND
        begin.immediate_commit_timestamp = MICROSECOND + int(seconds * 1e6)
        begin.transaction_length = 300
        statistics.add_all([begin, BEGIN, XID])
    lag = statistics.lag
    # Transactions that this server committed first have no lag.
    assert (lag.count, lag.maximum, lag.last) == (3, 2.5, -1)
    assert lag.mean == pytest.approx(2 / 3)
    assert max(minute.max_lag or 0 for minute in statistics.minutes) == 2.5
    assert statistics.bytes == 4 * 300


def test_seconds_are_those_until_the_first_server_committed() -> None:
    begin = at(gtid(1), SECOND)
    begin.original_commit_timestamp = MICROSECOND + 7_200_000
    begin.immediate_commit_timestamp = MICROSECOND + 90_000_000
    statistics = statistics_of(begin, BEGIN, TABLE_MAP, rows(1), XID)
    assert [one.seconds for one in statistics.longest] == [7]


def test_a_time_stamp_that_is_none_is_left() -> None:
    begin = gtid(1)
    begin.original_commit_timestamp = begin.immediate_commit_timestamp = 1 << 62
    assert statistics_of(begin, BEGIN, XID).last_time == SECOND


def test_statements() -> None:
    slow = query("/* why */ alter table t add b int")
    slow.exec_time = 30
    statistics = statistics_of(
        *(gtid(1), query("CREATE TABLE t (a INT)")),
        *(gtid(2), slow),
        *(gtid(3), BEGIN, query("SAVEPOINT a"), query("insert into t values (1)"), XID),
    )
    assert statistics.statements == {"CREATE TABLE": 1, "ALTER TABLE": 1, "INSERT": 1}
    assert [one.sql for one in statistics.ddl] == [
        "CREATE TABLE t (a INT)",
        "/* why */ alter table t add b int",
    ]
    assert statistics.ddl[1].seconds == 30
    assert [one.seconds for one in statistics.longest] == [30]
    assert statistics.transactions == 3


@pytest.mark.parametrize(
    ("name", "sql", "shown"),
    [
        ("CREATE USER", "CREATE USER 'a' IDENTIFIED WITH 'x' AS '*94BD'", "CREATE USER 'a' IDENTIFIED …"),
        ("SET", "SET PASSWORD FOR a='*94BD'", "SET PASSWORD …"),
        ("CREATE TABLE", "CREATE TABLE t (password INT)", "CREATE TABLE t (password INT)"),
        (
            "CREATE TABLE",
            "CREATE TABLE t (a INT) CONNECTION='mysql://u:p@h'",
            "CREATE TABLE t (a INT) CONNECTION= …",
        ),
        ("DROP TABLE", "DROP\n  TABLE\tt", "DROP TABLE t"),
        ("DROP TABLE", "DROP TABLE " + "t" * 300, "DROP TABLE " + "t" * 188 + "…"),
    ],
)
def test_no_password_is_shown(name: str, sql: str, shown: str) -> None:
    assert shown_statement(name, sql) == shown


def test_a_live_stream_that_is_behind() -> None:
    statistics = statistics_of(*transaction(1, 5))
    statistics.add_behind(3.0, SECOND)
    statistics.add_behind(1.0, SECOND + 1)
    assert (statistics.seconds_behind.maximum, statistics.seconds_behind.last) == (3.0, 1.0)
    assert statistics.minutes[0].max_lag == 3.0


def test_servers_versions_files_and_types() -> None:
    statistics = statistics_of(description(), *transaction(1, 5), *NEXT_FILE, *transaction(2, 5))
    assert (statistics.servers, statistics.versions) == ({1: 2}, ["9.7.4"])
    assert statistics.files == ["binlog.000001"]
    assert sum(statistics.event_types.values()) == statistics.events == 14


def test_compressed_transactions_have_the_size_that_they_take() -> None:
    builder = LogBuilder()
    builder.compressed_transaction([1, 2, 3], sequence=1)
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(builder.data), row_values=False) as log:
        statistics.add_all(log)
    assert (statistics.transactions, statistics.rows.total) == (1, 3)
    assert statistics.tables[0].events == 1


@pytest.mark.thorough
@pytest.mark.skipif(not corpus_index(), reason="the corpus is not there")
def test_every_file_of_the_corpus() -> None:
    """The counts of rows equal those of reading, unless a transaction was cut off; bytes equal the file's size."""
    compared = 0
    for path in (CORPUS / record["file"] for record in corpus_index()):
        counts: Counter[str] = Counter()
        statistics = LogStatistics()
        try:
            with replica.open_binlog(path) as log:
                for event in log:
                    if isinstance(event, RowsEvent):
                        counts[str(event.table)] += len(event.rows)  # type: ignore[attr-defined]
            with replica.open_binlog(path, row_values=False) as log:
                statistics.add_all(log)
        except replica.ReplicaError:
            continue
        if statistics.unfinished or statistics.in_transaction:
            assert statistics.rows.total <= counts.total()
            continue
        assert {str(table): table.total for table in statistics.tables} == +counts, path
        json.dumps(statistics.to_dict())
        compared += 1
    assert compared > 100


def test_a_file_gives_all_its_bytes() -> None:
    data = numbered_log(4).data
    statistics = LogStatistics()
    with replica.open_binlog(io.BytesIO(data), row_values=False) as log:
        statistics.add_all(log)
    assert statistics.bytes == len(data) - 4
    assert statistics.rows.inserts == 4
    assert [minute.transactions for minute in statistics.minutes] == [1, 1, 1, 1]
