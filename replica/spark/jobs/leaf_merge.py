"""Changes and the files of a leaf -> the new files of the leaf. No Spark and no commit: tasks of executors do this.

    route   the changes of a table -> those of each group of leaves; with only the last one of each key for ``mirror``
    merge   a group's files and its changes -> new files, which no commit names yet

Old rows pass through in parts, and unchanged ones are only copied. A group's changes are held as a whole. The files
of a history are of two kinds: present states in leaves, and past states in files that are never written again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from protocol.records import field, record

from . import leaves
from .changes_per_key import (
    KeyEvents,
    Numbers,
    column_names,
    complete,
    key_events,
    lacks_values,
    last_events,
    separated,
    versions,
)
from .column_values import constants
from .leaf_files import INDEXED, LeafWriter, NewFile, aligned, folder, read
from .leaves import HIGHEST, LOWEST, PAST, ROWS, Group, Range, cut, owners, places
from .stamps import DELETED, stamped

Flags = npt.NDArray[np.bool_]

_NO_ROW: Final = -1
#: Rows in memory are about so many times as large as in Parquet. Used only for tables without a file.
_COMPRESSION: Final = 3


@record(frozen=True, slots=True)
class LeafTable:
    """A table as tasks get it: the ``schema`` of its files, the ``defaults`` of columns as SQL text.

    ``is_history``: rows are states with intervals. The first ``indexed`` columns get statistics. ``stamps``: the
    columns of the module ``stamps`` that rows have. ``is_settling``: rows may be later than the changes being merged
    (``rows_again``).
    """

    name: str
    path: str
    key: tuple[str, ...]
    schema: pa.Schema
    is_history: bool = False
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    indexed: int = INDEXED
    stamps: tuple[str, ...] = ()
    is_settling: bool = False


# Changes of groups.


def route(table: LeafTable, rows: pa.Table, groups: Sequence[Group]) -> Iterator[tuple[int, pa.Table]]:
    """The changes of each group that has any, by its number. Raises ``SchemaMismatchError`` for unknown keys."""
    rows = separated(table.name, rows, table.key)
    needs_all = table.is_history or (DELETED in table.stamps and rows["_absent"].null_count < rows.num_rows)
    if not needs_all and not lacks_values(rows):
        # All rows are whole, and each has one key only, so the last row of each key is enough.
        rows = rows.take(pa.array(last_events(key_events(table.name, rows, table.key)).rows))
    owning = owners(groups, places(rows.select(list(table.key))))
    for number in np.unique(owning).tolist():
        yield number, rows.take(pa.array(np.flatnonzero(owning == number)))


def route_to(table: LeafTable, rows: pa.Table, group: Group) -> pa.Table:
    """The changes of one group."""
    rows = separated(table.name, rows, table.key)
    return rows.filter(pa.array(_within(group, places(rows.select(list(table.key))))))


def _within(group: Group, found: Numbers) -> Flags:
    """Whether places are in the ranges of a group."""
    is_own = np.zeros(len(found), np.bool_)
    for low, high in group.ranges:
        is_own |= (found >= low) & (found <= high)
    return is_own


# New files.


def merge(table: LeafTable, group: Group, rows: pa.Table | None, storage: Mapping[str, str]) -> list[NewFile]:
    """The new files of a group, which replace all its files. ``rows`` are its changes in order."""
    return _Merging(table, group, folder(table.path, storage)).files(rows)


def merged_rows(
    table: LeafTable, group: Group, rows: pa.Table | None, storage: Mapping[str, str]
) -> Iterator[pa.Table]:
    """The rows that the new files of a group would have, in parts."""
    new, parts = _Merging(table, group, folder(table.path, storage)).parts(rows)
    for _, part in parts:
        yield part
    yield new


class _Merging:
    """One group that is rewritten."""

    def __init__(self, table: LeafTable, group: Group, system: FileSystem) -> None:
        self._table = table
        self._group = group
        self._system = system
        self._key = list(table.key)

    def files(self, rows: pa.Table | None) -> list[NewFile]:
        new, parts = self.parts(rows)
        writers = {
            ROWS: self._writer(new, self._span(rows)),
            PAST: self._new_writer(PAST, [(LOWEST, HIGHEST)]),
        }
        for kind, part in parts:
            writers[kind].add(part)
        writers[ROWS].add(new)
        return [file for writer in writers.values() for file in writer.finish()]

    def parts(self, rows: pa.Table | None) -> tuple[pa.Table, Iterator[tuple[str, pa.Table]]]:
        """The rows that are new in the leaves; and all other rows, each with the kind of file they belong to."""
        if rows is None:
            return self._table.schema.empty_table(), self._unchanged()
        rows = self._complete(rows)
        events = key_events(self._table.name, rows, self._key)
        return self._past(rows, events) if self._table.is_history else self._current(rows, events)

    def _old(self) -> Iterator[pa.Table]:
        for old in read(self._system, [file.path for file in self._group.files], self._table.schema):
            yield self._own(old) if self._group.is_share else old

    def _own(self, old: pa.Table) -> pa.Table:
        """The rows in the ranges of the group."""
        return old.filter(pa.array(_within(self._group, places(old.select(self._key)))))

    def _unchanged(self) -> Iterator[tuple[str, pa.Table]]:
        for old in self._old():
            if not self._group.ranges:
                yield PAST, old
            elif not self._table.is_history:
                yield ROWS, old
            else:
                yield ROWS, old.filter(old["is_current"])
                yield PAST, old.filter(pc.invert(old["is_current"]))

    def _complete(self, rows: pa.Table) -> pa.Table:
        table = self._table
        if not lacks_values(rows):
            return rows
        values = constants(table.name, rows.schema, table.defaults)
        return complete(table.name, rows, self._key, self._base_rows, values, is_settling=table.is_settling)

    def _base_rows(self, keys: pa.Table) -> pa.Table:
        """The present rows with these keys."""
        index = _index(self._table, keys)
        parts = [self._table.schema.empty_table()]
        for old in self._old():
            is_wanted = index.find(old) != _NO_ROW
            if self._table.is_history:
                is_wanted &= _flags(old["is_current"])
            parts.append(old.filter(pa.array(is_wanted)))
        return pa.concat_tables(parts)

    # Rows as they are now.

    def _current(self, rows: pa.Table, events: KeyEvents) -> tuple[pa.Table, Iterator[tuple[str, pa.Table]]]:
        last = last_events(events)
        if DELETED in self._table.stamps:
            return _SoftDeletes(self._table, rows, events, last).merged(self._old())
        index = _index(self._table, last.keys)
        others = (old.filter(pa.array(index.find(old) == _NO_ROW)) for old in self._old())
        numbers = last.rows[~last.is_deletion]
        new = taken(self._table, rows, numbers)
        if self._table.stamps:
            new = stamped(new, rows.take(pa.array(numbers)), self._table.stamps, is_deleted=False)
        return new, ((ROWS, old) for old in others)

    def _span(self, rows: pa.Table | None) -> Range | None:
        """The least and the largest place of these changes."""
        if rows is None or not rows.num_rows:
            return None
        found = places(rows.select(self._key))
        return int(found.min()), int(found.max())

    def _writer(self, new: pa.Table, span: Range | None) -> LeafWriter:
        """The writer of the new leaves, with a range for each; ``new`` are rows that come to them.

        The places of the changes lie in ``span``.
        """
        files = self._group.files
        count = sum(file.rows for file in files)
        size = self._group.size
        size += new.num_rows * size // count if count else new.nbytes // _COMPRESSION
        parts = [np.zeros(0, np.int64)]
        is_part = span is not None and size > leaves.JOINED_BYTES and leaves.is_part(self._group, span)
        if size > leaves.MOST_BYTES or is_part:
            paths = [file.path for file in files]
            parts.append(places(new.select(self._key)))
            for old in read(self._system, paths, self._table.schema, self._key):
                found = places(old)
                parts.append(found[_within(self._group, found)])
        sample = np.concatenate(parts)
        edges = leaves.edges(sample, size, span) if span is not None and is_part else ()
        ranges = cut(self._group, sample, size, edges) if self._group.ranges else []
        return self._new_writer(ROWS, ranges)

    def _new_writer(self, kind: str, ranges: Sequence[tuple[int, int]]) -> LeafWriter:
        table = self._table
        return LeafWriter(
            self._system, table.schema, self._key, kind=kind, ranges=ranges, indexed=table.indexed
        )

    # Histories.

    def _past(self, rows: pa.Table, events: KeyEvents) -> tuple[pa.Table, Iterator[tuple[str, pa.Table]]]:
        made, ending, firsts = versions(events)
        moments = rows["_ts"].combine_chunks().cast(self._table.schema.field("valid_from").type)
        is_last = ending < 0
        states = self._states(rows, events, made, ending, moments)
        first = events.take(firsts)
        index, ends = _index(self._table, first.keys), moments.take(pa.array(first.rows))

        def others() -> Iterator[tuple[str, pa.Table]]:
            for old in self._old():
                is_current = _flags(old["is_current"])
                where = index.find(old)
                ended = is_current & (where != _NO_ROW)
                yield ROWS, old.filter(pa.array(is_current & ~ended))
                yield PAST, old.filter(pa.array(~is_current))
                yield PAST, _ended(old.filter(pa.array(ended)), ends.take(pa.array(where[ended])))
            yield PAST, states.filter(pa.array(~is_last))

        return states.filter(pa.array(is_last)), others()

    def _states(
        self, rows: pa.Table, events: KeyEvents, made: Numbers, ending: Numbers, moments: pa.Array
    ) -> pa.Table:
        """The new states, each with its interval."""
        is_last = ending < 0
        begins = moments.take(pa.array(events.rows[made]))
        ends = moments.take(pa.array(events.rows[np.where(is_last, 0, ending)]))
        own = {
            "valid_from": begins,
            "valid_to": pc.if_else(pa.array(is_last), pa.scalar(None, ends.type), ends),
            "is_current": pa.array(is_last),
            "_seq": rows["_seq"].take(pa.array(events.rows[made])),
        }
        states = taken(self._table, rows, events.rows[made])
        for name, values in own.items():
            place = states.schema.get_field_index(name)
            states = states.set_column(place, states.schema.field(place), values)
        return states


def taken(table: LeafTable, rows: pa.Table, numbers: Numbers) -> pa.Table:
    """Some rows in the columns of the table."""
    names = [name for name in column_names(rows) if name in table.schema.names]
    return aligned(rows.select(names).take(pa.array(numbers)), table.schema)


class _SoftDeletes:
    """The rows of a group after its changes; deleted rows stay as they were last.

    A deleted row is taken from the log's delete. If that lacks columns, it is the row after the change before, or the
    old row of the group.
    """

    def __init__(self, table: LeafTable, rows: pa.Table, events: KeyEvents, last: KeyEvents) -> None:
        self._table = table
        self._rows = rows
        self._last = last
        made = last_events(events.take(np.flatnonzero(~events.is_deletion)))
        has_all = _flags(pc.and_(pc.equal(rows["_op"], "delete"), rows["_absent"].is_null()))
        before = _index(table, made.keys).find(last.keys)
        #: For each last event the row with its values; -1: the old row of the group has them.
        self._values = np.where(before == _NO_ROW, _NO_ROW, made.rows[before]) if len(made.rows) else before
        known = ~last.is_deletion | has_all[last.rows]
        self._values = np.where(known, last.rows, self._values)

    def merged(self, olds: Iterator[pa.Table]) -> tuple[pa.Table, Iterator[tuple[str, pa.Table]]]:
        """The rows that the changes give whole; and all others."""
        last, is_known = self._last, self._values != _NO_ROW
        new = pa.concat_tables(
            self._stamped(
                taken(self._table, self._rows, self._values[chosen]), last.rows[chosen], is_deleted=is_deleted
            )
            for is_deleted in (False, True)
            for chosen in [np.flatnonzero(is_known & (last.is_deletion == is_deleted))]
        )

        def others() -> Iterator[tuple[str, pa.Table]]:
            index, is_found = _index(self._table, last.keys), is_known.copy()
            for old in olds:
                where = index.find(old)
                yield ROWS, old.filter(pa.array(where == _NO_ROW))
                lacking = np.flatnonzero((where != _NO_ROW) & ~is_known[where])
                is_found[where[lacking]] = True
                rows = old.take(pa.array(lacking))
                yield ROWS, self._stamped(rows, last.rows[where[lacking]], is_deleted=True)
            lost = np.flatnonzero(~is_found)
            keys = aligned(last.keys.take(pa.array(lost)), self._table.schema)
            yield ROWS, self._stamped(keys, last.rows[lost], is_deleted=True)

        return new, others()

    def _stamped(self, rows: pa.Table, numbers: Numbers, *, is_deleted: bool) -> pa.Table:
        changes = self._rows.select(["_seq", "_ts"]).take(pa.array(numbers))
        return stamped(rows, changes, self._table.stamps, is_deleted=is_deleted)


def _index(table: LeafTable, keys: pa.Table) -> "KeyIndex":
    return KeyIndex(aligned(keys, pa.schema([table.schema.field(name) for name in table.key])))


def _ended(rows: pa.Table, ends: pa.Array) -> pa.Table:
    for name, values in (("valid_to", ends), ("is_current", pa.repeat(pa.scalar(False), rows.num_rows))):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), values)
    return rows


class KeyIndex:
    """Finds the rows that have one of some keys, which are all different."""

    def __init__(self, keys: pa.Table) -> None:
        self._names = keys.schema.names
        self._columns: list[tuple[pa.Array, Numbers]] = []
        codes = np.zeros(keys.num_rows, np.int64)
        for column in keys.columns:
            values = pc.unique(column)
            # Number the values, then the combinations with earlier columns: no number exceeds the square of the rows.
            combined = codes * len(values) + _numbers(pc.index_in(column, value_set=values))
            known, codes = np.unique(combined, return_inverse=True)
            self._columns.append((values, known))
        self._rows = np.empty(len(codes), np.int64)
        self._rows[codes] = np.arange(len(codes))

    def find(self, rows: pa.Table) -> Numbers:
        """For each row the number of its key; -1 for rows with other keys."""
        codes = np.zeros(rows.num_rows, np.int64)
        if not len(self._rows):
            return codes + _NO_ROW
        is_found = np.ones(rows.num_rows, np.bool_)
        for name, (values, known) in zip(self._names, self._columns, strict=True):
            own = _numbers(pc.index_in(rows[name], value_set=values))
            combined = codes * len(values) + own
            codes = np.minimum(np.searchsorted(known, combined), len(known) - 1)
            is_found &= (own >= 0) & (known[codes] == combined)
        return np.where(is_found, self._rows[codes], _NO_ROW)


def _numbers(indexes: pa.ChunkedArray) -> Numbers:
    found: Numbers = pc.fill_null(indexes, _NO_ROW).to_numpy().astype(np.int64)
    return found


def _flags(values: pa.ChunkedArray) -> Flags:
    found: Flags = values.to_numpy()
    return found
