"""``mirror``: the tables of a source as they are now, in Delta.

    from replica.spark.jobs import mirror

    query = mirror.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "includeTables": "shop.*"}, "/lake")
    DeltaTable("/lake/shop/orders").to_pyarrow_table()

One job keeps any number of tables. Each row of the target is the source's row as it is now, in the types of table
mode (``replica.spark.table_mode``; TIME is text). TRUNCATE and DROP empty the target's table, RENAME moves it, and
columns are added (with the next row of the table), dropped and renamed as on the source. Rows that a foreign key
cascades to are followed on MySQL 9.7; other servers do not log them. The target has a table from its first row on.
Dates that no calendar has are null. MariaDB 11.8.9 does not log generated columns of updates (MDEV-40057): they are
null in updated rows, unless images are MINIMAL, which do not tell.

If the log does not show a change of a table (a dropped partition, a new column whose values only the server knows),
or if a table has no primary key, it is parked: it stays as it was until the source drops it, or until it is copied
anew (``replica.spark.jobs.resync``). The others go on, and the command ends with an error that names it.
``mirror.progress(target)``, or `mysql-replica spark progress --target DIR`, shows all tables, and the reason.

Changes wait in the target, and are merged into a table when they are some 5 % of it, or after five minutes
(``merge_interval``); with ``once``, with each micro-batch. So readers of Delta see a table as of its last merge;
``replica.spark.read_current(spark, target, "shop.orders")`` is as of the last micro-batch. Executors merge: the
files of a table are ranges of its key of up to 128 MB, and only those with changes are written again. A user may run
OPTIMIZE, or VACUUM, at any time; with ``retention_hours`` the job itself deletes old files.

A new job copies the source's tables first, on executors (``first_copy``); ``_state/copy.json`` has its plan. Rows are
as they were at some moment of the copy, until the log has passed it: from then on the table has the property
``mysql-replica.consistentSince``, and each of its versions is a state that the source had. A job that is
started with other tables than before copies the new ones. If row images are not FULL, rows whose key changed during
the copy are read again, by key (``rows_again``): on MySQL with GTIDs without locks; elsewhere with share locks on
these rows for a moment. With ``once`` and writers at work, that may take another run.

``keep_seq``: rows have ``_seq``, the sequence number of their last change, and ``_ts``, its commit time; both are
null for rows of a copy. ``soft_deletes``: rows that the source has deleted stay as they were last, with ``_deleted``,
until a row with their key comes back. Rows also stay after TRUNCATE, and after DROP until the table is created again.
Rows that a new copy (resync) lacks stay, too, with the columns of the copy; values that its types cannot hold are
null. A target keeps the columns with which it began.

For column names that the log lacks (no server logs them by default), the job reads the tables' columns when it
begins, keeps them in ``spoolDir``, and follows the log's DDL, so names are right for each place. The user needs
SELECT on the tables.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replica.spark.jobs import progress as job_progress
from replica.spark.jobs.job_arguments import Job, Note, run_script
from replica.spark.jobs.spark_session import Pace, State
from replica.spark.jobs.table_job import EPILOG, MERGE_SECONDS, TableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from replica.spark.jobs.target import TableKind


def _kind() -> "TableKind":
    from replica.spark.jobs.current_table import CurrentTable

    return CurrentTable


def _stamped() -> "TableKind":
    from replica.spark.jobs.current_table import StampedTable

    return StampedTable


def _soft() -> "TableKind":
    from replica.spark.jobs.current_table import SoftTable

    return SoftTable


_MIRROR: Final = TableJob("mirror", _kind)


def _job(keep_seq: bool, soft_deletes: bool) -> TableJob:
    if soft_deletes:
        return TableJob("mirror", _soft)
    return TableJob("mirror", _stamped) if keep_seq else _MIRROR


def start(
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
    keep_seq: bool = False,
    soft_deletes: bool = False,
) -> "StreamingQuery":
    """Follow a live source: see ``TableJob.start``. ``keep_seq`` and ``soft_deletes`` add columns to the tables."""
    return _job(keep_seq, soft_deletes).start(
        spark,
        source,
        target,
        state=state,
        pace=pace,
        seed=seed,
        merge_interval=merge_interval,
        retention_hours=retention_hours,
        snapshot=snapshot,
    )


def load(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    target: str,
    *,
    seed: str | None = None,
    keep_seq: bool = False,
    soft_deletes: bool = False,
) -> None:
    """Write the tables as they are at the end of files (option ``path``) to a target that does not exist yet."""
    _job(keep_seq, soft_deletes).load(spark, source, target, seed=seed)


def _add_arguments(parser: ArgumentParser) -> None:
    _MIRROR.add_arguments(parser)
    parser.add_argument(
        "--keep-seq", action="store_true", help="rows have _seq and _ts: number and time of their last change"
    )
    parser.add_argument(
        "--soft-deletes",
        action="store_true",
        help="deleted rows stay, with _deleted; rows have _seq and _ts, too",
    )


def _run(options: Namespace, note: Note) -> None:
    _job(options.keep_seq, options.soft_deletes).run(options, note)


progress: Final = job_progress.progress

JOB: Final = Job("mirror", "Keep tables as they are now in Delta", _add_arguments, _run, EPILOG)

if __name__ == "__main__":
    run_script(JOB)
