"""``changelog``: every change of a log, append-only, as Parquet or Delta, in one table for all tables of the source.

    from replica.spark.jobs import changelog

    query = changelog.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW"}, "/lake/changes")
    changelog.load(spark, {"path": "/logs/binlog.*"}, "/lake/changes")

The columns are those of the envelope and ``day``, the day of ``ts`` in UTC. Folders are ``day=...``, and tables share
files, so that 500 tables do not make 500 files of each micro-batch (``changelog_layout``); with ``layout="tables"``
they are ``schema=.../table=.../day=...``. A stream writes each change exactly once, however often it is killed.
Parquet written by a stream must be read through Spark, which knows the files that its sink has committed; a Delta
table has a log of its own for any reader. Parquet on ``s3://`` is written without Hadoop's client for S3, and
``changelog.files`` names its committed files for other readers. In Delta, and in Parquet on S3, rows are JSON text.
``--typed`` is another job: a Delta table with typed columns for each table of the source (``typed_changelog``).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from protocol.errors import ConfigurationError
from replica.config.selection import one_of
from replica.spark.jobs.job_arguments import (
    Job,
    Note,
    add_run_arguments,
    add_source_arguments,
    add_target_argument,
    pace_from,
    run_script,
    source_options,
    state_from,
)
from replica.spark.jobs.spark_session import (
    Pace,
    State,
    absolute,
    await_queries,
    batch_of,
    check_pace,
    counted,
    open_session,
    our_errors,
    read_stream,
    require_delta,
    session_for,
    start_query,
    state_of,
    storage_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from replica.spark.jobs.changelog_layout import Layout

Format = Literal["parquet", "delta"]

_SECONDS_A_DAY: Final = 86_400
_NO_STORAGE: Final[Mapping[str, str]] = MappingProxyType({})


def start(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    target: str,
    *,
    format: Format = "parquet",
    layout: "Layout | None" = None,
    state: State | None = None,
    pace: Pace | None = None,
) -> "StreamingQuery":
    """Follow a live source; ``source`` has options of ``mysql-binlog``. The returned query may be stopped.

    ``layout`` is ``shared`` (default of a new target) or ``tables``: see ``changelog_layout``.

    Started again with the same ``state`` (default: ``_state`` in the target), it continues where it ended. Raises
    ``CheckpointError`` if the state belongs to another target, or one of the two is an older copy, or if the state of
    a Delta table is lost.
    """
    _check_form(format, layout)
    spark, target = open_session(spark), absolute(target)
    check_pace(spark, pace)
    state = state or state_of(target, source=source)
    options, schema = _for_format(source, format, target), _packed_schema(source, format, target)
    frame = read_stream(spark, options, target, state)
    frame = with_day(frame) if schema is None else counted(frame)
    storage = storage_of(source)
    from replica.spark.jobs.changelog_layout import note_layout, partitions_of
    from replica.spark.jobs.target_kind import check_kind

    check_kind(target, format, storage)
    partitions = partitions_of(target, format, layout, storage)
    if format == "delta":
        from replica.spark.jobs.delta_append import AppendToDelta

        each = AppendToDelta(target, partitions, state.checkpoint, storage, schema, _source_name(source))
        each.check()
        note_layout(target, partitions, storage)
        writer = frame.writeStream.foreachBatch(each)
        return start_query(writer, state, pace, storage)
    from replica.spark.jobs.file_sink import check_file_sink, check_shared

    check_file_sink(target, state, storage)
    check_shared(spark, target)
    note_layout(target, partitions, storage)
    if _is_on_s3(target):
        from replica.spark.jobs.parquet_append import append

        def append_batch(changes: "DataFrame", batch: int) -> None:
            append(changes, target, partitions, storage, batch, is_packed=True)

        return start_query(frame.writeStream.foreachBatch(append_batch), state, pace, storage)
    writer = frame.writeStream.format("parquet").partitionBy(*partitions)
    return start_query(writer, state, pace, storage, path=target)


def load(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    target: str,
    *,
    format: Format = "parquet",
    layout: "Layout | None" = None,
) -> None:
    """Write the changes of files, or of a live source's log as it is now, to a target that does not exist yet."""
    _check_form(format, layout)
    spark, target = open_session(spark), absolute(target)
    from replica.spark.jobs.changelog_layout import PARTITIONS
    from replica.spark.jobs.target_kind import check_kind

    partitions, storage = PARTITIONS[layout or "shared"], storage_of(source)
    check_kind(target, format, storage)
    options, schema = _for_format(source, format, target), _packed_schema(source, format, target)
    with our_errors(), batch_of(spark, options, target) as frame:
        if format == "delta":
            from replica.spark.jobs.delta_append import create_table

            create_table(frame, target, partitions, storage, schema)
        elif _is_on_s3(target):
            from replica.spark.jobs.parquet_append import create

            create(frame, target, partitions, storage, is_packed=True)
        else:
            from replica.spark.jobs.file_sink import check_shared

            check_shared(spark, target)
            ordered = with_day(frame).sortWithinPartitions("day", "schema", "table", "seq")
            ordered.write.partitionBy(*partitions).parquet(target)


def files(target: str, storage: Mapping[str, str] = _NO_STORAGE) -> list[str]:
    """The URIs of the Parquet files of a target on S3, for readers other than Spark; ``storage`` as in ``start``.

    Other files in its folder may come from a task that was killed.
    """
    from replica.spark.jobs.parquet_append import committed_files

    return committed_files(target, storage)


