"""``mirror``: the tables of a source as they are now, in Delta.

    from replica.spark.jobs import mirror

    query = mirror.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "includeTables": "shop.*"}, "/lake")
    DeltaTable("/lake/shop/orders").to_pyarrow_table()

One command keeps any number of tables. Each row of the target is the source's row as it is now, in the types of
table mode (``replica.spark.table_mode``; TIME is text). TRUNCATE and DROP empty the target's table, RENAME moves
it, columns come, go and change their names with those of the source; what the log does not show (a partition that
is dropped, a new column whose values only the server knows) is refused by name, and so are tables without a primary
key. Foreign keys that cascade are followed on MySQL 9.7, whose log has these rows: the others' have not. A table is
there from its first row on. Dates that no calendar has are null.

Names of columns are best in the log itself (binlog_row_metadata=FULL). Without them they are those that the source
has when the rows are read: a job that lags behind a statement that renames or drops something is refused by name.
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
    """Follow a live source; ``source`` are options of ``mysql-binlog``. The query that is returned may be stopped.

    It goes on where it ended when it is started again with the same ``state`` (default: ``_state`` in the target). A
    new one begins with the log, or with ``seed``: ``PATH@CHECKPOINT``. Raises ``ConfigurationError``, which names
    tables, when the log does not reach back to their CREATE TABLE.
    """
    return _MIRROR.start(spark, source, target, state=state, pace=pace, seed=seed)


def load(
    spark: "SparkSession | None", source: Mapping[str, str], target: str, *, seed: str | None = None
) -> None:
    """The tables as they are at the end of some files (option ``path``), to a target that is not there yet."""
    _MIRROR.load(spark, source, target, seed=seed)


JOB: Final = Job("mirror", "Keep tables as they are now in Delta", _MIRROR.add_arguments, _MIRROR.run, EPILOG)

if __name__ == "__main__":
    run_script(JOB)
