"""Row changes of one table, in the order of the log -> the changes of each key. Pure Arrow, no Spark and no Delta.

    separated     rows -> rows of one key each: an update that moves a key deletes one and inserts another
    complete      rows of MINIMAL images -> whole rows: missing columns have the values of the row before
    key_events    rows -> the events of keys: an update that changes the key deletes one and creates another
    last_events   -> the last event of each key, for ``mirror``
    versions      -> each state of a row with its interval, for ``history``

Rows are those of packed mode: the table's columns, ``_op`` and the other facts, ``_before``, and the lists of columns
that row images lack.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from protocol.errors import SchemaMismatchError
from protocol.records import record

from ..packed_items import own_columns

Key = tuple[Any, ...]
Numbers = npt.NDArray[np.int64]
# Reads the rows with these keys, in any order, with all their columns.
ReadRows = Callable[[pa.Table], pa.Table]

_NOWHERE: Final = -1
#: The facts beside the columns and ``_before`` that this module needs.
KEPT_FACTS: Final = ("_op", "_seq", "_ts", "_absent")


def column_names(rows: pa.Table) -> list[str]:
    """The names of the table's own columns."""
    return [field.name for field in own_columns(rows.schema)]


# Whole rows.


def lacks_values(rows: pa.Table) -> bool:
    """Whether the row of an insert or update lacks columns."""
    has_absent = pc.and_(pc.is_valid(rows["_absent"]), pc.not_equal(rows["_op"], "delete"))
    return bool(pc.any(has_absent).as_py())


def complete(
    name: str,
    rows: pa.Table,
    key: Sequence[str],
    read_rows: ReadRows,
    defaults: Mapping[str, pa.Scalar],
    *,
    is_settling: bool = False,
) -> pa.Table:
    """Fill in the columns that the images of the rows lack.

    In an update's row such a column gets the value of the row before: from an earlier change in ``rows``, else from
    ``read_rows``. In an insert's row it gets the column's default. Raises ``SchemaMismatchError`` if neither is
    known. Only while a table ``is_settling``, an update without a row before deletes the row with its old key instead
    (``rows_again`` says why).
    """
    if not lacks_values(rows):
        return rows
    return _Completion(name, rows, key, defaults, is_settling).complete(read_rows)


