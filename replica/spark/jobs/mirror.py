"""``mirror``: the tables of a source as they are now, in Delta.

    from replica.spark.jobs import mirror

    query = mirror.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "includeTables": "shop.*"}, "/lake")
    DeltaTable("/lake/shop/orders").to_pyarrow_table()

One job keeps any number of tables. Each row of the target is the source's row as it is now, in the types of table
mode (``replica.spark.table_mode``; TIME is text). TRUNCATE and DROP empty the target's table, RENAME moves it, and
columns are added, dropped and renamed as on the source. The job stops with an error that names the table if the log
does not show a change (a dropped partition, a new column whose values only the server knows), or if a table has no
primary key. Rows that a foreign key cascades to are followed on MySQL 9.7; other servers do not log them. The target
has a table from its first row on. Dates that no calendar has are null.

The log should have the column names itself (binlog_row_metadata=FULL). Otherwise the job takes the names that the
source has when the rows are received, and stops with an error if it lags behind a statement that renames or drops
columns.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replica.spark.jobs.job_arguments import Job, run_script
from replica.spark.jobs.spark_session import Pace, State
from replica.spark.jobs.table_job import EPILOG, TableJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from replica.spark.jobs.micro_batch import TableKind


def _kind() -> "TableKind":
    from replica.spark.jobs.current_table import CurrentTable

    return CurrentTable


_MIRROR: Final = TableJob("mirror", _kind)


def start(
    spark: "SparkSession | None",
    source: Mapping[str, str],
    target: str,
    *,
    state: State | None = None,
    pace: Pace | None = None,
    seed: str | None = None,
) -> "StreamingQuery":
    """Follow a live source; ``source`` has options of ``mysql-binlog``. The returned query may be stopped.

    Started again with the same ``state`` (default: ``_state`` in the target), it continues where it ended. A new job
    begins at the beginning of the log, or with ``seed``: ``PATH@CHECKPOINT``. Raises ``ConfigurationError``, which
    names the tables, if the log does not reach back to their CREATE TABLE.
    """
    return _MIRROR.start(spark, source, target, state=state, pace=pace, seed=seed)


def load(
    spark: "SparkSession | None", source: Mapping[str, str], target: str, *, seed: str | None = None
) -> None:
    """Write the tables as they are at the end of some files (option ``path``) to a target that does not exist yet."""
    _MIRROR.load(spark, source, target, seed=seed)


JOB: Final = Job("mirror", "Keep tables as they are now in Delta", _MIRROR.add_arguments, _MIRROR.run, EPILOG)

if __name__ == "__main__":
    run_script(JOB)
