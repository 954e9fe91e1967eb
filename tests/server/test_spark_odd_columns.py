"""Jobs that begin with a copy, where one table has columns that a kept table cannot have: the others are kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from replica.spark.jobs import history, job_state, mirror
from tests.server.support.copied_jobs import CopiedJob
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)


@pytest.fixture
def shop(server: Server) -> Iterator[str]:
    with server.fresh_schema() as schema:
        yield schema


@pytest.mark.parametrize(
    ("job", "options", "column"),
    [
        (mirror, {}, "a`b"),
        (mirror, {"keep_seq": True}, "_SEQ"),
        (history, {}, "valid_from"),
        (history, {}, "Is_Current"),
    ],
)
def test_the_other_tables_are_kept(
    job: ModuleType,
    options: dict[str, bool],
    column: str,
    spark: SparkSession,  # noqa: F811
    server: Server,
    shop: str,
    tmp_path: Path,
) -> None:
    name = column.replace("`", "``")
    server.query(f"CREATE TABLE {shop}.odd (id INT PRIMARY KEY, `{name}` INT)")
    server.query(f"CREATE TABLE {shop}.plain (id INT PRIMARY KEY)")
    server.query(f"INSERT INTO {shop}.odd VALUES (1, 2)")
    server.query(f"INSERT INTO {shop}.plain VALUES (1)")
    kept = CopiedJob(spark, server, shop, tmp_path, job)
    kept.run(**options)
    server.query(f"INSERT INTO {shop}.odd VALUES (2, 3)")
    server.query(f"INSERT INTO {shop}.plain VALUES (2)")
    kept.run(**options)
    found = job_state.peek(str(kept.target), {})
    assert found is not None
    [(parked, reason)] = found[0].parked.items()
    assert parked == f"{shop}.odd"
    assert reason.startswith(
        f"{shop}.odd: no column of a kept table may be called {column}: exclude the table -- "
    )
    assert {row["id"] for row in rows_of(kept.target, f"{shop}.plain")} == {1, 2}
    assert rows_of(kept.target, f"{shop}.odd") == []
