"""Waiting changes of tables -> new files of the typed changelog, in this process or as tasks of Spark.

    changes     rows of a part -> rows of the table: its columns and types, ``_op``, ``_seq``, ``_ts``, ``_deleted``
    append      merges -> their new files; no file is removed

A task writes the files of several tables, or one of the files of a large one. Memory follows from the size of a part.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from . import merge_tasks
from .changes_per_key import column_names, separated, split_updates
from .conversions import Conversion
from .leaf_files import FileWriter, NewFile, aligned, folder
from .leaf_merge import LeafTable
from .merges import Merge, Merged, table_from_json, table_to_json
from .staging import Part, part_from_json, part_to_json, read_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "mysql-replica-appends"
#: The bytes of waiting rows that become one file, and the bytes that one task writes.
_FILE_BYTES: Final = 128 << 20
_TASK_BYTES: Final = 32 << 20


def changes(table: LeafTable, rows: pa.Table) -> pa.Table:
    """The rows of a part as rows of the table."""
    if table.key:
        rows = separated(table.name, rows, table.key, always=True)
    else:
        updates = np.flatnonzero(pc.equal(rows["_op"], "update").to_numpy())
        rows = split_updates(rows, updates, column_names(rows)) if len(updates) else rows
    spelled = {name.lower(): name for name in table.schema.names}
    names = column_names(rows)
    found = rows.select(names).rename_columns([spelled[name.lower()] for name in names])
    wanted = pa.schema([table.schema.field(name) for name in found.schema.names])
    found = Conversion(table.name, wanted=wanted).apply(found)
    for name in ("_op", "_seq", "_ts", "_absent"):
        found = found.append_column(name, rows[name])
    return aligned(found.append_column("_deleted", pc.equal(rows["_op"], "delete")), table.schema)


def new_file(table: LeafTable, rows: Iterable[pa.Table], storage: Mapping[str, str]) -> NewFile:
    """A new file with these rows; the table has all their columns."""
    path = f"part-{uuid.uuid4()}.parquet"
    writer = FileWriter(folder(table.path, storage), path, table.schema, table.indexed)
    for some in rows:
        writer.add(aligned(some, table.schema))
    return writer.finish()


def append(
    spark: "SparkSession | None", merges: Sequence[Merge], target: str, storage: Mapping[str, str]
) -> list[Merged]:
    """The new files of tables, written by tasks of Spark if their changes are many."""
    shares = [(number, parts) for number, merge in enumerate(merges) for parts in _files(merge.parts)]
    found = [Merged([], []) for _ in merges]
    if spark is None or sum(merge.size for merge in merges) < merge_tasks.SMALL_BYTES:
        for number, parts in shares:
            found[number].added.append(_written(merges[number].table, parts, target, storage))
        return found
    spark.dataSource.register(Appends)
    listed = [
        [
            (number, table_to_json(merges[number].table), [part_to_json(part) for part in parts])
            for number, parts in some
        ]
        for some in _tasks(shares)
    ]
    options = {"target": target, "storage": json.dumps(dict(storage)), "plan": json.dumps(listed)}
    for row in spark.read.format(_NAME).options(**options).load().collect():
        found[row["number"]].added.append(NewFile(*json.loads(row["file"])))
    return found


def _files(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts of each file."""
    held: list[Part] = []
    for part in parts:
        held.append(part)
        if sum(one.length for one in held) >= _FILE_BYTES:
            yield held
            held = []
    if held:
        yield held


def _tasks(shares: Iterable[tuple[int, list[Part]]]) -> Iterator[list[tuple[int, list[Part]]]]:
    """The files of each task."""
    held, size = list[tuple[int, list[Part]]](), 0
    for number, parts in shares:
        held.append((number, parts))
        size += sum(part.length for part in parts)
        if size >= _TASK_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _written(table: LeafTable, parts: Sequence[Part], target: str, storage: Mapping[str, str]) -> NewFile:
    system = folder(target, storage)
    return new_file(table, (changes(table, read_part(system, part)) for part in parts), storage)


class Appends(DataSource):
    """The data source whose tasks write files; it gives their names."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _NAME

    def schema(self) -> str:
        """The number of the table, and a new file as JSON."""
        return "number INT, file STRING"

    def reader(self, schema: StructType) -> "AppendsReader":
        """The reader of one append."""
        return AppendsReader(self.options)


class AppendsReader(DataSourceReader):
    """Writes files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._target = options["target"]
        self._storage: dict[str, str] = json.loads(options["storage"])
        self._plan = options["plan"]

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each large file, or for several small ones."""
        return [InputPartition(share) for share in json.loads(self._plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write files."""
        for number, about, listed in partition.value:
            parts = [part_from_json(part) for part in listed]
            file = _written(table_from_json(about), parts, self._target, self._storage)
            texts = pa.array([json.dumps(list(asdict(file).values()))])
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int32()), texts], names=["number", "file"]
            )
