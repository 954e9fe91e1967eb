"""Tables of a source as they are at one exact place of its log, in Delta: a history begins with such a copy.

    a mirror of these tables, in a folder of its own    their first copy, and then the log up to its end
    the mirror's checkpoint                             -> the place at which it has ended

The rows of a first copy are of different moments, until a mirror has applied the log up to a place after all of them.
A copy that was killed goes on. ``first_copy`` and ``keeper`` do the work.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyarrow.fs import FileType

from protocol.errors import ConfigurationError, ReplicaError, SchemaMismatchError
from protocol.position import BinlogPosition
from protocol.records import record, replace

from ...config.options import Options
from ...source.dump import Greeted
from ...source.server_facts import Source
from ...spool.offsets import Offset
from ...spool.storage import make_folder, system_of, write_whole
from ..source_options import parse_options
from ..stream_connection import connection_options
from . import job_state
from .blocking import run_aside
from .checkpoints import end_of, last_batch
from .current_table import CurrentTable
from .first_copy import copied_anew, parked, read_plan
from .job_state import JobState
from .kept_table import PLANTED, Step
from .leaf_files import folder
from .spark_session import Pace, State, await_queries, local_path
from .target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOGGER: Final = logging.getLogger(__name__)
# Options of the job's own connection, and of where it begins.
_OWN: Final = frozenset({"serverid", "sourcename", "startingoffsets", "startingtimestamp", "startinggtidset"})
_SPOOL: Final = "spooldir"
_FOLDER: Final = "copies"
_BEGIN: Final = "_state/begin.json"
_ATTEMPTS: Final = 20
# Since this version of MySQL (WL#7165) the log has the time of a commit in microseconds.
_EXACT_TIMES: Final = (8, 0, 1)


#: Starts a mirror, as ``TableJob.start`` does.
StartMirror = Callable[..., "StreamingQuery"]


@record(frozen=True, slots=True)
class Settled:
    """Tables in ``target``, and their ``state``, at the place ``offset``.

    ``number`` grows with the place. ``moment`` is a time shortly before the place, in microseconds since 1970, by the
    source's clock and rounded as times in its log: no change after the place has an earlier time.
    """

    target: Target
    state: JobState
    offset: Offset
    number: int
    moment: int


class SettledCopy:
    """Copies tables into a folder of a job; ``run`` may be called again after a kill, and then goes on."""

    def __init__(
        self,
        spark: "SparkSession",
        start: StartMirror,
        source: Mapping[str, str],
        name: str,
        target: Target,
        state: State,
    ) -> None:
        """``name`` is the name of the folder; ``target`` and ``state`` belong to the job."""
        self._spark = spark
        self._start = start
        self._path = f"{target.path}/_state/{_FOLDER}/{name}"
        self._owner = target
        self._target = replace(target, path=self._path, kind=CurrentTable, spark=spark)
        self._source = {option: value for option, value in source.items() if option.lower() not in _OWN}
        for option in [option for option in self._source if option.lower() == _SPOOL]:
            self._source[option] = f"{self._source[option].rstrip('/')}/{_FOLDER}/{name}"
        # The job's state may be on another store than the target: Spark writes it, deltalake writes the target.
        self._base = f"{os.path.dirname(state.checkpoint)}/{_FOLDER}/{name}"
        spool = None if state.spool is None else f"{state.spool}/{_FOLDER}/{name}"
        self._state = State(f"{self._base}/_state/checkpoint", spool)

    @property
    def has_begun(self) -> bool:
        """Whether an earlier run has left something."""
        system, root = system_of(self._path, self._target.storage)
        return bool(system.get_file_info(root).type == FileType.Directory)

    def run(self) -> Settled:
        """Copy the tables, and follow the log up to its end. Raises the errors of a mirror."""
        found, moment = self._settled()
        plan = read_plan(self._target)
        tables = {name: table.state() for name, table in plan.tables.items()}
        state = JobState(tables=tables, is_birth=True, parked=parked(plan, self._target))
        if found is not None:
            state = found[0]
            state.begins.clear()
        for name, why in state.parked.items():
            # The remedy must name the job's target: this copy will be deleted.
            state.parked[name] = why.replace(self._target.remedy(name), self._owner.remedy(name))
        for table in state.tables.values():
            table.since, table.is_settling, table.version = 0, False, -1
        number = last_batch(self._state.checkpoint, self._target.storage)
        if number is None:
            offset = Offset.from_dict(json.loads(plan.offset))
        else:
            offset = end_of(self._state.checkpoint, number, self._target.storage)
        return Settled(
            self._target,
            state,
            _with_position(offset, plan.read_at),
            0 if number is None else number + 1,
            moment,
        )

    def _settled(self) -> tuple[tuple[JobState, str, int] | None, int]:
        """Let the mirror follow the log until no rows are to be read again.

        Returns its state, and the source's time before it asked for the end of the log.
        """
        options = connection_options(parse_options(self._source))
        for _ in range(_ATTEMPTS):
            moment = run_aside(_time(options))
            pace = Pace(once=True)
            query = self._start(
                self._spark, self._source, self._path, state=self._state, pace=pace, snapshot=True
            )
            await_queries(query)
            found = job_state.peek(self._path, self._target.storage)
            if found is None or not found[0].again:
                return found, moment
            names = ", ".join(sorted(found[0].again))
        raise ReplicaError(
            f"{names}: rows whose key has changed are locked, or change it, each time that they are read again: try "
            "again later"
        )

    def delete(self) -> None:
        """Delete all files of the copy."""
        for path in (self._path, self._base, self._state.spool):
            # Files that cannot be deleted are no reason to fail.
            with contextlib.suppress(OSError, ConfigurationError):
                if path is not None:
                    system, root = system_of(local_path(path) or path, self._target.storage)
                    system.delete_dir(root)


def _with_position(offset: Offset, end: str) -> Offset:
    """The place of a copy. ``end`` is where the log ended when the copy was planned."""
    if offset.file:
        return offset
    # No change has come after the GTID set from which the mirror has followed the log.
    place = BinlogPosition.parse(end)
    return replace(offset, file=place.file, position=place.position)


async def _time(options: Options) -> int:
    greeted = await Greeted.open(options)
    await greeted.session.aclose()
    return _logged_time(greeted.source)


def _logged_time(source: Source) -> int:
    """The time of a source in microseconds since 1970, rounded down as in its log."""
    is_exact = not source.is_mariadb and source.version >= _EXACT_TIMES
    return int(source.now * 1_000_000) if is_exact else int(source.now) * 1_000_000


class ExactBeginning:
    """Begins a job with the tables at one exact place; ``run`` returns its state and the place."""

    def __init__(
        self,
        spark: "SparkSession",
        start: StartMirror,
        source: Mapping[str, str],
        target: Target,
        state: State,
    ) -> None:
        self._copy = SettledCopy(spark, start, source, "first", target, state)
        self._target = replace(target, spark=spark)
        self._system, root = system_of(target.path, target.storage)
        self._file = f"{root}/{_BEGIN}"

    @property
    def has_begun(self) -> bool:
        """Whether an earlier run has left something."""
        return self._is_done or self._copy.has_begun

    @property
    def _is_done(self) -> bool:
        return bool(self._system.get_file_info(self._file).type == FileType.File)

    def run(self) -> tuple[JobState, str]:
        """Copy the tables into the target. Returns the job's state and ``startingOffsets``."""
        if not self._is_done:
            settled = self._copy.run()
            self._take(settled)
            said = {"rows": settled.state.rows(), "offset": json.dumps(settled.offset.to_dict())}
            write_whole(self._system, self._file, lambda file: file.write(json.dumps(said).encode()))
            self._copy.delete()
        with self._system.open_input_stream(self._file) as file, copied_anew(self._target, _BEGIN):
            found = json.loads(file.read())
            return JobState.from_rows([tuple(row) for row in found["rows"]]), found["offset"]

    def _take(self, settled: Settled) -> None:
        for name in list(settled.state.tables):
            source, kept = settled.target.table(name), self._target.table(name)
            try:
                kept.check_columns(source.fields())
            except SchemaMismatchError as error:
                self._park(settled.state, name, error)
                continue
            if source.table is not None:
                kept.take_over(source, Step(PLANTED, settled.number, 1))
        copy_files(settled, self._target)

    def _park(self, state: JobState, name: str, error: SchemaMismatchError) -> None:
        _LOGGER.error("a table is not kept: %s", error)
        state.parked[name] = f"{error} -- {self._target.remedy(name)}"
        for known in (state.tables, state.waiting, state.again):
            known.pop(name, None)


def copy_files(settled: Settled, target: Target) -> None:
    """Copy the files with rows of prepared XA transactions to a target."""
    source, system = (folder(one.path, one.storage) for one in (settled.target, target))
    for path in settled.state.files():
        make_folder(system, os.path.dirname(path))
        with source.open_input_stream(path) as data, system.open_output_stream(path) as file:
            file.write(data.read())
