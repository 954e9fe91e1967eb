"""``changelog --typed``: every change of a log, append-only, in a typed Delta table for each table of the source.

    from replica.spark.jobs import typed_changelog

    query = typed_changelog.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW"}, "/lake/changes")
    DeltaTable("/lake/changes/shop/orders").to_pyarrow_table()

One query and one dump of the source for all tables. ``changes_table`` describes the columns: those of the source,
``_op``, ``_seq``, ``_ts``, ``_deleted`` and ``_absent``. Each change is there exactly once, however often the job is
killed: a commit has the micro-batch and the step as its application transactions.

Changes wait in the target, and are appended to a table when 32 MB of them wait, or after five minutes
(``append_interval``); with ``once``, with each micro-batch. So files have a useful size, and a commit is made for
tables with changes only. A user may run OPTIMIZE, or VACUUM, at any time.

TRUNCATE and DROP TABLE append a row whose ``_op`` is ``truncate``. RENAME TABLE: the changes so far stay under the
old name. Column names that the log lacks are found as for ``mirror``. A table whose columns have no names, or get a
type whose values the target's column cannot hold, is parked: ``typed_changelog.progress(target)`` has the reason.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from . import progress as job_progress
from .spark_session import Pace, State
from .table_job import MERGE_SECONDS, TableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from .target import TableKind


def _kind() -> "TableKind":
    from .changes_table import ChangesTable

    return ChangesTable


_JOB: Final = TableJob("changelog", _kind, begins_anywhere=True)

progress: Final = job_progress.progress


def start(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    target: str,
    *,
    state: State | None = None,
    pace: Pace | None = None,
    append_interval: float = MERGE_SECONDS,
) -> "StreamingQuery":
    """Follow a live source; ``source`` has options of ``mysql-binlog``. The returned query may be stopped.

    Started again with the same ``state`` (default: ``_state`` in the target), it continues where it ended.
    """
    return _JOB.start(
        spark, source, target, state=state, pace=pace, merge_interval=append_interval, snapshot=False
    )


def load(spark: "SparkSession | None", source: Mapping[str, str], target: str) -> None:
    """Write the changes of files (option ``path``) to a target that does not exist yet."""
    _JOB.load(spark, source, target)
