"""A mirror whose table gets the rows of another one, which it does not select, as online schema changes do.

It says so, and is copied anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.spark.jobs import mirror
from tests.server.support.copied_jobs import CopiedJob
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as name:
        yield name


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_a_swap(
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    server.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, v INT)")
    server.query(f"INSERT INTO {shop}.t VALUES (1, 1), (2, 2)")
    job = CopiedJob(spark, server, shop, tmp_path)
    job.source["includeTables"] = f"{shop}.t"
    job.run()
    server.query(f"CREATE TABLE {shop}.t_new LIKE {shop}.t")
    server.query(f"INSERT INTO {shop}.t_new VALUES (2, 20), (4, 40)")
    server.query(f"RENAME TABLE {shop}.t TO {shop}.t_old, {shop}.t_new TO {shop}.t")
    server.query(f"UPDATE {shop}.t SET v = 41 WHERE id = 4")
    job.run()
    reasons = {
        row["table"]: row["reason"]
        for row in mirror.progress(str(job.target)).to_pylist()
        if row["reason"] is not None
    }
    # The other one is none of the job's tables, and could not be copied anew.
    assert list(reasons) == [f"{shop}.t"]
    assert "select both names (includeTables)" in reasons[f"{shop}.t"]
    job.run()
    found = sorted((row["id"], row["v"]) for row in rows_of(job.target, f"{shop}.t"))
    assert found == [(2, 20), (4, 41)]