def _is_on_s3(target: str) -> bool:
    """Whether this project writes the Parquet files: Spark's own sink needs Hadoop's client for S3 (``s3a://``)."""
    return target.startswith("s3://")


def with_day(frame: "DataFrame") -> "DataFrame":
    """The changes with the column ``day``: the day of each in UTC, whatever the session's time zone is."""
    from pyspark.sql import functions

    seconds = functions.unix_seconds("ts")
    days = functions.floor(seconds / _SECONDS_A_DAY).cast("int")
    return frame.withColumn("day", functions.date_from_unix_date(days))


def _check_form(format: str, layout: str | None) -> None:
    """Raises ``ConfigurationError`` for a format or a layout that there is not: another one was taken silently."""
    one_of("parquet", "delta")("format", format)
    if layout is not None:
        one_of("shared", "tables")("layout", layout)


def _for_format(source: Mapping[str, str], format: Format, target: str) -> dict[str, str]:
    if any(name.lower() == "schemamode" and value.lower() != "envelope" for name, value in source.items()):
        raise ConfigurationError(
            "schemaMode: a changelog needs schemaMode=envelope, as it has rows of any table: leave the option out"
        )
    if format == "delta":
        require_delta()
    elif not _is_on_s3(target):
        return dict(source)
    given = {name.lower(): value for name, value in source.items()}
    if given.get("rowformat", "json").lower() != "json":
        kind = "a Delta table" if format == "delta" else "Parquet on s3://"
        raise ConfigurationError(f"rowFormat: must be json for {kind}, or left out")
    others = {name: value for name, value in source.items() if name.lower() != "schemamode"}
    return {"rowFormat": "json", "schemaMode": "packed_envelope", **others}


def _source_name(source: Mapping[str, str]) -> str:
    """The name that tells sources of one target apart; empty without one."""
    return next((value for option, value in source.items() if option.lower() == "sourcename"), "")


def _packed_schema(source: Mapping[str, str], format: Format, target: str) -> "pa.Schema | None":
    """The columns of the envelope, if this project writes the files: then Spark passes batches on unread."""
    options = _for_format(source, format, target)
    if options.get("schemaMode") != "packed_envelope":
        return None
    from replica.spark.data_source import arrow_schema
    from replica.spark.source_options import parse_options

    return arrow_schema(parse_options(options | {"schemaMode": "envelope"}))


def _add_arguments(parser: ArgumentParser) -> None:
    add_source_arguments(parser)
    add_target_argument(parser, "the folder of the table; made if it is not there")
    parser.add_argument(
        "--format",
        choices=("parquet", "delta"),
        help="default: parquet, which is to be read with Spark",
    )
    parser.add_argument(
        "--layout",
        choices=("shared", "tables"),
        help="shared: tables share files (default of a new target); tables: a folder for each table",
    )
    parser.add_argument(
        "--typed",
        action="store_true",
        help="a Delta table for each table, TARGET/schema/table: its columns, and _op, _seq, _ts, _deleted",
    )
    parser.add_argument(
        "--append-interval",
        type=float,
        metavar="SECONDS",
        help="with --typed: append changes this often, or when 32 MB of a table wait; default: 300",
    )
    add_run_arguments(parser)


def _run(options: Namespace, note: Note) -> None:
    # Mistakes in the options are reported before a JVM starts.
    if options.typed:
        _run_typed(options, note)
        return
    if options.append_interval is not None:
        raise ConfigurationError("--append-interval: is for --typed")
    format: Format = options.format or "parquet"
    source = source_options(options)
    _for_format(source, format, options.target)
    state, pace = state_from(options, options.target, source), pace_from(options)
    with session_for("mysql-replica changelog", options.master) as spark:
        if "path" in source:
            load(spark, source, options.target, format=format, layout=options.layout)
        else:
            query = start(
                spark,
                source,
                options.target,
                format=format,
                layout=options.layout,
                state=state,
                pace=pace,
            )
            note(f"following {options.source} -> {options.target}")
            await_queries(query)
    note(f"{options.target}: done")


def _run_typed(options: Namespace, note: Note) -> None:
    from replica.spark.jobs import typed_changelog
    from replica.spark.jobs.progress import check_parked
    from replica.spark.jobs.table_job import MERGE_SECONDS

    if options.format == "parquet" or options.layout is not None:
        raise ConfigurationError(
            "--typed: makes Delta tables, one for each table: leave --format and --layout out"
        )
    source, target = source_options(options), options.target
    state, pace = state_from(options, target, source), pace_from(options)
    seconds = MERGE_SECONDS if options.append_interval is None else options.append_interval
    with session_for("mysql-replica changelog", options.master) as spark:
        if "path" in source:
            typed_changelog.load(spark, source, target)
        else:
            query = typed_changelog.start(
                spark, source, target, state=state, pace=pace, append_interval=seconds
            )
            note(f"following {options.source} -> {target}")
            await_queries(query)
    check_parked(absolute(target), source)
    note(f"{target}: done")


JOB: Final = Job(
    "changelog",
    "Append every change to a Parquet or Delta table",
    _add_arguments,
    _run,
    "Started again, it continues where it ended. The state is in TARGET/_state: to begin anew, delete the target.",
)

if __name__ == "__main__":
    run_script(JOB)
