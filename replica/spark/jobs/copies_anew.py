"""Copies tables of a running job anew, and new tables: requests -> copies -> tables of the target.

    hold    the changes of the table wait from now on                 the job's state says so (``keeper``)
    copy    a settled copy of the table, in a folder of its own       its place is after all changes merged before
    take    the copy replaces the table; changes that wait from its place on are merged later

A statement about the table in between ends the hold. Then the table is held again, and the copy goes on from where it
is. Other tables do not wait. When a job is started, it copies tables that were asked for while it did not run, and
tables that it selects now and did not before.
"""

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError, ReplicaError
from protocol.records import record, replace
from protocol.rows.table import table_text

from ...config.options import Options
from ...config.table_filter import exact_pattern
from ...config.table_names import split_text
from ...snapshot.table_list import list_tables
from ...source.dump import Greeted
from . import job_state
from .blocking import run_aside
from .copy_requests import Requests
from .job_state import JobState
from .keeper import Keeper
from .kept_table import Step
from .micro_batch import Batch
from .settled_copy import Settled, SettledCopy, StartMirror
from .spark_session import State
from .stamps import DELETED
from .table_versions import forget_empty
from .target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER: Final = logging.getLogger(__name__)
_ATTEMPTS: Final = 20
_PAUSE: Final = 1.0
_SELECTING: Final = frozenset({"includetables", "excludetables"})


@record(frozen=True, slots=True)
class Resyncs:
    """Copies the tables that were asked for. ``source`` has the options that the job was given."""

    spark: "SparkSession"
    start: StartMirror
    source: Mapping[str, str]
    target: Target
    state: State
    keeper: Keeper
    requests: Requests

    def ask_for_new(self, options: Options) -> None:
        """Ask for the tables of the source that the job selects, and did not when it was started before."""
        found = job_state.peek(self.target.path, self.target.storage)
        wanted = selection(self.source)
        if found is None or found[0].wanted == wanted:
            return
        state = found[0]
        for name in run_aside(_listed(options, self.target)):
            if name not in state.tables and name not in state.parked:
                self.requests.add(name)

        def change(state: JobState, batch: Batch) -> None:
            state.wanted = wanted

        self.keeper.change(change, self.spark)

    def hold(self) -> None:
        """Let the changes of all tables that were asked for wait, and of no others."""
        asked = {request.table: request.id for request in self.requests.open()}
        found = job_state.peek(self.target.path, self.target.storage)
        if found is None or found[0].holds.keys() == asked.keys():
            return

        def change(state: JobState, batch: Batch) -> None:
            for name in state.holds.keys() - asked.keys():
                batch.release(name)
            state.holds = asked | state.holds

        self.keeper.change(change, self.spark)

    def run(self, is_active: Callable[[], bool] = lambda: True) -> None:
        """Copy all tables that were asked for, one after another, as long as the job ``is_active``."""
        for request in self.requests.open():
            try:
                self._copy(request.table, request.id, is_active)
            except Exception as error:
                if not is_active():
                    return
                self._fail(request.table, str(error))
                if not isinstance(error, ReplicaError):
                    _LOGGER.exception("%s", request.table)

    def run_while(self, is_active: Callable[[], bool]) -> None:
        """Copy what is asked for, as long as the job is active."""
        told = ""
        while is_active():
            time.sleep(_PAUSE)
            try:
                self.run(is_active)
            except Exception as error:
                # The store of the target may answer again.
                if str(error) != told and is_active():
                    told = str(error)
                    _LOGGER.error("tables that are to be copied anew wait: %s", told)

    def _copy(self, name: str, request: str, is_active: Callable[[], bool]) -> None:
        if not self.target.wants(name):
            raise ConfigurationError(f"{name}: the job does not select this table")
        selected = {
            option: value for option, value in self.source.items() if option.lower() not in _SELECTING
        }
        selected["includeTables"] = exact_pattern(*split_text(name))
        folder = uuid.uuid5(uuid.NAMESPACE_URL, name).hex
        copy = SettledCopy(self.spark, self.start, selected, folder, self.target, self.state)
        for attempt in range(_ATTEMPTS):
            if not is_active():
                return
            settled, hold = None, ""
            # Waiting changes are merged when a hold begins. A row that is inserted and deleted during the hold leaves
            # no trace, so hold a second time, which is short.
            for number in range(2 if DELETED in self.target.kind.stamps else 1):
                hold = f"{request}-{attempt}-{number}"
                if not self._hold(name, hold):
                    settled = None
                    break
                settled = copy.run()
            if settled is None:
                # The job has no state before its first micro-batch.
                time.sleep(_PAUSE)
                continue
            self._check(name, settled)
            if _has_prepared(settled.state, name):
                time.sleep(_PAUSE)
                continue
            if self._take(name, hold, settled):
                self.requests.done(name)
                copy.delete()
                _LOGGER.info("%s: copied anew", name)
                return
        raise ReplicaError(
            f"{name}: statements, or prepared XA transactions, have changed it each time that it was copied: try "
            "again later"
        )

    def _check(self, name: str, settled: Settled) -> None:
        if name in settled.state.parked:
            raise ReplicaError(settled.state.parked[name])
        if name not in settled.state.tables:
            raise ReplicaError(f"{name}: the source has dropped or renamed it")

    def _hold(self, name: str, hold: str) -> bool:
        def change(state: JobState, batch: Batch) -> bool:
            waiting = state.waiting.get(name)
            if DELETED in self.target.kind.stamps and waiting is not None:
                batch.merge(name)
                # Kept without rows: a killed micro-batch that is run again counts the steps of its merge of this
                # table.
                state.waiting[name] = replace(waiting, parts=[])
            state.holds[name] = hold
            return True

        return bool(self.keeper.change(change, self.spark))

    def _take(self, name: str, hold: str, settled: Settled) -> bool:
        def change(state: JobState, batch: Batch) -> bool:
            is_held = state.holds.get(name) == hold
            if is_held:
                batch.take_over(name, settled, Step(f"copy-{hold}", settled.number, 1))
                for table in batch.tables():
                    forget_empty(table)
            return is_held

        return bool(self.keeper.change(change, self.spark))

    def _fail(self, name: str, why: str) -> None:
        _LOGGER.error("%s is not copied anew: %s", name, why)
        self.keeper.change(lambda _, batch: batch.release(name), self.spark)
        self.requests.add(name, why)


def _has_prepared(state: JobState, name: str) -> bool:
    """Whether an XA transaction is prepared, whose rows the job may have seen before it held the table."""
    return any(rows.table == name for parts in state.prepared.values() for rows in parts)


async def _listed(options: Options, target: Target) -> list[str]:
    greeted = await Greeted.open(options)
    try:
        found = await list_tables(
            greeted.session, lambda schema, name: target.wants(table_text(schema, name))
        )
    finally:
        await greeted.session.aclose()
    return [table_text(*one.identity) for one in found]


def selection(source: Mapping[str, str]) -> str:
    """Which tables a job selects, as text."""
    return repr(sorted((name.lower(), value) for name, value in source.items() if name.lower() in _SELECTING))
