"""The changelog of a live source through Spark: both formats in several runs, batches run again, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import ConfigurationError, ReplicaError
from replica.spark.jobs import changelog
from replica.spark.jobs.spark_session import Pace, await_queries, read_stream, state_of
from tests.server.support.spark_sources import two_tables
from tests.spark.conftest import spark, spark_missing  # noqa: F401 -- the one session of the test run
from tests.support.places import ROOT
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 900


@pytest.fixture
def tables(mysql97: Server) -> Iterator[list[str]]:
    with two_tables(mysql97, ("orders", "or ders"), 100) as names:
        yield names


def quoted(name: str) -> str:
    schema, _, table = name.partition(".")
    return f"`{schema}`.`{table}`"


def insert(server: Server, tables: list[str], first: int, count: int) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(first, first + count):
            cursor.execute(f"INSERT INTO {quoted(tables[number % 2])} (id, v) VALUES ({number}, 'x')")


class Job:
    """One changelog that is run many times, to the end of the log."""

    def __init__(self, session: SparkSession, server: Server, folder: Path, tables: list[str]) -> None:
        self.session, self.folder = session, folder
        password = folder / "password"
        password.write_text(server.replica_password + "\n")
        self.source = {
            "host": server.host,
            "port": str(server.port),
            "user": server.replica_user,
            "passwordFile": str(password),
            "includeTables": ",".join(tables),
            "rowFormat": "json",
            "includeDdl": "true",
            "heartbeat": "1",
        }

    def run(self, format: changelog.Format, target: Path | None = None, **more: object) -> None:
        query = changelog.start(
            self.session,
            self.source,
            str(target or self.folder / format),
            format=format,
            pace=Pace(once=True),
            **more,  # type: ignore[arg-type]
        )
        await_queries(query)

    def ids(self, format: changelog.Format) -> list[int]:
        """The rows that were inserted, in the order of the log."""
        rows = self.rows(format)
        return [json.loads(row["after"])["id"] for row in rows if row["op"] == "insert"]

    def rows(self, format: changelog.Format) -> list[dict[str, Any]]:
        target, columns = self.folder / format, ["op", "table", "seq", "after", "sql"]
        if format == "delta":
            rows = DeltaTable(target).to_pyarrow_table(columns=columns)
        else:
            rows = self.session.read.parquet(str(target)).select(*columns).toArrow()
        found: list[dict[str, Any]] = rows.sort_by("seq").to_pylist()
        return found

    def last_commit(self, format: changelog.Format) -> int:
        """The last micro-batch that Spark takes for done."""
        return max(int(path.name) for path in self._commits(format).glob("[0-9]*"))

    def _commits(self, format: changelog.Format) -> Path:
        return Path(state_of(str(self.folder / format)).checkpoint) / "commits"

    def forget_last_commit(self, format: changelog.Format) -> None:
        """As if killed behind the sink's commit and before Spark's."""
        commits, last = self._commits(format), self.last_commit(format)
        for path in (commits / str(last), commits / f".{last}.crc"):
            path.unlink(missing_ok=True)


@pytest.fixture
def job(
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    tmp_path: Path,
    tables: list[str],
) -> Job:
    return Job(spark, mysql97, tmp_path, tables)


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_runs_go_on_and_batches_that_are_run_again_add_nothing(
    job: Job, mysql97: Server, tables: list[str], format: changelog.Format
) -> None:
    layout = "tables" if format == "parquet" else None
    job.run(format, layout=layout)
    insert(mysql97, tables, 0, 20)
    # Later runs find the layout in the target, though that has no rows yet.
    with pytest.raises(ConfigurationError, match="another layout"):
        job.run(format, layout="tables" if layout is None else "shared")
    job.run(format)
    assert job.ids(format) == list(range(20))
    job.forget_last_commit(format)
    mysql97.query(f"ALTER TABLE {quoted(tables[0])} ADD COLUMN n INT")
    mysql97.query(f"ALTER TABLE {quoted(tables[1])} ADD COLUMN n INT")
    insert(mysql97, tables, 20, 20)
    job.run(format)
    assert job.ids(format) == list(range(40))
    rows = job.rows(format)
    assert [row["op"] for row in rows[20:]] == ["ddl", "ddl", *["insert"] * 20]
    assert {row["table"] for row in rows} == {None, "orders", "or ders"}
    assert ["n" in json.loads(row["after"]) for row in rows if row["after"]] == [*[False] * 20, *[True] * 20]
    folders = {path.parent.parent.name for path in (job.folder / format).rglob("day=*/*.parquet")}
    assert len(folders) == (3 if format == "parquet" else 1)
    if format == "delta":
        table = DeltaTable(job.folder / format)
        # Made, and one commit for each micro-batch; a slow machine may need several for a run.
        assert [commit["operation"] for commit in reversed(table.history())] == [
            "CREATE TABLE",
            *["WRITE"] * (job.last_commit(format) + 1),
        ]
        # Neither table nor clean-up touches the state.
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        job.run(format)
        assert job.ids(format) == list(range(40))


def test_a_state_without_its_table_is_refused(job: Job, mysql97: Server, tables: list[str]) -> None:
    state = state_of(str(job.folder / "other"))
    job.run("delta", state=state)
    insert(mysql97, tables, 0, 2)
    with pytest.raises(ReplicaError, match="nothing of it"):
        job.run("delta", job.folder / "another", state=state)
    job.run("delta", state=state)
    assert job.ids("delta") == [0, 1]


def test_no_plan_and_no_log_of_spark_has_the_password(job: Job, mysql97: Server, tables: list[str]) -> None:
    insert(mysql97, tables, 0, 1)
    job.run("parquet")
    frame = read_stream(job.session, job.source, str(job.folder / "x"), state_of(str(job.folder / "x")))
    assert mysql97.replica_password not in frame._jdf.queryExecution().toString()
    found = [path for path in (job.folder / "parquet").rglob("*") if path.is_file()]
    assert found
    assert not any(mysql97.replica_password.encode() in path.read_bytes() for path in found)


def test_the_command_line_follows_until_it_is_told_to_stop(
    mysql97: Server, tables: list[str], tmp_path: Path
) -> None:
    if reason := spark_missing():
        pytest.skip(reason)
    insert(mysql97, tables, 0, 10)
    source = f"mysql://{mysql97.replica_user}@{mysql97.host}:{mysql97.port}"
    words = [
        *("spark", "changelog", source, "t", "--format", "delta", "--password-env", "PW"),
        *("--tables", ",".join(tables), "--start", "earliest", "--master", "local[2]"),
    ]
    environment = os.environ | {"PW": mysql97.replica_password, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "notes", "wb") as notes:
        process = subprocess.Popen(
            [sys.executable, "-m", "replica", *words], cwd=tmp_path, env=environment, stderr=notes
        )
    try:
        for count in (10, 20):
            until = time.monotonic() + SECONDS
            while len(found := delta_ids(tmp_path / "t")) < count:
                assert process.poll() is None, (tmp_path / "notes").read_text()
                assert time.monotonic() < until
                time.sleep(0.5)
            if count == 10:
                insert(mysql97, tables, 10, 10)
        process.terminate()
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert found == list(range(20))
    assert (tmp_path / "notes").read_text().splitlines()[-1] == "mysql-replica: t: done"


def delta_ids(target: Path) -> list[int]:
    """What is in the table by now, which may not be there yet."""
    if not DeltaTable.is_deltatable(str(target)):
        return []
    rows = DeltaTable(target).to_pyarrow_table(columns=["seq", "after"]).sort_by("seq")
    return [json.loads(after)["id"] for after in rows["after"].to_pylist()]
