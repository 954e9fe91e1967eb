"""Batches through Spark itself: the same rows as open_binlog however a log is cut, and what the plan says of it."""

from __future__ import annotations

import json
import math
import random
from base64 import b64decode
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from tests.spark.expected_rows import expected_changes, open_expected
from tests.spark.generated_log import write_generated
from tests.spark.test_reading import compare
from tests.unit.log_builder import LogBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, path: object, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("mysql-binlog").options(**given).load(str(path))


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_the_rows_of_open_binlog_in_every_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    paths = write_generated(tmp_path, seed)
    with open_expected(paths) as log:
        expected = list(expected_changes(log))
    for size, path in (("4k", tmp_path), ("1g", tmp_path / "binlog.*")):
        frame = load(spark, path, rowFormat="json", maxPartitionBytes=size)
        assert (frame.rdd.getNumPartitions() > 3) == (size == "4k")
        compare(rows_of(frame), expected)


def test_variant_holds_the_values_with_their_types(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    write_generated(tmp_path, seed, files=1)
    variants = {row["seq"]: row for row in rows_of(load(spark, tmp_path))}
    texts = rows_of(load(spark, tmp_path, rowFormat="json"))
    assert len(variants) == len(texts)
    for text in texts:
        row = variants[text["seq"]]
        for image in ("before", "after"):
            assert (row[image] is None) == (text[image] is None)
            if text[image] is not None:
                mine, others = row[image].toPython(), json.loads(text[image])
                assert mine.keys() == others.keys()
                for name, value in others.items():
                    assert is_same(mine[name], value), (name, mine[name], value)


def is_same(value: Any, text: Any) -> bool:
    """Whether a value of a VARIANT is the one that JSON has in its own way."""
    if isinstance(value, bytes | bytearray):
        return bool(b64decode(text["base64"]) == value)
    if isinstance(value, list):
        return all(map(is_same, value, text)) and len(value) == len(text)
    if isinstance(value, float) and not math.isfinite(value):
        return isinstance(text, str)
    if isinstance(value, Decimal):
        return value == Decimal(text)
    if isinstance(value, date):
        return bool(value.isoformat() == text)
    if isinstance(value, str) and value != text:
        # A JSON document is its text here.
        return bool(json.loads(value) == text)
    return bool(value == text)


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
    chosen = own.schema("_pos BIGINT, `@1` STRING, missing INT").load(str(path)).orderBy("_pos").first()
    assert chosen is not None
    assert chosen.asDict() == {"_pos": chosen[0], "@1": "0", "missing": None}


def test_a_plan_shows_no_secret(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_SECRET", "Gwoh7ahc")
    frame = load(spark, write_orders(tmp_path), keyFileSecretEnv="KEY_SECRET", includeTables="s.orders")
    plan = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    assert "mysql-binlog" in plan
    assert "Gwoh7ahc" not in plan


def test_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="(?i)there is no option includeTabels"):
        load(spark, tmp_path, includeTabels="s.*")
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"no log")
    with pytest.raises(PySparkException, match="no binary log"):
        load(spark, path).collect()
