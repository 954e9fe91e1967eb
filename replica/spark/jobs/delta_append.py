"""Append a Spark stream to a Delta table through ``deltalake``: exactly once, without rows in the driver's memory.

    executors   rows -> Parquet files in the table's folder        ``DeltaWriter.write``, once per partition of Spark
    driver      the names of these files -> one commit             ``DeltaWriter.commit``, once per micro-batch

``write_deltalake`` needs all rows of a micro-batch in the driver; here the driver only gets the names of files. This
is Spark's writer API for data sources, which needs no pandas, unlike ``mapInArrow``.

A commit has the id of the streaming query and the number of the micro-batch as its application transaction. deltalake
stores it, but only refuses it beside a concurrent commit of the same query. So this module itself checks, before
writing and before committing, whether the table has the micro-batch. A kill before the commit leaves files that no
commit names: no reader sees them, and ``vacuum`` deletes them.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import Final

import pyarrow as pa
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
from protocol.records import record

from ...spool.storage import NO_STORAGE
from .checkpoints import check_query, has_query, last_number, note_append, query_id, query_of
from .partitioned_files import (
    PartitionedFiles,
    WrittenFiles,
    delete_written,
    unpacked,
    with_day,
    written_files,
)
from .spark_session import save
from .staging import schema_from_text, schema_to_text
from .table_versions import empty_commit, shown_version

NAME: Final = "mysql-replica-delta"
# The number of last commits among which a RESTORE is looked for.
_HISTORY: Final = 20
_APPEND_ONLY: Final = MappingProxyType({"delta.appendOnly": "true"})


@record(frozen=True, slots=True)
class Place:
    """A micro-batch: its query, its number, and the checkpoint of the query.

    ``origin`` stands for the source. A transaction with this id says that the table has changes of the source,
    whichever query wrote them.
    """

    query: str
    batch: int
    origin: str
    checkpoint: str


class AppendToDelta:
    """A function for ``foreachBatch`` that appends each micro-batch once. It creates the table if there is none."""

    def __init__(
        self,
        target: str,
        partitions: Sequence[str],
        checkpoint: str,
        storage: Mapping[str, str],
        schema: pa.Schema | None = None,
        source_name: str = "",
    ) -> None:
        """``checkpoint`` is that of the query, ``storage`` has the storage options of the target.

        ``schema``: see ``append``. ``source_name`` tells sources of one table apart.
        """
        self._origin = f"mysql-replica:{source_name}"
        self._target = target
        self._schema = schema
        self._partitions = partitions
        self._checkpoint = checkpoint
        self._storage = dict(storage)

    def check(self) -> None:
        """Raises ``CheckpointError`` if both the table and the checkpoint exist, and belong to different queries."""
        if not has_query(self._checkpoint, self._storage):
            self._check_new()
            return
        done = partial(committed, self._target, storage=self._storage)
        check_query(self._checkpoint, self._target, done, self._storage, skips_empty=True)
        check_restored(self._target, self._storage)
        if (empty := empty_commit(self._target)) is not None:
            self._pass_over(empty)

    def _pass_over(self, empty: int) -> None:
        """Forget a version whose commit is an empty file, if the query writes its rows again.

        Raises ``CheckpointError`` if it does not.
        """
        table = DeltaTable(self._target, storage_options=self._storage)
        written = table.transaction_version(query_of(self._checkpoint, self._storage))
        begun, done = (
            last_number(f"{self._checkpoint}/{log}", self._storage) for log in ("offsets", "commits")
        )
        is_unfinished = begun > done or done == written
        if table.version() > empty or not is_unfinished:
            raise CheckpointError(
                f"{self._target} has lost the rows of version {empty}, as the file of its commit is empty (a power "
                "failure may leave it so) -- begin in another folder"
            )
        table.create_checkpoint()

    def _check_new(self) -> None:
        """Raises ``CheckpointError`` if the table has changes of this source from another query."""
        if committed(self._target, self._origin, self._storage) is not None:
            raise CheckpointError(
                f"{self._target} has changes from another query than that of {self._checkpoint}, which would append "
                "them a second time, or lack some -- give the state of this table (state=); if it is lost, begin in "
                "another folder; for another source give sourceName"
            )

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Append a micro-batch. Raises ``CheckpointError`` for a table that another query began."""
        query = query_id(frame, self._checkpoint, self._storage)
        done = committed(self._target, query, self._storage)
        if done is None and batch > 0:
            raise CheckpointError(
                f"{self._target}: the state belongs to a query that continues at batch {batch}, but this table has "
                "nothing of it -- give the state of this table, or delete the state to begin anew"
            )
        if done is None:
            self._check_new()
        if done is None or done < batch:
            place = Place(query, batch, self._origin, self._checkpoint)
            append(frame, self._target, self._partitions, self._storage, place, self._schema)


def check_restored(target: str, storage: Mapping[str, str]) -> None:
    """Raises ``CheckpointError`` if a RESTORE has taken appended rows away, and nothing was written since.

    The table keeps the numbers of the micro-batches that it lost, so these would be skipped.
    """
    try:
        table = DeltaTable(target, storage_options=dict(storage))
    except TableNotFoundError:
        return
    writes = [int(entry["version"]) for entry in table.history(_HISTORY) if entry.get("operation") == "WRITE"]
    if writes and (version := shown_version(table, max(writes))) < max(writes):
        raise CheckpointError(
            f"{target} was restored to version {version}, and lacks the rows that its query has appended since, up "
            f"to version {max(writes)} -- restore it to that version, or begin in another folder"
        )


