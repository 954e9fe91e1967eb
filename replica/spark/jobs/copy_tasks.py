"""The tasks of a first copy: a range of a source's table -> files of leaves, which no commit names yet.

Each task reads its range over one connection, with the password that its machine has, and writes files. It returns
their names. A task that fails leaves files behind that nobody sees; ``vacuum`` deletes them.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...snapshot.range_reader import read_ranges
from ...snapshot.row_keys import KeyRange
from ..packed import without_durations
from ..source_options import parse_options
from ..stream_connection import connection_options
from ..table_reader import converted
from .copy_plan import CopiedTable, range_from_json, range_to_json
from .leaf_files import LeafWriter, NewFile, folder
from .leaves import ROWS
from .staging import schema_from_text, schema_to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COPY: Final = "mysql-replica-copy"


def copy_range(
    spark: "SparkSession",
    source: Mapping[str, str],
    path: str,
    table: CopiedTable,
    keys: KeyRange,
    *,
    indexed: int,
    storage: Mapping[str, str],
) -> list[NewFile]:
    """Copy this range to files in ``path``, by one task. ``source`` names the password, has none."""
    spark.dataSource.register(CopySource)
    plan = {
        "source": dict(source),
        "path": path,
        "schema": schema_to_text(table.schema),
        "key": table.key,
        "leaves": table.leaves,
        "range": range_to_json(keys),
        "indexed": indexed,
        "storage": dict(storage),
    }
    rows = spark.read.format(_COPY).option("plan", json.dumps(plan)).load().collect()
    return [NewFile(*file) for row in rows for file in json.loads(row.files)]


class CopySource(DataSource):
    """The data source whose rows are the names of the files that its tasks have written."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _COPY

    def schema(self) -> str:
        """One row for each task."""
        return "files STRING"

    def reader(self, schema: StructType) -> "CopyReader":
        """The reader of one copy."""
        return CopyReader(json.loads(self.options["plan"]))


class CopyReader(DataSourceReader):
    """One task for one range."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """The range."""
        return [InputPartition(self._plan["range"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Copy the range, and name its files."""
        files = asyncio.run(_copy(self._plan, range_from_json(partition.value)))
        text = json.dumps([list(asdict(file).values()) for file in files])
        yield pa.RecordBatch.from_pydict({"files": [text]})


async def _copy(plan: Mapping[str, Any], keys: KeyRange) -> list[NewFile]:
    options = parse_options(plan["source"])
    assert options.table is not None
    schema_name, _, name = options.table.partition(".")
    schema = schema_from_text(plan["schema"])
    writer = LeafWriter(
        folder(plan["path"], plan["storage"]),
        schema,
        plan["key"],
        kind=ROWS,
        ranges=[(low, high) for low, high in plan["leaves"]],
        indexed=plan["indexed"],
    )
    async for chunk in read_ranges(connection_options(options), (schema_name, name), [keys]):
        writer.add(kept_rows(chunk.rows, schema))
    return writer.finish()


def kept_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The rows of a source's table in the types of kept tables."""
    found = pa.schema([batch.schema.field(name) for name in schema.names])
    columns = [converted(batch.column(field.name)) for field in found]
    rows = without_durations(pa.RecordBatch.from_arrays(columns, names=schema.names))
    return pa.Table.from_batches([rows]).cast(schema)
