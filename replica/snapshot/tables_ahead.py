"""The progress of a copy's tables as a checkpoint shows it: now, and behind events that are not done yet. No I/O.

A checkpoint may be asked for behind each transaction. It costs the tables that have changed, not all of them.
"""

from collections.abc import Iterator, Mapping, MutableMapping

from .table_copy import TableCopy, TableProgress
from .transaction_touches import TableId


class TablesAhead(MutableMapping[TableId, TableProgress]):
    """The progress behind events ahead: of tables that they do not change it is the one of now."""

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
        return sum(1 for _ in self)

    @property
    def has_same_tables(self) -> bool:
        """Whether no table has come or gone."""
        return all(
            progress is not None and table in self._tables for table, progress in self._changed.items()
        )

    def shown(self, now: dict[TableId, TableProgress]) -> dict[TableId, TableProgress]:
        """What a checkpoint shows, where it would show ``now`` without the events."""
        if not self._changed:
            return now
        shown = dict(now)
        for table, progress in self._changed.items():
            if progress is None:
                shown.pop(table, None)
            else:
                shown[table] = progress.from_place()
        return shown


class ShownTables:
    """What a checkpoint shows of each table now: the same object as before if no table has changed."""

    def __init__(self) -> None:
        # The progress of each table when it was shown.
        self._seen: dict[TableId, TableProgress] = {}
        self._shown: dict[TableId, TableProgress] = {}
        self._changes = -1

    def now(
        self, tables: Mapping[TableId, TableCopy], changes: int, *, is_active: bool
    ) -> dict[TableId, TableProgress]:
        """``changes`` counts how often a table was changed, but for what reads do while the copy ``is_active``."""
        if is_active or self._changes != changes:
            self._changes = changes
            changed = [
                (identity, table.progress)
                for identity, table in tables.items()
                if self._seen.get(identity) is not table.progress
            ]
            if changed or len(tables) != len(self._seen):
                self._seen = {one: seen for one, seen in self._seen.items() if one in tables} | dict(changed)
                known = {one: shown for one, shown in self._shown.items() if one in tables}
                self._shown = known | {one: progress.from_place() for one, progress in changed}
        return self._shown
