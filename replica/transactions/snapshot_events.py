"""The events of an initial copy, which the stream puts between those of the log: rows, ends, new beginnings."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Final

from protocol.binlog.events import Event, RowsEvent
from protocol.binlog.row_changes import Read, image_of
from protocol.records import field, record
from protocol.rows.compiler import Row
from protocol.rows.table import Table


@record(slots=True)
class SnapshotRowsEvent(RowsEvent):
    """Rows of a table as they are at this place of the stream: a chunk of its initial copy.

    This is no event of the log: it comes between two transactions, and ``file`` and ``position`` are that place. Its
    header has type 0 and size 0, and the time at which the chunk was read. ``rows`` are tuples in the order of
    ``table.columns``, and may be empty; those of a large table without a key are read from a temporary file each time
    that they are iterated. ``table_id``, ``rows_flags`` and ``extra`` have no meaning here.
    """

    rows: Sequence[Row] = field(default_factory=list)

    def changes(self) -> Iterator[Read]:
        """The rows as ``Read``: insert the row, or replace the row of the same key."""
        # Rows that the log has changed meanwhile may lack columns that others have.
        return map(Read, repeat(self.table), map(image_of, repeat(self.table), self.rows))


@record(slots=True)
class SnapshotCompleteEvent(Event):
    """The initial copy of a table has ended: from this place on, whoever applied all reads and changes has the table.

    ``table`` is the ``Table``, ``rows`` the number of rows that its copy delivered. ``is_dropped``: the table was
    dropped or renamed while it was copied. This is no event of the log, like ``SnapshotRowsEvent``.
    """

    table: Table
    rows: int = 0
    is_dropped: bool = False


@record(slots=True)
class SnapshotRestartedEvent(Event):
    """The initial copy of a table begins anew: all rows of ``table`` that came so far are void. Delete them.

    The reasons: ``stream.snapshot()`` for a table that was copied before, or has no key; the commit of an XA
    transaction that was prepared before the copy began, and whose rows are not known; more rows with new keys than
    are read one by one; another key by DDL; TRUNCATE, DROP, RENAME and statements about partitions before the copy
    is complete, as no event of the log takes such rows away one by one; later RENAME of a table to this name whose
    rows did not come, as ``tables`` does not select its old name, EXCHANGE and CONVERT PARTITION, and IMPORT
    TABLESPACE. ``table`` may be new then. Rows that came under a selected name are not copied again by RENAME: its
    statement, in ``tx.ddl``, gives them the other name. So a daily swap, or an online schema change (gh-ost,
    pt-online-schema-change), costs no copy if ``tables`` selects the table that is swapped in, too: from before its
    CREATE TABLE on. Of a table without a key this comes when prepared XA transactions have ended whose rows came
    before. This is no event of the log, like ``SnapshotRowsEvent``.
    """

    table: Table


#: Events that are not in the log, and come between two transactions.
SNAPSHOT_EVENTS: Final = frozenset({SnapshotRowsEvent, SnapshotCompleteEvent, SnapshotRestartedEvent})
