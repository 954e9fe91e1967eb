"""A data source of Spark that has nothing to do: RecordBatches from files, one partition each, as they are.

What it takes to read them is what Spark itself takes for batches of a Python data source; no source is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from replica.spark.envelope import RowFormat, envelope_schema
from replica.spark.read_task import ReadPlan, read_piece
from replica.spark.table_mode import spark_ddl
from replica.spool.pieces import LogPiece, ReadSettings


class PrebuiltSource(DataSource):
    """``spark.read.format("prebuilt").option("rowFormat", ...).load(folder)``."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        row_format: RowFormat = "json" if self.options["rowFormat"] == "json" else "variant"
        return spark_ddl(envelope_schema(row_format))

    def reader(self, schema: StructType) -> PrebuiltReader:
        return PrebuiltReader(self.options["path"])


class PrebuiltReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as file, pa.ipc.open_file(file) as batches:
            for number in range(batches.num_record_batches):
                yield batches.get_batch(number)


def prebuild(folder: Path, pieces: Iterable[LogPiece], row_format: RowFormat) -> None:
    """Write the batches that the source ``mysql-binlog`` makes of these pieces, a file for each."""
    folder.mkdir(parents=True)
    schema = envelope_schema(row_format)
    plan = ReadPlan(ReadSettings(), schema, row_format=row_format)
    for number, piece in enumerate(pieces):
        with (
            pa.OSFile(str(folder / f"{number:05d}.arrow"), "wb") as file,
            pa.ipc.new_file(file, schema) as target,
        ):
            for batch in read_piece(piece, plan):
                target.write_batch(batch)
