"""The common part of ``mirror`` and ``history``: a stream, or files -> kept tables.

The two jobs differ in the kind of their tables. This module starts queries; ``micro_batch`` processes the changes.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigurationError
from protocol.records import record

from ...config.table_filter import table_filter
from .job_arguments import (
    Note,
    add_run_arguments,
    add_source_arguments,
    pace_from,
    source_options,
    state_from,
)
from .spark_session import (
    Pace,
    State,
    absolute,
    await_queries,
    batch_of,
    open_session,
    our_errors,
    query_id,
    read_stream,
    require_delta,
    session_for,
    start_query,
    state_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..packed import PackedItem
    from ..source_options import SourceOptions
    from .job_state import JobState
    from .micro_batch import TableKind, Target
    from .seed import Seed

_FILES_QUERY: Final = "files"
_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {"startingOffsets": "earliest", "maxBytesPerTrigger": "64m"}
)
_STARTING: Final = frozenset({"startingoffsets", "startingtimestamp", "startinggtidset"})
_LIMITS: Final = frozenset({"maxrowspertrigger", "maxbytespertrigger"})
_FIXED: Final = frozenset({"schemamode", "table", "images", "includeddl", "rowformat", "onschemachange"})
EPILOG: Final = """\
Started again, it continues where it ended. A new job begins at the beginning of the log, which must reach back to
the CREATE TABLE of every table; or with the state of the tables at a checkpoint: --seed PATH@CHECKPOINT, where PATH
has schema/table as Parquet or Delta, and CHECKPOINT is FILE:POSITION, a GTID set or a checkpoint's JSON."""


