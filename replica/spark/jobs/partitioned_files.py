"""The Parquet files of one task of Spark: one for each partition of a table, in folders by the partition's values.

    rows of any partitions -> PartitionedFiles.add -> files -> WrittenFiles, which the driver commits

A file counts when a commit names it: ``delta_append`` and ``parquet_append`` commit. No Spark session is needed.

A file may have rows of many tables. Then rows are clustered (``CLUSTERED``): each row group holds few tables, and has
their first and last name. So a reader of one table skips most row groups, and whole files by the table's log.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from protocol.records import field, record

from ...spool.storage import make_folder
from ..packed_items import unpack_batches

# The bytes of rows that a task holds for all its files before it writes row groups; and the most files it has open.
_HELD_BYTES: Final = 64 << 20
_OPEN_FILES: Final = 100
# Rows of one table after another become row groups of about so many bytes in memory.
_GROUP_BYTES: Final = 4 << 20
#: Rows with the same values of these columns are next to each other, unless files are partitioned by them.
CLUSTERED: Final = ("schema", "table")
# The longest partition value in a folder name for people.
_PATH_TEXT: Final = 100
# What Hive and Spark write for NULL, and the characters that they escape (Spark's ExternalCatalogUtils).
_DEFAULT: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
# The columns whose minimum and maximum the table's log has for each file. ``seq`` is not among them: readers take
# numbers in JSON for floats, and would skip files by a rounded number.
_INDEXED: Final = ("ts", *CLUSTERED)

Values = tuple[str | None, ...]


@record(slots=True)
class WrittenFile:
    """A file of one partition of the table; ``stats`` is the JSON text for the table's log."""

    path: str
    size: int
    values: Values
    stats: str


@dataclass
class WrittenFiles(WriterCommitMessage):
    """The files that a task has written."""

    files: list[WrittenFile]


def written_files(messages: list[WriterCommitMessage | None]) -> Iterator[WrittenFile]:
    """The files of all tasks."""
    for message in messages:
        if isinstance(message, WrittenFiles):
            yield from message.files


def delete_written(filesystem: FileSystem, messages: list[WriterCommitMessage | None]) -> None:
    """Delete the files of all tasks, as far as possible."""
    for file in written_files(messages):
        with contextlib.suppress(OSError):
            filesystem.delete_file(file.path)


@record(slots=True)
class _OpenFile:
    """An open file of one partition of the table, and the rows that wait to be written to it."""

    path: str
    values: Values
    writer: pq.ParquetWriter
    clustered: tuple[str, ...]
    batches: dict[Values, list[pa.RecordBatch]]
    stats: "_Stats"


def readable(value: str | None) -> str:
    """A folder name for people; readers take the value of a partition from the commit."""
    return _DEFAULT if not value else re.sub(r"[^A-Za-z0-9_.-]", "_", value)[:_PATH_TEXT]


def escaped(value: str | None) -> str:
    """A folder name that readers of Hive's partitions, such as Spark and pyarrow, take the value from."""
    return _DEFAULT if not value else _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)


def with_day(schema: pa.Schema) -> pa.Schema:
    """The columns of packed rows of an envelope as a table has them, in the types that Spark gives."""
    schema = schema.append(pa.field("day", pa.date32()))
    return to_arrow_schema(from_arrow_schema(schema), timezone="UTC")


