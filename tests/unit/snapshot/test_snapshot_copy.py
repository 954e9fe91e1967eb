"""The state of a copy: in a checkpoint and back, on another server, and for tables without a key."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from protocol.binlog.events import (
    DeleteRowsEvent,
    Event,
    QueryEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    XaPrepareEvent,
    XidEvent,
)
from protocol.constants import ColumnType
from protocol.gtid import GtidSet
from protocol.rows.column import ABSENT, Column
from protocol.rows.table import Table
from replica.config.options import Options
from replica.snapshot import copier
from replica.snapshot.copy_state import MOST_KEYS, CopyState
from replica.snapshot.log_touches import Before
from replica.snapshot.marks import FileMark, GtidMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.table_copy import MOST_AGAIN, TableProgress
from replica.snapshot.touches import GONE, NEWEST_KEYS, Moved, Segments, Touch, Touched, written
from replica.snapshot.transaction_touches import KeyColumns, Touching, TransactionTouches
from replica.sql.dialect import Dialect
from replica.sql.xa import Xid
from replica.transactions.snapshot_events import (
    SnapshotCompleteEvent,
    SnapshotRestartedEvent,
    SnapshotRowsEvent,
)
from tests.support.grouped_events import AT
from tests.support.scripted_source import IDENTITY, TABLE, query

GTIDS = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"


def test_too_many_rows_to_read_again_begin_the_table_anew() -> None:
    begun = TableProgress((b"5",), (b"9",), rows=7)
    assert begun.with_again([(1,)]).again == ((1,),)
    anew = begun.with_again([(number,) for number in range(MOST_AGAIN + 1)])
    assert anew == begun.anew() == TableProgress(rows=7, is_void=True)


def test_many_rows_that_move_are_read_again_and_a_checkpoint_is_small_meanwhile() -> None:
    """A consumer that lags behind writers who move rows has many: if its copy began anew, it would not end."""
    copy, place, count = SnapshotCopy(), Place("binlog.000001", 4), 5 * MOST_KEYS // 2
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place, TableProgress((b"1",), (b"9",), is_read=True))
    copy.tables[IDENTITY].progress = TableProgress((b"1",), (b"9",), ((0,),), is_read=True)
    for number in range(count):
        moved = UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((number, 2, 3), (number + 1, 2, 3))])
        copy.settle([query("BEGIN"), moved, XidEvent(*AT, 1)])
    progress = copy.tables[IDENTITY].progress
    assert len(progress.again) == count + 1
    assert CopyState.from_text(copy.state().to_text()).tables[IDENTITY] == progress.anew()
    read: list[int] = []
    while window := next((one for _, one in copy.windows(place, 9)), None):
        assert window.what == "keys"
        # The reader takes as many as it can hold.
        window.wanted = window.wanted[:MOST_KEYS]
        read.append(len(window.wanted))
        window.take_low(FileMark("binlog.000002"))
        window.take_view()
        window.take_high(place)
        window.take_rows(TABLE, (0,), [(*key, 2, 3) for key in window.wanted if key == (count,)], None)
        window.close()
        event = copy.deliver(place)
        assert isinstance(event, SnapshotRowsEvent)
        copy.settle([event])
    assert sum(read) == count + 1
    assert copy.tables[IDENTITY].progress.again == ()
    assert CopyState.from_text(copy.state().to_text()).tables[IDENTITY] == copy.tables[IDENTITY].progress


def test_positions_of_another_server_mean_nothing_and_gtids_do() -> None:
    copy = SnapshotCopy()
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), Place("binlog.000003", 500, GtidSet(GTIDS)))
    segments = copy.tables[IDENTITY].segments
    assert segments.covering(FileMark("binlog.000004")) == 0
    copy.move()
    assert segments.covering(FileMark("binlog.000004")) is None
    assert segments.covering(GtidMark(GtidSet(GTIDS))) == 0


def test_rows_of_a_table_without_a_key_are_hidden_until_it_is_read() -> None:
    copy = SnapshotCopy()
    event = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(1, 2, 3)])
    copy.add(IDENTITY, KeyColumns((), ()), Place("binlog.000001", 4))
    assert copy.hides(event)
    copy.tables[IDENTITY].progress = TableProgress(is_read=True)
    assert not copy.hides(event)


def test_a_table_whose_copy_begins_anew_is_read_after_the_consumer_knows() -> None:
    """Its touches count from that place on: those of a complete table are not kept."""
    copy, place = SnapshotCopy(), Place("binlog.000003", 500, GtidSet(GTIDS))
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), Place("binlog.000001", 4, GtidSet()))
    copy.tables[IDENTITY].progress = TableProgress(rows=7, is_read=True, is_whole=True)
    copy._restart(IDENTITY)
    assert list(copy.windows(place, 9)) == []
    event = copy.deliver(place)
    assert isinstance(event, SnapshotRestartedEvent)
    assert (event.table.schema, event.table.name) == IDENTITY
    assert copy.state().tables[IDENTITY] == TableProgress(rows=7, is_void=True)
    assert copy.state([event]).tables[IDENTITY] == TableProgress(rows=7)
    copy.settle([event])
    [(_, window)] = copy.windows(place, 9)
    assert window.what == "first"
    assert not window.take_low(GtidMark(GtidSet()))
    assert window.take_low(GtidMark(GtidSet(GTIDS)))


def test_windows_in_flight_do_not_outlive_a_copy_that_begins_anew() -> None:
    """They would wait for ever for touches of the place at which the copy began before."""
    copy, place = SnapshotCopy(), Place("binlog.000003", 500, GtidSet(GTIDS))
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), Place("binlog.000003", 400, GtidSet(GTIDS)))
    table = copy.tables[IDENTITY]
    table.progress = TableProgress((b"1",), (b"9",), ((1,),))
    [keys, chunk] = [window for _, window in copy.windows(place, 2)]
    assert (keys.what, chunk.what) == ("keys", "chunk")
    table.progress = table.progress.with_again([(number,) for number in range(MOST_AGAIN + 1)])
    copy._changed(IDENTITY)
    event = copy.deliver(place)
    assert isinstance(event, SnapshotRestartedEvent)
    assert keys.is_void
    assert chunk.is_void
    copy.settle([event])
    [(_, window)] = copy.windows(place, 1)
    assert window.what == "first"
    assert window.take_low(GtidMark(GtidSet(GTIDS)))


@pytest.mark.parametrize("sql", ["ALTER TABLE shop.t ADD x INT", "DROP DATABASE shop", "TRUNCATE shop.t"])
def test_ddl_begins_a_copy_anew_if_the_consumer_cannot_apply_it(sql: str) -> None:
    for restarts in (False, True):
        copy = SnapshotCopy()
        copy.coverage.restarts = restarts
        copy.add(("shop", "t"), KeyColumns(("id",), (0,)), Place("binlog.000001", 4))
        copy.tables["shop", "t"].progress = TableProgress(rows=7, is_read=True, is_whole=True)
        copy.settle([QueryEvent(*AT, 1, 0, 0, "shop", sql, b"")])
        assert copy.state().tables["shop", "t"].is_void is restarts


TAKE_ROWS = (
    "TRUNCATE shop.t",
    "DROP TABLE IF EXISTS shop.t",
    "DROP DATABASE shop",
    "CREATE OR REPLACE TABLE shop.t (id INT PRIMARY KEY)",
    "CREATE OR REPLACE SEQUENCE shop.t",
    "ALTER TABLE shop.t DROP PARTITION p1",
)
BRING_ROWS = (
    "RENAME TABLE shop.t TO shop.old, shop.other TO shop.t",
    "ALTER TABLE shop.other RENAME TO shop.t",
    "ALTER TABLE shop.parts EXCHANGE PARTITION p1 WITH TABLE shop.t",
)


@pytest.mark.parametrize("sql", TAKE_ROWS + BRING_ROWS)
@pytest.mark.parametrize("progress", [TableProgress(), TableProgress((b"5",), (b"9",), rows=7)])
def test_rows_that_a_statement_takes_away_are_void_until_the_copy_is_complete(
    sql: str, progress: TableProgress
) -> None:
    """No row of the log takes them away, and a read row would not come in their place."""
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    copy.dialect = Dialect(is_mariadb=True)
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place, progress)
    assert copy.state([query(sql)]).tables[IDENTITY].is_void
    assert not copy.state().tables[IDENTITY].is_void
    copy.settle([query(sql)])
    event = copy.deliver(place)
    assert isinstance(event, SnapshotRestartedEvent)
    copy.settle([event])
    # The table may be there again: it is looked for.
    assert [window.what for _, window in copy.windows(place, 9)] == ["first"]


def test_an_alter_of_two_phases_takes_rows_away_when_it_is_done() -> None:
    """MariaDB's binlog_alter_two_phase logs it at its start, too, and at its rollback."""
    alter = query("ALTER TABLE shop.t DROP PARTITION p1")
    for status, is_void in (
        (b"\x82\x02", False),
        (b"\x82\x08" + bytes(8), False),
        (b"\x82\x04" + bytes(8), True),
    ):
        copy = SnapshotCopy()
        copy.dialect = Dialect(is_mariadb=True)
        copy.add(
            IDENTITY, KeyColumns(("id",), (0,)), Place("binlog.000001", 4), TableProgress((b"5",), (b"9",))
        )
        alter.status_variables = status
        assert copy.state([alter]).tables[IDENTITY].is_void is is_void
        copy.settle([alter])
        assert copy.state().tables[IDENTITY].is_void is is_void
        assert copy.tables[IDENTITY].shape_number == int(is_void)


