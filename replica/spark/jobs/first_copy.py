"""The first copy of ``mirror``: the source's tables as leaves of the target, read by executors, before its log.

    plan    where the log goes on, and the ranges of each table    target/_state/copy.json (``copy_plan``)
    copy    some ranges at a time -> files -> a commit for each    ``copy_tasks``; a killed copy goes on after them
    check   no statement has changed a table meanwhile             else all is copied anew

The source sees one connection for each task, at most ``snapshotParallelism`` of them, and transactions as long as a
chunk. Changes of the log replace rows by their keys, so rows may be later than the place from which the log is
followed. Where row images lack columns, that is not enough: see ``rows_again``.
"""

import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from deltalake import CommitProperties, Transaction
from pyarrow.fs import FileType

from protocol.errors import CheckpointError, ConfigurationError, SchemaMismatchError

from ...config.options import Options
from ...spool.storage import system_of, write_whole
from .blocking import run_aside
from .copy_plan import CopyPlan, changed_since, make_plan
from .copy_tasks import Piece, copy_pieces
from .job_state import JobState
from .kept_table import PLANTED, KeptTable, Step, add_action, indexed_columns
from .leaf_files import NewFile
from .table_versions import empty_commit
from .target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGGER: Final = logging.getLogger(__name__)
_FILE: Final = "_state/copy.json"
_ATTEMPTS: Final = 5
#: One job of Spark copies up to so many tables together, if they have no more than so many bytes in all.
_GROUPED: Final = 32
_GROUPED_BYTES: Final = 8 << 20
#: The options of the source that a task of the copy needs.
CONNECTING: Final = frozenset(
    {
        *("host", "port", "user", "unixsocket", "tls", "tlsca", "tlscert", "tlskey", "serverpublickeypath"),
        *("getserverpublickey", "enablecleartextplugin", "connecttimeout", "passwordenv", "passwordfile"),
    }
)


class FirstCopy:
    """Copies all wanted tables of a source to a new target; ``run`` returns where the log goes on."""

    def __init__(
        self,
        spark: "SparkSession",
        source: Mapping[str, str],
        options: Options,
        target: Target,
        parallelism: int,
    ) -> None:
        """``options``: the driver's connection to the ``source``."""
        self._spark = spark
        self._source = {name: value for name, value in source.items() if name.lower() in CONNECTING}
        self._options = options
        self._target = target
        self._parallelism = parallelism
        self._system, self._root = system_of(target.path, target.storage)

    @property
    def has_begun(self) -> bool:
        """Whether a copy of this target was planned before."""
        return bool(self._system.get_file_info(f"{self._root}/{_FILE}").type == FileType.File)

    def run(self) -> tuple[JobState, str]:
        """Copy the tables. Returns the job's state and ``startingOffsets``.

        Raises ``ConfigurationError`` if no table can be kept, or if statements change the tables all the time, and
        the errors of reading tables.
        """
        for _ in range(_ATTEMPTS):
            plan = self._planned()
            try:
                self._copy(plan)
                changed, end = run_aside(changed_since(self._options, plan))
            except SchemaMismatchError as error:
                changed, end = [str(error)], None
            if not changed:
                tables = {name: table.state() for name, table in plan.tables.items()}
                # All tables of the source are known, so CREATE TABLE IF NOT EXISTS with another name makes a new
                # table.
                state = JobState(tables=tables, begins=dict(plan.begins), is_birth=True, copied=str(end))
                state.parked = parked(plan, self._target)
                return state, plan.offset
            _LOGGER.warning(
                "tables changed while they were copied, so all is copied anew: %s", ", ".join(changed)
            )
            self._discard(plan)
        raise ConfigurationError(
            f"{', '.join(changed)}: statements change the tables each time that they are copied: try again later"
        )

    def _planned(self) -> CopyPlan:
        if self.has_begun:
            return read_plan(self._target)
        path = f"{self._root}/{_FILE}"
        plan = run_aside(make_plan(self._options, self._target.wants, self._parallelism))
        for why in plan.refused.values():
            _LOGGER.error("a table is not kept: %s", why)
        write_whole(self._system, path, lambda file: file.write(plan.to_json()))
        return plan

    def _copy(self, plan: CopyPlan) -> None:
        """Copy the ranges that are not there yet; the ranges of a table are committed in order.

        Each job of Spark copies one range, or small tables together. One job for several large ranges would wait for
        the slowest one, and no range would be read while the next job is planned: 0.1 of 0.7 s on two cores.
        """
        source = {**self._source, "snapshot": "only"}
        copy = partial(copy_pieces, self._spark, source, offset=plan.offset, storage=self._target.storage)
        reading = deque[tuple[list[Piece], Future[list[list[NewFile]]]]]()
        opened = dict[str, KeptTable]()
        left = grouped(plan, self._pieces(plan, opened), self._parallelism)
        with ThreadPoolExecutor(self._parallelism) as pool:
            try:
                # This limits what is repeated after a kill, also if one job takes longer than the jobs after it.
                for group in islice(left, 2 * self._parallelism):
                    reading.append((group, pool.submit(copy, pieces=group)))
                while reading:
                    group, found = reading.popleft()
                    for piece, files in zip(group, found.result(), strict=True):
                        _commit(opened[piece.name], files, piece.number)
                        copied, count = piece.number + 1, len(piece.table.ranges)
                        _LOGGER.info("%s: %d of %d ranges copied", piece.name, copied, count)
                        if copied == count:
                            del opened[piece.name]
                    for following in islice(left, 1):
                        reading.append((following, pool.submit(copy, pieces=following)))
            finally:
                pool.shutdown(cancel_futures=True)

    def _pieces(self, plan: CopyPlan, opened: dict[str, KeptTable]) -> Iterator[Piece]:
        """The ranges that no commit has yet. Fills ``opened`` with their tables, and commits empty tables."""
        for name, table in plan.tables.items():
            kept = self._target.table(name)
            if kept.table is None:
                kept.conform(table.schema.empty_table(), {}, Step(PLANTED, 0, 0))
            if empty_commit(kept.path) is not None:
                # After a power failure. Later ranges may be there.
                raise SchemaMismatchError(f"{name}: the file of a commit is empty")
            done = kept.open().transaction_version(PLANTED)
            if not table.ranges and done is None:
                # The commit of an empty table marks it as this job's.
                _commit(kept, [], 0)
            for number in range(0 if done is None else done + 1, len(table.ranges)):
                opened[name] = kept
                yield Piece(name, kept.path, table, number, indexed_columns(kept.open()))

    def _discard(self, plan: CopyPlan) -> None:
        """Delete the plan, and then what was copied by it."""
        self._system.delete_file(f"{self._root}/{_FILE}")
        for name in plan.tables:
            system, path = system_of(self._target.table(name).path, self._target.storage)
            if system.get_file_info(path).type == FileType.Directory:
                system.delete_dir(path)


