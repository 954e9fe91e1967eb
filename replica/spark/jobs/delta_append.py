"""Appending to a Delta table from Spark, through ``deltalake``: exactly once, and never through the driver's memory.

    executors   rows -> Parquet files in the table's folder        ``DeltaWriter.write``, once per partition of Spark
    driver      what these files are -> one commit in its log      ``DeltaWriter.commit``, once per micro-batch

``write_deltalake`` would want all rows of a micro-batch in the driver; here it gets the names of files. This is
Spark's own way for a data source to write, which needs no pandas as ``mapInArrow`` does.

A commit carries the streaming query's id and the number of the micro-batch as its application transaction. deltalake
writes that down, and refuses it only beside another one of the same query: that a micro-batch is there already is for
us to see, before it is written again and before it is committed. A kill before the commit leaves files that no commit
names: nobody reads them, and ``vacuum`` deletes them.
"""

import contextlib
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
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import FileSystem, PyFileSystem
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from protocol.errors import CheckpointError, ConfigurationError

NAME: Final = "mysql-replica-delta"
_QUERY_ID: Final = "sql.streaming.queryId"
# What a task holds of all its files before it writes row groups, and how many files it has open.
_HELD_BYTES: Final = 64 << 20
_OPEN_FILES: Final = 100
_APPEND_ONLY: Final = MappingProxyType({"delta.appendOnly": "true"})
# Of a folder's name.
_DEFAULT: Final = "__HIVE_DEFAULT_PARTITION__"
_PATH_TEXT: Final = 100
# The column whose range is in the table's log.
_TIME: Final = "ts"

Values = tuple[str | None, ...]


class AppendToDelta:
    """For ``foreachBatch``: appends each micro-batch once. The table is made if it is not there."""

    def __init__(self, target: str, partitions: Sequence[str]) -> None:
        self._target = target
        self._partitions = partitions

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Raises ``CheckpointError`` for a table that this query has not begun."""
        query = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        assert query is not None
        done = committed(self._target, query)
        if done is None and batch > 0:
            raise CheckpointError(
                f"{self._target}: the state is that of a query which goes on at batch {batch}, and this table has "
                "nothing of it -- give the state of this table, or delete the state to begin anew"
            )
        if done is None or done < batch:
            append(frame, self._target, self._partitions, Transaction(query, batch))


def _has(table: DeltaTable, query: str, batch: int) -> bool:
    done = table.transaction_version(query)
    return done is not None and done >= batch


def committed(target: str, query: str) -> int | None:
    """The last micro-batch of a query that the table has; None if none, or if there is no table."""
    try:
        return DeltaTable(target).transaction_version(query)
    except TableNotFoundError:
        return None


def open_table(target: str, schema: pa.Schema, partitions: Sequence[str]) -> None:
    """Make the table if it is not there. Raises ``ConfigurationError`` if it has other columns than the rows."""
    try:
        table = DeltaTable(target)
    except TableNotFoundError:
        DeltaTable.create(
            target,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partitions),
            configuration=dict(_APPEND_ONLY),
        )
        return
    names = [field.name for field in table.schema().fields]
    if names != schema.names or table.metadata().partition_columns != list(partitions):
        raise ConfigurationError(f"target: {target} is a Delta table with other columns: {', '.join(names)}")


def append(
    frame: DataFrame, target: str, partitions: Sequence[str], transaction: Transaction | None = None
) -> None:
    """Append rows in one commit. Raises ``ConfigurationError`` if the table has other columns."""
    open_table(target, to_arrow_schema(frame.schema, timezone="UTC"), partitions)
    frame.sparkSession.dataSource.register(DeltaFiles)
    options = {"target": target, "partitions": json.dumps(list(partitions))}
    if transaction is not None:
        options |= {"query": transaction.app_id, "batch": str(transaction.version)}
    frame.write.format(NAME).mode("append").options(**options).save()


def create_table(frame: DataFrame, target: str, partitions: Sequence[str]) -> None:
    """A new table with these rows. Raises ``ConfigurationError`` if there is one."""
    if DeltaTable.is_deltatable(target):
        raise ConfigurationError(
            f"target: {target} is a Delta table already -- give a folder that is not there yet"
        )
    append(frame, target, partitions)


class DeltaFiles(DataSource):
    """What ``append`` writes to, as Spark sees it."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "DeltaWriter":
        """For one ``append``."""
        options = self.options
        transaction = (options["query"], int(options["batch"])) if "query" in options else None
        partitions = tuple(json.loads(options["partitions"]))
        return DeltaWriter(
            options["target"], partitions, to_arrow_schema(schema, timezone="UTC"), transaction
        )


