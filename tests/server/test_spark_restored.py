"""Tables of a mirror that were taken back alone: by a RESTORE, a copy of their folder, an empty file; or deleted."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from replica.cli import main
from replica.spark.jobs import mirror
from replica.spark.jobs.kept_table import table_path
from tests.server.support.copied_jobs import CopiedJob
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TAKEN_BACK = ("restored", "copied", "deleted", "emptied")
TABLES = (*TAKEN_BACK, "whole")


@pytest.mark.parametrize("server", ["mysql:9.7"], indirect=True)
def test_they_are_parked_and_copied_anew(
    spark: SparkSession,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    with server.fresh_schema() as shop:
        job = CopiedJob(spark, server, shop, tmp_path)
        paths = {name: Path(table_path(str(job.target), f"{shop}.{name}")) for name in TABLES}

        def insert(number: int) -> None:
            for name in TABLES:
                server.query(f"INSERT INTO {shop}.{name} VALUES ({number})")
            job.run()

        def kept(name: str) -> list[int]:
            return sorted(row["id"] for row in rows_of(job.target, f"{shop}.{name}"))

        for name in TABLES:
            server.query(f"CREATE TABLE {shop}.{name} (id INT PRIMARY KEY)")
        insert(1)
        older = DeltaTable(paths["restored"]).version()
        shutil.copytree(paths["copied"], tmp_path / "copy")
        insert(2)
        DeltaTable(paths["restored"]).restore(older)
        os.truncate(max((paths["emptied"] / "_delta_log").glob("*.json")), 0)
        for name in ("copied", "deleted"):
            shutil.rmtree(paths[name])
        shutil.copytree(tmp_path / "copy", paths["copied"])
        insert(3)
        found = {row["table"]: row["reason"] for row in mirror.progress(str(job.target)).to_pylist()}
        assert [name for name in TABLES if found[f"{shop}.{name}"]] == list(TAKEN_BACK)
        assert kept("whole") == [1, 2, 3]
        for name in TAKEN_BACK:
            why = "has lost the rows" if name == "emptied" else "an older copy than"
            assert why in found[f"{shop}.{name}"]
            assert main(shlex.split(found[f"{shop}.{name}"].partition("copy it anew: ")[2])[1:]) == 0
        job.run()
        insert(4)
        assert [kept(name) for name in TABLES] == [[1, 2, 3, 4]] * len(TABLES)
        assert not [row for row in mirror.progress(str(job.target)).to_pylist() if row["reason"]]
