"""Append a Spark stream to Parquet files on an object store: exactly once, through ``pyarrow.fs``.

    executors   rows -> Parquet files under the target        ``ParquetWriter.write``, once per partition of Spark
    driver      the names of these files -> one object        ``ParquetWriter.commit``, once per micro-batch

Spark's own file sink needs Hadoop's client for the store, and renames, which S3 does not have. The commits stand
where that sink writes them, in its form (Spark's FileStreamSinkLog): Spark reads the target as one of its own, and
``committed_files`` names the files for other readers. A commit is one whole object. If a killed driver's commit comes
late, it replaces the files of its micro-batch by others with the same rows. Each tenth commit names all files so far;
of these the last two are kept, with the commits since.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem, SubTreeFileSystem
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from protocol.errors import CheckpointError, ConfigurationError

from ...spool.storage import NO_STORAGE, StoredFile, file_system
from .partitioned_files import (
    PartitionedFiles,
    WrittenFile,
    WrittenFiles,
    delete_written,
    escaped,
    unpacked,
    written_files,
)
from .spark_session import save
from .target_kind import SINK_LOG

NAME: Final = "mysql-replica-parquet"
_VERSION: Final = "v1"
_COMPACT: Final = ".compact"
# Spark's spark.sql.streaming.fileSink.log.compactInterval.
_COMPACT_INTERVAL: Final = 10
_BLOCK_SIZE: Final = 32 << 20
# A reader lists the commits, and has read them so many seconds later; Spark's sink waits as long.
_READER_SECONDS: Final = 600

Entry = dict[str, Any]


def append(
    frame: DataFrame,
    target: str,
    partitions: Sequence[str],
    storage: Mapping[str, str],
    batch: int,
    *,
    is_packed: bool = False,
) -> None:
    """Append the rows of a micro-batch, unless the target has it already.

    ``is_packed``: the frame has batches of an envelope's rows (``packed_items.BATCHES_SCHEMA``).
    """
    if _SinkLog(target, storage).has(batch):
        return
    options = {
        "target": target,
        "partitions": json.dumps(list(partitions)),
        "storage": json.dumps(dict(storage)),
        "batch": str(batch),
        "packed": "true" if is_packed else "",
    }
    save(frame, ParquetFiles, options)


def create(
    frame: DataFrame,
    target: str,
    partitions: Sequence[str],
    storage: Mapping[str, str] = NO_STORAGE,
    *,
    is_packed: bool = False,
) -> None:
    """Write these rows to a new target. Raises ``ConfigurationError`` if it has rows already."""
    if _SinkLog(target, storage).batches():
        raise ConfigurationError(
            f"target: {target} has rows already -- give a folder that does not exist yet"
        )
    append(frame, target, partitions, storage, 0, is_packed=is_packed)


def committed_files(target: str, storage: Mapping[str, str] = NO_STORAGE) -> list[str]:
    """The URIs of the committed Parquet files; a task that failed or was killed may have left others."""
    return [unquote(entry["path"]) for entry in _SinkLog(target, storage).entries()]


class _SinkLog:
    """The commits of a target: ``N`` has the files of micro-batch N, ``N.compact`` the files of all up to N."""

    def __init__(self, target: str, storage: Mapping[str, str]) -> None:
        self._folder = f"{target.rstrip('/')}/{SINK_LOG}"
        self._storage = storage

    def batches(self) -> dict[int, str]:
        """The names of the commits by number."""
        system, path = file_system(self._folder, self._storage)
        names = [info.base_name for info in system.get_file_info(FileSelector(path, allow_not_found=True))]
        found = [(name.removesuffix(_COMPACT), name) for name in sorted(names)]
        return {int(number): name for number, name in found if number.isdecimal()}

    def has(self, batch: int) -> bool:
        """Whether a micro-batch is committed; the commits of old ones are deleted."""
        return batch <= max(self.batches(), default=-1)

    def entries(self, before: int | None = None) -> list[Entry]:
        """The files of all micro-batches, or of those before one."""
        found = {number: name for number, name in self.batches().items() if before is None or number < before}
        compacted = max((number for number, name in found.items() if name.endswith(_COMPACT)), default=-1)
        return [
            entry for number in sorted(found) if number >= compacted for entry in self._read(found[number])
        ]

    def commit(self, batch: int, files: list[Entry]) -> None:
        """Commit the files of a micro-batch, all at once."""
        is_compact = (batch + 1) % _COMPACT_INTERVAL == 0
        lines = [json.dumps(entry) for entry in [*(self.entries(batch) if is_compact else ()), *files]]
        name = f"{batch}{_COMPACT if is_compact else ''}"
        StoredFile(f"{self._folder}/{name}", self._storage).write("\n".join([_VERSION, *lines]).encode())
        if is_compact:
            self._delete(batch - _COMPACT_INTERVAL)

    def _delete(self, end: int) -> None:
        """Delete the commits before one that names all files so far, except those that a reader may be reading."""
        system, path = file_system(self._folder, self._storage)
        before = (time.time() - _READER_SECONDS) * 1e9
        for info in system.get_file_info(FileSelector(path)):
            number = info.base_name.removesuffix(_COMPACT)
            if number.isdecimal() and int(number) < end and (info.mtime_ns or 0) < before:
                # Files that stay take room only.
                with contextlib.suppress(OSError):
                    system.delete_file(info.path)

    def _read(self, name: str) -> list[Entry]:
        uri = f"{self._folder}/{name}"
        version, *lines = (StoredFile(uri, self._storage).read() or b"").decode().splitlines() or [""]
        if version != _VERSION:
            raise CheckpointError(f"{uri}: no list of files of Spark's file sink")
        return [json.loads(line) for line in lines]


class ParquetFiles(DataSource):
    """The data source that ``append`` writes to; Spark's side of ``ParquetWriter``."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "ParquetWriter":
        """The writer for one ``append``."""
        options = self.options
        partitions = tuple(json.loads(options["partitions"]))
        return ParquetWriter(
            options["target"],
            partitions,
            int(options["batch"]),
            json.loads(options["storage"]),
            is_packed=bool(options.get("packed")),
        )


