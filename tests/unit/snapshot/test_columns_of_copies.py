"""What a copy knows of its tables' columns: which are the key, if any, and which the log may lack."""

from __future__ import annotations

import pytest

from protocol.binlog.events import UpdateRowsEvent, WriteRowsEvent, XidEvent
from protocol.errors import SourceConfigurationError
from protocol.gtid import GtidSet
from protocol.rows.column import ABSENT
from replica.snapshot.copy_state import CopyState
from replica.snapshot.marks import GtidMark, Place
from replica.snapshot.snapshot_copy import SnapshotCopy
from replica.snapshot.table_copy import TableProgress
from replica.snapshot.transaction_touches import KeyColumns
from replica.transactions.snapshot_events import SnapshotRestartedEvent, SnapshotRowsEvent
from tests.support.grouped_events import AT
from tests.support.scripted_source import IDENTITY, TABLE, query


def test_a_generated_column_that_an_update_does_not_log_is_not_that_of_before() -> None:
    """MariaDB's MINIMAL images lack virtual columns, also where they have changed (11.8.9: all generated ones)."""
    copy, before, after = SnapshotCopy(), Place("binlog.000001", 4, GtidSet()), Place("binlog.000001", 500)
    names = TABLE.column_names
    copy.add(IDENTITY, KeyColumns((names[0],), (0,), generated=(names[2],)), before)
    [(_, window)] = copy.windows(before, 9)
    window.take_low(GtidMark(GtidSet()))
    window.take_view()
    window.take_high(after)
    window.take_rows(TABLE, (0,), [(1, 2, 4), (2, 3, 6)], None)
    window.close()
    update = UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((1, ABSENT, ABSENT), (ABSENT, 5, ABSENT))])
    copy.settle([query("BEGIN"), update, XidEvent(*AT, 1)])
    event = copy.deliver(after)
    assert isinstance(event, SnapshotRowsEvent)
    assert event.rows == [(1, 5, ABSENT), (2, 3, 6)]


def test_a_complete_table_without_a_key_is_known_as_that_behind_a_kill() -> None:
    """Its rows are hidden from the moment at which it begins anew, which the consumer is told once."""
    copy, place, key = SnapshotCopy(), Place("binlog.000001", 4), KeyColumns((), ())
    copy.add(IDENTITY, key, place, TableProgress(rows=3, is_read=True, is_whole=True))
    state, resumed = CopyState.from_text(copy.state().to_text()), SnapshotCopy()
    resumed.add_ended(IDENTITY, state.tables[IDENTITY], is_keyless=IDENTITY in state.keyless)
    row = WriteRowsEvent(*AT, 1, TABLE, 0, b"", [(1, 2, 3)])
    assert not resumed.hides(row)
    assert resumed.state().to_text() == copy.state().to_text()
    resumed.settle([query("XA COMMIT X'09',X'',1")])
    event = resumed.deliver(place)
    assert type(event) is SnapshotRestartedEvent
    resumed.settle([event])
    assert resumed.hides(row)
    assert resumed.goes_on_by(IDENTITY, key)
    assert resumed.deliver(place) is None


@pytest.mark.parametrize("is_altered", [False, True])
def test_rows_without_the_key_are_an_error_unless_ddl_comes_behind_them(is_altered: bool) -> None:
    """The key is that of the table as it is now, and the stream may be far behind."""
    copy, before, after = SnapshotCopy(), Place("binlog.000001", 4, GtidSet()), Place("binlog.000001", 500)
    copy.add(IDENTITY, KeyColumns(("id",), (0,)), before)
    [(_, window)] = copy.windows(before, 9)
    window.take_low(GtidMark(GtidSet()))
    window.take_view()
    window.take_high(after)
    window.take_rows(TABLE, (0,), [(1, 2, 4)], None)
    window.close()
    update = UpdateRowsEvent(*AT, 1, TABLE, 0, b"", [((ABSENT, 2, ABSENT), (ABSENT, 5, ABSENT))])
    copy.settle([query("BEGIN"), update, XidEvent(*AT, 1)])
    if is_altered:
        copy.settle([query(f"ALTER TABLE {'.'.join(IDENTITY)} DROP PRIMARY KEY, ADD PRIMARY KEY (id)")])
        assert copy.deliver(after) is None
        assert window.is_void
    else:
        with pytest.raises(SourceConfigurationError, match="lacks columns of the key"):
            copy.deliver(after)
