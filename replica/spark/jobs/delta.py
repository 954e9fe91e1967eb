"""Appending to a Delta table from Spark, through ``deltalake``: exactly once, and never through the driver's memory.

    executors   rows -> Parquet files in the table's folder        (``FileWriter``, once per partition of Spark)
    driver      what these files are -> one commit in its log      (``AppendToDelta``, once per micro-batch)

A commit carries the streaming query's id and the number of the micro-batch as its application transaction. deltalake
writes that down and compares nothing, so a micro-batch that is run again is looked for before it is written.
``write_deltalake`` would want all rows of a micro-batch in the driver; here it gets the files' names. A kill between
the two leaves files that no commit names: nobody reads them, and ``vacuum`` deletes them.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileSystem, PyFileSystem
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from protocol.errors import CheckpointError, ConfigurationError

_QUERY_ID: Final = "sql.streaming.queryId"
# What a task holds of all its files before it writes row groups, and how many files it has open.
_HELD_BYTES: Final = 64 << 20
_OPEN_FILES: Final = 100
_FILES: Final = "path string, size long, partition string, stats string"
_FILE_COLUMNS: Final = ("path", "size", "partition", "stats")
_FILE_TYPES: Final = (pa.string(), pa.int64(), pa.string(), pa.string())
_APPEND_ONLY: Final = MappingProxyType({"delta.appendOnly": "true"})
# Of a folder's name.
_DEFAULT: Final = "__HIVE_DEFAULT_PARTITION__"
_PATH_TEXT: Final = 100
# The column whose range is in the table's log.
_TIME: Final = "ts"


class AppendToDelta:
    """For ``foreachBatch``: appends each micro-batch once. The table is made if it is not there."""

    def __init__(self, target: str, partitions: Sequence[str]) -> None:
        self._target = target
        self._partitions = tuple(partitions)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Raises ``CheckpointError`` for a table that this query has not begun."""
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query is not None
        table = open_table(self._target, frame, self._partitions)
        done = table.transaction_version(query)
        if done is None and batch > 0:
            raise CheckpointError(
                f"{self._target}: the state is that of a query which goes on at batch {batch}, and this table has "
                "nothing of it -- give the state of this table, or delete the state to begin anew"
            )
        if done is not None and done >= batch:
            return
        files = write_files(frame, self._target, self._partitions)
        # The first one is empty, and says whose table this is.
        if files or done is None:
            commit(table, files, Transaction(query, batch), self._partitions)


def create_table(frame: DataFrame, target: str, partitions: Sequence[str]) -> None:
    """A new table with these rows. Raises ``ConfigurationError`` if there is one."""
    if DeltaTable.is_deltatable(target):
        raise ConfigurationError(
            f"target: {target} is a Delta table already -- give a folder that is not there yet"
        )
    files = write_files(frame, target, partitions)
    commit(open_table(target, frame, partitions), files, None, partitions)


def open_table(target: str, frame: DataFrame, partitions: Sequence[str]) -> DeltaTable:
    """The table, made if it is not there. Raises ``ConfigurationError`` if it has other columns than the rows."""
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    try:
        table = DeltaTable(target)
    except TableNotFoundError:
        return DeltaTable.create(
            target,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partitions),
            configuration=dict(_APPEND_ONLY),
        )
    names = [field.name for field in table.schema().fields]
    if names != schema.names or table.metadata().partition_columns != list(partitions):
        raise ConfigurationError(f"target: {target} is a Delta table with other columns: {', '.join(names)}")
    return table


def write_files(frame: DataFrame, target: str, partitions: Sequence[str]) -> list[AddAction]:
    """Have the executors write the rows; the files are in no commit yet."""
    now = int(time.time() * 1000)
    rows = frame.mapInArrow(FileWriter(target, tuple(partitions)), _FILES).collect()
    return [
        AddAction(row["path"], row["size"], json.loads(row["partition"]), now, True, row["stats"])
        for row in rows
    ]


def commit(
    table: DeltaTable, files: list[AddAction], transaction: Transaction | None, partitions: Sequence[str]
) -> None:
    """All these files, at once."""
    properties = CommitProperties(app_transactions=[transaction] if transaction else None)
    table.create_write_transaction(
        list(files), "append", table.schema(), list(partitions), commit_properties=properties
    )


@dataclass(slots=True)
class _OpenFile:
    """A file of one partition of the table, and the rows that are to go into it."""

    path: str
    values: tuple[str | None, ...]
    writer: pq.ParquetWriter
    batches: list[pa.RecordBatch]
    stats: "_Stats"


