"""Which tables of a copy may have something to do, and the sums for its status. Pure: no I/O.

``SnapshotCopy`` notes here each table that it changes, so that no step of a copy walks over all of its tables. Of
thousands of tables a few are read at any time; the others wait, or are complete.
"""

from collections.abc import Iterator

from protocol.records import record

from .table_copy import TableCopy
from .transaction_touches import TableId


@record(slots=True)
class CopyTotals:
    """Sums over the tables of a copy: complete ones, rows, chunks, and chunks of which a row was touched."""

    complete: int = 0
    rows: int = 0
    chunks: int = 0
    corrected: int = 0

    def __add__(self, other: "CopyTotals") -> "CopyTotals":
        return CopyTotals(
            self.complete + other.complete,
            self.rows + other.rows,
            self.chunks + other.chunks,
            self.corrected + other.corrected,
        )

    def __sub__(self, other: "CopyTotals") -> "CopyTotals":
        return self + CopyTotals(-other.complete, -other.rows, -other.chunks, -other.corrected)


_NONE = CopyTotals()


class TablesAtWork:
    """The tables that are not complete, and those of them that have windows in flight or have changed."""

    def __init__(self) -> None:
        self.totals = CopyTotals()
        #: The tables that are not complete, in the order in which they are copied.
        self.unfinished: dict[TableId, TableCopy] = {}
        # Tables that were changed since the last ``look``; tables that have windows in flight, or had them last time;
        # tables whose copies begin anew, before the consumer was told.
        self._stirred: dict[TableId, TableCopy] = {}
        self._reading: dict[TableId, TableCopy] = {}
        self._void: dict[TableId, TableCopy] = {}
        self._counted: dict[TableId, CopyTotals] = {}

    @property
    def in_flight(self) -> int:
        """How many windows are open, or hold rows that were not delivered."""
        for identity in [one for one, table in self._reading.items() if not table.in_flight]:
            del self._reading[identity]
        return sum(table.in_flight for table in self._reading.values())

    def note(self, identity: TableId, table: TableCopy) -> None:
        """Note a table that was added, or whose progress, touches or windows have changed."""
        self._stirred[identity] = table
        if table.in_flight:
            self._reading[identity] = table
        if table.progress.is_void:
            self._void[identity] = table
        else:
            self._void.pop(identity, None)
        if table.progress.is_whole:
            self.unfinished.pop(identity, None)
        else:
            self.unfinished[identity] = table
        counts, progress = table.counts, table.progress
        now = CopyTotals(progress.is_whole, progress.rows, counts.chunks, counts.corrected)
        before = self._counted.get(identity, _NONE)
        if now != before:
            self.totals += now - before
            self._counted[identity] = now

    def remove(self, identity: TableId) -> None:
        """Forget a table that has left the copy. Its delivered rows and chunks still count."""
        for known in (self._stirred, self._reading, self._void):
            known.pop(identity, None)
        self.unfinished.pop(identity, None)
        self.totals -= CopyTotals(self._counted.pop(identity, _NONE).complete)

    def void(self) -> Iterator[tuple[TableId, TableCopy]]:
        """The tables whose copies begin anew, before the consumer was told."""
        return iter(self._void.items())

    def look(self) -> Iterator[tuple[TableId, TableCopy]]:
        """The tables that may have something to deliver.

        A table with nothing to deliver and nothing in flight is left out from then on, until it is noted again.
        """
        for identity, table in list(self._stirred.items()):
            yield identity, table
            if not (table.in_flight or table.progress.is_void or table.is_complete()):
                del self._stirred[identity]

    def reading(self) -> Iterator[TableCopy]:
        """The tables that may have windows in flight."""
        return iter(list(self._reading.values()))
