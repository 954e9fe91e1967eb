"""The job mirror or history, in a process that others kill, or that kills itself.

    JOB=mirror python -m tests.spark.support.killed_mirror FOLDER OPTION=VALUE...  ->  FOLDER/mirror

``KILL_AT`` is as in ``killed_query``; also ``mirror:between_commits:7``: before the seventh commit of a table.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from replica.spark.jobs import history, keeper, kept_table, mirror, staged_source
from replica.spark.jobs.spark_session import await_queries
from tests.spark.support.cluster import SHORT_LIVED
from tests.spark.support.killed_query import POINTS as QUERY_POINTS
from tests.spark.support.killed_query import Kill, KilledSource
from tests.spark.support.spark_python import spark_python

JOBS = {"mirror": mirror, "history": history}
MERGE_SECONDS = 0.7
POINTS = (*QUERY_POINTS, "between_commits")


class KilledStagedSource(staged_source.StagedSource, KilledSource):
    """The data source of the jobs, with a reader that may be killed."""


def main(folder: Path, *pairs: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", spark_python(folder / "local"))
    os.environ["KILLED_GROUP"] = str(os.getpgid(0))
    builder = SparkSession.builder.master("local[2]")
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    staged_source.register = lambda spark: spark.dataSource.register(KilledStagedSource)
    kill = Kill()
    run, take = keeper.Keeper.run, kept_table.Step.properties

    def killed_run(one: keeper.Keeper, *arguments: Any) -> None:
        run(one, *arguments)
        kill.reach(os.environ["JOB"], "after_sink")

    def properties(step: kept_table.Step, **options: Any) -> Any:
        kill.reach(os.environ["JOB"], "between_commits")
        return take(step, **options)

    keeper.Keeper.run = killed_run  # type: ignore[method-assign, assignment]
    kept_table.Step.properties = properties  # type: ignore[method-assign, assignment]
    source = dict(pair.split("=", 1) for pair in pairs)
    del source["rowFormat"]
    job = os.environ["JOB"]
    # Some merges are those of a micro-batch, some come behind it.
    await_queries(JOBS[job].start(session, source, str(folder / job), merge_interval=MERGE_SECONDS))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