@pytest.mark.parametrize("sql", [*TAKE_ROWS, "ALTER TABLE shop.t ADD COLUMN c INT"])
def test_a_complete_copy_is_not_begun_anew(sql: str) -> None:
    """What a statement takes away is the consumer's to follow then, as in any stream."""
    copy = SnapshotCopy()
    copy.add_ended(IDENTITY, TableProgress(rows=3, is_read=True, is_whole=True))
    copy.settle([query(sql)])
    assert copy.tables[IDENTITY].progress.is_whole


def test_an_unknown_xa_commit_begins_tables_anew_that_are_whole() -> None:
    """Its XA PREPARE came before the copy began: nobody knows its rows."""
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    copy.add_ended(IDENTITY, TableProgress(rows=3, is_read=True, is_whole=True))
    gone = ("shop", "gone")
    copy.add_ended(gone, TableProgress())
    copy.settle([query("XA ROLLBACK X'01',X'',1")])
    assert copy.tables[IDENTITY].progress.is_whole
    copy.settle([query("XA COMMIT X'01',X'',1")])
    assert not copy.tables[IDENTITY].progress.is_whole
    event = copy.deliver(place)
    assert isinstance(event, SnapshotRestartedEvent)
    copy.settle([event])
    # A table that does not exist any more stays so. The key of the other one is not known: its touches count from
    # where it is added again.
    assert [table for table, _ in copy.windows(place, 4)] == [IDENTITY]
    assert not copy.follows(IDENTITY)


