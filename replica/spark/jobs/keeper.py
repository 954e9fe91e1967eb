"""Micro-batches one after another: rows that wait between them, when tables are merged, and the state of the job.

    micro-batch -> steps of statements; rows wait    -> tables that are due are merged -> the state is saved
    now and then, without a micro-batch                 tables that are due are merged -> the state is saved

A table is due when its waiting rows are a share of it, or have waited for some minutes. A kill at any time repeats no
merge: a table records the steps of its merges, and the state is only saved after them. Then files of rows that are no
longer needed are deleted.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from protocol.records import record, replace

from ..packed_items import PackedItem
from . import job_state
from .changes_per_key import column_names
from .checkpoints import end_of, has_begun
from .job_state import JobState, TableState, Waiting
from .leaves import MOST_BYTES
from .micro_batch import Batch
from .staging import Staged, StagingFile, delete_files
from .table_versions import note_versions, older_tables
from .target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .read_again import ReadAgain

#: A table is merged when so large a share of it waits; a table smaller than a leaf counts as a leaf.
_SHARE: Final = 0.05
# The state names each waiting part; when there are more than so many, all tables are merged.
_MOST_PARTS: Final = 20_000
# Merges after a micro-batch have the steps from this number on; each has its own range.
_LATER_STEPS: Final = 1_000_000
_VACUUM_SECONDS: Final = 3600
_SAVES_PER_VACUUM: Final = 100
_STATE_HOURS: Final = 1
_READER_SECONDS: Final = 120
_Result = TypeVar("_Result")
# A lock for each target of this process. The threads of a job that was stopped may still be at work when it is
# started again: they would write an older state over a newer one, and delete files that the older does not name.
_locks: "Final[WeakValueDictionary[str, threading.Lock]]" = WeakValueDictionary()


@record(frozen=True, slots=True)
class MergePolicy:
    """When tables are merged: ``seconds`` after their first waiting row; 0: with each micro-batch.

    ``retention_hours``: delete files that no version of the last so many hours has; None: delete none. ``due_bytes``:
    merge a table when so many bytes wait; None: when a share of the table waits.
    """

    seconds: float = 0
    retention_hours: int | None = None
    due_bytes: int | None = None

    def is_due(self, table: TableState, waiting: Waiting, now: float) -> bool:
        """Whether a table is merged now."""
        least = _SHARE * max(table.size, MOST_BYTES) if self.due_bytes is None else self.due_bytes
        return waiting.size >= least or now - waiting.since >= self.seconds


class Keeper:
    """The tables of one job in one process. Its methods may be called from several threads."""

    def __init__(
        self,
        target: Target,
        begin: JobState,
        policy: MergePolicy | None = None,
        checkpoint: str | None = None,
        read_again: "ReadAgain | None" = None,
    ) -> None:
        """``begin`` is the state of a new job. Without a policy tables are merged with each micro-batch.

        ``checkpoint`` is the checkpoint of the query, ``read_again`` reads from the source of the query.
        """
        self._checkpoint = checkpoint
        self._read_again = read_again
        self._target = target
        self._begin = begin
        self._policy = policy or MergePolicy()
        self._lock = _locks.setdefault(target.path, threading.Lock())
        #: Whether the job runs: its own threads end with it. A job that is started again waits for them.
        self.is_active: Callable[[], bool] = lambda: True
        # Query, number of the last micro-batch, and the state after it; None until this process has saved a state.
        self._saved: tuple[str, int, JobState] | None = None
        #: Files of rows that come with later micro-batches.
        self.coming: frozenset[str] = frozenset()
        self._saves = 0
        # The part of the state that was last written as progress; a change of it is written again.
        self._shown: tuple[dict[str, str], dict[str, int]] = {}, {}
        self._vacuumed: dict[str, float] = {}

    def run(
        self,
        query: str,
        number: int,
        items: Callable[[], Iterable[Staged]],
        spark: "SparkSession | None" = None,
    ) -> None:
        """Run one micro-batch, unless it is done already."""
        with self._lock:
            self._target = replace(self._target, spark=spark)
            known, self._saved = self._saved, None
            if known is not None and known[:2] == (query, number - 1):
                self._run(query, number, items, known[2], is_first=False)
            else:
                self._begin_with(query, number, items)
            self._settle()

    def _begin_with(self, query: str, number: int, items: Callable[[], Iterable[Staged]]) -> None:
        """Run the first micro-batch of this process."""
        found = job_state.load(self._target.path, query, number, self._target.storage)
        state, done = found if found is not None else (JobState.from_rows(self._begin.rows()), -1)
        if found is not None and forget_merged(self._target, query, done, state):
            # Saved now: after its next step, a table no longer shows that it was merged before.
            state.merges += 1
            job_state.save(self._target.path, state, query, done, self._target.storage)
        batch = _later_batch(self._target, query, done, state)
        for name, error in older_tables(self._target, state):
            batch.trouble(name, error)
        if done >= number:
            self._saved = query, done, state
        else:
            self._run(query, number, items, state, is_first=True)

    def merge_waiting(self, *, is_end: bool = False) -> None:
        """Merge the tables that are due; at the end of a job, all tables with waiting rows."""
        with self._lock:
            if self.is_active():
                self._settle()
                self._merge_waiting(is_end=is_end)

    def _merge_waiting(self, *, is_end: bool) -> None:
        if self._saved is None:
            return
        query, number, state = self._saved
        now = time.time()
        names = [
            name
            for name, rows in state.waiting.items()
            if name not in state.holds and (is_end or self._has_waited(rows, now))
        ]
        if not names:
            return
        self._saved = None
        self._check(state)
        batch = _later_batch(self._target, query, number, state)
        batch.merge(*names)
        state.merges += 1
        self._save(query, number, state, batch)

    def settle(self, spark: "SparkSession") -> None:
        """Finish the work of an earlier process, before the first micro-batch, as none may come.

        Rows of copied tables are read again if that process could not read them, because they were locked or the
        like. If tables are merged with each micro-batch, rows that waited in that process are merged.
        """
        with self._lock:
            found = job_state.peek(self._target.path, self._target.storage)
            if found is None or self._checkpoint is None:
                return
            state, query, number = found
            if not state.again and (self._policy.seconds or not state.waiting):
                return
            known, following = (
                has_begun(self._checkpoint, one, self._target.storage) for one in (number, number + 1)
            )
            # A micro-batch that will be run again may have merged already, and reads rows again itself.
            if not known or following:
                return
            self._target = replace(self._target, spark=spark)
            forget_merged(self._target, query, number, state)
            self._saved = query, number, state
            self._settle()
            if not self._policy.seconds:
                self._merge_waiting(is_end=True)
            self._saved = None

    def _settle(self) -> None:
        """Read rows of copied tables again, if the stream has passed the place for which they wait."""
        if self._saved is None or self._checkpoint is None or self._read_again is None:
            return
        query, number, state = self._saved
        if not state.again:
            return
        end = end_of(self._checkpoint, number, self._target.storage)
        if not self._read_again.is_due(state, end):
            return
        self._saved = None
        self._check(state)
        batch = _later_batch(self._target, query, number, state)
        self._read_again.run(state, batch, end)
        state.merges += 1
        self._save(query, number, state, batch)
        if not self._policy.seconds:
            self._merge_waiting(is_end=True)

    # Tables that are copied anew.

    def change(self, change: Callable[[JobState, Batch], _Result], spark: "SparkSession") -> _Result | None:
        """Change the state between two micro-batches, and save it; None without a state, or if the job has ended."""
        with self._lock:
            if not self.is_active():
                return None
            self._target = replace(self._target, spark=spark)
            saved = self._saved
            if saved is None:
                found = job_state.peek(self._target.path, self._target.storage)
                if found is None:
                    return None
                state, query, number = found
                forget_merged(self._target, query, number, state)
            else:
                query, number, state = saved
            self._saved = None
            self._check(state)
            batch = _later_batch(self._target, query, number, state)
            result = change(state, batch)
            state.merges += 1
            self._save(query, number, state, batch)
            if saved is None:
                # An earlier process may have begun the next micro-batch; then the tables are asked for its steps.
                self._saved = None
            return result

    def _has_waited(self, waiting: Waiting, now: float) -> bool:
        return now - waiting.since >= self._policy.seconds

    def _run(
        self,
        query: str,
        number: int,
        items: Callable[[], Iterable[Staged]],
        state: JobState,
        *,
        is_first: bool,
    ) -> None:
        self._check(state)
        state.merges = 0
        kind = self._target.kind
        state.is_history, state.is_changelog, state.stamps = kind.facts()
        batch = Batch(self._target, state, query, number)
        batch.run(items())
        now = time.time()
        is_full = sum(len(rows.parts) for rows in state.waiting.values()) > _MOST_PARTS
        due = [
            name
            for name, rows in state.waiting.items()
            if name not in state.holds
            and (
                is_full
                or self._policy.is_due(state.tables[name], rows, now)
                # An earlier run of this micro-batch may have merged the table before it was killed.
                or (is_first and batch.has_merged(name))
            )
        ]
        batch.merge(*due)
        for name in state.holds.keys() & state.waiting.keys() if is_first else ():
            if batch.has_merged(name):
                # An earlier run merged the table, and it has been held since.
                _forget(state, name)
        if state.copied is not None and self._checkpoint is not None:
            end = end_of(self._checkpoint, number, self._target.storage)
            state.reach(end.file, end.position, end.epoch)
        self._save(query, number, state, batch)

    def _check(self, state: JobState) -> None:
        """End before the tables are changed if another driver has taken the job over: saving would be refused."""
        job_state.check_newest(self._target.path, state, self._target.storage)

    def _save(self, query: str, number: int, state: JobState, batch: Batch) -> None:
        target = self._target
        if state.copied is None:
            _publish(state, batch)
        note_versions(state, batch.tables())
        job_state.save(target.path, state, query, number, target.storage)
        # ``read_current`` may still be reading rows that waited until now.
        seconds = _READER_SECONDS if self._policy.seconds else 0
        delete_files(target.path, target.storage, state.files() | self.coming, seconds)
        self._saved = query, number, state
        shown = (
            dict(state.parked),
            {name: table.merged_at + table.since for name, table in state.tables.items()},
        )
        if shown != self._shown:
            job_state.save_progress(target.path, state, number, target.storage)
            self._shown = shown
        self._saves += 1
        if self._saves % _SAVES_PER_VACUUM == 0:
            saved = None if state.saved is None else state.saved.table
            job_state.vacuum(target.path, _STATE_HOURS, target.storage, saved)
        self._vacuum(batch)

    def _vacuum(self, batch: Batch) -> None:
        hours, now = self._policy.retention_hours, time.monotonic()
        if hours is None:
            return
        for table in batch.tables():
            if now - self._vacuumed.get(table.path, -_VACUUM_SECONDS) >= _VACUUM_SECONDS:
                self._vacuumed[table.path] = now
                table.vacuum(hours)


def forget_merged(target: Target, query: str, number: int, state: JobState) -> bool:
    """Forget rows that have been merged since this micro-batch, though its state still has them.

    The process was killed before it saved the state, or has not saved it yet. Returns whether there are such rows.
    Their table stays in ``waiting``, without rows: when the next micro-batch is run again, the merge of these rows in
    it must count its steps, as all steps after it have the numbers of their first run.
    """
    batch = _later_batch(target, query, number, state)
    found = [
        name for name, waiting in state.waiting.items() if waiting.parts and batch.has_merged_since(name)
    ]
    for name in found:
        _forget(state, name)
    return bool(found)


def _forget(state: JobState, name: str) -> None:
    waiting = state.waiting[name]
    waiting.parts = []
    if name in state.tables:
        state.tables[name].note_merge(column_names(waiting.schema.empty_table()), waiting.key)


def _publish(state: JobState, batch: Batch) -> None:
    """Set the property of copied tables that says since when their versions are states that the source had."""
    unsettled = {*state.waiting, *state.parked, *state.holds, *state.again}
    for name, table in state.tables.items():
        if table.is_seeded and not table.since and name not in unsettled:
            table.since, table.is_settling = int(time.time()), False
            batch.publish(name, table.since)


def _later_batch(target: Target, query: str, number: int, state: JobState) -> Batch:
    first = (state.merges + 1) * _LATER_STEPS
    return Batch(target, state, query, number, first_step=first)


def stage_here(target: Target, items: Iterable[PackedItem]) -> list[Staged]:
    """Write the rows of items to a file."""
    file = StagingFile(target.path, target.storage, is_changelog=target.kind.is_changelog)
    found = [file.stage(item) for item in items]
    file.close()
    return found