class FileWriter:
    """For ``mapInArrow``: rows to Parquet files, a row for each file: what a commit says of it."""

    __name__ = "write_files"

    def __init__(self, target: str, partitions: tuple[str, ...]) -> None:
        self._target = target
        self._partitions = partitions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all that one task has."""
        files = _PartitionedFiles(PyFileSystem(DeltaStorageHandler(self._target)), self._partitions)
        for batch in batches:
            files.add(batch)
        done = files.finish()
        if done:
            columns = [
                pa.array(column, kind)
                for column, kind in zip(zip(*done, strict=True), _FILE_TYPES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, names=_FILE_COLUMNS)


class _PartitionedFiles:
    """The files that one task has open, one of each partition of the table."""

    def __init__(self, filesystem: FileSystem, partitions: tuple[str, ...]) -> None:
        self._filesystem = filesystem
        self._partitions = partitions
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._held = 0
        self._done: list[tuple[str, int, str, str]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """More rows, of any partitions."""
        for values, part in split(batch, self._partitions):
            file = self._open.get(values) or self._begin(values, part.schema)
            file.batches.append(part)
            self._held += part.nbytes
        if len(self._open) > _OPEN_FILES:
            self._close_all()
        elif self._held > _HELD_BYTES:
            self._write_all()

    def finish(self) -> list[tuple[str, int, str, str]]:
        """Path, size, values of the partition and statistics of each file."""
        self._close_all()
        return self._done

    def _begin(self, values: tuple[str | None, ...], schema: pa.Schema) -> _OpenFile:
        folders = [
            f"{name}={_path_text(value)}" for name, value in zip(self._partitions, values, strict=True)
        ]
        path = "/".join([*folders, f"part-{uuid.uuid4()}.parquet"])
        writer = pq.ParquetWriter(path, schema, filesystem=self._filesystem, compression="zstd")
        file = self._open[values] = _OpenFile(path, values, writer, [], _Stats())
        return file

    def _write_all(self) -> None:
        for file in self._open.values():
            if file.batches:
                rows = pa.Table.from_batches(file.batches)
                file.batches.clear()
                file.stats.add(rows)
                file.writer.write_table(rows)
        self._held = 0

    def _close_all(self) -> None:
        self._write_all()
        for file in self._open.values():
            file.writer.close()
            size = self._filesystem.get_file_info(file.path).size
            partition = json.dumps(dict(zip(self._partitions, file.values, strict=True)))
            self._done.append((file.path, size, partition, file.stats.text()))
        self._open.clear()


@dataclass(slots=True)
class _Stats:
    """What lets readers pass over a file: how many rows, and when the first and the last change in it were made.

    ``seq`` is left out: readers take JSON's numbers for floats, and would pass over files for a rounded one.
    """

    rows: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add(self, rows: pa.Table) -> None:
        """Rows that are written."""
        self.rows += rows.num_rows
        found = pc.min_max(rows[_TIME]).as_py()
        low, high = found["min"], found["max"]
        if low is not None:
            self.first = low if self.first is None else min(self.first, low)
            self.last = high if self.last is None else max(self.last, high)

    def text(self) -> str:
        """As the table's log has it, where times have milliseconds."""
        stats: dict[str, object] = {"numRecords": self.rows}
        if self.first is not None and self.last is not None:
            stats["minValues"] = {_TIME: _milliseconds(self.first)}
            stats["maxValues"] = {_TIME: _milliseconds(self.last + timedelta(microseconds=999))}
        return json.dumps(stats)


def _milliseconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def split(
    batch: pa.RecordBatch, names: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """A batch by the values of some columns, as text, and each part without these columns."""
    columns = [batch[name].cast(pa.string()).dictionary_encode(null_encoding="encode") for name in names]
    rest = batch.drop_columns(list(names))
    codes = np.zeros(batch.num_rows, np.int64)
    for column in columns:
        codes = codes * len(column.dictionary) + column.indices.to_numpy()
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        values = tuple(column[rows[0]].as_py() for column in columns)
        # Most batches are of one table and one day.
        yield values, rest if len(rows) == batch.num_rows else rest.take(pa.array(rows))


def _path_text(value: str | None) -> str:
    """For people who look into the folder: what a partition is, its files' commit says."""
    return _DEFAULT if not value else re.sub(r"[^A-Za-z0-9_.-]", "_", value)[:_PATH_TEXT]