def _has(table: DeltaTable, query: str, batch: int) -> bool:
    done = table.transaction_version(query)
    return done is not None and done >= batch


def committed(target: str, query: str, storage: Mapping[str, str] = NO_STORAGE) -> int | None:
    """The number of the query's last micro-batch in the table; None if there is none, or no table."""
    try:
        return DeltaTable(target, storage_options=dict(storage)).transaction_version(query)
    except TableNotFoundError:
        return None


def open_table(
    target: str, schema: pa.Schema, partitions: Sequence[str], storage: Mapping[str, str] = NO_STORAGE
) -> None:
    """Create the table if there is none. Raises ``ConfigurationError`` if its columns are not those of the rows."""
    try:
        table = DeltaTable(target, storage_options=dict(storage))
    except TableNotFoundError:
        DeltaTable.create(
            target,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(partitions),
            configuration=dict(_APPEND_ONLY),
            storage_options=dict(storage),
        )
        return
    names = [field.name for field in table.schema().fields]
    if names != schema.names or table.metadata().partition_columns != list(partitions):
        raise ConfigurationError(
            f"target: {target} is a Delta table with other columns ({', '.join(names)}) -- give another folder"
        )


def append(
    frame: DataFrame,
    target: str,
    partitions: Sequence[str],
    storage: Mapping[str, str],
    place: Place | None = None,
    schema: pa.Schema | None = None,
) -> None:
    """Append rows by one commit. Raises ``ConfigurationError`` if the table has other columns.

    ``schema`` is that of packed rows: the frame has batches of them (``packed_items.BATCHES_SCHEMA``).
    """
    columns = to_arrow_schema(frame.schema, timezone="UTC") if schema is None else with_day(schema)
    open_table(target, columns, partitions, storage)
    options = {
        "target": target,
        "partitions": json.dumps(list(partitions)),
        "storage": json.dumps(dict(storage)),
    }
    if schema is not None:
        options["packed"] = schema_to_text(columns)
    if place is not None:
        options["place"] = json.dumps(asdict(place))
    save(frame, DeltaFiles, options)


def create_table(
    frame: DataFrame,
    target: str,
    partitions: Sequence[str],
    storage: Mapping[str, str] = NO_STORAGE,
    schema: pa.Schema | None = None,
) -> None:
    """Create a table with these rows. Raises ``ConfigurationError`` if there is a table already."""
    if DeltaTable.is_deltatable(target, dict(storage)):
        raise ConfigurationError(
            f"target: {target} is a Delta table already -- give a folder that does not exist yet"
        )
    append(frame, target, partitions, storage, schema=schema)


class DeltaFiles(DataSource):
    """The data source that ``append`` writes to; Spark's side of ``DeltaWriter``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "DeltaWriter":
        """The writer for one ``append``."""
        options = self.options
        place = Place(**json.loads(options["place"])) if "place" in options else None
        partitions = tuple(json.loads(options["partitions"]))
        packed = options.get("packed")
        arrow_schema = to_arrow_schema(schema, timezone="UTC") if packed is None else schema_from_text(packed)
        storage = json.loads(options["storage"])
        is_packed = packed is not None
        return DeltaWriter(options["target"], partitions, arrow_schema, place, storage, is_packed=is_packed)


class DeltaWriter(DataSourceArrowWriter):
    """Writes a micro-batch: ``write`` on executors, ``commit`` and ``abort`` on the driver, in separate processes."""

    def __init__(
        self,
        target: str,
        partitions: tuple[str, ...],
        schema: pa.Schema,
        place: Place | None,
        storage: Mapping[str, str] = NO_STORAGE,
        *,
        is_packed: bool = False,
    ) -> None:
        self._storage = dict(storage)
        self._is_packed = is_packed
        self._target = target
        self._partitions = partitions
        self._schema = schema
        self._place = place

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write rows to files, which no commit names yet."""
        files = PartitionedFiles(self._filesystem(), self._partitions)
        for batch in unpacked(iterator) if self._is_packed else iterator:
            files.add(batch)
        return WrittenFiles(files.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks at once."""
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
            for file in written_files(messages)
        ]
        place = self._place
        if place is None:
            self._append(self._table(), files)
            return
        # The first micro-batch is empty, but its commit marks the table as this query's.
        if not files and place.batch > 0:
            return
        # Spark runs this in a process that may outlive a killed driver, and commit after the next run has checked the
        # table. Both commits have the same transaction: the later one stops here, or deltalake refuses it.
        table = self._table()
        if _has(table, place.query, place.batch):
            self.abort(messages)
            return
        try:
            self._append(
                table, files, Transaction(place.query, place.batch), Transaction(place.origin, place.batch)
            )
        except CommitFailedError:
            # This commit itself may have succeeded: if its answer was lost, it was sent again. Then its files stay.
            if not _has(self._table(), place.query, place.batch):
                raise
        note_append(place.checkpoint, place.batch, self._storage)

    def _append(self, table: DeltaTable, files: list[AddAction], *transactions: Transaction) -> None:
        table.create_write_transaction(
            list(files),
            "append",
            Schema.from_arrow(self._schema),
            list(self._partitions),
            commit_properties=CommitProperties(app_transactions=list(transactions) or None),
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed: delete the files that other tasks have written, as far as possible."""
        delete_written(self._filesystem(), messages)

    def _table(self) -> DeltaTable:
        return DeltaTable(self._target, storage_options=self._storage)

    def _filesystem(self) -> FileSystem:
        return PyFileSystem(DeltaStorageHandler(self._target, self._storage))