def test_touches_of_a_table_are_kept_until_its_copy_is_complete() -> None:
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place, TableProgress(rows=3, is_read=True))
    event = copy.deliver(place)
    assert isinstance(event, SnapshotCompleteEvent)
    assert copy.follows(IDENTITY)
    copy.settle([event])
    assert not copy.follows(IDENTITY)
    copy.settle([query("XA COMMIT X'01',X'',1")])
    assert copy.follows(IDENTITY)


def test_moved_rows_of_a_table_that_waits_are_few_in_a_checkpoint() -> None:
    """They come with its chunks. Only those that moved last may not be visible when it begins."""
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place)
    for number in range(MOST_AGAIN + 1):
        moved = UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((number, 2, 3), (number + 1000, 2, 3))])
        copy.settle([query("BEGIN"), moved, XidEvent(*AT, 1)])
    progress = copy.tables[IDENTITY].progress
    assert progress.again == tuple((number + 1000,) for number in range(MOST_AGAIN + 1))[-NEWEST_KEYS:]
    assert not progress.is_void
    assert [window.what for _, window in copy.windows(place, 9)] == ["first"]


def test_moved_rows_of_a_table_that_is_read_are_followed_from_rows_to_be_read_again() -> None:
    """The consumer has all others. If each moved row were read again, the copy would not end as long as rows move."""
    read = TableProgress((b"9",), (b"9",), ((1,),), is_read=True)
    moved: Moved = {(3,): ((2,),), (2,): ((7,), (1,)), (9,): ((8,),), (6,): ()}
    assert set(read.with_moved(moved, {(8,): GONE}, is_reading=False).again) == {(1,), (2,), (3,)}
    assert read.with_moved({(6,): ()}, {(1,): GONE}, is_reading=False).again == ((1,), (6,))
    done = TableProgress((b"9",), (b"9",), is_read=True)
    assert done.with_moved(moved, {(1,): GONE}, is_reading=False) is done


