"""Merges whose changes all lie in one group of leaves, as tasks of Spark without a shuffle (``merge_tasks``).

    plan -> tasks, each with the merges of one large table, or of several small ones -> the names of new files

Most merges are direct: of tables smaller than a leaf, and of tables whose new rows have the highest keys. With a
shuffle, a merge of 160,000 changes into one leaf of 85 MB took 0.9 s, and Spark itself took 0.4 of these.
"""

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from protocol.records import replace

from ...spool.storage import make_folder
from . import staging
from .leaf_files import NewFile, folder
from .merges import (
    Merge,
    Merged,
    group_from_json,
    group_to_json,
    merge_here,
    table_from_json,
    table_to_json,
)
from .staging import part_from_json, part_to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "mysql-replica-merges"
#: Above this size in memory, several tasks route the changes side by side.
_MOST_BYTES: Final = 128 << 20


def is_direct(merge: Merge) -> bool:
    """Whether one task merges a table."""
    touched = merge.touched
    if len(touched) > 1 or any(merge.groups[number].is_share for number in touched):
        return False
    return sum(max(part.length, part.size) for part in merge.parts) <= _MOST_BYTES


def merge_directly(
    spark: "SparkSession", merges: Sequence[Merge], target: str, storage: Mapping[str, str], tasks: int
) -> list[Merged]:
    """Run the merges in ``tasks`` tasks."""
    spark.dataSource.register(MergesSource)
    # A task need not know the groups of a table that get no changes.
    merges = [
        replace(merge, groups=tuple(merge.groups[number] for number in merge.touched)) for merge in merges
    ]
    system, path = folder(target, storage), f"{staging.FOLDER}/{uuid.uuid4()}.plan.json"
    make_folder(system, staging.FOLDER)
    with system.open_output_stream(path) as file:
        file.write(json.dumps(_plan(merges, tasks)).encode())
    options = {"target": target, "storage": json.dumps(dict(storage)), "plan": path}
    found = [Merged([], []) for _ in merges]
    try:
        rows = spark.read.format(_NAME).options(**options).load().collect()
    finally:
        with contextlib.suppress(OSError):
            system.delete_file(path)
    for number, removed, added in (item for row in rows for item in json.loads(row["merged"])):
        files = {
            file.path: file
            for group in (*merges[number].groups, *merges[number].joins)
            for file in group.files
        }
        found[number].removed.extend(files[name] for name in removed)
        found[number].added.extend(NewFile(*file) for file in added)
    return found


def _plan(merges: Sequence[Merge], tasks: int) -> list[list[Any]]:
    """The merges of each task, as JSON."""
    plan: list[list[Any]] = [[] for _ in range(min(tasks, len(merges)))]
    loads = [0] * len(plan)
    for number in sorted(range(len(merges)), key=lambda number: -merges[number].size):
        merge, task = merges[number], loads.index(min(loads))
        loads[task] += merge.size + 1
        groups = [list(map(group_to_json, some)) for some in (merge.groups, merge.joins)]
        plan[task].append([number, table_to_json(merge.table), *groups, list(map(part_to_json, merge.parts))])
    return plan


class MergesSource(DataSource):
    """The data source whose rows say what its tasks have merged."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _NAME

    def schema(self) -> str:
        """One row for each task."""
        return "merged STRING"

    def reader(self, schema: StructType) -> "MergesReader":
        """The reader of one plan."""
        return MergesReader(self.options)


class MergesReader(DataSourceReader):
    """Merges tables."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._target = options["target"]
        self._storage: dict[str, str] = json.loads(options["storage"])
        self._plan = options["plan"]

    def partitions(self) -> Sequence[InputPartition]:
        """The merges of each task."""
        with folder(self._target, self._storage).open_input_stream(self._plan) as file:
            return [InputPartition(merges) for merges in json.loads(file.read())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Merge some tables, and name the files."""
        found = []
        for number, table, groups, joins, parts in partition.value:
            merge = Merge(
                table_from_json(table),
                tuple(map(group_from_json, groups)),
                tuple(map(part_from_json, parts)),
                tuple(map(group_from_json, joins)),
            )
            [merged] = merge_here([merge], self._target, self._storage)
            added = [list(asdict(file).values()) for file in merged.added]
            found.append([number, [file.path for file in merged.removed], added])
        yield pa.RecordBatch.from_pydict({"merged": [json.dumps(found)]})
