"""A pattern that matches no table of binlog files is a warning of the driver, as elsewhere. No Spark."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from replica.spark import table_maps
from replica.spark.data_source import BinlogDataSource, arrow_schema
from replica.spark.source_options import parse_options
from tests.support.log_builder import LogBuilder, numbered_log


def planned(options: dict[str, str]) -> int:
    """Plan a batch as Spark does; the number of its partitions."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(arrow_schema(parse_options(options)))
    source = BinlogDataSource(options)
    return len(source.reader(schema).partitions())


@pytest.mark.parametrize("name", ["binlog.000001", "binlog.000001.gz"])
def test_a_misspelt_table_of_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, log = tmp_path / name, LogBuilder()
    for number in range(5):
        log.transaction([number], name="orders")
    path.write_bytes(gzip.compress(log.data) if path.suffix == ".gz" else log.data)
    options = {"path": str(path), "includeTables": "s.order,warehouse.*"}
    with caplog.at_level(logging.WARNING):
        assert planned(options)
    assert [record.getMessage() for record in caplog.records] == [
        "tables: 's.order' matches no table of the log -- did you mean s.orders?",
        "tables: 'warehouse.*' matches no table of the log",
    ]
    caplog.clear()
    planned({"path": str(path), "includeTables": "s.orders"})
    planned({"path": str(path)})
    monkeypatch.setattr(table_maps, "_SEARCHED_BYTES", 100)
    planned(options)
    assert not caplog.records


def test_what_is_wrong_with_the_files_is_told_by_their_tasks(tmp_path: Path) -> None:
    path = tmp_path / "binlog.000001"
    path.write_bytes(numbered_log().data[:300] + bytes(100))
    assert planned({"path": str(path), "includeTables": "s.orders"})