def test_low_marks_by_file_need_one_segment_for_each_file() -> None:
    """Else each chunk would look its rows up in as many segments as there were windows before it."""
    for mark, expected in ((GtidMark(GtidSet(GTIDS)), 4), (FileMark("binlog.000001"), 2)):
        segments = Segments(Place("binlog.000001", 4))
        segments.covering(mark)
        for file, position in (("binlog.000001", 500), ("binlog.000001", 600), ("binlog.000002", 700)):
            segments.add({(position,): GONE})
            segments.cut(Place(file, position))
        segments.fold_before(segments.newest)
        assert len(segments._segments) == expected
        assert segments.covering(FileMark("binlog.000003")) == segments.newest == 3


MADE_ANEW = GONE.then(written((1, ABSENT)))


def test_a_row_that_the_log_does_not_tell_is_read_when_an_earlier_touch_is_visible() -> None:
    """Of the touches before a read view only the newest may be invisible, also where low marks begin the log file."""
    segments = Segments(Place("binlog.000001", 4))
    number = segments.covering(FileMark("binlog.000001"))
    assert number == 0
    segments.add({(1,): GONE}, "binlog.000001")
    segments.add({(1,): written((1, ABSENT))}, "binlog.000001")
    before = segments.newest
    segments.cut(Place("binlog.000001", 900))
    touch = segments.touch((1,), number, segments.newest)
    assert touch is not None
    assert (touch.part, touch.is_doubtful) == ({0: 1}, False)
    # Opened before both: both may be invisible, and what the columns were left as is not known.
    touch = segments.touch((1,), number, before)
    assert touch is not None
    assert touch.is_doubtful


def test_reading_a_row_again_waits_for_what_can_tell_it() -> None:
    segments = Segments(Place("binlog.000001", 4))
    segments.add({(1,): MADE_ANEW, (2,): GONE}, "binlog.000001")
    assert not segments.awaits_file((1,))
    segments.covering(FileMark("binlog.000001"))
    assert [segments.awaits_file((number,)) for number in (1, 2, 3)] == [True, False, False]
    segments.add({(1,): Touch((1, 5))}, "binlog.000001")
    assert not segments.awaits_file((1,))
    segments.add({(1,): MADE_ANEW}, "binlog.000001")
    assert segments.awaits_file((1,))
    segments.enter(Place("binlog.000002", 700))
    assert not segments.awaits_file((1,))
    assert segments.covering(FileMark("binlog.000002")) == segments.newest


def test_a_file_whose_beginning_was_not_followed_has_no_segment_of_its_own() -> None:
    """The stream began by GTIDs: what came before in its file is not known before that was read."""
    segments = Segments(Place("", 0, GtidSet(GTIDS)))
    segments.add({(1,): MADE_ANEW}, "binlog.000004")
    assert segments.covering(FileMark("binlog.000004")) is None
    assert not segments.awaits_file((1,))
    segments.add({(1,): GONE}, "binlog.000005")
    assert segments.covering(FileMark("binlog.000005")) == segments.newest == 1


def test_a_table_without_a_key_is_complete_when_prepared_transactions_have_ended() -> None:
    """Its rows of XA were hidden from the consumer: once they are committed, the table is read again."""
    for word, events in {"COMMIT": [SnapshotRestartedEvent], "ROLLBACK": [SnapshotCompleteEvent]}.items():
        copy, place = SnapshotCopy(), Place("binlog.000001", 4)
        copy.add(IDENTITY, KeyColumns((), ()), place)
        row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(1, 2, 3)])
        copy.settle([query("XA START X'01',X'',1"), row, XaPrepareEvent(*AT, False, 1, b"\x01", b"")])
        text = copy.state().to_text()
        copy.tables[IDENTITY].progress = TableProgress(rows=3, is_read=True)
        assert copy.deliver(place) is None
        assert copy.is_active
        decided = query(f"XA {word} X'01',X'',1")
        assert copy.state([decided]).tables[IDENTITY].is_void is (word == "COMMIT")
        copy.settle([decided])
        assert [type(copy.deliver(place))] == events
        # Also behind a kill.
        resumed = SnapshotCopy()
        resumed.add(IDENTITY, KeyColumns((), ()), place, TableProgress(rows=3, is_read=True))
        assert not resumed.follows(IDENTITY)
        resumed.restore(CopyState.from_text(text))
        assert resumed.deliver(place) is None
        resumed.settle([decided])
        assert [type(resumed.deliver(place))] == events


