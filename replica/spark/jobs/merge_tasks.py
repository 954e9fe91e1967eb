"""Merging as tasks of Spark, through its API for data sources, which needs no pandas.

    merge   parts -> pieces, by a reader -> a shuffle by group -> new files, by a writer: the driver gets their names;
            without the shuffle if all changes are of one group (``direct_merges``)

Spark runs the end of a write in a process of its own. So the writer leaves its result in a small file of the target,
where the driver takes it. ``merges`` does the work itself.
"""

import contextlib
import io
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ...spool.storage import make_folder
from ..packed_items import binary_value
from . import staging
from .direct_merges import is_direct, merge_directly
from .leaf_files import NewFile, folder
from .leaves import Group
from .merges import (
    CHUNK_BYTES,
    Merge,
    Merged,
    chunk_from_json,
    chunk_to_json,
    chunks,
    group_from_json,
    group_to_json,
    merge_here,
    merge_pieces,
    route_chunk,
    table_from_json,
    table_to_json,
)
from .spark_session import save
from .staging import COMPRESSED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PIECES, _LEAVES = (f"mysql-replica-{name}" for name in ("pieces", "leaves"))
#: The driver itself merges less than this: a job of Spark would take longer.
SMALL_BYTES: Final = 8 << 20
#: A task of a merge gets groups of about so many bytes; but there are at least so many tasks.
_TASK_BYTES: Final = 64 << 20
_LEAST_TASKS: Final = 4
#: A piece passes through Spark in slices of about so many bytes in memory: the JVM copies and doubles a value.
SLICE_BYTES: Final = 8 << 20
_PIECE_COLUMNS: Final = "task INT, number BIGINT, slice INT, place STRING, about STRING, rows BINARY"