class _Completion:
    """Finds for each value of each row, row by row, where it comes from: from these rows, or from rows to be read."""

    def __init__(
        self,
        name: str,
        rows: pa.Table,
        key: Sequence[str],
        defaults: Mapping[str, pa.Scalar],
        is_settling: bool,
    ) -> None:
        self._is_settling = is_settling
        self._name = name
        self._rows = rows
        self._key = tuple(key)
        self._names = column_names(rows)
        self._defaults = defaults
        self._number = {column: index for index, column in enumerate(self._names)}
        # Key -> for each column the number of the row that has its value; and the key that the row had at first.
        self._current: dict[Key, tuple[list[int], Key | None]] = {}

    def complete(self, read_rows: ReadRows) -> pa.Table:
        sources: list[list[int]] = []
        bases: list[Key | None] = []
        for source, base in self._walk():
            sources.append(source)
            bases.append(base)
        base_rows = self._read(bases, sources, read_rows)
        rows = self._build(np.array(sources, np.int64).reshape(len(sources), -1), bases, base_rows)
        lost = [
            base is not None and _NOWHERE in source and base not in self._places
            for base, source in zip(bases, sources, strict=True)
        ]
        return self._without(rows, np.array(lost, np.bool_)) if any(lost) else rows

    def _walk(self) -> Iterator[tuple[list[int], Key | None]]:
        rows = self._rows
        keys = _tuples(rows, self._key)
        before = rows["_before"].combine_chunks()
        keys_before = _tuples(
            pa.Table.from_arrays([pc.struct_field(before, name) for name in self._key], names=self._key),
            self._key,
        )
        facts = zip(rows["_op"].to_pylist(), rows["_absent"].to_pylist(), strict=True)
        for number, (op, absent) in enumerate(facts):
            key = keys[number]
            whole = [number] * len(self._names)
            if op == "delete":
                self._current.pop(key, None)
                yield whole, None
                continue
            state: tuple[list[int], Key | None]
            if op == "insert":
                state = self._inserted(whole, absent), None
            else:
                state = self._updated(whole, absent, keys_before[number])
                self._current.pop(keys_before[number], None)
            self._current[key] = state
            yield state

    def _inserted(self, whole: list[int], absent: Sequence[str] | None) -> list[int]:
        for column in absent or ():
            if column not in self._defaults:
                raise SchemaMismatchError(
                    f"{self._name}: an INSERT's row lacks {column}, so its value is the column's default, which is "
                    "not known: SET GLOBAL binlog_row_image=FULL on the source"
                )
            whole[self._number[column]] = _NOWHERE - 1
        return whole

    def _updated(
        self, whole: list[int], absent: Sequence[str] | None, before: Key
    ) -> tuple[list[int], Key | None]:
        known = self._current.get(before)
        if not absent:
            return whole, None
        source, base = known if known is not None else ([_NOWHERE] * len(whole), before)
        for column in absent:
            whole[self._number[column]] = source[self._number[column]]
        return whole, base

    def _read(
        self, bases: Sequence[Key | None], sources: Sequence[Sequence[int]], read_rows: ReadRows
    ) -> pa.Table:
        wanted = list(
            dict.fromkeys(
                base
                for base, source in zip(bases, sources, strict=True)
                if base is not None and _NOWHERE in source
            )
        )
        fields = [self._rows.schema.field(name) for name in self._key]
        keys = pa.Table.from_arrays(
            [pa.array([key[i] for key in wanted], field.type) for i, field in enumerate(fields)],
            schema=pa.schema(fields),
        )
        found = read_rows(keys) if wanted else self._rows.schema.empty_table()
        self._places = {key: place for place, key in enumerate(_tuples(found, self._key))}
        missing = next((key for key in wanted if key not in self._places), None)
        if missing is not None and not self._is_settling:
            raise SchemaMismatchError(
                f"{self._name}: an update of the row with the key {missing!r} lacks columns (binlog_row_image), and "
                "the target has no such row to take them from"
            )
        return found

    def _build(self, sources: Numbers, bases: Sequence[Key | None], base_rows: pa.Table) -> pa.Table:
        rows, size = self._rows, self._rows.num_rows
        places = np.array([-1 if base is None else self._places.get(base, -1) for base in bases], np.int64)
        for number, name in enumerate(self._names):
            source = sources[:, number]
            field = rows.schema.field(name)
            parts = [rows[name].combine_chunks()]
            if name in base_rows.schema.names:
                parts.append(base_rows[name].combine_chunks().cast(field.type))
            else:
                # The target does not have the column yet: no row has had a value in it.
                parts.append(pa.nulls(base_rows.num_rows, field.type))
            default = self._defaults.get(name)
            parts.append(
                pa.nulls(1, field.type) if default is None else pa.array([default.as_py()], field.type)
            )
            index = np.where(source >= 0, source, size + places)
            index = np.where(source == _NOWHERE - 1, size + base_rows.num_rows, index)
            values = pa.concat_arrays(parts).take(pa.array(index))
            rows = rows.set_column(rows.schema.get_field_index(name), field, values)
        return rows

    def _without(self, rows: pa.Table, is_lost: npt.NDArray[np.bool_]) -> pa.Table:
        """Leave out these updates, whose row before is not known; updates that change the key delete the old key."""
        is_moved = np.zeros(rows.num_rows, np.bool_)
        is_moved[moved(rows, self._key)] = True
        before, lost = rows["_before"].combine_chunks(), pa.array(is_lost)
        rows = _replaced(rows, "_op", pc.if_else(lost, "delete", rows["_op"]))
        for column in self._key:
            rows = _replaced(
                rows, column, pc.if_else(lost, pc.struct_field(before, column), rows[column].combine_chunks())
            )
        return rows.filter(pa.array(~is_lost | is_moved))


def _tuples(rows: pa.Table, names: Sequence[str]) -> list[Key]:
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


# Keys that move.


def moved(rows: pa.Table, key: Sequence[str]) -> Numbers:
    """The numbers of the rows that are updates of the key."""
    before = rows["_before"].combine_chunks()
    is_moved = np.zeros(rows.num_rows, np.bool_)
    for name in key:
        differs = pc.not_equal(rows[name].combine_chunks(), pc.struct_field(before, name))
        is_moved |= _flags(pc.fill_null(differs, True))
    return np.flatnonzero(is_moved & _flags(pc.equal(rows["_op"], "update")))


def separated(name: str, rows: pa.Table, key: Sequence[str], *, always: bool = False) -> pa.Table:
    """The rows, with a deletion and an insert for each update that changes the key.

    An update that lacks columns stays one row, unless ``always``. Raises ``SchemaMismatchError`` for rows whose key
    is not known.
    """
    check_keys(name, rows, key)
    numbers = moved(rows, key)
    if not always:
        numbers = numbers[_flags(rows["_absent"].is_null())[numbers]]
    return split_updates(rows, numbers, key) if len(numbers) else rows


def split_updates(rows: pa.Table, numbers: Numbers, known: Sequence[str]) -> pa.Table:
    """The rows, with a deletion and an insert for each update with one of these numbers.

    The deletion has the ``known`` columns of the row before, and lacks all others.
    """
    is_split = np.zeros(rows.num_rows, np.bool_)
    is_split[numbers] = True
    olds = rows.take(pa.array(numbers))
    before, size = olds["_before"].combine_chunks(), len(numbers)
    others = [column for column in column_names(rows) if column not in known]
    for column in known:
        olds = _replaced(olds, column, pc.struct_field(before, column))
    for column in others:
        olds = _replaced(olds, column, pa.nulls(size, rows.schema.field(column).type))
    if others:
        olds = _replaced(olds, "_absent", pa.array([others] * size, rows.schema.field("_absent").type))
    elif "_before_absent" in rows.schema.names:
        olds = _replaced(olds, "_absent", olds["_before_absent"])
    olds = _replaced(olds, "_op", pa.repeat(pa.scalar("delete"), size))
    olds = _replaced(olds, "_before", pa.nulls(size, before.type))
    news = _replaced(rows, "_op", pc.if_else(pa.array(is_split), "insert", rows["_op"]))
    # The old key is deleted before the new one is created.
    order = np.argsort(np.concatenate([np.arange(rows.num_rows) * 2 + 1, numbers * 2]), kind="stable")
    return pa.concat_tables([news, olds]).take(pa.array(order))


