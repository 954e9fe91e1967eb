"""The common part of ``mirror`` and ``history``: a stream, or files -> kept tables.

The two jobs differ in the kind of their tables. This module starts queries; ``micro_batch`` processes the changes.
"""

import math
import threading
import time
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError
from protocol.records import record

from ...config.options import seconds_between
from ...config.selection import whole_number
from ...config.table_filter import table_filter
from ...config.table_names import split_text
from .job_arguments import (
    Note,
    add_run_arguments,
    add_source_arguments,
    add_target_argument,
    pace_from,
    source_options,
    state_from,
)
from .progress import check_parked
from .spark_session import (
    FORMAT,
    Pace,
    State,
    absolute,
    await_queries,
    batch_of,
    check_pace,
    counted,
    delete_folder,
    end_with,
    is_connect,
    open_session,
    our_errors,
    read_stream,
    require_delta,
    session_for,
    start_query,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..source_options import SourceOptions
    from .copies_anew import Resyncs
    from .first_copy import FirstCopy
    from .job_state import JobState
    from .keeper import Keeper
    from .seed import Seed
    from .settled_copy import ExactBeginning
    from .staging import Staged
    from .target import TableKind, Target

_NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})
_FILES_QUERY: Final = "files"
#: How long changes wait for a merge by default.
MERGE_SECONDS: Final = 300.0
_read_seconds: Final = seconds_between(0, 1_000_000_000)
_read_hours: Final = whole_number(0, 1_000_000)
# A timer looks at least so often whether rows have waited for long enough.
_MOST_SECONDS: Final = 5.0
_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {"startingOffsets": "earliest", "maxBytesPerTrigger": "64m"}
)
_STARTING: Final = frozenset({"startingoffsets", "startingtimestamp", "startinggtidset"})
_LIMITS: Final = frozenset({"maxrowspertrigger", "maxbytespertrigger"})
_FIXED: Final = frozenset({"schemamode", "table", "images", "includeddl", "rowformat", "onschemachange"})
EPILOG: Final = """\
Started again, it continues where it ended. A new job on a live source copies the tables first, if the password is
in a variable or a file. With --no-snapshot it begins at the beginning of the log, which must reach back to the CREATE
TABLE of every table; or it begins with the state of the tables at a checkpoint: --seed PATH@CHECKPOINT, where PATH
has schema/table as Parquet or Delta, and CHECKPOINT is FILE:POSITION, a GTID set or a checkpoint's JSON."""


