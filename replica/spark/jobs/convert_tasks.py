"""Conversions of a kept table's files: a new file for each, in this process or as tasks of Spark.

The name of a file says which keys it holds. A new file keeps that part of the old name, so leaves stay leaves.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from protocol.records import record

from . import merge_tasks
from .conversions import Conversion
from .deleted_rows import Copied, lacking
from .leaf_files import FileWriter, NewFile, folder, read
from .leaf_merge import Flags
from .leaves import PAST, LeafFile
from .staging import schema_from_text, schema_to_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "mysql-replica-conversions"
_PREFIX: Final = re.compile(r"rows-[0-9a-f]{8}-[0-9a-f]{16}-[0-9a-f]{16}-|past-")


@record(frozen=True, slots=True)
class Converting:
    """The input of a task: the conversion, the folders of the old and new files, and the columns of the old files.

    With a copy (``copied``) only rows that the copy lacks are converted.
    """

    conversion: Conversion
    source: str
    target: str
    schema: pa.Schema
    indexed: int
    copied: Copied | None = None

    @property
    def new_schema(self) -> pa.Schema:
        """The columns of the new files."""
        return self.conversion.apply(self.schema.empty_table()).schema


def convert(
    spark: "SparkSession | None",
    converting: Converting,
    files: Sequence[LeafFile],
    storage: Mapping[str, str],
) -> list[NewFile]:
    """Convert files, as tasks of Spark if they are large. Files without rows are left out."""
    if spark is None or sum(file.size for file in files) < merge_tasks.SMALL_BYTES:
        return _with_rows(convert_file(converting, file.path, storage) for file in files)
    spark.dataSource.register(Conversions)
    options = {
        "conversion": json.dumps(converting.conversion.to_json()),
        "source": converting.source,
        "target": converting.target,
        "schema": schema_to_text(converting.schema),
        "indexed": str(converting.indexed),
        "storage": json.dumps(dict(storage)),
        "files": json.dumps([file.path for file in files]),
    }
    if converting.copied is not None:
        options["copied"] = json.dumps(converting.copied.to_json())
    rows = spark.read.format(_NAME).options(**options).load().collect()
    return _with_rows(NewFile(*json.loads(row["file"])) for row in rows)


def _with_rows(files: Iterable[NewFile]) -> list[NewFile]:
    return [file for file in files if file.rows]


def convert_file(converting: Converting, path: str, storage: Mapping[str, str]) -> NewFile:
    """Convert one file. If no rows are left, the new file is deleted."""
    conversion = converting.conversion
    kept = _PREFIX.match(path)
    prefix = f"{PAST}-" if conversion.ended is not None else kept[0] if kept is not None else "part-"
    target = folder(converting.target, storage)
    writer = FileWriter(
        target,
        f"{prefix}{uuid.uuid4()}.parquet",
        converting.new_schema,
        converting.indexed,
    )
    chosen, place = _chosen(converting, path, storage), 0
    for rows in read(folder(converting.source, storage), [path], converting.schema):
        end = place + rows.num_rows
        if chosen is not None:
            rows = rows.filter(pa.array(chosen[place:end]))
        writer.add(conversion.apply(rows))
        place = end
    file = writer.finish()
    if not file.rows:
        target.delete_file(file.path)
    return file


def _chosen(converting: Converting, path: str, storage: Mapping[str, str]) -> Flags | None:
    """For each row of a file whether it is converted; None: all are."""
    one = converting
    if one.copied is None:
        return None
    return lacking(one.copied, one.conversion, one.source, path, one.schema, storage)


class Conversions(DataSource):
    """The data source whose tasks convert files; it gives the new ones."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _NAME

    def schema(self) -> str:
        """A new file as JSON."""
        return "file STRING"

    def reader(self, schema: StructType) -> "ConversionsReader":
        """The reader of one conversion."""
        return ConversionsReader(self.options)


class ConversionsReader(DataSourceReader):
    """Converts files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each file."""
        return [InputPartition(path) for path in json.loads(self._options["files"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Convert one file."""
        options = self._options
        storage: dict[str, Any] = json.loads(options["storage"])
        converting = Converting(
            Conversion.from_json(json.loads(options["conversion"])),
            options["source"],
            options["target"],
            schema_from_text(options["schema"]),
            int(options["indexed"]),
            Copied.from_json(json.loads(options["copied"])) if "copied" in options else None,
        )
        file = convert_file(converting, partition.value, storage)
        text = json.dumps(list(asdict(file).values()))
        yield pa.RecordBatch.from_arrays([pa.array([text])], names=["file"])
