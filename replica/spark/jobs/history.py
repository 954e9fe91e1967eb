"""``history``: every state that rows of a source have had, in Delta: a slowly changing dimension of type 2.

    from replica.spark.jobs import history

    query = history.start(spark, {"host": ..., "user": ..., "passwordEnv": "PW", "includeTables": "shop.*"}, "/past")

Each state of a row is a row of the target, with ``valid_from``, ``valid_to`` and ``is_current``: see
``replica.spark.jobs.past_table``. It follows the same statements as ``mirror``, and parks the same tables.

A new job copies the source's tables first, on executors, and brings the copy to one exact place of the log
(``settled_copy``). These rows are states whose ``valid_from`` is null; the history is complete from that place on.
"""

from typing import TYPE_CHECKING, Final

from replica.spark.jobs import progress as job_progress
from replica.spark.jobs.job_arguments import Job, run_script
from replica.spark.jobs.table_job import EPILOG, TableJob

if TYPE_CHECKING:
    from replica.spark.jobs.target import TableKind


def _kind() -> "TableKind":
    from replica.spark.jobs.past_table import PastTable

    return PastTable


_HISTORY: Final = TableJob("history", _kind)

start: Final = _HISTORY.start
load: Final = _HISTORY.load
progress: Final = job_progress.progress

JOB: Final = Job(
    "history",
    "Keep all states of tables in Delta, with their times",
    _HISTORY.add_arguments,
    _HISTORY.run,
    EPILOG,
)

if __name__ == "__main__":
    run_script(JOB)
