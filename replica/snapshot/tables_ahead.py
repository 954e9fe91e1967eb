"""The progress of a copy's tables as a checkpoint shows it: now, and after events that are not done yet. No I/O.

A checkpoint may be asked for after each transaction. Its cost depends on the tables that have changed, not on all.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping

from protocol.records import field, record

from .copy_outline import CopyOutline
from .table_copy import TableCopy, TableProgress
from .transaction_touches import TableId


class TablesAhead(MutableMapping[TableId, TableProgress]):
    """The progress after the events ahead. Tables that these do not change have their progress of now."""

    def __init__(self, tables: Mapping[TableId, TableCopy], stated: frozenset[TableId] | None) -> None:
        self._tables = tables
        #: See ``Unnamed``.
        self.stated = stated
        # None: the table leaves the copy.
        self._changed: dict[TableId, TableProgress | None] = {}

    def __getitem__(self, table: TableId) -> TableProgress:
        if table not in self._changed:
            return self._tables[table].progress
        progress = self._changed[table]
        if progress is None:
            raise KeyError(table)
        return progress

    def __setitem__(self, table: TableId, progress: TableProgress) -> None:
        self._changed[table] = progress

    def __delitem__(self, table: TableId) -> None:
        self._changed[table] = None

    def __iter__(self) -> Iterator[TableId]:
        yield from (table for table in self._tables if table not in self._changed)
        yield from (table for table, progress in self._changed.items() if progress is not None)

    def __len__(self) -> int:
        changed = self._changed.items()
        return len(self._tables) + sum((one is not None) - (table in self._tables) for table, one in changed)

    def shown(self, now: "Shown") -> "Shown":
        """What a checkpoint shows after the events; ``now`` is what it would show without them."""
        return now.changed(self._changed)


@record(slots=True)
class Shown:
    """The progress that a checkpoint shows of each table, and its outline. Neither is changed in place."""

    tables: dict[TableId, TableProgress] = field(default_factory=dict)
    outline: CopyOutline = field(default_factory=lambda: CopyOutline.of({}))

    def changed(self, changed: Mapping[TableId, TableProgress | None]) -> "Shown":
        """A copy in which tables have this progress; None: a table has left the copy."""
        if not changed:
            return self
        shown, tables = dict[TableId, TableProgress | None](), self.tables.copy()
        for table, progress in changed.items():
            if progress is None:
                tables.pop(table, None)
                shown[table] = None
            else:
                shown[table] = tables[table] = progress.from_place()
        return Shown(tables, self.outline.changed(shown, tables))


class ShownTables:
    """Makes what a checkpoint shows of the tables now: the same object as before if no table has changed."""

    def __init__(self) -> None:
        # The progress of each table when it was shown.
        self._seen: dict[TableId, TableProgress] = {}
        self._shown = Shown()

    def now(self, tables: Mapping[TableId, TableCopy], noted: Iterable[TableId]) -> Shown:
        """``noted`` are the tables that may have changed since the last call."""
        changed: dict[TableId, TableProgress | None] = {}
        for identity in noted:
            progress = tables[identity].progress if identity in tables else None
            if self._seen.get(identity) is progress:
                continue
            changed[identity] = progress
            if progress is None:
                del self._seen[identity]
            else:
                self._seen[identity] = progress
        self._shown = self._shown.changed(changed)
        return self._shown