def unpacked(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of packed rows of an envelope, with the column ``day``: the day of ``ts`` in UTC."""
    for packed in rows:
        for batch in unpack_batches(packed):
            yield batch.append_column("day", batch.column("ts").cast(pa.date32()))


class PartitionedFiles:
    """The open files of one task, one for each partition of the table; ``folder_name`` names a partition's value."""

    def __init__(
        self,
        filesystem: FileSystem,
        partitions: tuple[str, ...],
        folder_name: Callable[[str | None], str] = readable,
    ) -> None:
        self._filesystem = filesystem
        self._folder_name = folder_name
        self._partitions = partitions
        self._open: dict[Values, _OpenFile] = {}
        self._held = 0
        self._done: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows of any partitions."""
        for values, part in split(batch, self._partitions):
            file = self._open.get(values) or self._begin(values, part.schema)
            for cluster, rows in split(part, file.clustered, drops=False):
                file.batches.setdefault(cluster, []).append(rows)
            self._held += part.nbytes
        if len(self._open) > _OPEN_FILES:
            self._close_all()
        elif self._held > _HELD_BYTES:
            self._write_all()

    def finish(self) -> list[WrittenFile]:
        """Write the remaining rows. Returns all files of the task."""
        self._close_all()
        return self._done

    def _begin(self, values: Values, schema: pa.Schema) -> _OpenFile:
        folders = [
            f"{name}={self._folder_name(value)}" for name, value in zip(self._partitions, values, strict=True)
        ]
        path = "/".join([*folders, f"part-{uuid.uuid4()}.parquet"])
        # Delta's file system makes folders itself.
        make_folder(self._filesystem, "/".join(folders))
        clustered = tuple(name for name in CLUSTERED if name in schema.names)
        writer = pq.ParquetWriter(
            path, schema, filesystem=self._filesystem, compression="zstd", write_page_index=bool(clustered)
        )
        file = self._open[values] = _OpenFile(path, values, writer, clustered, {}, _Stats())
        return file

    def _write_all(self) -> None:
        for file in self._open.values():
            for rows in _row_groups(file.batches):
                file.stats.add(rows)
                file.writer.write_table(rows)
            file.batches.clear()
        self._held = 0

    def _close_all(self) -> None:
        self._write_all()
        for file in self._open.values():
            file.writer.close()
            size = self._filesystem.get_file_info(file.path).size
            self._done.append(WrittenFile(file.path, size, file.values, file.stats.text()))
        self._open.clear()


def _row_groups(batches: Mapping[Values, list[pa.RecordBatch]]) -> Iterator[pa.Table]:
    """The rows of one cluster after another."""
    held, size = list[pa.RecordBatch](), 0
    for _, some in sorted(batches.items(), key=lambda item: [value or "" for value in item[0]]):
        held += some
        size += sum(batch.nbytes for batch in some)
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


@record(slots=True)
class _Stats:
    """The statistics by which readers skip a file: the number of rows, and least and largest values of columns."""

    rows: int = 0
    ends: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Count these rows."""
        self.rows += rows.num_rows
        for name in _INDEXED:
            found = pc.min_max(rows[name]).as_py() if name in rows.schema.names else {}
            if found.get("min") is not None:
                low, high = self.ends.get(name, (found["min"], found["max"]))
                self.ends[name] = min(low, found["min"]), max(high, found["max"])

    def text(self) -> str:
        """The statistics as JSON for the table's log, where times have milliseconds."""
        stats: dict[str, object] = {"numRecords": self.rows}
        if self.ends:
            stats["minValues"] = {name: _said(low) for name, (low, _) in self.ends.items()}
            stats["maxValues"] = {name: _said(high, 999) for name, (_, high) in self.ends.items()}
        return json.dumps(stats)


def _said(value: datetime | str, micros: int = 0) -> str:
    return value if isinstance(value, str) else _milliseconds(value + timedelta(microseconds=micros))


def _milliseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def split(
    batch: pa.RecordBatch, names: Sequence[str], *, drops: bool = True
) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """Split a batch by the values of some columns: the values as text, and the part (``drops``: without them)."""
    if not names:
        yield (), batch
        return
    columns = [batch[name].cast(pa.string()).dictionary_encode(null_encoding="encode") for name in names]
    rest = batch.drop_columns(list(names)) if drops else batch
    codes = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        values = tuple(column[rows[0]].as_py() for column in columns)
        # Most batches have rows of one table and one day only.
        yield values, rest if len(rows) == batch.num_rows else rest.take(pa.array(rows))
