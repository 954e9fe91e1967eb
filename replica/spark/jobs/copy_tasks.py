"""The tasks of a first copy: ranges of a source's tables -> files of leaves, which no commit names yet.

Each task reads its ranges one after another, each over a connection, with the password that its machine has, and
writes files. It returns their names. A task that fails leaves files that no reader sees; ``vacuum`` deletes them.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from protocol.records import record

from ...config.table_names import split_text
from ...snapshot.range_reader import read_ranges
from ...spool.offsets import Offset
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


@record(slots=True, frozen=True)
class Piece:
    """A range of a table to copy: the range with this number of the ``table`` to files in the folder ``path``.

    The first ``indexed`` columns get statistics.
    """

    name: str
    path: str
    table: CopiedTable
    number: int
    indexed: int

    def to_json(self) -> dict[str, Any]:
        """The input of the task, as plain values."""
        return {
            "name": self.name,
            "path": self.path,
            "schema": schema_to_text(self.table.schema),
            "key": self.table.key,
            "leaves": self.table.leaves,
            "range": range_to_json(self.table.ranges[self.number]),
            "indexed": self.indexed,
        }


def copy_pieces(
    spark: "SparkSession",
    source: Mapping[str, str],
    *,
    offset: str,
    pieces: Sequence[Piece],
    storage: Mapping[str, str],
) -> list[list[NewFile]]:
    """Copy the pieces by one task; returns the files of each. ``source`` says where the password is, without it.

    ``offset`` is the place from which the log is followed.
    """
    spark.dataSource.register(CopySource)
    plan = {
        "source": dict(source),
        "offset": offset,
        "pieces": [piece.to_json() for piece in pieces],
        "storage": dict(storage),
    }
    [row] = spark.read.format(_COPY).option("plan", json.dumps(plan)).load().collect()
    return [[NewFile(*file) for file in files] for files in json.loads(row.files)]


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
    """One task for all pieces of the plan."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        """All pieces."""
        return [InputPartition(self._plan["pieces"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Copy the pieces, and name their files."""
        files = asyncio.run(self._copy(partition.value))
        text = json.dumps([[list(asdict(file).values()) for file in of_piece] for of_piece in files])
        yield pa.RecordBatch.from_pydict({"files": [text]})

    async def _copy(self, pieces: Sequence[Mapping[str, Any]]) -> list[list[NewFile]]:
        return [await self._copy_one(piece) for piece in pieces]

    async def _copy_one(self, piece: Mapping[str, Any]) -> list[NewFile]:
        options = parse_options({**self._plan["source"], "table": piece["name"]})
        assert options.table is not None
        schema = schema_from_text(piece["schema"])
        writer = LeafWriter(
            folder(piece["path"], self._plan["storage"]),
            schema,
            piece["key"],
            kind=ROWS,
            ranges=[(low, high) for low, high in piece["leaves"]],
            indexed=piece["indexed"],
        )
        keys, low = range_from_json(piece["range"]), Offset.from_dict(json.loads(self._plan["offset"]))
        async for chunk in read_ranges(connection_options(options), split_text(options.table), [keys], low):
            writer.add(kept_rows(chunk.rows, schema))
        return writer.finish()


def kept_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """The rows of a source's table in the types of kept tables."""
    found = pa.schema([batch.schema.field(name) for name in schema.names])
    columns = [converted(batch.column(field.name)) for field in found]
    rows = without_durations(pa.RecordBatch.from_arrays(columns, names=schema.names))
    return pa.Table.from_batches([rows]).cast(schema)