@record(frozen=True, slots=True)
class TableJob:
    """A job with kept tables. ``kind`` returns the class of its tables; only then are the extras imported.

    ``begins_anywhere``: it needs no state of the tables.
    """

    name: str
    kind: "Callable[[], TableKind]"
    begins_anywhere: bool = False

    def start(
        self,
        spark: "SparkSession | None",
        source: Mapping[str, str],
        target: str,
        *,
        state: State | None = None,
        pace: Pace | None = None,
        seed: str | None = None,
        merge_interval: float = MERGE_SECONDS,
        retention_hours: int | None = None,
        snapshot: bool | None = None,
    ) -> "StreamingQuery":
        """Follow a live source; ``source`` has options of ``mysql-binlog``. The returned query may be stopped.

        Changes wait in the target, and are merged into a table when they are some 5 % of it, or after
        ``merge_interval`` seconds; if ``pace`` says ``once``, and with Spark Connect, with each micro-batch.
        ``retention_hours``: files of the tables that no version of so many hours has are deleted; default: none are.

        Started again with the same ``state`` (default: ``_state`` in the target), it continues where it ended. A new
        job copies the tables first (``snapshot``; the default unless the password is in the source's options, as
        executors log in themselves). Otherwise it begins at the beginning of the log, or with ``seed``:
        ``PATH@CHECKPOINT``. The query's progress has the number of row changes in
        ``observedMetrics["changes"]["rows"]``. Raises ``ConfigurationError``, which names the tables, if the log does
        not reach back to their CREATE TABLE.
        """
        require_delta()
        kept_seconds = _read_seconds(
            "append_interval" if self.begins_anywhere else "merge_interval", merge_interval
        )
        kept_hours = None if retention_hours is None else _read_hours("retention_hours", retention_hours)
        from ..source_options import parse_options
        from ..stream_connection import connection_options
        from . import job_state
        from .checkpoints import check_query
        from .staged_source import NAME, register, staging_options
        from .target_kind import check_kind

        spark, target = open_session(spark), absolute(target)
        check_pace(spark, pace)
        state = state or state_of(target)
        options = _source(source, is_live=True, is_whole=not self.begins_anywhere)
        parsed = parse_options(options)
        kept = self._target(target, parsed)
        check_kind(target, "tables", kept.storage)
        _check_job(kept)
        found = job_state.peek(target, kept.storage)
        if found is not None:
            check_query(state.checkpoint, target, {found[1]: found[2]}.get, kept.storage)
        if found is not None and (found[0].begins or found[0].holds):
            options.setdefault("onSchemaMismatch", "positional")
        begin = job_state.JobState()
        if not job_state.exists(target, kept.storage):
            copy = _first_copy(spark, options, parsed, source, kept, state, seed, snapshot)
            begin = self._begin(options, parsed, source, kept, copy, seed)
        is_waiting = not (pace is not None and pace.once) and not is_connect(spark)
        each = _EachBatch(
            kept, begin, state.checkpoint, (kept_seconds if is_waiting else 0, kept_hours), source
        )
        keeper = each.keeper() if is_waiting else each.new_keeper()
        copies = None if self.begins_anywhere else _copies_anew(spark, source, kept, state, keeper)
        if copies is not None:
            copies.ask_for_new(connection_options(parsed))
            copies.hold()
            if not is_waiting:
                copies.run()
        keeper.settle(spark)
        register(spark)
        options |= staging_options(target, is_changelog=kept.kind.is_changelog)
        frame = counted(read_stream(spark, options, target, state, name=NAME))
        query = start_query(frame.writeStream.foreachBatch(each), state, pace, kept.storage)
        keeper.is_active = lambda: bool(query.isActive)
        if is_waiting and kept_seconds:
            _in_thread(partial(each.merge_while, query, kept_seconds))
        if is_waiting and copies is not None:
            _in_thread(partial(copies.run_while, lambda: bool(query.isActive)))
        return query

    def _begin(
        self,
        options: dict[str, str],
        parsed: "SourceOptions",
        given: Mapping[str, str],
        kept: "Target",
        copy: "FirstCopy | ExactBeginning | None",
        seed: str | None,
    ) -> "JobState":
        """Begin a new job; this sets the options of the source that say where its log begins."""
        from ..stream_connection import connection_options
        from .copies_anew import selection
        from .coverage import check_log, folds_names
        from .job_state import JobState
        from .seed import start_options
        from .target import check_free

        begin = JobState()
        connection = connection_options(parsed)
        if copy is None or not copy.has_begun:
            check_free(kept.path, kept.storage)
        if copy is not None:
            begin, options["startingOffsets"] = copy.run()
            # The copy has the changes before the last statement about a table; these may lack column names.
            options.setdefault("onSchemaMismatch", "positional")
        elif seed is not None:
            if _STARTING & {name.lower() for name in given}:
                raise ConfigurationError(
                    "seed: its checkpoint is where the stream begins: leave the start out (startingOffsets)"
                )
            del options["startingOffsets"]
            options |= start_options(_plant(seed, kept, begin, parsed), connection)
        elif not self.begins_anywhere:
            if parsed.starting.get("startingOffsets", "").strip() != "earliest":
                raise ConfigurationError(
                    "startingOffsets: without a seed the tables begin with the log: leave it out, or give seed="
                )
            begin.is_birth = check_log(connection, kept.wants)
        begin.folds_names = folds_names(connection)
        begin.wanted = selection(given)
        return begin

    def load(
        self, spark: "SparkSession | None", source: Mapping[str, str], target: str, *, seed: str | None = None
    ) -> None:
        """Write the tables as they are at the end of files (option ``path``) to a target that does not exist yet."""
        require_delta()
        from ..data_source import log_files
        from ..source_options import parse_options
        from . import job_state
        from .coverage import check_files, files_begin
        from .file_shares import by_partition, shares_of
        from .keeper import Keeper, MergePolicy, stage_here
        from .seed import behind
        from .staged_source import NAME, register, staged_items, staging_options
        from .target import check_free
        from .target_kind import check_kind

        spark, target = open_session(spark), absolute(target)
        options = _source(source, is_live=False, is_whole=True)
        parsed = parse_options(options)
        kept = self._target(target, parsed)
        check_kind(target, "tables", kept.storage)
        if job_state.exists(target, kept.storage):
            raise ConfigurationError(f"target: {target} has tables already -- give another folder")
        check_free(target, kept.storage)
        names = [file.name for file in log_files(parsed)]
        if not self.begins_anywhere:
            check_files(names)
        begin = job_state.JobState(is_birth=files_begin(names))
        planted = None if seed is None else _plant(seed, kept, begin, parsed)
        name = FORMAT
        if planted is None:
            register(spark)
            name, options = NAME, options | staging_options(target, is_changelog=kept.kind.is_changelog)
        with our_errors(), batch_of(spark, options, target, name=name) as frame:
            keeper = Keeper(kept, begin, MergePolicy(math.inf, due_bytes=kept.kind.due_bytes))
            shares: Iterable[list[Staged]]
            if planted is None:
                staged = staged_items(frame)
                keeper.coming = frozenset(part.path for item in staged for part in item.parts)
                shares = shares_of(staged)
            else:
                seed_ = planted
                shares = (stage_here(kept, behind(seed_, items)) for items in by_partition(frame))
            for number, share in enumerate(shares):
                keeper.run(_FILES_QUERY, number, partial(list, share), spark)
            keeper.coming = frozenset()
            keeper.merge_waiting(is_end=True)
        found = job_state.peek(target, kept.storage)
        if found is None or not (found[0].tables or found[0].parked or found[0].absent):
            wanted = ", ".join(parsed.settings.tables)
            # A saved state without tables would refuse the next run with the right name.
            for folder in (job_state.FOLDER, job_state.PROGRESS):
                delete_folder(f"{target}/{folder}", kept.storage)
            raise ConfigurationError(f"tables: no table of the files matches {wanted}")

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add SOURCE, TARGET and the other arguments."""
        add_source_arguments(parser, "earliest (default), or as --seed says")
        add_target_argument(parser, "where the tables are kept: TARGET/schema/table")
        parser.add_argument(
            "--seed", metavar="PATH@CHECKPOINT", help="the state of the tables at a place of the log"
        )
        parser.add_argument(
            "--merge-interval",
            type=float,
            default=MERGE_SECONDS,
            metavar="SECONDS",
            help="merge tables this often, or when changes of some 5 %% of a table wait; default: %(default)g",
        )
        parser.add_argument(
            "--retention",
            dest="retention_hours",
            type=int,
            metavar="HOURS",
            help="delete files that no version of a table in the last HOURS has; default: keep all",
        )
        parser.add_argument(
            "--snapshot",
            action=BooleanOptionalAction,
            default=None,
            help="copy the tables first, by executors (default of a new target without --seed and --start)",
        )
        add_run_arguments(parser)

    def run(self, options: Namespace, note: Note) -> None:
        """Run the job as a subcommand."""
        source = source_options(options)
        target, seed = options.target, options.seed
        with session_for(f"mysql-replica {self.name}", options.master) as spark:
            if "path" in source:
                self.load(spark, source, target, seed=seed)
            else:
                state, pace = state_from(options, target), pace_from(options)
                query = self.start(
                    spark,
                    source,
                    target,
                    state=state,
                    pace=pace,
                    seed=seed,
                    merge_interval=options.merge_interval,
                    retention_hours=options.retention_hours,
                    snapshot=options.snapshot,
                )
                note(f"following {options.source} -> {target}")
                await_queries(query)
        check_parked(absolute(target), source)
        note(f"{target}: done")

    def _target(self, path: str, options: "SourceOptions") -> "Target":
        from .coverage import SYSTEM_SCHEMAS
        from .target import Target

        wants_table = table_filter(options.settings.tables, options.settings.exclude_tables)

        def wants(name: str) -> bool:
            schema, table = split_text(name)
            return schema not in SYSTEM_SCHEMAS and (wants_table is None or wants_table(schema, table))

        return Target(path, self.kind(), wants, options.settings.storage, parks=True, is_live=options.is_live)


def _first_copy(
    spark: "SparkSession",
    options: Mapping[str, str],
    parsed: "SourceOptions",
    given: Mapping[str, str],
    kept: "Target",
    state: State,
    seed: str | None,
    snapshot: bool | None,
) -> "FirstCopy | ExactBeginning | None":
    """The copy with which a new job begins; None without one. Raises ``ConfigurationError``."""
    names = {name.lower() for name in given}
    starts = seed is not None or bool(_STARTING & names)
    if snapshot is None:
        snapshot = not starts and "password" not in names
    if not snapshot:
        return None
    if starts:
        raise ConfigurationError(
            "snapshot: a seed or a start says where the job begins: leave one of them out"
        )
    if "password" in names:
        raise ConfigurationError(
            "password: executors copy the tables, and a plan must not have it: give passwordEnv or passwordFile"
        )
    from ..stream_connection import connection_options
    from .first_copy import FirstCopy
    from .settled_copy import ExactBeginning

    if kept.kind.begins_exactly:
        return ExactBeginning(spark, _mirror().start, given, kept, state)
    return FirstCopy(spark, options, connection_options(parsed), kept, parsed.snapshot_parallelism)


def _copies_anew(
    spark: "SparkSession", given: Mapping[str, str], kept: "Target", state: State, keeper: "Keeper"
) -> "Resyncs | None":
    """The ``Resyncs`` that copies tables of a job anew; None if executors cannot log in."""
    from .copies_anew import Resyncs
    from .copy_requests import Requests

    requests = Requests(kept.path, kept.storage)
    if "password" in {name.lower() for name in given}:
        for request in requests.open():
            requests.add(request.table, "password: a plan must not have it: give passwordEnv or passwordFile")
        return None
    return Resyncs(spark, _mirror().start, given, kept, state, keeper, requests)


def _mirror() -> TableJob:
    """The job that makes copies."""

    def kind() -> "TableKind":
        from .current_table import CurrentTable

        return CurrentTable

    return TableJob("copy", kind)


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def _check_job(target: "Target") -> None:
    """Raises ``ConfigurationError`` if a job of another kind has begun in the target."""
    from . import job_state

    found = job_state.peek(target.path, target.storage)
    if found is None:
        return
    state, kind = found[0], target.kind
    if (state.is_history, state.is_changelog, state.stamps) != kind.facts():
        raise ConfigurationError(
            f"target: {target.path} has the tables of another job, or with other columns (_seq, _deleted) -- give "
            "another folder"
        )


class _EachBatch:
    """A function for ``foreachBatch``."""

    def __init__(
        self,
        target: "Target",
        begin: "JobState",
        checkpoint: str,
        policy: tuple[float, int | None],
        source: Mapping[str, str],
    ) -> None:
        # Spark Connect sends this object to another machine, and no plan may have a password.
        self._source = {name: value for name, value in source.items() if name.lower() != "password"}
        self._target = target
        self._begin = begin
        self._checkpoint = checkpoint
        self._policy = policy
        # Made where the function is called: Spark Connect does that in another process.
        self._keeper: Keeper | None = None

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        from .checkpoints import query_id
        from .staged_source import staged_items

        query = query_id(frame, self._checkpoint, self._target.storage)
        self.keeper().run(query, batch, partial(staged_items, frame), frame.sparkSession)

    def merge_while(self, query: "StreamingQuery", seconds: float) -> None:
        """Merge rows that have waited for so long, while the query is active, also if no more changes come."""
        while query.isActive:
            time.sleep(min(seconds, _MOST_SECONDS))
            try:
                self.keeper().merge_waiting()
            except Exception as error:
                if query.isActive:
                    end_with(query, error)

    def keeper(self) -> "Keeper":
        """The keeper of the process that runs the micro-batches."""
        if self._keeper is None:
            self._keeper = self.new_keeper()
        return self._keeper

    def new_keeper(self) -> "Keeper":
        """A new keeper, which may be in another process than the job."""
        from .keeper import Keeper, MergePolicy
        from .read_again import ReadAgain

        policy = MergePolicy(*self._policy, self._target.kind.due_bytes)
        again = ReadAgain(self._source, self._target)
        return Keeper(self._target, self._begin, policy, self._checkpoint, again)


def _plant(text: str, kept: "Target", begin: "JobState", parsed: "SourceOptions") -> "Seed":
    """Write a seed's tables to the target, and note them in the state ``begin``."""
    from .job_state import TableState
    from .seed import plant, read_seed

    seed = read_seed(text, kept.wants, _only_table(parsed))
    plant(seed, kept)
    begin.tables |= {name: TableState(is_seeded=True) for name in seed.tables}
    return seed


def _only_table(parsed: "SourceOptions") -> str | None:
    """The table, if the job keeps one only."""
    tables = parsed.settings.tables
    return tables[0] if len(tables) == 1 and not set("*?[") & set(tables[0]) else None


def _source(given: Mapping[str, str], *, is_live: bool, is_whole: bool) -> dict[str, str]:
    names = {name.lower() for name in given}
    if fixed := names & _FIXED:
        raise ConfigurationError(f"{', '.join(sorted(fixed))}: the job sets this option itself: leave it out")
    options = {"schemaMode": "packed"} | dict(given)
    if is_live:
        if is_whole and not names & _STARTING:
            options["startingOffsets"] = _DEFAULTS["startingOffsets"]
        if not names & _LIMITS:
            options["maxBytesPerTrigger"] = _DEFAULTS["maxBytesPerTrigger"]
    return options
