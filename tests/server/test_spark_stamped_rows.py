"""Live sources: a mirror that keeps deleted rows and the numbers of changes, and the typed changelog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from protocol.errors import ConfigurationError
from replica.cli import main
from replica.spark import read_current
from replica.spark.jobs import typed_changelog
from tests.server.support.copied_jobs import CopiedJob
from tests.spark.conftest import spark  # noqa: F401 -- the one session of the test run
from tests.spark.support.kept_tables import Row, rows_of
from tests.support.servers import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(mysql97: Server) -> Iterator[str]:
    with mysql97.fresh_schema() as schema:
        yield schema


def by_id(rows: list[Row]) -> dict[Any, Row]:
    return {row["id"]: row for row in rows}


def test_deleted_rows_stay(spark: SparkSession, mysql97: Server, shop: str, tmp_path: Path) -> None:  # noqa: F811
    """Of the first copy, too; without the option the target is refused."""
    table = f"{shop}.t"
    mysql97.query(f"CREATE TABLE {table} (id INT PRIMARY KEY, a INT)")
    mysql97.query(f"INSERT INTO {table} VALUES (1, 10), (2, 20), (3, 30)")
    mirrored = CopiedJob(spark, mysql97, shop, tmp_path)
    mirrored.run(soft_deletes=True)
    copied = {"_seq": None, "_ts": None, "_deleted": False}
    assert by_id(rows_of(mirrored.target, table)) == {
        number: {"id": number, "a": 10 * number} | copied for number in (1, 2, 3)
    }
    mysql97.query(f"UPDATE {table} SET a = 11 WHERE id = 1")
    mysql97.query(f"DELETE FROM {table} WHERE id = 2")
    mirrored.run(soft_deletes=True)
    found = by_id(rows_of(mirrored.target, table))
    assert {key: (row["a"], row["_deleted"]) for key, row in found.items()} == {
        1: (11, False),
        2: (20, True),
        3: (30, False),
    }
    assert found[3]["_seq"] is None
    assert found[1]["_seq"] < found[2]["_seq"]
    assert found[1]["_ts"] <= found[2]["_ts"]
    current = read_current(spark, str(mirrored.target), table).collect()
    assert by_id([row.asDict() for row in current]).keys() == found.keys()
    with pytest.raises(ConfigurationError, match="other columns"):
        mirrored.run()


def test_a_typed_changelog(
    spark: SparkSession,  # noqa: F811
    mysql97: Server,
    shop: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It begins where it is started, for all tables at once, and goes on."""
    one, other = f"{shop}.t", f"{shop}.`no key`"
    mysql97.query(f"CREATE TABLE {one} (id INT UNSIGNED PRIMARY KEY, a DECIMAL(9, 2), at TIMESTAMP(6) NULL)")
    mysql97.query(f"CREATE TABLE {other} (a VARCHAR(9), day DATE)")
    job = CopiedJob(spark, mysql97, shop, tmp_path, typed_changelog)
    job.run()
    assert rows_of(job.target, one) == []
    mysql97.query(f"INSERT INTO {one} (id, a) VALUES (1, 1.5), (2, 2.5)")
    mysql97.query(f"INSERT INTO {other} VALUES ('x', '2026-01-02')")
    job.run()
    mysql97.query(f"UPDATE {one} SET id = 7, a = 3 WHERE id = 1")
    mysql97.query(f"ALTER TABLE {one} ADD b INT")
    mysql97.query(f"DELETE FROM {one} WHERE id = 2")
    mysql97.query(f"UPDATE {other} SET a = 'y'")
    mysql97.query(f"TRUNCATE TABLE {one}")
    job.run()
    rows = sorted(rows_of(job.target, one), key=lambda row: (row["_seq"], not row["_deleted"]))
    assert [(row["_op"], row["id"], row["a"] and float(row["a"]), row["_deleted"]) for row in rows] == [
        ("insert", 1, 1.5, False),
        ("insert", 2, 2.5, False),
        ("delete", 1, None, True),
        ("insert", 7, 3.0, False),
        ("delete", 2, 2.5, True),
        ("truncate", None, None, True),
    ]
    assert {"b", "at"} <= rows[0].keys()
    rows = sorted(rows_of(job.target, f"{shop}.no key"), key=lambda row: (row["_seq"], not row["_deleted"]))
    assert [(row["_op"], row["a"], str(row["day"])) for row in rows] == [
        ("insert", "x", "2026-01-02"),
        ("delete", "x", "2026-01-02"),
        ("insert", "y", "2026-01-02"),
    ]
    command = ["spark", "resync", "--target", str(job.target), "--table", one]
    assert main(command) == 2
    assert "a copy has rows, not changes" in capsys.readouterr().err