@record(frozen=True, slots=True)
class TableJob:
    """A job with kept tables. ``kind`` returns the class of its tables; only then are the extras imported."""

    name: str
    kind: "Callable[[], TableKind]"

    def start(
        self,
        spark: "SparkSession | None",
        source: Mapping[str, str],
        target: str,
        *,
        state: State | None = None,
        pace: Pace | None = None,
        seed: str | None = None,
    ) -> "StreamingQuery":
        """Follow a live source; ``source`` has options of ``mysql-binlog``. The returned query may be stopped.

        Started again with the same ``state`` (default: ``_state`` in the target), it continues where it ended. A new
        job begins at the beginning of the log, or with ``seed``: ``PATH@CHECKPOINT``. The query's progress has the
        number of row changes in ``observedMetrics["changes"]["rows"]``. Raises ``ConfigurationError``, which names
        the tables, if the log does not reach back to their CREATE TABLE.
        """
        require_delta()
        from ..source_options import parse_options
        from ..stream_reader import connection_options
        from . import job_state
        from .coverage import check_log, folds_names
        from .kept_table import check_free
        from .seed import start_options

        spark, target = open_session(spark), absolute(target)
        state = state or state_of(target)
        options = _source(source, is_live=True)
        parsed = parse_options(options)
        kept = self._target(target, parsed)
        begin = job_state.JobState()
        if not job_state.exists(target, kept.storage):
            check_free(target, kept.storage)
            if seed is not None:
                if _STARTING & {name.lower() for name in source}:
                    raise ConfigurationError(
                        "--seed: the seed's checkpoint is where the stream begins: leave --start out"
                    )
                del options["startingOffsets"]
                options |= start_options(_plant(seed, kept, begin, parsed), connection_options(parsed))
            elif parsed.starting.get("startingOffsets", "").strip() != "earliest":
                raise ConfigurationError(
                    "--start: without a seed the tables begin with the log: leave --start out, or give --seed"
                )
            else:
                begin.is_birth = check_log(connection_options(parsed), kept.wants)
            begin.folds_names = folds_names(connection_options(parsed))
        frame = _counted(read_stream(spark, options, target, state))
        writer = frame.writeStream.foreachBatch(_EachBatch(kept, begin, state.checkpoint))
        return start_query(writer, state, pace)

    def load(
        self, spark: "SparkSession | None", source: Mapping[str, str], target: str, *, seed: str | None = None
    ) -> None:
        """Write the tables as they are at the end of files (option ``path``) to a target that does not exist yet."""
        require_delta()
        from ..data_source import log_files
        from ..source_options import parse_options
        from . import job_state
        from .coverage import files_begin
        from .kept_table import check_free
        from .micro_batch import run_batch
        from .seed import behind

        spark, target = open_session(spark), absolute(target)
        options = _source(source, is_live=False)
        parsed = parse_options(options)
        kept = self._target(target, parsed)
        if job_state.exists(target, kept.storage):
            raise ConfigurationError(f"target: {target} has tables already -- give another folder")
        check_free(target, kept.storage)
        begin = job_state.JobState(is_birth=files_begin(file.name for file in log_files(parsed)))
        planted = None if seed is None else _plant(seed, kept, begin, parsed)
        with our_errors(), batch_of(spark, options, target) as frame:
            for number, items in enumerate(_by_partition(frame)):
                wanted = items if planted is None else list(behind(planted, items))
                run_batch(kept, begin, _FILES_QUERY, number, partial(list, wanted))

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add SOURCE, --target and the other arguments."""
        add_source_arguments(parser, "earliest (default), or as --seed says")
        parser.add_argument(
            "--target", required=True, metavar="DIR", help="where the tables are kept: DIR/schema/table"
        )
        parser.add_argument(
            "--seed", metavar="PATH@CHECKPOINT", help="the state of the tables at a place of the log"
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
                query = self.start(spark, source, target, state=state, pace=pace, seed=seed)
                note(f"following {options.source} -> {target}")
                await_queries(query)
        note(f"{target}: done")

    def _target(self, path: str, options: "SourceOptions") -> "Target":
        from .coverage import SYSTEM_SCHEMAS
        from .micro_batch import Target

        wants_table = table_filter(options.settings.tables, options.settings.exclude_tables)

        def wants(name: str) -> bool:
            schema, _, table = name.partition(".")
            return schema not in SYSTEM_SCHEMAS and (wants_table is None or wants_table(schema, table))

        return Target(path, self.kind(), wants, options.settings.storage)


class _EachBatch:
    """A function for ``foreachBatch``."""

    def __init__(self, target: "Target", begin: "JobState", checkpoint: str) -> None:
        self._target = target
        self._begin = begin
        self._checkpoint = checkpoint

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        from .merge_tasks import stage
        from .micro_batch import run_staged

        query = query_id(frame, self._checkpoint, self._target.storage)
        target = replace(self._target, spark=frame.sparkSession)
        items = partial(stage, frame, target.path, target.storage)
        run_staged(target, self._begin, query, batch, items)


def _counted(frame: "DataFrame") -> "DataFrame":
    """The frame of a stream, whose progress then counts row changes: Spark itself counts items."""
    from pyspark.sql import functions

    rows = functions.coalesce(functions.sum("row_count"), functions.lit(0))
    return frame.observe("changes", rows.alias("rows"))


def _items(rows: "Iterable[Row]") -> "list[PackedItem]":
    from ..packed import PACKED_SCHEMA, PackedItem

    return [PackedItem(*(row[name] for name in PACKED_SCHEMA.names)) for row in rows]


def _by_partition(frame: "DataFrame") -> "Iterator[list[PackedItem]]":
    """The items of one partition after another; Spark reads the next partition meanwhile."""
    from pyspark.sql import functions

    numbered = frame.withColumn("partition", functions.spark_partition_id())
    rows = numbered.toLocalIterator(prefetchPartitions=True)
    for _, items in groupby(rows, key=lambda row: row["partition"]):
        yield _items(items)


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


def _source(given: Mapping[str, str], *, is_live: bool) -> dict[str, str]:
    names = {name.lower() for name in given}
    if fixed := names & _FIXED:
        raise ConfigurationError(f"{', '.join(sorted(fixed))}: the job sets this option itself: leave it out")
    options = {"schemaMode": "packed"} | dict(given)
    if is_live:
        if not names & _STARTING:
            options["startingOffsets"] = _DEFAULTS["startingOffsets"]
        if not names & _LIMITS:
            options["maxBytesPerTrigger"] = _DEFAULTS["maxBytesPerTrigger"]
    return options