def grouped(plan: CopyPlan, pieces: Iterable[Piece], parallelism: int) -> Iterator[list[Piece]]:
    """The pieces that each job copies: one piece, or several small tables. The order of pieces stays.

    A job costs Spark 0.1 s, reading a small table a tenth of that.
    """
    most = max(1, min(_GROUPED, len(plan.tables) // (4 * parallelism)))
    group, held = list[Piece](), 0
    for piece in pieces:
        size = piece.table.size if len(piece.table.ranges) == 1 else _GROUPED_BYTES
        if group and (len(group) == most or held + size > _GROUPED_BYTES):
            yield group
            group, held = [], 0
        group.append(piece)
        held += size
    if group:
        yield group


def parked(plan: CopyPlan, target: Target) -> dict[str, str]:
    """The tables that cannot be kept, with the reason and what helps, as ``JobState.parked`` has them."""
    return {name: f"{why} -- {target.remedy(name)}" for name, why in plan.refused.items()}


def read_plan(target: Target) -> CopyPlan:
    """The plan of a first copy that has begun. Raises ``CheckpointError`` if it cannot be read."""
    system, root = system_of(target.path, target.storage)
    with system.open_input_stream(f"{root}/{_FILE}") as file, copied_anew(target, _FILE):
        return CopyPlan.from_json(file.read())


@contextlib.contextmanager
def copied_anew(target: Target, file: str) -> Iterator[None]:
    """Raise what a damaged file of a copy raises, before a job has begun, as a ``CheckpointError``."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{target.path}/{file}: {error} -- the file is damaged (a power failure may leave it empty): delete "
            f"{target.path}, and the tables are copied anew"
        ) from error


def _commit(kept: KeptTable, files: list[NewFile], number: int) -> None:
    table = kept.open()
    transaction = Transaction(PLANTED, number)
    table.create_write_transaction(
        [add_action(file) for file in files],
        "append",
        table.schema(),
        [],
        commit_properties=CommitProperties(app_transactions=[transaction]),
    )
    # A later commit must know this one: else it conflicts with it, as both have the same transaction.
    kept.refresh()