def prepared(xid: int) -> list[Event]:
    """An XA transaction with a row of the table."""
    row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(xid, 2, 3)])
    return [query(f"XA START X'{xid:02}',X'',1"), row, XaPrepareEvent(*AT, False, 1, bytes([xid]), b"")]


def test_a_table_of_a_checkpoint_begins_anew_however_many_prepared_transactions_follow_each_other() -> None:
    """Its key is not known, and its rows come on. It has one, perhaps: with a key it need not wait at all."""
    copy = SnapshotCopy()
    copy.add_ended(IDENTITY, TableProgress(rows=3, is_read=True, is_whole=True))
    copy.settle([*prepared(1), query("XA COMMIT X'09',X'',1")])
    event = copy.deliver(Place("binlog.000001", 4))
    assert type(event) is SnapshotRestartedEvent


@pytest.mark.parametrize("names", [(), ("id",)])
def test_an_xa_commit_that_begins_copies_anew_ends_its_batch(names: tuple[str, ...]) -> None:
    """Rows of a table without a key are hidden behind it: those of the next transaction counted twice."""
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    copy.add(IDENTITY, KeyColumns(names, (0,) if names else ()), place)
    copy.tables[IDENTITY].progress = TableProgress(rows=3)
    copy.settle(prepared(1))
    commits = [query(f"XA COMMIT X'{xid:02}',X'',1") for xid in range(4)]
    # All is known of a transaction of the same batch, and of the first one unless its rows were hidden.
    assert copy.next_statement([*prepared(2), commits[2], *prepared(3), commits[3]]) == -1
    assert copy.next_statement([commits[1], *prepared(2)]) == (-1 if names else 0)
    assert copy.next_statement([*prepared(2), commits[2], commits[0], *prepared(3)]) == 4
    assert copy.next_statement([query("XA ROLLBACK X'00',X'',1"), *prepared(2)]) == -1


@pytest.mark.parametrize("progress", [TableProgress(), TableProgress((b"5",), (b"9",), rows=5)])
def test_a_table_begins_anew_when_xa_ends_that_was_prepared_before_it_was_added(
    progress: TableProgress,
) -> None:
    """Its rows were not followed: a chunk of that time may show them or not."""
    copy, place = SnapshotCopy(), Place("binlog.000001", 4)
    row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(1, 2, 3)])
    copy.settle([query("XA START X'01',X'',1"), row, XaPrepareEvent(*AT, False, 1, b"\x01", b"")])
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place)
    copy.tables[IDENTITY].progress = progress
    assert CopyState.from_text(copy.state().to_text()) == copy.state()
    copy.settle([query("XA COMMIT X'01',X'',1")])
    assert copy.tables[IDENTITY].progress.is_void
    # What is whole does not begin anew: the consumer had the rows, and no chunk is read.
    copy.tables[IDENTITY].progress = whole = TableProgress(rows=5, is_read=True, is_whole=True)
    copy.settle([query("XA START X'01',X'',1"), row, XaPrepareEvent(*AT, False, 1, b"\x01", b"")])
    copy.settle([query("XA COMMIT X'01',X'',1")])
    assert copy.tables[IDENTITY].progress == whole


@pytest.mark.parametrize("is_decided", [False, True])
def test_rows_of_xa_are_known_again_once_the_log_before_the_checkpoint_was_read(is_decided: bool) -> None:
    """A low mark that stays at the beginning of the file would leave them doubtful for ever."""
    copy, place, xid = SnapshotCopy(), Place("binlog.000001", 500), Xid(1, b"\x01", b"")
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place, TableProgress((b"5",), (b"9",)))
    copy.restore(CopyState({}, {xid: {IDENTITY: ((1,), (2,))}}))
    commit = [query("XA COMMIT X'01',X'',1")]
    if is_decided:
        copy.settle(commit)
    row = Touch((1, 2, 3))
    copy.resolve({xid: Touching({IDENTITY: {(1,): row, (2,): GONE}})})
    if not is_decided:
        copy.settle(commit)
    segments = copy.tables[IDENTITY].segments
    assert (segments.touch((1,), 0, 0), segments.touch((2,), 0, 0)) == (row, GONE)
    assert copy.tables[IDENTITY].progress.again == ((1,), (2,))