@dataclass(slots=True)
class WrittenFile:
    """A file of one partition of the table; ``stats`` as the table's log has them."""

    path: str
    size: int
    values: Values
    stats: str


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What a task has written."""

    files: list[WrittenFile]


class DeltaWriter(DataSourceArrowWriter):
    """``write`` runs on executors, ``commit`` and ``abort`` on the driver, each in a process of its own."""

    def __init__(
        self, target: str, partitions: tuple[str, ...], schema: pa.Schema, transaction: tuple[str, int] | None
    ) -> None:
        self._target = target
        self._partitions = partitions
        self._schema = schema
        self._transaction = transaction

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Rows to files that no commit names yet."""
        files = _PartitionedFiles(self._filesystem(), self._partitions)
        for batch in iterator:
            files.add(batch)
        return WrittenFiles(files.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All files of all tasks, at once."""
        now = int(time.time() * 1000)
        files = [
            AddAction(
                file.path,
                file.size,
                dict(zip(self._partitions, file.values, strict=True)),
                now,
                True,
                file.stats,
            )
            for file in _files(messages)
        ]
        if self._transaction is None:
            self._append(DeltaTable(self._target), files, None)
            return
        query, batch = self._transaction
        # The first micro-batch is empty, and says whose table this is.
        if not files and batch > 0:
            return
        # Spark runs this in a process that may outlive a killed driver and the next run's look at the table. Both
        # have the same transaction: who comes later is stopped here, or is refused by deltalake.
        table = DeltaTable(self._target)
        if _has(table, query, batch):
            self.abort(messages)
            return
        try:
            self._append(table, files, Transaction(query, batch))
        except CommitFailedError:
            if not _has(DeltaTable(self._target), query, batch):
                raise
            self.abort(messages)

    def _append(self, table: DeltaTable, files: list[AddAction], transaction: Transaction | None) -> None:
        table.create_write_transaction(
            list(files),
            "append",
            Schema.from_arrow(self._schema),
            list(self._partitions),
            commit_properties=CommitProperties(app_transactions=[transaction] if transaction else None),
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed: what others have written is deleted, as far as that can be done."""
        filesystem = self._filesystem()
        for file in _files(messages):
            with contextlib.suppress(OSError):
                filesystem.delete_file(file.path)

    def _filesystem(self) -> FileSystem:
        return PyFileSystem(DeltaStorageHandler(self._target))


def _files(messages: list[WriterCommitMessage | None]) -> Iterator[WrittenFile]:
    for message in messages:
        if isinstance(message, WrittenFiles):
            yield from message.files


@dataclass(slots=True)
class _OpenFile:
    """A file of one partition of the table, and the rows that are to go into it."""

    path: str
    values: Values
    writer: pq.ParquetWriter
    batches: list[pa.RecordBatch]
    stats: "_Stats"


class _PartitionedFiles:
    """The files that one task has open, one of each partition of the table."""

    def __init__(self, filesystem: FileSystem, partitions: tuple[str, ...]) -> None:
        self._filesystem = filesystem
        self._partitions = partitions
        self._open: dict[Values, _OpenFile] = {}
        self._held = 0
        self._done: list[WrittenFile] = []

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

    def finish(self) -> list[WrittenFile]:
        """Write what is left; what has been written."""
        self._close_all()
        return self._done

    def _begin(self, values: Values, schema: pa.Schema) -> _OpenFile:
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
            self._done.append(WrittenFile(file.path, size, file.values, file.stats.text()))
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


def split(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
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
