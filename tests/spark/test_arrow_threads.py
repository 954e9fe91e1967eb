"""No thread of Arrow's has a Python object when a job ends: such a thread may abort the process. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from deltalake import DeltaTable

from replica.spark.jobs import job_state, pipeline, seed
from replica.spark.jobs.past_table import PastTable
from tests.spark.support.kept_shop import CREATE, ONE, TWO, Kept


def test_tables_are_read_without_file_systems_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the state, values that a statement may change, a seed, and what the pipeline shows."""
    kept = Kept(tmp_path / "lake", kind=PastTable)
    kept.say(CREATE).insert(ONE, TWO).run()

    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("a file system whose objects are Python's")

    monkeypatch.setattr(pyarrow.fs, "PyFileSystem", refuse)
    table = DeltaTable(str(kept.path / "shop" / "t"))
    with pytest.raises(AssertionError, match="Python's"):
        table.to_pyarrow_table()
    found = job_state.peek(str(kept.path), {})
    assert found is not None
    assert list(found[0].tables) == ["shop.t"]
    assert [one.to_pylist() for one in kept.target.table("shop.t").values("a")] == [[1, 2]]
    kept.say("ALTER TABLE t MODIFY a BIGINT").run()
    assert pipeline.tables(str(kept.path))["shop.t"]["a"].to_pylist() == [1, 2]
    schema, batches = seed._read(str(kept.path / "shop" / "t"))
    assert pa.Table.from_batches(batches, schema)["a"].to_pylist() == [1, 2]
