"""Merges of kept tables, from their waiting rows to their commits.

A merge is planned for the present version of a table. If another writer commits meanwhile, its commit is refused, and
the merge is planned anew. An error of one table stops the merge of that table only.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from protocol.errors import CheckpointError, ReplicaError, SchemaMismatchError
from protocol.records import field, record, replace

from .append_tasks import append
from .changes_per_key import column_names
from .job_state import TableState, Waiting
from .kept_table import ATTEMPTS, OTHERS, KeptTable, Step
from .merge_tasks import merge
from .merges import Merge, Merged
from .spark_session import our_errors
from .table_versions import lost_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# deltalake releases Python's lock; more threads are not faster.
_THREADS: Final = 4
_One = TypeVar("_One")
_Result = TypeVar("_Result")


@record(frozen=True, slots=True)
class TableMerge:
    """A table with its waiting rows, and the two steps by which it gets their columns, then the rows."""

    table: KeptTable
    waiting: Waiting
    known: TableState
    conforming: Step
    applying: Step


@record(frozen=True, slots=True)
class Merger:
    """Merges tables of one target. ``on_trouble`` gets the name of a table and its error, which it may raise.

    ``check`` is called before tables are committed, and raises if another driver has taken the job over.
    """

    path: str
    storage: Mapping[str, str]
    spark: "SparkSession | None"
    on_trouble: Callable[[str, ReplicaError], None] = field(repr=False)
    check: Callable[[], object] = field(repr=False)

    def run(self, tables: Iterable[TableMerge]) -> None:
        """Merge tables. Those that have their rows already are passed over."""
        tables = list(filter(self._is_whole, tables))
        conformed = self._each(_conform, tables)
        waiting = [one for one, is_needed in zip(tables, conformed, strict=True) if is_needed]
        for _ in range(ATTEMPTS):
            if not waiting:
                return
            planned = _each(_planned, waiting)
            pairs = [
                (one, found)
                for one, found in zip(waiting, self._merged(waiting, planned), strict=True)
                if found is not None
            ]
            # Reading the log, and merging, may have taken minutes.
            self.check()
            done = _each(_committed, pairs)
            waiting = [one for (one, _), is_done in zip(pairs, done, strict=True) if not is_done]
        raise CheckpointError(f"{waiting[0].table.path}: {OTHERS}")

    def _is_whole(self, one: TableMerge) -> bool:
        """Whether a table has the rows that its state says it has."""
        error = lost_rows(one.table, one.known)
        if error is not None:
            self.on_trouble(one.table.name, error)
        return error is None

    def _each(self, function: Callable[[TableMerge], bool], tables: Sequence[TableMerge]) -> list[bool]:
        """The results of the function for each table; False for a table with an error."""

        def attempt(one: TableMerge) -> bool | ReplicaError:
            try:
                return function(one)
            except SchemaMismatchError as error:
                return error

        found = _each(attempt, tables)
        for one, result in zip(tables, found, strict=True):
            if isinstance(result, ReplicaError):
                self.on_trouble(one.table.name, result)
        return [result is True for result in found]

    def _merged(self, tables: Sequence[TableMerge], planned: Sequence[Merge]) -> list[Merged | None]:
        """The files of each merge; None for a table that cannot be merged."""
        try:
            with our_errors():
                run = append if tables[0].table.is_changelog else merge
                return [*run(self.spark, planned, self.path, self.storage)]
        except ReplicaError as error:
            if len(tables) == 1:
                self.on_trouble(tables[0].table.name, error)
                return [None]
        # The error does not name its table: merge each table by itself.
        return [
            found for one, plan in zip(tables, planned, strict=True) for found in self._merged([one], [plan])
        ]


def _conform(one: TableMerge) -> bool:
    """Give a table the columns of its rows. Returns False if it has the rows already."""
    rows, known = one.waiting.schema.empty_table(), one.known
    is_taken = one.table.is_taken(one.applying)
    if not is_taken:
        new = set(column_names(rows)) - one.table.fields().keys()
        _check_seed(one.table.name, known, new)
        one.table.conform(rows, known.fills, one.conforming)
    known.note_merge(column_names(rows), one.waiting.key)
    return not is_taken


def _check_seed(name: str, known: TableState, new: set[str]) -> None:
    """Raises ``SchemaMismatchError`` for columns from neither the seed nor a statement: they would be null."""
    lacking = new - known.defaults.keys() - known.kinds.keys()
    if known.is_seeded and lacking:
        raise SchemaMismatchError(f"{name}: its seed, or its copy, lacks {', '.join(sorted(lacking))}")


def _planned(one: TableMerge) -> Merge:
    planned = one.table.planned(one.waiting.key, one.known.defaults, one.waiting.parts)
    return replace(planned, table=replace(planned.table, is_settling=one.known.is_settling))


def _committed(pair: tuple[TableMerge, Merged]) -> bool:
    """Commit a merge. Returns False if it must be planned anew."""
    one, merged = pair
    is_done = one.table.replace_files(merged, one.applying)
    one.known.size, one.known.rows = one.table.size, one.table.row_count
    one.known.merged_at, one.known.merged_batch = int(time.time()), one.applying.batch
    return is_done


def _each(function: Callable[[_One], _Result], items: Iterable[_One]) -> list[_Result]:
    """The results of the function for each item; several threads call it."""
    items = list(items)
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, items))
