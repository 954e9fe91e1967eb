"""Jobs that begin with a copy, where one table has columns that a kept table cannot have: the others are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import ConfigurationError
from replica.config.options import Options
from replica.spark.jobs import history, job_state, mirror
from replica.spark.jobs.copy_plan import make_plan
from tests.server.support.copied_jobs import CopiedJob
from tests.server.support.streams import PASSWORD, user_of
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


def test_a_table_of_which_the_user_reads_some_columns_is_refused(server: Server, shop: str) -> None:
    """The others are copied, and the message says what to grant: it was a refused SHOW CREATE TABLE."""
    server.query(f"CREATE TABLE {shop}.t (id INT PRIMARY KEY, n INT, secret INT)")
    server.query(f"CREATE TABLE {shop}.plain (id INT PRIMARY KEY)")
    with user_of(server, "REPLICATION SLAVE, REPLICATION CLIENT") as user:
        server.query(f"GRANT SELECT (id, n) ON {shop}.t TO '{user}'@'%'")
        options = Options.build(server.dsn(user, PASSWORD), {"tls": "disabled", "tables": f"{shop}.*"})
        with pytest.raises(
            ConfigurationError, match=rf"^{shop}\.t: .*: GRANT SELECT ON {shop}\.t, or exclude"
        ):
            asyncio.run(make_plan(options, lambda name: name.startswith(f"{shop}."), 2))
        server.query(f"GRANT SELECT ON {shop}.plain TO '{user}'@'%'")
        plan = asyncio.run(make_plan(options, lambda name: name.startswith(f"{shop}."), 2))
    assert list(plan.tables) == [f"{shop}.plain"]
    assert list(plan.refused) == [f"{shop}.t"]


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
