"""Spark's Python processes do not look at the objects of imported modules again after each task."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

from tests.support.places import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ASKED = """
import gc
import replica.spark
for _ in range(9):
    made = [[]]
    made.append(made)
    gc.collect()
    print(gc.get_freeze_count() > 1000, len(gc.callbacks))
"""


def _asked(environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-c", _ASKED]
    return subprocess.run(
        command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def test_only_processes_of_spark_freeze_their_heap() -> None:
    assert _asked({"SPARK_REUSE_WORKER": "1"}) == ["True 1"] * 3 + ["True 0"] * 6
    assert _asked({}) == ["False 0"] * 9


def test_a_process_of_spark_collects_little_behind_its_first_task(spark: SparkSession) -> None:
    """Spark itself says that a process is used again, and collects garbage when it has answered."""

    def counts(_: object) -> tuple[str, int, int]:
        import replica.spark
        import replica.spark.data_source

        return replica.spark.__file__, gc.get_freeze_count(), len(gc.get_objects())

    # Two tasks side by side in two processes, three times.
    found = [spark.sparkContext.parallelize([0, 1], 2).map(counts).collect() for _ in range(3)]
    assert {path for path, _, _ in found[-1]} == {str(ROOT / "replica" / "spark" / "__init__.py")}
    for _, frozen, others in found[-1]:
        assert frozen > 50_000
        assert others < frozen / 10
