"""A driver of a cluster that reads logs in several ways, one after another, in one session.

    python -m tests.spark.support.cluster_driver READS  ->  a line of JSON for each read

``CLUSTER`` has the settings of the session as JSON. READS is a list of objects with the ``options`` of the
source; ``stream`` is true for a stream, which reads everything that is there into Spark's sink ``memory``;
``changelog`` is the format of a changelog, which writes everything that is there to ``target``; the changes of a live
source with the checkpoint in ``state``. ``mirror`` is the target of a mirror of files.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import SparkSession

import replica.spark
from replica.spark.jobs import changelog as changelogs
from replica.spark.jobs import merge_tasks
from replica.spark.jobs import mirror as mirrors
from replica.spark.jobs.spark_session import Pace, await_queries, state_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SECONDS = 300
# The first number in the JSON of a row.
_NUMBER = r"""cast(regexp_extract(after, ':\\s*([0-9]+)', 1) as bigint)"""


def read(session: SparkSession, options: dict[str, str], stream: bool = False) -> dict[str, Any]:
    """The number of rows and of places in the log, and the sum of the first column."""
    options = {"rowFormat": "json"} | options
    if not stream:
        return summary(numbered(session.read.format("mysql-binlog").options(**options).load()))
    writer = numbered(session.readStream.format("mysql-binlog").options(**options).load()).writeStream
    query = writer.format("memory").queryName("rows").trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS)
    if failure := query.exception():
        raise failure
    progress = [json.loads(one.json) for one in query.recentProgress]
    return summary(session.table("rows")) | {"latest": progress[-1]["sources"][0]["latestOffset"]}


def numbered(frame: DataFrame) -> DataFrame:
    """A little of each row: Spark's sink ``memory`` keeps all rows in the driver."""
    return frame.selectExpr("seq", f"{_NUMBER} AS number")


def write(
    session: SparkSession,
    options: dict[str, str],
    changelog: Literal["parquet", "delta"],
    target: str,
    state: str = "",
) -> dict[str, Any]:
    """Nothing is told of what a changelog has written."""
    if "path" in options:
        changelogs.load(session, options, target, format=changelog)
        return {}
    query = changelogs.start(
        session, options, target, format=changelog, state=state_of(target, state), pace=Pace(once=True)
    )
    await_queries(query)
    return {}


def mirror(session: SparkSession, options: dict[str, str], mirror: str) -> dict[str, Any]:
    """Mirror files to a target; each merge, however small, is done by tasks."""
    merge_tasks.SMALL_BYTES = 0  # type: ignore[misc]
    mirrors.load(session, options, mirror)
    return {}


def summary(frame: DataFrame) -> dict[str, Any]:
    frame.createOrReplaceTempView("changes")
    session = frame.sparkSession
    row = session.sql(
        "SELECT count(*) AS rows, count(DISTINCT seq) AS places, sum(number) AS total FROM changes"
    ).first()
    assert row is not None
    return row.asDict()


def main(reads: list[dict[str, Any]]) -> None:
    builder = SparkSession.builder
    settings: dict[str, str] = json.loads(os.environ["CLUSTER"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    replica.spark.register(session)
    for one in reads:
        started = time.monotonic()
        run = write if "changelog" in one else mirror if "mirror" in one else read
        print(json.dumps(run(session, **one)), flush=True)
        print(f"{time.monotonic() - started:.1f} s", flush=True)
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
