"""Batch queries in Spark itself: the rows of open_binlog in every partitioning, and what Spark's plan shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from tests.spark.conftest import SECRET, SECRET_VARIABLE
from tests.spark.support.expected_rows import expected_changes, open_expected
from tests.spark.support.generated_log import write_generated
from tests.spark.support.planned import compare
from tests.support.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: object, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("mysql-binlog").options(**given).load(str(path))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_the_rows_of_open_binlog_in_every_partitioning(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    paths = write_generated(tmp_path, seed)
    with open_expected(paths) as log:
        expected = list(expected_changes(log))
    for size, path in (("4k", tmp_path), ("1g", tmp_path / "binlog.*")):
        frame = load(spark, path, rowFormat="json", maxPartitionBytes=size)
        assert (frame.rdd.getNumPartitions() > 3) == (size == "4k")
        compare(rows_of(frame), expected)


def test_variant_is_what_spark_takes_for_it(spark: SparkSession, tmp_path: Path) -> None:
    load(spark, write_orders(tmp_path)).createOrReplaceTempView("changes")
    found = spark.sql(
        "SELECT variant_get(after, '$.@1', 'int'), schema_of_variant(after), to_json(after), before IS NULL "
        "FROM changes ORDER BY seq"
    )
    assert [tuple(row) for row in found.collect()] == [
        (number, "OBJECT<`@1`: BIGINT>", f'{{"@1":{number}}}', True) for number in range(40)
    ]


def write_orders(folder: Path) -> Path:
    log = LogBuilder()
    for number in range(40):
        log.transaction([number], sequence=number + 1, name=("orders", "others")[number % 2])
    path = folder / "binlog.000003"
    path.write_bytes(log.data)
    return path


def test_table_mode_has_typed_columns(spark: SparkSession, tmp_path: Path) -> None:
    path = write_orders(tmp_path)
    frame = load(spark, path, schemaMode="table", table="s.orders", maxPartitionBytes=500)
    assert frame.dtypes[:2] == [("@1", "int"), ("_op", "string")]
    assert [row[0] for row in frame.orderBy("_seq").collect()] == list(range(0, 40, 2))
    own = spark.read.format("mysql-binlog").options(schemaMode="table", table="s.orders")
    chosen = own.schema("_pos BIGINT, `@1` STRING").load(str(path)).orderBy("_pos").first()
    assert chosen is not None
    assert chosen.asDict() == {"_pos": chosen[0], "@1": "0"}
    # The log has no column names, so no column of it can be called "missing".
    with pytest.raises(PySparkException, match=r"not known which of its .* columns is missing"):
        own.schema("_pos BIGINT, missing INT").load(str(path)).collect()


def test_a_plan_shows_no_secret(spark: SparkSession, tmp_path: Path) -> None:
    frame = load(spark, write_orders(tmp_path), keyFileSecretEnv=SECRET_VARIABLE, includeTables="s.orders")
    plan = frame._jdf.queryExecution().toString()
    assert "mysql-binlog" in plan
    assert SECRET not in plan


def test_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"(?i)unknown option includeTabels"):
        load(spark, tmp_path, includeTabels="s.*")
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"no log")
    with pytest.raises(PySparkException, match="no binary log"):
        load(spark, path).collect()
