"""What is wrong with Spark or its machines is said in one line; what is a defect of this project is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors.exceptions.captured import StreamingQueryException

from protocol.errors import ConfigurationError, ReplicaError
from replica.cli import main
from replica.spark.jobs.spark_errors import plain_errors, require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_task(spark: SparkSession, error: Exception) -> None:
    """A task that raises this error."""

    def fail(batches: Iterator[Any]) -> Iterator[Any]:
        raise error

    spark.range(1).mapInArrow(fail, "id LONG").collect()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ModuleNotFoundError("No module named 'replica'"),
            r"^Spark's Python has no module 'replica' -- install ",
        ),
        (
            FileNotFoundError(2, "No such file", "/lake/t"),
            r"^a task of Spark: \[Errno 2\] No such file: '/lake/t' -- on a cluster the target, ",
        ),
        (
            PermissionError(13, "Permission denied"),
            r"^a task of Spark: \[Errno 13\] Permission denied -- on a ",
        ),
        (
            OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"),
            r"^a disk of the job is full \(No space left on device\): .* -- make room and start the job again",
        ),
        (
            # As deltalake words it; it was called a defect.
            RuntimeError("Failed to parse parquet: External: No space left on device (os error 28)"),
            r"^a disk of the job is full ",
        ),
    ],
)
def test_what_a_machine_lacks(spark: SparkSession, error: Exception, text: str) -> None:
    with pytest.raises(ReplicaError, match=text) as raised, plain_errors():
        run_task(spark, error)
    assert "\n" not in str(raised.value)


def test_a_full_disk_of_a_sink_of_spark(spark: SparkSession) -> None:
    """It said that a task has failed while it wrote rows."""
    jvm: Any = spark._jvm
    full = jvm.java.io.IOException("No space left on device")
    failed = jvm.java.lang.RuntimeException("Task failed while writing rows", full)
    with pytest.raises(ReplicaError, match=r"^a disk of the job is full "), plain_errors():
        raise StreamingQueryException("[STREAM_FAILED] Query terminated", "", failed)


def test_what_spark_refuses(spark: SparkSession) -> None:
    with pytest.raises(ReplicaError, match=r"^Spark: \[TABLE_OR_VIEW_NOT_FOUND\] ") as raised, plain_errors():
        spark.sql("SELECT * FROM nowhere").collect()
    assert "\n" not in str(raised.value)
    with pytest.raises(ReplicaError, match=r"^Spark: java.lang.IndexOutOfBoundsException"), plain_errors():
        spark._jvm.java.util.ArrayList().get(1)  # type: ignore[union-attr]


def test_defects_stay_what_they_are(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="KeyError: 'x'") as raised, plain_errors():
        run_task(spark, KeyError("x"))
    assert not isinstance(raised.value, ReplicaError)
    with pytest.raises(KeyError), plain_errors():
        raise KeyError("x")


def test_without_java(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="needs Java 17"):
        require_java()
    with monkeypatch.context() as fresh:
        fresh.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
        assert main(["spark", "mirror", str(tmp_path / "log.000001"), str(tmp_path / "lake")]) == 2
    assert capsys.readouterr().err.startswith(
        "mysql-replica: error: Spark needs Java 17 or later, and there is none"
    )