async def test_rows_of_xa_are_known_though_other_transactions_touched_their_keys_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The XA transaction of a checkpoint is decided while the log before the checkpoint is read."""
    copy, place, xid = SnapshotCopy(), Place("binlog.000001", 500), Xid(1, b"\x01", b"")
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), place, TableProgress((b"5",), (b"9",)))
    copy.restore(CopyState({}, {xid: {IDENTITY: ((1,),)}}))
    copy.settle([query("XA COMMIT X'01',X'',1")])
    earlier, row = Touch((1, 0, 0)), Touch((1, 2, 3))

    async def touches_before(*_: object) -> Before:
        return Before({IDENTITY: {(1,): earlier}}, {xid: Touching({IDENTITY: {(1,): row}})}, {IDENTITY: ()})

    monkeypatch.setattr(copier, "touches_before", touches_before)
    options = Options.build("mysql://repl@127.0.0.1", {"tables": "shop.*"})
    reading = copier.Copier(options, copy, lambda: place)
    monkeypatch.setattr(reading, "_source", object())
    await reading._read_touches(place, place.file)
    segments = copy.tables[IDENTITY].segments
    assert segments.covering(FileMark("binlog.000001")) == 0
    assert segments.touch((1,), 0, 0) == Touch(row.row, last=row)
    assert not segments.awaits_file((1,))


ENDLESS = datetime(2106, 2, 7, 6, 28, 15, 999999, UTC)
ENDED = datetime(2026, 1, 1, tzinfo=UTC)


def versioned(events: list[tuple[type[Event], list[object]]]) -> Touched:
    """What rows events of a system-versioned table touch."""
    columns = [Column(name, ColumnType.LONG, 0, True) for name in ("id", "a", "row_end")]
    table = Table("shop", "t", tuple(columns), ("id", "row_end"), "log")
    touched: Touched = {}

    def ended(touching: Touching) -> None:
        touched.update(touching.touched.get(IDENTITY, {}))

    key = KeyColumns(("id",), (0,), "row_end", 2)
    touches = TransactionTouches({IDENTITY: key}, ended, lambda xid: None, lambda event: None)
    touches.follow([kind(*AT, 1, table, 0, b"", rows) for kind, rows in events])  # type: ignore[call-arg]
    touches.follow([XidEvent(*AT, 1)])
    return touched


def test_rows_of_the_past_of_a_system_versioned_table_are_no_touches() -> None:
    """MariaDB logs an UPDATE as one, and as an INSERT of the row that has ended."""
    before, after = (1, 10, ENDLESS), (1, 11, ENDLESS)
    updated = versioned([(UpdateRowsEvent, [(before, after)]), (WriteRowsEvent, [(1, 10, ENDED)])])
    assert updated[(1,)].row == after
    # A DELETE is an update of the end of the row's period.
    assert versioned([(UpdateRowsEvent, [(before, (1, 10, ENDED))])]) == {(1,): GONE}
    assert versioned([(DeleteRowsEvent, [(1, 10, ENDED)])]) == {}
    assert versioned([(DeleteRowsEvent, [before])]) == {(1,): GONE}


def test_rows_that_are_touched_later_are_not_waited_for() -> None:
    """A row that is deleted meanwhile would be waited for in vain, and was visible before."""
    copy = SnapshotCopy()
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), Place("binlog.000001", 500))
    table = copy.tables[IDENTITY]
    delete = DeleteRowsEvent(*AT, 1, TABLE, 0, b"", [(1, 2, 3)])
    copy.settle([query("BEGIN"), delete, XidEvent(*AT, 1)])
    table.await_rows([(1,), (2,), (3,)])
    assert list(table.awaited) == [(2,), (3,)]
    delete = DeleteRowsEvent(*AT, 1, TABLE, 0, b"", [(3, 2, 3)])
    copy.settle([query("BEGIN"), delete, XidEvent(*AT, 1)])
    assert list(table.awaited) == [(2,)]
    table.begin_anew(Place("binlog.000001", 900), is_followed=True)
    assert list(table.awaited) == []
    # The consumer has rows of a table that was begun.
    table.progress = TableProgress((b"5",), (b"9",))
    table.await_rows([(2,)])
    assert list(table.awaited) == []
