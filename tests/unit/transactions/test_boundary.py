"""Progress: the forms that transactions have on both families, and where each of them ends."""

from __future__ import annotations

import copy
import random
import uuid

import pytest

from protocol.binlog.events import (
    AnnotateRowsEvent,
    AnonymousGtidEvent,
    Event,
    EventHeader,
    FormatDescriptionEvent,
    GtidEvent,
    IncidentEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    RowsQueryEvent,
    TableMapEvent,
    TransactionPayloadEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.gtid import Gtid, GtidSet, MariadbGtid, MariadbGtidSet
from protocol.rows.table import Table
from replica.transactions.boundary import Progress, place_behind

UUID = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
FILE = "binlog.000001"
HEADER = EventHeader(1, 0, 1, 50, 100, 0)
AT = (HEADER, FILE, 4)
TABLE = Table("shop", "orders", ())


def query(sql: str) -> QueryEvent:
    return QueryEvent(*AT, 1, 0, 0, "", sql, b"")


def gtid(sequence: int) -> GtidEvent:
    return GtidEvent(*AT, 0, gtid=Gtid(UUID, sequence))


def mariadb_gtid(sequence: int, flags: int = 0) -> MariadbGtidEvent:
    return MariadbGtidEvent(*AT, MariadbGtid(0, 1, sequence), flags)


ANONYMOUS = AnonymousGtidEvent(*AT, 0)
XID = XidEvent(*AT, 5)
TABLE_MAP = TableMapEvent(*AT, 7, 0, TABLE)
ROWS = WriteRowsEvent(*AT, 7, TABLE, 1, b"", [])
ANNOTATE = AnnotateRowsEvent(*AT, "INSERT")
XA_PREPARE = XaPrepareEvent(*AT, False, 1, b"q", b"")
BEGIN, COMMIT, ROLLBACK = query("BEGIN"), query("COMMIT"), query("ROLLBACK")

# What was recorded on MySQL 9.7, 5.6, MariaDB 10.11 and 11.8; one transaction each.
GROUPS: dict[str, list[Event]] = {
    "transaction": [gtid(5), BEGIN, TABLE_MAP, ROWS, XID],
    "anonymous": [ANONYMOUS, BEGIN, TABLE_MAP, ROWS, XID],
    "5.6 without GTIDs": [BEGIN, TABLE_MAP, ROWS, XID],
    "MyISAM": [gtid(5), BEGIN, TABLE_MAP, ROWS, COMMIT],
    "rolled back": [gtid(5), BEGIN, TABLE_MAP, ROWS, ROLLBACK],
    "savepoint": [gtid(5), BEGIN, query("SAVEPOINT `a`"), ROWS, query("ROLLBACK TO `a`"), XID],
    "with its statement": [gtid(5), BEGIN, RowsQueryEvent(*AT, "INSERT"), TABLE_MAP, ROWS, XID],
    "DDL": [gtid(5), query("CREATE TABLE t (a INT)")],
    "DDL without GTIDs": [query("CREATE TABLE t (a INT)")],
    "CREATE ... SELECT, 9.7": [
        gtid(5),
        BEGIN,
        query("CREATE TABLE t START TRANSACTION"),
        TABLE_MAP,
        ROWS,
        XID,
    ],
    "XA prepared": [gtid(5), query("XA START X'71',X'',1"), ROWS, query("XA END X'71',X'',1"), XA_PREPARE],
    "XA committed": [gtid(5), query("XA COMMIT X'71',X'',1")],
    "compressed": [gtid(5), TransactionPayloadEvent(*AT, 0, 1, b"")],
    "incident": [gtid(5), IncidentEvent(*AT, 1, "lost")],
    "MariaDB": [mariadb_gtid(5), ANNOTATE, TABLE_MAP, ROWS, XID],
    "MariaDB, Aria": [mariadb_gtid(5), TABLE_MAP, ROWS, COMMIT],
    "MariaDB DDL": [mariadb_gtid(5, 1), query("CREATE TABLE t (a INT)")],
    "MariaDB CREATE ... SELECT": [mariadb_gtid(5), query("CREATE TABLE t"), ANNOTATE, TABLE_MAP, ROWS, XID],
    "MariaDB XA prepared": [mariadb_gtid(5, 64), TABLE_MAP, ROWS, query("XA END X'71',X'',1"), XA_PREPARE],
    "MariaDB XA committed": [mariadb_gtid(5, 129), query("XA COMMIT X'71',X'',1")],
    "from the middle": [TABLE_MAP, ROWS, XID],
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_transaction_ends_with_its_last_event(name: str) -> None:
    group = GROUPS[name]
    is_mariadb = isinstance(group[0], MariadbGtidEvent)
    before = MariadbGtidSet("0-1-4") if is_mariadb else GtidSet(f"{UUID}:1-4")
    after = MariadbGtidSet("0-1-5") if is_mariadb else GtidSet(f"{UUID}:1-5")
    progress = Progress(FILE, 100, before, has_gtids=True)
    assert progress.begins(group[0])
    for position, event in enumerate(group[:-1], 101):
        assert not progress.follow(event, FILE, position)
        assert progress.in_transaction
        assert (progress.position, progress.gtid_set) == (100, before)
        assert not progress.begins(group[-1])
    assert progress.follow(group[-1], FILE, 200)
    assert not progress.in_transaction
    assert progress.position == 200
    has_gtid = isinstance(group[0], GtidEvent | MariadbGtidEvent)
    assert progress.gtid_set == (after if has_gtid else before)


def at(event: Event, number: int) -> Event:
    """The event at a place of its own."""
    moved = copy.copy(event)
    moved.position = number * 100
    return moved


@pytest.mark.parametrize("is_mariadb", [False, True])
def test_many_events_are_followed_as_one_by_one(is_mariadb: bool, seed: int) -> None:
    rng = random.Random(seed)
    names = [name for name, group in GROUPS.items() if isinstance(group[0], MariadbGtidEvent) is is_mariadb]
    for _ in range(50):
        events: list[Event] = []
        sequence = 5
        for _ in range(rng.randrange(1, 12)):
            for event in GROUPS[rng.choice(names)]:
                one = at(event, len(events))
                if isinstance(one, GtidEvent):
                    # As the fast parser leaves it, or as it is when somebody has asked for the GTID.
                    number = rng.choice((sequence, sequence + 7))
                    one.gtid_fields = rng.choice(((UUID.bytes, number), Gtid(UUID, number)))
                elif isinstance(one, MariadbGtidEvent):
                    one = at(mariadb_gtid(sequence, one.gtid_flags), len(events))
                events.append(one)
            sequence += 1
            if rng.random() < 0.3:
                events += [at(TABLE_MAP, len(events)), at(ROWS, len(events) + 1)]
        before = MariadbGtidSet("0-1-4") if is_mariadb else GtidSet(f"{UUID}:1-4")
        one_by_one, together = (Progress(FILE, 100, before, has_gtids=True) for _ in range(2))
        begin = 0
        while begin < len(events):
            batch = events[begin : begin + rng.randrange(1, 9)]
            closed = 0
            for number, event in enumerate(batch, 1):
                if one_by_one.follow(event, *place_behind(event)):
                    closed = number
            assert together.follow_all(batch) == closed
            for name in ("file", "position", "state", "open_gtid", "gtid_set", "resume_set"):
                assert getattr(together, name) == getattr(one_by_one, name), name
            begin += len(batch)


def test_the_set_that_is_given_stays_as_it_is() -> None:
    given = GtidSet(f"{UUID}:1-4")
    progress = Progress(FILE, 4, given, has_gtids=True)
    for event in GROUPS["transaction"]:
        progress.follow(event, FILE, 100)
    assert given == GtidSet(f"{UUID}:1-4")


def test_unknown_gtids_are_known_from_the_next_file_on() -> None:
    progress = Progress(FILE, 300, None, has_gtids=True)
    for event in GROUPS["transaction"]:
        progress.follow(event, FILE, 400)
    assert progress.gtid_set is None
    progress.follow(RotateEvent(*AT, "binlog.000002", 4), "binlog.000002", 4)
    progress.follow(PreviousGtidsEvent(*AT, GtidSet(f"{UUID}:1-5")), "binlog.000002", 150)
    progress.follow(gtid(6), "binlog.000002", 200)
    assert (progress.file, progress.position) == ("binlog.000002", 150)
    progress.follow(query("DROP TABLE t"), "binlog.000002", 250)
    assert progress.gtid_set == GtidSet(f"{UUID}:1-6")


def test_a_later_file_does_not_change_a_known_set() -> None:
    progress = Progress(FILE, 300, GtidSet(f"{UUID}:7"), has_gtids=True)
    progress.follow(PreviousGtidsEvent(*AT, GtidSet(f"{UUID}:1-5")), FILE, 150)
    assert progress.gtid_set == GtidSet(f"{UUID}:7")


def test_without_gtids_an_empty_list_of_them_says_nothing() -> None:
    progress = Progress(FILE, 4, None, has_gtids=False)
    progress.follow(PreviousGtidsEvent(*AT, GtidSet()), FILE, 150)
    assert progress.gtid_set is None


def test_mariadb_lists_the_last_gtids_at_the_start_of_a_file() -> None:
    progress = Progress(FILE, 4, None, has_gtids=True)
    gtids = (MariadbGtid(0, 1, 5), MariadbGtid(1, 1, 9))
    progress.follow(MariadbGtidListEvent(*AT, gtids, 0), FILE, 150)
    assert progress.gtid_set == MariadbGtidSet("0-1-5,1-1-9")


def description(next_position: int) -> FormatDescriptionEvent:
    header = HEADER._replace(next_position=next_position)
    return FormatDescriptionEvent(header, FILE, 4, 4, "9.7.4", 0, 19, b"", 1)


@pytest.mark.parametrize("event", [description(126), RotateEvent(*AT, "binlog.000002", 4)])
def test_a_new_file_ends_what_the_source_has_lost(event: Event) -> None:
    progress = Progress(FILE, 100, GtidSet(f"{UUID}:1-4"), has_gtids=True)
    for part in GROUPS["transaction"][:-1]:
        progress.follow(part, FILE, 200)
    assert progress.follow(event, "binlog.000002", 126)
    assert not progress.in_transaction
    for part in GROUPS["anonymous"]:
        progress.follow(part, "binlog.000002", 300)
    assert progress.gtid_set == GtidSet(f"{UUID}:1-4")


def test_a_description_in_the_middle_of_a_file_ends_nothing() -> None:
    progress = Progress(FILE, 100, None, has_gtids=False)
    progress.follow(BEGIN, FILE, 150)
    assert not progress.follow(description(0), FILE, 150)
    assert progress.in_transaction


def test_an_idle_source_moves_the_place_forward_only() -> None:
    progress = Progress(FILE, 100, None, has_gtids=False)
    progress.idle(FILE, 300)
    assert progress.position == 300
    progress.idle(FILE, 200)
    progress.idle("binlog.000002", 400)
    assert (progress.file, progress.position) == (FILE, 300)
    progress.follow(BEGIN, FILE, 350)
    progress.idle(FILE, 400)
    assert progress.position == 300


def test_a_set_is_no_place_to_go_on_among_transactions_without_gtids() -> None:
    """A source that is asked by the set passes over files of such transactions."""
    progress = Progress(FILE, 4, None, has_gtids=True)
    for event in GROUPS["anonymous"]:
        progress.follow(event, FILE, 100)
    progress.follow(PreviousGtidsEvent(*AT, GtidSet(f"{UUID}:1-4")), FILE, 150)
    assert (progress.resume_set, progress.copy().resume_set) == (None, None)
    for event in GROUPS["transaction"]:
        progress.follow(event, FILE, 200)
    assert progress.resume_set == GtidSet(f"{UUID}:1-5")