class ParquetWriter(DataSourceArrowWriter):
    """Writes a micro-batch: ``write`` on executors, ``commit`` and ``abort`` on the driver, in separate processes."""

    def __init__(
        self,
        target: str,
        partitions: tuple[str, ...],
        batch: int,
        storage: Mapping[str, str] = NO_STORAGE,
        *,
        is_packed: bool = False,
    ) -> None:
        self._is_packed = is_packed
        self._target = target.rstrip("/")
        self._partitions = partitions
        self._batch = batch
        self._storage = dict(storage)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write rows to files, which no commit names yet."""
        files = PartitionedFiles(self._filesystem(), self._partitions, escaped)
        for batch in unpacked(iterator) if self._is_packed else iterator:
            files.add(batch)
        return WrittenFiles(files.finish())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks at once, unless another run of the micro-batch has."""
        log = _SinkLog(self._target, self._storage)
        if log.has(self._batch):
            self.abort(messages)
            return
        now = int(time.time() * 1000)
        log.commit(self._batch, [self._entry(file, now) for file in written_files(messages)])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed: delete the files that other tasks have written, as far as possible."""
        delete_written(self._filesystem(), messages)

    def _entry(self, file: WrittenFile, now: int) -> Entry:
        return {
            # As a URI: the name of a folder may have "%" in it.
            "path": f"{self._target}/{quote(file.path, safe='/=')}",
            "size": file.size,
            "isDir": False,
            "modificationTime": now,
            "blockReplication": 1,
            "blockSize": _BLOCK_SIZE,
            "action": "add",
        }

    def _filesystem(self) -> FileSystem:
        system, path = file_system(self._target, self._storage)
        return SubTreeFileSystem(path, system)