def _replaced(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(place), values)


def check_keys(name: str, rows: pa.Table, key: Sequence[str]) -> None:
    """Raises ``SchemaMismatchError`` for rows whose key is not known."""
    before = rows["_before"].combine_chunks()
    is_update = _flags(pc.equal(rows["_op"], "update"))
    for column in key:
        _check_known(name, column, rows[column], None)
        _check_known(name, column, pc.struct_field(before, column), is_update)


# The events of keys.


@record(frozen=True, slots=True)
class KeyEvents:
    """Events of keys, in the order of the log.

    ``keys`` has the columns of the key, ``rows`` the number of the row that causes each event, ``is_deletion``
    whether the row deletes the key.
    """

    keys: pa.Table
    rows: Numbers
    is_deletion: npt.NDArray[np.bool_]

    def take(self, indexes: Numbers) -> "KeyEvents":
        """The events with these indexes."""
        return KeyEvents(self.keys.take(pa.array(indexes)), self.rows[indexes], self.is_deletion[indexes])


def key_events(name: str, rows: pa.Table, key: Sequence[str]) -> KeyEvents:
    """The events of keys that the rows cause. Raises ``SchemaMismatchError`` for rows whose key is not known."""
    check_keys(name, rows, key)
    keys = rows.select(list(key))
    before = rows["_before"].combine_chunks()
    moving = moved(rows, key)
    numbers = np.arange(rows.num_rows)
    is_deletion = _flags(pc.equal(rows["_op"], "delete"))
    if not len(moving):
        return KeyEvents(keys.combine_chunks(), numbers, is_deletion)
    olds = [pc.struct_field(before, column) for column in key]
    old_keys = pa.Table.from_arrays(olds, schema=keys.schema).take(pa.array(moving))
    # The old key is deleted before the new one is created.
    order = np.argsort(np.concatenate([numbers * 2 + 1, moving * 2]), kind="stable")
    both = KeyEvents(
        pa.concat_tables([keys, old_keys]).combine_chunks(),
        np.concatenate([numbers, moving]),
        np.concatenate([is_deletion, np.ones(len(moving), np.bool_)]),
    )
    return both.take(order)


def last_events(events: KeyEvents) -> KeyEvents:
    """The last event of each key."""
    names = events.keys.schema.names
    numbered = pa.Table.from_arrays(
        [*events.keys.columns, pa.array(np.arange(len(events.rows)))],
        names=[*map(str, range(len(names))), "n"],
    )
    last = numbered.group_by(list(map(str, range(len(names)))), use_threads=False).aggregate([("n", "max")])
    return events.take(np.sort(last["n_max"].to_numpy()))


def versions(events: KeyEvents) -> tuple[Numbers, Numbers, Numbers]:
    """The versions (states with an interval) that result from the events of ``key_events``.

    Returns the indexes of the events that begin a version; for each of these the index of the event that ends the
    version, or -1; and the indexes of the first events of all keys.
    """
    names = list(map(str, range(events.keys.num_columns)))
    numbered = pa.Table.from_arrays(
        [*events.keys.columns, pa.array(np.arange(len(events.rows)))], names=[*names, "n"]
    )
    order = pc.sort_indices(numbered, [(name, "ascending") for name in [*names, "n"]]).to_numpy()
    is_same = np.ones(max(len(order) - 1, 0), np.bool_)
    ordered = numbered.take(pa.array(order))
    for name in names:
        column = ordered[name].combine_chunks()
        is_same &= _flags(pc.equal(column.slice(1), column.slice(0, max(len(column) - 1, 0))))
    following = np.full(len(order), -1, np.int64)
    following[order[:-1][is_same]] = order[1:][is_same]
    is_first = np.ones(len(order), np.bool_)
    is_first[order[1:][is_same]] = False
    made = np.flatnonzero(~events.is_deletion)
    return made, following[made], np.flatnonzero(is_first)


def _check_known(name: str, column: str, values: pa.Array, wanted: npt.NDArray[np.bool_] | None) -> None:
    is_null = _flags(values.is_null())
    if wanted is not None:
        is_null = is_null & wanted
    if is_null.any():
        raise SchemaMismatchError(
            f"{name}: a row's key column {column} is not in the log, or is a date that no calendar has: the row "
            "cannot be found by its key -- exclude the table"
        )


def _flags(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    flags: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return flags
