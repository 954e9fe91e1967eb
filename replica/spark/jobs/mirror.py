"""``mirror``: the tables of a source as they are now, in Delta.

    from replica.spark.jobs import mirror

    query = mirror.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "includeTables": "shop.*"}, "/lake")
    DeltaTable("/lake/shop/orders").to_pyarrow_table()

One job keeps any number of tables. Each row of the target is the source's row as it is now, in the types of table
mode (``replica.spark.table_mode``; TIME is text). TRUNCATE and DROP empty the target's table, RENAME moves it, and
columns are added, dropped and renamed as on the source. Rows that a foreign key cascades to are followed on MySQL
9.7; other servers do not log them. The target has a table from its first row on. Dates that no calendar has are
null.

If the log does not show a change of a table (a dropped partition, a new column whose values only the server knows),
or if a table has no primary key, it is parked: it stays as it was until the source drops it, or until it is copied
anew (``replica.spark.jobs.resync``). The others go on, and the command ends with an error that names it.
``mirror.progress(target)`` shows all tables, and the reason.

Changes wait in the target, and are merged into a table when they are some 5 % of it, or after five minutes
(``merge_interval``); with ``once``, with each micro-batch. So readers of Delta see a table as of its last merge;
``replica.spark.read_current(spark, target, "shop.orders")`` is as of the last micro-batch. Executors merge: the
files of a table are ranges of its key of up to 128 MB, and only those with changes are written again. A user may run
OPTIMIZE, or VACUUM, at any time; with ``retention_hours`` the job itself deletes old files.

A new job copies the source's tables first, on executors (``first_copy``); ``_state/copy.json`` has its plan. Rows are
as they were at some moment of the copy, until the log has passed it. A job that is started with other tables than
before copies the new ones.

Column names that the log lacks (no server logs them by default) are those of their place: the job reads the tables
when it begins, keeps them in ``spoolDir``, and follows the log's DDL. The user needs SELECT on the tables.
"""

from typing import TYPE_CHECKING, Final

from replica.spark.jobs import table_job
from replica.spark.jobs.job_arguments import Job, run_script
from replica.spark.jobs.table_job import EPILOG, TableJob

if TYPE_CHECKING:
    from replica.spark.jobs.target import TableKind


def _kind() -> "TableKind":
    from replica.spark.jobs.current_table import CurrentTable

    return CurrentTable


_MIRROR: Final = TableJob("mirror", _kind)

start: Final = _MIRROR.start
load: Final = _MIRROR.load
progress: Final = table_job.progress

JOB: Final = Job("mirror", "Keep tables as they are now in Delta", _MIRROR.add_arguments, _MIRROR.run, EPILOG)

if __name__ == "__main__":
    run_script(JOB)
