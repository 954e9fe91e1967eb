"""What the progress of a job shows, as rows and on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from protocol.errors import ConfigurationError
from replica.cli import main
from replica.spark.jobs import history, mirror, typed_changelog
from replica.spark.jobs.job_state import PROGRESS, JobState, TableState, Waiting
from replica.spark.jobs.progress import progress
from replica.spark.jobs.staging import Part
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept


@pytest.fixture
def target(tmp_path: Path) -> str:
    """Two tables, of which one is parked."""
    kept = Kept(tmp_path)
    kept.target = replace(kept.target, parks=True)
    kept.say(CREATE, CREATE.replace(" t ", " u ")).insert(ONE, TWO).insert(ONE, table="shop.u").run()
    kept.say("ALTER TABLE u DROP PARTITION p0").update(TWO, TWO | {"a": 3}).run()
    return str(tmp_path)


def test_rows_of_kept_and_parked_tables(target: str) -> None:
    rows = {row["table"]: row for row in progress(target).to_pylist()}
    t, u = rows["shop.t"], rows["shop.u"]
    assert (t["state"], t["batch"], t["merged_batch"], t["rows"], t["waiting_rows"]) == ("kept", 1, 1, 2, 0)
    assert (t["lag"], t["reason"]) == (0.0, None)
    assert (u["state"], u["merged_batch"], u["rows"], u["lag"]) == ("parked", 0, 1, None)
    assert t["size"] > 0
    stored = DeltaTable(f"{target}/{PROGRESS}").to_pyarrow_table()
    assert stored.schema == progress(target).schema
    assert {job.progress for job in (mirror, history, typed_changelog)} == {progress}


def test_the_lag_is_the_age_of_the_oldest_change_that_waits() -> None:
    waiting = Waiting((), pa.schema([]), 1000, [Part("", 0, 100, 7, 0, 0), Part("", 100, 50, 3, 0, 0)])
    state = JobState(tables={"a": TableState(), "b": TableState()}, waiting={"a": waiting})
    a, b = state.progress(3, 1010.5).to_pylist()
    assert (a["lag"], a["waiting_rows"], a["waiting_bytes"]) == (10.5, 10, 150)
    assert (b["lag"], b["waiting_rows"], b["waiting_since"]) == (0.0, 0, None)
    # A clock that was set back.
    assert state.progress(3, 900).to_pylist()[0]["lag"] == 0


def test_the_command_line_shows_it(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["spark", "progress", "--target", target]) == 0
    title, t, u = capsys.readouterr().out.splitlines()
    assert title.split() == ["table", "batch", "rows", "lag", "pending", "last", "merge", "state"]
    assert t.split()[:5] == ["shop.t", "1", "2", "0", "s"]
    assert t.endswith("kept")
    assert u.split()[:4] == ["shop.u", "1", "1", "-"]
    assert "parked: shop.u" in u
    assert "DROP PARTITION" in u
    assert main(["spark", "progress", "--target", target, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["table"], row["rows"], row["lag"]) for row in rows] == [
        ("shop.t", 2, 0.0),
        ("shop.u", 1, None),
    ]
    assert rows[0]["merged_at"].startswith("20")


def test_a_folder_without_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError, match="has no tables of a mirror"):
        progress(str(tmp_path))
    assert main(["spark", "progress", "--target", str(tmp_path / "none")]) == 2
    assert "has no tables of a mirror" in capsys.readouterr().err
