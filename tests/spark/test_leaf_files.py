"""Files of kept tables: how their columns are stored. No Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyspark")

from replica.spark.jobs.leaf_files import FileWriter, folder


def test_only_columns_whose_values_come_back_have_a_dictionary(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": list(range(3000)),
            "state": ["new", "paid", "sent"] * 1000,
            "text": [f"text {number}" for number in range(3000)],
            "nothing": pa.nulls(3000, pa.int32()),
            "vector": [[1.5, 2.5]] * 3000,
        }
    )
    file = FileWriter(folder(str(tmp_path), {}), "one.parquet", rows.schema)
    file.add(rows)
    assert file.finish().rows == 3000
    group = pq.ParquetFile(tmp_path / "one.parquet").metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    found = {column.path_in_schema: "RLE_DICTIONARY" in column.encodings for column in columns}
    assert found == {
        "id": False,
        "state": True,
        "text": False,
        "nothing": True,
        "vector.list.element": False,
    }
    assert pq.read_table(tmp_path / "one.parquet").equals(rows)


def test_a_file_without_rows(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    assert FileWriter(folder(str(tmp_path), {}), "none.parquet", schema).finish().rows == 0
    assert pq.read_table(tmp_path / "none.parquet").equals(schema.empty_table())
