"""Five tables that change at random while their mirror, or their history, is killed: row by row they stay equal.

Meanwhile a user optimizes and vacuums the tables, and reads them: each version is a state that the source had.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.spark.jobs import mirror
from tests.server.support import random_shop
from tests.server.support.busy_user import BusyUser
from tests.server.support.killed_queries import KilledQuery
from tests.server.support.random_shop import TABLES, RandomWriter, kept_rows, source_rows
from tests.server.support.streams import begin_log
from tests.spark.conftest import spark, spark_missing  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import check_intervals, run_once
from tests.spark.support.killed_mirror import JOBS, POINTS
from tests.spark.support.spark_python import retried
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 10
TRANSACTIONS = 200  # between two kills
FEW_TRANSACTIONS = 40  # in the short form, which has one kill


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    if reason := spark_missing():
        pytest.skip(reason)
    begin_log(server)
    with server.fresh_schema() as schema:
        random_shop.create(server, schema)
        yield schema


def has_gone_on(query: KilledQuery, begun: int) -> bool:
    return max(query.commits()) > begun


def has_merged_all(query: KilledQuery, target: Path) -> bool:
    """A micro-batch may be committed some time before its rows are merged."""
    return query.has_all() and not any(mirror.progress(str(target))["waiting_rows"].to_pylist())


@pytest.mark.parametrize(
    "server", ["mysql:9.7", pytest.param("mariadb:11.8", marks=pytest.mark.long)], indirect=True
)
@pytest.mark.parametrize("job", JOBS)
def test_killed_at_any_time(
    seed: int,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    monkeypatch.setenv("JOB", job)
    rng = random.Random(seed)
    query = KilledQuery(
        server,
        tmp_path,
        [f"{shop}.*"],
        module="tests.spark.support.killed_mirror",
        formats=(job,),
        maxRowsPerTrigger=400,
    )
    is_long = pytestconfig.getoption("long")
    points = [*POINTS, *[""] * KILLS]
    rng.shuffle(points)
    points = points if is_long else [rng.choice(POINTS)]
    transactions = TRANSACTIONS if is_long else FEW_TRANSACTIONS
    user = BusyUser(tmp_path / job, shop, seed, is_history=job == "history")
    with user, RandomWriter(server, shop, rng) as writer:
        for point in points:
            writer.allowed = writer.made + transactions
            begun = max(query.commits())
            if point:
                retried(partial(query.run_to_its_death, f"{job}:{point}:2"))
            else:
                is_on = partial(has_gone_on, query, begun)
                retried(partial(query.run_until, is_on, rng.uniform(0, 5)))
            print(f"killed {point or 'at some time'}: micro-batches {query.commits()}", flush=True)
            writer.reach(writer.allowed)
        # The last run may have had all so far, and the one at the end would have nothing to do.
        writer.reach(writer.made + FEW_TRANSACTIONS)
    with BusyUser(tmp_path / job, shop, f"{seed} at the end", is_history=job == "history") as last:
        if is_long:
            retried(partial(query.run_until, partial(has_merged_all, query, tmp_path / job)))
        else:
            # Spark's session of the test run goes on where the killed one ended: that saves another start of Spark.
            source = {name: value for name, value in query.source.items() if name != "rowFormat"}
            retried(partial(run_once, JOBS[job], spark, source, tmp_path / job))
    for one in (user, last):
        print(f"states seen {one.reads}, optimized {one.optimized} times, refused {one.refused}")
        one.check(server)
    assert sum(map(len, last.seen.values()))
    for table in TABLES:
        expected = source_rows(server, shop, table)
        assert expected
        is_history = job == "history"
        assert kept_rows(tmp_path / job, shop, table, is_history=is_history) == expected, table
        if is_history:
            check_intervals(tmp_path / job, f"{shop}.{table}", TABLES[table][0])
