"""`make pipeline`: the mirrored tables of the recorded shop are the tables at the end of its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import pyarrow as pa

from protocol.errors import ConfigurationError
from replica.spark.jobs import pipeline
from tests.spark.support.shop_log import plain, shop_at_the_end

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


def test_the_mirrored_shop_is_the_one_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "lake")
    found = pipeline.run(spark, target)
    expected = shop_at_the_end()
    assert found.keys() == expected.keys() == {"shop.customers", "shop.orders", "shop.order_items"}
    for name, table in found.items():
        assert plain(table.to_pylist()) == plain(expected[name])
        assert table.num_rows >= 12
    # Run again: nothing is new, and nothing is written twice.
    assert {name: table.num_rows for name, table in pipeline.run(spark, target).items()} == {
        name: table.num_rows for name, table in found.items()
    }


def test_java_is_started_for_a_short_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The session of the command; what starts a JVM is left out."""
    settings: dict[str, str] = {}

    class Builder:
        def appName(self, name: str) -> Builder:
            return self

        def config(self, key: str, value: str) -> Builder:
            settings[key] = value
            return self

        def getOrCreate(self) -> None:
            raise ConfigurationError("no session here")

    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Builder())
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert pipeline.main([str(tmp_path)]) == 1
    assert "no session here" in capsys.readouterr().err
    assert settings["spark.master"] == "local[2]"
    assert "TieredStopAtLevel=1" in settings["spark.driver.extraJavaOptions"]


def test_a_table_as_text() -> None:
    table = pa.table({"id": [1, 22, 3], "name": ["Zoë", None, "x" * 60]})
    assert pipeline.text_table(table).splitlines() == [
        "id  name",
        "1   Zoë",
        "22  NULL",
        f"3   {'x' * 41}...",
    ]
    assert pipeline.text_table(table, 1).splitlines()[-1] == "... and 2 more"


def test_without_java_one_line_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert pipeline.main([]) == 1
    assert capsys.readouterr().err.startswith(
        "pipeline: error: Spark needs Java 17 or later, and there is none in"
    )