def merge(
    spark: "SparkSession | None", merges: Sequence[Merge], target: str, storage: Mapping[str, str]
) -> list[Merged]:
    """The merges, as tasks of Spark if they are large."""
    if spark is None or sum(merge.size for merge in merges) < SMALL_BYTES:
        return merge_here(merges, target, storage)
    direct = [number for number, merge in enumerate(merges) if is_direct(merge)]
    others = [number for number, merge in enumerate(merges) if not is_direct(merge)]
    found: dict[int, Merged] = {}
    if direct:
        some = [merges[number] for number in direct]
        tasks = max(_LEAST_TASKS, sum(merge.touched_size for merge in some) // _TASK_BYTES)
        found |= zip(direct, merge_directly(spark, some, target, storage, tasks), strict=True)
    if others:
        some = [merges[number] for number in others]
        found |= zip(others, _shuffled(spark, some, target, storage), strict=True)
    return [found[number] for number in range(len(merges))]


def _shuffled(
    spark: "SparkSession", merges: Sequence[Merge], target: str, storage: Mapping[str, str]
) -> list[Merged]:
    """The merges in two stages of tasks: the first routes the changes, the second merges them."""
    spark.dataSource.register(PiecesSource)
    system = folder(target, storage)
    path = f"{staging.FOLDER}/{uuid.uuid4()}.plan.json"
    plan, tasks = _plan(merges)
    with system.open_output_stream(path) as file:
        file.write("\n".join(map(json.dumps, plan)).encode())
    try:
        pieces = spark.read.format(_PIECES).options(**_options(target, storage, plan=path)).load()
        ordered = pieces.repartitionById(tasks, "task").sortWithinPartitions("place", "number", "slice")
        written = _written(ordered, target, storage)
    finally:
        with contextlib.suppress(OSError):
            system.delete_file(path)
    found = [Merged([], []) for _ in merges]
    for place, files in written:
        number, group = map(int, place.split("/"))
        merged = merges[number]
        found[number].removed.extend((*merged.groups, *merged.joins)[group].files)
        found[number].added.extend(NewFile(*file) for file in files)
    return found


def _options(target: str, storage: Mapping[str, str], **more: str) -> dict[str, str]:
    return {"target": target, "storage": json.dumps(dict(storage)), **more}


def _written(frame: "DataFrame", target: str, storage: Mapping[str, str]) -> list[Any]:
    """The results of the tasks that write leaves, in the order of their partitions."""
    system, path = folder(target, storage), f"{staging.FOLDER}/{uuid.uuid4()}.json"
    make_folder(system, staging.FOLDER)
    save(frame, LeavesTarget, _options(target, storage, result=path))
    with system.open_input_stream(path) as file:
        found: list[Any] = json.loads(file.read())
    system.delete_file(path)
    return found


def _plan(merges: Sequence[Merge]) -> tuple[tuple[list[Any], list[Any]], int]:
    """The facts of the tables, the reader's partitions, and the number of the writer's tasks.

    A plan has the tables once. With the groups of a large table in each share, a driver would hold leaves times
    shares: 60 MB of JSON for a table of 100 GB.
    """
    sizes: dict[tuple[int, int], int] = {}
    for number, merged in enumerate(merges):
        touched = merged.touched
        changes = sum(part.length for part in merged.parts) // max(len(touched), 1)
        sizes |= {(number, index): merged.groups[index].size + changes for index in touched}
        sizes |= {(number, len(merged.groups) + index): join.size for index, join in enumerate(merged.joins)}
    tasks = max(1, min(len(sizes), max(_LEAST_TASKS, sum(sizes.values()) // _TASK_BYTES)))
    loads = [0] * tasks
    # Groups without changes need no task: an empty one takes 0.05 s.
    chosen: dict[tuple[int, int], int] = {}
    for place, size in sorted(sizes.items(), key=lambda item: -item[1]):
        chosen[place] = task = loads.index(min(loads))
        loads[task] += size + 1
    plan: list[list[Any]] = [[]]
    tables, size = list[Any](), 0
    for number, merged in enumerate(merges):
        groups = [
            [chosen.get((number, index), 0), group_to_json(group)]
            for index, group in enumerate((*merged.groups, *merged.joins))
        ]
        tables.append([table_to_json(merged.table), groups, len(merged.joins)])
        for chunk in chunks(merged):
            plan[-1].append([number, chunk_to_json(chunk)])
            size += sum(max(part.length, part.size) for part in chunk[1])
            if size >= CHUNK_BYTES:
                plan.append([])
                size = 0
    return (tables, [shares for shares in plan if shares]), tasks


# The data sources.


@dataclass
class _Message(WriterCommitMessage):
    """The results of a task, as JSON texts."""

    items: list[str]


class PiecesSource(DataSource):
    """The data source from which ``merge`` has the pieces of all groups."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _PIECES

    def schema(self) -> str:
        """The columns of a piece."""
        return _PIECE_COLUMNS

    def reader(self, schema: StructType) -> "PiecesReader":
        """The reader of one merge."""
        return PiecesReader(self.options)


class PiecesReader(DataSourceReader):
    """Routes shares of the waiting changes."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._target = options["target"]
        self._storage: dict[str, str] = json.loads(options["storage"])
        self._plan = options["plan"]

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each large share, or for several small ones."""
        return [InputPartition(item) for item in self._lines()[1]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The pieces of some shares, and the groups without changes."""
        tables = self._lines(1)[0]
        for number, share in partition.value:
            yield from self._pieces(number, tables[number], share)

    def _lines(self, count: int = 2) -> list[Any]:
        """The first lines of the plan's file."""
        with folder(self._target, self._storage).open_input_stream(self._plan) as file:
            text = io.TextIOWrapper(file, "utf-8")
            return [json.loads(text.readline()) for _ in range(count)]

    def _pieces(self, number: int, planned: Sequence[Any], share: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        about, numbered, joins = planned
        tasks, groups = zip(*((task, group_from_json(group)) for task, group in numbered), strict=True)
        routed = groups[: len(groups) - joins]
        if share[0] == 0:
            for group in [
                number for number, one in enumerate(groups) if one.is_share or number >= len(routed)
            ]:
                yield _piece(tasks[group], 0, 0, f"{number}/{group}", _about(about, groups[group]), None)
        table, chunk = table_from_json(about), chunk_from_json(share)
        for piece in route_chunk(table, routed, chunk, self._target, self._storage):
            place, said = f"{number}/{piece.group}", _about(about, groups[piece.group])
            for slice_number, rows in enumerate(_slices(piece.rows)):
                yield _piece(tasks[piece.group], piece.number, slice_number, place, said, rows)


def _about(table: Mapping[str, Any], group: Group) -> str:
    return json.dumps([table, group_to_json(group)])


def _slices(rows: pa.Table) -> Iterator[pa.Buffer]:
    """Rows that follow each other, as Arrow IPC streams."""
    count = max(1, rows.num_rows * SLICE_BYTES // max(rows.nbytes, 1))
    for begin in range(0, rows.num_rows, count):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema, options=COMPRESSED) as writer:
            writer.write_table(rows.slice(begin, count).combine_chunks())
        yield sink.getvalue()


def _piece(
    task: int, number: int, slice_number: int, place: str, about: str, rows: pa.Buffer | None
) -> pa.RecordBatch:
    columns = [
        pa.array([task], pa.int32()),
        pa.array([number], pa.int64()),
        pa.array([slice_number], pa.int32()),
        pa.array([place]),
        pa.array([about]),
        binary_value(rows),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["task", "number", "slice", "place", "about", "rows"])


class LeavesTarget(DataSource):
    """The data source that ``merge`` writes to."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return _LEAVES

    def writer(self, schema: StructType, overwrite: bool) -> "LeavesWriter":
        """The writer for one merge."""
        return LeavesWriter(self.options)


class LeavesWriter(DataSourceArrowWriter):
    """Writes the new files of groups, whose pieces come one after another. What tasks return becomes one file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._target = options["target"]
        self._storage: dict[str, str] = json.loads(options["storage"])
        self._result = options["result"]

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave the result for the driver."""
        items = [item for message in messages if isinstance(message, _Message) for item in message.items]
        with folder(self._target, self._storage).open_output_stream(self._result) as file:
            file.write(f"[{','.join(items)}]".encode())

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed. Files of other tasks are deleted later, like all files that no commit names."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Message:
        """Merge all groups of one partition."""
        found: list[str] = []
        place, about, pieces = "", "", list[pa.Table]()
        for batch in iterator:
            for row in range(batch.num_rows):
                following = batch["place"][row].as_py()
                if place and following != place:
                    found.append(self._merged(place, about, pieces))
                    pieces = []
                if following != place:
                    place, about = following, batch["about"][row].as_py()
                rows = batch["rows"][row]
                if rows.is_valid:
                    with pa.ipc.open_stream(rows.as_buffer()) as reader:
                        pieces.append(reader.read_all())
        if place:
            found.append(self._merged(place, about, pieces))
        return _Message(found)

    def _merged(self, place: str, about: str, pieces: list[pa.Table]) -> str:
        table, group = json.loads(about)
        files = merge_pieces(table_from_json(table), group_from_json(group), pieces, self._storage)
        return json.dumps([place, [list(asdict(file).values()) for file in files]])
